"""Records of every kind arrive unchanged: nulls, headers, times, sizes, codecs, partitions."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from confluent_kafka import Producer

from fairlead.kafka.admin import alter_topics, create_logs, grow_topics
from fairlead.kafka.protocol.batch import parse_header
from fairlead.kafka.protocol.codecs import Codec
from fairlead.kafka.protocol.types import TopicPartition
from replication.batch.rebuild import raw_records
from tests.support.replication.consumers import producer, read_all, same, send
from tests.support.replication.lab import NOW_MS, Lab, states, until
from tests.support.replication.source_logs import Made, body, stored
from tests.support.waits import PATIENCE

pytestmark = pytest.mark.integration

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


async def test_nulls_headers_and_times_in_every_codec(lab: Lab) -> None:
    topic = lab.log("alpha.odd")
    await lab.make("alpha", topic)
    day = 86_400_000
    odd: Any = [("h", b"1"), ("h", b"2"), ("h", None), ("", b""), ("ü", b"\xff\0")]
    for codec in CODECS:
        client = producer(lab.kafka("alpha"), **{"compression.type": codec, "linger.ms": 20})
        client.produce(topic, value=None, key=b"tombstone", timestamp=NOW_MS)
        client.produce(topic, value=b"", key=b"", timestamp=NOW_MS)
        client.produce(topic, value=b"no key", key=None, timestamp=NOW_MS)
        client.produce(topic, value=None, key=None, timestamp=NOW_MS)
        client.produce(topic, value=b"v", headers=odd)
        client.produce(topic, value=b"v", headers=[("fairlead", b"not ours")])
        client.produce(topic, value=bytes(range(256)) * 100, key=bytes(range(256)))
        for time in (1, NOW_MS - 40 * 365 * day, NOW_MS + 30 * 365 * day, NOW_MS + 1000 * 365 * day):
            client.produce(topic, value=b"time", timestamp=time)
        client.produce(topic, value="text".encode("utf-16"), headers=[(f"h{n}", b"%d" % n) for n in range(100)])
        assert client.flush(PATIENCE) == 0
    end = await lab.end("alpha", topic)
    beta = lab.replicator(lab.one_way(), "beta")
    async with lab.running(beta):
        await lab.reaches("beta", topic, end)
        assert states(beta.snapshot()) == {}
    assert await same(lab, topic) == end == 12 * len(CODECS)


@pytest.mark.parametrize("codec", list(Codec))
async def test_bytes_that_only_raw_clients_send(lab: Lab, codec: Codec) -> None:
    """Batches with header keys that are not UTF-8, meaningless attribute bits or no time are copied if a broker accepts
    them, even when the replicator has to encode the batch again."""
    topic = lab.log("alpha.raw")
    await lab.make("alpha", topic)
    odd = body(b"\xfe", b"\xff", [(b"\xff\xfe", b"1"), (b"\xff\xfe", None), (b"", b"")])
    records = [Made(n, NOW_MS + n, odd, attributes=n) for n in range(3)]
    await lab.append("alpha", {topic: stored(0, 2, records, codec=codec)})
    cluster = await lab.cluster("alpha")
    timeless = stored(0, 1, [Made(0, -1, odd), Made(1, -1, odd)], codec=codec)
    answer = await cluster.produce({TopicPartition(topic): timeless})
    assert answer[TopicPartition(topic)].base_offset == 3
    await asyncio.to_thread(alter_topics, lab.kafka("alpha"), {topic: {"message.timestamp.type": "LogAppendTime"}})
    first = 0  # offset of the first batch that the setting applies to

    async def in_effect() -> bool:  # the broker that answered has accepted it; it applies it a moment later
        nonlocal first
        answer = await cluster.produce({TopicPartition(topic): stored(0, 2, records, codec=codec)})
        first = answer[TopicPartition(topic)].base_offset
        return answer[TopicPartition(topic)].log_append_time_ms > 0

    await until(in_effect, "the broker does not apply LogAppendTime")
    beta = lab.replicator(lab.one_way(), "beta")
    async with lab.running(beta):
        await lab.reaches("beta", topic, first + 3)
        assert states(beta.snapshot()) == {}
    there = [record for batch in await lab.stored("beta", topic) for record in raw_records(batch)]
    here = [record for batch in await lab.stored("alpha", topic) for record in raw_records(batch)]
    assert there == here
    assert [record.timestamp_ms for record in here[3:5]] == [-1, -1]
    assert len(here) == first + 3
    assert all(record.timestamp_ms > NOW_MS + 2 for record in here[first:])


async def test_log_append_time_is_seen_as_the_records_time(lab: Lab) -> None:
    topic = lab.log("alpha.appendtime")
    await lab.make("alpha", topic, **{"message.timestamp.type": "LogAppendTime"})
    for codec in CODECS:
        send(producer(lab.kafka("alpha"), **{"compression.type": codec, "linger.ms": 20}), topic, 0, 20)
    beta = lab.replicator(lab.one_way(), "beta")
    async with lab.running(beta):
        await lab.reaches("beta", topic, 100)
    again = lab.replicator(lab.one_way(), "beta")  # must not take the different last batch for divergence
    async with lab.running(again):
        send(producer(lab.kafka("alpha")), topic, 0, 5)
        await lab.reaches("beta", topic, 105)
        assert states(again.snapshot()) == {}
    assert await same(lab, topic) == 105


async def test_topics_of_others_have_any_number_of_partitions(lab: Lab) -> None:
    topic = lab.log("alpha.many")
    await asyncio.to_thread(create_logs, lab.kafka("alpha"), {topic: {}}, partitions={topic: 4})
    await (await lab.cluster("alpha")).wait_writable([topic])
    client = producer(lab.kafka("alpha"), **{"compression.type": "lz4", "linger.ms": 20})
    send(client, topic, 0, 400)
    beta = lab.replicator(lab.one_way(), "beta")
    async with lab.running(beta):
        await reach_all(lab, topic, 4)
        await asyncio.to_thread(grow_topics, lab.kafka("alpha"), {topic: 6})
        later = producer(lab.kafka("alpha"))
        for partition in range(6):
            write_to(later, topic, partition, 30)
        await reach_all(lab, topic, 6)
        assert states(beta.snapshot()) == {}
    assert await same(lab, topic) == 400 + 6 * 30
    view = await asyncio.to_thread(read_all, lab.kafka("beta"), topic, committed=True)
    assert len(view.starts) == 6


def write_to(client: Producer, topic: str, partition: int, count: int) -> None:
    for n in range(count):
        client.produce(topic, partition=partition, value=b"later %d" % n, key=b"k", timestamp=NOW_MS + n)
    assert client.flush(PATIENCE) == 0


async def reach_all(lab: Lab, topic: str, partitions: int) -> None:
    """Wait until every partition ends where the source's ends."""
    logs = [TopicPartition(topic, n) for n in range(partitions)]
    here, there = await lab.cluster("alpha"), await lab.cluster("beta")
    await here.topics([topic], refresh=True)
    ends = await here.end_offsets(logs)

    async def there_too() -> bool:
        found = await there.topics([topic], refresh=True)
        return len(found[topic].partitions if topic in found else {}) == partitions and (
            await there.end_offsets(logs) == ends
        )

    await until(there_too, f"{topic} does not reach {ends}")


async def test_an_empty_log_is_there_and_becomes_a_log(lab: Lab) -> None:
    """An empty log exists at the target too, and its first record is copied when it comes."""
    topic = lab.log("alpha.empty")
    await lab.make("alpha", topic)
    beta = lab.replicator(lab.one_way(), "beta")
    async with lab.running(beta):
        await lab.reaches("beta", topic, 0)
        assert await lab.end("beta", topic) == 0
        send(producer(lab.kafka("alpha")), topic, 0, 1)
        await lab.reaches("beta", topic, 1)
    assert await same(lab, topic) == 1


async def test_batches_of_megabytes(lab: Lab) -> None:
    """A record of 6 MB, and a large batch that does not compress, arrive: the target's limit follows the source's."""
    topic = lab.log("alpha.huge")
    await lab.make("alpha", topic, **{"max.message.bytes": str(12 << 20)})
    chance = random.Random(3)  # noqa: S311 - content that does not compress, no secret
    client = producer(
        lab.kafka("alpha"),
        **{"message.max.bytes": 12 << 20, "batch.size": 8 << 20, "linger.ms": 300, "compression.type": "lz4"},
    )
    client.produce(topic, value=chance.randbytes(6 << 20), timestamp=NOW_MS)
    assert client.flush(PATIENCE) == 0
    for n in range(3000):
        client.produce(topic, value=chance.randbytes(1000), key=b"%d" % n, timestamp=NOW_MS + n)
    assert client.flush(PATIENCE) == 0
    beta = lab.replicator(lab.one_way(), "beta")
    async with lab.running(beta):
        await lab.reaches("beta", topic, 3001)
        assert states(beta.snapshot()) == {}
    assert max(parse_header(batch).size for batch in await lab.stored("beta", topic)) > 6 << 20
    assert await same(lab, topic) == 3001
