"""Read markers back from their logs: a log that its broker does not serve holds up no other."""

from __future__ import annotations

import asyncio

import pytest

from edge.custody.term_writer import Markers
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.protocol.batch import MAGIC_AT
from fairlead.kafka.protocol.errors import BrokerError, CorruptBatch
from tests.support.kafka.fake_broker import FETCH, METADATA, FakeCluster, until
from tests.support.kafka.fake_log import A, B, damage, marker, put


async def test_a_log_that_is_not_served_holds_up_no_other(fake: FakeCluster, cluster: Cluster) -> None:
    """Markers of other logs are read while one log is not served; that one is read as soon as it is."""
    for log in (A, B):
        put(fake.log(log.topic), marker(log.topic))
    fake.logs[A.topic].leader = 7  # a broker that does not run
    markers = Markers(cluster)
    waiting = asyncio.create_task(markers.batch(A.topic, 0))
    try:
        await until(lambda: len(fake.seen(METADATA)) > 2)
        for _ in range(3):
            async with asyncio.timeout(10):
                assert await markers.batch(B.topic, 0) == fake.logs[B.topic].batches[0][1]
        assert not waiting.done()
        fake.logs[A.topic].leader = 0
        async with asyncio.timeout(10):
            assert await waiting == fake.logs[A.topic].batches[0][1]
    finally:
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await markers.close()


async def test_a_log_whose_header_is_damaged_holds_up_no_other(fake: FakeCluster, cluster: Cluster) -> None:
    """Markers of many logs are read with one request, and the error names the log."""
    for log in (A, B):
        put(fake.log(log.topic), marker(log.topic))
    damage(fake.logs[A.topic], at=MAGIC_AT)
    markers = Markers(cluster)
    try:
        broken, found = await asyncio.gather(*(markers.find(each.topic, 0) for each in (A, B)), return_exceptions=True)
        assert found == fake.logs[B.topic].batches[0][1]
        assert isinstance(broken, CorruptBatch) and broken.what.startswith("log.a: a record batch has format")
    finally:
        await markers.close()


async def test_a_stored_marker_is_waited_for_until_it_can_be_read(fake: FakeCluster, cluster: Cluster) -> None:
    """A marker that the high watermark has not reached yet is waited for."""
    put(fake.log(A.topic), marker("a"))
    fake.logs[A.topic].lag = 1
    markers = Markers(cluster)
    waiting = asyncio.create_task(markers.batch(A.topic, 0))
    try:
        await until(lambda: len(fake.seen(FETCH)) > 1)
        fake.logs[A.topic].lag = 0
        fake.change()
        async with asyncio.timeout(10):
            assert await waiting == fake.logs[A.topic].batches[0][1]
    finally:
        await markers.close()


async def test_a_marker_that_is_gone_is_not_waited_for(fake: FakeCluster, cluster: Cluster) -> None:
    """A marker that its log no longer has is an error where it must be stored, and no marker where it may be gone."""
    put(fake.log(A.topic), marker("a"), marker("b"))
    fake.logs[A.topic].start = 2
    markers = Markers(cluster)
    try:
        assert await markers.find(A.topic, 0) is None
        with pytest.raises(BrokerError):
            await markers.batch(A.topic, 0)
    finally:
        await markers.close()
