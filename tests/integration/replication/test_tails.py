"""If compaction has removed the end of a source's log, the replica ends at the same offset and can be promoted."""

from __future__ import annotations

import asyncio

import pytest

from fairlead.errors import RefusedError
from fairlead.kafka.admin import create_logs
from fairlead.kafka.convention import is_filler
from fairlead.kafka.protocol.types import TopicPartition
from fairlead.local.sites import LocalSites
from replication.operations.links.facts import LinkOperation, LinkScope
from tests.integration.replication.operating import Two, two
from tests.integration.replication.segments import lose_tail, stopped
from tests.support.replication.lab import Lab, states, until

pytestmark = [pytest.mark.long, pytest.mark.integration]
__all__ = ["two"]
COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1"}


async def test_a_log_that_ends_with_nothing_is_closed_and_promoted(two: Two, sites: LocalSites) -> None:
    topology, lab = two.topology(), two.lab
    compacted, void, cut, plain, own = map(lab.log, ("compacted", "void", "cut", "plain", "own"))
    create_logs(two.kafka(two.west), {**dict.fromkeys((compacted, void, cut, own), COMPACT), plain: {}})
    await (await lab.cluster("alpha")).wait_writable([compacted, void, cut, plain, own])
    await lab.write("alpha", own, 10, at=0, per=10)
    for topic in (compacted, plain):
        two.send(two.west, topic, 0, 10)
    async with lab.running(two.replicator(topology, two.east)):
        for topic in (compacted, plain, own):
            await two.even(topic, 10)
    for topic in (compacted, plain):
        two.send(two.west, topic, 10, 10)
    await lab.write("alpha", own, 10, at=10, per=10)
    two.send(two.west, void, 0, 5)
    two.send(two.west, cut, 0, 3)
    two.send(two.west, cut, 3, 5)
    await (await lab.cluster("alpha")).delete_records({TopicPartition(cut): 3})
    async with stopped(sites, "alpha"):
        for topic in (compacted, plain, own):
            lose_tail(sites, "alpha", topic, 10, 20)
        lose_tail(sites, "alpha", void, 0, 5)
        lose_tail(sites, "alpha", cut, 3, 8)
    east = two.replicator(topology, two.east)
    async with lab.running(east):
        await two.even(compacted, 20)
        await two.even(void, 5)
        await two.even(cut, 8)

        async def lags() -> bool:
            return bool(east.snapshot()["links"][0]["lag"] == 20)

        await until(lags, f"10 records each of plain and own are not shown as lag: {east.snapshot()['links']}")
        records = await lab.read("beta", compacted)
        assert [record.offset for record in records] == list(range(20))
        assert [is_filler(record) for record in records] == [False] * 10 + [True] * 10
        for topic in (compacted, void):
            await two.do(LinkOperation.PROMOTE, topology, LinkScope(log=topic))
        two.send(two.east, compacted, 20, 5)
        assert await lab.end("beta", compacted) == 26  # the filler that fences off late appends, then five records
        for topic in (plain, own):  # plain is not compacted: it lost records; own's next record has an unknown term
            with pytest.raises(RefusedError, match="is behind"):
                await two.do(LinkOperation.PROMOTE, topology, LinkScope(log=topic))
        two.send(two.west, cut, 8, 5)
        two.send(two.west, plain, 20, 5)
        await two.even(cut, 13)
        await two.even(plain, 25)
        assert states(east.snapshot()) == {}
    assert await same(lab, cut)
    assert await same(lab, plain)


async def same(lab: Lab, topic: str) -> bool:
    """Return whether both sites have the same records of a log, without fillers."""
    here, there = await asyncio.gather(lab.read("alpha", topic), lab.read("beta", topic))
    return here == [record for record in there if not is_filler(record)]
