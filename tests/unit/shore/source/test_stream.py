"""The streaming reader when no broker answers, how it reports losses, and how it estimates sizes of records."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from fairlead.kafka.convention import term_batch
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.codecs import Codec
from fairlead.kafka.protocol.record import NewRecord, Record
from fairlead.kafka.protocol.types import TopicPartition
from shore.errors import DataLossError, LogReturnedError, SiteUnreachableError
from shore.paths import TablePaths
from shore.source import task as tasks
from shore.source.losses import losses_folder, read_losses
from shore.source.offsets import Range
from shore.source.options import parse_options
from shore.source.stream import (
    LEAST_BYTES,
    MOST_BYTES,
    SAMPLED_LOGS,
    UNSEEN_BYTES,
    Gone,
    LossReporter,
    RecordSizes,
    StreamReader,
    mean_size,
    most_behind,
    size_of,
)
from shore.source.task import LogsPartition, Task


def test_what_was_never_seen_has_a_size_and_what_was_seen_its_own() -> None:
    sizes = RecordSizes()
    assert sizes.estimate("containers.1") == UNSEEN_BYTES
    sizes.update({"containers.1": 300.0, "containers.2": 500.0})
    assert (sizes.estimate("containers.1"), sizes.estimate("containers.3"), sizes.estimate("events.x")) == (
        300,
        400,
        UNSEEN_BYTES,
    )
    sizes.update({"containers.2": 1000.0})
    assert (sizes.estimate("containers.1"), sizes.estimate("containers.2")) == (400 + 180, 1000)


def test_estimates_are_bounded_and_so_is_what_is_kept() -> None:
    sizes = RecordSizes()
    sizes.update({"a.1": 0.0, "b.1": 1e12})
    assert (sizes.estimate("a.1"), sizes.estimate("b.1")) == (LEAST_BYTES, MOST_BYTES)
    for number in range(3_000):
        sizes.update({f"s{number}.1": 5000.0})
    assert sizes.estimate("s2999.2") == 5000
    assert sizes.estimate("s0.2") == UNSEEN_BYTES


def test_the_longest_lags_are_looked_at() -> None:
    assert most_behind({f"a.{n}": n for n in range(1, 100)}) == [f"a.{n}" for n in range(99, 99 - SAMPLED_LOGS, -1)]


def test_a_record_is_its_key_value_and_headers() -> None:
    assert size_of(Record(0, 0, b"ab", b"cde", (("f", b"gh"), ("i", None)))) == 2 + 3 + 3 + 1
    assert size_of(Record(0, 0, None, None, ())) == 0


def test_fetched_batches_are_measured_also_when_they_are_cut_or_compressed() -> None:
    records = [NewRecord(bytes(1000), timestamp_ms=1)] * 10

    def batch(offset: int, codec: Codec = Codec.NONE) -> bytes:
        return term_batch(records, term=1, offset=offset, marker=0, codec=codec)

    assert mean_size(memoryview(b"")) is None
    assert mean_size(memoryview(batch(1))) == pytest.approx(1000, rel=0.05)
    assert mean_size(memoryview(batch(1, Codec.ZSTD))) == 1000
    small = term_batch([NewRecord(b"", timestamp_ms=1)], term=1, offset=0, marker=0)
    assert mean_size(memoryview(small + batch(1)[:100])) == pytest.approx(10_000 / 11, rel=0.05)


@pytest.fixture
def nowhere() -> Iterator[Task]:
    """Yield a task for a site whose port refuses connections."""
    with socket.socket() as taken:  # bound but not listening, so nobody else listens there
        taken.bind(("127.0.0.1", 0))
        endpoint = KafkaEndpoint("alpha", (("127.0.0.1", taken.getsockname()[1]),), "shore", None)
        yield Task(endpoint, parse_options({"streams": "containers"}))


def test_a_query_that_starts_fails_with_an_error_that_may_pass(nowhere: Task) -> None:
    reader = StreamReader(nowhere)
    for look in (
        lambda: reader.latestOffset({}, ReadMaxRows(5)),
        lambda: reader.latestOffset({"containers": {"BIGU0000016": 3}}, ReadMaxRows(5)),
        reader.prepareForTriggerAvailableNow,
    ):
        with pytest.raises(SiteUnreachableError, match="site alpha cannot be reached") as error:
            look()
        assert error.value.retriable


def test_a_task_gives_up_after_its_patience(nowhere: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "PATIENCE_SECONDS", 0.05)
    with pytest.raises(SiteUnreachableError):
        list(nowhere.read(LogsPartition([Range("containers.BIGU0000016", 0, 0, 10)])))


def test_losses_are_said_once_and_kept(caplog: pytest.LogCaptureFixture) -> None:
    losses = LossReporter()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            losses.add({"a.1": Gone(4, 0, "a.1 shrank"), "a.2": Gone(1, 7, "records 1 to 7 of a.2")})
            losses.report_new(fail=False)
        losses.report_new(fail=True)
    assert [record.message for record in caplog.records] == ["a.1 shrank (and 1 more like this)"]
    assert losses.examples == ["a.1 shrank", "records 1 to 7 of a.2"]
    assert losses.records == 7
    losses.add({"a.2": Gone(5, 5, "records 5 to 9 of a.2")})  # overlaps the known hole and adds two records
    assert losses.records == 9
    (rest,) = losses.report_new(fail=False)
    assert (rest.first, rest.last) == (5, 9)
    losses.add({f"b.{n}": Gone(0, 1, f"b.{n}") for n in range(99)})
    with pytest.raises(DataLossError, match="98 more"):
        losses.report_new(fail=True)
    assert len(losses.examples) == 5


def test_a_held_log_that_has_arrived_ends_the_query_so_that_it_is_compared() -> None:
    options = parse_options({"streams": "a", "held": '{"a.1": 12, "a.2": null}'})
    reader = StreamReader(Task(KafkaEndpoint("tokyo", (("127.0.0.1", 1),), "shore"), options))
    reader._check_held({"a.1": 11, "a.2": 99})  # noqa: SLF001  # needs no broker
    with pytest.raises(LogReturnedError, match=r"a\.1 has arrived at tokyo"):
        reader._check_held({"a.1": 12, "a.2": 99})  # noqa: SLF001


class Site:
    """The part of a cluster that the driver asks, with these first and end offsets of logs."""

    metadata = SimpleNamespace(topic_id=lambda topic: None)

    def __init__(self, **logs: tuple[int, int]) -> None:
        self._logs = {f"containers.{box}": extent for box, extent in logs.items()}

    async def __aenter__(self) -> Site:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def topics(self, *_: object, **__: object) -> dict[str, Any]:
        return {topic: SimpleNamespace(partitions=[0]) for topic in self._logs}

    async def start_offsets(self, logs: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {log: self._logs[log.topic][0] for log in logs}

    async def end_offsets(self, logs: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {log: self._logs[log.topic][1] for log in logs}


@pytest.mark.parametrize(
    ("start", "lost"),
    [
        ({"containers": {"A": 3}}, [("containers.B", 0, 100)]),
        ({}, []),  # a first run begins where the logs begin
        ({"events": {"tokyo": 3}}, []),  # a stream that this job has just begun to read
        ({"containers": {"A": 3, "B": 120}}, []),
    ],
)
def test_the_lost_beginning_of_a_log_that_is_new_to_shore_is_noted_and_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: dict[str, dict[str, int]], lost: list[tuple[str, int, int]]
) -> None:
    async def connect(task: Task, patience: float = 0.0) -> Site:
        return Site(A=(0, 5), B=(100, 120))

    monkeypatch.setattr(Task, "connect", connect)
    paths = TablePaths.of(tmp_path)
    endpoint = KafkaEndpoint("alpha", (("127.0.0.1", 1),), "shore", None)
    options = {"streams": "containers", "losses": losses_folder(paths, "readings"), "failOnDataLoss": "true"}
    reader = StreamReader(Task(endpoint, parse_options(options)))
    stop = reader.latestOffset(start, ReadAllAvailable())
    assert stop["containers"] == {"A": 5, "B": 120}
    assert [(each.log, each.first, each.records) for each in read_losses(paths)] == lost
    alone = StreamReader(Task(endpoint, parse_options({"streams": "containers"})))  # a query of somebody's own
    assert alone.latestOffset(start, ReadAllAvailable()) == stop
    assert (alone.reportLatestOffset() or {})["lost"] == sum(records for _, _, records in lost)
