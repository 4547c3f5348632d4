"""Quick audit: compare stored batches of both sites, many logs per Fetch, and find offsets to compare by records.

Two batches are equal if their offsets and CRCs are. From a difference on, offsets are collected into a range until a
batch ends at the same offset on both sides; from there batches are compared again. Offsets without a batch, control
batches and aborted transactions hold no data. Two stretches without data are equal, whatever their bounds.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from fairlead.errors import UnavailableError
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.convention import is_filler
from fairlead.kafka.protocol.batch import HEADER_BYTES, BatchHeader, split, split_aborted
from fairlead.kafka.protocol.errors import OFFSET_OUT_OF_RANGE, broker_error
from fairlead.kafka.protocol.record import decode_batch
from fairlead.kafka.protocol.types import FetchedPartition, TopicPartition
from replication.audit.ranges import Common
from replication.batch.header_rewrite import canonical_crc, is_plain
from replication.link.byte_budget import ReadPace

NEAR: Final = 10_000  # offsets; ranges closer than this are joined
STRICT_KEPT: Final = 16


class AuditedBatch(NamedTuple):
    """The facts of one stored batch that are compared and shown.

    Args:
        crc: The CRC that every replica of the batch has (``header_rewrite.canonical_crc``).
        plain: Whether its replicas have the same bounds and CRC.
        void: Whether it has no data.
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
    def of(cls, header: BatchHeader, crc: int, *, aborted: bool) -> AuditedBatch:
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
    """Two plain batches with equal bounds and different CRCs: not copies of each other, unless one holds fillers."""

    a: AuditedBatch
    b: AuditedBatch


class _Piece(NamedTuple):
    stop: int
    batch: AuditedBatch | None  # None: no data up to ``stop``; such a piece may be split anywhere


class BatchComparison:
    """Compare offsets ``start`` to ``stop - 1`` of one log from sides 0 and 1, batch by batch.

    Attributes:
        ranges: Ascending ranges ``[first, stop]`` to compare by records; ranges close to each other are joined.
        unlike: Number of ranges before joining.
        strict: The first ``STRICT_KEPT`` differences that are a ``Strict`` pair.
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
        self._pending: tuple[deque[AuditedBatch], deque[AuditedBatch]] = (deque(), deque())
        self._known = [start, start]  # per side, the offset up to which its batches are known
        self._at = [start, start]  # per side, the offset up to which it is compared or collected
        self._open: int | None = None  # start of the range that is being collected

    @property
    def finished(self) -> bool:
        return min(self._at) >= self.stop

    @property
    def compared_to(self) -> int:
        """Return the offset below which all batches are equal."""
        return self.ranges[0][0] if self.ranges else self._open if self._open is not None else min(self._at)

    def known_to(self, side: int) -> int:
        """Return the offset up to which a side's batches are known."""
        return self._known[side]

    def ahead(self, side: int) -> int:
        """Return how many of a side's batches wait for the other side."""
        return len(self._pending[side])

    def add(self, side: int, batch: AuditedBatch) -> None:
        """Add a side's next batch; only its part between ``start`` and ``stop`` counts."""
        if batch.stop > self._known[side]:
            self._pending[side].append(batch)
            self._known[side] = min(batch.stop, self.stop)

    def reach(self, side: int, offset: int) -> None:
        """Record that a side has no more batches below ``offset``."""
        self._known[side] = max(self._known[side], min(offset, self.stop))

    def compare(self) -> None:
        """Compare as far as both sides are known."""
        while not self.finished:
            if self._at[0] == self._at[1]:
                self._close()
                here, there = self._piece(0), self._piece(1)
                if here is None or there is None:
                    return
                if not self._same(here, there):
                    self._open = self._at[0]
                    self._note_strict(here, there)
                    self._pop_piece(0 if here.stop <= there.stop else 1)
            else:
                behind = 0 if self._at[0] < self._at[1] else 1
                if self._piece(behind) is None:
                    return
                self._pop_piece(behind)
        self._close()

    def _same(self, here: _Piece, there: _Piece) -> bool:
        """Advance both sides and return True if the pieces are equal."""
        if here.batch is None and there.batch is None:
            for side in (0, 1):
                self._advance(side, min(here.stop, there.stop))
            return True
        one, other = here.batch, there.batch
        if one is None or other is None or one[:3] != other[:3]:
            return False
        for side in (0, 1):
            self._pop_piece(side)
        return True

    def _note_strict(self, here: _Piece, there: _Piece) -> None:
        one, other = here.batch, there.batch
        if one is None or other is None or one[:2] != other[:2] or not (one.plain and other.plain):
            return
        if len(self.strict) < STRICT_KEPT:
            self.strict.append(Strict(one, other))

    def _piece(self, side: int) -> _Piece | None:
        """Return a side's next piece; None while it is not known."""
        at, pending = self._at[side], self._pending[side]
        if not pending:
            return _Piece(self._known[side], None) if self._known[side] > at else None
        batch = pending[0]
        if batch.base > at:
            return _Piece(min(batch.base, self.stop), None)
        return _Piece(min(batch.stop, self.stop), None if batch.void else batch)

    def _pop_piece(self, side: int) -> None:
        """Advance a side by its next piece; split a piece without data at the other side's position."""
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
        """End the range that is being collected, because both sides are at the same offset."""
        if self._open is None:
            return
        self.unlike += 1
        if self.ranges and self._open - self.ranges[-1][1] < NEAR:
            self.ranges[-1][1] = self._at[0]
        else:
            self.ranges.append([self._open, self._at[0]])
        self._open = None


AHEAD: Final = 200  # batches of one log that may wait for the other side
ANSWER_BYTES: Final = 16 << 20
LOG_BYTES: Final = 1 << 20
PATIENCE: Final = 30.0  # seconds without new batches
COMMITTED: Final = 1  # isolation level: the answer lists aborted transactions


class QuickComparison:
    """Compare the stored batches of two sites.

    Args:
        on_equal: Called now and then with a log and the offset below which it is equal.
    """

    def __init__(
        self,
        clusters: tuple[Cluster, Cluster],
        paces: tuple[ReadPace, ReadPace],
        *,
        on_equal: Callable[[Common, int], None] = lambda _log, _to: None,
    ) -> None:
        self._clusters = clusters
        self._paces = paces
        self._on_equal = on_equal

    async def compare(self, logs: Sequence[Common]) -> tuple[dict[Common, BatchComparison], list[Common]]:
        """Compare logs batch by batch. Return the comparisons, and the logs that lost records at their start meanwhile.

        Raises:
            FairleadError: a site cannot be read.
        """
        found = {log.tp: BatchComparison(log.start, log.stop) for log in logs}
        moved: set[TopicPartition] = set()
        open_ = {tp: each for tp, each in found.items() if not each.finished}
        orders: tuple[list[TopicPartition], list[TopicPartition]] = (list(open_), list(open_))
        heard = noted = time.monotonic()
        idle = False
        while open_:
            news = await asyncio.gather(*(self._more(side, orders[side], open_, moved, idle) for side in (0, 1)))
            for tp in moved:
                open_.pop(tp, None)
            for tp in [tp for tp, each in open_.items() if each.finished]:
                del open_[tp]
            if time.monotonic() - noted > 1:
                noted = time.monotonic()
                for log in logs:
                    if log.tp in open_ and open_[log.tp].compared_to > log.start:
                        self._on_equal(log, open_[log.tp].compared_to)
            idle = not any(news)
            heard = heard if idle else time.monotonic()
            if time.monotonic() - heard > PATIENCE:
                raise UnavailableError(
                    f"no data came for {PATIENCE:g} s; {len(open_)} logs are left: {next(iter(open_))}..",
                    hint="check that both sites run (fairlead status), then continue with --resume",
                )
        return {log: found[log.tp] for log in logs if log.tp not in moved}, [log for log in logs if log.tp in moved]

    async def faithful(self, pair: Strict, tp: TopicPartition) -> bool:
        """Return whether one of the two batches holds fillers, which every replicator creates by itself."""
        for cluster, batch in zip(self._clusters, pair, strict=True):
            answer = (await cluster.fetch({tp: batch.base}, max_wait_ms=0))[tp]
            for there in split(answer.records):
                if there.header.base_offset == batch.base:
                    if any(is_filler(record) for record in decode_batch(answer.records, there.start, there.stop)):
                        return True
                    break
        return False

    async def _more(
        self,
        side: int,
        order: list[TopicPartition],
        open_: Mapping[TopicPartition, BatchComparison],
        moved: set[TopicPartition],
        idle: bool,
    ) -> bool:
        """Send one Fetch to one side; return True if it brought batches."""
        order[:] = [tp for tp in order if tp in open_ and open_[tp].known_to(side) < open_[tp].stop]
        asked = {tp: open_[tp].known_to(side) for tp in order if open_[tp].ahead(side) < AHEAD}
        if not asked:
            return False
        pace = self._paces[side]
        await asyncio.sleep(pace.wait())
        answer = await self._clusters[side].fetch(
            asked,
            max_wait_ms=100 if idle else 0,
            max_bytes=pace.allowance(ANSWER_BYTES),
            partition_max_bytes=pace.allowance(max(LOG_BYTES, ANSWER_BYTES // len(asked))),
            isolation=COMMITTED,
        )
        served: set[TopicPartition] = set()
        nothing = idle and not any(len(part.records) for part in answer.values())  # no log was left out for size
        for tp, part in answer.items():
            pace.charge(len(part.records))
            if part.error_code == OFFSET_OUT_OF_RANGE:
                moved.add(tp)
            elif part.error_code:
                raise broker_error(part.error_code, tp)
            elif _collect(open_[tp], side, part):
                served.add(tp)
            elif nothing and part.last_stable_offset >= open_[tp].stop:
                open_[tp].reach(side, open_[tp].stop)  # compaction has removed everything up to the end
                open_[tp].compare()
        # Move the served logs to the end, because the broker fills an answer in the order of the request.
        order.sort(key=served.__contains__)
        return bool(served)


def _collect(into: BatchComparison, side: int, part: FetchedPartition) -> bool:
    """Add the whole batches of a fetched partition; return True if there were any. Changes the bytes in place."""
    if len(part.records) < HEADER_BYTES:
        return False
    before = into.known_to(side)
    for batch, void in split_aborted(part.records, part.aborted):
        header = batch.header
        crc = 0 if void or header.is_control else canonical_crc(part.records[batch.start : batch.stop], header)
        into.add(side, AuditedBatch.of(header, crc, aborted=void))
    into.compare()
    return into.known_to(side) > before
