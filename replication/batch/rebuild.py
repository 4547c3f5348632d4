"""Rebuild batches record by record, split batches, and make filler batches for gaps. Pure functions.

Records are parsed only up to their offset and time. Key, value and headers stay the same bytes, even header keys that
are not UTF-8, repeated ones, and the unused attribute byte.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from fairlead.errors import FairleadError
from fairlead.kafka.convention import (
    FENCE_EPOCH,
    FILLER_HEADERS,
    FILLERS_PER_BATCH,
    FOREIGN_EPOCH,
    FOREIGN_PRODUCER_ID,
    PRODUCER_ID,
    filler_batch,
    filler_body,
)
from fairlead.kafka.protocol.batch import HEADER_BYTES, LOG_APPEND_TIME, BatchHeader, Buffer, parse_header, verify_crc
from fairlead.kafka.protocol.codecs import Codec, compress, decompress
from fairlead.kafka.protocol.coding import decode_signed, encode_signed
from fairlead.kafka.protocol.errors import CorruptBatch, UnreadableRecords
from fairlead.kafka.protocol.record import build_batch
from replication.batch.header_rewrite import rewrite_header
from replication.batch.prepared import GAP_KEY, POSITION_KEY, SEQUENCES, Gap, PreparedBatch, RejectedBatch

MOST_OFFSETS: Final = 1_000_000  # of a batch that is written again: each takes memory, and a header may claim any
FEW_FILLERS: Final = 100  # an uncompressed batch that needs more of them than this is compressed
_GAP: Final = filler_body(GAP_KEY)
_NO_ATTRIBUTES: Final = b"\0"


class RawRecord(NamedTuple):
    """A record with its absolute offset and time; ``body`` is everything from the key on, as stored."""

    offset: int
    timestamp_ms: int
    attributes: bytes
    body: bytes

    @property
    def is_filler(self) -> bool:
        """Whether the only header is that of fillers (as ``convention.is_filler``, for undecoded records)."""
        if not self.body.endswith(FILLER_HEADERS):
            return False
        size, at = decode_signed(self.body, 0)
        size, at = decode_signed(self.body, at + max(size, 0))
        return at + max(size, 0) == len(self.body) - len(FILLER_HEADERS)


def raw_records(batch: Buffer) -> list[RawRecord]:
    """The records of one batch; none for a control batch or an emptied one. Uses LogAppendTime if the batch has it.

    Raises:
        CorruptBatch: the CRC does not match, or the records cannot be parsed.
    """
    header = parse_header(batch)
    if header.size != len(batch) or not verify_crc(batch):
        raise CorruptBatch(f"the CRC of the batch at offset {header.base_offset} does not match its bytes")
    if header.is_control or header.count == 0:
        return []
    with memoryview(batch) as view, view[HEADER_BYTES:] as payload:
        data = decompress(header.codec, payload)
    out: list[RawRecord] = []
    fixed = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
    at = 0
    try:
        for _ in range(header.count):
            size, start = decode_signed(data, at)
            at = start + size
            time, body = decode_signed(data, start + 1)
            delta, body = decode_signed(data, body)
            if not start < body < at <= len(data) or (out and header.base_offset + delta <= out[-1].offset):
                raise ValueError("a record's length does not match its fields")
            when = header.base_timestamp + time if fixed is None else fixed
            out.append(RawRecord(header.base_offset + delta, when, data[start : start + 1], data[body:at]))
    except (IndexError, ValueError) as error:
        raise CorruptBatch(f"the records of the batch at offset {header.base_offset} cannot be read") from error
    if at != len(data):
        raise CorruptBatch(f"the batch has bytes after its last record, at offset {header.base_offset}")
    return out


def first_body(batch: Buffer) -> bytes | None:
    """Return the first record of a batch from its key on, without parsing the others; None if there is none.

    Raises:
        CorruptBatch: the batch cannot be read.
    """
    header = parse_header(batch)
    if header.is_control or header.count == 0:
        return None
    with memoryview(batch) as view, view[HEADER_BYTES : header.size] as payload:
        data = decompress(header.codec, payload)
    try:
        size, start = decode_signed(data, 0)
        _, body = decode_signed(data, start + 1)
        _, body = decode_signed(data, body)
    except IndexError as error:
        raise CorruptBatch(f"the records of the batch at offset {header.base_offset} cannot be read") from error
    return data[body : start + size]


def rebuilt(
    batch: Buffer, header: BatchHeader, first: int, after: int, *, producer_id: int, term: int, marker: int
) -> PreparedBatch | RejectedBatch:
    """Rebuild offsets ``first`` to ``after - 1`` of a stored batch: gaps filled, with CreateTime.

    Args:
        header: The header of ``batch``, with its base offset at the source.
        producer_id, term, marker: Those of the rebuilt batch.
    """
    if after - first > MOST_OFFSETS:
        return RejectedBatch(header.base_offset, f"the batch claims {after - first} offsets, above {MOST_OFFSETS}")
    try:
        kept = [record for record in raw_records(batch) if first <= record.offset < after]
        codec = header.codec
        missing = after - first - len(kept)
        if missing:
            # The cleaner keeps a batch's time when it removes its newest record, so the fillers may have it, too.
            kept = _filled(kept, first, after, max(header.max_timestamp, 1))
            if missing > FEW_FILLERS and codec is Codec.NONE:
                codec = Codec.ZSTD
        return _build(kept, codec, producer_id=producer_id, term=term, marker=marker)
    except FairleadError as error:
        return RejectedBatch(header.base_offset, f"the batch cannot be written again: {error.what}")


def split_prepared(
    steps: Sequence[PreparedBatch | Gap], max_bytes: int
) -> tuple[list[PreparedBatch | Gap], RejectedBatch | None]:
    """Split batches above ``max_bytes``, up to the first record that alone is above it."""
    out: list[PreparedBatch | Gap] = []
    for step in steps:
        made = split_batch(step, max_bytes) if isinstance(step, PreparedBatch) else [step]
        if isinstance(made, RejectedBatch):
            return out, made
        out += made
    return out, None


def split_batch(prepared: PreparedBatch, max_bytes: int) -> list[PreparedBatch] | RejectedBatch:
    """Split a batch into several of at most ``max_bytes``; return it alone if it is not larger.

    Records keep their sequences and offsets, so whatever follows is in sequence. The parts have other bounds and CRCs
    than the source's batch: compare them by records (``replication.batch.batch_diff``).

    Returns:
        The batches in order, or a rejection if a single record is above the limit.
    """
    if len(prepared.data) <= max_bytes:
        return [prepared]
    header = parse_header(prepared.data)
    try:
        records = [
            each._replace(offset=each.offset + prepared.base - header.base_offset)
            for each in raw_records(prepared.data)
        ]
    except FairleadError as error:
        cause = f"the batch cannot be split: {error.what}"
        return RejectedBatch(prepared.base, cause, damaged=not verify_crc(prepared.data))
    ratio = (len(prepared.data) - HEADER_BYTES) / sum(len(each.body) + 8 for each in records)
    out: list[PreparedBatch] = []
    waiting = list(_runs(records, (max_bytes - HEADER_BYTES) / ratio))[::-1]
    while waiting:
        run = waiting.pop()
        try:
            made = _build(
                run, header.codec, producer_id=prepared.producer_id, term=prepared.term, marker=prepared.marker
            )
        except FairleadError as error:
            return RejectedBatch(run[0].offset, f"the batch cannot be split: {error.what}")
        if len(made.data) <= max_bytes:
            out.append(made)
        elif len(run) == 1:
            return RejectedBatch(
                made.base,
                f"the record at offset {made.base} takes {len(made.data)} bytes, the target takes {max_bytes} at most",
            )
        else:
            half = len(run) // 2
            waiting += [run[half:], run[:half]]
    return out


def _runs(records: Sequence[RawRecord], size: float) -> list[list[RawRecord]]:
    """Consecutive records cut into runs of about ``size`` bytes before compression."""
    out: list[list[RawRecord]] = []
    room = 0.0
    for record in records:
        need = len(record.body) + 8
        if not out or need > room:
            out.append([])
            room = size
        out[-1].append(record)
        room -= need
    return out


def _filled(kept: Sequence[RawRecord], first: int, after: int, timestamp_ms: int) -> list[RawRecord]:
    by_offset = {record.offset: record for record in kept}
    gap = RawRecord(0, timestamp_ms, _NO_ATTRIBUTES, _GAP)
    return [by_offset.get(offset) or gap._replace(offset=offset) for offset in range(first, after)]


def _build(records: Sequence[RawRecord], codec: Codec, *, producer_id: int, term: int, marker: int) -> PreparedBatch:
    """Return one batch of consecutive records.

    Raises:
        UnreadableRecords: a record's time does not fit into 64 bits.
    """
    base, base_time = records[0].offset, records[0].timestamp_ms
    parts: list[bytes] = []
    for delta, record in enumerate(records):
        place = encode_signed(record.timestamp_ms - base_time) + encode_signed(delta)
        parts += (
            encode_signed(1 + len(place) + len(record.body)),
            record.attributes,
            place,
            record.body,
        )
    newest = max(record.timestamp_ms for record in records)
    try:
        data = build_batch(
            compress(codec, b"".join(parts)),
            count=len(records),
            base_timestamp=base_time,
            max_timestamp=newest,
            producer_id=producer_id,
            epoch=term,
            sequence=(base - marker) % SEQUENCES,
            codec=codec,
        )
    except struct.error as error:
        raise UnreadableRecords(f"the times of the records from offset {base} on are out of range") from error
    view = memoryview(bytearray(data))
    crc = parse_header(view).crc
    return PreparedBatch(base, base + len(records), view, crc, producer_id, term, marker, newest)


BEFORE_FIRST_TERM: Final = 0  # term of fillers below a log's first known term
MAX_FILLER: Final = FILLERS_PER_BATCH  # the broker holds one object per record while it validates


def fillers(
    gap: Gap, *, producer_id: int | None = None, term: int = BEFORE_FIRST_TERM, marker: int = 0
) -> Iterator[PreparedBatch]:
    """Batches that close a gap, in order.

    Offsets before the following term's marker get the target's last term (``term``, ``marker``), or
    ``BEFORE_FIRST_TERM`` if the target is empty. Offsets after it get the following term. So every later batch is in
    sequence.
    """
    at = gap.base
    while at < gap.stop:
        follows = at >= gap.marker
        end = min(gap.stop if follows else min(gap.stop, gap.marker), at + MAX_FILLER)
        if gap.positions and end == gap.stop == at + MAX_FILLER:
            end -= 1  # the last one is never full, so that a full one shows that others were to follow
        if gap.producer_id != PRODUCER_ID:
            pid, own_term, own_marker = FOREIGN_PRODUCER_ID, FOREIGN_EPOCH, 0
        elif follows:
            pid, own_term, own_marker = PRODUCER_ID, gap.term, gap.marker
        else:
            pid, own_term, own_marker = producer_id or PRODUCER_ID, term, marker
        yield _filler(at, end, pid, own_term, own_marker, gap.timestamp_ms, gap.key)
        at = end


def fence(producer_id: int, timestamp_ms: int) -> memoryview:
    """Return a filler that raises the epoch of a replica's producer. After it the broker refuses a replicator's older
    batches.

    It has sequence 0, which the broker accepts at any end. It is copied like any other filler.
    """
    made = bytearray(filler_batch(1, term=0, offset=0, marker=0, timestamp_ms=timestamp_ms, key=GAP_KEY))
    view = memoryview(made)
    rewrite_header(view, producer_id, FENCE_EPOCH, 0)
    return view


def _filler(at: int, end: int, pid: int, term: int, marker: int, timestamp_ms: int, key: bytes) -> PreparedBatch:
    made = bytearray(
        filler_batch(end - at, term=term, offset=at, marker=marker, timestamp_ms=max(timestamp_ms, 1), key=key)
    )
    view = memoryview(made)
    crc = rewrite_header(view, pid, term, (at - marker) % SEQUENCES)
    return PreparedBatch(at, end, view, crc, pid, term, marker, timestamp_ms, positions=key == POSITION_KEY)
