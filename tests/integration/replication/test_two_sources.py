"""The replicator copies urgent logs from two sources at once; the first answer counts."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest

from fairlead.kafka.protocol.record import Record
from fairlead.kafka.protocol.types import TopicPartition
from replication.replicator import Replicator
from tests.support.chaos import through_proxy
from tests.support.replication.consumers import producer
from tests.support.replication.lab import NOW_MS, Lab, states, until
from tests.support.waits import PATIENCE
from topologies.model import Topology

pytestmark = [pytest.mark.long, pytest.mark.integration]

TARGET = "gamma"
ROUND_TRIP = 0.4  # seconds by which one source answers later; a new connection takes several times as long


def urgent(lab: Lab, *links: tuple[str, str]) -> Topology:
    return Topology.model_validate(
        {
            "name": "two-sources",
            "sites": {site: {"kind": "datacentre"} for site in ("alpha", "beta", TARGET)},
            "streams": {lab.stream: {"priority": "urgent"}},
            "links": [{"from": one, "to": other, "streams": {lab.stream: "all"}} for one, other in links],
        }
    )


def send(lab: Lab, site: str, topic: str, first: int, count: int, word: str) -> None:
    client = producer(lab.kafka(site))
    for n in range(first, first + count):
        client.produce(topic, f"{word} {n}", timestamp=NOW_MS + n)
        if n % 7 == 0:
            assert client.flush(PATIENCE) == 0
    assert client.flush(PATIENCE) == 0


@contextlib.asynccontextmanager
async def following(lab: Lab, later: str) -> AsyncIterator[Replicator]:
    """Run the target's replicator with both sources; ``later`` names the slower one, if any."""
    gamma = lab.replicator(urgent(lab, ("alpha", TARGET), ("beta", TARGET)), TARGET)
    async with contextlib.AsyncExitStack() as stack:
        if later:
            client = f"fairlead-replicator.{TARGET}"
            await stack.enter_async_context(through_proxy(lab.kafka(later), client=client, rtt=ROUND_TRIP))
        await stack.enter_async_context(lab.running(gamma))
        yield gamma


def contents(records: list[Record]) -> list[tuple[int, int, bytes | None]]:
    return [(each.offset, each.timestamp_ms, each.value) for each in records]


async def start(lab: Lab, site: str, topic: str) -> object:
    tp = TopicPartition(topic)
    return (await (await lab.cluster(site)).start_offsets([tp]))[tp]


LATER = pytest.mark.parametrize("later", ["alpha", "beta", ""], ids=["alpha later", "beta later", "both at once"])


@LATER
async def test_a_new_site_begins_where_the_earliest_source_does(
    lab: Lab, more_sites: Callable[..., None], later: str
) -> None:
    """The copy begins where the earliest source does, even if the other one, which deleted records, answers first."""
    await asyncio.to_thread(more_sites, TARGET)
    held, written = lab.log("alpha.held"), lab.log("orders")
    await lab.make("alpha", held, written)
    end = await lab.write("alpha", held, 599, at=await lab.open_term("alpha", held, term=1, at=0))
    await asyncio.to_thread(send, lab, "alpha", written, 0, end, "value")
    async with lab.running(lab.replicator(urgent(lab, ("alpha", "beta")), "beta")):
        for topic in (held, written):
            await lab.reaches("beta", topic, end)
    beta = await lab.cluster("beta")
    deleted = {TopicPartition(topic): 400 for topic in (held, written)}
    assert await beta.delete_records(deleted) == deleted
    async with following(lab, later) as gamma:
        for topic in (held, written):
            await lab.reaches(TARGET, topic, end)
        await lab.write("alpha", held, 10, at=end)
        await asyncio.to_thread(send, lab, "alpha", written, end, 10, "value")
        for topic in (held, written):
            await lab.reaches(TARGET, topic, end + 10)

        async def both_followed() -> bool:
            return [link["followed"] for link in gamma.snapshot()["links"]] == [2, 2]

        await until(both_followed, f"not both are followed: {gamma.snapshot()['links']}")
        assert states(gamma.snapshot()) == {}
    for topic in (held, written):
        assert await start(lab, TARGET, topic) == 0
        assert contents(await lab.read(TARGET, topic)) == contents(await lab.read("alpha", topic))
    assert await lab.stored(TARGET, held) == await lab.stored("alpha", held)


@LATER
@pytest.mark.parametrize(("ours", "theirs"), [(200, 320), (320, 200)], ids=["beta has more", "alpha has more"])
async def test_two_histories_are_never_put_together(
    lab: Lab, more_sites: Callable[..., None], later: str, ours: int, theirs: int
) -> None:
    """If ordinary clients have written different logs of one name at two sites, the copy equals one of them, or its
    beginning, and the difference is reported."""
    await asyncio.to_thread(more_sites, TARGET)
    topic = lab.log("orders")
    for site, count in (("alpha", ours), ("beta", theirs)):
        await lab.make(site, topic)
        await asyncio.to_thread(send, lab, site, topic, 0, count, f"written at {site}")
    async with following(lab, later) as gamma:

        async def said() -> bool:
            return states(gamma.snapshot()) == {topic: "diverged"}

        await until(said, f"not diverged: {gamma.snapshot()['logs']}")
        for site, count in (("alpha", ours), ("beta", theirs)):
            await asyncio.to_thread(send, lab, site, topic, count, 200, f"written at {site}")
        end = await lab.end(TARGET, topic)
        copy = contents(await lab.read(TARGET, topic))
        assert await lab.end(TARGET, topic) == end > 0  # nothing more is copied
        assert states(gamma.snapshot()) == {topic: "diverged"}
    assert copy in [contents(await lab.read(site, topic))[:end] for site in ("alpha", "beta")]
