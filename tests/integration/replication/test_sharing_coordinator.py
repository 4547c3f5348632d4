"""The coordinator of a group moves to another broker: its members go on with their logs, and nobody joins anew."""

from __future__ import annotations

import asyncio

import pytest

from fairlead.kafka.client.cluster import CONTROL
from fairlead.kafka.protocol.group_codec import coordinator_request
from fairlead.local.sites import LocalSites
from replication.sharing.rules import group_id
from replication.states import MemberState
from tests.integration.replication.conftest import TRIO
from tests.support.proof import grown, proven
from tests.support.replication.lab import Lab, link, states, until
from tests.support.traffic import Traffic

pytestmark = [pytest.mark.long, pytest.mark.integration]


async def coordinator(lab: Lab) -> int:
    """Return the broker that keeps the group; -1 while there is none."""
    connection = await (await lab.cluster(TRIO)).pool.any(CONTROL)
    found = await connection.call(coordinator_request(group_id(lab.stream)))
    return -1 if found.error_code else found.node


async def test_the_coordinator_moves_under_load(lab: Lab, trio: LocalSites) -> None:
    logs = [lab.log(f"alpha.own-{n}") for n in range(12)]
    await lab.make("alpha", *logs)
    topology = link(lab, "alpha", TRIO)
    members = [lab.replicator(topology, TRIO, group=lab.stream) for _ in range(2)]

    async def all_are(state: MemberState) -> bool:
        shown = [each.snapshot()["group"] for each in members]
        return {each["state"] for each in shown} == {state} and {len(each["members"]) for each in shown} == {2}

    async def settled() -> bool:
        return await all_are(MemberState.MEMBER)

    async with lab.running(*members), Traffic(lab.kafka("alpha"), own=logs, seed=5, pause=0.05) as writers:
        await until(settled, "they do not form a group")
        await grown(lab.kafka(TRIO), writers.written)
        before = [each.snapshot()["group"]["me"] for each in members]
        first = await coordinator(lab)
        await asyncio.to_thread(trio.kill, TRIO, broker=first)

        async def moved() -> bool:
            return await coordinator(lab) not in (-1, first)

        await grown(lab.kafka(TRIO), writers.written)
        await until(moved, "the group has no other coordinator")
        await until(settled, f"not members again: {[each.snapshot()['group'] for each in members]}")
        await grown(lab.kafka(TRIO), writers.written)
        assert [each.snapshot()["group"]["me"] for each in members] == before
        await asyncio.to_thread(trio.restart, TRIO, broker=first)
        await grown(lab.kafka(TRIO), writers.written)
        await writers.stop()
        await proven(topology, writers.written, lab.kafka("alpha"), lab.kafka(TRIO))
        assert [states(each.snapshot()) for each in members] == [{}, {}]
