"""``fairlead shore run`` and ``shore status``: the jobs that turn logs into tables and feeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated

import msgspec
import typer
from rich.live import Live
from rich.markup import escape
from rich.table import Table

import shore
from fairlead.commands.context import DEFAULT_TOPOLOGY, JsonOption, TopologyOption, open_topology
from fairlead.commands.shoreverify import verify
from fairlead.console import console, emit, errors
from fairlead.errors import ConfigurationError
from shore.status import JobStatus, read_status

app = typer.Typer(help="Tables and customers' feeds from the logs, by PySpark.", no_args_is_help=True)
app.command()(verify)
_STYLES = {"running": "green", "done": "green", "failed": "bold red", "gone": "bold red", "waiting": "dim"}


@app.command()
def run(
    jobs: Annotated[
        list[str] | None, typer.Argument(help="readings, operations, conditions, feeds. Default: all with work to do.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Read what is there now, then stop.")] = False,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """Keep the Delta tables and the customers' feeds up to date, until Ctrl-C.

    Stop, kill or start it at any time: every record becomes one row, and stays one.

    Example: fairlead shore run --once
    """
    context = open_topology(topology)
    where = context.topology.shore
    if where is None:
        raise ConfigurationError(
            f"topology {context.topology.name} does not say where shore runs", hint="add 'shore: {at: <site>}' to it"
        )
    endpoint = context.directory.kafka(where.at, "shore")
    with _shown(as_json) as show:
        done = shore.run(context.topology, endpoint, context.folder, jobs, once=once, on_progress=show)
    emit(msgspec.to_builtins(done), as_json=as_json, render=lambda: None)


@app.command()
def status(topology: TopologyOption = DEFAULT_TOPOLOGY, as_json: JsonOption = False) -> None:
    """Show what shore's jobs do, or did last.

    Example: fairlead shore status --json
    """
    found = read_status(open_topology(topology).folder)

    def render() -> None:
        if found is None:
            console.print("shore has not run yet: fairlead shore run --once")
            return
        console.print(_table(found.jobs))
        console.print(f"process {found.pid}, last word {found.at:%Y-%m-%d %H:%M:%S} UTC", style="dim")

    emit(None if found is None else msgspec.to_builtins(found), as_json=as_json, render=render)


class _shown:
    """While inside, a live table of the jobs on standard error; nothing where a program reads."""

    def __init__(self, as_json: bool) -> None:
        self._live = None if as_json else Live(console=errors, auto_refresh=False, transient=False)

    def __enter__(self) -> Callable[[Mapping[str, JobStatus]], None]:
        if self._live is not None:
            self._live.start()
            self._live.update("starting Spark…", refresh=True)
        return self._show

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def _show(self, jobs: Mapping[str, JobStatus]) -> None:
        if self._live is not None:
            self._live.update(_table(jobs), refresh=True)


def _table(jobs: Mapping[str, JobStatus]) -> Table:
    table = Table("job", "state", box=None, header_style="bold", pad_edge=False)
    for heading in ("logs", "behind", "batches", "rows", "rows/s", "last batch"):
        table.add_column(heading, justify="right")
    table.add_column("remarks")
    for job in jobs.values():
        style = _STYLES.get(job.state, "")
        remarks = job.error.splitlines()[0] if job.error else ", ".join(job.skipped)
        table.add_row(
            job.job,
            f"[{style}]{job.state}[/]" if style else job.state,
            _count(job.logs),
            _count(job.behind),
            _count(job.batches),
            _count(job.rows),
            _count(job.rows_per_second),
            "" if job.batch_seconds is None else f"{job.batch_seconds:.1f} s",
            escape(remarks),
        )
    return table


def _count(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"
