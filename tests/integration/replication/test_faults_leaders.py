"""Leaders fail, at the target or the source, at a site of three brokers with three replicas and min ISR 2."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

import pytest

from fairlead.kafka.protocol.types import TopicPartition
from fairlead.local.sites import LocalSites, SiteSpec
from replication.replicator import Replicator
from tests.integration.replication.conftest import TRIO
from tests.support.proof import grown, proven
from tests.support.replication.lab import Lab, link, states
from tests.support.traffic import Traffic
from topologies.model import Topology

pytestmark = [pytest.mark.long, pytest.mark.integration]


@pytest.fixture(autouse=True)
def complete(trio: LocalSites) -> Iterator[None]:
    """Start every broker again that a test has killed."""
    yield
    trio.up([SiteSpec(TRIO, brokers=3)])


async def leader_of_most(lab: Lab, topics: list[str]) -> int:
    """Return the broker of trio that leads most of these logs."""
    cluster = await lab.cluster(TRIO)
    await cluster.topics(topics, refresh=True)
    count = Counter(cluster.metadata.leader(TopicPartition(topic)) for topic in topics)
    return count.most_common(1)[0][0]


def traffic(lab: Lab, site: str, own: list[str], other: list[str]) -> Traffic:
    return Traffic(lab.kafka(site), own=own, idempotent=other[:1], transactional=other[1:], pause=0.05)


async def test_the_target_loses_its_leaders_under_load(lab: Lab, trio: LocalSites) -> None:
    own, other = [lab.log(f"alpha.own-{n}") for n in range(9)], [lab.log("alpha.plain"), lab.log("alpha.transactional")]
    await lab.make("alpha", *own, *other)
    topology = link(lab, "alpha", TRIO)
    target = lab.replicator(topology, TRIO)
    async with lab.running(target), traffic(lab, "alpha", own, other) as writers:
        await grown(lab.kafka(TRIO), writers.written)
        first = await leader_of_most(lab, own)
        metadata = (await lab.cluster(TRIO)).metadata
        assert {metadata.replicas(TopicPartition(topic)) for topic in own} == {3}
        await asyncio.to_thread(trio.kill, TRIO, broker=first)
        await grown(lab.kafka(TRIO), writers.written)  # two brokers are left: enough

        second = await leader_of_most(lab, own)
        await asyncio.to_thread(trio.kill, TRIO, broker=second)  # one is left: no quorum, no two in sync
        await grown(lab.kafka("alpha"), writers.written)
        await asyncio.to_thread(trio.restart, TRIO, broker=first)
        await grown(lab.kafka(TRIO), writers.written)
        await asyncio.to_thread(trio.restart, TRIO, broker=second)
        await grown(lab.kafka(TRIO), writers.written)
        await writers.stop()
        await proof(lab, topology, writers, "alpha", TRIO, target)


@pytest.mark.chaos  # the same at the target always runs
async def test_the_source_loses_its_leaders_under_load(lab: Lab, trio: LocalSites) -> None:
    own, other = [lab.log(f"trio.own-{n}") for n in range(9)], [lab.log("trio.plain"), lab.log("trio.transactional")]
    await lab.make(TRIO, *own, *other)
    topology = link(lab, TRIO, "alpha")
    target = lab.replicator(topology, "alpha")
    async with lab.running(target), traffic(lab, TRIO, own, other) as writers:
        await grown(lab.kafka("alpha"), writers.written)
        gone = await leader_of_most(lab, own)
        await asyncio.to_thread(trio.kill, TRIO, broker=gone)
        await grown(lab.kafka("alpha"), writers.written)
        await asyncio.to_thread(trio.restart, TRIO, broker=gone)
        await grown(lab.kafka("alpha"), writers.written)
        await writers.stop()
        await proof(lab, topology, writers, TRIO, "alpha", target)


async def proof(
    lab: Lab, topology: Topology, writers: Traffic, source: str, target: str, replicator: Replicator
) -> None:
    here, there = lab.kafka(source), lab.kafka(target)
    await proven(topology, writers.written, here, there)
    assert states(replicator.snapshot()) == {}
