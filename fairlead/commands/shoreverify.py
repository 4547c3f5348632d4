"""``fairlead shore verify``: are the tables what the logs say?"""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer
from rich.markup import escape
from rich.table import Table

from fairlead.commands.context import DEFAULT_TOPOLOGY, JsonOption, TopologyOption
from fairlead.commands.shorecontext import open_shore
from fairlead.console import console, emit, telling
from fairlead.errors import ExitCode
from shore.opened import check_tables
from shore.verify.model import Difference, TableCheck, Verification
from shore.verify.run import verify as run_verify

TableOption = Annotated[
    list[str] | None, typer.Option("--table", help="Only this table; may be repeated.", metavar="TABLE")
]
_VERDICTS = {True: "[green]equal[/]", False: "[bold red]DIFFERENT[/]", None: "[yellow]not compared[/]"}


def verify(table: TableOption = None, topology: TopologyOption = DEFAULT_TOPOLOGY, as_json: JsonOption = False) -> None:
    """Prove that the tables equal the logs, while shore runs or stands still. Changes nothing.

    Log tables are compared with the logs up to where their job has read: number and digest of every log's records.
    Derived tables are made anew from their inputs, without Spark, and compared row by row. Ends with 1 when something
    differs.

    Example: fairlead shore verify --table readings
    """
    place = open_shore(topology)
    check_tables(table or ())
    with telling(quiet=as_json) as tell:
        found = run_verify(place.topology, place.endpoint, place.folder, table, tell=tell)
    body = {"ok": found.ok, "whole": found.whole, **msgspec.to_builtins(found)}
    emit(body, as_json=as_json, render=lambda: _show(found))
    if not found.ok:
        raise typer.Exit(ExitCode.FAILED)


def _show(found: Verification) -> None:
    table = Table("table", "is", box=None, header_style="bold", pad_edge=False)
    for heading in ("rows", "expected", "logs", "still to read", "no more in logs"):
        table.add_column(heading, justify="right")
    for check in found.tables:
        table.add_row(
            check.table,
            _VERDICTS[check.same],
            f"{check.rows:,}",
            f"{check.expected:,}",
            "" if check.logs is None else f"{check.logs:,}",
            "" if not check.behind else f"{check.behind:,}",
            f"{check.gone:,}" if check.gone else "",
        )
    console.print(table)
    for check in found.tables:
        for note in check.notes:
            console.print(f"{check.table}: {escape(note)}", style="dim", soft_wrap=True)
    odd = [each for check in found.tables for each in check.differences]
    if odd:
        console.print(_differences(odd))
        console.print(_counts([check for check in found.tables if check.same is False]), soft_wrap=True)


def _differences(odd: list[Difference]) -> Table:
    table = Table("table", "row", "is", "in", box=None, header_style="bold", pad_edge=False)
    for each in odd:
        key = ", ".join(f"{name} {value}" for name, value in each.key.items())
        table.add_row(each.table, escape(key), each.what, ", ".join(each.columns))
    return table


def _counts(checks: list[TableCheck]) -> str:
    parts = [f"{check.table}: {check.differing:,} {'logs' if check.kind == 'logs' else 'rows'}" for check in checks]
    return f"differing: {'; '.join(parts)}. What to do: fairlead shore backfill --help, or docs/shore.md"
