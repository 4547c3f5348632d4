"""A lane that knows which readings its log already has: from the log's tail first, from further back when asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from edge import records
from edge.lane import Entry, Lane, Outcome, Sink
from edge.messages import Identity
from edge.repeats import Repeats, Verdict
from edge.tails import DEEP, DEPTH, Tails
from fairlead.wire.record import Record


class HistoryLane(Lane[Identity]):
    """The lane of a log of readings (a container's, or one of the ship's own)."""

    __slots__ = ("_floor", "_repeats", "_start_offset", "_tails")

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
        self._floor: int | None = None  # offset from which on the log is remembered; None before the first look
        self._start_offset = 0

    def ready(self) -> bool:
        return self._floor is not None

    async def prepare(self) -> None:
        if self._floor is None:
            await self.load()

    async def load(self, depth: int = DEPTH) -> None:
        """Read the log's tail (again)."""
        tail = await self._tails.read(self.log, depth)
        self.memory = self._repeats = Repeats(complete=tail.whole, deep=depth >= DEEP)
        for record in tail.records:
            self._recall(record)
        self._start_offset, self._floor = tail.start, tail.floor

    def opened(self) -> None:
        """The log is new: there is nothing to read."""
        self.memory = self._repeats = Repeats(complete=True)
        self._start_offset = self._floor = 0

    def unload(self) -> None:
        """Forget the log: somebody else appends to it now."""
        self.memory = self._repeats = Repeats()
        self._floor = None

    async def cover(self, offset: int) -> None:
        """Remember the log from ``offset`` on at least."""
        await self.prepare()
        if self._floor is None or self._floor <= offset:
            return
        async for record in self._tails.records(self.log, offset, self._floor):
            self._recall(record)
        self._floor = offset

    async def look_back(self, keys: Sequence[Identity]) -> None:
        """Read more of the log: as much as may be sent again, then, if that does not decide, all of it, once."""
        if not self._repeats.deep:
            await self.load(DEEP)
            if all(self._repeats.check(key, redelivered=True) is not Verdict.UNDECIDED for key in keys):
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
