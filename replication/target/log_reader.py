"""Read a log as stored: its end, the batch at an offset, batches in order (docs/append-convention.md).

The last batch is always read, not only where the broker has forgotten its producer state. So the end and the last batch
describe the same moment, even if other clients append meanwhile.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.reader import OffsetRange
from fairlead.kafka.convention import marker_offset
from fairlead.kafka.protocol.batch import (
    HEADER_BYTES,
    LENGTH_FROM,
    MAGIC,
    MAGIC_AT,
    BatchHeader,
    parse_header,
    split,
    verify_crc,
)
from fairlead.kafka.protocol.errors import OFFSET_OUT_OF_RANGE, CorruptBatch, WireError, broker_error
from fairlead.kafka.protocol.types import FetchedPartition, TopicPartition
from replication.batch.header_rewrite import canonical_crc
from replication.batch.prepared import PreparedBatch
from replication.target.mirror import LastBatch

READ_BYTES: Final = 4 << 20


class StoredBatch(NamedTuple):
    """One batch as a broker stores it, in a writable buffer of its own."""

    header: BatchHeader
    data: memoryview


async def batches(cluster: Cluster, log: TopicPartition, start: int, stop: int) -> AsyncIterator[StoredBatch]:
    """Yield every stored batch that has offsets from ``start`` to ``stop - 1``, whole, in order.

    Raises:
        WireError: the log cannot be read.
    """
    at = start
    while at < stop:
        answer = await _fetch(cluster, log, at)
        if len(answer.records) < HEADER_BYTES:
            return  # compaction has removed everything from here to the end
        for batch in split(answer.records):
            if batch.header.base_offset >= stop:
                return
            if batch.header.next_offset > at:
                yield StoredBatch(batch.header, answer.records[batch.start : batch.stop])
                at = batch.header.next_offset


async def first_batch(cluster: Cluster, log: TopicPartition, offset: int) -> StoredBatch | None:
    """Return the stored batch that contains ``offset``, or the first after it; None when there is neither."""
    async for each in batches(cluster, log, offset, 1 << 62):
        return each
    return None


class RawBatch(NamedTuple):
    """The bytes of one batch, and the offsets that it takes. Of a damaged batch its header says neither its offsets nor
    its end for certain: it reaches from the offset that was asked for to the next batch, or to the log's end."""

    extent: OffsetRange
    data: memoryview
    is_damaged: bool


async def raw_batch(cluster: Cluster, log: TopicPartition, offset: int) -> RawBatch | None:
    """Return the batch that contains ``offset``, or the first after it, also if its header cannot be read; None if
    there is none.

    Raises:
        WireError: the log cannot be read, or the batch's length is impossible.
    """
    answer = await _fetch(cluster, log, offset)
    first, rest = framed(answer.records)
    if first is None:
        return None
    base, header = base_offset(first), sound_header(first)
    if header is not None:
        return RawBatch(OffsetRange(base, header.next_offset), first, is_damaged=False)
    if len(rest) < HEADER_BYTES:  # the last one of its segment, or it fills the answer
        rest = (await _fetch(cluster, log, offset, len(first) + READ_BYTES)).records[len(first) :]
    following = _base_behind(rest, min(offset, base), base)
    if following is None:
        following = await _next_base(cluster, log, offset, base, answer.high_watermark)
    return RawBatch(OffsetRange(min(offset, base), following), first, is_damaged=True)


async def _next_base(cluster: Cluster, log: TopicPartition, offset: int, base: int, end: int) -> int:
    """Return the base offset of what follows the last batch of a segment, or the log's end. The broker returns that
    batch for ``offset`` and all others that it claims, but not for those of the next segment."""
    low, high, found = offset, end, None
    while high - low > 1:
        middle = (low + high) // 2
        records = (await _fetch(cluster, log, middle, HEADER_BYTES)).records
        if len(records) >= HEADER_BYTES and base_offset(records) == base:
            low = middle
        else:
            high, found = middle, _base_behind(records, offset, base)
    return end if found is None else found


async def _fetch(cluster: Cluster, log: TopicPartition, offset: int, size: int | None = None) -> FetchedPartition:
    size = READ_BYTES if size is None else size
    answer = (await cluster.fetch({log: offset}, max_wait_ms=0, partition_max_bytes=size))[log]
    if answer.error_code:
        raise broker_error(answer.error_code, log)
    return answer


def framed(records: memoryview) -> tuple[memoryview | None, memoryview]:
    """Return the first batch and what follows it. Every format begins with the base offset and the length."""
    if len(records) < HEADER_BYTES:
        return None, records
    size = LENGTH_FROM + int.from_bytes(records[8:LENGTH_FROM], "big", signed=True)
    if not HEADER_BYTES <= size <= len(records):
        raise CorruptBatch(f"the batch at offset {base_offset(records)} claims to be {size - LENGTH_FROM} bytes long")
    return records[:size], records[size:]


def _base_behind(records: memoryview, offset: int, base: int) -> int | None:
    """Return the base offset of the first batch, which follows that at ``base``; None without one. A batch of an older
    format has that of its last record there, so the offset after ``base`` is returned: nothing of it may be passed
    unseen.

    Raises:
        CorruptBatch: it is not after ``offset``.
    """
    if len(records) < HEADER_BYTES:
        return None
    found = base_offset(records)
    if found <= offset or (records[MAGIC_AT] != MAGIC and found <= base):
        raise CorruptBatch(f"the batch after offset {offset} claims to begin at {found}")
    return found if records[MAGIC_AT] == MAGIC else base + 1


def sound_header(batch: memoryview) -> BatchHeader | None:
    """Return the header of one batch; None if the batch is damaged."""
    with contextlib.suppress(CorruptBatch):
        header = parse_header(batch)
        if header.next_offset > header.base_offset and verify_crc(batch):
            return header
    return None


def base_offset(records: memoryview) -> int:
    """Return the base offset of the first batch as its header has it, in whatever format."""
    return int.from_bytes(records[:8], "big", signed=True)


ANSWER_BYTES: Final = 8 << 20
BATCH_BYTES: Final = 2 << 20
AT_ONCE: Final = 2000


@dataclass(frozen=True, slots=True)
class StoredHeader:
    """The fields of one stored batch's header that the appender compares."""

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
        """Return whether this is another batch than ``prepared``, which should be stored here."""
        return (self.base, self.crc) != (prepared.base, prepared.crc)

    def beside(self, prepared: PreparedBatch) -> str:
        """Describe both batches for a message."""
        return (
            f"two different batches at offset {prepared.base}: the source's has offsets "
            f"{prepared.base}..{prepared.stop - 1}, term {prepared.term}, CRC {prepared.crc:08x}; the target's "
            f"{self.base}..{self.stop - 1}, term {self.term}, CRC {self.crc:08x}"
        )


async def read_tails(
    cluster: Cluster, ends: Mapping[TopicPartition, int], *, seconds: float | None = None
) -> dict[TopicPartition, LastBatch | WireError]:
    """Read the identity of the last batch below each end; logs without any batch are left out. The rest as for
    ``stored_at``."""
    stored = await stored_at(cluster, {tp: end - 1 for tp, end in ends.items() if end > 0}, seconds=seconds)
    return {tp: each.tail if isinstance(each, StoredHeader) else each for tp, each in stored.items()}


async def stored_at(
    cluster: Cluster, offsets: Mapping[TopicPartition, int], *, seconds: float | None = None
) -> dict[TopicPartition, StoredHeader | WireError]:
    """Read the headers of the batches that contain these offsets. Leave out logs that have none there (deleted). The
    result has the error of a log that cannot be read, or whose batch is damaged.

    Args:
        seconds: As for ``Cluster.end_offsets``.

    Raises:
        WireError: the cluster cannot be reached.
    """
    out: dict[TopicPartition, StoredHeader | WireError] = {}
    left = dict(offsets)
    while left:
        some = dict(list(left.items())[:AT_ONCE])
        answers = await cluster.fetch(
            some, max_wait_ms=0, max_bytes=ANSWER_BYTES, partition_max_bytes=BATCH_BYTES, seconds=seconds
        )
        answered = {tp: part for tp, part in answers.items() if part.error_code or len(part.records) >= HEADER_BYTES}
        for tp, part in answered.items():
            if part.error_code == OFFSET_OUT_OF_RANGE:
                continue
            if part.error_code:
                out[tp] = broker_error(part.error_code, tp)
                continue
            try:
                header = parse_header(part.records)
            except CorruptBatch as error:
                out[tp] = error
                continue
            out[tp] = StoredHeader(
                header.base_offset,
                header.next_offset,
                canonical_crc(part.records, header),
                header.producer_id,
                header.producer_epoch,
                marker_offset(header),
            )
        # A broker answers at least one log per request, and more while its answer has room. An empty answer means
        # that none of these logs has a batch at its offset.
        for tp in answered or some:
            left.pop(tp, None)
    return out
