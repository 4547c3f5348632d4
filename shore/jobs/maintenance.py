"""The schedule on which ``fairlead shore run`` maintains its tables: compact, vacuum, and delete old rows.

One thread handles one table at a time. It has its own session and scheduler pool, whose tasks run only on free cores.
delta-rs measures first what a table needs, so a table that needs nothing costs milliseconds. ``run/maintenance.json``
in the state folder keeps the times of the last runs, so the schedule holds across restarts.

A commit that conflicts with a query's commit is tried again. An error appears in ``fairlead shore status``, and so does
a table that is left alone because a job has still to read it; the jobs go on, and the next interval tries again.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from fairlead.errors import FairleadError, first_line
from fairlead.home import replace_file
from shore.delta.table_errors import READ_ERRORS
from shore.feeds.readers import kept_tables
from shore.jobs.checkpoint import TablePosition, read_checkpoint, unread_rows
from shore.jobs.status import MaintenanceStatus, Verb, maintenance_file, read_maintenance
from shore.maintenance import (
    CompactStep,
    ExpiryStep,
    VacuumStep,
    compact,
    expire,
    maintenance_session,
    plan_compaction,
    plan_expiry,
    plan_vacuum,
    vacuum,
)
from shore.paths import TablePaths
from shore.session import MAINTENANCE_POOL
from shore.tables import Table
from topologies.model import Shore, Topology

_POLL_SECONDS: Final = 1.0
_TOO_LONG_AGO: Final = "has stood still for so long that the table's log does not reach back to it"
_PATIENCE: Final = 30.0  # seconds that a commit under way has to finish when the run ends

logger = logging.getLogger(__name__)


class TableMaintenance:
    """Maintains the tables of one run.

    Args:
        folder: The topology's state folder.
        readers: The jobs that follow tables. Vacuum and retention keep what they have not read yet.
    """

    def __init__(
        self, topology: Topology, shore: Shore, folder: Path, paths: TablePaths, readers: Iterable[str]
    ) -> None:
        self._shore, self._paths, self._readers = shore, paths, tuple(readers)
        self._tables: Mapping[str, Table] = kept_tables(topology)
        self._file = maintenance_file(folder)
        self.status = read_maintenance(folder)

    @contextlib.contextmanager
    def running(self, spark: SparkSession) -> Iterator[None]:
        """Run due maintenance in a thread while inside. On exit, a step under way has ``_PATIENCE`` seconds to end."""
        stop = threading.Event()
        thread = threading.Thread(target=self._run, args=(spark, stop), name="shore-maintenance", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            spark.sparkContext.cancelJobGroup(MAINTENANCE_POOL)
            thread.join(_PATIENCE)

    def due(self, now: dt.datetime) -> list[Verb]:
        """Return the verbs that are due. A verb that has never run is due one whole interval from now."""
        wanted: tuple[tuple[Verb, dt.timedelta | None], ...] = (
            ("expire", self._shore.maintenance.expire if self._shore.retention else None),
            ("compact", self._shore.maintenance.compact),
            ("vacuum", self._shore.maintenance.vacuum),
        )
        found: list[Verb] = []
        for verb, interval in wanted:
            if interval is None:
                continue
            if verb not in self.status:
                self.status[verb] = MaintenanceStatus(now)
                self._save()
            elif now - self.status[verb].at >= interval:
                found.append(verb)
        return found

    def do(self, verb: Verb, session: SparkSession, stop: threading.Event) -> None:
        """Run one verb on all tables. ``session`` comes from ``maintenance_session``."""
        began, now = time.monotonic(), dt.datetime.now(dt.UTC)
        changed = removed = 0
        wrong: list[str] = []
        waits: list[str] = []
        for step in self._steps(verb, session, now, wrong, waits):
            if stop.is_set():
                return
            try:
                count = step()
            except Exception as error:
                if stop.is_set():  # cancelled
                    return
                wrong.append(_what(error))
                continue
            removed += count
            changed += 1
        told = self.status[verb].waits if verb in self.status else ()
        for each in (*wrong, *(each for each in waits if each not in told)):
            logger.warning("%s: %s", verb, each)
        seconds = round(time.monotonic() - began, 1)
        self.status[verb] = MaintenanceStatus(now, changed, removed, seconds, "; ".join(wrong) or None, tuple(waits))
        self._save()

    def _run(self, spark: SparkSession, stop: threading.Event) -> None:
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", MAINTENANCE_POOL)
        spark.sparkContext.setJobGroup(MAINTENANCE_POOL, "looking after tables", interruptOnCancel=True)
        session = maintenance_session(spark)
        while not stop.wait(_POLL_SECONDS):
            try:
                for verb in self.due(dt.datetime.now(dt.UTC)):
                    if not stop.is_set():
                        self.do(verb, session, stop)
            except Exception as error:  # the disk is full, so the times cannot be kept
                logger.warning("maintenance: %s", _what(error))

    def _steps(
        self, verb: Verb, session: SparkSession, now: dt.datetime, wrong: list[str], waits: list[str]
    ) -> Iterator[Callable[[], int]]:
        """Yield the steps to run, each planned right before it runs. Add why a table cannot be planned to ``wrong``,
        and why one is left alone to ``waits``."""
        for name in self._tables:
            try:
                yield from self._steps_of(verb, name, session, now, waits)
            except (FairleadError, *READ_ERRORS) as error:
                wrong.append(_what(error))

    def _steps_of(
        self, verb: Verb, name: str, session: SparkSession, now: dt.datetime, waits: list[str]
    ) -> Iterator[Callable[[], int]]:
        paths = self._paths
        if verb == "compact":
            for small in plan_compaction(paths, [name], tables=self._tables, now=now):
                if small.why:
                    yield partial(_compacted, session, paths, small)
        elif verb == "vacuum":
            for old in plan_vacuum(paths, [name], unread=unread_by(paths, self._readers), tables=self._tables, now=now):
                if _may_run(old, waits):
                    yield partial(vacuum, session, paths, old)
        elif name in self._shore.retention:
            keep, unread = self._shore.retention[name], unread_files(paths, self._readers)
            for rows in plan_expiry(paths, {name: keep}, unread=unread, now=now):
                if _may_run(rows, waits):
                    yield partial(expire, session, paths, rows)

    def _save(self) -> None:
        replace_file(self._file, msgspec.json.encode(self.status))


def unread_by(paths: TablePaths, jobs: Iterable[str]) -> Callable[[DeltaTable, dt.datetime], str]:
    """Return a function that says why vacuum must leave a table alone that would lose its files from before a time: a
    job has still to read them. It returns an empty text where no job has.

    Args:
        jobs: Jobs that read tables. Their checkpoints are read now, and not when the function is called.

    Raises:
        CheckpointDamagedError: a file of a checkpoint cannot be read.
    """
    positions = _positions(paths, jobs)

    def unread(table: DeltaTable, before: dt.datetime) -> str:
        for job, position in positions.get(str(table.metadata().id), ()):
            try:
                rows, since = unread_rows(table, position)
            except FileNotFoundError:
                return f"job {job} {_TOO_LONG_AGO}"
            if rows and since is None:
                return f"job {job} is behind"
            if rows and since is not None and since < before:
                return f"job {job} has still to read rows of {since:%Y-%m-%d %H:%M} UTC"
        return ""

    return unread


def unread_files(paths: TablePaths, jobs: Iterable[str]) -> Callable[[DeltaTable, Collection[str]], str]:
    """Return a function that says why retention must leave these files of a table alone: a job has still to read one.
    Arguments and errors are those of ``unread_by``."""
    positions = _positions(paths, jobs)

    def unread(table: DeltaTable, files: Collection[str]) -> str:
        for job, position in positions.get(str(table.metadata().id), ()):
            try:
                rows, _ = unread_rows(table, position)
            except FileNotFoundError:
                return f"job {job} {_TOO_LONG_AGO}"
            read: set[str] = set()
            if rows and position.version and not position.snapshot:
                before = DeltaTable(table.table_uri, version=position.version - 1)
                read.update(pa.table(before.get_add_actions())["path"].to_pylist())
            if rows and not read.issuperset(files):
                return f"job {job} has still to read rows of it"
        return ""

    return unread


def _positions(paths: TablePaths, jobs: Iterable[str]) -> dict[str, list[tuple[str, TablePosition]]]:
    """Return each job's name and position in the tables that it reads, by table id."""
    found: dict[str, list[tuple[str, TablePosition]]] = {}
    for job in jobs:
        checkpoint = read_checkpoint(paths, job)
        for position in checkpoint.tables if checkpoint is not None else ():
            found.setdefault(position.table_id, []).append((job, position))
    return found


def _compacted(session: SparkSession, paths: TablePaths, step: CompactStep) -> int:
    before, after = compact(session, paths, step)
    return max(0, before - after)


def _may_run(step: VacuumStep | ExpiryStep, waits: list[str]) -> bool:
    """Return whether a step has something to do now; if it must wait, add why to ``waits``."""
    if step.files and step.why:
        waits.append(f"table {step.table} is left alone: {step.why}")
    return bool(step.files) and not step.why


def _what(error: Exception) -> str:
    if isinstance(error, FairleadError):
        return error.what
    return first_line(error)
