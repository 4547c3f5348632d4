"""Commands of ``fairlead shore`` that check, repair and maintain tables: verify, backfill, rebuild, compact, vacuum."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fairlead.cli.commands.context import (
    DryRunOption,
    JsonOption,
    TopologyOption,
    YesOption,
    check_order,
    parse_moment,
    parse_span,
)
from fairlead.cli.commands.shore.context import ShorePlace, ShoreSiteOption, open_shore
from fairlead.cli.console import Consent, console, emit, lines, size, telling
from fairlead.errors import ExitCode, UnknownNameError
from shore.delta.table_errors import as_table_errors, check_tables
from shore.feeds.readers import kept_tables
from shore.maintenance import CompactStep, VacuumStep, compact, plan_compaction, plan_vacuum, vacuum
from shore.site import check_is_here
from topologies.context import DEFAULT_TOPOLOGY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from shore.verify.compare import Difference, Verification

TableOption = Annotated[
    list[str] | None, typer.Option("--table", help="Only this table; may be repeated.", metavar="TABLE")
]
_VERDICTS = {True: "[green]equal[/]", False: "[bold red]DIFFERENT[/]", None: "[yellow]not compared[/]"}
_UNREADABLE = "[bold red]UNREADABLE[/]"


def verify(
    table: TableOption = None,
    site: ShoreSiteOption = None,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """Compare the tables with the logs that they are made from. Changes nothing.

    Log tables are compared with the logs up to where their job has read: every record is parsed again, and every column
    of its row compared. Derived tables are made anew from their inputs and compared row by row. A difference names the
    table, the row and the column. Ends with 1 when something differs.

    Example: fairlead shore verify --table readings
    """
    from shore.verify.run import verify as run_verify  # importing Spark's modules takes a second

    place = open_shore(topology, site)
    check_tables(table or (), kept_tables(place.topology))
    endpoint = place.endpoint
    with telling(quiet=as_json) as tell:
        tell("starting Spark")
        with place.session(beside=True) as spark:
            found = run_verify(spark, place.topology, endpoint, place.folder, table, tell=tell)
    body = {"ok": found.ok, "whole": found.whole, **msgspec.to_builtins(found)}
    emit(body, as_json=as_json, render=lambda: _show_verification(found))
    if not found.ok:
        raise typer.Exit(ExitCode.FAILED)


def _show_verification(found: Verification) -> None:
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
            console.print(_difference(each), soft_wrap=True)
    for line in what_to_do(found):
        console.print(line, soft_wrap=True)


def what_to_do(found: Verification) -> list[str]:
    """Return lines that say how many logs or rows of which tables differ, and the commands that repair them.

    Also says what to do about tables that could not be compared. Empty when all tables are equal.
    """
    from shore.verify.catalogue import RUN, mended_by

    odd = [check for check in found.tables if check.differing]
    lines = []
    if odd:
        counts = [f"{check.table}: {check.differing:,} {'logs' if check.kind == 'logs' else 'rows'}" for check in odd]
        lines.append(f"differing: {'; '.join(counts)}")
        commands = dict.fromkeys(command for check in odd if (command := mended_by(check.table)) != RUN)
        lines.append(f"What to do: {', '.join(('stop shore', *commands))}, then {RUN}. See docs/shore-repair.md")
    if any(check.unreadable for check in found.tables):
        lines.append("First repair what cannot be read, as said above. Then fairlead shore run --once, and verify")
    elif any(check.same is None and not check.forgotten for check in found.tables):
        lines.append("Not everything was compared: fairlead shore run --once, then verify again")
    return lines


def _difference(each: Difference) -> str:
    key = ", ".join(f"{name} {value}" for name, value in each.key.items())
    values = [f"{name} is {each.found[name]}, must be {each.expected[name]}" for name in each.columns if each.found]
    columns = f": {'; '.join(values)}" if values else f" in {', '.join(each.columns)}" if each.columns else ""
    return f"{each.table}: {escape(key)}: [bold]{each.what}[/]{escape(columns)}"


def backfill(
    since: Annotated[
        str | None, typer.Option("--since", help="First day or time, inclusive. Default: all.", metavar="TIME")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", help="Day or time after the last, exclusive. Default: all.", metavar="TIME")
    ] = None,
    table: TableOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    site: ShoreSiteOption = None,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """Recompute some days: add missing rows, replace wrong ones, never double a row.

    Times are UTC, of the devices. Shore must not run meanwhile.

    Example: fairlead shore backfill --since 2026-03-01 --until 2026-03-02 --yes
    """
    consent = Consent(yes=yes, dry_run=dry_run, as_json=as_json)
    from shore.delta.lake import Lake  # importing Spark's modules takes a second
    from shore.jobs.query import as_shore_errors
    from shore.repair.backfill import BackfillSpan, apply_backfill, plan_backfill

    place = open_shore(topology, site)
    check_tables(table or ())
    span = BackfillSpan(parse_moment("--since", since), parse_moment("--until", until))
    check_order(span.since, span.until, ("--since", "--until"))
    endpoint = place.endpoint
    with _alone(place), place.session() as spark, as_shore_errors(place.paths):
        lake = Lake(spark, place.paths)
        with telling(quiet=as_json) as tell:
            todo = plan_backfill(lake, place.topology, endpoint, span, table, tell=tell)
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
        rows += [{"table": each.table, "differing": each.rows} for each in todo.derived]

        def show(on: Console) -> None:
            _show_backfill(rows, on)
            for name, count in todo.unproven.items():
                on.print(
                    f"[bold red]{name} differs from the logs in {count:,} rows of other days[/], from which the tables "
                    "above are made, too: a backfill without --since and --until puts them right",
                    soft_wrap=True,
                )

        wanted = not todo.empty and consent.given(show)
        written: dict[str, int] = {}
        if wanted:
            with telling(quiet=as_json) as tell:
                written = apply_backfill(todo, lake, place.topology, tell=tell)

    def render() -> None:
        if todo.empty:
            show(console)
        for name, count in written.items():
            console.print(f"[green]done[/]: {count:,} rows of {name} written")
        if written:
            console.print("then: fairlead shore run --once, which tells feeds and other tables about them")
        if todo.empty:
            console.print("nothing to correct")
        elif not wanted:
            consent.unchanged(show)

    body = {"applied": wanted, "found": rows, "written": written, "unproven": dict(todo.unproven)}
    emit(body, as_json=as_json, render=render)


def rebuild(
    job: Annotated[str, typer.Argument(help="The job whose checkpoint or tables are lost or damaged.")],
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    site: ShoreSiteOption = None,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """Rebuild a job's lost or damaged checkpoint and tables.

    For a job that reads logs, adds the rows that its tables lack; the job then continues where they end. The tables of
    other jobs are made again from their inputs. An existing checkpoint is renamed, not deleted. Shore must not run
    meanwhile.

    Example: fairlead shore rebuild readings --yes
    """
    consent = Consent(yes=yes, dry_run=dry_run, as_json=as_json)
    from shore.delta.lake import Lake  # importing Spark's modules takes a second
    from shore.jobs.query import as_shore_errors
    from shore.jobs.runner import JOBS
    from shore.repair.rebuild import rebuild_job as run_rebuild

    place = open_shore(topology, site)
    if job not in JOBS:
        raise UnknownNameError("job", job, JOBS)

    show = lines([f"The checkpoint of job {job} will be put aside and made anew, its tables completed."])
    done = None
    if consent.given(show):
        endpoint = place.endpoint
        with (
            _alone(place),
            telling(quiet=as_json) as tell,
            place.session() as spark,
            as_shore_errors(place.paths),
        ):
            done = run_rebuild(job, JOBS, Lake(spark, place.paths), place.topology, endpoint, tell=tell)

    def render() -> None:
        if done is None:
            consent.unchanged(show)
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


def _show_backfill(rows: list[dict[str, Any]], on: Console) -> None:
    table = Table("table", box=None, header_style="bold", pad_edge=False)
    for heading in ("missing", "wrong", "without a record"):
        table.add_column(heading, justify="right")
    for row in rows:
        odd = row["wrong"] if "wrong" in row else row["differing"]
        table.add_row(row["table"], f"{row.get('missing', 0):,}", f"{odd:,}", f"{row.get('of_no_record', 0):,}")
    on.print(table)
    for row in rows:
        if row.get("logs_too_short"):
            names = ", ".join(row["logs_too_short"][:3])
            on.print(f"{row['table']}: left alone, truncated or made anew: {escape(names)}", soft_wrap=True)


@contextlib.contextmanager
def _alone(place: ShorePlace) -> Iterator[None]:
    """Hold the right to write what follows from the logs of a site.

    Raises:
        AlreadyRunningError: another process writes these tables.
        ShoreMovedError: shore is at another site.
    """
    from shore.delta.lease import only_one  # importing Spark's modules takes a second

    with only_one(place.folder, place.paths, place.site):
        check_is_here(place.paths, place.site)
        yield


@contextlib.contextmanager
def _maintaining(place: ShorePlace) -> Iterator[SparkSession]:
    """Hold the right to write, and start Spark.

    Raises:
        AlreadyRunningError: another process writes these tables.
    """
    from shore.delta.lease import only_one  # importing Spark's modules takes a second
    from shore.jobs.runner import own_session
    from shore.maintenance import maintenance_session

    settings = place.context.resolver.spark_settings(place.site)
    with (
        only_one(place.folder, place.paths),
        own_session(place.folder, place.shore, settings) as session,
    ):
        yield maintenance_session(session)


_NONE: Final = "there are no such tables yet: fairlead shore run --once"
TablesArgument = Annotated[
    list[str] | None, typer.Argument(help="Only these tables. Default: all.", metavar="[TABLE]...")
]


def compact_(
    tables: TablesArgument = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """Compact many small files into few, with readings sorted by container.

    Changes no row. A running 'fairlead shore run' does this by itself (shore.maintenance in the topology), so this
    command is for a shore that is stopped.

    Example: fairlead shore compact --yes
    """
    consent = Consent(yes=yes, dry_run=dry_run, as_json=as_json)
    shore = open_shore(topology)
    paths, kept = shore.paths, kept_tables(shore.topology)
    plan = plan_compaction(paths, tables, tables=kept)
    todo = [step for step in plan if step.why]
    done = {}
    if todo and consent.given(lambda on: _show_compaction(plan, on)):
        with _maintaining(shore) as spark, as_table_errors(paths, kept):
            done = {step.table: compact(spark, paths, step) for step in todo}
    body = [dataclasses.asdict(step) | {"files_after": done.get(step.table, (0, None))[1]} for step in plan]
    for step in body:
        del step["sizes"]

    def render() -> None:
        if not todo:
            _show_compaction(plan, console)
        for table, (before, after) in done.items():
            console.print(f"[green]done[/]: {table} had {before:,} files and has {after:,}")
        if todo and not done:
            consent.unchanged(lambda on: _show_compaction(plan, on))

    emit({"applied": bool(done), "tables": body}, as_json=as_json, render=render)


def vacuum_(
    tables: TablesArgument = None,
    keep: Annotated[
        str, typer.Option("--keep", help="Keep files this long after they were replaced.", metavar="TIME")
    ] = "7d",
    force: Annotated[bool, typer.Option("--force", help="Allow --keep to be less than 7 days.")] = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """Delete files that no version of the last seven days needs.

    A table is left alone while a job has still to read what it had before that. A running 'fairlead shore run' does
    this by itself (shore.maintenance in the topology), so this command is for a shore that is stopped.

    Example: fairlead shore vacuum --keep 14d --yes
    """
    consent = Consent(yes=yes, dry_run=dry_run, as_json=as_json)
    from shore.jobs.maintenance import unread_by
    from shore.jobs.runner import JOBS  # importing Spark's modules takes a second

    shore, span = open_shore(topology), parse_span("--keep", keep)
    paths, kept = shore.paths, kept_tables(shore.topology)
    readers = [job.name for job in JOBS.values() if not job.reads_logs]
    now = dt.datetime.now(dt.UTC)
    with as_table_errors(paths, kept):
        plan = plan_vacuum(
            paths, tables, keep=span, force=force, unread=unread_by(paths, readers), tables=kept, now=now
        )
    todo = [step for step in plan if step.files and not step.why]
    done = {}
    if todo and consent.given(lambda on: _show_vacuum(plan, on)):
        with _maintaining(shore) as spark, as_table_errors(paths, kept):
            done = {step.table: vacuum(spark, paths, step, keep=span, force=force) for step in todo}

    def render() -> None:
        if not todo:
            _show_vacuum(plan, console)
        for table, count in done.items():
            console.print(f"[green]done[/]: {count:,} files of {table} deleted")
        if todo and not done:
            consent.unchanged(lambda on: _show_vacuum(plan, on))

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
