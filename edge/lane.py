"""One log's way into Kafka: entries in the order of arrival, one append at a time, repeats left out.

Every log has its own lane, so that no container waits behind another. What a lane holds is bounded by what the MQTT
broker lets be unacknowledged, because every entry that came from MQTT keeps its message unacknowledged until it is
stored. Controls (an event that moves the insert point) stand in the same queue as the readings and run alone: what
arrived before one is stored before it begins, what arrived after it waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, Protocol, TypeVar

from edge.acks import Ticket
from edge.repeats import Verdict
from fairlead.wire.record import NewRecord
from fairlead.wire.types import Appended, TopicPartition

MAX_BATCH_RECORDS = 1_000
MAX_BATCH_BYTES = 850_000  # below the appender's own limit, with room for the framing of each record
_RECORD_OVERHEAD = 120

K = TypeVar("K")
K_contra = TypeVar("K_contra", contravariant=True)


class Sink(Protocol):
    """Where lanes append: the part of ``fairlead.wire.appender.Appender`` that they use."""

    async def append(
        self, log: TopicPartition, records: Sequence[NewRecord], *, term: int | None = None
    ) -> Appended: ...


class Memory(Protocol[K_contra]):
    """Which entries the log already has.

    ``only_redelivered``: equal keys alone make no repeat, the broker must also say that it sends a message again.
    """

    @property
    def only_redelivered(self) -> bool: ...

    def check(self, key: K_contra, *, redelivered: bool = False) -> Verdict: ...

    def add(self, key: K_contra) -> None: ...


class Outcome(Enum):
    """What became of an entry."""

    APPENDED = "appended"
    REPEAT = "repeat"


@dataclass(slots=True, eq=False)
class Entry(Generic[K]):
    """One record on its way into a log. ``key`` is what repeats are recognised by."""

    record: NewRecord
    key: K
    redelivered: bool = False
    ticket: Ticket | None = None
    stored: asyncio.Future[Outcome] | None = None
    offset: int = -1  # known once it is stored


@dataclass(slots=True, eq=False)
class Control:
    """Something that must happen between two entries of a lane, and alone."""

    run: Callable[[], Awaitable[None]]


class Lane(Generic[K]):
    """The queue of one log and the one task that empties it.

    Args:
        memory: What the log already has; may be replaced by ``prepare``.
        settle: Called for each entry that is stored (or was already), in order.
        fail: Called with an error that the lane cannot deal with; the bridge stops.
    """

    def __init__(
        self,
        log: str,
        sink: Sink,
        memory: Memory[K],
        *,
        settle: Callable[[Entry[K], Outcome], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self.log = log
        self.tp = TopicPartition(log)
        self.memory = memory
        self._sink = sink
        self._settle = settle
        self._fail = fail
        self._queue: deque[Entry[K] | Control] = deque()
        self._task: asyncio.Task[None] | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def busy(self) -> bool:
        """Whether the lane has something to do."""
        return self._task is not None

    def put(self, item: Entry[K] | Control) -> None:
        """Add to the end of the queue."""
        self._queue.append(item)
        self.wake()

    def wake(self) -> None:
        """Go on, if there is something to do and nobody does it."""
        if self._task is None and self._queue:
            self._idle.clear()
            self._task = asyncio.create_task(self._run(), name=f"lane {self.log}")

    async def append(self, record: NewRecord, key: K, *, redelivered: bool = False) -> Entry[K]:
        """Put one record in and wait until it is stored; returns its entry with the offset (-1 for a repeat)."""
        entry = Entry(record, key, redelivered, stored=asyncio.get_running_loop().create_future())
        self.put(entry)
        assert entry.stored is not None  # noqa: S101 - for the type checker
        await entry.stored
        return entry

    async def run_alone(self, what: Callable[[], Awaitable[None]]) -> None:
        """Run something after all that is queued now, and wait for it."""
        done = asyncio.get_running_loop().create_future()

        async def run() -> None:
            try:
                await what()
            except BaseException as error:
                if not done.done():
                    done.set_exception(error)
                if not isinstance(error, Exception):
                    raise
            else:
                if not done.done():
                    done.set_result(None)

        self.put(Control(run))
        await done

    async def flush(self) -> None:
        """Wait until everything that is queued now is stored."""

        async def nothing() -> None:
            return

        await self.run_alone(nothing)

    async def idle(self) -> None:
        """Wait until the lane has nothing to do."""
        await self._idle.wait()

    async def close(self) -> None:
        """Stop at once; what is not stored stays unacknowledged."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def write(self, entries: Iterable[Entry[K]]) -> int:
        """Append entries now, in order, without the queue; returns how many were not repeats.

        Only for a control of this lane, while which nothing else of the lane is under way.
        """
        waiting = deque(entries)
        appended = 0
        while waiting:
            appended += await self._append_some(waiting)
        return appended

    # -- for lanes of logs that move

    def term(self) -> int | None:
        """The term in which this site may append; None where that never changes."""
        return None

    async def prepare(self) -> None:
        """Called before a batch is taken; a subclass loads here what it needs to know of the log."""

    async def look_back(self, keys: Sequence[K]) -> None:
        """Make ``memory`` decide about keys it left undecided; a subclass reads the log further back."""

    def arrange(self, batch: Sequence[Entry[K]]) -> None:
        """Called with each batch before it is appended; a subclass marks here what its place in the log tells."""

    async def divert(self, entry: Entry[K]) -> bool:
        """Whether the entry was taken elsewhere, because this site may not append to the log."""
        return False

    async def refused(self, error: Exception, entries: Sequence[Entry[K]]) -> bool:
        """An append failed for good; True when the entries were dealt with otherwise."""
        return False

    # -- the lane's task

    async def _run(self) -> None:
        try:
            while self._queue:
                head = self._queue[0]
                if isinstance(head, Control):
                    self._queue.popleft()
                    await head.run()
                    continue
                await self.prepare()
                if await self.divert(head):
                    self._queue.popleft()
                    continue
                await self._append_some(self._queue)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._fail(error)
        finally:
            self._task = None
            self._idle.set()

    async def _append_some(self, waiting: deque[Entry[K] | Control] | deque[Entry[K]]) -> int:
        """Append one batch from the front of a queue; returns how many entries were appended."""
        batch, followers = await self._take(waiting)
        if not batch:
            return 0
        self.arrange(batch)
        try:
            appended = await self._sink.append(self.tp, [entry.record for entry in batch], term=self.term())
        except Exception as error:
            if await self.refused(error, [*batch, *followers]):
                return 0
            for entry in (*batch, *followers):
                if entry.stored is not None and not entry.stored.done():
                    entry.stored.set_exception(error)
                    entry.stored.exception()  # whoever waits sees it; nobody need
            raise
        offset = appended.base_offset
        for entry in batch:
            entry.offset = offset
            offset += 1
            self.remember(entry)
            self.finish(entry, Outcome.APPENDED)
        for entry in followers:
            self.finish(entry, Outcome.REPEAT)
        return len(batch)

    async def _take(
        self, waiting: deque[Entry[K] | Control] | deque[Entry[K]]
    ) -> tuple[list[Entry[K]], list[Entry[K]]]:
        """The next batch, and repeats of entries in it, which are safe only once it is stored."""
        batch: list[Entry[K]] = []
        followers: list[Entry[K]] = []
        fresh: set[K] = set()
        size = 0
        while waiting and len(batch) < MAX_BATCH_RECORDS:
            entry = waiting[0]
            if isinstance(entry, Control):
                break
            if entry.key in fresh and (entry.redelivered or not self.memory.only_redelivered):
                followers.append(entry)
                waiting.popleft()
                continue
            verdict = self.memory.check(entry.key, redelivered=entry.redelivered)
            if verdict is Verdict.UNDECIDED:
                if batch:
                    break  # store these first, then look
                await self.look_back([entry.key])
                verdict = self.memory.check(entry.key, redelivered=entry.redelivered)
                # Memory that still cannot say has forgotten on purpose (its bounds): rather twice than never.
            if verdict is Verdict.REPEAT:
                waiting.popleft()
                self.finish(entry, Outcome.REPEAT)
                continue
            size += len(entry.record.value or b"") + len(entry.record.key or b"") + _RECORD_OVERHEAD
            if batch and size > MAX_BATCH_BYTES:
                break
            waiting.popleft()
            batch.append(entry)
            fresh.add(entry.key)
        return batch, followers

    def remember(self, entry: Entry[K]) -> None:
        """An entry is in the log now."""
        self.memory.add(entry.key)

    def finish(self, entry: Entry[K], outcome: Outcome) -> None:
        """An entry is safe: tell those who wait for it."""
        if entry.stored is not None and not entry.stored.done():
            entry.stored.set_result(outcome)
        self._settle(entry, outcome)
