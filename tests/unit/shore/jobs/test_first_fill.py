"""A first fill that Spark fails half-way leaves nothing behind that the batches after it would build on."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from pyspark.errors import PySparkException

from fairlead.kafka.endpoint import KafkaEndpoint
from shore.jobs import feeds, first_fill
from shore.jobs.model import JobContext
from shore.paths import TablePaths
from shore.sink.exactly_once import FeedSink
from topologies.loader.load import load


def test_the_batches_after_a_failed_first_fill_begin_with_what_the_feeds_really_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records had been appended to feeds, and a customer's own table had not got them. Only an opened sink fills it."""
    for name in ("create_feeds", "create_tables", "ledgers", "fill_changed_feeds", "changes"):
        monkeypatch.setattr(feeds, name, Mock())
    monkeypatch.setattr(first_fill, "table_end", Mock(return_value=Mock(version=1)))
    opened = [Mock(name="before the fill"), Mock(name="after it")]
    monkeypatch.setattr(FeedSink, "open", Mock(side_effect=opened))
    monkeypatch.setattr(feeds.Feeds, "deliver_everything", Mock(side_effect=PySparkException("lost an executor")))
    used: list[Any] = []
    monkeypatch.setattr(feeds.Feeds, "deliver", lambda self, *_: used.append(self.sink))
    lake = Mock()
    lake.bytes_of.return_value = 1
    context = Mock(spec=JobContext, topology=load("minimal"), paths=TablePaths.of(tmp_path), lake=lake, spark=Mock())
    context.endpoint = KafkaEndpoint("alpha", (("127.0.0.1", 1),))
    feeds.query(context)
    (update,) = feeds.changes(lake).writeStream.foreachBatch.call_args.args  # type: ignore[attr-defined]
    update(Mock(), 0)
    assert used == [opened[1]]
