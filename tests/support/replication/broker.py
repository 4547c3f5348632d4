"""A broker in memory with the rules that the append convention relies on, and with every kind of fault."""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
from collections.abc import AsyncIterator, Collection, Mapping
from types import SimpleNamespace
from typing import Any, cast

import msgspec

from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.protocol.batch import BatchHeader, parse_header, verify_crc
from fairlead.kafka.protocol.errors import UNKNOWN_TOPIC_ID
from fairlead.kafka.protocol.types import FetchedPartition, ProduceResult, ProducerState, TopicPartition
from replication.changes import PlanChanges
from replication.target.appender import TargetAppender

OUT_OF_ORDER, FENCED, LOST, NOT_LEADER, CORRUPT = 45, 47, 13, 6, 2


class Log:
    """One log: stored batches and the broker's producer state."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.start = 0
        self.end = 0
        self.state: tuple[int, int, int] | None = None  # producer, epoch, next sequence
        self.last: list[BatchHeader] = []

    def append(self, batch: bytes) -> ProduceResult:
        """Accept or refuse a batch as Kafka 4.3 does (measured; docs/append-convention.md)."""
        header = parse_header(batch)
        if not verify_crc(batch):
            return ProduceResult(CORRUPT)
        if self.state is not None and self.state[0] == header.producer_id:
            _, epoch, following = self.state
            if header.producer_epoch < epoch:
                return ProduceResult(FENCED)
            if header.producer_epoch == epoch:
                for each in self.last:
                    if (each.base_sequence, each.count, each.producer_epoch) == (
                        header.base_sequence,
                        header.count,
                        header.producer_epoch,
                    ):
                        return ProduceResult(0, each.base_offset, each.max_timestamp)
                if header.base_sequence != following:
                    return ProduceResult(OUT_OF_ORDER)
            elif header.base_sequence != 0:
                return ProduceResult(OUT_OF_ORDER)
        base = self.end
        self.batches.append(struct.pack(">q", base) + batch[8:])
        self.end += header.count
        self.state = header.producer_id, header.producer_epoch, header.base_sequence + header.count
        self.last = [*self.last, msgspec.structs.replace(header, base_offset=base)][-5:]
        return ProduceResult(0, base, -1)

    def delete_before(self, offset: int) -> None:
        """Delete batches that are wholly below the offset, as DeleteRecords does."""
        self.start = max(self.start, offset)
        self.batches = [each for each in self.batches if parse_header(each).next_offset > self.start]

    def at(self, offset: int) -> bytes:
        """Return the batch that contains an offset; empty when there is none."""
        for batch in self.batches:
            header = parse_header(batch)
            if header.base_offset <= offset < header.next_offset:
                return batch
        return b""


class Broker:
    """Stand in for ``fairlead.kafka.client.cluster.Cluster`` at the appender. ``luck`` decides which requests fail."""

    def __init__(self, luck: random.Random, *, trouble: float = 0.0) -> None:
        self.logs: dict[TopicPartition, Log] = {}
        self.luck = luck
        self.trouble = trouble
        self.topic_ids: dict[str, bytes] = {}  # a test sets one to make a topic another one
        self.metadata = SimpleNamespace(
            brokers={1: ("broker", 9092)}, topic_id=lambda topic: self.topic_ids.get(topic, topic.encode())
        )
        self.connections = 1
        self.pool = SimpleNamespace(incarnation=lambda role, node: self.connections)
        self.rivals: list[Any] = []  # called before each request, so that a test can append in between
        self.requests = 0
        self.states: dict[TopicPartition, tuple[ProducerState, ...]] = {}  # in the form of a DescribeProducers answer

    def log(self, topic: str, partition: int = 0) -> Log:
        return self.logs.setdefault(TopicPartition(topic, partition), Log())

    async def produce(
        self,
        batches: Mapping[TopicPartition, Any],
        *,
        topic_ids: Mapping[TopicPartition, bytes] | None = None,
        **_: Any,
    ) -> dict[TopicPartition, ProduceResult]:
        self.requests += 1
        for rival in self.rivals:
            rival()
        sent = {tp: bytes(batch) for tp, batch in batches.items()}
        if self.luck.random() < self.trouble:
            self.connections += 1
            if self.luck.random() < 0.5:  # the request is carried out, but its answer is lost
                for tp, batch in sent.items():
                    self.log(*tp).append(batch)
            return dict.fromkeys(sent, ProduceResult(LOST))
        answer = {}
        for tp, batch in sent.items():
            bad = self.luck.random() < self.trouble
            if topic_ids is not None and topic_ids[tp] != self.metadata.topic_id(tp.topic):
                answer[tp] = ProduceResult(UNKNOWN_TOPIC_ID)
            else:
                answer[tp] = ProduceResult(NOT_LEADER) if bad else self.log(*tp).append(batch)
        return answer

    async def describe_producers(
        self, logs: Collection[TopicPartition]
    ) -> dict[TopicPartition, tuple[ProducerState, ...]]:
        return {tp: self.states.get(tp, ()) for tp in logs}

    async def end_offsets(self, logs: Collection[TopicPartition], **_: Any) -> dict[TopicPartition, int]:
        for rival in self.rivals:
            rival()
        return {tp: self.log(*tp).end for tp in logs}

    async def start_offsets(self, logs: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self.log(*tp).start for tp in logs}

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        for tp, offset in before.items():
            self.log(*tp).delete_before(offset)
        return dict(before)

    async def fetch(self, positions: Mapping[TopicPartition, int], **_: Any) -> dict[TopicPartition, FetchedPartition]:
        return {
            tp: FetchedPartition(0, self.log(*tp).end, -1, 0, (), memoryview(bytearray(self.log(*tp).at(offset))))
            for tp, offset in positions.items()
        }


async def unlimited(_tp: TopicPartition) -> int:
    return 1 << 30


@contextlib.asynccontextmanager
async def running(broker: Broker) -> AsyncIterator[TargetAppender]:
    """Run an appender on the broker; at the end check its count of queued steps."""
    made = TargetAppender(cast(Cluster, broker), memory=1 << 20, changes=PlanChanges(), limit_of=unlimited)
    task = asyncio.ensure_future(made.run())
    try:
        yield made
        assert made._waiting == sum(len(each.queue) for each in made.replicas.values())  # noqa: SLF001
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
