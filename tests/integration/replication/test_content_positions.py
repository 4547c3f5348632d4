"""Start offsets of replicas: sources that start above 0, empty logs, remains of a crash."""

from __future__ import annotations

import pytest

from fairlead.kafka.convention import FOREIGN_PRODUCER_ID, filler_batch
from fairlead.kafka.protocol.codecs import Codec
from fairlead.kafka.protocol.record import encode_batch
from fairlead.kafka.protocol.types import TopicPartition
from replication.batch.prepared import POSITION_KEY, Gap
from replication.batch.rebuild import fillers
from replication.target.gaps import interrupted, leftovers
from tests.support.replication.consumers import producer, same, send
from tests.support.replication.lab import NOW_MS, Lab, records, states, until

pytestmark = pytest.mark.integration


async def begins_at(lab: Lab, site: str, topic: str, offset: int) -> None:
    tp = TopicPartition(topic)
    cluster = await lab.cluster(site)

    async def there() -> bool:
        return (await cluster.start_offsets([tp]))[tp] == offset

    await until(there, f"{topic} at {site} begins at {await cluster.start_offsets([tp])}, not at {offset}")


async def test_a_log_begins_in_the_middle_of_a_batch(lab: Lab) -> None:
    topic = lab.log("alpha.short")
    await lab.make("alpha", topic)
    client = producer(lab.kafka("alpha"), **{"linger.ms": 100})
    send(client, topic, 0, 100)
    await (await lab.cluster("alpha")).delete_records({TopicPartition(topic): 45})
    beta = lab.replicator(lab.one_way(), "beta")
    async with lab.running(beta):
        await lab.reaches("beta", topic, 100)
        assert states(beta.snapshot()) == {}
    assert await same(lab, topic) == 55


async def test_a_log_without_any_record_left_is_positioned_by_the_next_one(lab: Lab) -> None:
    """If the source's log is empty but not at offset 0, the next record gets its right offset at the target."""
    topic = lab.log("alpha.emptied")
    await lab.make("alpha", topic)
    many = encode_batch(records(0, 50_000), producer_id=-1, epoch=-1, sequence=-1, codec=Codec.ZSTD)
    for _ in range(5):
        await lab.append("alpha", {topic: many})
    await (await lab.cluster("alpha")).delete_records({TopicPartition(topic): 250_000})
    beta = lab.replicator(lab.one_way(), "beta")
    async with lab.running(beta):
        await lab.reaches("beta", topic, 0)
        send(producer(lab.kafka("alpha")), topic, 0, 3)
        await lab.reaches("beta", topic, 250_003)
        await begins_at(lab, "beta", topic, 250_000)
        assert states(beta.snapshot()) == {}
    assert await same(lab, topic) == 3


async def test_fillers_left_by_a_crash_are_found_again(lab: Lab) -> None:
    """If a replicator dies between writing fillers and deleting them, the next one deletes them."""
    dead, alive, waiting, plain = (lab.log(f"x{n}") for n in range(4))
    await lab.make("beta", dead, alive, waiting, plain)
    for topic, stop in ((dead, 120_000), (waiting, 10)):
        for each in fillers(Gap(0, stop, FOREIGN_PRODUCER_ID, 0, 0, NOW_MS, POSITION_KEY)):
            await lab.append("beta", {topic: bytes(each.data)})
    client = producer(lab.kafka("beta"))
    send(client, dead, 0, 3)
    await lab.append("beta", {alive: filler_batch(5, term=0, offset=0, marker=0, timestamp_ms=NOW_MS, key=b"other")})
    send(client, plain, 0, 3)
    logs = {TopicPartition(topic): 0 for topic in (plain, dead, alive, waiting)}
    cluster = await lab.cluster("beta")
    found = await leftovers(cluster, logs)
    assert found == {TopicPartition(dead): 120_000}
    assert await cluster.delete_records(found) == found
    assert [record.offset for record in await lab.read("beta", dead)] == [120_000, 120_001, 120_002]
    assert await leftovers(cluster, found) == {}


@pytest.mark.parametrize("start", ["earliest", "latest"])
async def test_fillers_are_found_where_the_link_begins_above_its_source(lab: Lab, start: str) -> None:
    """Fillers at offset 0 are recognised although the source still has offset 0.

    Only the replica's first batch shows them. The replicator reads it on links that do not start at ``earliest``."""
    plain, large, custody = lab.log("y1"), lab.log("y2"), f"custody.{lab.stream}"
    dead = {lab.log(f"dead{count}"): count for count in (25, 1_500, 100_000)}  # batches of 200 bytes, 2 and 67 kB
    for site in ("alpha", "beta"):
        await lab.make(site, *dead, plain, large, custody)
    for topic, count in ({custody: 25} | dead).items():
        for each in fillers(Gap(0, count, FOREIGN_PRODUCER_ID, 0, 0, NOW_MS, POSITION_KEY)):
            await lab.append("beta", {topic: bytes(each.data)})
    client = producer(lab.kafka("beta"))
    for topic in (*dead, plain, custody):
        send(client, topic, 0, 3)
    many = encode_batch(records(0, 5_000), producer_id=-1, epoch=-1, sequence=-1, codec=Codec.ZSTD)
    await lab.append("beta", {large: many})
    logs = [TopicPartition(topic) for topic in (plain, large, *dead, custody)]
    found = await interrupted(await lab.cluster("beta"), await lab.cluster("alpha"), logs, start)
    left = {} if start == "earliest" else {TopicPartition(topic): count for topic, count in dead.items()}
    assert found == dict.fromkeys(logs, 0) | left
