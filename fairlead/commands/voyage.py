"""``fairlead voyage``: sail a scenario on real sites, from sensor to Delta table, and report what became of it."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from fairlead.commands.context import DEFAULT_TOPOLOGY, Context, JsonOption, open_topology
from fairlead.commands.sites import bring_up
from fairlead.commands.voyagesail import sail_and_report
from fairlead.commands.voyageworkers import phase, weather, workers
from fairlead.console import console, emit, errors
from fairlead.errors import ConfigurationError, ExitCode

if TYPE_CHECKING:
    from simulators.voyage import Voyage


def voyage(
    topology: Annotated[
        str | None,
        typer.Argument(help="A shipped topology's name or a YAML file. Default: the scenario's.", show_default=False),
    ] = None,
    scenario: Annotated[
        str | None,
        typer.Option("--scenario", help="A shipped scenario's name or a YAML file. Default: the topology's."),
    ] = None,
    containers: Annotated[
        int | None,
        typer.Option("--containers", min=1, max=20_000, help="Rescale the scenario's mix to this many boxes."),
    ] = None,
    speed: Annotated[
        float | None,
        typer.Option("--speed", min=0.001, help="Simulated seconds per second. Default: as fast as it goes."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Everything random follows from it.")] = 7,
    interval: Annotated[
        str | None, typer.Option("--interval", help="Time between two readings of a box, such as 1h.")
    ] = None,
    start: Annotated[
        dt.datetime | None,
        typer.Option(
            "--start",
            help="Moves the voyage to this time (UTC). Default: the scenario's.",
            formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M"],
        ),
    ] = None,
    with_bad: Annotated[bool, typer.Option("--with-bad", help="Mix in messages that no bridge can use.")] = False,
    report: Annotated[Path, typer.Option("--report", help="Folder for report.json and report.html.")] = Path(
        "build/voyage"
    ),
    patience: Annotated[
        float, typer.Option("--patience", min=1, help="Seconds without progress until a barrier counts as stuck.")
    ] = 90.0,
    scale: Annotated[
        int | None,
        typer.Option(
            "--scale", min=1, help="Run the model only, without sites, and tell how large a fleet of so many boxes is."
        ),
    ] = None,
    list_scenarios: Annotated[
        bool, typer.Option("--list-scenarios", help="List the shipped scenarios with what each expects, and end.")
    ] = False,
    calm: Annotated[bool, typer.Option("--calm", help="Leave out the weather of links.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Sail a scenario: publish every reading where its box is, replicate, fill the tables, and report.

    Starts what is missing (sites, bridges, replicators) and stops the workers it started; the sites stay up. Exits
    with 1 if any line of the report is false.

    Example: fairlead voyage big-blue --containers 200 --speed 3600 --seed 7

    Example: fairlead voyage --scenario duck-voyage --scale 100000
    """
    from simulators.dates import check_clock
    from simulators.report.table import as_table
    from simulators.scale.sizing import modelled
    from simulators.scenario_file import load, topology_source
    from simulators.voyage import Voyage
    from topologies.values import parse_duration

    if list_scenarios:
        _list(as_json=as_json)
        return
    if scale is not None and containers is not None:
        raise ConfigurationError(
            "--scale and --containers were both given", hint="--scale says for how many boxes; leave out --containers"
        )
    named = load(scenario) if scenario else None
    context = open_topology(topology or (topology_source(named) if named else DEFAULT_TOPOLOGY))
    plan = named or load(_default_scenario(context))
    if calm:
        plan = plan.model_copy(update={"links": ()})
    if scale is not None:
        containers = modelled(scale, len(plan.cargo))
    try:
        every = parse_duration(interval) if interval else None
    except ValueError as error:
        raise ConfigurationError(f"--interval {interval}: {error}") from None
    trip = Voyage(
        plan,
        context.topology,
        seed=seed,
        containers=containers,
        start=start.replace(tzinfo=dt.UTC) if start else None,
        reading_interval=every,
        with_bad=with_bad,
    )
    if scale is not None:
        _size(trip, scale, as_json=as_json)
        return
    check_clock(trip.starts, trip.ends, dt.datetime.now(dt.UTC), speed)
    phases: dict[str, float] = {}
    with phase(phases, "starting sites"):
        bring_up(context, list(context.topology.sites), quiet=as_json)
    with weather(context, trip, calm=calm) as network, workers(context, phases, weather=network is not None):
        made, page = sail_and_report(context, trip, speed, patience, phases, network, quiet=as_json)
    report.mkdir(parents=True, exist_ok=True)
    (report / "report.json").write_bytes(made.to_json())
    (report / "report.html").write_text(page, encoding="utf-8")
    emit(json.loads(made.to_json()), as_json=as_json, render=lambda: console.print(as_table(made)))
    errors.print(f"report: {escape(str(report / 'report.json'))}, {escape(str(report / 'report.html'))}")
    if not made.ok:
        raise typer.Exit(ExitCode.FAILED)


def _size(trip: Voyage, containers: int, *, as_json: bool) -> None:
    """The size of a fleet, by the model alone."""
    import msgspec

    from simulators.scale.sizing import size
    from simulators.scale.table import as_tables

    columns = (SpinnerColumn(), TextColumn("running the model"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=errors, disable=as_json or not errors.is_terminal) as progress:
        task = progress.add_task("", total=trip.expected_messages())
        found = size(trip, containers, lambda done: progress.update(task, completed=done))
    emit(msgspec.to_builtins(found), as_json=as_json, render=lambda: console.print(as_tables(found)))


def _list(*, as_json: bool) -> None:
    """The shipped scenarios."""
    from simulators.scenario_list import as_table, described

    found = described()
    emit(found, as_json=as_json, render=lambda: console.print(as_table(found)))


def _default_scenario(context: Context) -> str:
    """The shipped scenario that sails on this topology: its first story where it has several."""
    from simulators.scenario_file import FIRST, load, shipped

    fitting = [name for name in shipped() if load(name).topology == context.topology.name]
    if not fitting:
        raise ConfigurationError(
            f"no shipped scenario sails on topology {context.topology.name!r}",
            hint=f"name one with --scenario; shipped: {', '.join(shipped())}",
        )
    return min(fitting, key=lambda name: (name not in FIRST, name))
