"""A source's disk damages a batch: copying stops before it; readable records and the batch's bytes are kept."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Sequence

import pytest

from fairlead.errors import RefusedError
from fairlead.kafka.admin import delete_logs
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.reader import read_log
from fairlead.kafka.convention import is_filler
from fairlead.kafka.protocol.errors import CorruptBatch
from fairlead.kafka.protocol.record import Record
from fairlead.kafka.protocol.types import TopicPartition
from fairlead.local.sites import LocalSites
from replication.operations.links.access import append_orders
from replication.overrides import ORDERS_TOPIC, Override, OverrideKind
from tests.integration.replication.resolving import Desk, data
from tests.integration.replication.segments import damage, stopped
from tests.support.replication.consumers import producer, send
from tests.support.replication.lab import Lab, states
from tests.support.waits import PATIENCE

pytestmark = [pytest.mark.long, pytest.mark.integration]


async def written(lab: Lab, kind: str, topic: str) -> None:
    """Write three batches of five records."""
    await lab.make("alpha", topic)
    if kind == "own":
        await lab.write("alpha", topic, 15, at=0)
        return
    client = producer(lab.kafka("alpha"), **{"linger.ms": 50, "compression.type": "lz4" if kind == "lz4" else "none"})
    for first in (0, 5, 10):
        send(client, topic, first, 5)


# Compressed batches behave like plain ones: the checksum shows the damage before the codec matters.
@pytest.mark.parametrize("kind", ["own", "plain", pytest.param("lz4", marks=pytest.mark.chaos)])
async def test_a_damaged_batch_is_skipped_and_its_bytes_are_kept(desk: Desk, sites: LocalSites, kind: str) -> None:
    lab, topic = desk.lab, desk.lab.log(f"alpha.{kind}")
    await written(lab, kind, topic)
    whole = await lab.read("alpha", topic)
    async with stopped(sites, "alpha"):
        damaged = damage(sites, "alpha", topic, 5)
    async with desk.replicating():
        assert "offset 5" in (await desk.in_state(topic, "quarantined"))["cause"]
        await skip_second_batch(desk, topic, whole, damaged)


@pytest.mark.parametrize(
    ("at", "bits"), [(23, 0x80), (25, 1), (26, 2), (52, 0xFF)], ids=["negative", "far end", "near end", "term"]
)
async def test_a_batch_with_a_damaged_header_is_skipped_and_its_bytes_are_kept(
    desk: Desk, sites: LocalSites, at: int, bits: int
) -> None:
    """No header says how far the batch reaches; the next batch does."""
    lab, topic = desk.lab, desk.lab.log("alpha.header")
    await written(lab, "plain", topic)
    whole = await lab.read("alpha", topic)
    async with stopped(sites, "alpha"):
        damaged = damage(sites, "alpha", topic, 5, at=at, bits=bits)
    async with desk.replicating():
        await desk.in_state(topic, "quarantined")
        await skip_second_batch(desk, topic, whole, damaged)


async def test_what_is_here_already_stays_when_the_source_damages_it(desk: Desk, sites: LocalSites) -> None:
    """If the source's disk damages a batch after it was copied, the replica keeps its intact records."""
    lab, topic = desk.lab, desk.lab.log("alpha.before")
    await written(lab, "plain", topic)
    whole = await lab.read("alpha", topic)
    async with desk.replicating():
        await desk.mirrored(topic, 15)
    send(producer(lab.kafka("alpha")), topic, 15, 5)
    async with stopped(sites, "alpha"):
        damaged = damage(sites, "alpha", topic, 10)
    async with desk.replicating():
        assert "offset 10" in (await desk.in_state(topic, "quarantined"))["cause"]
        with pytest.raises(RefusedError, match="is damaged, and this site's copy of it is not"):
            await desk.resolve(topic, "--refill", "--yes")
        await desk.resolve(topic, "--skip", "--yes")
        await desk.mirrored(topic, 20)
        here = await lab.read("beta", topic)
        assert here[:15] == whole
        assert [each.value for each in here[15:]] == [b"value %d" % n for n in range(15, 20)]
        assert await kept(desk, topic) == damaged[:12] + damaged[16:]


@pytest.mark.parametrize(("at", "bits"), [(8, 0x7F), (10, 1)], ids=["huge", "beyond the log's end"])
async def test_a_batch_of_damaged_length_is_an_error_for_who_reads_to_the_end(
    lab: Lab, sites: LocalSites, at: int, bits: int
) -> None:
    """The broker goes on, returns nothing from that batch on, and reports no error."""
    topic, found = lab.log("alpha.length"), list[int]()
    await written(lab, "plain", topic)
    damage(sites, "alpha", topic, 5, at=at, bits=bits)
    async with await Cluster.open(lab.kafka("alpha"), client_id="reader") as cluster, asyncio.timeout(PATIENCE):
        with pytest.raises(CorruptBatch, match=rf"{topic}: the broker returns no batch at offset 5, .* ends at 15"):
            async for record in read_log(cluster, TopicPartition(topic)):
                found.append(record.offset)
    assert found == [*range(5)]


async def test_damaged_orders_stop_only_what_they_may_forbid(lab: Lab, sites: LocalSites) -> None:
    """The start names the damage and copies the rest; a start without the topic has no orders, and copies all."""
    named, movable = lab.log("alpha.named"), lab.log("any")
    for topic in (named, movable):
        await written(lab, "plain", topic)
    order = Override(OverrideKind.PAUSE, dt.datetime.now(dt.UTC), "me", log=lab.log("other"))
    at = await asyncio.to_thread(append_orders, lab.kafka("beta"), [order], timeout=PATIENCE) - 1
    async with stopped(sites, "beta"):
        damage(sites, "beta", ORDERS_TOPIC, at)
    beta = lab.replicator(lab.one_way(), "beta")
    async with lab.running(beta):
        await lab.reaches("beta", named, 15)
        shown = beta.snapshot()["logs"]
        assert states({"logs": shown}) == {movable: "unavailable", ORDERS_TOPIC: "unavailable"}
        assert f"offset {at}" in shown[ORDERS_TOPIC]["cause"] and "leader" in shown[ORDERS_TOPIC]["what_to_do"]
    await asyncio.to_thread(delete_logs, lab.kafka("beta"), [ORDERS_TOPIC])
    beta = lab.replicator(lab.one_way(), "beta")
    async with lab.running(beta):
        await lab.reaches("beta", movable, 15)
        assert states(beta.snapshot()) == {}


async def skip_second_batch(desk: Desk, topic: str, whole: Sequence[Record], damaged: bytes) -> None:
    """Skip the batch of offsets 5 to 9, and check that all others are here and its bytes are kept."""
    lab = desk.lab
    await lab.reaches("beta", topic, 5)
    await desk.resolve(topic, "--skip", "--yes")
    await desk.mirrored(topic, 15)
    here = await lab.read("beta", topic)
    assert data(here) == [each for each in data(whole) if not 5 <= each[0] < 10]
    assert [each.offset for each in here if is_filler(each)] == list(range(5, 10))
    assert await kept(desk, topic) == damaged[:12] + damaged[16:]


async def kept(desk: Desk, topic: str) -> bytes:
    """Return the kept bytes of a batch, without the leader epoch, which the broker sets."""
    (name,) = await desk.kept(topic)
    (record,) = await desk.lab.read("beta", name)
    assert record.value is not None
    return record.value[:12] + record.value[16:]
