"""``fairlead shore compact`` and ``vacuum``: what would be done, then, if wanted, doing it."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Sequence
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fairlead.commands.context import DEFAULT_TOPOLOGY, DryRunOption, JsonOption, TopologyOption, YesOption
from fairlead.commands.shorecontext import open_shore
from fairlead.commands.tableshow import size
from fairlead.console import confirmed, console, emit, errors, unchanged
from fairlead.errors import ConfigurationError
from shore.damage import told
from shore.feeds.tables import kept_tables
from shore.maintenance.compact import CompactStep, compact, plan_compaction
from shore.maintenance.vacuum import VacuumStep, plan_vacuum, vacuum
from topologies.values import parse_duration

_NONE: Final = "there are no such tables yet: fairlead shore run --once"
TablesArgument = Annotated[list[str] | None, typer.Argument(help="Default: all.", metavar="TABLE")]


def compact_(
    tables: TablesArgument = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """Make few files of many, and put the rows of readings together by container.

    Changes no row, and may run while shore does. Asks first at a terminal; elsewhere --yes does it.

    Example: fairlead shore compact --yes
    """
    shore = open_shore(topology)
    places, kept = shore.places, kept_tables(shore.topology)
    plan = plan_compaction(places, tables, tables=kept)
    todo = [step for step in plan if step.why]
    done = {}
    if todo and confirmed(lambda: _show_compaction(plan, errors), yes=yes, as_json=as_json, dry_run=dry_run):
        with told(places, kept):
            done = {step.table: compact(places, step) for step in todo}
    body = [dataclasses.asdict(step) | {"files_after": done.get(step.table, (0, None))[1]} for step in plan]

    def render() -> None:
        if not done:
            _show_compaction(plan, console)
        for table, (before, after) in done.items():
            console.print(f"[green]done[/]: {table} had {before:,} files and has {after:,}")
        if todo and not done:
            unchanged(dry_run=dry_run)

    emit({"applied": bool(done), "tables": body}, as_json=as_json, render=render)


def vacuum_(
    tables: TablesArgument = None,
    keep: Annotated[
        str, typer.Option("--keep", help="Keep files for so long after they were replaced.", metavar="TIME")
    ] = "7d",
    force: Annotated[bool, typer.Option("--force", help="Allow --keep to be less than 7 days.")] = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """Delete files that no version of the last seven days needs.

    May run while shore does. A table is left alone while a job has still to read what it had before. Asks first at a
    terminal; elsewhere --yes does it.

    Example: fairlead shore vacuum --keep 14d --yes
    """
    from shore.jobs.runner import JOBS  # Spark's modules take a second

    shore, span = open_shore(topology), _span(keep)
    places, kept = shore.places, kept_tables(shore.topology)
    readers = [job.name for job in JOBS.values() if not job.reads_logs]
    now = dt.datetime.now(dt.UTC)
    with told(places, kept):
        plan = plan_vacuum(places, tables, keep=span, force=force, jobs=readers, tables=kept, now=now)
    todo = [step for step in plan if step.files and not step.why]
    done = {}
    if todo and confirmed(lambda: _show_vacuum(plan, errors), yes=yes, as_json=as_json, dry_run=dry_run):
        with told(places, kept):
            done = {step.table: vacuum(places, step, keep=span, force=force) for step in todo}

    def render() -> None:
        if not done:
            _show_vacuum(plan, console)
        for table, count in done.items():
            console.print(f"[green]done[/]: {count:,} files of {table} deleted")
        if todo and not done:
            unchanged(dry_run=dry_run)

    body = [dataclasses.asdict(step) | {"deleted": done.get(step.table, 0)} for step in plan]
    emit({"applied": bool(done), "tables": body}, as_json=as_json, render=render)


def _show_compaction(plan: Sequence[CompactStep], on: Console) -> None:
    if not plan:
        on.print(_NONE)
        return
    table = Table("table", box=None, header_style="bold", pad_edge=False)
    for heading in ("files", "small", "size"):
        table.add_column(heading, justify="right")
    table.add_column("to do")
    for step in plan:
        table.add_row(
            step.table, f"{step.files:,}", f"{step.small:,}", _size(step.bytes), escape(step.why or "nothing")
        )
    on.print(table)


def _show_vacuum(plan: Sequence[VacuumStep], on: Console) -> None:
    if not plan:
        on.print(_NONE)
        return
    table = Table("table", box=None, header_style="bold", pad_edge=False)
    for heading in ("files to delete", "size"):
        table.add_column(heading, justify="right")
    table.add_column("left alone because")
    for step in plan:
        table.add_row(step.table, f"{step.files:,}", _size(step.bytes), escape(step.why))
    on.print(table)


def _size(count: int | None) -> str:
    return "" if count is None else size(count)


def _span(text: str) -> dt.timedelta:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise ConfigurationError(f"--keep {text}: {error}", hint="a time like 7d or 36h") from error
