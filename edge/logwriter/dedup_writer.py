"""A writer that knows which readings its log already has: from the log's tail first, from further back when asked.

A reading that is newer than the newest record of its device is new, and a few records tell that. So after a start a
writer reads no more than those: with 20,000 logs, reading deeper of each was most of what the first readings cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from edge.logwriter import records
from edge.logwriter.dedup import DedupResult, SequenceDedup
from edge.logwriter.retry import retry_transient
from edge.logwriter.tail_reader import DEEP, DEPTH, NEWEST, LogTail, TailReader
from edge.logwriter.writer import EntryOutcome, LogEntry, LogWriter, Sink
from edge.messages import MessageId
from fairlead.kafka.protocol.record import Record


class DedupWriter(LogWriter[MessageId]):
    """The writer of a log of readings (a container's, or one of the ship's own).

    ``waits_for_broker``: a broker that does not serve the log is waited for; otherwise reading raises its error.
    """

    waits_for_broker: ClassVar[bool] = True
    __slots__ = ("_dedup", "_depth", "_floor", "_start_offset", "_tails")

    def __init__(
        self,
        log: str,
        sink: Sink,
        tails: TailReader,
        *,
        settle: Callable[[LogEntry[MessageId], EntryOutcome], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._dedup = SequenceDedup()
        super().__init__(log, sink, self._dedup, settle=settle, fail=fail)
        self._tails = tails
        self._depth = 0  # of the tail that was read last
        self._floor: int | None = None  # offset from which on the log is remembered; None before the first look
        self._start_offset = 0

    def ready(self) -> bool:
        return self._floor is not None

    async def prepare(self) -> None:
        if self._floor is None:
            await self.load()

    async def load(self, depth: int = NEWEST) -> None:
        """Read the log's tail (again)."""
        tail = await self._read_tail(depth)
        self.memory = self._dedup = SequenceDedup(complete=tail.whole, deep=depth >= DEEP)
        for record in tail.records:
            self._recall(record)
        self._start_offset, self._floor, self._depth = tail.start, tail.floor, depth

    async def _read_tail(self, depth: int) -> LogTail:
        if not self.waits_for_broker:
            return await self._tails.read(self.log, depth)
        return await retry_transient(lambda: self._tails.read(self.log, depth), f"reading the end of {self.log}")

    def opened(self) -> None:
        """The log is new: there is nothing to read."""
        self.memory = self._dedup = SequenceDedup(complete=True)
        self._start_offset = self._floor = self._depth = 0

    def unload(self) -> None:
        """Forget the log: somebody else appends to it now."""
        self.memory = self._dedup = SequenceDedup()
        self._floor, self._depth = None, 0

    async def cover(self, offset: int) -> None:
        """Remember the log from ``offset`` on at least."""
        await self.prepare()
        if self._floor is not None and self._floor > offset and self._depth < DEPTH:
            await self.load(DEPTH)  # which shares requests with other logs; mostly that is far enough
        if self._floor is None or self._floor <= offset:
            return
        async for record in self._tails.records(self.log, offset, self._floor, patient=self.waits_for_broker):
            self._recall(record)
        self._floor = offset

    async def look_back(self, entry: LogEntry[MessageId]) -> None:
        """Read more of the log: a longer tail, as much as may be sent again, then, if that does not decide, all of it,
        once."""
        for depth in (DEEP,) if entry.redelivered else (DEPTH, DEEP):
            if self._depth < depth:
                await self.load(depth)
                if self._dedup.check(entry.key, redelivered=entry.redelivered) is not DedupResult.UNDECIDED:
                    return
        if self._floor is not None and self._floor > self._start_offset:
            # Set first: what the memory's bounds make it forget while reading must show as "not complete".
            self._dedup.complete = True
            await self.cover(self._start_offset)

    def arrange(self, batch: Sequence[LogEntry[MessageId]]) -> None:
        """Mark what comes after a newer reading of its device: the order in the log is no longer the device's."""
        newest: dict[str, tuple[int, int]] = {}
        for entry in batch:
            device, at = entry.key.device, (entry.key.boot, entry.key.sequence)
            if at < newest.get(device, at) or self._dedup.is_late(entry.key):
                entry.record = records.late(entry.record)
            else:
                newest[device] = at

    def remember(self, entry: LogEntry[MessageId]) -> None:
        self._dedup.add(entry.key, late=records.is_late(entry.record))

    def _recall(self, record: Record) -> None:
        identity = records.identity_of(record)
        if identity is not None:
            self._dedup.add(identity, late=records.is_late(record))
