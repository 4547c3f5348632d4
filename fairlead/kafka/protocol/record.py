"""Records inside a v2 batch: encoding and decoding. Pure functions.

A record is: length, attributes (0), timestamp delta, offset delta, key, value, header count, headers; lengths and
deltas are zig-zag varints, length -1 means null (KIP-98, ``DefaultRecord``).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec
from crc32c import crc32c

from fairlead.errors import FairleadError
from fairlead.kafka.protocol.batch import (
    CHECKED,
    HEADER_BYTES,
    LENGTH_FROM,
    LOG_APPEND_TIME,
    MAGIC,
    UNCHECKED,
    Buffer,
    parse_header,
    verify_crc,
)
from fairlead.kafka.protocol.codecs import Codec, compress, decompress
from fairlead.kafka.protocol.coding import decode_signed, encode_signed
from fairlead.kafka.protocol.errors import CorruptBatch, UnreadableRecords

Headers = tuple[tuple[str, bytes | None], ...]

RECORD_OVERHEAD = 24  # upper bound of a record's bytes besides key, value and headers
HEADER_OVERHEAD = 10  # the same for one header


class Record(NamedTuple):
    """A stored record. ``timestamp_ms`` is milliseconds since 1970 UTC; a null ``value`` is a tombstone or a filler."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class _Timed(msgspec.Struct, frozen=True, kw_only=True):
    timestamp_ms: int


class NewRecord(_Timed, frozen=True):  # a struct: one is made for each reading, and a frozen dataclass is much slower
    """A record to be appended.

    ``timestamp_ms`` is the time of the event in milliseconds since 1970 UTC. It must not be negative: the answer to the
    produce request could not be interpreted otherwise (docs/append-convention.md).
    """

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()

    def size_bound(self) -> int:
        """Return an upper bound of the record's size in bytes in a batch without compression."""
        size = RECORD_OVERHEAD + len(self.value or b"") + len(self.key or b"")
        for name, value in self.headers:
            size += HEADER_OVERHEAD + 4 * len(name) + len(value or b"")
        return size


def build_batch(
    payload: bytes,
    *,
    count: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    epoch: int,
    sequence: int,
    codec: Codec = Codec.NONE,
) -> bytes:
    """Build a complete batch with base offset 0 around an already compressed ``payload`` of ``count`` records."""
    checked = CHECKED.pack(codec, count - 1, base_timestamp, max_timestamp, producer_id, epoch, sequence, count)
    length, crc = HEADER_BYTES - LENGTH_FROM + len(payload), crc32c(payload, crc32c(checked))
    return b"".join((UNCHECKED.pack(0, length, -1, MAGIC, crc), checked, payload))  # the broker sets the base offset


def encode_batch(
    records: Sequence[NewRecord], *, producer_id: int, epoch: int, sequence: int, codec: Codec = Codec.NONE
) -> bytes:
    """Encode one batch of all ``records`` with base offset 0 and CreateTime. Equal arguments give equal bytes.

    Raises:
        FairleadError: there are no records, or one has a negative time.
    """
    if not records:
        raise FairleadError("a record batch needs at least one record")
    base = newest = records[0].timestamp_ms
    parts: list[bytes] = []
    for delta, record in enumerate(records):
        time = record.timestamp_ms
        if time < 0:
            raise FairleadError(
                f"a record has the time {time}, which would make the broker's answer unreadable",
                hint="give the time of the event in milliseconds since 1970 UTC",
                timestamp_ms=time,
            )
        if time > newest:
            newest = time
        _append_record(parts, record, delta, time - base)
    payload = b"".join(parts)
    return build_batch(
        compress(codec, payload) if codec else payload,
        count=len(records),
        base_timestamp=base,
        max_timestamp=newest,
        producer_id=producer_id,
        epoch=epoch,
        sequence=sequence,
        codec=codec,
    )


def _append_record(parts: list[bytes], record: NewRecord, offset_delta: int, timestamp_delta: int) -> None:
    key, value = record.key, record.value
    body = b"".join(
        (
            b"\0",
            encode_signed(timestamp_delta),
            encode_signed(offset_delta),
            b"\1" if key is None else encode_signed(len(key)) + key,
            b"\1" if value is None else encode_signed(len(value)) + value,
            _encode_headers(record.headers) if record.headers else b"\0",
        )
    )
    parts.append(encode_signed(len(body)))
    parts.append(body)


def _encode_headers(headers: Headers) -> bytes:
    parts = [encode_signed(len(headers))]
    for name, value in headers:
        parts.append(_header_name(name))
        parts.append(b"\1" if value is None else encode_signed(len(value)) + value)
    return b"".join(parts)


@lru_cache(maxsize=1024)
def _header_name(name: str) -> bytes:
    """Encode a header's name as it is stored, cached: there are few names."""
    raw = name.encode()
    return encode_signed(len(raw)) + raw


def decode_batch(buffer: Buffer, start: int = 0, stop: int | None = None, *, check_crc: bool = True) -> list[Record]:
    """Decode the records of the one batch at ``buffer[start:stop]``, with absolute offsets; none for a control batch.

    Raises:
        CorruptBatch: the CRC does not match. UnreadableRecords: it does, and the records cannot be read.
    """
    header = parse_header(buffer, start)
    end = start + LENGTH_FROM + header.length
    if end > (len(buffer) if stop is None else stop):
        raise CorruptBatch(f"the batch at offset {header.base_offset} is cut short", offset=header.base_offset)
    if check_crc and not verify_crc(buffer, start, end):
        raise CorruptBatch(
            f"the CRC of the batch at offset {header.base_offset} does not match its bytes", offset=header.base_offset
        )
    if header.is_control:
        return []
    with memoryview(buffer) as view, view[start + HEADER_BYTES : end] as body:
        data = decompress(header.codec, body)
    fixed_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
    try:
        return _decode_records(data, header.count, header.base_offset, header.base_timestamp, fixed_time)
    except (IndexError, UnicodeDecodeError, ValueError) as error:
        raise UnreadableRecords(
            f"the records of the batch at offset {header.base_offset} cannot be read", offset=header.base_offset
        ) from error


def _decode_records(data: bytes, count: int, base_offset: int, base_time: int, fixed_time: int | None) -> list[Record]:
    # Every reader runs this loop most: most numbers fit in one byte, so that case is written out.
    signed = decode_signed
    out: list[Record] = []
    position = 0
    for _ in range(count):
        size, position = signed(data, position)
        stop = position + size
        position += 1  # attributes, unused
        raw = data[position]
        if raw < 0x80:
            time_delta = (raw >> 1) ^ -(raw & 1)
            position += 1
        else:
            time_delta, position = signed(data, position)
        raw = data[position]
        if raw < 0x80:
            offset_delta = raw >> 1
            position += 1
        else:
            offset_delta, position = signed(data, position)
        size, position = signed(data, position)
        if size < 0:
            key = None
        else:
            key = data[position : position + size]
            position += size
        size, position = signed(data, position)
        if size < 0:
            value = None
        else:
            value = data[position : position + size]
            position += size
        if data[position] == 0:
            headers: Headers = ()
            position += 1
        else:
            headers, position = _decode_headers(data, position)
        if position != stop or stop > len(data):
            raise ValueError("a record's length does not match its fields")
        time = base_time + time_delta if fixed_time is None else fixed_time
        out.append(Record(base_offset + offset_delta, time, key, value, headers))
    if position != len(data):
        raise ValueError("bytes are left after the last record")
    return out


def _decode_headers(data: bytes, position: int) -> tuple[Headers, int]:
    count, position = decode_signed(data, position)
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        size, position = decode_signed(data, position)
        if size < 0:
            raise ValueError("a header without a name")  # a negative size would move backwards, for ever
        name = data[position : position + size].decode(errors="replace")  # as Java does
        position += size
        size, position = decode_signed(data, position)
        value = None if size < 0 else data[position : position + size]
        position += max(size, 0)
        headers.append((name, value))
    return tuple(headers), position
