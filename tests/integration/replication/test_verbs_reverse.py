"""Reverse a link and reverse it back: records flow the other way at the same offsets, from ordinary producers."""

from __future__ import annotations

import pytest

from replication.operations.links.facts import LinkOperation, LinkScope
from tests.integration.replication.operating import Two, two
from tests.support.replication.lab import states

pytestmark = pytest.mark.integration
__all__ = ["two"]


async def test_every_partition_is_reversed(two: Two) -> None:
    """Every partition is reversed; the old source's logs continue with records from the new source."""
    topology, topic = two.topology(both=True), two.lab.log("orders")
    await two.make(topic, 3)
    two.send(two.west, topic, 0, 30, 3)
    west, east = two.replicator(topology, two.west), two.replicator(topology, two.east)
    async with two.lab.running(west, east):
        await two.even(topic, 30)
        await two.do(LinkOperation.REVERSE, topology, LinkScope(log=topic))
        two.send(two.east, topic, 30, 30, 3)
        await two.even(topic, 63)  # with one filler in each partition
        assert set((await two.ends(two.west, topic)).values()) == {21}
        assert states(west.snapshot()) == states(east.snapshot()) == {}
        assert await two.lab.read("alpha", topic) == await two.lab.read("beta", topic)


async def test_reverse_and_back(two: Two) -> None:
    """After two reversals both sites have the same records; the first source has ordinary, copied, ordinary batches."""
    topology, topic = two.topology(both=True), two.lab.log("orders")
    await two.make(topic)
    two.send(two.west, topic, 0, 30)
    west, east = two.replicator(topology, two.west), two.replicator(topology, two.east)
    async with two.lab.running(west, east):
        await two.even(topic, 30)
        await two.do(LinkOperation.REVERSE, topology, LinkScope(log=topic))
        two.send(two.east, topic, 30, 30)
        await two.even(topic, 61)
        await two.do(LinkOperation.REVERSE, topology, LinkScope(log=topic), back=True)
        two.send(two.west, topic, 60, 30)
        await two.even(topic, 92)
        assert states(west.snapshot()) == states(east.snapshot()) == {}
        assert await two.values(two.east, topic) == [f"value {n}" for n in range(90)]
        assert await two.lab.read("alpha", topic) == await two.lab.read("beta", topic)
