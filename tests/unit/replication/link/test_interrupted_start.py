"""A copy that begins above offset 0 is positioned by fillers; what if the replicator ends before it has a record."""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.convention import FOREIGN_EPOCH, FOREIGN_PRODUCER_ID, PRODUCER_ID, marker_record, term_batch
from fairlead.kafka.protocol.record import NewRecord
from fairlead.kafka.protocol.types import FetchedPartition, TopicPartition
from replication.batch.prepared import POSITION_KEY, Gap
from replication.batch.rebuild import fillers
from replication.link.fetcher import Fetcher
from replication.link.source_link import SourceLink
from replication.target.mirror import MirrorPartition
from tests.support.kafka.fake_broker import until
from tests.support.replication.broker import Broker, running
from tests.support.replication.scripted import FakeLink, Source
from tests.support.replication.source_logs import NOW, SourceLog
from topologies.model import Priority

LOG = TopicPartition("orders.europe")


class Logged(Source):
    """A source that answers each fetch from its log."""

    def __init__(self, batches: list[bytes], end: int) -> None:
        super().__init__(end=end, log=LOG)
        self.history = SourceLog(batches, end=end)

    async def poll(self, **_: Any) -> dict[TopicPartition, FetchedPartition]:
        await asyncio.sleep(0)
        if (at := self.followed.get(LOG, self.end)) >= self.end:
            return {}
        records, aborted = self.history.answer(at, 9)
        return {LOG: FetchedPartition(0, self.end, self.end, 0, tuple(aborted), records)}


@contextlib.asynccontextmanager
async def following(source: Source, broker: Broker, start: str) -> AsyncIterator[MirrorPartition]:
    async with running(broker) as appender:
        replica = appender.replica(LOG, Priority.NORMAL)
        await appender.load_ends([replica])
        link = cast(SourceLink, FakeLink("a->b", start=start))
        fetcher = Fetcher(link, Priority.NORMAL, cast(Cluster, source), appender)
        fetcher.follow(replica)
        task = asyncio.create_task(fetcher.run())
        try:
            yield replica
        finally:
            task.cancel()


def positioned(stop: int, batches: int | None = None, producer: int = FOREIGN_PRODUCER_ID) -> Broker:
    """Return a target with the first of the fillers up to an offset."""
    broker = Broker(random.Random(1))  # noqa: S311
    term = FOREIGN_EPOCH if producer == FOREIGN_PRODUCER_ID else 1
    for each in [*fillers(Gap(0, stop, producer, term, 0, 1, POSITION_KEY))][:batches]:
        assert broker.log(*LOG).append(bytes(each.data)).base_offset == each.base
    return broker


@pytest.mark.parametrize("start", ["earliest", "end"])
async def test_fillers_that_end_inside_a_batch_of_the_source_are_followed_by_its_rest(start: str) -> None:
    """Another source, or an earlier setting of the link, made them; they agree with everything."""
    new = [marker_record(b"m", timestamp_ms=NOW)], [NewRecord(b"%d" % n, timestamp_ms=NOW) for n in range(1, 10)]
    batches = [
        struct.pack(">q", at) + term_batch(records, term=1, offset=at, marker=0)[8:]
        for at, records in zip((0, 1), new, strict=True)
    ]
    source, broker = Logged(batches, 10), positioned(5, producer=PRODUCER_ID)
    async with following(source, broker, start) as replica:
        await until(lambda: replica.end == 10 or replica.trouble is not None)
        assert replica.trouble is None
        await until(lambda: broker.log(*LOG).start == 5)
    assert len(broker.log(*LOG).batches) == 1
