"""``fairlead voyage``: run a scenario on real sites, from sensor to Delta table, and report the outcome."""

from __future__ import annotations

import asyncio
import datetime as dt
import errno
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from fairlead.cli.commands.board import start_in_background, usual_site
from fairlead.cli.commands.context import DryRunOption, JsonOption, complete_topology, parse_span, writing
from fairlead.cli.commands.sites.local import bring_up
from fairlead.cli.console import Consent, console, emit, errors
from fairlead.errors import ConfigurationError, ExitCode, OptionError, UnavailableError
from fairlead.home import home
from fairlead.local.files import explained, nearest_existing
from topologies.context import DEFAULT_TOPOLOGY, Context, open_topology

if TYPE_CHECKING:
    from simulators.report.model import Report
    from simulators.voyage.recording import ReplayedVoyage
    from simulators.voyage.services import SailSettings
    from simulators.voyage.voyage import Voyage, VoyageSource


def planned(
    topology: str | None,
    scenario: str | None,
    *,
    calm: bool,
    seed: int,
    containers: int | None,
    interval: str | None,
    start: dt.datetime | None,
    with_bad: bool,
    scale: int | None = None,
) -> tuple[Context, Voyage]:
    """Return the topology and a voyage made from a scenario.

    Args:
        scale: Replaces ``containers``: the number of boxes for which to size a fleet; fewer are modelled.
    """
    from simulators.fleet.scenario_file import load
    from simulators.scale.sizing import modelled
    from simulators.voyage.voyage import Voyage

    named = load(scenario) if scenario else None
    usual = os.environ.get("FAIRLEAD_TOPOLOGY") or DEFAULT_TOPOLOGY
    context = open_topology(topology or (named.topology if named else usual))
    plan = named or load(_default_scenario(context))
    if calm:
        plan = plan.model_copy(update={"links": ()})
    if scale is not None:
        containers = modelled(scale, len(plan.cargo))
    every = parse_span("--interval", interval) if interval else None
    start = start.replace(tzinfo=dt.UTC) if start else None
    plan = plan.adjusted(containers=containers, start=start, reading_interval=every)
    try:
        return context, Voyage(plan, context.topology, seed=seed, with_bad=with_bad)
    except ConfigurationError as error:
        mistakes = error.fields.get("mistakes", [])
        if not mistakes or plan.topology == context.topology.name:
            raise
        more = f", and {len(mistakes) - 1} more" if len(mistakes) > 1 else ""
        raise ConfigurationError(
            f"scenario {plan.name} does not fit topology {context.topology.name}: {mistakes[0]}{more}",
            hint=f"name no topology, or the one that it was written for: {plan.topology}",
            mistakes=mistakes,
        ) from error


def recorded(topology: str | None, path: Path, *, calm: bool) -> tuple[Context, ReplayedVoyage]:
    """Return the topology and a recorded voyage, read to its end."""
    from simulators.voyage.recording import ReplayedVoyage, read_header

    context = open_topology(topology or read_header(path).topology)
    return context, ReplayedVoyage(path, context.topology, calm=calm)


@contextmanager
def _modelling(trip: VoyageSource, *, quiet: bool) -> Iterator[Any]:
    columns = (SpinnerColumn(), TextColumn("running the model"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=errors, disable=quiet or not errors.is_terminal) as progress:
        task = progress.add_task("", total=trip.expected_messages())
        yield lambda done: progress.update(task, completed=done)


def _default_scenario(context: Context) -> str:
    """Return the shipped scenario for this topology; the main one if there are several."""
    from simulators.fleet.scenario_file import FIRST, load, shipped

    fitting = [name for name in shipped() if load(name).topology == context.topology.name]
    if not fitting:
        raise ConfigurationError(
            f"no shipped scenario sails on topology {context.topology.name!r}",
            hint=f"name one with --scenario; shipped: {', '.join(shipped())}",
        )
    return min(fitting, key=lambda name: (name not in FIRST, name))


_PATIENCE = 60.0  # seconds for published messages to be acknowledged, and for a barrier that the voyage waits at


def steer_voyage(verb: Literal["pause", "resume"], topology: str | None, *, as_json: bool) -> None:
    """Pause the running voyage, or resume it.

    Raises:
        UnavailableError: there is none. ConfigurationError: there are several, and none was named.
    """
    from simulators.voyage.control import steer

    folder = open_topology(topology).folder if topology else _only_one()
    state = steer(folder, paused=verb == "pause", patience=_PATIENCE)
    when = f" at {state.sim_time:%d %b %Y %H:%M:%S} UTC" if state.sim_time else ""
    how = "paused" if state.paused else "goes on"
    emit(
        msgspec.to_builtins(state),
        as_json=as_json,
        render=lambda: console.print(
            escape(f"{state.scenario} {how}{when}: {state.published:,} published, {state.acknowledged:,} acknowledged")
        ),
    )


def _only_one() -> Path:
    """Return the state folder of the one voyage of this machine."""
    from simulators.voyage.control import read_underway

    found = [
        file.parent.parent for file in sorted(home().glob("*/run/voyage.pid")) if read_underway(file.parent.parent)
    ]
    if not found:
        raise UnavailableError("no voyage is under way", hint="fairlead voyage run starts one")
    if len(found) > 1:
        names = ", ".join(folder.name for folder in found)
        raise OptionError(
            f"voyages are under way on several topologies: {names}",
            hint=f"name one: fairlead voyage pause {found[0].name}",
        )
    return found[0]


app = typer.Typer(
    help="Simulate ships, containers and trouble on real sites; report what arrived.",
    epilog="TOPOLOGY is a shipped topology's name or a YAML file. The same scenario, topology and seed give the same "
    "messages, byte for byte.\n\nExample: fairlead voyage run minimal",
    no_args_is_help=True,
)

TopologyArgument = Annotated[
    str | None,
    typer.Argument(
        help="The topology to sail on. Default: that of the scenario or recording, else FAIRLEAD_TOPOLOGY, else "
        "big-blue.",
        show_default=False,
        autocompletion=complete_topology,
    ),
]
FileArgument = Annotated[Path, typer.Argument(help="The file of the recording.", metavar="FILE")]
ScenarioOption = Annotated[
    str | None,
    typer.Option(
        "--scenario", help="A shipped scenario's name or a YAML file. Default: the shipped one for the topology."
    ),
]
ContainersOption = Annotated[
    int | None,
    typer.Option("--containers", min=1, help="Scale the scenario to this many containers; at most 20,000 on one ship."),
]
SeedOption = Annotated[int, typer.Option("--seed", help="The same seed gives the same voyage.")]
IntervalOption = Annotated[
    str | None, typer.Option("--interval", help="Time between two readings of a container, such as 1h.")
]
StartOption = Annotated[
    dt.datetime | None,
    typer.Option(
        "--start",
        help="Move the voyage to this time (UTC). Default: the scenario's.",
        formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M"],
    ),
]
BadOption = Annotated[bool, typer.Option("--with-bad", help="Also publish messages that no bridge can use.")]
CalmOption = Annotated[bool, typer.Option("--calm", help="Sail without outages and delays of links.")]
SpeedOption = Annotated[
    float | None,
    typer.Option("--speed", min=0.001, help="Simulated seconds per second. Default: as fast as possible."),
]
RealtimeOption = Annotated[bool, typer.Option("--realtime", help="Same as --speed 1.")]
BoardOption = Annotated[
    bool, typer.Option("--board", help="Serve the board meanwhile, to watch in a browser; fairlead down stops it.")
]
ReportOption = Annotated[Path, typer.Option("--report", help="Folder for report.json and report.html.")]
PatienceOption = Annotated[
    float, typer.Option("--patience", min=1, help="Seconds without progress until a barrier counts as stuck.")
]
NoWorkersOption = Annotated[
    bool,
    typer.Option(
        "--no-workers", help="Start no bridges and replicators; they run elsewhere, for example in containers."
    ),
]
REPORT = Path("build/voyage")
SEED = 7
PATIENCE = 90.0


@app.command()
def run(
    topology: TopologyArgument = None,
    scenario: ScenarioOption = None,
    containers: ContainersOption = None,
    speed: SpeedOption = None,
    realtime: RealtimeOption = False,
    board: BoardOption = False,
    seed: SeedOption = SEED,
    interval: IntervalOption = None,
    start: StartOption = None,
    with_bad: BadOption = False,
    calm: CalmOption = False,
    report: ReportOption = REPORT,
    patience: PatienceOption = PATIENCE,
    no_workers: NoWorkersOption = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Sail a scenario: publish every reading at its site, replicate, fill the tables, report.

    Starts what is missing (sites, bridges, replicators) and stops the workers it started; the sites stay up. Ends with
    1 if any line of the report is false.

    Example: fairlead voyage run big-blue --containers 200 --speed 3600 --seed 7

    Example: fairlead voyage run minimal --speed 7200 --board
    """
    from simulators.voyage.services import SailSettings

    settings = SailSettings(_speed(speed, realtime=realtime), patience, calm=calm, elsewhere=no_workers)
    context, trip = planned(
        topology,
        scenario,
        calm=calm,
        interval=interval,
        seed=seed,
        containers=containers,
        start=start,
        with_bad=with_bad,
    )
    if dry_run:
        _show_plan(context, trip, workers=not no_workers, as_json=as_json)
    else:
        _report(context, trip, settings, report, board=board, as_json=as_json)


@app.command("list")
def list_(as_json: JsonOption = False) -> None:
    """List the shipped scenarios and what each expects.

    Example: fairlead voyage list
    """
    from simulators.fleet.scenario_file import as_table, described

    found = described()
    emit(found, as_json=as_json, render=lambda: console.print(as_table(found)))


@app.command()
def pause(topology: TopologyArgument = None, as_json: JsonOption = False) -> None:
    """Pause the voyage that another terminal sails.

    Returns when everything published is acknowledged. Needs TOPOLOGY when several voyages run. Ends with 4 when no
    voyage runs.

    Example: fairlead voyage pause
    """
    steer_voyage("pause", topology, as_json=as_json)


@app.command()
def resume(topology: TopologyArgument = None, as_json: JsonOption = False) -> None:
    """Resume a paused voyage.

    Example: fairlead voyage resume
    """
    steer_voyage("resume", topology, as_json=as_json)


@app.command()
def size(
    containers: Annotated[int, typer.Argument(min=1, help="How many containers the fleet has.", metavar="CONTAINERS")],
    topology: TopologyArgument = None,
    scenario: ScenarioOption = None,
    seed: SeedOption = SEED,
    interval: IntervalOption = None,
    start: StartOption = None,
    with_bad: BadOption = False,
    calm: CalmOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compute how large links and sites must be for a fleet.

    Starts no sites: a model adds up records, bytes over each link, storage per site, and CPU.

    Example: fairlead voyage size 100000 --scenario duck-voyage
    """
    from simulators.scale.sizing import size as size_of
    from simulators.scale.table import as_tables

    _, trip = planned(
        topology,
        scenario,
        calm=calm,
        containers=None,
        scale=containers,
        interval=interval,
        seed=seed,
        start=start,
        with_bad=with_bad,
    )
    with _modelling(trip, quiet=as_json) as progress:
        found = size_of(trip, containers, progress)
    emit(msgspec.to_builtins(found), as_json=as_json, render=lambda: console.print(as_tables(found)))


@app.command()
def record(
    file: FileArgument,
    topology: TopologyArgument = None,
    scenario: ScenarioOption = None,
    containers: ContainersOption = None,
    seed: SeedOption = SEED,
    interval: IntervalOption = None,
    start: StartOption = None,
    with_bad: BadOption = False,
    calm: CalmOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write every message of a voyage to a file, without sites.

    The file has what "voyage run" with the same options publishes.

    Example: fairlead voyage record ducks.gz --scenario duck-voyage
    """
    from simulators.voyage.recording import recording

    _, trip = planned(
        topology,
        scenario,
        calm=calm,
        interval=interval,
        seed=seed,
        containers=containers,
        start=start,
        with_bad=with_bad,
    )
    with writing(file, "file", "fairlead voyage record FILE"):
        with explained(file):
            if file.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            if not nearest_existing(file.parent).is_dir():
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        with recording(trip, file, with_bad=with_bad) as written, _modelling(written, quiet=as_json) as progress:
            for count, _ in enumerate(written.steps()):
                if count % 5_000 == 0:
                    progress(count)
    size = file.stat().st_size
    body = {"file": str(file), "bytes": size, "topology": trip.plan.topology.name, "scenario": trip.plan.scenario.name}
    shown = f"recording: {escape(str(file))}, {size:,} bytes"
    emit(body, as_json=as_json, render=lambda: console.print(shown, soft_wrap=True))


@app.command()
def replay(
    file: FileArgument,
    topology: TopologyArgument = None,
    speed: SpeedOption = None,
    realtime: RealtimeOption = False,
    board: BoardOption = False,
    calm: CalmOption = False,
    report: ReportOption = REPORT,
    patience: PatienceOption = PATIENCE,
    no_workers: NoWorkersOption = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Publish a recording again on real sites, message by message, and report.

    Works like "voyage run", with the messages, scenario and seed of the recording.

    Example: fairlead voyage replay ducks.gz --speed 3600
    """
    from simulators.voyage.services import SailSettings

    settings = SailSettings(_speed(speed, realtime=realtime), patience, calm=calm, elsewhere=no_workers)
    context, trip = recorded(topology, file, calm=calm)
    if dry_run:
        _show_plan(context, trip, workers=not no_workers, as_json=as_json)
    else:
        _report(context, trip, settings, report, board=board, as_json=as_json)


def _speed(speed: float | None, *, realtime: bool) -> float | None:
    if realtime and speed is not None:
        raise OptionError("--realtime and --speed were both given", hint="--realtime is --speed 1; leave out --speed")
    return 1.0 if realtime else speed


def _show_plan(context: Context, trip: VoyageSource, *, workers: bool, as_json: bool) -> None:
    """Print what a voyage would start and publish."""
    plan = [f"start what does not run yet: {', '.join(context.topology.sites)}"]
    plan += ["start a bridge and a replicator for all sites; stop them at the end"] if workers else []
    plan += [
        f"publish about {trip.expected_messages():,} messages of scenario {trip.plan.scenario.name}, "
        f"{trip.starts:%Y-%m-%d %H:%M} to {trip.ends:%Y-%m-%d %H:%M} UTC"
    ]
    plan += [f"fill the tables and feeds at {context.topology.shore.at}"] if context.topology.shore else []
    Consent(yes=False, dry_run=True, as_json=as_json).agreed(plan)


def _sail(
    context: Context, trip: VoyageSource, settings: SailSettings, *, board: bool, quiet: bool
) -> tuple[Report, str]:
    """Start missing sites and workers, run the voyage, and report; then stop the workers started here.

    Returns:
        The report, and its page as HTML.
    """
    from board.pages.voyage import voyage_file
    from board.service import BoardService
    from fairlead.cli.commands.voyage.display import telling, terminal_display, with_jobs
    from simulators.sail import make_report, sail_watched
    from simulators.voyage.run import check_clock
    from simulators.voyage.services import timed, voyage_services

    def tell(text: str) -> None:
        errors.print(text, markup=False, soft_wrap=True)

    check_clock(trip.starts, trip.ends, dt.datetime.now(dt.UTC), settings.speed)
    phases: dict[str, float] = {}
    with timed(phases, "starting sites"):
        bring_up(context, list(context.topology.sites), quiet=quiet)
    if board:
        tell(f"watch it in a browser, until fairlead down: {start_in_background(context, '/voyages')}")
    with voyage_services(context, trip, settings, phases, tell=tell) as services:
        display = terminal_display(trip, quiet=quiet)
        sailed = asyncio.run(sail_watched(context, trip, settings, services, display))
        if sailed is None:
            raise KeyboardInterrupt
        with telling(quiet=quiet) as show, with_jobs(context.folder, show) as tell_now:
            made = make_report(context, sailed, settings, services, tell=tell_now)
            tell_now("writing the page")
            site = services.headquarters.loss.heir if services.headquarters else usual_site(context)
            return made, asyncio.run(voyage_file(BoardService(context, site), made))


def _report(
    context: Context, trip: VoyageSource, settings: SailSettings, folder: Path, *, board: bool, as_json: bool
) -> None:
    """Sail, then print the report and write it; end with 1 when one of its lines is false.

    Raises:
        UnavailableError: the folder cannot be written; nothing has sailed yet.
    """
    from simulators.report.model import as_table

    with writing(folder, "folder", "--report"):  # a voyage that is refused leaves no folder behind
        with tempfile.TemporaryFile(dir=next(each for each in (folder, *folder.absolute().parents) if each.exists())):
            pass
    made, page = _sail(context, trip, settings, board=board, quiet=as_json)
    emit(json.loads(made.to_json()), as_json=as_json, render=lambda: console.print(as_table(made)))
    with writing(folder, "folder", "--report"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "report.json").write_bytes(made.to_json())
        (folder / "report.html").write_text(page, encoding="utf-8")
    pages = f"{folder / 'report.json'}, {folder / 'report.html'}"
    errors.print(f"report: {escape(pages)}", soft_wrap=True)
    if not made.ok:
        raise typer.Exit(ExitCode.FAILED)
