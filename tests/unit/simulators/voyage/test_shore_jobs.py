"""Spark reads the logs while a voyage sails, and fills all tables afterwards."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import shore
from fairlead.errors import ConfigurationError, UnavailableError
from shore.errors import SlowWorkerError
from shore.jobs import runner
from shore.jobs.status import JobStatus
from simulators.voyage.services import shore_jobs
from topologies.context import Context, open_topology


class Spark:
    """Stands in for Spark: notes its sessions, and the runs that use them, each with its jobs and its thread."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.first_run = threading.Event()
        self.failure: Exception | None = None
        self.busy = 0  # runs of all jobs that fail, because the machine is busy
        self.endless = False
        self.begins = True

    @contextmanager
    def session(self, *_: Any, **__: Any) -> Iterator[str]:
        self.said.append(f"session opens in {threading.current_thread().name}")
        try:
            yield "session"
        finally:
            self.said.append("session ends")

    def run(
        self, *given: Any, once: bool, session: Any, stop: threading.Event, move: bool, on_progress: Callable[..., None]
    ) -> None:
        *_, jobs = given
        self.said.append(f"{','.join(jobs or ['all'])} with {session} in {threading.current_thread().name}")
        assert once
        on_progress({"readings": JobStatus("readings", "waiting")})
        if jobs is not None:
            if self.begins:
                on_progress({"readings": JobStatus("readings", "running")})
            self.first_run.set()
            if self.failure is not None:
                raise self.failure
            if self.endless:
                assert stop.wait(30)
        elif self.busy:
            self.busy -= 1
            raise SlowWorkerError("a Python worker did not start in time")


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Spark:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    made = Spark()
    monkeypatch.setattr(runner, "own_session", made.session)
    monkeypatch.setattr(shore, "run", made.run)
    monkeypatch.setattr("topologies.endpoints.EndpointResolver.kafka", lambda *_: "kafka")
    return made


def minimal() -> Context:
    return open_topology("minimal")


OPENS = "session opens in spark_0"
LOGS = "readings,operations,alerts with session in spark_0"
ALL = "all with session in MainThread"
ENDS = "session ends"


def test_spark_reads_the_logs_while_a_voyage_sails_and_fills_all_tables_afterwards(spark: Spark) -> None:
    with shore_jobs(minimal(), early=True) as jobs:
        assert jobs is not None and spark.first_run.wait(30)  # the voyage sails
        jobs.fill()
    assert spark.said == [OPENS, LOGS, ALL, ENDS]


def test_a_voyage_that_is_over_before_the_logs_are_read_reads_them_once(spark: Spark) -> None:
    spark.endless, spark.begins = True, False
    with shore_jobs(minimal(), early=True) as jobs:
        assert jobs is not None and spark.first_run.wait(30)
        jobs.fill()  # stops the first run, which creates tables
    assert spark.said == [OPENS, LOGS, ALL, ENDS]


def test_a_paced_voyage_starts_spark_afterwards(spark: Spark) -> None:
    with shore_jobs(minimal(), early=False) as jobs:
        assert jobs is not None and spark.said == []
        jobs.fill()
    assert spark.said == [OPENS, ALL, ENDS]


def test_a_retriable_failure_is_shown_and_a_new_session_fills_the_tables(spark: Spark) -> None:
    spark.failure = UnavailableError("tokyo is away")
    told: list[str] = []
    with shore_jobs(minimal(), early=True, tell=told.append) as jobs:
        assert jobs is not None
        jobs.fill()
    assert told == ["the tables will be filled later: tokyo is away"]
    assert spark.said == [OPENS, LOGS, ENDS, OPENS, ALL, ENDS]


@pytest.mark.parametrize(("busy", "runs"), [(1, 2), (2, 3), (3, 3)])
def test_tables_are_filled_once_more_where_the_machine_is_busy(spark: Spark, busy: int, runs: int) -> None:
    spark.busy = busy
    told: list[str] = []
    with shore_jobs(minimal(), early=False, tell=told.append) as jobs:
        assert jobs is not None
        with pytest.raises(SlowWorkerError) if busy == runs else contextlib.nullcontext():
            jobs.fill()
    assert told == ["trying again: a Python worker did not start in time"] * (runs - 1)
    assert spark.said == [OPENS, *[ALL] * runs, ENDS]


def test_any_other_failure_ends_the_voyage(spark: Spark) -> None:
    spark.failure = ConfigurationError("no such job")
    with pytest.raises(ConfigurationError, match="no such job"), shore_jobs(minimal(), early=True) as jobs:
        assert jobs is not None
        jobs.fill()
    assert spark.said == [OPENS, LOGS, ENDS]


def test_an_interrupted_voyage_stops_the_first_run(spark: Spark) -> None:
    spark.endless = True
    with pytest.raises(KeyboardInterrupt), shore_jobs(minimal(), early=True):
        assert spark.first_run.wait(30)
        raise KeyboardInterrupt
    assert spark.said == [OPENS, LOGS, ENDS]


def test_tables_are_verified_in_the_session_that_filled_them(spark: Spark, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions: list[Any] = []
    monkeypatch.setattr("shore.verify.verify", lambda session, *_: sessions.append(session))
    with shore_jobs(minimal(), early=True) as jobs:
        assert jobs is not None
        jobs.fill()
        jobs.verify()
    assert sessions == ["session"]
    assert sum(each.startswith("session opens") for each in spark.said) == 1


def test_a_topology_without_shore_fills_nothing(spark: Spark) -> None:
    with shore_jobs(open_topology("two-way"), early=True) as jobs:
        assert jobs is None
    assert spark.said == []
