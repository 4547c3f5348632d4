"""What jobs say about themselves: status file, errors in one sentence, Ctrl-C as an event."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from shore.errors import JobFailedError, SlowWorkerError, SplitStateError
from shore.jobs.interrupts import interrupts
from shore.jobs.progress import Running, failure
from shore.jobs.runner import JOBS, MAX_STARTS, check_state, choose, wait
from shore.places import Places
from shore.status import JobStatus, ShoreStatus, read_status, status_file, write_status
from shore.tables import TABLES
from topologies.load import load

SPARKS_WORDS = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [PYTHON_STREAMING] boom
Traceback (most recent call last):
  File "x.py", line 3, in read
    raise broker_error(code, log)
fairlead.wire.errors.ConnectionLost: no broker of alpha can be reached at 127.0.0.1:1
  what to do: start it
SQLSTATE: XXKST"""


def test_an_error_is_one_sentence() -> None:
    error = failure("readings", SPARKS_WORDS)
    assert error.what == "job readings failed: ConnectionLost: no broker of alpha can be reached at 127.0.0.1:1"
    assert error.fields == {"job": "readings"}
    assert failure("x", "short\nlong").what == "job x failed: short"
    assert failure("x", "").what == "job x failed: Spark gave no reason"


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
    assert [job.name for job in choose(load("big-blue"), None)] == ["readings", "operations", "conditions", "feeds"]
    assert [job.name for job in choose(load("big-blue"), ["feeds", "readings"])] == ["readings", "feeds"]
    unfed = load("minimal").model_copy(update={"customers": {}})
    assert [job.name for job in choose(unfed, None)] == ["readings", "operations", "conditions"]


def test_state_that_belongs_together(tmp_path: Path) -> None:
    places, jobs = Places.of(tmp_path), list(JOBS.values())
    check_state(places, jobs)  # nothing yet
    for table in TABLES.values():
        table.create(places.table(table.name))
    check_state(places, jobs)  # killed before the first batch
    for job in jobs:
        (Path(places.checkpoint(job.name)) / "offsets").mkdir(parents=True)
        (Path(places.checkpoint(job.name)) / "offsets" / "0").write_text("v1")
    check_state(places, jobs)
    (Path(places.table("feeds")) / "_delta_log").rename(tmp_path / "feeds-log")
    check_state(places, jobs)  # it is built again from the feeds themselves
    (Path(places.table("events")) / "_delta_log").rename(tmp_path / "events-log")
    with pytest.raises(SplitStateError, match="table events is gone"):
        check_state(places, jobs)
    check_state(Places.of(tmp_path, "s3://bucket/fairlead"), jobs)


def test_places() -> None:
    assert Places.of(Path("/state")).table("readings") == "/state/delta/readings"
    far = Places.of(Path("/state"), "s3://bucket/x/")
    assert (far.table("a"), far.checkpoint("b")) == ("s3://bucket/x/delta/a", "s3://bucket/x/checkpoints/b")


class Query:
    """What ``wait`` looks at of a streaming query that has ended."""

    isActive = False  # Spark's name
    recentProgress = ()

    def __init__(self, error: str | None) -> None:
        self._error = error

    def exception(self) -> str | None:
        return self._error


class Board:
    def look(self, running: object, *, now: bool = False) -> None: ...


BUSY = "[X] org.apache.spark.SparkException: Python worker failed to connect back."


@pytest.mark.parametrize(
    ("errors", "starts", "raised"),
    [
        ([None], 1, None),
        ([BUSY, BUSY, None], 3, None),
        ([BUSY] * 9, MAX_STARTS, SlowWorkerError),
        ([BUSY, SPARKS_WORDS, None], 2, JobFailedError),
        ([SPARKS_WORDS, None], 1, JobFailedError),
    ],
)
def test_only_a_busy_machine_is_a_reason_to_start_again(
    errors: list[str | None], starts: int, raised: type[JobFailedError] | None
) -> None:
    queries = iter([Query(error) for error in errors])
    one = Running(JOBS["readings"], cast(Any, next(queries)))
    expected = pytest.raises(raised) if raised else contextlib.nullcontext()
    with expected as error:
        wait([one], cast(Any, Board()), threading.Event(), lambda _: cast(Any, next(queries)))
    assert one.starts == starts
    if raised:
        assert error is not None
        assert type(error.value) is raised
