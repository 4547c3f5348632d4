"""A topic is recreated under load: at the source, and the target keeps its records and mixes nothing; or at the target,
and the log is copied there again.
"""

from __future__ import annotations

import asyncio

import pytest

from fairlead.kafka.admin import create_logs, delete_logs
from tests.support.proof import caught_up, ends, proven
from tests.support.replication.lab import Lab, states, until
from tests.support.traffic import Traffic

pytestmark = pytest.mark.integration


async def test_a_topic_is_deleted_and_made_again_at_the_source(lab: Lab) -> None:
    other = "o" + lab.stream[1:]
    again = f"{other}.alpha"
    own, plain = [lab.log(f"alpha.{n}") for n in range(4)], lab.log("alpha.plain")
    every = {lab.stream: "all", other: "all"}
    topology = lab.topology(
        streams={lab.stream: {}, other: {}}, links=[{"from": "alpha", "to": "beta", "streams": every}]
    )
    await lab.make("alpha", *own, plain, again)
    here, there = lab.kafka("alpha"), lab.kafka("beta")
    beta = lab.replicator(topology, "beta")
    async with lab.running(beta), Traffic(here, own=own, idempotent=[plain]) as writers:
        async with Traffic(here, own=[again], seed=2) as first:

            async def long() -> bool:
                return (await ends(there, first.written))[again] > 50

            await until(long, "the log is not copied")
        await caught_up(first.written, here, there)
        before = await lab.stored("beta", again)
        end = await lab.end("beta", again)
        await asyncio.to_thread(delete_logs, here, [again])

        async def gone() -> bool:
            return await lab.end("alpha", again) == -1

        await until(gone, "the topic is not deleted")
        await lab.make("alpha", again)
        async with Traffic(here, own=[again], seed=3) as second:

            async def longer() -> bool:
                return (await ends(here, second.written))[again] > 2 * end

            await until(longer, "the new log does not grow beyond the old one")

        async def named() -> bool:
            return states(beta.snapshot()) == {again: "source-recreated"}

        await until(named, f"not named: {beta.snapshot()['logs']}")
        assert beta.snapshot()["logs"][again]["what_to_do"]
        await writers.stop()
        await proven(lab.one_way(), writers.written, here, there)  # the other logs are still copied
        assert await lab.stored("beta", again) == before

    # Resolved by hand: after the old replica is deleted, the new log is copied from its beginning.
    await asyncio.to_thread(delete_logs, there, [again])
    async with lab.running(lab.replicator(topology, "beta")):
        await proven(topology, writers.written | second.written, here, there)


async def test_a_topic_is_deleted_and_made_again_at_the_target(lab: Lab) -> None:
    """Beta's broker refuses by its topic id a batch that was meant for the old topic, which a broker by its name alone
    would append to the new one, at another offset.
    """
    topic = lab.log("alpha.again")
    await lab.make("alpha", topic)
    at = await lab.open_term("alpha", topic, term=1, at=0)
    at = await lab.write("alpha", topic, 50, at=at)
    beta, there = lab.replicator(lab.one_way(), "beta"), lab.kafka("beta")
    seen: set[str] = set()
    async with lab.running(beta):
        for _ in range(3):
            await lab.reaches("beta", topic, at)
            await asyncio.to_thread(delete_logs, there, [topic])
            await asyncio.to_thread(create_logs, there, {topic: {}})
            at = await lab.write("alpha", topic, 50, at=at)

            async def copied(end: int = at) -> bool:
                seen.update(states(beta.snapshot()).values())
                return await lab.end("beta", topic) == end

            await until(copied, f"the log is not copied again: {beta.snapshot()['logs']}")
        assert await lab.same(topic)

        async def well() -> bool:
            return states(beta.snapshot()) == {}

        await until(well, f"the log has a state: {beta.snapshot()['logs']}")
    assert seen <= {"unavailable"}
