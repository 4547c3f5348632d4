"""Write as ordinary clients do, and compare how consumers see a log at two sites.

This uses confluent-kafka, which shares no code with replication.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka import TopicPartition as KafkaPartition

from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.records import headers as names
from tests.support.replication.lab import NOW_MS, Lab
from tests.support.waits import PATIENCE


class Seen(NamedTuple):
    """One record as a consumer receives it."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    @property
    def is_filler(self) -> bool:
        return (names.KIND, names.FILLER) in self.headers


@dataclass(frozen=True)
class View:
    """All records of a topic that one consumer can read, and the start and end of each partition."""

    records: list[Seen]
    starts: dict[int, int]
    ends: dict[int, int]  # the consumer's position after it has read everything

    @property
    def data(self) -> list[Seen]:
        return [each for each in self.records if not each.is_filler]


def read_all(endpoint: KafkaEndpoint, topic: str, *, committed: bool) -> View:
    """Read a topic from its beginning to its end."""
    consumer = Consumer(
        {
            **endpoint.librdkafka(),
            "group.id": "same-for-consumers",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "fetch.wait.max.ms": 20,
            "fetch.message.max.bytes": 16 << 20,
            "check.crcs": True,
            "log_level": 0,
        }
    )
    try:
        count = len(consumer.list_topics(topic, timeout=PATIENCE).topics[topic].partitions)
        starts = {
            n: consumer.get_watermark_offsets(KafkaPartition(topic, n), timeout=PATIENCE)[0] for n in range(count)
        }
        consumer.assign([KafkaPartition(topic, n, at) for n, at in starts.items()])
        records: list[Seen] = []
        ended: set[int] = set()
        deadline = time.monotonic() + PATIENCE
        while len(ended) < count:
            assert time.monotonic() < deadline, f"{topic} at {endpoint.site} is not read in {PATIENCE} s"
            for message in consumer.consume(1000, 0.2):
                error = message.error()
                if error is None:
                    records.append(_seen(message))
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                    ended.add(message.partition() or 0)
                else:
                    raise AssertionError(str(error))
        ends = {each.partition: each.offset for each in consumer.position([KafkaPartition(topic, n) for n in starts])}
        return View(sorted(records), starts, ends)
    finally:
        consumer.close()


def _seen(message: Message) -> Seen:
    partition, offset = message.partition(), message.offset()
    assert partition is not None and offset is not None
    found = message.headers() or []
    headers = tuple((name, content if content is None else bytes(content)) for name, content in found)
    return Seen(partition, offset, message.timestamp()[1], message.key(), message.value(), headers)


def assert_same_for_consumers(
    source: KafkaEndpoint, target: KafkaEndpoint, topic: str, *, compacts: bool = False
) -> list[Seen]:
    """Fail unless consumers of both sites see the same committed records: offsets, times, keys, values, headers.

    At the target, a read_uncommitted consumer must see no more than that, because aborted records are not copied.
    Every offset there is data or a marked filler.

    Args:
        compacts: Both sites compact the log independently: a record that a later one of its key replaces may be at
            one site only, and the target's log may have gaps again.

    Returns:
        The source's committed records.
    """
    here = read_all(source, topic, committed=True)
    for committed in (True, False):
        there = read_all(target, topic, committed=committed)
        assert there.starts.keys() == here.starts.keys()
        wanted = [each for each in here.data if each.offset >= there.starts[each.partition]]
        found = [each for each in there.data if each.offset >= here.starts[each.partition]]
        if compacts:
            wanted, found = newest(wanted, found)
        else:
            for partition, start in there.starts.items():
                offsets = [each.offset for each in there.records if each.partition == partition]
                assert offsets == list(range(start, start + len(offsets)))
        assert found == wanted, first_difference(wanted, found)
    return here.data


async def same(lab: Lab, topic: str, *, compacts: bool = False) -> int:
    """Fail unless consumers of alpha and beta see the same (``assert_same_for_consumers``); return how many records."""
    here, there = lab.kafka("alpha"), lab.kafka("beta")
    return len(await asyncio.to_thread(assert_same_for_consumers, here, there, topic, compacts=compacts))


def newest(one: list[Seen], other: list[Seen]) -> tuple[list[Seen], list[Seen]]:
    """Return both lists without records that only one of them has and a later record of the same key replaces."""
    last: dict[tuple[int, bytes | None], int] = {}
    for each in (*one, *other):
        last[each.partition, each.key] = max(each.offset, last.get((each.partition, each.key), 0))

    def kept(records: list[Seen], others: list[Seen]) -> list[Seen]:
        places = {(each.partition, each.offset) for each in others}
        return [
            each
            for each in records
            if (each.partition, each.offset) in places or each.offset == last[each.partition, each.key]
        ]

    return kept(one, other), kept(other, one)


def first_difference(wanted: list[Seen], found: list[Seen]) -> str:
    """Describe the first record in which two lists differ."""
    for one, other in zip(wanted, found, strict=False):
        if one != other:
            return f"source: {one}, target: {other}"
    longer, name = (wanted, "source") if len(wanted) > len(found) else (found, "target")
    return f"only at the {name}: {longer[min(len(wanted), len(found))]}" if len(wanted) != len(found) else ""


def producer(endpoint: KafkaEndpoint, **settings: Any) -> Producer:
    """Return a producer that sends without delay; ``settings`` are librdkafka's."""
    return Producer({**endpoint.librdkafka(), "linger.ms": 0, "log_level": 0, **settings})


def send(to: Producer, topic: str, first: int, count: int, key: Callable[[int], str] = str) -> None:
    """Send the records ``first`` to before ``first + count``, and wait until the broker has them."""
    for n in range(first, first + count):
        to.produce(topic, value=f"value {n}", key=key(n), headers=[("n", str(n).encode())], timestamp=NOW_MS + n)
    assert to.flush(PATIENCE) == 0
