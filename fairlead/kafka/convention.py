"""The append convention (docs/append-convention.md): how producer id, epoch and sequence carry log, term and offset.

    producerId    = 2^62                      the same everywhere: "written by Fairlead"
    producerEpoch = term                      1..32767
    baseSequence  = (offset - m) mod 2^31     m = offset of the term's first record, its marker

Pure functions. Markers and fillers are recognised by the record header ``fairlead``; they are never data.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from fairlead.errors import FairleadError
from fairlead.kafka.protocol.batch import BatchHeader
from fairlead.kafka.protocol.codecs import Codec, compress
from fairlead.kafka.protocol.coding import encode_signed, encode_unsigned
from fairlead.kafka.protocol.record import NewRecord, Record, build_batch, encode_batch
from fairlead.records import headers as names
from fairlead.records.reading import LATEST_MS

PRODUCER_ID: Final = 1 << 62
FOREIGN_PRODUCER_ID: Final = (1 << 62) + (1 << 32)  # on replicas of logs that ordinary clients write
FOREIGN_EPOCH: Final = 0
FENCE_EPOCH: Final = 1  # of the filler that fences a replicator's appends in flight when a log is released
FIRST_TERM: Final = 1
LAST_TERM: Final = 32767
SEQUENCE_MASK: Final = 0x7FFFFFFF
FILLERS_PER_BATCH: Final = 100_000  # fewest bytes per offset, and little memory in the broker (one object per record)

FILLER_HEADERS: Final = b"".join(  # the record's headers as stored: one header
    (
        encode_signed(1),
        encode_signed(len(names.KIND)),
        names.KIND.encode(),
        encode_signed(len(names.FILLER)),
        names.FILLER,
    )
)
_MARKER_HEADERS: Final = ((names.KIND, names.MARKER),)
_DIGITS: Final = 15  # of ``LATEST_MS``


def sequence(offset: int, marker: int) -> int:
    """Return the sequence number of the record at ``offset`` in the term whose marker is at ``marker``."""
    return (offset - marker) & SEQUENCE_MASK


def marker_offset(header: BatchHeader) -> int:
    """Return where the term of this batch began.

    Exact while a term is shorter than 2^31 records; after that too high by a multiple of 2^31, which does not change
    the result of ``sequence``.
    """
    return header.base_offset - header.base_sequence


def is_ours(header: BatchHeader) -> bool:
    """Whether the batch was written under this convention, in any term."""
    return header.producer_id == PRODUCER_ID and header.producer_epoch >= FIRST_TERM and header.base_sequence >= 0


def is_filler(record: Record | NewRecord) -> bool:
    """Whether a record only fills an offset; it is never shown as data."""
    return _kind(record) == names.FILLER


def is_marker(record: Record | NewRecord) -> bool:
    """Whether a record is the first one of a term; it is never shown as data."""
    return _kind(record) == names.MARKER


def is_data(record: Record | NewRecord) -> bool:
    """Whether a record is neither marker nor filler."""
    return not record.headers or _kind(record) not in (names.MARKER, names.FILLER)


def received_ms(record: NewRecord | Record) -> int:
    """Return when the bridge received the message, in milliseconds since 1970.

    This is the record's own time if the RECEIVED header is missing or not a valid number.
    """
    for name, value in record.headers:
        if name == names.RECEIVED and value is not None:
            if value.isdigit() and len(value) <= _DIGITS and int(value) <= LATEST_MS:
                return int(value)
            break
    return time_ms(record)


def time_ms(record: NewRecord | Record) -> int:
    """Return a record's time within 1970 and 9998, milliseconds; brokers accept any number as a time."""
    return min(max(0, record.timestamp_ms), LATEST_MS)


def marker_record(value: bytes, *, timestamp_ms: int, key: bytes | None = None) -> NewRecord:
    """Make a marker with its header. ``value`` must be unique: two markers must never have the same CRC."""
    return NewRecord(value, key, _MARKER_HEADERS, timestamp_ms=timestamp_ms)


def term_batch(
    records: Sequence[NewRecord], *, term: int, offset: int, marker: int, codec: Codec = Codec.NONE
) -> bytes:
    """Encode the batch that appends ``records`` at ``offset`` in ``term``, whose marker is at ``marker``."""
    return encode_batch(
        records, producer_id=PRODUCER_ID, epoch=_checked(term), sequence=sequence(offset, marker), codec=codec
    )


def filler_batch(
    count: int, *, term: int, offset: int, marker: int, timestamp_ms: int, key: bytes | None = None
) -> bytes:
    """Encode a batch of ``count`` fillers for the offsets from ``offset`` on, in their term.

    Args:
        count: 1 to ``FILLERS_PER_BATCH``.
        term: 0 makes the batch for a foreign log (``marker`` is not used then).
        timestamp_ms: The time of a neighbouring record, or now; an old one would expire the broker's producer state.
        key: A constant key, needed on a compacted topic, where compaction then removes all fillers but the last.
    """
    if not 1 <= count <= FILLERS_PER_BATCH:
        raise FairleadError(f"a filler batch has 1 to {FILLERS_PER_BATCH} records, not {count}")
    if timestamp_ms < 0:
        raise FairleadError(f"fillers need a time of 0 or later, not {timestamp_ms}")
    foreign = term == 0
    return build_batch(
        _filler_payload(count, key),
        count=count,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        producer_id=FOREIGN_PRODUCER_ID if foreign else PRODUCER_ID,
        epoch=FOREIGN_EPOCH if foreign else _checked(term),
        sequence=sequence(offset, 0 if foreign else marker),
        codec=Codec.ZSTD,
    )


@lru_cache(maxsize=64)
def _filler_payload(count: int, key: bytes | None) -> bytes:
    """Return the compressed records of a filler batch, cached: they depend on neither offset nor time."""
    return compress(Codec.ZSTD, _filler_records(count, key))


def _filler_records(count: int, key: bytes | None) -> bytes:
    """Encode ``count`` filler records, 64 at a time.

    Within 64 records only the lowest seven bits of the offset delta change. So 100,000 records take milliseconds, which
    matters because the event loop is blocked meanwhile.
    """
    tail = filler_body(key)
    blocks: list[bytes] = []
    heads: list[bytes] = []
    size = 0
    for block in range((count + 63) // 64):
        middle = encode_unsigned(block) if block else b""
        if size != len(middle) or not heads:
            size = len(middle)
            start = encode_signed(3 + size + len(tail)) + b"\0\0"
            more = 0x80 if block else 0
            heads = [start + bytes((more | 2 * n,)) for n in range(64)]
        end = middle + tail
        blocks.append(end.join(heads[: count - 64 * block]))
        blocks.append(end)
    return b"".join(blocks)


def filler_body(key: bytes | None) -> bytes:
    """Return the bytes of a filler record from its key on: key, no value, its header."""
    return b"".join((b"\1" if key is None else encode_signed(len(key)) + key, b"\1", FILLER_HEADERS))


def _kind(record: Record | NewRecord) -> bytes | None:
    for name, value in record.headers:
        if name == names.KIND:
            return value
    return None


def _checked(term: int) -> int:
    if not FIRST_TERM <= term <= LAST_TERM:
        raise FairleadError(
            f"term {term} is outside {FIRST_TERM}..{LAST_TERM}, the range of a producer epoch", term=term
        )
    return term
