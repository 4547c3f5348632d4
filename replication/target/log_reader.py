"""Reads what a log really has: its end, the batch at an offset, batches in order (docs/append-convention.md).

The last batch is always read, not only where the broker has forgotten its producer state: end and last batch then
describe the same moment, whatever others append meanwhile.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.convention import marker_offset
from fairlead.kafka.protocol.batch import HEADER_BYTES, BatchHeader, parse_header, split
from fairlead.kafka.protocol.errors import BrokerError, broker_error
from fairlead.kafka.protocol.types import TopicPartition
from replication.batch.header_rewrite import canonical_crc
from replication.batch.prepared import PreparedBatch
from replication.target.mirror import LastBatch

READ_BYTES: Final = 4 << 20


class StoredBatch(NamedTuple):
    """One batch as a broker has it: writable bytes of its own."""

    header: BatchHeader
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


ANSWER_BYTES: Final = 8 << 20
BATCH_BYTES: Final = 2 << 20
AT_ONCE: Final = 2000


@dataclass(frozen=True, slots=True)
class StoredHeader:
    """The header of one batch as stored, as far as it decides anything."""

    base: int
    stop: int
    crc: int
    producer_id: int
    term: int
    marker: int

    @property
    def tail(self) -> LastBatch:
        return LastBatch(self.producer_id, self.term, self.marker, self.base, self.crc)

    def differs(self, prepared: PreparedBatch) -> bool:
        """Whether this is another batch than the one that was to be appended."""
        return (self.base, self.crc) != (prepared.base, prepared.crc)

    def beside(self, prepared: PreparedBatch) -> str:
        """Both batches for a person."""
        return (
            f"two different batches at offset {prepared.base}: the source's has offsets "
            f"{prepared.base}..{prepared.stop - 1}, term {prepared.term}, CRC {prepared.crc:08x}; the target's "
            f"{self.base}..{self.stop - 1}, term {self.term}, CRC {self.crc:08x}"
        )


async def read_ends(cluster: Cluster, logs: Collection[TopicPartition]) -> dict[TopicPartition, int | BrokerError]:
    """Log ends at the target."""
    return await cluster.end_offsets(logs) if logs else {}


async def read_tails(cluster: Cluster, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, LastBatch]:
    """Who wrote the last batch below each end; logs without any batch are left out."""
    stored = await stored_at(cluster, {tp: end - 1 for tp, end in ends.items() if end > 0})
    return {tp: each.tail for tp, each in stored.items()}


async def stored_at(cluster: Cluster, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, StoredHeader]:
    """The batches that contain these offsets; logs that have none there (deleted, not yet readable) are left out.

    Raises:
        WireError: the cluster cannot be reached, or answers with an error that may pass.
    """
    out: dict[TopicPartition, StoredHeader] = {}
    left = dict(offsets)
    while left:
        some = dict(list(left.items())[:AT_ONCE])
        answers = await cluster.fetch(some, max_wait_ms=0, max_bytes=ANSWER_BYTES, partition_max_bytes=BATCH_BYTES)
        answered = {tp: part for tp, part in answers.items() if part.error_code or len(part.records) >= HEADER_BYTES}
        for tp, part in answered.items():
            if part.error_code:
                error = broker_error(part.error_code, tp)
                if error.retriable:
                    raise error
                continue
            header = parse_header(part.records)
            out[tp] = StoredHeader(
                header.base_offset,
                header.next_offset,
                canonical_crc(part.records, header),
                header.producer_id,
                header.producer_epoch,
                marker_offset(header),
            )
        # A broker answers at least one log per request, the others as far as its answer has room. Nothing at all
        # means that none of them has such an offset.
        for tp in answered or some:
            left.pop(tp, None)
    return out
