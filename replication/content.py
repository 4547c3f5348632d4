"""From fetched bytes to what may be appended: verbatim where possible, restamped or rebuilt where not. Pure functions.

Every offset of the source becomes an offset of the target. Batches of Fairlead go as they are but for their base
offset; batches of ordinary clients get Fairlead's foreign producer id and a sequence made from the offset. What
cannot be appended (holes left by compaction, control batches, aborted transactions) becomes a ``Hole``: offsets that
the writer closes with fillers. Broker rules and error codes: Kafka 4.3, measured.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from fairlead.errors import FairleadError
from fairlead.records import headers
from fairlead.wire.batch import (
    CONTROL,
    CRC_AT,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Header,
    crc_of,
    split,
    zero_base_offset,
)
from fairlead.wire.convention import FOREIGN_EPOCH, FOREIGN_PRODUCER_ID, PRODUCER_ID, filler_batch, marker_offset
from fairlead.wire.record import NewRecord, Record, decode_batch, encode_batch

SEQUENCES: Final = 2**31
BEFORE_FIRST_TERM: Final = 0  # fillers below a log's first known term; older than every term
MAX_FILLER: Final = 100_000  # offsets per filler batch: the broker holds one object per record while it validates
HOLE_KEY: Final = b"fairlead.hole"  # one constant key, so that fillers compact away
POSITION_KEY: Final = b"fairlead.position"

_PRODUCER = struct.Struct(">qhi")
_CRC = struct.Struct(">I")
_ATTRIBUTES_LOW_BYTE: Final = 22
_PRODUCER_AT: Final = 43
_FOREIGN: Final = (FOREIGN_PRODUCER_ID, FOREIGN_EPOCH, 0)


class Item(NamedTuple):
    """One batch, ready to be sent: it takes offsets ``base`` to ``stop - 1`` of a log."""

    base: int
    stop: int
    data: memoryview
    crc: int
    producer_id: int
    term: int
    marker: int  # offset of the first record of its term; sequence 0 stands for that
    timestamp_ms: int

    @property
    def opens_term(self) -> bool:
        """Sequence 0: the broker does not check that it follows, so the writer has to."""
        return self.base == self.marker

    @property
    def records(self) -> int:
        return self.stop - self.base


class Hole(NamedTuple):
    """Offsets ``base`` to ``stop - 1`` hold nothing that can be appended. ``term`` and ``marker`` are those of what
    follows (or, for a foreign log, the foreign ones)."""

    base: int
    stop: int
    producer_id: int
    term: int
    marker: int
    timestamp_ms: int
    key: bytes = HOLE_KEY


class Unfit(NamedTuple):
    """The batch at ``base`` cannot be copied; the log stops here with this cause."""

    base: int
    cause: str
    diverged: bool = False  # because source and target have different histories


Step = Item | Hole | Unfit


def steps(
    records: memoryview, position: int, aborted: Sequence[tuple[int, int]] = (), *, gap_key: bytes = HOLE_KEY
) -> Iterator[Step]:
    """What to append for the batches of one fetch answer, from ``position`` on; base offsets are zeroed in place.

    Args:
        records: Whole batches as fetched (a cut one at the end is left out), writable.
        position: The next offset wanted; what is below is skipped.
        aborted: ``(producer id, first offset)`` of aborted transactions, as a read-committed fetch tells them.
        gap_key: Key of the fillers when the first batch lies above ``position``.
    """
    waiting = sorted(aborted, key=lambda each: each[1])
    dead: set[int] = set()
    for start, stop, header in split(records):
        base, after = header.base_offset, header.next_offset
        while waiting and waiting[0][1] < after:
            dead.add(waiting.pop(0)[0])
        if header.is_control:
            dead.discard(header.producer_id)
        if after <= position:
            continue
        ours = header.producer_id == PRODUCER_ID
        pid, term, marker = (PRODUCER_ID, header.producer_epoch, marker_offset(header)) if ours else _FOREIGN
        when = header.max_timestamp
        if base > position:
            yield Hole(position, base, pid, term, marker, when, gap_key)
        start_at = max(position, base)
        gap_key, position = HOLE_KEY, after
        void = header.is_control or (header.attributes & TRANSACTIONAL and header.producer_id in dead)
        if void or header.count == 0:
            yield Hole(start_at, after, pid, term, marker, when)
            continue
        whole = start_at == base and header.count == after - base
        if whole and not header.attributes & LOG_APPEND_TIME:
            view = records[start:stop]
            if ours or header.producer_id == FOREIGN_PRODUCER_ID:
                zero_base_offset(view)
                yield Item(base, after, view, header.crc, header.producer_id, term, marker, when)
            else:
                crc = restamp(view, FOREIGN_PRODUCER_ID, FOREIGN_EPOCH, base % SEQUENCES)
                yield Item(base, after, view, crc, pid, term, marker, when)
            continue
        if ours and start_at != base:
            cause = f"the target ends at {start_at}, inside the source's batch {base}..{after - 1} of term {term}"
            yield Unfit(base, cause, diverged=True)
            return
        yield _rebuilt(records[start:stop], header, start_at, after, pid, term, marker)


def restamp(batch: memoryview, producer_id: int, term: int, sequence: int) -> int:
    """Give a batch another producer and sequence, in place, base offset 0; returns the new CRC.

    The bits for transactions and delete horizons are cleared: neither means anything in a copy.
    """
    zero_base_offset(batch)
    batch[_ATTRIBUTES_LOW_BYTE] &= ~(TRANSACTIONAL | DELETE_HORIZON) & 0xFF
    _PRODUCER.pack_into(batch, _PRODUCER_AT, producer_id, term, sequence)
    crc = crc_of(batch)
    _CRC.pack_into(batch, CRC_AT, crc)
    return crc


def is_plain(header: Header) -> bool:
    """Whether a replica of this batch has the same bounds and ``canonical_crc``: it was not rebuilt, nor voided."""
    return not header.attributes & (CONTROL | TRANSACTIONAL | LOG_APPEND_TIME) and not header.has_holes


def canonical_crc(batch: memoryview, header: Header) -> int:
    """The CRC that every replica of this batch has: its own for Fairlead's, the restamped one for any other.

    Changes a foreign batch in place.
    """
    if header.producer_id in (PRODUCER_ID, FOREIGN_PRODUCER_ID):
        return header.crc
    return restamp(batch, FOREIGN_PRODUCER_ID, FOREIGN_EPOCH, header.base_offset % SEQUENCES)


def fillers(
    hole: Hole, *, producer_id: int | None = None, term: int = BEFORE_FIRST_TERM, marker: int = 0
) -> Iterator[Item]:
    """Batches that close a hole, in order.

    Offsets before the following term's marker belong to the target's own last term (``term``, ``marker``), or to
    none when the target is empty; those after it to the following term. So every later batch is in sequence.
    """
    at = hole.base
    while at < hole.stop:
        follows = at >= hole.marker
        end = min(hole.stop if follows else min(hole.stop, hole.marker), at + MAX_FILLER)
        if hole.producer_id != PRODUCER_ID:
            pid, own_term, own_marker = FOREIGN_PRODUCER_ID, FOREIGN_EPOCH, 0
        elif follows:
            pid, own_term, own_marker = PRODUCER_ID, hole.term, hole.marker
        else:
            pid, own_term, own_marker = producer_id or PRODUCER_ID, term, marker
        yield _filler(at, end, pid, own_term, own_marker, hole.timestamp_ms, hole.key)
        at = end


def _filler(at: int, end: int, pid: int, term: int, marker: int, timestamp_ms: int, key: bytes) -> Item:
    made = bytearray(
        filler_batch(end - at, term=term, offset=at, marker=marker, timestamp_ms=max(timestamp_ms, 1), key=key)
    )
    view = memoryview(made)
    crc = restamp(view, pid, term, (at - marker) % SEQUENCES)
    return Item(at, end, view, crc, pid, term, marker, timestamp_ms)


def _rebuilt(batch: memoryview, header: Header, first: int, after: int, pid: int, term: int, marker: int) -> Step:
    """A batch that cannot go as it is (compacted, LogAppendTime, begun below ``first``), record by record."""
    try:
        by_offset = {record.offset: record for record in decode_batch(batch)}  # LogAppendTime is the records' time then
        made = [_copy(by_offset.get(offset), header.max_timestamp) for offset in range(first, after)]
        data = bytearray(
            encode_batch(
                made,
                producer_id=pid,
                epoch=term,
                sequence=(first - marker) % SEQUENCES,
                codec=header.codec,
            )
        )
    except FairleadError as error:
        return Unfit(header.base_offset, f"the batch cannot be written again: {error.what}")
    view = memoryview(data)
    return Item(first, after, view, _CRC.unpack_from(view, CRC_AT)[0], pid, term, marker, header.max_timestamp)


def _copy(record: Record | None, when: int) -> NewRecord:
    if record is None:
        return NewRecord(value=None, key=HOLE_KEY, headers=((headers.KIND, headers.FILLER),), timestamp_ms=max(when, 1))
    return NewRecord(value=record.value, key=record.key, headers=record.headers, timestamp_ms=record.timestamp_ms)
