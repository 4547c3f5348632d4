"""Stretches of a log: complete batches as a broker gave them, and where each begins. Pure."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from fairlead.wire.batch import HEADER_BYTES, LENGTH_FROM, Buffer, parse_header
from fairlead.wire.errors import CorruptBatch

_START: Final = struct.Struct(">qi")
_LENGTH_OF_HEADER: Final = HEADER_BYTES - LENGTH_FROM


class Stretch(NamedTuple):
    """Complete batches of one log, ``buffer[starts[0]:end]``, as a broker gave them. Of their records only those with
    ``first <= offset < stop`` count. ``after``: up to where, not including it, the log is known now; there may be no
    batch at all before it."""

    buffer: Buffer
    starts: Sequence[int]
    end: int
    first: int
    stop: int
    after: int
    records: int  # how many the batches' headers promise


def stretch(buffer: Buffer, first: int, stop: int) -> Stretch:
    """The complete batches at the beginning of ``buffer`` that begin before offset ``stop``; a last one that is cut
    short is left out.

    Raises:
        CorruptBatch: a batch is not of format v2, or its length cannot be.
    """
    starts: list[int] = []
    size, at, after = len(buffer), 0, first
    unpack = _START.unpack_from
    while size - at >= HEADER_BYTES:
        offset, length = unpack(buffer, at)
        if length < _LENGTH_OF_HEADER:
            parse_header(buffer, at)  # raises with the fitting words when it is the format
            raise CorruptBatch(f"a record batch claims to be {length} bytes long")
        end = at + LENGTH_FROM + length
        if end > size:
            break
        if offset >= stop:
            after = stop  # whatever was before it was deleted by compaction
            break
        starts.append(at)
        at = end
    if not starts:
        return Stretch(buffer, starts, 0, first, stop, after, 0)
    last = parse_header(buffer, starts[-1])
    records = last.next_offset - unpack(buffer, starts[0])[0]
    return Stretch(buffer, starts, at, first, stop, max(after, last.next_offset), records)
