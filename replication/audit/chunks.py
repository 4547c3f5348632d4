"""One log while it is compared: digests of its records, chunk by chunk of offsets, as both sides deliver them. Pure.

Sides are 0 and 1. They may run apart; what is kept is one digest per chunk that only one side has finished.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import msgspec

from replication.audit.result import Seen

CHUNK: Final = 10_000  # offsets
_Digest = tuple[int, bytes]  # how many records, and their digest
_encode: Final = msgspec.msgpack.Encoder().encode  # every value carries its length: no two sequences look the same


def digest(offset: int, record: Seen) -> bytes:
    """What stands for one record."""
    return hashlib.sha256(_encode((offset, *record))).digest()


class Chunks:
    """The records of offsets ``start`` to ``stop - 1`` of one log, from two sides.

    Attributes:
        differs: Offsets ``(first, stop)`` of the first chunk that is not the same, once that is known.
        records: How many records were found the same.
    """

    __slots__ = (
        "_counts",
        "_digests",
        "_done",
        "_equal",
        "_index",
        "_last",
        "_running",
        "differs",
        "records",
        "size",
        "start",
        "stop",
    )

    def __init__(self, start: int, stop: int, size: int = CHUNK) -> None:
        self.start, self.stop, self.size = start, stop, size
        self.differs: tuple[int, int] | None = None
        self.records = 0
        self._last = -(-(stop - start) // size)  # number of chunks
        self._equal = 0  # chunks below it are the same
        self._done = [0, 0]  # chunks below it are finished
        self._index = [-1, -1]  # the chunk that the running digest is of
        self._running: list[Any] = [None, None]
        self._counts = [0, 0]  # records of the running digest
        self._digests: tuple[dict[int, _Digest], dict[int, _Digest]] = ({}, {})

    def add(self, side: int, offset: int, record: Seen) -> bool:
        """The next record of a side; offsets ascend and lie within the range. True when it finished a chunk."""
        index = (offset - self.start) // self.size
        new = index != self._index[side]
        if new:
            self._finish(side, index)
            self._index[side] = index
            self._running[side] = hashlib.sha256()
            self._counts[side] = 0
        self._running[side].update(_encode((offset, *record)))
        self._counts[side] += 1
        return new

    def reach(self, side: int) -> None:
        """A side has no more records in the range."""
        self._finish(side, self._last)

    @property
    def compared_to(self) -> int:
        """All below this offset is the same."""
        return min(self.stop, self.start + self._equal * self.size)

    @property
    def finished(self) -> bool:
        """Nothing is left to compare: everything is the same, or ``differs`` is known."""
        return self.differs is not None or self._equal == self._last

    def ahead(self, side: int) -> int:
        """How many chunks a side has finished that the other has not."""
        return self._done[side] - self._done[1 - side]

    def _finish(self, side: int, before: int) -> None:
        """All chunks of a side below ``before`` are complete."""
        if self._running[side] is not None:
            self._digests[side][self._index[side]] = self._counts[side], self._running[side].digest()
            self._running[side] = None
        self._done[side] = before
        here, there = self._digests
        common = min(self._done)
        while self._equal < common and self.differs is None:
            one, other = here.pop(self._equal, None), there.pop(self._equal, None)
            if one != other:
                first = self.start + self._equal * self.size
                self.differs = first, min(first + self.size, self.stop)
            else:
                self._equal += 1
                self.records += one[0] if one else 0
