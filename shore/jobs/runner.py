"""Running jobs: all in one Spark session, once over what is there or continuously until told to stop."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import msgspec
from deltalake import DeltaTable
from filelock import FileLock, Timeout
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from fairlead.endpoint import KafkaEndpoint
from fairlead.errors import ConfigurationError, UnknownNameError
from shore.errors import AlreadyRunningError, JobFailedError, SplitStateError
from shore.jobs import conditions, feeds, operations, readings
from shore.jobs.interrupts import interrupts
from shore.jobs.model import Job, JobContext
from shore.jobs.progress import Running, failure
from shore.places import Places
from shore.session import close as close_session
from shore.session import spark as open_session
from shore.source import register
from shore.status import JobStatus, write_status
from shore.tables import TABLES
from shore.tables.operations import OPERATIONS
from topologies.model import Topology

JOBS: dict[str, Job] = {
    job.name: job
    for job in (
        Job(
            "readings",
            1,
            ("readings",),
            "10 seconds",
            readings.query,
            lambda topology: bool(readings.container_streams(topology)),
        ),
        Job("operations", 1, (*(o.table.name for o in OPERATIONS), "custody"), "10 seconds", operations.query),
        # An hour's conditions need not be newer than a minute, and a merge is the most expensive batch of all.
        Job("conditions", 2, ("conditions",), "60 seconds", conditions.query),
        Job("feeds", 2, ("feeds",), "10 seconds", feeds.query, lambda topology: bool(feeds.customers_here(topology))),
    )
}
MAX_RECORDS = 500_000
MAX_STARTS = 4  # of one query in one run
_POLL_SECONDS = 0.2
_STATUS_SECONDS = 1.0


def run(
    topology: Topology,
    endpoint: KafkaEndpoint,
    folder: Path,
    jobs: Sequence[str] | None = None,
    *,
    once: bool = False,
    session: SparkSession | None = None,
    settings: Mapping[str, str] | None = None,
    max_records: int = MAX_RECORDS,
    intervals: Mapping[str, str] | None = None,
    on_progress: Callable[[Mapping[str, JobStatus]], None] | None = None,
    stop: threading.Event | None = None,
) -> dict[str, JobStatus]:
    """Run shore's jobs for one topology.

    Args:
        endpoint: Kafka of the site ``topology.shore.at``, as user ``shore``.
        folder: The topology's state folder; tables and checkpoints are there unless ``shore.storage`` names a URL.
        jobs: Names of jobs; all that the topology has work for when None.
        once: Read what is there now, then return. Otherwise run until ``stop`` is set.
        session: A Spark session to use and leave running; else one is started for this call and stopped.
        settings: Spark settings that win over the usual ones.
        max_records: Bound of one micro-batch of the jobs that read logs.
        intervals: Other pauses than the usual, by job ("5 seconds").
        on_progress: Called about once a second with the state of every job.

    Returns:
        The last state of every job.

    Raises:
        AlreadyRunningError: another process runs shore for this folder.
        SplitStateError: a checkpoint and its tables do not belong together.
        JobFailedError: a query ended with an error; the others were stopped.
    """
    if topology.shore is None:
        raise ConfigurationError(
            f"topology {topology.name} does not say where shore runs", hint="add 'shore: {at: <site>}' to it"
        )
    chosen = [replace(job, interval=(intervals or {}).get(job.name, job.interval)) for job in choose(topology, jobs)]
    places = Places.of(folder, topology.shore.storage)
    with _only_one(folder):
        check_state(places, chosen)
        for table in TABLES.values():
            table.create(places.table(table.name))
        with (
            interrupts(stop := stop or threading.Event()) as interrupted,
            _session(folder, topology.shore.master, session, settings) as spark,
        ):
            register(spark, endpoint)
            context = JobContext(topology, endpoint, places, spark, max_records)
            board = _Board(folder, chosen, on_progress)
            _run_stages(context, chosen, once, board, stop)
        if once and interrupted.is_set():
            raise KeyboardInterrupt
        return dict(board.jobs)


def choose(topology: Topology, names: Sequence[str] | None) -> tuple[Job, ...]:
    """The jobs of these names in the order they depend on each other; for None all that have something to do."""
    if not names:
        return tuple(job for job in JOBS.values() if job.needed(topology))
    for name in names:
        if name not in JOBS:
            raise UnknownNameError("job", name, JOBS)
    return tuple(job for job in JOBS.values() if job.name in names)


def check_state(places: Places, jobs: Sequence[Job]) -> None:
    """Refuse to go on where a checkpoint or a table was removed without the other. Only for tables on this machine."""
    if not places.is_local:
        return
    for job in jobs:
        checkpoint = places.has_checkpoint(job.name)
        for name in job.tables:
            location = places.table(name)
            there = DeltaTable.is_deltatable(location)
            if checkpoint and not there and job.name != "feeds":
                raise SplitStateError(
                    f"job {job.name} has a checkpoint but table {name} is gone: its rows would be missing for ever",
                    hint=f"put the table back, or delete {places.base}/delta and {places.base}/checkpoints: "
                    "everything is built again from the logs",
                )
            if job.stage == 1 and not checkpoint and there and DeltaTable(location).version() > 0:
                raise SplitStateError(
                    f"table {name} has rows but job {job.name} has no checkpoint: all rows would be added again",
                    hint=f"put the checkpoint back, or delete {places.base}/delta and {places.base}/checkpoints: "
                    "everything is built again from the logs",
                )


@contextlib.contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    (folder / "run").mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / "run" / "shore.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise AlreadyRunningError(
            f"another 'fairlead shore run' is at work in {folder}",
            hint="wait until it is done, or stop it; 'fairlead shore status' shows what it does",
        ) from None
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def _session(
    folder: Path, master: str, given: SparkSession | None, settings: Mapping[str, str] | None
) -> Iterator[SparkSession]:
    if given is not None:
        yield given
        return
    session = open_session(folder, master=master, extra=settings)
    try:
        yield session
    finally:
        close_session(session)


class _Board:
    """Keeps the state of all jobs, in a file for ``shore status`` and for whoever watches the call."""

    def __init__(
        self, folder: Path, jobs: Sequence[Job], on_progress: Callable[[Mapping[str, JobStatus]], None] | None
    ) -> None:
        self._folder = folder
        self._on_progress = on_progress
        self._next = 0.0
        self.jobs = {job.name: JobStatus(job.name, "waiting") for job in jobs}

    def look(self, running: Sequence[Running], *, now: bool = False) -> None:
        """Bring the state up to date; cheap enough to be called often."""
        if not now and time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _STATUS_SECONDS
        for one in running:
            self.jobs[one.job.name] = one.status()
        self.show()

    def fail(self, error: BaseException) -> None:
        name = error.fields.get("job") if isinstance(error, JobFailedError) else None
        for job, status in self.jobs.items():
            if job == name:
                self.jobs[job] = msgspec.structs.replace(status, state="failed", error=str(error))
        self.finish("stopped")

    def finish(self, state: Literal["done", "stopped"]) -> None:
        """No job runs any more."""
        for job, status in self.jobs.items():
            if status.state in ("running", "waiting"):
                self.jobs[job] = msgspec.structs.replace(status, state=state)
        self.show()

    def show(self) -> None:
        write_status(self._folder, self.jobs)
        if self._on_progress is not None:
            self._on_progress(self.jobs)


def _run_stages(context: JobContext, jobs: Sequence[Job], once: bool, board: _Board, stop: threading.Event) -> None:
    stages = [[job for job in jobs if job.stage == stage] for stage in sorted({job.stage for job in jobs})]
    if not once:
        stages = [list(jobs)]

    def start(job: Job) -> StreamingQuery:
        return _start(context, job, once)

    board.show()
    for stage in stages:
        running: list[Running] = []
        try:
            for job in stage:
                if not stop.is_set():
                    running.append(Running(job, start(job)))
            wait(running, board, stop, start)
        except BaseException as error:
            board.fail(error)
            raise
        finally:
            for one in running:
                one.query.stop()
    board.finish("stopped" if stop.is_set() else "done")


def _start(context: JobContext, job: Job, once: bool) -> StreamingQuery:
    """Start a job's query; tried again while Spark's workers are too slow to start."""
    for attempt in range(1, MAX_STARTS + 1):
        try:
            writer = job.query(context).queryName(job.name)
            writer = writer.option("checkpointLocation", context.places.checkpoint(job.name))
            writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=job.interval)
            return writer.start()
        except (PySparkException, Py4JError) as error:
            failed = failure(job.name, str(error))
            if not failed.retriable or attempt == MAX_STARTS:
                raise failed from error
    raise AssertionError("the loop above returns or raises")


def wait(
    running: Sequence[Running], board: _Board, stop: threading.Event, start: Callable[[Job], StreamingQuery]
) -> None:
    """Until all have ended, one has failed, or ``stop`` is set.

    A query that failed only because the machine was busy is started again from its checkpoint, a few times.
    """
    while not stop.is_set():
        for one in running:
            if one.query.isActive or (error := one.query.exception()) is None:
                continue
            failed = failure(one.job.name, str(error))
            if not failed.retriable or one.starts == MAX_STARTS:
                raise failed from None
            one.query, one.starts = start(one.job), one.starts + 1
        active = any(one.query.isActive for one in running)
        board.look(running, now=not active)
        if not active and all(one.query.exception() is None for one in running):
            return
        stop.wait(_POLL_SECONDS)
    board.look(running, now=True)
