"""How jobs report and end: status file, errors in one sentence, Ctrl-C as an event."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import msgspec
import pytest
from deltalake import DeltaTable
from pyspark.sql.streaming.readwriter import DataStreamWriter

from fairlead.errors import ConfigurationError, UnavailableError
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.errors import AuthenticationFailed, ConnectionLost
from shore.errors import JobFailedError, LostExecutorError, SlowWorkerError, SplitStateError, UnknownSparkError
from shore.jobs import runner
from shore.jobs.checkpoint import has_begun, write_checkpoint
from shore.jobs.model import Job, JobContext
from shore.jobs.query import NotStarted, QueryHandle, RotatingEndpoint, job_failure
from shore.jobs.runner import JOBS, MAX_STARTS, StatusReporter, choose_jobs, interrupts, start_query, wait_for_queries
from shore.jobs.state import check_state, renew_incomplete
from shore.jobs.status import JobStatus, ShoreStatus, read_status, status_file, write_status
from shore.paths import TablePaths
from shore.tables import TABLES
from tests.support.delta_rs import create
from topologies.loader.load import load

SPARKS_WORDS = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [PYTHON_STREAMING] boom
Traceback (most recent call last):
  File "x.py", line 3, in read
    raise broker_error(code, log)
fairlead.kafka.protocol.errors.ConnectionLost: no broker of alpha can be reached at 127.0.0.1:1
  what to do: start it
SQLSTATE: XXKST"""


def test_an_error_is_one_sentence() -> None:
    error = job_failure("readings", SPARKS_WORDS)
    assert error.what == "job readings failed: ConnectionLost: no broker of alpha can be reached at 127.0.0.1:1"
    assert error.fields == {"job": "readings"}
    assert job_failure("x", "short\nlong").what == "job x failed: short"
    assert job_failure("x", "").what == "job x failed: Spark gave no reason"


OF_JAVA = """[STREAM_FAILED] Query terminated with exception: Traceback (most recent call last):
  File "x.py", line 3, in update
    spans = session.sql(statement)
py4j.protocol.Py4JJavaError: An error occurred while calling o1228.sql.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 9.0 failed 4 times
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
\tat org.apache.spark.sql.classic.SparkSession.sql(SparkSession.scala:1)
"""


def test_an_error_of_java_is_named_and_not_the_call_that_met_it() -> None:
    error = job_failure("conditions", OF_JAVA)
    reason = "Job aborted due to stage failure: Task 0 in stage 9.0 failed 4 times"
    assert error.what == f"job conditions failed: SparkException: {reason}"
    error = job_failure("conditions", OF_JAVA + "Caused by: java.lang.OutOfMemoryError: Java heap space")
    assert error.what == "job conditions failed: OutOfMemoryError: Java heap space"


def test_status_of_a_living_and_of_a_dead_run(tmp_path: Path) -> None:
    assert read_status(tmp_path) is None
    (tmp_path / "run").mkdir()
    jobs = {"readings": JobStatus("readings", "running", rows=7), "feeds": JobStatus("feeds", "failed", error="x")}
    write_status(tmp_path, jobs)
    status = read_status(tmp_path)
    assert status is not None
    assert (status.pid, status.jobs) == (os.getpid(), jobs)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    dead = msgspec.json.encode(ShoreStatus(ended.pid, status.at, jobs))
    status_file(tmp_path).write_bytes(dead)
    status = read_status(tmp_path)
    assert status is not None
    assert [job.state for job in status.jobs.values()] == ["gone", "failed"]
    status_file(tmp_path).write_bytes(dead[:20])
    assert read_status(tmp_path) is None


HOST = socket.gethostname()


@pytest.mark.parametrize(
    ("host", "pid", "age", "state"),
    [
        (HOST, os.getpid(), dt.timedelta(0), "running"),
        (HOST, os.getpid(), dt.timedelta(days=9), "gone"),  # the number belongs to a newer process, as 1 in a container
        ("", os.getpid(), dt.timedelta(days=9), "gone"),  # of a release that noted no host
        ("pod", 1, dt.timedelta(0), "running"),
        ("pod", 1 << 30, dt.timedelta(minutes=2), "running"),  # it fills its tables, perhaps
        ("pod", 1, dt.timedelta(minutes=11), "gone"),  # although this machine has a process 1
    ],
    ids=["alive", "number used again", "older release", "elsewhere", "elsewhere and busy", "elsewhere and silent"],
)
def test_a_process_number_alone_does_not_say_that_shore_lives(
    tmp_path: Path, host: str, pid: int, age: dt.timedelta, state: str
) -> None:
    (tmp_path / "run").mkdir()
    jobs = {"readings": JobStatus("readings", "running")}
    status_file(tmp_path).write_bytes(
        msgspec.json.encode(ShoreStatus(pid, dt.datetime.now(dt.UTC) - age, jobs, host=host))
    )
    status = read_status(tmp_path)
    assert status is not None
    assert status.jobs["readings"].state == state


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_an_event_and_handlers_come_back(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    stop = threading.Event()
    with interrupts(stop) as interrupted:
        assert not interrupted.is_set()
        os.kill(os.getpid(), number)
        assert stop.wait(5)
        assert interrupted.is_set()
    assert signal.getsignal(number) is before


def test_a_second_ctrl_c_is_as_usual() -> None:
    with pytest.raises(KeyboardInterrupt), interrupts(threading.Event()):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        threading.Event().wait(5)


def test_jobs_that_a_topology_has_work_for() -> None:
    assert [job.name for job in choose_jobs(load("big-blue"), None)] == [
        "readings", "operations", "alerts", "histories", "ships", "conditions", "feeds", "quality", "containers_now",
        "alerts_now",
    ]  # fmt: skip
    assert [job.name for job in choose_jobs(load("big-blue"), ["feeds", "readings"])] == ["readings", "feeds"]
    unfed = load("minimal").model_copy(update={"customers": {}})
    assert [job.name for job in choose_jobs(unfed, None)] == [
        "readings", "operations", "alerts", "histories", "ships", "conditions", "feeds", "quality", "containers_now",
        "alerts_now",
    ], "without customers, feeds writes the log of shore's alerts"  # fmt: skip


def test_state_that_belongs_together(tmp_path: Path) -> None:
    paths, jobs = TablePaths.of(tmp_path), list(JOBS.values())
    check_state(paths, jobs)  # nothing yet
    for table in TABLES.values():
        create(table, paths.table(table.name))
    check_state(paths, jobs)  # killed before the first batch
    for job in jobs:
        write_checkpoint(paths, job.name, {"events.tokyo": 3} if job.name == "operations" else {}, "{}")
    check_state(paths, jobs)
    (Path(paths.table("feeds")) / "_delta_log").rename(tmp_path / "feeds-log")
    check_state(paths, jobs)  # a run fills it again from the feeds
    (Path(paths.table("events")) / "_delta_log").rename(tmp_path / "events-log")
    with pytest.raises(SplitStateError, match="table events is gone"):
        check_state(paths, jobs)


def test_a_table_that_is_new_in_this_version_is_filled_and_nobody_is_asked(tmp_path: Path) -> None:
    """Of ``operations``, with logs that an earlier version did not read; of a job that can look at its inputs again."""
    paths, jobs = TablePaths.of(tmp_path), list(JOBS.values())
    new = {"digests", "outlook", "milestones"}
    for table in TABLES.values():
        if table.name not in new:
            create(table, paths.table(table.name))
    for job in jobs:
        write_checkpoint(paths, job.name, {"events.tokyo": 3, "ships.9074729.location": 5}, "{}")
    check_state(paths, jobs)
    renew_incomplete(paths, jobs)
    assert {job.name for job in jobs if not has_begun(paths, job.name)} == {"conditions", "histories"}
    check_state(paths, jobs)


def test_paths() -> None:
    assert TablePaths.of(Path("/state")).table("readings") == "/state/delta/readings"
    far = TablePaths.of(Path("/state"), "s3://bucket/x/")
    assert (far.table("a"), far.checkpoint("b")) == ("s3://bucket/x/delta/a", "s3://bucket/x/checkpoints/b")


def test_an_input_that_was_made_anew(tmp_path: Path) -> None:
    paths = TablePaths.of(tmp_path)
    for table in TABLES.values():
        create(table, paths.table(table.name))
    root = Path(paths.checkpoint("feeds"))
    write_checkpoint(paths, "feeds", {}, "{}")
    source = '{"sourceVersion":1,"reservoirId":"%s","reservoirVersion":1,"index":-1,"isStartingVersion":false}'
    table_id = DeltaTable(paths.table("readings")).metadata().id
    (root / "offsets" / "0").write_text("v1\n{}\n" + source % table_id)
    check_state(paths, [JOBS["feeds"]])
    (root / "offsets" / "0").write_text("v1\n{}\n" + source % "another")
    with pytest.raises(SplitStateError, match="made anew") as error:
        check_state(paths, [JOBS["feeds"]])
    assert "fairlead shore rebuild feeds" in error.value.hint
    (Path(paths.table("readings")) / "_delta_log" / f"{0:020}.json").write_text("this is no commit")
    for job in ("feeds", "readings"):  # a job that reads the table, and the one that writes it
        with pytest.raises(UnavailableError, match="table readings cannot be opened") as damaged:
            check_state(paths, [JOBS[job]])
        assert "fairlead shore rebuild readings --yes" in damaged.value.hint


class Query:
    """The part of an ended streaming query that ``wait_for_queries`` reads."""

    isActive = False  # Spark's name
    recentProgress: tuple[Any, ...] = ()

    def __init__(self, error: str | None) -> None:
        self._error = error

    def exception(self) -> str | None:
        return self._error


class FakeReporter:
    def refresh(self, running: object, *, now: bool = False) -> None: ...


BUSY = "[X] org.apache.spark.SparkException: Python worker failed to connect back."
GONE = "[CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND] Checkpoint block rdd_7_0 not found! SQLSTATE: 56000"


@pytest.mark.parametrize(
    ("errors", "starts", "raised"),
    [
        ([None], 1, None),
        ([BUSY, BUSY, None], 3, None),
        ([GONE, None], 2, None),
        ([GONE] * 9, MAX_STARTS, LostExecutorError),
        ([BUSY] * 9, MAX_STARTS, SlowWorkerError),
        ([OF_JAVA, None], 2, None),
        ([OF_JAVA] * 9, MAX_STARTS, UnknownSparkError),
        ([OF_JAVA + "Caused by: java.io.IOException: No space left on device"], 1, JobFailedError),
        ([BUSY, SPARKS_WORDS, None], 2, JobFailedError),
        ([SPARKS_WORDS, None], 1, JobFailedError),
    ],
)
def test_only_errors_of_spark_itself_are_reasons_to_start_again(
    errors: list[str | None], starts: int, raised: type[JobFailedError] | None
) -> None:
    queries = iter([Query(error) for error in errors])
    one = QueryHandle(JOBS["readings"], cast(Any, next(queries)))
    expected = pytest.raises(raised) if raised else contextlib.nullcontext()
    with expected as error:
        wait_for_queries([one], cast(Any, FakeReporter()), threading.Event(), lambda _: cast(Any, next(queries)))
    assert one.starts == starts
    if raised:
        assert error is not None
        assert type(error.value) is raised
    assert (one.error is None) == (errors == [None] or starts == 1)


CONFLICT = "x.py: line 3\n_internal.CommitFailedError: Failed to commit transaction: 15"
BROKEN = "[X] boom\njava.io.IOException: No space left on device"


@pytest.mark.parametrize(
    ("words", "passing"),
    [(SPARKS_WORDS, True), (CONFLICT, True), (BUSY, True), (GONE, True), (BROKEN, False), ("", False)],
)
def test_errors_that_may_pass_by_themselves(words: str, passing: bool) -> None:
    assert job_failure("readings", words).passing is passing


def test_a_damaged_state_is_not_taken_for_an_error_that_passes() -> None:
    words = (
        "[CANNOT_LOAD_STATE_STORE.CANNOT_READ_STREAMING_STATE_FILE] An error occurred during loading state. Error "
        "reading file:/x/1.changelog does not exist. Please clear the existing checkpoint location. SQLSTATE: 58030\n"
        "java.io.FileNotFoundException: /x/1.changelog"
    )
    error = job_failure("alerts", words)
    assert "1.changelog" in error.what
    assert "fairlead shore rebuild alerts" in error.hint
    assert not error.passing


class Running_(Query):  # a query that runs and has completed a batch
    isActive = True  # Spark's name
    recentProgress: tuple[Any, ...] = (
        {
            "batchId": 3,
            "id": "q1",
            "numInputRows": 5,
            "durationMs": {},
            "stateOperators": [{"numRowsTotal": 7, "memoryUsedBytes": 100}, {"numRowsTotal": 1, "memoryUsedBytes": 10}],
            "sources": [{"latestOffset": '{"behind": 4, "logs": 9, "unreadable": 1, "examples": ["a.b: GONE"]}'}],
        },
    )


class Stopping(FakeReporter):
    """Record every state that is shown; stop the run at a given one."""

    def __init__(self, stop: threading.Event, at: tuple[str, ...]) -> None:
        self.seen: list[tuple[str, ...]] = []
        self._stop, self._at = stop, at

    def refresh(self, running: Any, *, now: bool = False) -> None:
        state = tuple(one.status().state for one in running)
        if not self.seen or self.seen[-1] != state:
            self.seen.append(state)
        if state == self._at:
            self._stop.set()


def test_a_run_without_end_goes_on_when_the_site_answers_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shore.jobs.query.PAUSES", (0.0,))
    stop = threading.Event()
    reporter = Stopping(stop, ("running",))
    later = iter([Query(SPARKS_WORDS), Query(SPARKS_WORDS), Running_(None)])
    one = QueryHandle(JOBS["readings"], cast(Any, Query(SPARKS_WORDS)))
    wait_for_queries([one], cast(Any, reporter), stop, lambda _: cast(Any, next(later)), forever=True)
    assert reporter.seen == [("retrying",), ("running",)]
    status = one.status()
    assert status.error is not None
    assert "ConnectionLost" in status.error
    assert (status.failing_since, status.starts) == (None, 4)
    assert (status.state_rows, status.state_bytes, status.behind, status.unreadable) == (8, 110, 4, 1)


@pytest.mark.parametrize("forever", [True, False])
def test_a_query_that_an_old_password_ended_is_started_with_the_new_one(
    forever: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shore.jobs.query.PAUSES", (0.0,))
    stop = threading.Event()
    reporter = Stopping(stop, ("running",))
    one = QueryHandle(JOBS["readings"], cast(Any, Query(BROKEN)))
    changed = iter([True])
    wait_for_queries(
        [one],
        cast(Any, reporter),
        stop,
        lambda _: cast(Any, Running_(None)),
        forever=forever,
        passing=lambda job: job == "readings" and next(changed),
    )
    assert (one.status().state, one.starts) == ("running", 2)


def test_a_password_that_cannot_be_read_now_ends_no_other_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """A query ends while its password's file cannot be read: it starts again when it can, and the others go on."""
    monkeypatch.setattr("shore.jobs.query.PAUSES", (0.0,))
    endpoint = KafkaEndpoint("tokyo", (("127.0.0.1", 1),))
    answers: Iterator[KafkaEndpoint | Exception] = iter([endpoint, ConfigurationError("the file cannot be read")])

    def ask() -> KafkaEndpoint:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr("shore.jobs.query.register", Mock())
    site, stop = RotatingEndpoint(ask, Mock()), threading.Event()
    site.renew("readings")
    reporter = Stopping(stop, ("running", "running"))
    jobs = [
        QueryHandle(JOBS["readings"], cast(Any, Query(BROKEN))),
        QueryHandle(JOBS["operations"], cast(Any, Running_(None))),
    ]
    wait_for_queries(
        jobs,
        cast(Any, reporter),
        stop,
        lambda _: cast(Any, Running_(None)),
        forever=True,
        passing=site.has_changed,
    )
    assert jobs[0].starts == 2


class Waiting(Running_):  # whose site went away after a batch
    recentProgress = (
        *Running_.recentProgress,
        {
            "batchId": 4,
            "id": "q1",
            "numInputRows": 0,
            "durationMs": {},
            "stateOperators": [],
            "sources": [{"latestOffset": '{"behind": 4, "logs": 9, "unreachable": "away", "examples": ["away"]}'}],
        },
    )


def test_a_job_that_waits_for_its_site_says_so_and_since_when() -> None:
    one = QueryHandle(JOBS["readings"], cast(Any, Waiting(None)))
    first, later = one.status(), one.status()
    assert (first.state, first.skipped) == ("retrying", ("away",))
    assert first.failing_since is not None
    assert later.failing_since == first.failing_since
    one.query = cast(Any, Running_(None))
    assert (one.status().state, one.status().failing_since) == ("running", None)


def test_a_run_without_end_does_not_stop_jobs_for_one_that_failed() -> None:
    stop = threading.Event()
    reporter = Stopping(stop, ("failed", "running"))
    jobs = [
        QueryHandle(JOBS["operations"], cast(Any, Query(BROKEN))),
        QueryHandle(JOBS["readings"], cast(Any, Running_(None))),
    ]
    with pytest.raises(JobFailedError, match="operations failed: IOException: No space left"):
        wait_for_queries(jobs, cast(Any, reporter), stop, lambda _: cast(Any, None), forever=True)
    assert stop.is_set()


def test_the_last_error_outlives_its_run(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    jobs = [JOBS["readings"], JOBS["operations"]]
    first = StatusReporter(tmp_path, jobs, None)
    first.fail(job_failure("readings", SPARKS_WORDS))
    failed = read_status(tmp_path)
    assert failed is not None
    assert (failed.jobs["readings"].state, failed.jobs["operations"].state) == ("failed", "stopped")
    second = StatusReporter(tmp_path, [JOBS["readings"]], None)
    second.refresh([QueryHandle(JOBS["readings"], cast(Any, Running_(None)))], now=True)
    second.finish("done")
    after = read_status(tmp_path)
    assert after is not None
    assert (after.jobs["readings"].state, after.jobs["operations"].state) == ("done", "stopped")
    assert after.jobs["readings"].error == failed.jobs["readings"].error
    assert after.jobs["readings"].error_at == failed.jobs["readings"].error_at is not None
    second.fail(SplitStateError("no", hint="do"))
    ended = read_status(tmp_path)
    assert ended is not None
    assert (ended.error, ended.error_at is not None) == ("no\n  what to do: do", True)


def test_a_site_that_is_away_at_the_beginning(tmp_path: Path) -> None:
    def away(context: JobContext) -> DataStreamWriter:
        raise ConnectionLost("no broker of alpha can be reached", hint="start it")

    job = dataclasses.replace(JOBS["feeds"], query=away)
    context = cast(Any, SimpleNamespace(topology=None, endpoint=None, paths=TablePaths.of(tmp_path)))
    with pytest.raises(ConnectionLost):
        start_query(context, job, True)
    with pytest.raises(JobFailedError, match="feeds could not begin: no broker of alpha") as error:
        start_query(context, job, False)
    assert error.value.passing
    one = QueryHandle(job, cast(Any, NotStarted()))
    one.fail(error.value, now=0.0)
    assert (one.status().state, one.status().error) == ("retrying", str(error.value))


def test_a_login_that_is_refused_at_a_restart_ends_only_its_own_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shore.jobs.query.PAUSES", (0.0,))

    def refused(context: JobContext) -> DataStreamWriter:
        raise AuthenticationFailed("alpha refuses user shore", hint="renew its password")

    context = cast(Any, SimpleNamespace(topology=None, endpoint=None, paths=TablePaths.of(tmp_path)))
    with pytest.raises(AuthenticationFailed):
        start_query(context, dataclasses.replace(JOBS["feeds"], query=refused), True)
    stop = threading.Event()
    reporter = Stopping(stop, ("failed", "running"))
    jobs = [
        QueryHandle(dataclasses.replace(JOBS["feeds"], query=refused), cast(Any, Query(SPARKS_WORDS))),
        QueryHandle(JOBS["readings"], cast(Any, Running_(None))),
    ]
    with pytest.raises(JobFailedError, match="feeds could not begin: alpha refuses user shore") as error:
        wait_for_queries(
            jobs, cast(Any, reporter), stop, lambda job: start_query(context, job, once=False), forever=True
        )
    assert not error.value.passing
    assert reporter.seen == [("retrying", "running"), ("failed", "running")]


def test_jobs_that_have_begun_are_stopped_when_a_later_one_cannot_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    first = Mock(isActive=True)

    def start(context: object, job: Job, once: bool) -> Any:
        if job.name == "operations":
            raise JobFailedError("job operations could not begin", job="operations")
        return first

    monkeypatch.setattr(runner, "start_query", start)
    monkeypatch.setattr(runner, "replace", lambda context, **_: context)
    jobs = [JOBS["readings"], JOBS["operations"]]
    with pytest.raises(JobFailedError, match="operations could not begin"):
        runner._run_jobs(Mock(), Mock(), jobs, False, Mock(), threading.Event())  # noqa: SLF001
    first.stop.assert_called_once_with()
