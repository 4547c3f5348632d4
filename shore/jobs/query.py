"""One running query: the endpoint it logs in to, its progress as a ``JobStatus``, its restarts, and its error as one
sentence."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from fairlead.errors import FairleadError, UnavailableError
from fairlead.kafka.endpoint import Endpoint, KafkaEndpoint, current
from shore.datasource import register
from shore.delta.table_errors import as_table_errors, disk_refuses, repair_hint
from shore.errors import (
    COMMIT_CONFLICTS,
    DataLossError,
    JobFailedError,
    LostExecutorError,
    SlowWorkerError,
    UnknownSparkError,
)
from shore.jobs.model import Job
from shore.jobs.status import JobStatus, State
from shore.paths import TablePaths
from shore.source.losses import LOSS_HINT


class RotatingEndpoint:
    """The Kafka endpoint, read again at each start of a query. A running query keeps the password that it started with,
    because Spark's tasks already have it."""

    def __init__(self, ask: Endpoint, spark: SparkSession) -> None:
        self._ask, self._spark = ask, spark
        self._registered: KafkaEndpoint | None = None
        self._of_jobs: dict[str, KafkaEndpoint] = {}

    def renew(self, job: str) -> KafkaEndpoint:
        """Return the endpoint for a job's query that starts now, and register it for the query's source."""
        endpoint = self._of_jobs[job] = current(self._ask)
        if endpoint != self._registered:
            register(self._spark, endpoint)
            self._registered = endpoint
        return endpoint

    def has_changed(self, job: str) -> bool:
        """Return whether the endpoint may have changed since the job's query started; a restart may cure a refused
        login. It may also have where it cannot be read now: the restart says why, and no other job ends."""
        try:
            return current(self._ask) != self._of_jobs.get(job)
        except FairleadError:
            return True


SPARK_ERRORS: Final = (PySparkException, Py4JError)
"""The exceptions that Spark raises."""
_SLOW_WORKER = "Python worker failed to connect back"
# We word this error ourselves: Spark's message advises to remove the checkpoint, which would append rows twice.
_LOST_ROWS = "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"
_LOST_STATE = "[CANNOT_LOAD_STATE_STORE"
# A line that names an error of Python or, after "Caused by:" or Py4J's ":", of Java. Two texts say only who reports it.
_ERROR_LINE = re.compile(
    r"^(?:Caused by: |: )?(?:[\w.$]+\.)?(\w*(?:Error|Exception|Failed|Lost|Timeout|Misplaced|Fenced|Conflict)): "
    r"(?!An error occurred while calling |Traceback \()(.+)$"
)


_READ_TWICE: Final[dict[tuple[str, int], int]] = {}
_MOST_READ_TWICE: Final = 100  # batches; Spark keeps the progress of fewer
PAUSES = (1.0, 2.0, 5.0, 15.0, 30.0, 60.0)  # seconds before the first, second, ... restart; then always the last


@dataclass(frozen=True, slots=True)
class NotStarted:
    """Stands in for the query in a ``QueryHandle`` while the query cannot be started, or where it has nothing to do.
    ``backlog`` is what its source would report."""

    backlog: Mapping[str, Any] = field(default_factory=dict)
    isActive: bool = False  # Spark's name
    recentProgress: tuple[Any, ...] = ()  # Spark's name

    def exception(self) -> None: ...
    def awaitTermination(self) -> None: ...
    def stop(self) -> None: ...


@dataclass(slots=True)
class QueryHandle:
    """One started query, and the rows of its batches in this run (``batches``, by number).

    ``failed`` says why the query does not run. It has failed for good unless ``again`` is set, the time (of
    ``time.monotonic``) of its next start. The failures began at ``failing_since``; a completed batch resets this.
    """

    job: Job
    query: StreamingQuery
    starts: int = 1
    batches: dict[int, int] = field(default_factory=dict)
    failed: JobFailedError | None = None
    again: float | None = None
    failing_since: dt.datetime | None = None
    error: str | None = None
    error_at: dt.datetime | None = None
    _tries: int = 0

    def fail(self, error: JobFailedError, *, now: float | None = None) -> None:
        """Record why the query ended. With ``now``, schedule a restart after the next of ``PAUSES``."""
        self.failed = error
        self.error, self.error_at = str(error), dt.datetime.now(dt.UTC)
        self.failing_since = self.failing_since or self.error_at
        if now is not None:
            self.again = now + PAUSES[min(self._tries, len(PAUSES) - 1)]
            self._tries += 1

    def restarted(self, query: StreamingQuery) -> None:
        self.query, self.failed, self.again = query, None, None
        self.starts += 1

    @property
    def is_done(self) -> bool:
        """Whether the query has ended without an error."""
        return self._state == "done"

    @property
    def _state(self) -> State:
        if self.failed is not None:
            return "failed" if self.again is None else "retrying"
        if self.query.isActive or self.query.exception() is not None:  # the runner handles the exception next
            return "running" if self.failing_since is None else "retrying"
        return "done"

    def status(self) -> JobStatus:
        """Return the job's status from the query's progress so far."""
        recent: list[Any] = list(self.query.recentProgress)
        for progress in recent:
            if rows := rows_of(progress):
                self.batches[progress["batchId"]] = rows
        last = recent[-1] if recent else None
        backlog = self.query.backlog if isinstance(self.query, NotStarted) else _backlog(last)
        if last and self.failed is None:  # the query makes progress, so earlier failures are over
            waits = "unreachable" in backlog  # unless its site cannot be reached
            self.failing_since = (self.failing_since or dt.datetime.now(dt.UTC)) if waits else None
            self._tries = 0
        state = list(last["stateOperators"]) if last else []
        return JobStatus(
            job=self.job.name,
            state=self._state,
            batches=len(self.batches),
            rows=sum(self.batches.values()),
            rows_per_second=_speed(last),
            batch_seconds=_seconds(last) if last else None,
            logs=backlog.get("logs"),
            behind=backlog.get("behind"),
            skipped=tuple(backlog.get("examples", ())),
            unreadable=backlog.get("unreadable", 0),
            vanished=backlog.get("vanished", 0),
            lost=backlog.get("lost", 0),
            error=self.error,
            error_at=self.error_at,
            failing_since=self.failing_since,
            starts=self.starts,
            state_rows=sum(one["numRowsTotal"] for one in state) if state else None,
            state_bytes=sum(one["memoryUsedBytes"] for one in state) if state else None,
        )


def note_read_twice(query: str, batch: int, rows: int) -> None:
    """Record how many rows a batch of a query (by its id) has that was read twice: Spark counts the rows of each read,
    so its progress says twice as many."""
    _READ_TWICE[query, batch] = rows
    while len(_READ_TWICE) > _MOST_READ_TWICE:
        _READ_TWICE.pop(next(iter(_READ_TWICE)))


def rows_of(progress: Any) -> int:
    """Return how many rows the batch of a progress had."""
    return _READ_TWICE.get((str(progress["id"]), progress["batchId"]), int(progress["numInputRows"]))


def _seconds(progress: Any) -> float:
    return float(progress["durationMs"].get("triggerExecution", 0) / 1000)


def _speed(progress: Any) -> float | None:
    if not progress or not (seconds := _seconds(progress)):
        return None
    return round(rows_of(progress) / seconds, 1)


def _backlog(progress: Any) -> Mapping[str, Any]:
    """Return what the source ``fairlead`` reports of its logs; empty for queries that read tables."""
    if not progress or len(progress["sources"]) != 1:
        return {}
    text = progress["sources"][0]["latestOffset"]
    try:
        found = json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return {}
    return found if isinstance(found, dict) and "behind" in found else {}


def job_failure(job: str, message: str) -> JobFailedError:
    """Return a query's error with its cause in one sentence. Spark wraps the cause in pages of stack traces."""
    name, why = _cause(message)
    first, *_ = message.strip().splitlines() or ["Spark gave no reason"]
    if _SLOW_WORKER in message:
        return SlowWorkerError(
            f"job {job} failed: a Python worker of Spark did not start within Spark's ten seconds",
            hint="the machine is too busy; run the same command again, it goes on where this one stopped",
            job=job,
        )
    if _LOST_ROWS in message:
        return LostExecutorError(
            f"job {job} failed: an executor of Spark ended in the middle of a batch",
            hint="run the same command again, it does the batch again; the executor's machine says why it ended",
            job=job,
        )
    if _LOST_STATE in message:
        return JobFailedError(
            f"job {job} failed: what it keeps in its checkpoint cannot be read: {first}",
            hint=f"put checkpoints/{job} back from a copy, or run 'fairlead shore rebuild {job}': it makes table and "
            "checkpoint anew from the logs",
            job=job,
        )
    cause = f"{name}: {why}" if name else first
    if name == DataLossError.__name__:
        return JobFailedError(f"job {job} has stopped: {why}", hint=LOSS_HINT, passing=True, job=job)
    repair = repair_hint(cause)
    known = repair or disk_refuses(cause) or name in _names(FairleadError)
    unknown = Py4JJavaError.__name__ in message and not known
    return (UnknownSparkError if unknown else JobFailedError)(
        f"job {job} failed: {cause}",
        hint=repair
        or "what it had written is kept, and the next 'fairlead shore run' goes on from there; "
        "details are in the folder's spark/spark.log",
        passing=name in COMMIT_CONFLICTS | _names(FairleadError, retriable=True),
        job=job,
    )


def raise_cause(error: Exception) -> None:
    """Raise the cause of a Spark error where that is one of Fairlead's own errors; else do nothing.

    Raises:
        UnavailableError: names the cause in one sentence.
    """
    name, why = _cause(str(error))
    if name in _names(FairleadError):
        raise UnavailableError(f"{name}: {why}", hint="try again; 'fairlead shore status' tells more") from error


@contextlib.contextmanager
def as_shore_errors(paths: TablePaths) -> Iterator[None]:
    """Turn Spark's errors raised inside into one that names the damaged table or the cause in a task.

    Raises:
        UnavailableError: a table or a log cannot be read, or a table cannot be written.
    """
    with as_table_errors(paths):
        try:
            yield
        except SPARK_ERRORS as error:
            raise_cause(error)
            raise OSError(str(error)) from error


def _cause(message: str) -> tuple[str, str]:
    """Return name and message of the innermost error; empty texts without one."""
    causes = [match for line in message.splitlines() if (match := _ERROR_LINE.match(line.strip()))]
    return (causes[-1][1], causes[-1][2]) if causes else ("", "")


def _names(kind: type[FairleadError], *, retriable: bool = False) -> frozenset[str]:
    """Return the names of ``kind`` and all its subclasses; with ``retriable`` only of those that are."""
    own = {kind.__name__} if kind.retriable or not retriable else set()
    return frozenset(own.union(*(_names(below, retriable=retriable) for below in kind.__subclasses__())))
