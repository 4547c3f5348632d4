"""``fairlead shore status``: what the jobs do or did, and how far each is behind, asked now."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any

import msgspec
import typer
from rich.markup import escape
from rich.table import Table

from fairlead.commands.context import DEFAULT_TOPOLOGY, JsonOption, TopologyOption
from fairlead.commands.shorecontext import ShorePlace, open_shore
from fairlead.commands.shoreshow import STYLES, count
from fairlead.console import console, emit
from fairlead.errors import ExitCode, FairleadError
from shore.lag import Lag, lags
from shore.status import IN_TROUBLE, JobStatus, ShoreStatus, read_status


def status(
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="End with 1 when a job failed, is gone or keeps being started again, a log cannot be read, or the "
            "last run could not begin.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what shore's jobs do, or did last: their lag now, their state, their last error.

    Example: fairlead shore status --check
    """
    place = open_shore(topology)
    found = read_status(place.folder)
    if found is None:
        emit(None, as_json=as_json, render=lambda: console.print("shore has not run yet: fairlead shore run --once"))
        return
    behind = _lags(place, found)
    jobs = {name: msgspec.to_builtins(job) | {"lag": msgspec.to_builtins(behind[name])} for name, job in
            found.jobs.items()}  # fmt: skip
    wrong = troubles(found, behind)
    body = {**msgspec.to_builtins(found), "jobs": jobs, "ok": not wrong, "wrong": wrong}
    emit(body, as_json=as_json, render=lambda: _render(found, behind))
    if check and wrong:
        raise typer.Exit(ExitCode.FAILED)


def troubles(found: ShoreStatus, behind: dict[str, Lag]) -> list[str]:
    """What ``--check`` ends with 1 for, in words."""
    wrong = [f"{name} is {job.state}" for name, job in found.jobs.items() if job.state in IN_TROUBLE]
    wrong += [f"{name} cannot read {log}" for name, lag in behind.items() for log in lag.unreadable]
    return wrong + ([found.error.splitlines()[0]] if found.error else [])


def _lags(place: ShorePlace, found: ShoreStatus) -> dict[str, Lag]:
    try:
        return lags(place.topology, place.endpoint, place.places, found.jobs, now=dt.datetime.now(dt.UTC))
    except FairleadError as error:
        return {name: Lag(why=error.what) for name in found.jobs}


def _render(found: ShoreStatus, behind: dict[str, Lag]) -> None:
    console.print(_table(found, behind))
    for name, job in found.jobs.items():
        _remarks(name, job, behind[name])
    if found.error:
        console.print(f"[bold red]the last run could not go on[/]: {escape(found.error)}", soft_wrap=True)
    console.print(f"process {found.pid}, last word {_time(found.at)} UTC", style="dim")


def _table(found: ShoreStatus, behind: dict[str, Lag]) -> Table:
    table = Table("job", "state", box=None, header_style="bold", pad_edge=False)
    for heading in ("logs", "to read", "behind", "rows", "rows/s", "last batch", "state kept"):
        table.add_column(heading, justify="right")
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
        say(f"last error{when}: {job.error}", "" if job.state in IN_TROUBLE else "dim")
    if lag.why:
        say(f"lag: {lag.why}", "yellow")
    for log in lag.unreadable:
        say(f"cannot read {log}", "yellow")
    if job.lost:
        say(f"{job.lost:,} records were deleted before they were read", "bold red")
    if job.skipped:
        say(f"to know about logs: {', '.join(job.skipped)}", "yellow")


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:,.0f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"


def _time(at: Any) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}"
