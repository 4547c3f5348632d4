"""Decode the records of very many batches at once with numpy: ``stretch`` selects the batches, ``decode`` reads them.

Thousands of small logs mostly have batches of one record, and then Python's microseconds per batch are most of the
time. Here Python only finds where batches begin; numpy reads headers, lengths and numbers of all records together.
Keys, values and headers are not copied: they are (start, size) into one buffer. ``protocol.record`` decodes one batch
at a time. Pure.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from fairlead.kafka.convention import FIRST_TERM, PRODUCER_ID
from fairlead.kafka.protocol.batch import (
    CODEC_MASK,
    CONTROL,
    CRC_FROM,
    HEADER_BYTES,
    LENGTH_FROM,
    LOG_APPEND_TIME,
    MAGIC,
    Buffer,
    parse_header,
)
from fairlead.kafka.protocol.codecs import decompress
from fairlead.kafka.protocol.coding import decode_signed
from fairlead.kafka.protocol.errors import CorruptBatch, UnreadableRecords

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint64]

NULL: Final = -1  # size of a null value
NONE: Final = -2  # size of a header that a record does not have

PADDING: Final = bytes(128)  # after the data, so that eight bytes can be read at any position of a damaged record
OUTSIDE: Final = 96  # bytes before the buffer's end: a position in the padding, where no record ends
_LONGEST_VARINT: Final = 10


class ByteSlices(NamedTuple):
    """One slice of the buffer for each row; ``size`` is ``NULL`` for null and ``NONE`` for a missing header."""

    start: Ints
    size: Ints

    def where(self, mask: Mask) -> ByteSlices:
        return ByteSlices(self.start[mask], self.size[mask])


def words_of(data: bytes) -> Words:
    """Return the eight bytes from each position on, as a little-endian number."""
    return np.ndarray((len(data) - 8,), np.dtype("<u8"), data, strides=(1,))


def varints(words: Words, at: Ints) -> tuple[Ints, Ints]:
    """Decode zig-zag coded numbers at these positions; return them and the positions after them.

    Numbers of more than 64 bits wrap around, as in Java. A number of more than ten bytes is invalid: the position after
    it is one where no record ends.
    """
    word = words[at]
    more = (word & 0x80) != 0
    value = word & 0x7F
    if not more.any():
        return (value >> 1).astype(np.int64) ^ -(value & 1).astype(np.int64), at + 1
    after = at + 1 + more
    shift = 8
    while True:
        index = np.flatnonzero(more)
        if not len(index):
            break
        if shift == 8:  # most numbers have one byte or two
            value = np.where(more, value | ((word & 0x7F00) >> np.uint64(1)), value)
            more = more & ((word & 0x8000) != 0)
        else:
            place = shift // 8
            byte = (words[at[index] + place] & 0xFF) if place > 7 else ((word[index] >> np.uint64(shift)) & 0xFF)
            value[index] |= (byte & 0x7F) << np.uint64(min(63, 7 * place)) if place < _LONGEST_VARINT else 0
            more = np.zeros(len(word), np.bool_)
            more[index] = (byte & 0x80) != 0
        after += more
        if shift >= 8 * _LONGEST_VARINT:
            after[more] = len(words)
            break
        shift += 8
    return (value >> np.uint64(1)).astype(np.int64) ^ -(value & np.uint64(1)).astype(np.int64), after


def inside(position: Ints, data: bytes) -> Ints:
    """Replace positions outside ``data`` by one that can be read and where no record ends."""
    outside = len(data) - OUTSIDE
    return np.where((position < 0) | (position > outside), outside, position)


def equal(data: bytes, slices: ByteSlices, text: bytes) -> Mask:
    found: Mask = slices.size == len(text)
    candidates = np.flatnonzero(found)
    words = words_of(data)
    for place in range(0, len(text), 8):
        part = text[place : place + 8]
        mask = np.uint64((1 << 8 * len(part)) - 1)
        same = (words[slices.start[candidates] + place] & mask) == int.from_bytes(part, "little")
        found[candidates] = same
        candidates = candidates[same]
    return found


_START: Final = struct.Struct(">qi")
_LENGTH_OF_HEADER: Final = HEADER_BYTES - LENGTH_FROM


class Stretch(NamedTuple):
    """Complete batches of one log, ``buffer[starts[0]:end]``, as a broker gave them.

    Only records with ``first <= offset < stop`` count. Offsets before ``after`` have been read; there may be no batch
    at all among them.
    """

    buffer: Buffer
    starts: Sequence[int]
    end: int
    first: int
    stop: int
    after: int
    records: int  # upper bound, from the batches' headers


def stretch(buffer: Buffer, first: int, stop: int) -> Stretch:
    """Find the complete batches in ``buffer`` that begin before offset ``stop``; ignore a last one that is cut short.

    Raises:
        CorruptBatch: a batch is not of format v2, or has an impossible length.
    """
    starts: list[int] = []
    size, at, after = len(buffer), 0, first
    unpack = _START.unpack_from
    while size - at >= HEADER_BYTES:
        offset, length = unpack(buffer, at)
        if length < _LENGTH_OF_HEADER:
            parse_header(buffer, at)  # raises an exact error if the format is the reason
            raise CorruptBatch(f"a record batch claims to be {length} bytes long")
        end = at + LENGTH_FROM + length
        if end > size:
            break
        if offset >= stop:
            after = stop  # compaction deleted the offsets in between
            break
        starts.append(at)
        at = end
    if not starts:
        return Stretch(buffer, starts, 0, first, stop, after, 0)
    last = parse_header(buffer, starts[-1])
    records = last.next_offset - unpack(buffer, starts[0])[0]
    return Stretch(buffer, starts, at, first, stop, max(after, last.next_offset), records)


log = logging.getLogger(__name__)

_FEW: Final = 48  # batches; for fewer, Python is as fast as numpy
_HEADER: Final = np.dtype(
    [
        ("base_offset", ">i8"),
        ("length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("epoch", ">i2"),
        ("sequence", ">i4"),
        ("count", ">i4"),
    ]
)


class Batches:
    """The batches of all stretches: their bytes in one buffer, their headers as an array."""

    def __init__(self, stretches: Iterable[Stretch], *, check_crc: bool) -> None:
        parts: list[Any] = []
        numbers: list[int] = []
        begins: list[int] = []
        bounds: list[tuple[int, int]] = []
        size = 0
        for number, each in enumerate(stretches):
            bounds.append((each.first, each.stop))
            if not each.starts:
                continue
            shift = size - each.starts[0]
            begins += [start + shift for start in each.starts] if shift else each.starts
            numbers += [number] * len(each.starts)
            parts.append(memoryview(each.buffer)[each.starts[0] : each.end])
            size += each.end - each.starts[0]
        parts.append(PADDING)
        self.data = b"".join(parts)
        self.begin = np.array(begins, np.int64)
        self.stretch = np.array(numbers, np.int64)
        self.bounds = np.array(bounds, np.int64).reshape(-1, 2)
        raw = np.frombuffer(self.data, np.uint8)
        self.header = raw[self.begin[:, None] + np.arange(HEADER_BYTES)].view(_HEADER).reshape(-1)
        self.end = self.begin + self.header["length"] + LENGTH_FROM
        self.body = self.begin + HEADER_BYTES  # where each batch's records begin; ``end`` is where they end
        self._check_headers(begins, check_crc=check_crc)
        self._take_out()

    def _check_headers(self, begins: Sequence[int], *, check_crc: bool) -> None:
        if (self.header["magic"] != MAGIC).any():
            parse_header(self.data, begins[int(np.argmax(self.header["magic"] != MAGIC))])
        if not check_crc:
            return
        with memoryview(self.data) as view:
            ends = self.end.tolist()
            found = [crc32c(view[begin + CRC_FROM : end]) for begin, end in zip(begins, ends, strict=True)]
        wrong = np.array(found, np.uint32) != self.header["crc"]
        if wrong.any():
            offset = int(self.header["base_offset"][np.argmax(wrong)])
            raise CorruptBatch(f"the CRC of the batch at offset {offset} does not match its bytes", offset=offset)

    def _take_out(self) -> None:
        """Leave out control batches, and replace compressed records by decompressed ones."""
        attributes = self.header["attributes"]
        if (attributes & CONTROL).any():
            self._keep((attributes & CONTROL) == 0)
            attributes = self.header["attributes"]
        packed = np.flatnonzero(attributes & CODEC_MASK)
        if not len(packed):
            return
        parts: list[bytes] = []
        copied = 0
        grown = np.zeros(len(packed) + 1, np.int64)  # by how much the data after so many compressed batches moves
        for nth, index in enumerate(packed.tolist()):
            begin, end = int(self.body[index]), int(self.end[index])
            try:
                codec = parse_header(self.data, int(self.begin[index])).codec
                plain = decompress(codec, self.data[begin:end])
            except UnreadableRecords as error:
                log.error("the batch at offset %d is passed over: %s", self.header["base_offset"][index], error)
                plain = b""
                self.header["count"][index] = 0
            parts += [self.data[copied:begin], plain]
            copied = end
            grown[nth + 1] = grown[nth] + len(plain) - (end - begin)
        parts.append(self.data[copied:])
        self.data = b"".join(parts)
        # The start of a batch's records moves by the compressed batches before it; their end also by the batch itself.
        batch = np.arange(len(self.body))
        self.body = self.body + grown[np.searchsorted(packed, batch, side="left")]
        self.end = self.end + grown[np.searchsorted(packed, batch, side="right")]

    def _keep(self, mask: Mask) -> None:
        self.begin, self.stretch, self.header = self.begin[mask], self.stretch[mask], self.header[mask]
        self.end, self.body = self.end[mask], self.body[mask]

    def records(self) -> tuple[Ints, Ints, Ints]:
        """Return where the fields of each record begin and end, and the number of its batch."""
        count = self.header["count"].astype(np.int64)
        room = self.end - self.body
        lies = (count < 0) | (count > room)  # a record has more than one byte: do not allocate for a false count
        if lies.any():
            self.damaged(int(np.argmax(lies)))
        first = np.cumsum(count) - count
        total = int(count.sum())
        begin, stop = np.empty(total, np.int64), np.empty(total, np.int64)
        batch = np.repeat(np.arange(len(count)), count)
        at = self.body.copy()
        words = words_of(self.data)
        active = np.flatnonzero(count > 0)
        done = 0
        while len(active) >= _FEW:  # the next record of each batch that has one
            size, after = varints(words, at[active])
            row = first[active] + done
            begin[row] = after
            stop[row] = at[active] = inside(after + size, self.data)
            done += 1
            active = active[count[active] > done]
        for index in active.tolist():
            self._walk(index, int(first[index]) + done, int(count[index]) - done, at, begin, stop)
        wrong = at != self.end
        if wrong.any():
            self.damaged(int(np.argmax(wrong)))
        return begin, stop, batch

    def _walk(self, index: int, row: int, count: int, at: Ints, begin: Ints, stop: Ints) -> None:
        data, position, end = self.data, int(at[index]), int(self.end[index])
        begins: list[int] = []
        stops: list[int] = []
        try:
            for _ in range(count):
                size, position = decode_signed(data, position)
                begins.append(position)
                position += size
                stops.append(position)
                if size < 0 or position > end:
                    self.damaged(index)
        except IndexError:
            self.damaged(index)
        begin[row : row + count] = begins
        stop[row : row + count] = stops
        at[index] = position

    def damaged(self, index: int) -> None:
        offset = int(self.header["base_offset"][index])
        raise CorruptBatch(f"the records of the batch at offset {offset} cannot be read", offset=offset)


class HeaderTable(NamedTuple):
    """All headers of all rows, in their order: the row number, name and value of each."""

    row: Ints
    name: ByteSlices
    value: ByteSlices


class Columns(NamedTuple):
    """Rows in the order of the stretches and of their offsets.

    Args:
        data: The buffer that the slices refer to; longer than the end of the last slice.
        stretch: Number of the stretch that a row comes from.
        term: The batch's custody term; 0 where Fairlead did not write it.
        time_ms: Milliseconds since 1970 UTC.
    """

    data: bytes
    stretch: Ints
    offset: Ints
    time_ms: Ints
    term: Ints
    key: ByteSlices
    value: ByteSlices
    headers: HeaderTable

    def __len__(self) -> int:  # number of rows, as with every table
        return len(self.offset)

    def where(self, mask: Mask) -> Columns:
        """Return the rows that ``mask`` selects."""
        if mask.all():
            return self
        kept = mask[self.headers.row]
        headers = HeaderTable(
            (np.cumsum(mask) - 1)[self.headers.row[kept]], self.headers.name.where(kept), self.headers.value.where(kept)
        )
        return Columns(
            self.data,
            self.stretch[mask],
            self.offset[mask],
            self.time_ms[mask],
            self.term[mask],
            self.key.where(mask),
            self.value.where(mask),
            headers,
        )

    def header(self, name: bytes, *, first: bool = False) -> ByteSlices:
        """Return the value of each row's last header of this name, or of its first."""
        found = ByteSlices(np.zeros(len(self), np.int64), np.full(len(self), NONE, np.int64))
        table = self.headers
        named = np.flatnonzero(equal(self.data, table.name, name))
        if first:
            named = named[::-1]  # of several assignments to one row the last one wins
        rows = table.row[named]
        found.start[rows] = table.value.start[named]
        found.size[rows] = table.value.size[named]
        return found

    def equal(self, slices: ByteSlices, text: bytes) -> Mask:
        """Compare each slice with ``text``."""
        return equal(self.data, slices, text)


def decode(stretches: Iterable[Stretch], *, check_crc: bool = True) -> Columns:
    """Decode all records of all stretches, except those of control batches.

    Raises:
        CorruptBatch: a CRC does not match, or records cannot be read.
    """
    batches = Batches(stretches, check_crc=check_crc)
    at, stop, batch = batches.records()
    return _fields(batches, at, stop, batch)


def _fields(batches: Batches, at: Ints, stop: Ints, batch: Ints) -> Columns:
    header, data = batches.header, batches.data
    words = words_of(data)
    at = inside(at + 1, data)  # attributes, unused
    time_delta, at = varints(words, at)
    offset_delta, at = varints(words, at)
    key, at = _slice(words, at, data)
    value, at = _slice(words, at, data)
    headers, at = _header_table(words, at, data)
    wrong = at != stop
    if wrong.any():
        batches.damaged(int(batch[np.argmax(wrong)]))
    fixed = (header["attributes"] & LOG_APPEND_TIME) != 0
    base_time = np.where(fixed, header["max_timestamp"], header["base_timestamp"]).astype(np.int64)
    ours = (header["producer_id"] == PRODUCER_ID) & (header["epoch"] >= FIRST_TERM) & (header["sequence"] >= 0)
    term = np.where(ours, header["epoch"], 0).astype(np.int64)
    offset = header["base_offset"].astype(np.int64)[batch] + offset_delta
    found = Columns(
        batches.data,
        batches.stretch[batch],
        offset,
        base_time[batch] + np.where(fixed[batch], 0, time_delta),
        term[batch],
        key,
        value,
        headers,
    )
    low, high = batches.bounds[found.stretch].T if len(offset) else (offset, offset)
    return found.where((offset >= low) & (offset < high))


def _header_table(words: Words, at: Ints, data: bytes) -> tuple[HeaderTable, Ints]:
    count, at = varints(words, at)
    at = inside(at, data)
    rows: list[Ints] = []
    names: list[ByteSlices] = []
    values: list[ByteSlices] = []
    active = np.flatnonzero(count > 0)
    done = 0
    end = len(words)
    while len(active):
        name, position = _slice(words, at[active], data)
        value, position = _slice(words, position, data)
        position[name.size < 0] = end  # a header without a name is invalid: go to where no record ends
        at[active] = inside(position, data)
        rows.append(active)
        names.append(name)
        values.append(value)
        done += 1
        # A record whose position is outside has no further header, whatever number it claims.
        active = active[(count[active] > done) & (position < len(data) - OUTSIDE)]
    if not rows:
        empty = np.zeros(0, np.int64)
        return HeaderTable(empty, ByteSlices(empty, empty), ByteSlices(empty, empty)), at
    row = np.concatenate(rows)
    order = np.argsort(row, kind="stable")

    def joined(parts: Sequence[ByteSlices]) -> ByteSlices:
        return ByteSlices(*(np.concatenate(each)[order] for each in zip(*parts, strict=True)))

    return HeaderTable(row[order], joined(names), joined(values)), at


def _slice(words: Words, at: Ints, data: bytes) -> tuple[ByteSlices, Ints]:
    """Read a length and as many bytes; return (slices, positions after them)."""
    size, start = varints(words, at)
    size = np.maximum(size, NULL)
    after = inside(start + np.maximum(size, 0), data)
    return ByteSlices(start, size), after
