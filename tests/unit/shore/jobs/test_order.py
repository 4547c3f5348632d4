"""In which order the jobs of a run with ``--once`` begin, which of them have nothing to do, and the run's session."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest
from py4j.protocol import Py4JJavaError

from fairlead.errors import UnavailableError
from fairlead.kafka.endpoint import KafkaEndpoint
from shore.errors import JobFailedError
from shore.jobs import runner
from shore.jobs.checkpoint import table_end, write_checkpoint, write_table_checkpoint
from shore.jobs.model import Job
from shore.jobs.query import QueryHandle
from shore.jobs.runner import JOBS, JobOrder, wait_for_queries
from shore.jobs.state import has_read_all, logs_read_to_end
from shore.paths import TablePaths
from shore.tables import TABLES
from tests.support.delta_rs import create
from tests.support.waits import PATIENCE
from topologies.loader.load import load

NOWHERE = KafkaEndpoint("tokyo", (("127.0.0.1", 9),))
CODEGEN = "spark.sql.codegen.factoryMode"


class Query:
    """A streaming query that ends when it is told to."""

    recentProgress: tuple[Any, ...] = ()

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.stopped = False

    @property
    def isActive(self) -> bool:  # Spark's name
        return not self.ended.is_set()

    def exception(self) -> None:
        return None

    def awaitTermination(self) -> None:  # Spark's name
        self.ended.wait()

    def stop(self) -> None:
        self.stopped = True
        self.ended.set()


def job(name: str, *inputs: str) -> Job:
    return Job(name, (f"{name}_table",), "1 second", cast(Any, None), inputs=tuple(f"{each}_table" for each in inputs))


class Fleet:
    """Jobs whose queries the test ends, in the order in which they began."""

    def __init__(self, *jobs: Job) -> None:
        self.jobs = jobs
        self.running: list[QueryHandle] = []
        self.queries: dict[str, Query] = {}
        self.begun = threading.Condition()

    def begin(self, each: Job) -> QueryHandle:
        with self.begun:
            self.queries[each.name] = Query()
            self.begun.notify_all()
        return QueryHandle(each, cast(Any, self.queries[each.name]))

    def wait(self, order: JobOrder, names: Sequence[str]) -> None:
        """Wait until exactly these jobs have begun."""
        order.advance()
        with self.begun:
            assert self.begun.wait_for(lambda: set(names) <= self.queries.keys(), timeout=30)
        while {one.job.name for one in self.running} != set(names):
            order.advance()
        assert sorted(self.queries) == sorted(names)


class Slow(Query):
    """A query that Spark cannot stop in its time, so often as is said: its batch goes on."""

    def __init__(self, late: int, java_class: str = "java.util.concurrent.TimeoutException") -> None:
        super().__init__()
        self.late, self.java = late, Mock(_target_id="o1")
        self.java.getClass.return_value.getName.return_value = java_class

    def stop(self) -> None:
        if self.late:
            self.late -= 1
            raise Py4JJavaError("An error occurred while calling o1.stop.", self.java)
        super().stop()


def test_every_query_has_ended_when_a_run_ends_however_long_a_batch_takes() -> None:
    slow, other = Slow(3), Query()
    running = [QueryHandle(job(name), cast(Any, query)) for name, query in (("slow", slow), ("other", other))]
    with pytest.raises(JobFailedError), JobOrder((), Mock(), running):
        raise JobFailedError("the reason of the end")
    assert slow.stopped
    assert other.stopped


def test_another_error_of_a_stop_is_raised_when_the_others_have_ended() -> None:
    broken, other = Slow(1, "java.lang.IllegalStateException"), Query()
    running = [QueryHandle(job(name), cast(Any, query)) for name, query in (("broken", broken), ("other", other))]
    with pytest.raises(Py4JJavaError), JobOrder((), Mock(), running):
        pass
    assert other.stopped


class Cycle:
    """An object in a reference cycle, as every object of Java that Python has used."""

    def __init__(self) -> None:
        self.itself = self


def test_objects_of_java_that_batches_leave_behind_are_freed_while_queries_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_COLLECT_SECONDS", 0.0)
    query, left = Query(), weakref.ref(Cycle())
    reporter = Mock()
    reporter.refresh.side_effect = lambda *_, **__: query.stop() if left() is None else None
    handle = QueryHandle(job("readings"), cast(Any, query))
    gc.disable()
    try:
        wait_for_queries([handle], reporter, threading.Event(), cast(Any, None), forever=True)
    finally:
        gc.enable()
    assert left() is None


def test_a_job_begins_when_those_that_write_its_inputs_have_ended() -> None:
    fleet = Fleet(job("hours", "readings"), job("readings"), job("now", "hours", "events"), job("events"))
    with JobOrder(fleet.jobs, fleet.begin, fleet.running) as order:
        fleet.wait(order, ["readings", "events"])
        fleet.queries["readings"].ended.set()
        fleet.wait(order, ["readings", "events", "hours"])
        fleet.queries["hours"].ended.set()
        assert order.advance()
        assert "now" not in fleet.queries
        fleet.queries["events"].ended.set()
        fleet.wait(order, ["readings", "events", "hours", "now"])
        assert not order.advance()
    assert all(query.stopped for query in fleet.queries.values())


def test_the_end_of_a_query_is_noticed_at_once() -> None:
    fleet = Fleet(job("readings"), job("hours", "readings"))
    with JobOrder(fleet.jobs, fleet.begin, fleet.running) as order:
        fleet.wait(order, ["readings"])
        began = time.monotonic()
        threading.Timer(0.05, fleet.queries["readings"].ended.set).start()
        while fleet.queries["readings"].isActive:
            order.wait(PATIENCE)
        assert time.monotonic() - began < PATIENCE
        fleet.wait(order, ["readings", "hours"])


def test_inputs_that_no_job_of_the_run_writes_are_not_waited_for() -> None:
    fleet = Fleet(job("now", "hours"))
    with JobOrder(fleet.jobs, fleet.begin, fleet.running) as order:
        fleet.wait(order, ["now"])


def test_a_job_that_cannot_begin_ends_the_run_and_stops_the_others() -> None:
    fleet = Fleet(job("readings"), job("events"))

    def begin(each: Job) -> QueryHandle:
        if each.name == "events":
            with fleet.begun:
                assert fleet.begun.wait_for(lambda: "readings" in fleet.queries, timeout=30)
            raise JobFailedError("job events failed: no reason", job="events")
        return fleet.begin(each)

    reporter, stop, start = cast(Any, Mock()), threading.Event(), cast(Any, None)
    with (
        pytest.raises(JobFailedError, match="job events failed"),
        JobOrder(fleet.jobs, begin, fleet.running) as order,
    ):
        wait_for_queries(fleet.running, reporter, stop, start, more=order.advance)
    assert fleet.queries["readings"].stopped


def test_a_job_whose_checkpoint_is_at_the_ends_of_its_inputs_has_read_all(tmp_path: Path) -> None:
    paths, follower = TablePaths.of(tmp_path), JOBS["quality"]
    for name in follower.inputs:
        create(TABLES[name], paths.table(name))
    assert not has_read_all(paths, follower), "it has no checkpoint"
    ends = [table_end(paths, name) for name in follower.inputs]
    write_table_checkpoint(paths, follower.name, ends, "{}")
    assert has_read_all(paths, follower)
    (tmp_path / "checkpoints" / follower.name / "commits" / "1").unlink()
    assert not has_read_all(paths, follower), "a batch was interrupted"


def test_a_commit_after_the_checkpoint_is_news(tmp_path: Path) -> None:
    paths, follower = TablePaths.of(tmp_path), JOBS["quality"]
    for name in follower.inputs:
        create(TABLES[name], paths.table(name))
    first, second = (table_end(paths, name) for name in follower.inputs)
    write_table_checkpoint(paths, follower.name, [first, replace(second, version=second.version - 1)], "{}")
    assert not has_read_all(paths, follower)


def test_logs_of_a_site_that_does_not_answer_are_left_to_the_query(tmp_path: Path) -> None:
    write_checkpoint(TablePaths.of(tmp_path), "readings", {"containers.BIGU0000016": 3}, "{}")
    options = {"streams": "containers", "rows": "readings"}
    assert logs_read_to_end(NOWHERE, TablePaths.of(tmp_path), "readings", options) is None


def test_what_logs_have_is_not_known_without_asking_them(tmp_path: Path) -> None:
    write_checkpoint(TablePaths.of(tmp_path), "readings", {}, "{}")
    assert not has_read_all(TablePaths.of(tmp_path), JOBS["readings"])


@pytest.mark.parametrize("once", [True, False])
def test_only_the_session_of_a_run_that_goes_on_lasts(
    once: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = Mock(side_effect=UnavailableError("Spark does not start here"))
    monkeypatch.setattr(runner, "open_session", start)
    with pytest.raises(UnavailableError, match="does not start here"):
        runner.run(load("minimal"), NOWHERE, tmp_path, ["quality"], once=once)
    assert start.call_args.kwargs["lasting"] is not once
    assert (start.call_args.kwargs["extra"].get(CODEGEN) == "NO_CODEGEN") is once


def test_settings_of_the_topology_count_for_a_run_that_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = Mock(side_effect=UnavailableError("Spark does not start here"))
    monkeypatch.setattr(runner, "open_session", start)
    topology = load("minimal")
    assert topology.shore is not None
    own = topology.shore.model_copy(update={"settings": {CODEGEN: "CODEGEN_ONLY"}})
    with pytest.raises(UnavailableError, match="does not start here"):
        runner.run(topology.model_copy(update={"shore": own}), NOWHERE, tmp_path, ["quality"], once=True)
    assert start.call_args.kwargs["extra"][CODEGEN] == "CODEGEN_ONLY"
