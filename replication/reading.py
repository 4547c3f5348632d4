"""Reading single logs batch by batch, as they are stored."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final, NamedTuple

from fairlead.wire.batch import HEADER_BYTES, Header, split
from fairlead.wire.cluster import Cluster
from fairlead.wire.errors import broker_error
from fairlead.wire.types import TopicPartition

READ_BYTES: Final = 4 << 20


class StoredBatch(NamedTuple):
    """One batch as a broker has it: writable bytes of its own."""

    header: Header
    data: memoryview


async def batches(cluster: Cluster, log: TopicPartition, start: int, stop: int) -> AsyncIterator[StoredBatch]:
    """Every stored batch with offsets from ``start`` to before ``stop``, whole, in order.

    Raises:
        WireError: the log cannot be read.
    """
    at = start
    while at < stop:
        answer = (await cluster.fetch({log: at}, max_wait_ms=0, partition_max_bytes=READ_BYTES))[log]
        if answer.error_code:
            raise broker_error(answer.error_code, log)
        if len(answer.records) < HEADER_BYTES:
            return  # nothing is stored from here to the end: compaction took it
        for first, last, header in split(answer.records):
            if header.base_offset >= stop:
                return
            if header.next_offset > at:
                yield StoredBatch(header, answer.records[first:last])
                at = header.next_offset


async def first_batch(cluster: Cluster, log: TopicPartition, offset: int) -> StoredBatch | None:
    """The stored batch that contains ``offset``, or the first after it; None when there is neither."""
    async for each in batches(cluster, log, offset, 1 << 62):
        return each
    return None
