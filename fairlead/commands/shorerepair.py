"""``fairlead shore backfill`` and ``rebuild``: making tables and checkpoints what they must be."""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fairlead.commands.context import DEFAULT_TOPOLOGY, DryRunOption, JsonOption, TopologyOption, YesOption
from fairlead.commands.shorecontext import open_shore
from fairlead.commands.shoreverify import TableOption
from fairlead.console import confirmed, console, emit, errors, telling, unchanged
from fairlead.errors import ConfigurationError, UnknownNameError


def backfill(
    since: Annotated[
        str | None, typer.Option("--from", help="First day or time, inclusive. Default: all.", metavar="TIME")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--to", help="Day or time after the last, exclusive. Default: all.", metavar="TIME")
    ] = None,
    table: TableOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """Make some days again: add what the logs have and the tables lack, replace what is wrong, never double a row.

    Times are UTC, of the devices. Shore must not run meanwhile. Asks first at a terminal; elsewhere --yes does it.

    Example: fairlead shore backfill --from 2026-03-01 --to 2026-03-02 --yes
    """
    from shore.backfill import apply, plan  # Spark's modules take a second
    from shore.damage import told
    from shore.jobs.lock import only_one
    from shore.opened import check_tables
    from shore.repair.derived import Span

    place = open_shore(topology)
    check_tables(table or ())
    span = Span(_time("--from", since), _time("--to", until))
    with only_one(place.folder), told(place.places):
        with telling(quiet=as_json) as tell:
            todo = plan(place.topology, place.endpoint, place.places, span, table, tell=tell)
        rows = [
            {
                "table": each.entry.name,
                "missing": each.missing,
                "wrong": each.wrong,
                "of_no_record": each.extra,
                "logs_too_short": list(each.shorter),
            }
            for each in todo.logs
        ]
        rows += [{"table": each.entry.table, "differing": each.rows} for each in todo.derived]
        wanted = not todo.empty and confirmed(lambda: _show(rows, errors), yes=yes, as_json=as_json, dry_run=dry_run)
        written: dict[str, int] = {}
        if wanted:
            with telling(quiet=as_json) as tell:
                written = apply(todo, place.endpoint, place.places, tell=tell)

    def render() -> None:
        if not wanted:
            _show(rows, console)
        for name, count in written.items():
            console.print(f"[green]done[/]: {count:,} rows of {name} written")
        if written:
            console.print("then: fairlead shore run --once, which tells feeds and other tables about them")
        if todo.empty:
            console.print("everything is as it must be")
        elif not wanted:
            unchanged(dry_run=dry_run)

    emit({"applied": wanted, "found": rows, "written": written}, as_json=as_json, render=render)


def rebuild(
    job: Annotated[str, typer.Argument(help="The job whose checkpoint or tables are lost or damaged.")],
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """Make a job's checkpoint and tables belong together again, whatever of them was lost or is damaged.

    A job that reads logs goes on where its tables end, after what they lack was added from the logs. The tables of
    other jobs are made again from their inputs. A checkpoint that is there is put aside, not deleted. Shore must not
    run meanwhile. Asks first at a terminal; elsewhere --yes does it.

    Example: fairlead shore rebuild readings --yes
    """
    from shore.damage import told
    from shore.jobs.lock import only_one  # Spark's modules take a second
    from shore.jobs.runner import JOBS
    from shore.repair.rebuild import rebuild as run_rebuild

    place = open_shore(topology)
    if job not in JOBS:
        raise UnknownNameError("job", job, JOBS)

    def show(on: Console) -> None:
        on.print(f"The checkpoint of job {escape(job)} will be put aside and made anew, its tables completed.")

    done = None
    if confirmed(lambda: show(errors), yes=yes, as_json=as_json, dry_run=dry_run):
        with only_one(place.folder), told(place.places), telling(quiet=as_json) as tell:
            done = run_rebuild(job, JOBS, place.topology, place.endpoint, place.places, tell=tell)

    def render() -> None:
        if done is None:
            show(console)
            unchanged(dry_run=dry_run)
            return
        for name in done.created:
            console.print(f"table {name} was not there and is made anew")
        for name, count in done.written.items():
            console.print(f"[green]done[/]: {count:,} rows of {name} written")
        if done.logs is not None:
            console.print(
                f"[green]done[/]: the checkpoint of {done.job} stands where its tables end, {done.logs:,} logs"
            )
        if done.put_aside:
            console.print(f"the old checkpoint is {escape(done.put_aside)}", soft_wrap=True)
        for name in done.next:
            console.print(f"now also: fairlead shore rebuild {name} --yes")
        console.print("then: fairlead shore run --once, which reads what is still to be read")

    body = {"job": job} if done is None else dataclasses.asdict(done)
    emit({"applied": done is not None, **body}, as_json=as_json, render=render)


def _show(rows: list[dict[str, Any]], on: Console) -> None:
    table = Table("table", box=None, header_style="bold", pad_edge=False)
    for heading in ("missing", "wrong", "of no record"):
        table.add_column(heading, justify="right")
    for row in rows:
        odd = row["wrong"] if "wrong" in row else row["differing"]
        table.add_row(row["table"], f"{row.get('missing', 0):,}", f"{odd:,}", f"{row.get('of_no_record', 0):,}")
    on.print(table)
    for row in rows:
        if row.get("logs_too_short"):
            names = ", ".join(row["logs_too_short"][:3])
            on.print(f"{row['table']}: left alone, truncated or made anew: {escape(names)}", soft_wrap=True)


def _time(option: str, text: str | None) -> dt.datetime | None:
    if text is None:
        return None
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError as error:
        hint = "a day like 2026-03-01, or a time like 2026-03-01T06:00Z"
        raise ConfigurationError(f"{option} {text}: this is no time", hint=hint) from error
    return found.astimezone(dt.UTC) if found.tzinfo is not None else found.replace(tzinfo=dt.UTC)
