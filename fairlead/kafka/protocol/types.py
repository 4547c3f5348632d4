"""Values that requests and answers carry. Pure data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeVar

import msgspec

T = TypeVar("T")
Coded = tuple[int, T | None]
"""A broker's answer about one log: an error code, and the value when the code is 0."""


class TopicPartition(NamedTuple):
    """A log under Kafka's name for it. Fairlead's own logs have one partition, number 0."""

    topic: str
    partition: int = 0

    def __str__(self) -> str:
        return self.topic if self.partition == 0 else f"{self.topic}/{self.partition}"

    @classmethod
    def parse(cls, text: str) -> TopicPartition:
        """Parse ``topic``, which is partition 0, or ``topic/3``; raise ``ValueError`` if no number follows."""
        topic, slash, number = text.partition("/")
        return cls(topic, int(number) if slash else 0)


TP = TopicPartition


def partitions_of(topic: str, count: int) -> Iterator[TopicPartition]:
    """Yield the partitions of a topic that has so many."""
    return map(TopicPartition, [topic] * count, range(count))


class TopicInfo(msgspec.Struct, frozen=True, gc=False):
    """A topic in a cluster's metadata.

    Args:
        topic_id: 16 bytes; changes when a topic is deleted and created again under the same name.
        partitions: Partition number to the node id of its leader; -1 while it has none.
        replicas: How many brokers keep a copy of partition 0.
    """

    name: str
    topic_id: bytes
    partitions: Mapping[int, int]
    replicas: int = 1


class ProduceResult(msgspec.Struct, frozen=True, gc=False):
    """A broker's answer for one batch. ``error_code`` 0 alone does not prove an append: see ``appended_now``.

    When the outcome is unknown, the code is one that our client sets: 13 (connection lost) or 7 (timed out).
    """

    error_code: int
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    error_message: str | None = None

    @property
    def appended_now(self) -> bool:
        """Whether this request appended the batch; a duplicate answer carries a time instead of -1."""
        return self.error_code == 0 and self.log_append_time_ms == -1


class FetchedPartition(msgspec.Struct, frozen=True, gc=False):
    """One log's part of a Fetch answer.

    ``records`` is a view into the answer's frame: whole stored batches, of which the last may be cut short, and of
    which the first may begin before the requested offset. The view is writable and nobody else uses the frame, so
    batches may be changed in place; holding it keeps the whole frame in memory.
    """

    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...]  # (producer id, first offset) of aborted transactions; isolation 1 only
    records: memoryview


class ProducerState(NamedTuple):
    """A broker's state of one producer of a log (DescribeProducers)."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp: int


class LogPosition(NamedTuple):
    """Where a log ends and in which term: the next record gets offset ``end``.

    ``term`` 0 and ``marker`` -1 mean that the last batch was not written under the append convention.
    """

    end: int
    term: int
    marker: int


class Appended(NamedTuple):
    """The offsets of stored records: ``base_offset`` up to, not including, ``base_offset + count``."""

    base_offset: int
    count: int  # type: ignore[assignment]  # a field shadows tuple.count on purpose
