"""The newest records of many logs, whatever happens to one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from edge.logwriter.tail_reader import TailReader
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.protocol.errors import CorruptBatch
from fairlead.kafka.protocol.record import NewRecord
from fairlead.kafka.protocol.types import TP, FetchedPartition
from tests.support.kafka.fake_broker import FakeCluster
from tests.support.kafka.fake_log import damage, put

LOG, OTHER = TP("events.tokyo"), TP("alerts.tokyo")


@pytest.mark.parametrize(("at", "problem"), [(-1, "the CRC"), (8, "the broker returns no batch at offset 0")])
async def test_a_damaged_tail_stops_no_other_and_its_error_names_the_log(
    fake: FakeCluster, cluster: Cluster, at: int, problem: str
) -> None:
    """Tails are read many at a time."""
    for tp in (LOG, OTHER):
        put(fake.log(tp.topic), NewRecord(b"0", timestamp_ms=1))
    damage(fake.logs[LOG.topic], at=at)
    tails = TailReader(cluster)
    reading = [asyncio.ensure_future(tails.read(tp.topic)) for tp in (LOG, OTHER)]
    with pytest.raises(CorruptBatch, match=rf"^events\.tokyo: {problem}"):
        await reading[0]
    assert [record.value for record in (await reading[1]).records] == [b"0"]
    await tails.close()


async def test_a_tail_is_read_although_retention_deletes_records_meanwhile(
    fake: FakeCluster, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention deletes the oldest records between the question where the log begins and the fetch."""
    for tp in (LOG, OTHER):
        log = fake.log(tp.topic)
        for value in (b"0", b"1", b"2"):
            put(log, NewRecord(value, timestamp_ms=1))
    real = cluster.fetch

    async def fetch(positions: Mapping[TP, int], **given: Any) -> dict[TP, FetchedPartition]:
        fake.logs[LOG.topic].start = 2
        return await real(positions, **given)

    monkeypatch.setattr(cluster, "fetch", fetch)
    tails = TailReader(cluster)
    tail, other = await tails.read(LOG.topic), await tails.read(OTHER.topic)
    await tails.close()
    assert (tail.start, tail.whole, [record.value for record in tail.records]) == (2, True, [b"2"])
    assert (other.start, [record.value for record in other.records]) == (0, [b"0", b"1", b"2"])
