"""``fairlead shore``: run the jobs that fill tables and feeds; show their state and lost records."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec
import typer
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

import shore
from fairlead.cli.commands.context import (
    DryRunOption,
    JsonOption,
    MetricsHostOption,
    MetricsPortOption,
    TopologyOption,
    YesOption,
    site_option,
)
from fairlead.cli.commands.shore.context import ShorePlace, ShoreSiteOption, open_shore
from fairlead.cli.commands.shore.tables import backfill, compact_, rebuild, vacuum_, verify
from fairlead.cli.console import Consent, console, emit, errors, uncut
from fairlead.errors import ExitCode, FairleadError
from fairlead.scrape import ADDRESS, serve
from shore.jobs.status import (
    IN_TROUBLE,
    JobStatus,
    MaintenanceStatus,
    RunMonitor,
    ShoreStatus,
    read_maintenance,
    read_status,
)
from shore.lag import Lag, job_lags, sampled
from shore.site import SiteRecord, read_site
from shore.source.losses import LostLog, acknowledge_losses, describe_loss, read_losses
from topologies.context import DEFAULT_TOPOLOGY

STYLES: Final = {
    "running": "green",
    "done": "green",
    "failed": "bold red",
    "gone": "bold red",
    "retrying": "yellow",
    "waiting": "dim",
}


@contextlib.contextmanager
def live_jobs(*, quiet: bool) -> Iterator[Callable[[Mapping[str, JobStatus]], None]]:
    """Yield a function that shows a live table of the jobs on standard error; it shows nothing when ``quiet``."""
    if quiet:
        yield lambda jobs: None
        return
    try:
        with Live("starting Spark…", console=errors, auto_refresh=False) as live:
            yield lambda jobs: live.update(_live_table(jobs), refresh=True)
    finally:
        if not errors.is_terminal:  # without a terminal, rich ends the table's last line only when it prints more
            errors.line()


def count(value: float | None) -> str:
    """Format a number for a person; return an empty text for None."""
    return "" if value is None else f"{value:,.0f}"


def _live_table(jobs: Mapping[str, JobStatus]) -> Table:
    table = Table("job", "state", box=None, header_style="bold", pad_edge=False)
    for heading in ("logs", "behind", "batches", "rows", "rows/s", "last batch"):
        table.add_column(heading, justify="right")
    table.add_column("remarks")
    uncut(table, "job", "state")
    for job in jobs.values():
        style = STYLES.get(job.state, "")
        wrong = job.error is not None and job.state in IN_TROUBLE
        remarks = (job.error or "").splitlines()[0] if wrong else ", ".join(job.skipped)
        table.add_row(
            job.job,
            f"[{style}]{job.state}[/]" if style else job.state,
            count(job.logs),
            count(job.behind),
            count(job.batches),
            count(job.rows),
            count(job.rows_per_second),
            "" if job.batch_seconds is None else f"{job.batch_seconds:.1f} s",
            escape(remarks),
        )
    return table


def status(
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    site: ShoreSiteOption = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="End with 1 when a job has failed, is gone or keeps restarting, a log cannot be read, records "
            "were lost and not acknowledged, or the last run could not start.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show shore's jobs: state, lag, last error.

    Example: fairlead shore status --check
    """
    place = open_shore(topology, site)
    found = read_status(place.folder)
    if found is None:
        emit(None, as_json=as_json, render=lambda: console.print("shore has not run yet: fairlead shore run --once"))
        return
    behind = _lags(place, found)
    jobs = {name: msgspec.to_builtins(job) | {"lag": msgspec.to_builtins(behind[name])} for name, job in
            found.jobs.items()}  # fmt: skip
    lost = read_losses(place.paths)
    record = read_site(place.paths)
    wrong = troubles(found, behind, lost, record)
    upkeep = read_maintenance(place.folder)
    body = {**msgspec.to_builtins(found), "jobs": jobs, "losses": msgspec.to_builtins(lost), "ok": not wrong}
    body |= {"wrong": wrong, "maintenance": msgspec.to_builtins(upkeep), "site": msgspec.to_builtins(record)}

    def render() -> None:
        _render(found, behind, lost)
        if record is not None:
            _show_site(record)
        for verb, done in upkeep.items():
            _show_maintenance(verb, done)

    emit(body, as_json=as_json, render=render)
    if check and wrong:
        raise typer.Exit(ExitCode.FAILED)


def losses(
    acknowledge: Annotated[
        bool, typer.Option("--acknowledge", help="File them: status and alerts stop naming them.")
    ] = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """List records that their logs lost before shore read them; --acknowledge files them.

    Their rows are in no table, and nothing brings them back unless another site still has the log. Acknowledging
    changes no table: the notes move to the folder losses.acknowledged beside the tables.

    Example: fairlead shore losses
    """
    consent = Consent(yes=yes, dry_run=dry_run, as_json=as_json) if acknowledge else None
    place = open_shore(topology)
    lost = read_losses(place.paths)

    def show(on: Console) -> None:
        for each in lost:
            on.print(f"{escape(describe_loss(each))} (found {_time(each.found_at)} UTC)", soft_wrap=True)

    done = False
    if consent is not None and lost and consent.given(show):
        lost, done = acknowledge_losses(place.paths), True

    def render() -> None:
        if not lost:
            console.print("no losses, or all of them acknowledged")
        elif done:
            console.print(f"[green]acknowledged[/]: {len(lost):,} logs; the notes are in losses.acknowledged")
        elif consent is not None:
            consent.unchanged(show)
        else:
            show(console)

    emit({"acknowledged": done, "losses": msgspec.to_builtins(lost)}, as_json=as_json, render=render)


def troubles(
    found: ShoreStatus, behind: dict[str, Lag], lost: Sequence[LostLog] = (), record: SiteRecord | None = None
) -> list[str]:
    """Return a sentence for each reason why ``--check`` ends with 1."""
    wrong = [f"{name} is {job.state}" for name, job in found.jobs.items() if job.state in IN_TROUBLE]
    wrong += [f"{name} cannot read {log}" for name, lag in behind.items() for log in lag.unreadable]
    wrong += [describe_loss(each) for each in lost]
    wrong += record.parted() if record is not None else []
    return wrong + ([found.error.splitlines()[0]] if found.error else [])


def _lags(place: ShorePlace, found: ShoreStatus) -> dict[str, Lag]:
    try:
        return job_lags(place.topology, place.endpoint, place.paths, found.jobs, now=dt.datetime.now(dt.UTC))
    except FairleadError as error:
        return {name: Lag(why=error.what) for name in found.jobs}


def _render(found: ShoreStatus, behind: dict[str, Lag], lost: Sequence[LostLog]) -> None:
    console.print(_status_table(found, behind))
    for name, job in found.jobs.items():
        _remarks(name, job, behind[name])
    for each in lost:
        console.print(f"[bold red]records are lost[/]: {escape(describe_loss(each))}", soft_wrap=True)
    if lost:
        console.print("what it means, and how to acknowledge it: fairlead shore losses --help, docs/shore.md")
    if found.error:
        console.print(f"[bold red]the last run could not go on[/]: {escape(found.error)}", soft_wrap=True)
    console.print(f"process {found.pid}, last update {_time(found.at)} UTC", style="dim")


def _show_site(record: SiteRecord) -> None:
    if record.moved_at is not None:
        console.print(f"shore is at {record.site}, moved from {record.moved_from} at {_time(record.moved_at)} UTC")
    told = {each.describe(log, record.site): each for logs in record.held.values() for log, each in logs.items()}
    for text, each in sorted(told.items()):
        console.print(escape(text), style="yellow" if each.differs is None else "bold red", soft_wrap=True)


def _status_table(found: ShoreStatus, behind: dict[str, Lag]) -> Table:
    table = Table("job", "state", box=None, header_style="bold", pad_edge=False)
    for heading in ("logs", "to read", "behind", "rows", "rows/s", "last batch", "state kept"):
        table.add_column(heading, justify="right")
    uncut(table, "job", "state")
    for name, job in found.jobs.items():
        lag, style = behind[name], STYLES.get(job.state, "")
        table.add_row(
            name,
            f"[{style}]{job.state}[/]" if style else job.state,
            count(lag.logs if lag.logs is not None else job.logs),
            "?" if lag.records is None else count(lag.records),
            "?" if lag.seconds is None else _span(lag.seconds),
            count(job.rows),
            count(job.rows_per_second),
            "" if job.batch_seconds is None else f"{job.batch_seconds:.1f} s",
            "" if job.state_rows is None else f"{job.state_rows:,} rows, {(job.state_bytes or 0) / 1e6:,.1f} MB",
        )
    return table


def _remarks(name: str, job: JobStatus, lag: Lag) -> None:
    def say(text: str, style: str = "") -> None:
        console.print(f"{name}: {escape(text)}", style=style, soft_wrap=True)

    if job.failing_since is not None:
        say(f"does not come through since {_time(job.failing_since)} UTC, started {job.starts} times", "yellow")
    if job.error is not None:
        when = f" at {_time(job.error_at)} UTC" if job.error_at is not None else ""
        # The advice is for an error that lasts.
        text = job.error if job.state in IN_TROUBLE else job.error.partition("\n  what to do:")[0]
        say(f"last error{when}: {text}", "" if job.state in IN_TROUBLE else "dim")
    if lag.why:
        say(f"lag is not known: {lag.why}", "yellow")
    for log in lag.unreadable:
        say(f"cannot read {log}", "yellow")
    if job.skipped:
        say(f"to know about logs: {', '.join(job.skipped)}", "yellow")


def _show_maintenance(verb: str, done: MaintenanceStatus) -> None:
    what = f"{done.tables:,} tables, {done.removed:,} {'rows' if verb == 'expire' else 'files'} less"
    console.print(f"{verb} at {_time(done.at)} UTC: {what}", style="dim")
    for said in filter(None, (done.error, *done.waits)):
        console.print(f"{verb}: {escape(said)}", style="yellow", soft_wrap=True)


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:,.0f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"


def _time(at: Any) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}"


_LOST = "[bold red]records are lost[/]: {}"

app = typer.Typer(
    help="Fill Delta tables and customers' feeds from the logs, with PySpark.",
    epilog="Example: fairlead shore status",
    no_args_is_help=True,
)


@app.command()
def run(
    jobs: Annotated[
        list[str] | None, typer.Argument(help="Only these jobs: readings, operations, conditions, … Default: all.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Read what is there now, then stop.")] = False,
    metrics_port: MetricsPortOption = None,
    metrics_host: MetricsHostOption = ADDRESS,
    site: Annotated[
        str | None, site_option("Run here, and move here if shore ran at another site. Default: the topology's 'at'.")
    ] = None,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """Keep the Delta tables and customers' feeds up to date, until Ctrl-C.

    Stop, kill or start it at any time: every record becomes one row, and stays one. A job whose site does not answer is
    started again until it does; the other jobs go on meanwhile. Ends with 1 when records were gone from a log before
    they were read; 'fairlead shore losses' says which.

    With --site, shore goes on at another site from the same tables, when its own is lost. Only one process at a time
    writes the tables.

    Example: fairlead shore run --once

    Example: fairlead shore run --site tokyo
    """
    place = open_shore(topology, site)
    place = dataclasses.replace(place, asked=site or place.shore.at)
    watch = RunMonitor(
        place.topology.name,
        place.paths,
        lambda lost: errors.print(_LOST.format(escape(describe_loss(lost)))),
        lambda: read_maintenance(place.folder),
    )

    def lags() -> Mapping[str, Lag]:
        return job_lags(place.topology, place.endpoint, place.paths, watch.jobs, now=dt.datetime.now(dt.UTC))

    def keep(found: Mapping[str, Lag]) -> None:
        watch.lags = found

    with contextlib.ExitStack() as stack:
        if metrics_port is not None:
            from shore.jobs.metrics import shore_metrics  # imports an HTTP server, which few runs need

            server = stack.enter_context(contextlib.closing(serve(shore_metrics, [watch], metrics_port, metrics_host)))
            errors.print(f"metrics at http://{metrics_host}:{server.port}/metrics")
            stack.enter_context(sampled(lags, keep))
        show = stack.enter_context(live_jobs(quiet=as_json))

        def on_progress(states: Mapping[str, JobStatus]) -> None:
            show(states)
            watch.refresh(states, now=False)

        done = shore.run(
            place.topology,
            lambda: place.endpoint,
            place.folder,
            jobs,
            once=once,
            settings=place.context.resolver.spark_settings(place.site),
            on_progress=on_progress,
            move=site is not None,
        )
    watch.refresh()
    emit(msgspec.to_builtins(done), as_json=as_json, render=lambda: None)
    if watch.lost:
        raise typer.Exit(ExitCode.FAILED)


app.command()(status)
app.command()(losses)
app.command()(verify)
app.command()(backfill)
app.command()(rebuild)
app.command("compact")(compact_)
app.command("vacuum")(vacuum_)
