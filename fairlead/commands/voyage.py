"""``fairlead voyage``: sail a scenario on real sites, from sensor to Delta table, and report what became of it."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from fairlead.commands.context import DEFAULT_TOPOLOGY, Context, JsonOption, open_topology
from fairlead.commands.sites import bring_up
from fairlead.console import console, emit, errors
from fairlead.errors import ConfigurationError, ExitCode
from fairlead.local.workers import Workers
from topologies.model import SiteKind

if TYPE_CHECKING:
    from simulators.links.network import Network
    from simulators.player import Progress as Sailing
    from simulators.report.model import Report
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
    with _phase(phases, "starting sites"):
        bring_up(context, list(context.topology.sites), quiet=as_json)
    with _weather(context, trip, calm=calm) as network, _workers(context, phases, weather=network is not None):
        made, page = _sail(context, trip, speed, patience, phases, network, quiet=as_json)
    report.mkdir(parents=True, exist_ok=True)
    (report / "report.json").write_bytes(made.to_json())
    (report / "report.html").write_text(page, encoding="utf-8")
    emit(json.loads(made.to_json()), as_json=as_json, render=lambda: console.print(as_table(made)))
    errors.print(f"report: {escape(str(report / 'report.json'))}, {escape(str(report / 'report.html'))}")
    if not made.ok:
        raise typer.Exit(ExitCode.FAILED)


@contextmanager
def _weather(context: Context, trip: Voyage, *, calm: bool) -> Iterator[Network | None]:
    """The lines under the replicators, with their detours written where ``_workers`` finds them; None without."""
    from fairlead.clusters import Clusters
    from simulators.links.network import Network, brokers_of
    from simulators.weather import link_weather
    from topologies.detours import write_detours
    from topologies.users import ADMIN

    if calm:
        yield None
        return
    weather = link_weather(trip.plan)
    if _running(context, "replicate"):
        cut = next(weather.outages(), None)
        if cut is not None:
            raise ConfigurationError(
                f"scenario {trip.plan.scenario.name} cuts the link between {' and '.join(cut[0])}, and the replicators "
                "that run already do not go over links that can be cut",
                hint="stop them, so that the voyage starts its own; --calm sails it with every link up",
            )
        errors.print("links have no weather: it takes replicators that the voyage starts")
        yield None
        return

    async def brokers() -> dict[str, tuple[tuple[str, int], ...]]:
        async with Clusters(lambda site: context.directory.kafka(site, ADMIN), client_id="fairlead-voyage") as clusters:
            return await brokers_of(clusters, context.topology.sites)

    with Network(context.topology, weather, asyncio.run(brokers()), seed=trip.plan.seed) as network:
        write_detours(_detours(context), network.detours)
        yield network


def _detours(context: Context) -> Path:
    return context.folder / "run" / "detours.json"


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


def _sail(
    context: Context,
    trip: Voyage,
    speed: float | None,
    patience: float,
    phases: dict[str, float],
    network: Network | None,
    *,
    quiet: bool,
) -> tuple[Report, str]:
    """The voyage, its tables and feeds, and its report with the page."""
    import shore
    from simulators.report.assemble import assemble
    from simulators.report.drawing import page_data
    from simulators.report.page import render
    from simulators.run import sail
    from simulators.settle import settle

    topology, directory, folder = context.topology, context.directory, context.folder
    with _phase(phases, "voyage"), _sailing(trip, quiet=quiet) as on_progress:
        sailed = asyncio.run(
            sail(
                trip,
                topology,
                directory,
                speed=speed,
                on_progress=on_progress,
                barrier_timeout=patience,
                check=Workers(folder).check,
                network=network,
            )
        )
    with _telling(quiet=quiet) as tell:
        with _phase(phases, "last replication"):
            tell("waiting for the last records to reach every site")
            asyncio.run(settle(topology, directory, folder, patience=patience))
        if topology.shore:
            with _phase(phases, "tables and feeds"):
                tell("filling the Delta tables and the customers' feeds")
                shore.run(topology, directory.kafka(topology.shore.at, "shore"), folder, once=True)
                asyncio.run(settle(topology, directory, folder, patience=patience))
        made = asyncio.run(assemble(sailed, topology, directory, folder, seconds=phases, tell=tell))
    return made, render(made, page_data(sailed, topology, folder))


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


@contextmanager
def _phase(phases: dict[str, float], name: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    phases[name] = round(time.monotonic() - began, 1)


@contextmanager
def _workers(context: Context, phases: dict[str, float], *, weather: bool) -> Iterator[None]:
    """One bridge and one replicator process for all sites, unless somebody runs them already; stopped at the end."""
    workers = Workers(context.folder)
    options = {"bridge": [], "replicate": ["--detours", str(_detours(context))] if weather else []}
    mine = []
    try:
        with _phase(phases, "starting bridges and replicators"):
            for command, files in _STATUS_FILES.items():
                if _running(context, command):
                    errors.print(f"{command}: using the workers that run")
                    continue
                wanted = [context.folder / "run" / files.format(site) for site in _sites_of(context, command)]
                for file in wanted:
                    file.unlink(missing_ok=True)  # of an earlier run, whose "ready" says nothing
                mine.append(f"{command}.all")
                workers.start(
                    f"{command}.all",
                    [command, "--all", "--topology", context.source, *options[command]],
                    ready=lambda wanted=wanted: all(map(_is_ready, wanted)),  # type: ignore[misc]
                )
        yield
    finally:
        workers.stop(mine)


def _running(context: Context, command: str) -> bool:
    return any(w.running and w.name.startswith(f"{command}.") for w in Workers(context.folder).all())


_STATUS_FILES = {"bridge": "bridge.{}.json", "replicate": "replicator.{}.json"}


def _sites_of(context: Context, command: str) -> list[str]:
    topology = context.topology
    if command == "bridge":
        return [name for name, site in topology.sites.items() if site.kind is not SiteKind.CUSTOMER]
    return [name for name in topology.sites if topology.links_to(name)]


def _is_ready(file: Path) -> bool:
    try:
        body = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return False
    ready = body["ready"] if "ready" in body else body["target"]["state"] == "up"
    return bool(ready)


@contextmanager
def _telling(*, quiet: bool) -> Iterator[Callable[[str], None]]:
    """What is being done, on one line where somebody watches and on lines of their own otherwise."""
    if quiet:
        yield lambda text: None
    elif errors.is_terminal:
        with errors.status("") as shown:
            yield lambda text: shown.update(escape(text))
    else:
        yield lambda text: errors.print(escape(text))


@contextmanager
def _sailing(trip: Voyage, *, quiet: bool) -> Iterator[Callable[[Sailing], None]]:
    if quiet:
        yield lambda _: None
        return
    if not errors.is_terminal:
        said: list[str] = []

        def say(now: Sailing) -> None:
            if now.phase != "publishing" and now.phase not in said[-1:]:
                said.append(now.phase)
                errors.print(escape(f"{now.sim_time:%d %b %H:%M} {now.published:>7,} published  {now.phase}"))

        yield say
        return
    columns = (SpinnerColumn(), TextColumn("{task.fields[when]}"), BarColumn(), TextColumn("{task.description}"))
    with Progress(*columns, TimeElapsedColumn(), console=errors) as progress:
        task = progress.add_task("", total=trip.expected_messages(), when="")

        def show(now: Sailing) -> None:
            trouble = "".join(f"; {site}: {why}" for site, why in now.troubles.items())
            text = f"{now.published:,} published, {now.phase}{trouble}"
            progress.update(task, completed=now.published, description=escape(text), when=f"{now.sim_time:%d %b %H:%M}")

        yield show
