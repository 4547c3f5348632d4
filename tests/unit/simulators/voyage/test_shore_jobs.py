"""Spark starts while a voyage sails, and fills the tables afterwards."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import shore
from shore.jobs import runner
from simulators.voyage.services import shore_jobs
from topologies.context import Context, open_topology

FILLED = ["session opens in spark_0", "session creates tables", "run with session in MainThread", "session ends"]


class Spark:
    """Stands in for Spark: notes its sessions and the runs that use them, each with its thread."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.started = threading.Event()

    @contextmanager
    def session(self, *_: Any, **__: Any) -> Iterator[str]:
        self.said.append(f"session opens in {threading.current_thread().name}")
        self.started.set()
        try:
            yield "session"
        finally:
            self.said.append("session ends")

    def run(self, *_: Any, once: bool, session: Any) -> None:
        self.said.append(f"run with {session} in {threading.current_thread().name}")
        assert once


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Spark:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    made = Spark()
    monkeypatch.setattr(runner, "own_session", made.session)
    monkeypatch.setattr(runner, "create_first", lambda session, _: made.said.append(f"{session} creates tables"))
    monkeypatch.setattr(shore, "run", made.run)
    monkeypatch.setattr("topologies.endpoints.EndpointResolver.kafka", lambda *_: "kafka")
    return made


def minimal() -> Context:
    return open_topology("minimal")


def test_spark_starts_while_a_voyage_sails_and_fills_the_tables_afterwards(spark: Spark) -> None:
    with shore_jobs(minimal(), early=True) as jobs:
        assert jobs is not None and spark.started.wait(30)  # the voyage sails
        jobs.fill()
    assert spark.said == [
        "session opens in spark_0",
        "session creates tables",
        "run with session in MainThread",
        "session ends",
    ]


def test_a_paced_voyage_starts_spark_afterwards(spark: Spark) -> None:
    with shore_jobs(minimal(), early=False) as jobs:
        assert jobs is not None and spark.said == []
        jobs.fill()
    assert spark.said == [
        "session opens in spark_0",
        "session creates tables",
        "run with session in MainThread",
        "session ends",
    ]


def test_an_interrupted_voyage_ends_spark(spark: Spark) -> None:
    with pytest.raises(KeyboardInterrupt), shore_jobs(minimal(), early=True):
        raise KeyboardInterrupt  # Spark may still be starting
    assert spark.said == ["session opens in spark_0", "session creates tables", "session ends"]


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
