"""``fairlead shore``: the jobs that turn logs into tables and feeds, and what operators do with the tables."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

import shore
from fairlead.commands.context import DEFAULT_TOPOLOGY, JsonOption, TopologyOption
from fairlead.commands.shorecontext import open_shore
from fairlead.commands.shorekeep import compact_, vacuum_
from fairlead.commands.shorerepair import backfill, rebuild
from fairlead.commands.shoreshow import Shown
from fairlead.commands.shorestatus import status
from fairlead.commands.shoreverify import verify
from fairlead.console import emit

app = typer.Typer(help="Tables and customers' feeds from the logs, by PySpark.", no_args_is_help=True)


@app.command()
def run(
    jobs: Annotated[
        list[str] | None, typer.Argument(help="readings, operations, conditions, ... Default: all with work to do.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Read what is there now, then stop.")] = False,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """Keep the Delta tables and the customers' feeds up to date, until Ctrl-C.

    Stop, kill or start it at any time: every record becomes one row, and stays one. A job whose site does not answer is
    started again until it does; the other jobs go on meanwhile.

    Example: fairlead shore run --once
    """
    place = open_shore(topology)
    with Shown(as_json) as show:
        done = shore.run(place.topology, lambda: place.endpoint, place.folder, jobs, once=once, on_progress=show)
    emit(msgspec.to_builtins(done), as_json=as_json, render=lambda: None)


app.command()(status)
app.command()(verify)
app.command()(backfill)
app.command()(rebuild)
app.command("compact")(compact_)
app.command("vacuum")(vacuum_)
