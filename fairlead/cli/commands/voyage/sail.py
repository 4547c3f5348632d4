"""A voyage on real sites, from the first message to the report, with what runs beside it.

Bridges and replicators run in processes of their own, shore in a thread, the proxies of the links in this process.
Spark starts while the voyage sails, at a lower priority: it needs a minute before the first row of each table.
"""

from __future__ import annotations

import asyncio
import os
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from fairlead.cli.console import errors
from fairlead.errors import ConfigurationError, FairleadError, UnavailableError
from fairlead.health import health_problem
from fairlead.home import run_folder
from fairlead.local.workers import Workers
from topologies.context import Context
from topologies.model import SiteKind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from simulators.network.controller import NetworkController
    from simulators.report.model import Report
    from simulators.voyage.control import VoyageControl
    from simulators.voyage.player import Progress as Sailing
    from simulators.voyage.run import Sailed
    from simulators.voyage.supervisor import WorkerEnd
    from simulators.voyage.voyage import VoyageSource
    from topologies.model import Shore

PATIENCE = 120.0  # seconds for bridges and replicators that others start
FRESH = 15.0  # seconds; they write their files each second


@contextmanager
def weather(
    context: Context, trip: VoyageSource, *, calm: bool, elsewhere: bool = False
) -> Iterator[NetworkController | None]:
    """The controller of the proxies between replicators and their sources; None without weather.

    The proxies are in this process, and ``workers`` starts replicators that use them. Where replicators run
    ``elsewhere``, the proxies are in a process of their own.
    """
    from fairlead.kafka.clusters import Clusters
    from simulators.network.controller import Network, NetworkController, brokers_of
    from simulators.network.relay import ControlClient
    from simulators.physics.climate import link_weather
    from topologies.endpoints import LINES, write_address_overrides
    from topologies.users import ADMIN

    if calm:
        yield None
        return
    sky = link_weather(trip.plan)
    if elsewhere and (there := context.folder / "run" / LINES).exists():
        with ControlClient(there) as client:
            yield NetworkController(context.topology, sky, client.send)
        return
    if elsewhere or _running(context, "replicate"):
        cut = next(sky.outages(), None)
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
        async with Clusters(lambda site: context.resolver.kafka(site, ADMIN), client_id="fairlead-voyage") as clusters:
            return await brokers_of(clusters, context.topology.sites)

    with Network(context.topology, sky, asyncio.run(brokers()), seed=trip.plan.seed) as network:
        write_address_overrides(_detours(context), network.address_overrides)
        yield network


def _detours(context: Context) -> Path:
    return context.folder / "run" / "detours.json"


@contextmanager
def phase(phases: dict[str, float], name: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    phases[name] = round(time.monotonic() - began, 1)


@contextmanager
def workers(
    context: Context, phases: dict[str, float], *, weather: bool, elsewhere: bool = False
) -> Iterator[Callable[[], None]]:
    """One bridge and one replicator process for all sites, unless somebody runs them already; stopped at the end.

    One that ends meanwhile is started again, and standard error says so. Gives a function to call while the voyage
    waits: it raises when a worker is gone for good.

    ``elsewhere``: others run them, in containers say, and write what they do into this state folder.

    Raises:
        UnavailableError: they run elsewhere, and one of them is not ready within ``PATIENCE`` seconds.
    """
    from simulators.voyage.supervisor import Supervisor

    background = Workers(context.folder)
    if elsewhere:
        with phase(phases, "waiting for bridges and replicators"):
            _await_ready(context)
        yield background.check
        return
    options = {"bridge": [], "replicate": ["--detours", str(_detours(context))] if weather else []}
    with Supervisor(background, on_end=_say_ended) as supervisor:

        def check() -> None:
            supervisor.check()
            background.check(but=supervisor.names)

        with phase(phases, "starting bridges and replicators"):
            started: dict[str, list[Path]] = {}
            for command, files in _STATUS_FILES.items():
                if _running(context, command):
                    errors.print(f"{command}: using the workers that run")
                    continue
                wanted = [run_folder(context.folder, site) / files.format(site) for site in _sites_of(context, command)]
                for file in wanted:
                    file.unlink(missing_ok=True)  # of an earlier run, whose "ready" says nothing
                name = f"{command}.all"
                supervisor.start(name, [command, "--all", "--topology", context.source, *options[command]])
                started[name] = wanted
            for name, wanted in started.items():
                supervisor.await_ready(name, lambda wanted=wanted: not any(map(health_problem, wanted)))  # type: ignore[misc]
        yield check


def _say_ended(end: WorkerEnd) -> None:
    command = end.name.partition(".")[0]
    errors.print(
        f"[yellow]fairlead {command} {end.how}[/] after {end.lived:.0f} s and is started again; the voyage goes on",
        soft_wrap=True,
    )


def _await_ready(context: Context) -> None:
    end = time.monotonic() + PATIENCE
    files = [
        run_folder(context.folder, site) / name.format(site)
        for command, name in _STATUS_FILES.items()
        for site in _sites_of(context, command)
    ]
    while late := [file for file in files if health_problem(file, fresh=FRESH)]:
        if time.monotonic() > end:
            raise UnavailableError(
                f"{len(late)} of {len(files)} bridges and replicators are not ready, for example {late[0].stem}",
                hint="--no-workers uses those that run elsewhere with this state folder; are they up?",
                late=[file.stem for file in late],
            )
        time.sleep(0.2)  # files of other machines tell of no events


def _running(context: Context, command: str) -> bool:
    return any(w.running and w.name.startswith(f"{command}.") for w in Workers(context.folder).all())


_STATUS_FILES = {"bridge": "bridge.{}.json", "replicate": "replicator.{}.json"}


def _sites_of(context: Context, command: str) -> list[str]:
    topology = context.topology
    if command == "bridge":
        return [name for name, site in topology.sites.items() if site.kind is not SiteKind.CUSTOMER]
    return [name for name in topology.sites if topology.links_to(name)]


NICE: Final = 10
"""How much lower the priority of Spark is than that of the sites, while a voyage sails and afterwards."""


@contextmanager
def shore_beside(context: Context, *, early: bool) -> Iterator[Callable[[], None]]:
    """Gives a function that fills the tables and feeds with everything that is in the logs then.

    It does nothing where the topology has no shore.

    Args:
        early: Start Spark now, in a thread, and fill the tables with what is there already.
    """
    where = context.topology.shore
    if where is None:
        yield lambda: None
        return
    with ExitStack() as stack:
        shore = _Shore(context, where, stack)
        if early:
            shore.begin()
        try:
            yield shore.finish
        finally:
            shore.end()


class _Shore:
    """Runs of shore's jobs in one Spark session, the first of them in a thread."""

    def __init__(self, context: Context, where: Shore, stack: ExitStack) -> None:
        self._context = context
        self._where = where
        self._settings = context.resolver.spark_settings(where.at)
        self._stack = stack
        self._session: SparkSession | None = None
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._failure: Exception | None = None

    def begin(self) -> None:
        """Start Spark and the first run in a thread."""
        self._thread = threading.Thread(target=self._first, name="shore", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Everything that is in the logs now.

        Raises:
            FairleadError: Spark does not start, or a job failed.
        """
        self._join()
        if self._failure is not None:
            if not (isinstance(self._failure, FairleadError) and self._failure.retriable):
                raise self._failure
            errors.print(f"the tables will be filled later: {self._failure.what}", markup=False, soft_wrap=True)
            self._stack.close()  # a session whose query was broken off may be left with a broken connection to Python
            self._session = None
        self._run(threading.Event())

    def end(self) -> None:
        """Stop the first run, when the voyage ends before its time."""
        self._stop.set()
        self._join()

    def _first(self) -> None:
        try:
            with ThreadPoolExecutor(1, "spark") as starter:
                self._session = starter.submit(self._open_session).result()
            if not self._stop.is_set():
                self._run(self._stop)
        except Exception as error:
            self._failure = error

    def _open_session(self) -> SparkSession:
        """Start Spark in a thread of its own, whose priority Spark's processes inherit."""
        from shore.jobs.runner import own_session

        os.nice(NICE)  # on Linux: of this thread, and of the processes it starts
        return self._stack.enter_context(own_session(self._context.folder, self._where, self._settings))

    def _run(self, stop: threading.Event) -> None:
        import shore

        endpoint = self._context.resolver.kafka(self._where.at, "shore")
        shore.run(
            self._context.topology,
            endpoint,
            self._context.folder,
            once=True,
            session=self._session,
            settings=self._settings,
            stop=stop,
        )

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()


@contextmanager
def telling(*, quiet: bool) -> Iterator[Callable[[str], None]]:
    """What is being done, on one line where somebody watches and on lines of their own otherwise."""
    if quiet:
        yield lambda text: None
    elif errors.is_terminal:
        with errors.status("") as shown:
            yield lambda text: shown.update(escape(text))
    else:
        yield lambda text: errors.print(escape(text))


@contextmanager
def sailing(trip: VoyageSource, *, quiet: bool, steerable: bool) -> Iterator[Callable[[Sailing], None]]:
    """Where the voyage is. ``steerable``: say which keys there are."""
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
    if steerable:
        errors.print("[dim]space pauses and goes on, q ends[/]")
    columns = (SpinnerColumn(), TextColumn("{task.fields[when]}"), BarColumn(), TextColumn("{task.description}"))
    with Progress(*columns, TimeElapsedColumn(), console=errors) as progress:
        task = progress.add_task("", total=trip.expected_messages(), when="")

        def show(now: Sailing) -> None:
            trouble = "".join(f"; {site}: {why}" for site, why in now.troubles.items())
            text = f"{now.published:,} published, {now.phase}{trouble}"
            progress.update(task, completed=now.published, description=escape(text), when=f"{now.sim_time:%d %b %H:%M}")

        yield show


def usable() -> bool:
    """Whether this process may read keys: its terminal is there, and it is not in the background."""
    return sys.stdin.isatty() and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()


@contextmanager
def keys(helm: VoyageControl) -> Iterator[bool]:
    """Read keys in the running event loop; the terminal is as before afterwards. False where there are none."""
    if not usable():
        yield False
        return
    stdin, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(stdin)

    def listen() -> None:
        if usable():  # in the background a process may not change the terminal
            tty.setcbreak(stdin)

    def pressed() -> None:
        for key in os.read(stdin, 64).decode(errors="replace"):
            if key in " pP":
                helm.toggle()
            elif key in "qQ":
                helm.quit()

    listen()
    helm.on_continued = listen  # after Ctrl-Z the shell has had the terminal
    loop.add_reader(stdin, pressed)
    try:
        yield True
    finally:
        loop.remove_reader(stdin)
        if usable():
            termios.tcsetattr(stdin, termios.TCSADRAIN, before)


@dataclass(frozen=True, slots=True)
class How:
    """How a voyage is sailed: its speed (None: as fast as it goes), the seconds that a barrier may stand still, and
    what is shown meanwhile."""

    speed: float | None
    patience: float
    live: bool
    quiet: bool


def sail_and_report(
    context: Context,
    trip: VoyageSource,
    how: How,
    phases: dict[str, float],
    network: NetworkController | None,
    check: Callable[[], None],
) -> tuple[Report, str]:
    """The voyage, its tables and feeds, and its report with the page.

    Args:
        check: Called while the voyage waits; raises when a worker that it needs is gone for good.

    Raises:
        KeyboardInterrupt: whoever sails it has had enough.
    """
    from simulators.report.assemble import assemble
    from simulators.report.page import page_data, render
    from simulators.voyage.waiting import wait_until_settled

    topology, resolver, folder = context.topology, context.resolver, context.folder
    with shore_beside(context, early=how.speed is None) as fill:
        with phase(phases, "voyage"):
            sailed = asyncio.run(_voyage(context, trip, how, network, check))
        if sailed is None:
            raise KeyboardInterrupt
        with telling(quiet=how.quiet) as tell:
            with phase(phases, "last replication"):
                tell("waiting for the last records to reach every site")
                asyncio.run(wait_until_settled(topology, resolver, folder, patience=how.patience, check=check))
            if topology.shore:
                with phase(phases, "tables and feeds"):
                    tell("filling the Delta tables and the customers' feeds")
                    fill()
                    asyncio.run(wait_until_settled(topology, resolver, folder, patience=how.patience, check=check))
            made = asyncio.run(assemble(sailed, topology, resolver, folder, seconds=phases, tell=tell))
    return made, render(made, page_data(sailed, topology, folder))


async def _voyage(
    context: Context, trip: VoyageSource, how: How, network: NetworkController | None, check: Callable[[], None]
) -> Sailed | None:
    """The voyage itself, steered and watched; None when it was told to end."""
    from simulators.live.gather import Gathering
    from simulators.live.screen import shown
    from simulators.voyage.control import VoyageControl
    from simulators.voyage.run import sail

    helm = VoyageControl(context.folder, trip.plan.scenario.name)
    hooks: dict[str, Any] = {
        "speed": how.speed,
        "barrier_timeout": how.patience,
        "check": check,
        "network": network,
        "on_player": helm.take,
    }
    with _steered(helm, how) as steerable:
        if how.live and errors.is_terminal and not how.quiet:
            gathering = Gathering(trip, speed=how.speed, keys=steerable)
            hooks |= {"on_published": gathering.published, "on_alert": gathering.alerted}
            progressed = [helm.progressed, gathering.progressed]
            async with shown(gathering, context.topology, context.folder, errors, lambda: helm.player):
                return await helm.run(
                    sail(trip, context.topology, context.resolver, on_progress=_all(progressed), **hooks)
                )
        with sailing(trip, quiet=how.quiet, steerable=steerable) as on_progress:
            both = _all([helm.progressed, on_progress])
            return await helm.run(sail(trip, context.topology, context.resolver, on_progress=both, **hooks))


@contextmanager
def _steered(helm: VoyageControl, how: How) -> Iterator[bool]:
    """Keys, where somebody watches."""
    if how.quiet or not errors.is_terminal:
        yield False
        return
    with keys(helm) as steerable:
        yield steerable


def _all(listeners: list[Any]) -> Any:
    def tell(now: Any) -> None:
        for listener in listeners:
            listener(now)

    return tell
