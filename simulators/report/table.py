"""The report as a table for the terminal."""

from __future__ import annotations

from rich.table import Table

from simulators.report.model import Report


def as_table(report: Report) -> Table:
    """One row per line; a false line is marked and red."""
    title = f"{report.scenario} on {report.topology}, seed {report.seed}, start {report.starts:%Y-%m-%d}"
    table = Table(title=title, title_justify="left")
    table.add_column("", no_wrap=True)
    table.add_column("what")
    table.add_column("value")
    for line in report.lines():
        table.add_row("[green]true[/]" if line.ok else "[bold red]FALSE[/]", line.what, line.value)
    return table
