"""A lane that knows which readings its log already has: from the log's tail first, from further back when asked.

A reading that is newer than the newest record of its device is new, and a few records tell that. So after a start a
lane reads no more than those: with 20,000 logs, reading deeper of each was most of what the first readings cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from edge import records
from edge.lane import Entry, Lane, Outcome, Sink
from edge.messages import Identity
from edge.repeats import Repeats, Verdict
from edge.tails import DEEP, DEPTH, NEWEST, Tails
from fairlead.wire.record import Record


class HistoryLane(Lane[Identity]):
    """The lane of a log of readings (a container's, or one of the ship's own)."""

    __slots__ = ("_depth", "_floor", "_repeats", "_start_offset", "_tails")

    def __init__(
        self,
        log: str,
        sink: Sink,
        tails: Tails,
        *,
        settle: Callable[[Entry[Identity], Outcome], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._repeats = Repeats()
        super().__init__(log, sink, self._repeats, settle=settle, fail=fail)
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
        tail = await self._tails.read(self.log, depth)
        self.memory = self._repeats = Repeats(complete=tail.whole, deep=depth >= DEEP)
        for record in tail.records:
            self._recall(record)
        self._start_offset, self._floor, self._depth = tail.start, tail.floor, depth

    def opened(self) -> None:
        """The log is new: there is nothing to read."""
        self.memory = self._repeats = Repeats(complete=True)
        self._start_offset = self._floor = self._depth = 0

    def unload(self) -> None:
        """Forget the log: somebody else appends to it now."""
        self.memory = self._repeats = Repeats()
        self._floor, self._depth = None, 0

    async def cover(self, offset: int) -> None:
        """Remember the log from ``offset`` on at least."""
        await self.prepare()
        if self._floor is not None and self._floor > offset and self._depth < DEPTH:
            await self.load(DEPTH)  # which shares requests with other logs; mostly that is far enough
        if self._floor is None or self._floor <= offset:
            return
        async for record in self._tails.records(self.log, offset, self._floor):
            self._recall(record)
        self._floor = offset

    async def look_back(self, entry: Entry[Identity]) -> None:
        """Read more of the log: a longer tail, as much as may be sent again, then, if that does not decide, all of it,
        once."""
        for depth in (DEEP,) if entry.redelivered else (DEPTH, DEEP):
            if self._depth < depth:
                await self.load(depth)
                if self._repeats.check(entry.key, redelivered=entry.redelivered) is not Verdict.UNDECIDED:
                    return
        if self._floor is not None and self._floor > self._start_offset:
            # Set first: what the memory's bounds make it forget while reading must show as "not complete".
            self._repeats.complete = True
            await self.cover(self._start_offset)

    def arrange(self, batch: Sequence[Entry[Identity]]) -> None:
        """Mark what comes after a newer reading of its device: the order in the log is no longer the device's."""
        newest: dict[str, tuple[int, int]] = {}
        for entry in batch:
            device, at = entry.key.device, (entry.key.boot, entry.key.sequence)
            if at < newest.get(device, at) or self._repeats.is_late(entry.key):
                entry.record = records.late(entry.record)
            else:
                newest[device] = at

    def remember(self, entry: Entry[Identity]) -> None:
        self._repeats.add(entry.key, late=records.is_late(entry.record))

    def _recall(self, record: Record) -> None:
        identity = records.identity_of(record)
        if identity is not None:
            self._repeats.add(identity, late=records.is_late(record))
