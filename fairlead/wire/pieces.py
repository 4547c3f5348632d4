"""Numbers and pieces at very many places of a buffer at once, by numpy. Pure functions."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint64]

NULL: Final = -1  # size of what is null
NONE: Final = -2  # size of a header that a record does not have

PADDING: Final = bytes(128)  # behind the data, so that whole words can be read at any place of a damaged record
OUTSIDE: Final = 96  # bytes before the end: a place within the padding that no record ends at
_LONGEST_VARINT: Final = 10


class Slices(NamedTuple):
    """One piece of the buffer for each row; ``size`` is ``NULL`` for null and ``NONE`` for what is not there."""

    start: Ints
    size: Ints

    def where(self, mask: Mask) -> Slices:
        return Slices(self.start[mask], self.size[mask])


def words_of(data: bytes) -> Words:
    """The eight bytes from each position on, as a little-endian number."""
    return np.ndarray((len(data) - 8,), np.dtype("<u8"), data, strides=(1,))


def varints(words: Words, at: Ints) -> tuple[Ints, Ints]:
    """Zig-zag coded numbers at these positions, and the positions after them. More than 64 bits wrap around, as in
    Java; what has more than ten bytes ends where nothing does."""
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
        if shift == 8:  # most are of one byte or two
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
    """Positions that cannot be become one that can be read, and where nothing ends."""
    outside = len(data) - OUTSIDE
    return np.where((position < 0) | (position > outside), outside, position)


def equal(data: bytes, slices: Slices, text: bytes) -> Mask:
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
