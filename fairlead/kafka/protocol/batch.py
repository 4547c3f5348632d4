"""The v2 record batch from outside: header, boundaries, CRC. Pure functions; no record is decoded.

Layout (61 bytes, big endian): baseOffset i64, batchLength i32 (counted from byte 12), partitionLeaderEpoch i32,
magic i8, crc u32, attributes i16, lastOffsetDelta i32, baseTimestamp i64, maxTimestamp i64, producerId i64,
producerEpoch i16, baseSequence i32, record count i32, then the records. The CRC-32C covers byte 21 to the end:
baseOffset and partitionLeaderEpoch are outside it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from crc32c import crc32c

from fairlead.kafka.protocol.codecs import Codec
from fairlead.kafka.protocol.errors import CorruptBatch, UnreadableRecords

UNCHECKED: Final = struct.Struct(">qiibI")  # the fields of the header up to the CRC
CHECKED: Final = struct.Struct(">hiqqqhii")  # the fields that the CRC covers, from the attributes on
HEADER: Final = struct.Struct(UNCHECKED.format + CHECKED.format.removeprefix(">"))
HEADER_BYTES: Final = HEADER.size
LENGTH_FROM: Final = 12  # batchLength counts the bytes after itself
MAGIC_AT: Final = 16
CRC_AT: Final = 17
CRC_FROM: Final = 21
MAGIC: Final = 2

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40

_U32: Final = struct.Struct(">I")
_ZERO_OFFSET: Final = bytes(8)

Buffer = bytes | bytearray | memoryview


class BatchHeader(msgspec.Struct, frozen=True, gc=False):
    """The fixed part of a v2 batch, field by field."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset right after the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def size(self) -> int:
        """Size of the whole batch in bytes."""
        return self.length + LENGTH_FROM

    @property
    def codec(self) -> Codec:
        """How the records are compressed.

        Raises:
            UnreadableRecords: with a codec that format v2 does not define.
        """
        bits = self.attributes & CODEC_MASK
        if bits > Codec.ZSTD:
            raise UnreadableRecords(f"the batch at offset {self.base_offset} has the unknown compression {bits}")
        return Codec(bits)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def has_holes(self) -> bool:
        """Whether offsets inside the batch are missing (compaction); a broker refuses such a batch from a client."""
        return self.count != self.last_offset_delta + 1


class BatchView(msgspec.Struct, frozen=True, gc=False):
    """One complete batch inside a buffer: ``buffer[start:stop]``."""

    start: int
    stop: int
    header: BatchHeader


def parse_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read the header at ``position``.

    Raises:
        CorruptBatch: fewer than 61 bytes are left, or the batch is not of format v2.
    """
    try:
        header = BatchHeader(*HEADER.unpack_from(buffer, position))
    except struct.error as error:
        raise CorruptBatch(f"{len(buffer) - position} bytes are too few for a batch header") from error
    if header.magic != MAGIC:
        raise CorruptBatch(
            f"a record batch has format {header.magic}, only format {MAGIC} is supported",
            hint="topics written before Kafka 0.11 must be rewritten by a current client first",
        )
    return header


def split(buffer: Buffer, start: int = 0) -> Iterator[BatchView]:
    """Yield every complete batch of ``buffer[start:]`` in order; ignore a last batch that is cut short.

    Raises:
        CorruptBatch: a batch is not of format v2, or has an impossible length.
    """
    end = len(buffer)
    unpack = HEADER.unpack_from
    while end - start >= HEADER_BYTES:
        header = BatchHeader(*unpack(buffer, start))
        if header.magic != MAGIC or header.length < HEADER_BYTES - LENGTH_FROM:
            parse_header(buffer, start)  # raises an exact error if the format is the reason
            raise CorruptBatch(f"a record batch claims to be {header.length} bytes long")
        after = start + LENGTH_FROM + header.length
        if after > end:
            return
        yield BatchView(start, after, header)
        start = after


def split_aborted(buffer: Buffer, aborted: Sequence[tuple[int, int]]) -> Iterator[tuple[BatchView, bool]]:
    """Do as ``split``, and say of each batch whether its transaction was aborted; not of control batches.

    Args:
        aborted: ``(producer id, first offset)`` of aborted transactions, as a fetch with isolation 1 names them.
    """
    waiting = sorted(aborted, key=lambda pair: pair[1])
    dead: set[int] = set()
    for batch in split(buffer):
        header = batch.header
        while waiting and waiting[0][1] < header.next_offset:
            dead.add(waiting.pop(0)[0])
        if header.is_control:
            dead.discard(header.producer_id)  # a transaction's end marker closes it
        yield batch, header.is_transactional and header.producer_id in dead


def crc_of(batch: Buffer) -> int:
    """Compute the CRC-32C that belongs in the header of this one batch."""
    return crc32c(memoryview(batch)[CRC_FROM:])


def verify_crc(buffer: Buffer, start: int = 0, stop: int | None = None) -> bool:
    """Whether the CRC of the one batch at ``buffer[start:stop]`` is right."""
    with memoryview(buffer) as view, view[start : len(buffer) if stop is None else stop] as batch:
        return len(batch) >= HEADER_BYTES and crc_of(batch) == _U32.unpack_from(batch, CRC_AT)[0]


def zero_base_offset(buffer: bytearray | memoryview, start: int = 0) -> None:
    """Set the base offset to 0 in place, as a broker requires in a produced batch; the CRC does not cover it."""
    buffer[start : start + 8] = _ZERO_OFFSET
