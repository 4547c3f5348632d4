"""Copies are identical byte for byte, whatever happens during copying."""

from __future__ import annotations

import pytest

from fairlead.kafka.protocol.codecs import Codec
from fairlead.kafka.protocol.types import TopicPartition
from tests.support.replication.lab import Lab, counted, links, states, until

pytestmark = pytest.mark.integration


async def test_a_log_is_copied_byte_for_byte_and_followed(lab: Lab) -> None:
    topic = lab.log("alpha.one")
    await lab.make("alpha", topic)
    end = await lab.open_term("alpha", topic, term=1, at=0)
    for codec in Codec:
        end = await lab.write("alpha", topic, 20, at=end, codec=codec)
    beta = lab.replicator(lab.one_way(), "beta")
    async with lab.running(beta):
        await lab.reaches("beta", topic, end)
        assert await lab.same(topic)
        end = await lab.write("alpha", topic, 7, at=end)
        await lab.reaches("beta", topic, end)
        assert await lab.same(topic)
        assert states(beta.snapshot()) == {}
    link = links([beta.snapshot()])["alpha->beta"]
    assert link["records"] == end
    assert link["last_error"] == ""


async def test_many_logs_new_ones_too_and_large_batches(lab: Lab) -> None:
    topics = [lab.log(f"alpha.{n}") for n in range(60)]
    await lab.make("alpha", *topics[:50])
    for topic in topics[:50]:
        await lab.open_term("alpha", topic, term=1, at=0)
    large = topics[0]
    batch_end = await lab.write("alpha", large, 800, at=1, per=200)  # more than one fetch response returns of a log
    beta = lab.replicator(lab.one_way(), "beta", memory=1 << 20)
    async with lab.running(beta):
        await lab.reaches("beta", large, batch_end)
        await lab.make("alpha", *topics[50:])
        for topic in topics[50:]:
            await lab.open_term("alpha", topic, term=1, at=0)
        for topic in topics:
            await lab.reaches("beta", topic, 1)
            assert await lab.same(topic)


async def test_a_cycle_does_not_circulate(lab: Lab) -> None:
    """Records do not circulate in a cycle of links."""
    here, there = lab.log("alpha.x"), lab.log("beta.x")
    await lab.make("alpha", here)
    await lab.make("beta", there)
    await lab.write("alpha", here, 30, at=await lab.open_term("alpha", here, term=1, at=0))
    await lab.write("beta", there, 40, at=await lab.open_term("beta", there, term=1, at=0))
    topology = lab.both_ways()
    both = [lab.replicator(topology, "alpha"), lab.replicator(topology, "beta")]
    async with lab.running(*both):
        await lab.reaches("beta", here, 31)
        await lab.reaches("alpha", there, 41)
        end, other = 31, 41
        for _ in range(10):  # long enough for records to come back
            end = await lab.write("alpha", here, 5, at=end)
            await lab.reaches("beta", here, end)
            other = await lab.write("beta", there, 5, at=other)
            await lab.reaches("alpha", there, other)
        await counted(both, {"alpha->beta": end, "beta->alpha": other})
    assert await lab.end("alpha", here) == end
    assert await lab.end("beta", there) == other
    assert await lab.same(here)
    assert await lab.same(there)


async def test_an_unreachable_source_disturbs_no_other_link(lab: Lab) -> None:
    topic = lab.log("alpha.one")
    await lab.make("alpha", topic)
    end = await lab.open_term("alpha", topic, term=1, at=0)
    closed = lab.kafka("alpha").bootstrap[0][0], 1
    where = {"gone": closed}
    topology = lab.topology(
        sites={name: {"kind": "datacentre"} for name in ("alpha", "beta", "gone")},
        links=[{"from": source, "to": "beta", "streams": {lab.stream: "all"}} for source in ("alpha", "gone")],
    )
    from dataclasses import replace

    from fairlead.kafka.endpoint import KafkaEndpoint
    from replication.replicator import Replicator

    def upstream(site: str) -> KafkaEndpoint:
        there = lab.kafka("alpha")
        return replace(there, bootstrap=(where[site],)) if site in where else there

    beta = Replicator(topology, "beta", lab.kafka("beta"), upstream)
    async with lab.running(beta):
        await lab.reaches("beta", topic, end)

        async def tried() -> bool:
            return bool(links([beta.snapshot()])["gone->beta"]["state"] == "unavailable")

        await until(tried, "the unreachable source is not noticed")
        shown = links([beta.snapshot()])
        assert shown["alpha->beta"]["state"] == "mirroring"
        assert shown["gone->beta"]["cause"] and shown["gone->beta"]["lag"] is None
        where.clear()  # the source returns

        async def back() -> bool:
            return bool(links([beta.snapshot()])["gone->beta"]["state"] == "mirroring")

        await until(back, "the link does not come back")


async def test_a_log_that_its_source_has_shortened_keeps_its_offsets(lab: Lab) -> None:
    """A log whose beginning was deleted at the source keeps its offsets."""
    topic = lab.log("alpha.short")
    await lab.make("alpha", topic)
    end = await lab.write("alpha", topic, 40, at=await lab.open_term("alpha", topic, term=1, at=0))
    end = await lab.open_term("alpha", topic, term=2, at=end)
    end = await lab.write("alpha", topic, 40, term=2, marker=41, at=end)
    tp = TopicPartition(topic)
    assert await (await lab.cluster("alpha")).delete_records({tp: 52}) == {tp: 52}
    beta = lab.replicator(lab.one_way(), "beta")
    async with lab.running(beta):
        await lab.reaches("beta", topic, end)

        async def trimmed() -> bool:
            starts = await (await lab.cluster("beta")).start_offsets([tp])
            return starts[tp] == 52

        await until(trimmed, "the fillers are not deleted")
        end = await lab.write("alpha", topic, 5, term=2, marker=41, at=end)
        await lab.reaches("beta", topic, end)
        assert await lab.same(topic)
        assert states(beta.snapshot()) == {}
