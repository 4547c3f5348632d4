"""Batches that cannot go as they are, written again record by record. Pure functions.

Records are taken apart only as far as their place and time; key, value and headers stay the bytes they were, whatever
is in them (header keys that are not UTF-8, repeated ones, the unused attribute byte).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from fairlead.errors import FairleadError
from fairlead.wire.batch import HEADER_BYTES, LOG_APPEND_TIME, Buffer, Header, parse_header, verify_crc
from fairlead.wire.codecs import Codec, compress, decompress
from fairlead.wire.convention import FILLER_HEADERS, filler_body
from fairlead.wire.errors import CorruptBatch
from fairlead.wire.record import build_batch
from fairlead.wire.varint import decode_signed, encode_signed
from replication.item import HOLE_KEY, SEQUENCES, Hole, Item, Unfit

FEW_FILLERS: Final = 100  # an uncompressed batch that needs more of them than this is compressed
_HOLE: Final = filler_body(HOLE_KEY)
_NO_ATTRIBUTES: Final = b"\0"


class RawRecord(NamedTuple):
    """A record with its absolute offset and time; ``body`` is everything from the key on, as stored."""

    offset: int
    timestamp_ms: int
    attributes: bytes
    body: bytes

    @property
    def is_filler(self) -> bool:
        """Whether the only header is the one that fillers have (``convention.is_filler`` for undecoded records)."""
        if not self.body.endswith(FILLER_HEADERS):
            return False
        size, at = decode_signed(self.body, 0)
        size, at = decode_signed(self.body, at + max(size, 0))
        return at + max(size, 0) == len(self.body) - len(FILLER_HEADERS)


def raw_records(batch: Buffer) -> list[RawRecord]:
    """The records of one batch; none for a control batch or an emptied one. Where the batch has LogAppendTime, that is
    the records' time.

    Raises:
        CorruptBatch: the CRC does not match, or the records cannot be told apart.
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
        raise CorruptBatch(f"bytes are left after the last record of the batch at offset {header.base_offset}")
    return out


def first_body(batch: Buffer) -> bytes | None:
    """The first record of a batch from its key on, without taking the others apart; None when there is none.

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
    batch: Buffer, header: Header, first: int, after: int, *, producer_id: int, term: int, marker: int
) -> Item | Unfit:
    """Offsets ``first`` to ``after - 1`` of a stored batch as a batch that a broker takes: holes filled, CreateTime.

    Args:
        header: That of ``batch``, which has its own base offset.
        producer_id, term, marker: What the copy is written with.
    """
    try:
        kept = [record for record in raw_records(batch) if first <= record.offset < after]
        codec = header.codec
    except FairleadError as error:
        return Unfit(header.base_offset, f"the batch cannot be written again: {error.what}")
    missing = after - first - len(kept)
    if missing:
        # The cleaner keeps a batch's time when it removes its newest record, so the fillers may have it, too.
        kept = _filled(kept, first, after, max(header.max_timestamp, 1))
        if missing > FEW_FILLERS and codec is Codec.NONE:
            codec = Codec.ZSTD
    return _item(kept, codec, producer_id=producer_id, term=term, marker=marker)


def split_steps(steps: Sequence[Item | Hole], max_bytes: int) -> tuple[list[Item | Hole], Unfit | None]:
    """Steps none of which is above ``max_bytes``, up to the first record that alone is above it."""
    out: list[Item | Hole] = []
    for step in steps:
        made = split_item(step, max_bytes) if isinstance(step, Item) else [step]
        if isinstance(made, Unfit):
            return out, made
        out += made
    return out, None


def split_item(item: Item, max_bytes: int) -> list[Item] | Unfit:
    """An item as several, none above ``max_bytes``; itself where it is not above.

    Sequences and offsets are those that the records had in the one batch, so whatever follows is in sequence. The
    copies' batches have other bounds and CRCs than the source's from then on: compare them by records
    (``replication.agreement``).

    Returns:
        the items in order, or why there are none: a single record is above the limit.
    """
    if len(item.data) <= max_bytes:
        return [item]
    header = parse_header(item.data)
    try:
        records = [
            each._replace(offset=each.offset + item.base - header.base_offset) for each in raw_records(item.data)
        ]
    except FairleadError as error:
        return Unfit(item.base, f"the batch cannot be split: {error.what}")
    ratio = (len(item.data) - HEADER_BYTES) / sum(len(each.body) + 8 for each in records)
    out: list[Item] = []
    waiting = list(_runs(records, (max_bytes - HEADER_BYTES) / ratio))[::-1]
    while waiting:
        run = waiting.pop()
        made = _item(run, header.codec, producer_id=item.producer_id, term=item.term, marker=item.marker)
        if len(made.data) <= max_bytes:
            out.append(made)
        elif len(run) == 1:
            return Unfit(
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
    hole = RawRecord(0, timestamp_ms, _NO_ATTRIBUTES, _HOLE)
    return [by_offset.get(offset) or hole._replace(offset=offset) for offset in range(first, after)]


def _item(records: Sequence[RawRecord], codec: Codec, *, producer_id: int, term: int, marker: int) -> Item:
    """One batch of consecutive records."""
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
    view = memoryview(bytearray(data))
    crc = parse_header(view).crc
    return Item(base, base + len(records), view, crc, producer_id, term, marker, newest)
