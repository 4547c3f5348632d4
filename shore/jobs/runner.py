"""Run jobs in one Spark session: once over the data that is there now, or continuously until stopped."""

from __future__ import annotations

import contextlib
import datetime as dt
import gc
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Literal, Self, cast

import msgspec
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from fairlead.errors import ConfigurationError, FairleadError, UnknownNameError
from fairlead.kafka.endpoint import Endpoint, current
from shore.delta.commit import create_tables
from shore.delta.evolution import check_types
from shore.delta.lake import AS_THEY_STAND
from shore.delta.lease import only_one
from shore.errors import JobFailedError
from shore.feeds.readers import kept_tables, logs_here, readers_here
from shore.jobs import (
    alerts,
    alerts_now,
    conditions,
    containers_now,
    feeds,
    histories,
    operations,
    quality,
    readings,
    reference,
    ships,
)
from shore.jobs.first_fill import fill_first
from shore.jobs.maintenance import TableMaintenance
from shore.jobs.model import Job, JobContext
from shore.jobs.move import settle_held, settle_site
from shore.jobs.query import SPARK_ERRORS, NotStarted, QueryHandle, RotatingEndpoint, job_failure
from shore.jobs.state import (
    check_state,
    has_read_all,
    logs_read_to_end,
    put_aside_unneeded,
    renew_checkpoint,
    renew_incomplete,
)
from shore.jobs.status import ALIVE, JobStatus, read_status, write_status
from shore.session import check_filesystem, event_log
from shore.session import close as close_session
from shore.session import spark as open_session
from shore.storage import open_paths, spark_settings
from shore.tables import TABLES
from shore.tables.operations import OPERATIONS
from topologies.model import Shore, Topology

logger = logging.getLogger(__name__)


@contextlib.contextmanager
def interrupts(stop: threading.Event) -> Iterator[threading.Event]:
    """While inside, set ``stop`` and the yielded event at the first SIGINT or SIGTERM. A second one acts as usual.

    Outside the main thread, where Python handles no signals, the yielded event is never set.
    """
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def handle(number: int, frame: FrameType | None) -> None:
        interrupted.set()
        stop.set()
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

    try:
        for number in before:
            signal.signal(number, handle)
        yield interrupted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_STATUS_SECONDS = 1.0


class StatusReporter:
    """Keeps ``jobs`` in the status file. Takes last errors, and the status of other jobs, over from earlier runs."""

    def __init__(
        self, folder: Path, jobs: Sequence[Job], on_progress: Callable[[Mapping[str, JobStatus]], None] | None
    ) -> None:
        self._folder = folder
        self._on_progress = on_progress
        self._next = 0.0
        before = read_status(folder)
        known = before.jobs if before is not None else {}
        self.jobs = {job.name: _carried(JobStatus(job.name, "waiting"), known.get(job.name)) for job in jobs}
        self._others = {name: status for name, status in known.items() if name not in self.jobs}

    def refresh(self, running: Sequence[QueryHandle], *, now: bool = False) -> None:
        """Update the status, at most every ``_STATUS_SECONDS`` unless ``now``; cheap enough to be called often."""
        if not now and time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _STATUS_SECONDS
        for one in running:
            self.jobs[one.job.name] = _carried(one.status(), self.jobs[one.job.name])
        self.show()

    def fail(self, error: BaseException) -> None:
        """Record that the run ends with this error."""
        name = error.fields.get("job") if isinstance(error, JobFailedError) else None
        for job, status in self.jobs.items():
            if job == name:
                at = dt.datetime.now(dt.UTC)
                self.jobs[job] = msgspec.structs.replace(status, state="failed", error=str(error), error_at=at)
        told = isinstance(error, Exception) and name not in self.jobs  # Ctrl-C is no error
        self.finish("stopped", error=str(error) or type(error).__name__ if told else None)

    def finish(self, state: Literal["done", "stopped"], *, error: str | None = None) -> None:
        """Record that no job runs any more."""
        for job, status in self.jobs.items():
            if status.state in ALIVE:
                self.jobs[job] = msgspec.structs.replace(status, state=state)
        self.show(error)

    def show(self, error: str | None = None) -> None:
        write_status(self._folder, self._others | self.jobs, error)
        if self._on_progress is not None:
            self._on_progress(self.jobs)


def _carried(status: JobStatus, before: JobStatus | None) -> JobStatus:
    """Return the status with the error of the status before, if it has none of its own."""
    if status.error is not None or before is None:
        return status
    return msgspec.structs.replace(status, error=before.error, error_at=before.error_at)


JOBS: dict[str, Job] = {
    job.name: job
    for job in (
        Job(
            "readings",
            ("readings", "readings_rejected"),
            "10 seconds",
            readings.query,
            lambda topology: bool(topology.moving_streams),
            logs=readings.logs,
        ),
        Job(
            "operations",
            tuple(o.table.name for o in OPERATIONS),
            "10 seconds",
            operations.query,
            logs=operations.logs,
        ),
        Job(
            "alerts",
            ("alerts_ashore",),
            "10 seconds",
            alerts.query,
            lambda topology: bool(topology.moving_streams),
        ),
        Job(
            "histories",
            ("bookings", "custody", "milestones", "shipments", "schedules"),
            "30 seconds",
            histories.query,
            inputs=histories.INPUTS,
        ),
        Job(
            "ships",
            ("dock_movements", "port_calls", "voyages", "geofence_visits", "ships_now"),
            "40 seconds",
            ships.query,
            inputs=ships.INPUTS,
        ),
        # Its merge is the most expensive batch of all. With the time of a batch, rows follow within a minute.
        Job(
            "conditions",
            ("conditions", "excursions", "excursion_parts", "mkt", "outlook"),
            "40 seconds",
            conditions.query,
            inputs=("readings",),
        ),
        Job(
            "feeds",
            ("feeds",),
            "10 seconds",
            feeds.query,
            lambda topology: bool(logs_here(topology)),
            inputs=feeds.INPUTS,
        ),
        Job("quality", ("quality",), "40 seconds", quality.query, inputs=quality.INPUTS),
        Job(
            "containers_now",
            ("containers_now", "cold_treatments"),
            "30 seconds",
            containers_now.query,
            inputs=containers_now.INPUTS,
        ),
        Job("alerts_now", ("alerts_now",), "30 seconds", alerts_now.query, inputs=alerts_now.INPUTS),
    )
}
PROMPT = {"readings": "2 seconds", "operations": "2 seconds", "feeds": "1 second"}
"""Trigger intervals where customers have feeds. A record waits for two batches and must be in its feed within 5 s."""
MAX_RECORDS = 500_000
MAX_STARTS = 4  # of one query in one run
_POLL_SECONDS = 0.2
_COLLECT_SECONDS = 30.0
"""How often garbage is collected. Every Java object that Python has used is in a reference cycle (py4j caches its
methods there), and Python looks for old cycles rarely. Until then Java keeps the DataFrame's plan and its broadcasts:
some hundred MB after minutes of ten jobs (45 DataFrames instead of 583, PySpark 4.2.0)."""


def run(
    topology: Topology,
    endpoint: Endpoint,
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
    move: bool = False,
) -> dict[str, JobStatus]:
    """Run shore's jobs for one topology.

    Args:
        endpoint: Kafka of the site where shore runs, as user ``shore``. A function is called at each start of a
            query, and a query that ended because its password was changed is restarted.
        folder: The topology's state folder; tables and checkpoints are there unless ``shore.tables`` names a URL.
        jobs: Names of jobs; None runs all that the topology has work for.
        once: Read what is there now, then return. Otherwise run until ``stop`` is set.
        session: A Spark session to use and leave running. Without one, a session is started and stopped by this call.
        settings: Spark settings that override the defaults.
        max_records: The largest number of offsets in one micro-batch of the jobs that read logs.
        intervals: Trigger intervals that override the defaults, by job ("5 seconds").
        on_progress: Called about once a second with the status of every job.
        move: Let shore leave the site where it ran before and go on at the endpoint's (``shore.jobs.move``).

    Returns:
        The last status of every job.

    Raises:
        AlreadyRunningError: another process runs shore for this folder, or another machine for this storage.
        LeaseLostError: another machine has taken over, because this process stood still for too long.
        ShoreMovedError: shore is at another site, and ``move`` is not set.
        SplitStateError: a checkpoint and its tables do not belong together.
        CheckpointDamagedError: a file of a checkpoint cannot be read.
        JobFailedError: a query ended with an error. With ``once`` the others were stopped, else they went on until
            ``stop``. Errors that may pass by themselves (a site does not answer) end only a run with ``once``.
    """
    if topology.shore is None:
        raise ConfigurationError(
            f"topology {topology.name} does not say where shore runs", hint="add 'shore: {at: <site>}' to it"
        )
    if once:  # most batches are small
        settings = {**AS_THEY_STAND, **topology.shore.settings, **(settings or {})}
    asked = current(endpoint)  # raises its errors before Spark starts
    pauses = (PROMPT if readers_here(topology) else {}) | dict(intervals or {})
    chosen = [replace(job, interval=pauses.get(job.name, job.interval)) for job in choose_jobs(topology, jobs)]
    paths = open_paths(topology.shore, folder)
    stop = stop or threading.Event()
    with only_one(folder, paths, asked.site) as lease:
        if lease is not None:
            lease.on_lost = stop.set
        reporter = StatusReporter(folder, chosen, on_progress)
        try:
            settle_site(topology, asked, paths, JOBS, move=move)
            check_state(paths, chosen)
            renew_incomplete(paths, chosen)
            put_aside_unneeded(paths, [job for job in JOBS.values() if not job.needed(topology)])
            check_types(paths, kept_tables(topology))
        except FairleadError as error:
            reporter.fail(error)
            raise
        with (
            interrupts(stop) as interrupted,
            _session(folder, topology.shore, session, settings, lasting=not once) as spark,
        ):
            site = RotatingEndpoint(endpoint, spark)
            context = JobContext(topology, asked, paths, spark, max_records)
            try:
                readings.add_inspections(context.lake)
                create_tables(spark, {paths.table(name): table for name, table in TABLES.items()})
                reference.write(context.lake, topology)
            except Exception as error:
                reporter.fail(error)
                raise
            readers = [job.name for job in JOBS.values() if not job.reads_logs]
            upkeep = TableMaintenance(topology, topology.shore, folder, paths, readers)
            with upkeep.running(spark) if not once else contextlib.nullcontext():
                _run_jobs(context, site, chosen, once, reporter, stop)
        if lease is not None:
            lease.check()
        if once and interrupted.is_set():
            raise KeyboardInterrupt
        return dict(reporter.jobs)


def choose_jobs(topology: Topology, names: Sequence[str] | None) -> tuple[Job, ...]:
    """Return the jobs of these names (``UnknownNameError`` for an unknown one), or all that the topology has work for.
    They come in the order of ``JOBS``."""
    if not names:
        return tuple(job for job in JOBS.values() if job.needed(topology))
    for name in names:
        if name not in JOBS:
            raise UnknownNameError("job", name, JOBS)
    return tuple(job for job in JOBS.values() if job.name in names)


@contextlib.contextmanager
def _session(
    folder: Path, shore: Shore, given: SparkSession | None, settings: Mapping[str, str] | None, *, lasting: bool
) -> Iterator[SparkSession]:
    if given is not None:
        yield given
        return
    with own_session(folder, shore, settings, lasting=lasting) as session:
        yield session


@contextlib.contextmanager
def own_session(
    folder: Path, shore: Shore, settings: Mapping[str, str] | None = None, *, lasting: bool = False
) -> Iterator[SparkSession]:
    """Hold a Spark session with a topology's settings, for one or several runs. On exit its JVM ends.

    Args:
        lasting: As for ``shore.session.spark``.

    Raises:
        UnavailableError: Spark does not start, its cluster gives no executor, or it cannot open the tables' storage.
    """
    paths = open_paths(shore, folder)
    usual = spark_settings(paths, shore.master) | event_log(paths, shore.master)
    extra = {**usual, **shore.settings, **(settings or {})}
    session = open_session(folder, master=shore.master, extra=extra, packages=shore.packages, lasting=lasting)
    try:
        check_filesystem(session, paths)
        yield session
    finally:
        close_session(session)


def _run_jobs(
    context: JobContext,
    site: RotatingEndpoint,
    jobs: Sequence[Job],
    once: bool,
    reporter: StatusReporter,
    stop: threading.Event,
) -> None:
    def start(job: Job) -> StreamingQuery:
        # Before its first batch, a query reads the logs of its tables, where generated code does not pay.
        own = context if job.reads_logs else context.in_own_session()
        return start_query(replace(own, endpoint=site.renew(job.name)), job, once)

    def begin_once(job: Job) -> QueryHandle:
        fill_first(context, job)
        return QueryHandle(job, start(job))

    reporter.show()
    running: list[QueryHandle] = []
    with JobOrder(jobs if once else (), begin_once, running) as order:
        try:
            if not once:
                for job in jobs:
                    if not stop.is_set():
                        running.append(_begin(job, start))
            wait_for_queries(
                running,
                reporter,
                stop,
                start,
                more=order.advance,
                pause=order.wait if once else None,
                forever=not once,
                passing=site.has_changed,
            )
        except BaseException as error:
            reporter.fail(error)
            raise
    reporter.finish("stopped" if stop.is_set() else "done")


class JobOrder:
    """Begins each of some jobs when those that write its inputs have ended. On exit, stops all queries.

    Args:
        begin: Begins a job; called in a thread of its own, so that jobs begin side by side.
        running: Receives the query of each job that has begun.
    """

    def __init__(self, jobs: Sequence[Job], begin: Callable[[Job], QueryHandle], running: list[QueryHandle]) -> None:
        self._begin = begin
        self._running = running
        self._waiting = list(jobs)
        self._beginning: dict[Job, Future[QueryHandle]] = {}
        self._pool = ThreadPoolExecutor(max(len(jobs), 1), "begin")
        self._news = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        for future in self._beginning.values():
            if not future.cancelled() and future.exception() is None:
                self._running.append(future.result())
        with contextlib.ExitStack() as stops:
            for one in reversed(self._running):
                stops.callback(_stop, one)

    def advance(self) -> bool:
        """Begin the jobs that can begin now. Return whether any job has not begun yet.

        Raises:
            FairleadError: a job could not begin.
        """
        for job, future in list(self._beginning.items()):
            if future.done():
                del self._beginning[job]
                self._running.append(future.result())
                threading.Thread(target=self._await_end, args=(future.result().query,), daemon=True).start()
        unfinished = [*self._waiting, *self._beginning, *(one.job for one in self._running if not one.is_done)]
        awaited = {table for job in unfinished for table in job.tables}
        for job in [job for job in self._waiting if awaited.isdisjoint(job.inputs)]:
            self._waiting.remove(job)
            self._beginning[job] = future = self._pool.submit(self._begin, job)
            future.add_done_callback(lambda _: self._news.set())
        return bool(self._waiting or self._beginning)

    def wait(self, seconds: float) -> None:
        """Wait so long, or until a job has begun or its query has ended."""
        self._news.wait(seconds)
        self._news.clear()

    def _await_end(self, query: StreamingQuery) -> None:
        with contextlib.suppress(*SPARK_ERRORS):  # whoever looks at the query finds it
            query.awaitTermination()
        self._news.set()


def _stop(one: QueryHandle) -> None:
    """Stop a query and wait until its batch has ended. Spark waits for a while only (``stopTimeout``), and a batch that
    went on would write when another process has the right to."""
    while True:
        try:
            one.query.stop()
        except Py4JJavaError as error:
            if error.java_exception.getClass().getName() != "java.util.concurrent.TimeoutException":
                raise
            logger.warning("job %s does not stop yet: its batch goes on", one.job.name)
        else:
            return


def _begin(job: Job, start: Callable[[Job], StreamingQuery]) -> QueryHandle:
    """Start a job of a continuous run for the first time. Schedule a retry where the error may pass by itself."""
    try:
        return QueryHandle(job, start(job))
    except JobFailedError as error:
        if not error.passing:
            raise
        put_off = QueryHandle(job, cast(StreamingQuery, NotStarted()))
        put_off.fail(error, now=time.monotonic())
        return put_off


def start_query(context: JobContext, job: Job, once: bool) -> StreamingQuery:
    """Start a job's query. Retriable errors of Spark, such as slow workers, get up to ``MAX_STARTS`` attempts.

    With ``once``, the query of a job that has read all of its inputs does not start: to find nothing new, Spark would
    read the log of each table, or start three processes of Python for the logs. The query of tables is built first,
    because that may change tables (of a new customer, or for another setting).

    Raises:
        JobFailedError: Spark cannot start it. In a continuous run, also where a site or storage does not answer.
        FairleadError: any other error of the job's own.
    """
    for attempt in range(1, MAX_STARTS + 1):
        try:
            renew_checkpoint(context.paths, job)
            settle_held(context.topology, context.endpoint, context.paths, job.name)
            if once and job.logs is not None:
                logs = logs_read_to_end(context.endpoint, context.paths, job.name, job.logs(context.topology))
                if logs is not None:
                    return cast(StreamingQuery, NotStarted({"logs": logs, "behind": 0}))
            writer = job.query(context).queryName(job.name)
            if once and has_read_all(context.paths, job):
                return cast(StreamingQuery, NotStarted())
            writer = writer.option("checkpointLocation", context.paths.checkpoint(job.name))
            writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=job.interval)
            return writer.start()
        except (PySparkException, Py4JError) as error:
            failed = job_failure(job.name, str(error))
            if not failed.retriable or attempt == MAX_STARTS:
                raise failed from error
        except FairleadError as error:
            if once or not error.retriable:
                raise
            raise _could_not_begin(job, error) from error
    raise AssertionError("the loop above returns or raises")


def _could_not_begin(job: Job, error: FairleadError) -> JobFailedError:
    what = f"job {job.name} could not begin: {error.what}"
    return JobFailedError(what, hint=error.hint, passing=error.retriable, job=job.name)


def wait_for_queries(
    running: Sequence[QueryHandle],
    reporter: StatusReporter,
    stop: threading.Event,
    start: Callable[[Job], StreamingQuery],
    *,
    more: Callable[[], bool] = lambda: False,
    pause: Callable[[float], object] | None = None,
    forever: bool = False,
    passing: Callable[[str], bool] = lambda _job: False,
) -> None:
    """Wait until all queries have ended, one has failed for good, or ``stop`` is set.

    A query with a retriable error (slow worker, lost executor, unknown error of Spark) restarts at once, with
    ``MAX_STARTS`` starts at most.
    With ``forever``, a query whose error may pass by itself restarts after a pause until it succeeds, and a query that
    has failed for good does not stop the others: its error is raised when no other is left, or at the end.

    Args:
        more: Called at each look; may add to ``running``, and returns whether it will add more.
        pause: Waits so many seconds, or until there is news; by default until ``stop`` is set.
        passing: Whether any error of this job may have passed, because the endpoint that it starts with has changed.

    Raises:
        JobFailedError: the first job that failed for good.
    """
    collected = time.monotonic()
    while not stop.is_set():
        if time.monotonic() - collected > _COLLECT_SECONDS:
            gc.collect()
            collected = time.monotonic()
        expected = more()
        for one in running:
            _tend(one, start, forever=forever, passing=passing)
        active = expected or any(one.query.isActive or one.again is not None for one in running)
        reporter.refresh(running, now=not active)
        if not active and all(one.failed is not None or one.query.exception() is None for one in running):
            break
        (pause or stop.wait)(_POLL_SECONDS)
    reporter.refresh(running, now=True)
    for one in running:
        if one.failed is not None and one.again is None:
            raise one.failed


def _tend(
    one: QueryHandle, start: Callable[[Job], StreamingQuery], *, forever: bool, passing: Callable[[str], bool]
) -> None:
    """Check one query: record that it has failed, or restart it when that is due."""
    now = time.monotonic()
    if one.again is not None:
        if now < one.again:
            return
        try:
            one.restarted(start(one.job))
        except FairleadError as refused:
            again = refused if isinstance(refused, JobFailedError) else _could_not_begin(one.job, refused)
            one.again = None
            one.fail(again, now=now if again.passing else None)
        return
    if one.failed is not None or one.query.isActive or (error := one.query.exception()) is None:
        return
    failed = job_failure(one.job.name, str(error))
    if forever:
        one.fail(failed, now=now if failed.passing or passing(one.job.name) else None)
    elif (failed.retriable or passing(one.job.name)) and one.starts < MAX_STARTS:
        one.fail(failed)  # the status names the error, also when the next start succeeds
        one.restarted(start(one.job))
    else:
        raise failed from None
