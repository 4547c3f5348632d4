"""Copy a log to another topic of the same site: the same batches at the same offsets.

A batch is copied byte for byte if the broker accepts that. If not (sequences of ordinary clients, holes of compaction,
transactions), its records are copied in a batch without producer id. An interrupted copy continues at its own end.
A log counts as kept only when ``difference`` returns an empty text.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from fairlead.errors import FairleadError
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.reader import OffsetRange
from fairlead.kafka.convention import FILLERS_PER_BATCH, filler_batch, is_filler
from fairlead.kafka.protocol.batch import (
    LOG_APPEND_TIME,
    BatchHeader,
    crc_of,
    parse_header,
    zero_base_offset,
)
from fairlead.kafka.protocol.errors import BrokerError, broker_error
from fairlead.kafka.protocol.record import NewRecord, Record, decode_batch, encode_batch
from fairlead.kafka.protocol.types import TopicPartition
from fairlead.records import headers
from replication.batch.header_rewrite import rewrite_header
from replication.batch.prepared import GAP_KEY, POSITION_KEY
from replication.target.log_reader import StoredBatch, batches

NOBODY: Final = -1  # producer id, epoch and sequence of a batch without a producer
TRIES: Final = 3

OnProgress = Callable[[TopicPartition, int], None]
"""Called with a log and the offset up to which it is copied."""


class Copier:
    """Copy logs within one cluster. No other client may write to the copies meanwhile."""

    def __init__(self, cluster: Cluster, *, on_progress: OnProgress | None = None) -> None:
        self._cluster = cluster
        self._tell = on_progress or (lambda _log, _offset: None)
        self._strangers: set[tuple[TopicPartition, int]] = (
            set()
        )  # producers whose sequences the broker refuses in a copy

    async def copy(self, log: TopicPartition, kept: TopicPartition, extent: OffsetRange) -> None:
        """Copy the offsets ``extent`` of ``log`` to ``kept``; continue where an earlier run ended.

        Raises:
            WireError: the cluster cannot be reached. FairleadError: the broker refuses a batch, or ``kept``
            does not end where it must.
        """
        end = await self._end(kept)
        first = True
        async for batch in batches(self._cluster, log, max(extent.start, end), extent.end):
            header = batch.header
            if header.next_offset <= end:
                continue
            key = POSITION_KEY if first and end < extent.start else GAP_KEY
            end = await self._fill(kept, end, header.base_offset, header.max_timestamp, key)
            end = await self._append(kept, batch, end)
            first = False
            self._tell(log, end)
        start = (await self._cluster.start_offsets([kept]))[kept]
        if isinstance(start, BrokerError):
            raise start
        if start < extent.start < end:  # only fillers; copied batches stay
            deleted = (await self._cluster.delete_records({kept: extent.start}))[kept]
            if isinstance(deleted, BrokerError):
                raise deleted

    async def _fill(self, kept: TopicPartition, end: int, to: int, when: int, key: bytes) -> int:
        """Fill offsets without records, so that the next batch gets its own offset."""
        while end < to:
            count = min(to - end, FILLERS_PER_BATCH)
            made = memoryview(
                bytearray(filler_batch(count, term=0, offset=end, marker=0, timestamp_ms=max(when, 1), key=key))
            )
            rewrite_header(made, NOBODY, NOBODY, NOBODY)
            end = await self._append_or_raise(kept, made, end, end + count)
        return end

    async def _append(self, kept: TopicPartition, batch: StoredBatch, end: int) -> int:
        header, stop = batch.header, batch.header.next_offset
        if end > header.base_offset:
            raise FairleadError(
                f"{kept} ends at {end}, inside the batch {header.base_offset}..{stop - 1}",
                hint=f"another client writes to {kept}; repeat the command, which copies to another topic",
            )
        producer = (kept, header.producer_id)
        if _travels(header) and producer not in self._strangers:
            # "Duplicate" at another offset means that the broker mistook the batch for a retry of another one.
            sent = memoryview(bytearray(batch.data))
            zero_base_offset(sent)
            code, end = await self._try(kept, sent, end, stop)
            if not code:
                return end
            self._strangers.add(producer)
        return await self._append_or_raise(kept, without_producer(batch), end, stop)

    async def _append_or_raise(self, kept: TopicPartition, data: memoryview, end: int, stop: int) -> int:
        code, end = await self._try(kept, data, end, stop)
        if code:
            raise broker_error(code, kept)
        return end

    async def _try(self, kept: TopicPartition, data: memoryview, end: int, stop: int) -> tuple[int, int]:
        """Append at ``end``; after a lost answer, read the end. Return (error code, end)."""
        for _ in range(TRIES):
            result = (await self._cluster.produce({kept: data}))[kept]
            if result.appended_now and result.base_offset != end:
                raise FairleadError(
                    f"a batch for offset {end} of {kept} was appended at {result.base_offset}",
                    hint=f"another client writes to {kept}; repeat the command, which copies to another topic",
                )
            if result.appended_now:
                return 0, stop
            there = await self._end(kept)
            if there == stop:
                return 0, stop
            if result.error_code and broker_error(result.error_code).retriable:
                continue
            return result.error_code or _TAKEN_FOR_ANOTHER, there
        raise broker_error(result.error_code, kept)

    async def _end(self, kept: TopicPartition) -> int:
        end = (await self._cluster.end_offsets([kept]))[kept]
        if isinstance(end, BrokerError):
            raise end
        return end


_TAKEN_FOR_ANOTHER: Final = 46  # DUPLICATE_SEQUENCE_NUMBER


def _travels(header: BatchHeader) -> bool:
    """Return whether a client may send this batch as it is stored."""
    return not (header.is_control or header.is_transactional or header.has_holes or header.attributes & LOG_APPEND_TIME)


def without_producer(batch: StoredBatch) -> memoryview:
    """Return the same records in a batch without producer id; holes and control records become fillers.

    The result is deterministic.
    """
    header = batch.header
    data = memoryview(bytearray(batch.data))
    if not (header.is_control or header.has_holes or header.attributes & LOG_APPEND_TIME):
        rewrite_header(data, NOBODY, NOBODY, NOBODY)
        return data
    found = {record.offset: record for record in decode_batch(data)}
    made = [_again(found.get(offset), header) for offset in range(header.base_offset, header.next_offset)]
    return memoryview(
        bytearray(encode_batch(made, producer_id=NOBODY, epoch=NOBODY, sequence=NOBODY, codec=header.codec))
    )


def _again(record: Record | None, header: BatchHeader) -> NewRecord:
    if record is None:
        when = max(header.max_timestamp, 1)
        return NewRecord(None, GAP_KEY, ((headers.KIND, headers.FILLER),), timestamp_ms=when)
    return NewRecord(record.value, record.key, record.headers, timestamp_ms=max(record.timestamp_ms, 0))


async def difference(
    cluster: Cluster, log: TopicPartition, kept: TopicPartition, extent: OffsetRange, *, strict: bool = False
) -> str:
    """Describe the first difference between a log and its copy; empty if there is none.

    Args:
        strict: A batch that was copied without its producer id counts as different.

    Raises:
        WireError: one of them cannot be read.
    """
    copies = batches(cluster, kept, *extent)
    async for batch in batches(cluster, log, *extent):
        copy = await anext(copies, None)
        while copy is not None and copy.header.next_offset <= batch.header.base_offset:
            if not all(map(is_filler, decode_batch(copy.data))):
                return f"{kept} has a batch at offset {copy.header.base_offset} that {log} lacks"
            copy = await anext(copies, None)
        if copy is None:
            return f"{kept} has nothing at offset {batch.header.base_offset}"
        if identity(copy) != identity(batch) and (strict or identity(copy) != _as_sent(batch)):
            return (
                f"the batch at offset {batch.header.base_offset} is different in {kept}: offsets "
                f"{copy.header.base_offset}..{copy.header.last_offset}, CRC {copy.header.crc:08x}"
            )
    return ""


def identity(batch: StoredBatch) -> tuple[int, int, int]:
    """Return the batch's offsets, and the CRC computed from the stored bytes."""
    return batch.header.base_offset, batch.header.next_offset, crc_of(batch.data)


def _as_sent(batch: StoredBatch) -> tuple[int, int, int]:
    made = without_producer(batch)
    return batch.header.base_offset, batch.header.next_offset, parse_header(made).crc


def pack_batch(batch: memoryview, extent: OffsetRange, *, log: TopicPartition, site: str) -> bytes:
    """Wrap a batch that a topic refuses in the value of one record that every topic accepts."""
    offsets = f"{extent.start}..{extent.end - 1}"
    facts: Sequence[tuple[str, bytes]] = (
        ("fairlead.kept", b"batch"),
        ("log", str(log).encode()),
        ("site", site.encode()),
        ("offsets", offsets.encode()),
    )
    record = NewRecord(
        bytes(batch), f"{log}@{offsets}".encode(), tuple(facts), timestamp_ms=time.time_ns() // 1_000_000
    )
    return encode_batch([record], producer_id=NOBODY, epoch=NOBODY, sequence=NOBODY)
