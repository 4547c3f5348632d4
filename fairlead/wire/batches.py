"""Very many batches at once: their bytes in one buffer, their headers as an array, and where their records are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
from crc32c import crc32c

from fairlead.wire.batch import CODEC_MASK, CONTROL, CRC_FROM, HEADER_BYTES, LENGTH_FROM, MAGIC, parse_header
from fairlead.wire.codecs import decompress
from fairlead.wire.errors import CorruptBatch
from fairlead.wire.pieces import PADDING, Ints, Mask, inside, varints, words_of
from fairlead.wire.stretch import Stretch
from fairlead.wire.varint import decode_signed

_FEW: Final = 48  # batches; below that Python is as fast as numpy
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
        self.body = self.begin + HEADER_BYTES  # where records begin, and end
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
        """Leave out control batches, and put decompressed records where compressed ones were."""
        attributes = self.header["attributes"]
        if (attributes & CONTROL).any():
            self._keep((attributes & CONTROL) == 0)
            attributes = self.header["attributes"]
        packed = np.flatnonzero(attributes & CODEC_MASK)
        if not len(packed):
            return
        parts: list[bytes] = []
        copied = 0
        grown = np.zeros(len(packed) + 1, np.int64)  # how far all is moved that lies behind so many packed batches
        for nth, index in enumerate(packed.tolist()):
            begin, end = int(self.body[index]), int(self.end[index])
            codec = parse_header(self.data, int(self.begin[index])).codec
            plain = decompress(codec, self.data[begin:end])
            parts += [self.data[copied:begin], plain]
            copied = end
            grown[nth + 1] = grown[nth] + len(plain) - (end - begin)
        parts.append(self.data[copied:])
        self.data = b"".join(parts)
        # The records of a packed batch begin behind the packed ones before it, and end behind itself.
        batch = np.arange(len(self.body))
        self.body = self.body + grown[np.searchsorted(packed, batch, side="left")]
        self.end = self.end + grown[np.searchsorted(packed, batch, side="right")]

    def _keep(self, mask: Mask) -> None:
        self.begin, self.stretch, self.header = self.begin[mask], self.stretch[mask], self.header[mask]
        self.end, self.body = self.end[mask], self.body[mask]

    def records(self) -> tuple[Ints, Ints, Ints]:
        """Where the fields of each record begin and end, and the number of its batch."""
        count = self.header["count"].astype(np.int64)
        room = self.end - self.body
        lies = (count < 0) | (count > room)  # a record has more than one byte; nobody may make us reserve more
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
