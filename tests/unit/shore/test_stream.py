"""The streaming reader where no broker answers, and what it says about losses."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from fairlead.kafka.endpoint import KafkaEndpoint
from shore.errors import DataLossError, SiteUnreachableError
from shore.source import task as tasks
from shore.source.offsets import Range
from shore.source.options import parse_options
from shore.source.stream import Gone, Losses, StreamReader
from shore.source.task import LogsPartition, Task


@pytest.fixture
def nowhere() -> Iterator[Task]:
    """A task for a site whose port refuses connections."""
    with socket.socket() as taken:  # bound and not listening: nobody else can listen there
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
    losses = Losses()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            losses.add({"a.1": Gone(4, 0, "a.1 shrank"), "a.2": Gone(1, 7, "records 1 to 7 of a.2")})
            losses.tell(fail=False)
        losses.tell(fail=True)
    assert [record.message for record in caplog.records] == ["a.1 shrank (and 1 more like this)"]
    assert losses.examples == ["a.1 shrank", "records 1 to 7 of a.2"]
    assert losses.records == 14  # seven each time: a trigger loses what it would have read
    losses.add({f"b.{n}": Gone(0, 1, f"b.{n}") for n in range(99)})
    with pytest.raises(DataLossError, match="98 more"):
        losses.tell(fail=True)
    assert len(losses.examples) == 5
