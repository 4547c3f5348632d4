"""The audit finds what differs, and only that."""

from __future__ import annotations

import asyncio

import pytest

from fairlead.wire.cluster import Cluster
from fairlead.wire.convention import term_batch
from replication.audit import Audit, compare, plan_audit
from replication.audit_full import compare_records
from tests.integration.replication.conftest import Lab, records
from tests.integration.replication.test_foreign import producer, send
from topologies.model import Topology

pytestmark = pytest.mark.integration


async def quick(lab: Lab, topology: Topology) -> Audit:
    return await compare(topology, lab.kafka("alpha"), lab.kafka("beta"))


async def full(lab: Lab, topology: Topology) -> Audit:
    a, b = lab.kafka("alpha"), lab.kafka("beta")
    async with await Cluster.open(a, client_id="lab") as at_a, await Cluster.open(b, client_id="lab") as at_b:
        plan = await plan_audit(topology, at_a, at_b, None)
    return await asyncio.to_thread(compare_records, Audit("alpha", "beta"), a, b, plan.common)


async def test_equal_copies_own_and_foreign(lab: Lab) -> None:
    topology = lab.one_way()
    topics = [lab.log(f"alpha.{n}") for n in range(30)]
    foreign = lab.log("alpha.foreign")
    await lab.make("alpha", *topics, foreign, lab.log("alpha.empty"))
    for topic in topics:
        await lab.write("alpha", topic, 10, at=await lab.open_term("alpha", topic, term=1, at=0))
    send(producer(lab.kafka("alpha"), **{"compression.type": "zstd"}), foreign, 0, 50)
    async with lab.running(lab.replicator(topology, "beta")):
        for topic in topics:
            await lab.reaches("beta", topic, 11)
        await lab.reaches("beta", foreign, 50)
        await lab.reaches("beta", lab.log("alpha.empty"), 0)
    await lab.write("alpha", topics[0], 10, at=11)  # one site has more: no difference
    await lab.make("beta", lab.log("beta.only"))
    apart = lab.log("alpha.apart")  # nothing in common: not compared, and said so
    for site in ("alpha", "beta"):
        await lab.make(site, apart)
    await lab.write("alpha", apart, 5, at=await lab.open_term("alpha", apart, term=1, at=0))
    for result in (await quick(lab, topology), await full(lab, topology)):
        assert result.ok
        assert result.compared == 32
        assert result.records == 30 * 11 + 50
    result = await quick(lab, topology)
    assert (result.behind, result.apart) == (2, [apart])
    assert (result.only_a, result.only_b) == ([], [lab.log("beta.only")])
    assert result.as_json()["logs_differing"] == 0


async def test_a_planted_difference_is_found_at_its_offset(lab: Lab) -> None:
    topology = lab.one_way()
    same, other = lab.log("alpha.same"), lab.log("alpha.other")
    for site in ("alpha", "beta"):
        await lab.make(site, same, other)
        for topic in (same, other):
            await lab.append(site, {topic: term_batch(records(0, 5), term=1, offset=0, marker=0)})
    changed = records(5, 5)
    changed[2] = records(99, 1)[0]
    await lab.append("alpha", {other: term_batch(records(5, 5), term=1, offset=5, marker=0)})
    await lab.append("beta", {other: term_batch(changed, term=1, offset=5, marker=0)})

    result = await quick(lab, topology)
    assert not result.ok
    assert [(each.log, each.offset) for each in result.differences] == [(other, 5)]
    difference = result.differences[0]
    assert difference.a is not None and difference.b is not None
    assert difference.a["crc"] != difference.b["crc"]
    assert difference.a["count"] == difference.b["count"] == 5

    result = await full(lab, topology)
    assert [(each.log, each.offset) for each in result.differences] == [(other, 7)]
    difference = result.differences[0]
    assert difference.a is not None and difference.b is not None
    assert difference.a["value"] != difference.b["value"]
