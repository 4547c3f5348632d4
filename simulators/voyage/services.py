"""Start what a voyage needs beside its sites: bridges and replicators, proxies for the links, and shore's jobs.

``voyage_services`` starts what is missing and stops it at the end. Bridges and replicators run in processes of their
own, the proxies and shore in this process. Spark starts while the voyage sails, at a lower priority, and appends to
tables what it finds in the logs. The tables that are computed from others wait for the end of the voyage: what Spark
would compute on the way, it would have to compute again.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from fairlead.errors import ConfigurationError, FairleadError, UnavailableError
from fairlead.health import health_problem
from fairlead.home import run_folder
from fairlead.kafka.clusters import Clusters
from fairlead.local.workers import Workers
from fairlead.plan import Tell, silent
from simulators.network.control_client import ControlClient
from simulators.network.controller import Network, NetworkController, brokers_of
from simulators.physics.climate import link_weather
from simulators.voyage.headquarters import LostHeadquarters
from simulators.voyage.run import refuse_second_voyage
from simulators.voyage.supervisor import Supervisor, WorkerEnd
from simulators.voyage.voyage import VoyageSource
from topologies.context import Context
from topologies.endpoints import LINES, write_address_overrides
from topologies.model import Shore
from topologies.users import ADMIN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from shore.jobs.status import JobStatus
    from shore.verify import Verification

READY_TIMEOUT = 120.0  # seconds to wait for bridges and replicators that others start
FRESH = 15.0  # seconds for which a status file counts; workers write theirs each second
NICE: Final = 5
"""How much higher the nice value of Spark is than that of the sites, while a voyage sails and afterwards. With a higher
one, on a busy machine, its Python workers do not start within Spark's ten seconds."""
BUSY_TRIES: Final = 3
"""Runs of shore's jobs, or of the verification, on a machine that is too busy for Spark's ten seconds."""

T = TypeVar("T")
Phases = dict[str, float]
"""Seconds that each phase of a run took."""


@dataclass(frozen=True, slots=True)
class SailSettings:
    """How to sail a voyage.

    Args:
        speed: Simulated seconds per second; None is as fast as possible.
        patience: Seconds without progress after which a barrier fails.
        calm: Links have no outages and delays.
        elsewhere: Bridges and replicators run elsewhere, in containers for example, with this state folder.
    """

    speed: float | None
    patience: float
    calm: bool = False
    elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class VoyageServices:
    """The services that run beside a voyage.

    Args:
        network: Controls the proxies of the links; None without weather.
        check: Call it while the voyage waits; it raises if a worker was given up.
        shore: Runs shore's jobs; None if the topology has no shore.
        phases: The seconds of each phase so far.
        headquarters: Loses the headquarters; None in a scenario that keeps them.
    """

    network: NetworkController | None
    check: Callable[[], None]
    shore: ShoreJobs | None
    phases: Phases
    headquarters: LostHeadquarters | None = None


@contextmanager
def voyage_services(
    context: Context, trip: VoyageSource, settings: SailSettings, phases: Phases, *, tell: Tell = silent
) -> Iterator[VoyageServices]:
    """Start everything that a voyage needs beside its sites; stop at the end what this call started.

    Args:
        phases: Receives the seconds of each phase.
        tell: Called with messages for the operator, such as a worker that ended and was started again.

    Raises:
        ConfigurationError: the sites have containers' logs from an earlier voyage, which is looked at before anything
            starts; or the scenario cuts links, but replicators run already that do not use proxies.
        UnavailableError: a bridge or replicator does not start.
    """
    asyncio.run(_refuse_second_voyage(context))
    with (
        link_network(context, trip, settings, tell) as network,
        shore_jobs(context, early=settings.speed is None, tell=tell) as shore,
        background_workers(context, settings, phases, proxied=network is not None, tell=tell) as check,
    ):
        loss = trip.plan.scenario.lost_headquarters
        headquarters = None
        if loss is not None and shore is not None:
            headquarters = LostHeadquarters(context, loss, trip.plan.starts + loss.starts, shore, tell)
        yield VoyageServices(network, check, shore, phases, headquarters)


async def _refuse_second_voyage(context: Context) -> None:
    async with _clusters(context) as clusters:
        await refuse_second_voyage(context.topology, clusters, context.source)


def _clusters(context: Context) -> Clusters:
    return Clusters(lambda site: context.resolver.kafka(site, ADMIN), client_id="fairlead-voyage")


@contextmanager
def link_network(
    context: Context, trip: VoyageSource, settings: SailSettings, tell: Tell = silent
) -> Iterator[NetworkController | None]:
    """Yield the controller of the proxies between replicators and their sources; None without weather.

    The proxies are in this process, and ``background_workers`` starts replicators that use them. If replicators run
    elsewhere, the proxies are in a process of their own. Raises the ``ConfigurationError`` of ``voyage_services``.
    """
    if settings.calm:
        yield None
        return
    sky = link_weather(trip.plan)
    if settings.elsewhere and (there := context.folder / "run" / LINES).exists():
        with ControlClient(there) as client:
            yield NetworkController(context.topology, sky, client.send)
        return
    if settings.elsewhere or _running(context, "replicate"):
        cut = next(sky.outages(), None)
        if cut is not None:
            raise ConfigurationError(
                f"scenario {trip.plan.scenario.name} cuts the link between {' and '.join(cut[0])}, and the replicators "
                "that run already do not go over links that can be cut",
                hint="stop them, so that the voyage starts its own; --calm sails it with every link up",
            )
        tell("links have no weather: it takes replicators that the voyage starts")
        yield None
        return

    async def brokers() -> dict[str, tuple[tuple[str, int], ...]]:
        async with _clusters(context) as clusters:
            return await brokers_of(clusters, context.topology.sites)

    with Network(context.topology, sky, asyncio.run(brokers()), seed=trip.plan.seed) as network:
        write_address_overrides(_address_overrides(context), network.address_overrides)
        yield network


def _address_overrides(context: Context) -> Path:
    return context.folder / "run" / "address-overrides.json"


@contextmanager
def timed(phases: Phases, name: str) -> Iterator[None]:
    """Store in ``phases`` the seconds that the block takes."""
    began = time.monotonic()
    yield
    phases[name] = round(time.monotonic() - began, 1)


@contextmanager
def background_workers(
    context: Context, settings: SailSettings, phases: Phases, *, proxied: bool, tell: Tell = silent
) -> Iterator[Callable[[], None]]:
    """Start one bridge and one replicator process for all sites, unless they run already, and stop them at the end.

    Start a worker again if it ends early. Yield ``VoyageServices.check``.

    Args:
        proxied: Replicators use the proxies of ``link_network``.

    Raises:
        UnavailableError: a worker does not start; or they run elsewhere, and one is not ready in ``READY_TIMEOUT``.
    """
    background = Workers(context.folder)
    if settings.elsewhere:
        with timed(phases, "waiting for bridges and replicators"):
            _await_ready(context)
        yield partial(background.check, _STATUS_FILES)
        return
    options = {"bridge": [], "replicate": ["--address-overrides", str(_address_overrides(context))] if proxied else []}
    with Supervisor(background, on_end=lambda end: tell(_how_it_ended(end))) as supervisor:

        def check() -> None:
            supervisor.check()
            background.check(_STATUS_FILES, but=supervisor.names)

        with timed(phases, "starting bridges and replicators"):
            started: dict[str, list[Path]] = {}
            for command, files in _STATUS_FILES.items():
                if _running(context, command):
                    tell(f"{command}: using the workers that run")
                    continue
                wanted = [run_folder(context.folder, site) / files.format(site) for site in _sites_of(context, command)]
                for file in wanted:
                    file.unlink(missing_ok=True)  # an earlier run may have left it, and its "ready" does not count
                name = f"{command}.all"
                supervisor.start(name, [command, "--all", "--topology", context.source, *options[command]])
                started[name] = wanted
            for name, wanted in started.items():
                supervisor.await_ready(name, lambda wanted=wanted: not any(map(health_problem, wanted)))  # type: ignore[misc]
        yield check


def _how_it_ended(end: WorkerEnd) -> str:
    command = end.name.partition(".")[0]
    return f"fairlead {command} {end.how} after {end.lived:.0f} s and is started again; the voyage goes on"


def _await_ready(context: Context) -> None:
    end = time.monotonic() + READY_TIMEOUT
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
        time.sleep(0.2)  # there are no file events for other machines


def _running(context: Context, command: str) -> bool:
    return any(w.running and w.name.startswith(f"{command}.") for w in Workers(context.folder).all())


_STATUS_FILES = {"bridge": "bridge.{}.json", "replicate": "replicator.{}.json"}


def _sites_of(context: Context, command: str) -> list[str]:
    topology = context.topology
    if command == "bridge":
        return topology.sites_with_bridge
    return [name for name in topology.sites if topology.has_replicator(name)]


@contextmanager
def shore_jobs(context: Context, *, early: bool, tell: Tell = silent) -> Iterator[ShoreJobs | None]:
    """Yield ``VoyageServices.shore``.

    Args:
        early: Start Spark now, while the voyage sails, and read the logs as far as they go.
    """
    where = context.topology.shore
    if where is None:
        yield None
        return
    with ExitStack() as stack:
        shore = ShoreJobs(context, where, stack, tell)
        if early:
            shore.begin()
        yield shore


class ShoreJobs:
    """Runs shore's jobs in one Spark session."""

    def __init__(self, context: Context, where: Shore, stack: ExitStack, tell: Tell) -> None:
        self._context = context
        self._where = where
        self._site = where.at
        self._settings = context.resolver.spark_settings(where.at)
        self._stack = stack
        self._tell = tell
        # On Linux the priority is that of the thread, and of the processes that it starts.
        self._starter = stack.enter_context(ThreadPoolExecutor(1, "spark", os.nice, (NICE,)))
        self._session: Future[SparkSession] | None = None
        self._ended = threading.Event()
        self._reading = threading.Event()  # the jobs that ``begin`` runs have begun
        self._not_early = threading.Event()  # they need not begin
        stack.callback(self._ended.set)
        stack.callback(self._not_early.set)

    def begin(self) -> None:
        """Start Spark in a thread, and read the logs as far as they go now."""
        self._session = self._starter.submit(self._read_logs)

    def move(self, site: str) -> None:
        """Go on at another site from now on."""
        self._site = site

    def fill(self) -> None:
        """Fill the tables and feeds with everything that is in the logs now.

        Raises:
            FairleadError: Spark does not start, or a job failed.
        """
        if not self._reading.is_set():  # on a short voyage, which then reads each log once
            self._not_early.set()
        self._patiently(lambda: self._run(self._spark(), stop=self._ended))

    def verify(self) -> Verification:
        """Compare the tables with the logs and with each other.

        Raises:
            FairleadError: Spark does not start, or the logs cannot be read.
        """
        from shore.verify import verify

        endpoint = self._context.resolver.kafka(self._site, ADMIN)
        return self._patiently(lambda: verify(self._spark(), self._context.topology, endpoint, self._context.folder))

    def _patiently(self, work: Callable[[], T]) -> T:
        """Return the result of ``work``; repeat it, as the error advises, where the machine is too busy for Spark."""
        from shore.errors import SlowWorkerError

        for _ in range(BUSY_TRIES - 1):
            try:
                return work()
            except SlowWorkerError as error:
                self._tell(f"trying again: {error.what}")
        return work()

    def _spark(self) -> SparkSession:
        if self._session is None:
            self._session = self._starter.submit(self._open_session, self._stack)
        return self._session.result()

    def _read_logs(self) -> SparkSession:
        """Run the jobs that append what is in logs to tables. A failure that may pass is left to ``fill``, with a new
        session: after a query that failed, a session's connection to Python may be broken."""
        from shore.jobs.runner import choose_jobs

        readers = [job.name for job in choose_jobs(self._context.topology, None) if job.reads_logs]
        with ExitStack() as attempt:
            session = self._open_session(attempt)
            try:
                self._run(session, readers, stop=self._not_early)
            except FairleadError as error:
                if not error.retriable:
                    raise
                self._tell(f"the tables will be filled later: {error.what}")
            else:
                self._stack.push(attempt.pop_all())
                return session
        return self._open_session(self._stack)

    def _open_session(self, stack: ExitStack) -> SparkSession:
        from shore.jobs.runner import own_session

        return stack.enter_context(own_session(self._context.folder, self._where, self._settings))

    def _run(self, session: SparkSession, jobs: Sequence[str] | None = None, *, stop: threading.Event) -> None:
        import shore

        def progressed(status: Mapping[str, JobStatus]) -> None:
            if any(each.state != "waiting" for each in status.values()):
                self._reading.set()

        endpoint = self._context.resolver.kafka(self._site, "shore")
        topology, folder = self._context.topology, self._context.folder
        moves = self._site != self._where.at
        shore.run(
            topology, endpoint, folder, jobs, once=True, session=session, stop=stop, move=moves, on_progress=progressed
        )
