"""Logs that the broker's own cleaner has compacted: gaps, empty batches, tombstones and delete horizons."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from fairlead.kafka.convention import term_batch
from fairlead.kafka.protocol.batch import DELETE_HORIZON, BatchHeader, parse_header
from fairlead.kafka.protocol.record import NewRecord
from tests.support.replication.cleaner import settle
from tests.support.replication.consumers import producer, read_all, same, send
from tests.support.replication.lab import NOW_MS, Lab, remake_from_beta, states, until
from tests.support.waits import PATIENCE

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("cleaners")]

COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "100",
    "segment.ms": "200",
}

LATER = 10_000_000  # milliseconds: a record with that time begins a new segment, whatever the clock shows


async def headers(lab: Lab, site: str, topic: str) -> list[BatchHeader]:
    return [parse_header(batch) for batch in await lab.stored(site, topic)]


async def test_emptied_batches_and_holes(lab: Lab) -> None:
    """Consumers see the same records at both sites if the cleaner has emptied batches and left gaps in others."""
    topic = lab.log("alpha.compacted")
    await lab.make("alpha", topic, **COMPACTED)
    for codec in ("none", "lz4", "zstd"):
        client = producer(lab.kafka("alpha"), **{"compression.type": codec, "linger.ms": 20})
        for n in range(6):
            send(client, topic, n * 20, 20, key=lambda n: str(n % 9) if n % 13 else str(n))
    client = producer(lab.kafka("alpha"), **{"enable.idempotence": True})  # the cleaner keeps its empty last batch
    send(client, topic, 360, 20, key=lambda n: "same")
    send(client, topic, LATER, 1)
    await settle(lab, "alpha", topic)
    found = await headers(lab, "alpha", topic)
    assert any(0 < each.count < each.last_offset_delta + 1 for each in found)
    end = await lab.end("alpha", topic)
    beta = lab.replicator(lab.one_way(), "beta")
    async with lab.running(beta):
        await lab.reaches("beta", topic, end)
        assert states(beta.snapshot()) == {}
    assert 10 < await same(lab, topic, compacts=True) < end


async def test_transactions_and_tombstones_in_a_compacted_log(lab: Lab) -> None:
    """Copies stay equal with control batches, aborted records that the cleaner removes, and delete horizons.

    They also stay equal after both sites have compacted, and when another site copies from the copy.
    """
    topic = lab.log("both")
    for site in ("alpha", "beta"):
        await lab.make(site, topic, **COMPACTED, **{"delete.retention.ms": "86400000"})
    client = producer(lab.kafka("alpha"), **{"transactional.id": uuid.uuid4().hex, "linger.ms": 20})
    client.init_transactions(30)
    for n in range(8):
        client.begin_transaction()
        send(client, topic, n * 10, 10, key=lambda n: str(n % 15))
        client.produce(topic, key=b"%d" % n, value=None, timestamp=NOW_MS)
        client.abort_transaction(30) if n % 3 == 1 else client.commit_transaction(30)
    plain = producer(lab.kafka("alpha"))
    for n in range(5):  # batches of tombstones only: the cleaner sets their delete horizon and keeps them complete
        plain.produce(topic, key=b"t%d" % n, value=None, timestamp=NOW_MS + n)
        assert plain.flush(PATIENCE) == 0
    send(plain, topic, LATER, 1)

    async def has_horizons() -> bool:
        found = await headers(lab, "alpha", topic)
        return any(each.attributes & DELETE_HORIZON and not each.has_holes for each in found)

    await until(has_horizons, "no batch of tombstones has a delete horizon")
    await settle(lab, "alpha", topic)
    end = await lab.end("alpha", topic)
    beta = lab.replicator(lab.one_way(), "beta")
    async with lab.running(beta):
        await lab.reaches("beta", topic, end)
        assert states(beta.snapshot()) == {}
    count = await same(lab, topic, compacts=True)
    before = (await asyncio.to_thread(read_all, lab.kafka("alpha"), topic, committed=True)).data
    await settle(lab, "beta", topic)
    assert any(each.has_holes for each in await headers(lab, "beta", topic))  # compaction removes its fillers
    assert (await headers(lab, "beta", topic))[-1].next_offset == end
    assert await same(lab, topic, compacts=True) == count
    again = lab.replicator(lab.one_way(), "beta")
    async with lab.running(again):  # copying continues after both sites have compacted
        send(plain, topic, 2 * LATER, 3)
        await lab.reaches("beta", topic, end + 3)
        assert states(again.snapshot()) == {}
    before += (await asyncio.to_thread(read_all, lab.kafka("alpha"), topic, committed=True)).data[-3:]
    await remake_from_beta(lab, topic, end + 3)
    after = (await asyncio.to_thread(read_all, lab.kafka("alpha"), topic, committed=True)).data
    assert after == before


async def test_own_logs_are_compacted_too(lab: Lab) -> None:
    """A log of the append convention, with markers and terms, is copied while both sites compact it independently."""
    topic = lab.log("alpha.bookings")
    for site in ("alpha", "beta"):
        await lab.make(site, topic, **COMPACTED)
    at = 0
    for term in (1, 2, 3):
        marker = at
        first = NewRecord(uuid.uuid4().bytes, b"marker", (("fairlead", b"marker"),), timestamp_ms=NOW_MS)
        for n in range(8):
            some = [
                NewRecord(b"v%d" % (at + k), b"%d" % ((at + k) % 5), timestamp_ms=NOW_MS + at + k) for k in range(6)
            ]
            batch = term_batch([first] if n == 0 else some, term=term, offset=at, marker=marker)
            assert (await lab.append("alpha", {topic: batch}))[topic] == at
            at += 1 if n == 0 else 6
    late = NewRecord(b"late", b"late", timestamp_ms=NOW_MS + LATER)
    await lab.append("alpha", {topic: term_batch([late], term=3, offset=at, marker=marker)})
    await settle(lab, "alpha", topic)
    beta = lab.replicator(lab.one_way(), "beta")
    async with lab.running(beta):
        await lab.reaches("beta", topic, at + 1)
        assert states(beta.snapshot()) == {}
    assert await same(lab, topic, compacts=True) <= 8
    await settle(lab, "beta", topic)
    again = lab.replicator(lab.one_way(), "beta")
    async with lab.running(again):
        more = NewRecord(b"more", b"more", timestamp_ms=NOW_MS + LATER + 1)
        await lab.append("alpha", {topic: term_batch([more], term=3, offset=at + 1, marker=marker)})
        await lab.reaches("beta", topic, at + 2)
        assert states(again.snapshot()) == {}
    await same(lab, topic, compacts=True)
