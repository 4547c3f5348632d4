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
from shore.feeds.tables import kept_tables
from shore.opened import check_tables
from shore.verify.catalogue import mended_by
from shore.verify.model import Difference, Verification
from shore.verify.run import verify as run_verify

TableOption = Annotated[
    list[str] | None, typer.Option("--table", help="Only this table; may be repeated.", metavar="TABLE")
]
_VERDICTS = {True: "[green]equal[/]", False: "[bold red]DIFFERENT[/]", None: "[yellow]not compared[/]"}
_UNREADABLE = "[bold red]UNREADABLE[/]"


def verify(table: TableOption = None, topology: TopologyOption = DEFAULT_TOPOLOGY, as_json: JsonOption = False) -> None:
    """Prove that the tables equal the logs, while shore runs or stands still. Changes nothing.

    Log tables are compared with the logs up to where their job has read: number and digest of every log's records.
    Derived tables are made anew from their inputs, without Spark, and compared row by row. Ends with 1 when something
    differs.

    Example: fairlead shore verify --table readings
    """
    place = open_shore(topology)
    check_tables(table or (), kept_tables(place.topology))
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
        unknown = check.unreadable or check.same is None
        table.add_row(
            check.table,
            _UNREADABLE if check.unreadable else _VERDICTS[check.same],
            "" if unknown else f"{check.rows:,}",
            "" if unknown else f"{check.expected:,}",
            "" if check.logs is None else f"{check.logs:,}",
            "" if not check.behind else f"{check.behind:,}",
            f"{check.gone:,}" if check.gone else "",
        )
    console.print(table)
    for check in found.tables:
        for note in check.notes:
            console.print(f"{check.table}: {escape(note)}", style="dim", soft_wrap=True)
    for check in found.tables:
        for each in check.differences:
            console.print(_line(each), soft_wrap=True)
    for line in what_to_do(found):
        console.print(line, soft_wrap=True)


def what_to_do(found: Verification) -> list[str]:
    """How many logs or rows of which tables differ, and the commands that put them right; what to do about tables that
    could not be compared. Empty when all is equal."""
    odd = [check for check in found.tables if check.differing]
    lines = []
    if odd:
        counts = [f"{check.table}: {check.differing:,} {'logs' if check.kind == 'logs' else 'rows'}" for check in odd]
        lines.append(f"differing: {'; '.join(counts)}")
        commands = dict.fromkeys(mended_by(check.table) for check in odd)
        lines.append(
            f"What to do: stop shore, {', '.join(commands)}, then fairlead shore run --once. More in docs/shore.md"
        )
    if any(check.unreadable for check in found.tables):
        lines.append("What cannot be read comes first: as told above, then fairlead shore run --once, and verify again")
    elif not found.whole:
        lines.append("Not everything was compared: fairlead shore run --once, then verify again")
    return lines


def _line(each: Difference) -> str:
    key = ", ".join(f"{name} {value}" for name, value in each.key.items())
    columns = f" in {', '.join(each.columns)}" if each.columns else ""
    return f"{each.table}: {escape(key)}: [bold]{each.what}[/]{escape(columns)}"
