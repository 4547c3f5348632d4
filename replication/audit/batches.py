"""One log's stored batches from two sides: where they are the same, and which offsets records have to decide. Pure.

Batches are the same when offsets and CRC are. Where they are not, offsets are gathered until a batch ends at the same
offset on both sides; from there on batches are compared again. What holds no data counts as nothing: offsets without a
batch, control batches, aborted transactions. Nothing equals nothing, whatever its bounds.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final, NamedTuple

from fairlead.wire.batch import Header
from replication.content import is_plain

NEAR: Final = 10_000  # offsets; ranges that are nearer than this are read as one
STRICT_KEPT: Final = 16


class Batch(NamedTuple):
    """One stored batch, as it counts for equality and as it is shown.

    Args:
        crc: The CRC that every replica of it has (``content.canonical_crc``).
        plain: Its replicas have its bounds and CRC.
        void: It holds nothing that is data.
    """

    base: int
    stop: int
    crc: int
    plain: bool
    void: bool
    records: int
    producer_id: int
    epoch: int
    sequence: int

    @classmethod
    def of(cls, header: Header, crc: int, *, aborted: bool) -> Batch:
        void = aborted or header.is_control or header.count == 0
        return cls(
            header.base_offset,
            header.next_offset,
            crc,
            is_plain(header),
            void,
            header.count,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "base_offset": self.base,
            "records": self.records,
            "crc": self.crc,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "base_sequence": self.sequence,
        }


class Strict(NamedTuple):
    """Two plain batches with the same bounds and different CRCs: no copies of each other, unless one holds fillers."""

    a: Batch
    b: Batch


class _Piece(NamedTuple):
    stop: int
    batch: Batch | None  # None: nothing up to ``stop``, and that may be cut anywhere


class Batches:
    """Offsets ``start`` to ``stop - 1`` of one log, from sides 0 and 1.

    Attributes:
        ranges: Offsets ``[first, stop]`` that records must decide, near ones joined; in order.
        unlike: How many ranges that were before they were joined.
        strict: The first of the ranges that were a ``Strict`` pair.
    """

    __slots__ = (
        "_at",
        "_known",
        "_open",
        "_pending",
        "batches",
        "ranges",
        "records",
        "start",
        "stop",
        "strict",
        "unlike",
    )

    def __init__(self, start: int, stop: int) -> None:
        self.start, self.stop = start, stop
        self.ranges: list[list[int]] = []
        self.unlike = 0
        self.strict: list[Strict] = []
        self.batches = self.records = 0
        self._pending: tuple[deque[Batch], deque[Batch]] = (deque(), deque())
        self._known = [start, start]  # how far each side has told
        self._at = [start, start]  # how far each side is compared, or gathered
        self._open: int | None = None  # where the offsets gathered begin

    @property
    def finished(self) -> bool:
        return min(self._at) >= self.stop

    @property
    def compared_to(self) -> int:
        """All below is the same, without asking the records."""
        return self.ranges[0][0] if self.ranges else self._open if self._open is not None else min(self._at)

    def told(self, side: int) -> int:
        """The next offset to be asked for."""
        return self._known[side]

    def ahead(self, side: int) -> int:
        """Batches that wait for the other side."""
        return len(self._pending[side])

    def add(self, side: int, batch: Batch) -> None:
        """The next batch of a side. What reaches below ``start`` or above ``stop`` counts with its part in between."""
        if batch.stop > self._known[side]:
            self._pending[side].append(batch)
            self._known[side] = min(batch.stop, self.stop)

    def reach(self, side: int, offset: int) -> None:
        """A side has told all below ``offset``."""
        self._known[side] = max(self._known[side], min(offset, self.stop))

    def compare(self) -> None:
        """Compare what both sides have told."""
        while not self.finished:
            if self._at[0] == self._at[1]:
                self._close()
                here, there = self._piece(0), self._piece(1)
                if here is None or there is None:
                    return
                if not self._same(here, there):
                    self._open = self._at[0]
                    self._note_strict(here, there)
                    self._take(0 if here.stop <= there.stop else 1)
            else:
                behind = 0 if self._at[0] < self._at[1] else 1
                if self._piece(behind) is None:
                    return
                self._take(behind)
        self._close()

    def _same(self, here: _Piece, there: _Piece) -> bool:
        """Go over both when they are the same."""
        if here.batch is None and there.batch is None:
            for side in (0, 1):
                self._advance(side, min(here.stop, there.stop))
            return True
        one, other = here.batch, there.batch
        if one is None or other is None or one[:3] != other[:3]:
            return False
        for side in (0, 1):
            self._take(side)
        return True

    def _note_strict(self, here: _Piece, there: _Piece) -> None:
        one, other = here.batch, there.batch
        if one is None or other is None or one[:2] != other[:2] or not (one.plain and other.plain):
            return
        if len(self.strict) < STRICT_KEPT:
            self.strict.append(Strict(one, other))

    def _piece(self, side: int) -> _Piece | None:
        """What is next on a side; None while it has not told."""
        at, pending = self._at[side], self._pending[side]
        if not pending:
            return _Piece(self._known[side], None) if self._known[side] > at else None
        batch = pending[0]
        if batch.base > at:
            return _Piece(min(batch.base, self.stop), None)
        return _Piece(min(batch.stop, self.stop), None if batch.void else batch)

    def _take(self, side: int) -> None:
        """Go over the next piece of a side. Nothing is cut where the other side stands."""
        piece = self._piece(side)
        assert piece is not None  # noqa: S101 - it was looked at before
        other = self._at[1 - side]
        self._advance(side, min(piece.stop, other) if piece.batch is None and other > self._at[side] else piece.stop)

    def _advance(self, side: int, to: int) -> None:
        self._at[side] = to
        pending = self._pending[side]
        while pending and min(pending[0].stop, self.stop) <= to:
            batch = pending.popleft()
            if side == 0 and batch.base < self.stop:
                self.batches += 1
                self.records += batch.records

    def _close(self) -> None:
        """Both sides are at one offset: the offsets gathered are a range."""
        if self._open is None:
            return
        self.unlike += 1
        if self.ranges and self._open - self.ranges[-1][1] < NEAR:
            self.ranges[-1][1] = self._at[0]
        else:
            self.ranges.append([self._open, self._at[0]])
        self._open = None
