"""One log's way into Kafka: entries in the order of arrival, one append at a time, repeats left out.

Every log has its own writer, so that no container waits behind another. What a writer holds is bounded by what the MQTT
broker lets be unacknowledged, because every entry that came from MQTT keeps its message unacknowledged until it is
stored. Barriers (an event that moves the insert point) stand in the same queue as the readings and run alone: what
arrived before one is stored before it begins, what arrived after it waits.

There are as many writers as a site has logs, so one at rest is small, and the common case is cheap: where nothing needs
to be awaited but the append itself, no task is made.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, Protocol, TypeVar

from edge.logwriter.dedup import DedupResult
from edge.mqtt.acks import PendingAck
from fairlead.kafka.protocol.record import NewRecord
from fairlead.kafka.protocol.types import Appended, TopicPartition

MAX_BATCH_RECORDS = 1_000
MAX_BATCH_BYTES = 850_000  # below the appender's own limit, with room for the framing of each record
_RECORD_OVERHEAD = 120

K = TypeVar("K")
_Sent = tuple["list[LogEntry[K]]", "list[LogEntry[K]]"]  # a batch, and repeats of entries in it
K_contra = TypeVar("K_contra", contravariant=True)


class Sink(Protocol):
    """Where writers append: the part of ``fairlead.kafka.client.appender.Appender`` that they use."""

    def submit(
        self, log: TopicPartition, records: Sequence[NewRecord], *, term: int | None = None
    ) -> asyncio.Future[Appended]: ...


class Memory(Protocol[K_contra]):
    """Which entries the log already has.

    ``only_redelivered``: equal keys alone make no repeat, the broker must also say that it sends a message again.
    """

    @property
    def only_redelivered(self) -> bool: ...

    def check(self, key: K_contra, *, redelivered: bool = False) -> DedupResult: ...

    def add(self, key: K_contra) -> None: ...


class EntryOutcome(Enum):
    """What became of an entry."""

    APPENDED = "appended"
    REPEAT = "repeat"


@dataclass(slots=True, eq=False)
class LogEntry(Generic[K]):
    """One record on its way into a log. ``key`` is what repeats are recognised by.

    ``kept``: it is in a strays log too, so a refused append loses nothing, and nobody waits for it.
    """

    record: NewRecord
    key: K
    redelivered: bool = False
    ack: PendingAck | None = None
    stored: asyncio.Future[EntryOutcome] | None = None
    offset: int = -1  # known once it is stored
    kept: bool = False


@dataclass(slots=True, eq=False)
class Barrier:
    """Something that must happen between two entries of a writer, and alone.

    ``keep``: keeps what it is about in the strays log, so that nobody waits for it; it may be called while it runs.
    """

    run: Callable[[], Awaitable[None]]
    keep: Callable[[], None] | None = None


class LogWriter(Generic[K]):
    """The queue of one log, and what empties it.

    Args:
        memory: What the log already has; may be replaced by ``prepare``.
        settle: Called for each entry that is stored (or was already), in order.
        fail: Called with an error that the writer cannot deal with; the bridge stops.
    """

    __slots__ = (
        "_barrier",
        "_fail",
        "_queue",
        "_resting",
        "_sent",
        "_settle",
        "_sink",
        "_work",
        "blocked",
        "log",
        "memory",
        "progress",
        "tp",
    )

    def __init__(
        self,
        log: str,
        sink: Sink,
        memory: Memory[K],
        *,
        settle: Callable[[LogEntry[K], EntryOutcome], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self.log = log
        self.tp = TopicPartition(log)
        self.memory = memory
        self._sink = sink
        self._settle = settle
        self._fail = fail
        self._queue: deque[LogEntry[K] | Barrier] | None = (
            None  # none while it is empty: it takes more than all the rest
        )
        self._sent: _Sent[K] | None = None  # under way
        self._barrier: Barrier | None = None  # running
        self.blocked = False  # whether what comes is kept elsewhere, see ``keep_elsewhere``
        self.progress = 0  # changes whenever something of the queue is done
        # What goes on now: a start in the next turn of the event loop, an append without a task, or a task.
        self._work: asyncio.Handle | asyncio.Future[Appended] | asyncio.Task[None] | None = None
        self._resting: asyncio.Event | None = None  # set when idle; None while nothing waits for that

    def __len__(self) -> int:
        return len(self._queue) if self._queue is not None else 0

    @property
    def busy(self) -> bool:
        """Whether the writer has something to do."""
        return self._work is not None

    def enqueue(self, item: LogEntry[K] | Barrier) -> None:
        """Add to the end of the queue."""
        if self.blocked and self.keep_elsewhere(item):
            return
        if self._queue is None:
            self._queue = deque((item,))
        else:
            self._queue.append(item)
        if self._work is None:
            self._work = asyncio.get_running_loop().call_soon(self._start)

    async def append(self, record: NewRecord, key: K, *, redelivered: bool = False) -> LogEntry[K]:
        """Put one record in and wait until it is stored; returns its entry with the offset (-1 for a repeat)."""
        entry = LogEntry(record, key, redelivered, stored=asyncio.get_running_loop().create_future())
        self.enqueue(entry)
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

        self.enqueue(Barrier(run))
        await done

    async def flush(self) -> None:
        """Wait until everything that is queued now is stored."""

        async def nothing() -> None:
            return

        await self.run_alone(nothing)

    async def idle(self) -> None:
        """Wait until the writer has nothing to do."""
        while self._work is not None:
            self._resting = self._resting or asyncio.Event()
            await self._resting.wait()

    async def close(self) -> None:
        """Stop at once; what is not stored stays unacknowledged."""
        work = self._work
        if work is None:
            return
        work.cancel()
        if isinstance(work, asyncio.Future):
            await asyncio.gather(work, return_exceptions=True)
        else:
            self._rest()

    async def write(self, entries: Iterable[LogEntry[K]]) -> int:
        """Append entries now, in order, without the queue; returns how many were not repeats.

        Only for a barrier of this writer, while which nothing else of the writer is under way.
        """
        waiting = deque(entries)
        appended = 0
        while waiting and self.may_append():
            appended += await self._append_some(waiting)
        return appended

    # -- for writers of logs that move from site to site

    def may_append(self) -> bool:
        """Whether this site may append to the log now."""
        return True

    def term(self) -> int | None:
        """The term in which this site may append; None where that never changes."""
        return None

    def ready(self) -> bool:
        """Whether ``prepare`` has nothing to do and ``divert`` would take nothing."""
        return True

    async def prepare(self) -> None:
        """Called before a batch is taken; a subclass loads here what it needs to know of the log."""

    async def look_back(self, entry: LogEntry[K]) -> None:
        """Make ``memory`` decide about an entry it left undecided; a subclass reads the log further back."""

    def arrange(self, batch: Sequence[LogEntry[K]]) -> None:
        """Called with each batch before it is appended; a subclass marks here what its place in the log tells."""

    async def divert(self, entry: LogEntry[K]) -> bool:
        """Whether the entry was taken elsewhere, because this site may not append to the log."""
        return False

    def keep_elsewhere(self, item: LogEntry[K] | Barrier) -> bool:
        """Whether an item was kept elsewhere; called only while the writer is ``blocked``."""
        return False

    def unblock(self) -> None:
        """The log takes something again. Called only while the writer is ``blocked``."""
        self.blocked = False

    async def refused(self, error: Exception, entries: Sequence[LogEntry[K]]) -> bool:
        """An append failed for good, or the log cannot be read (then without entries); True when that was dealt with.
        Entries that were not given stay in the queue."""
        return False

    # -- without a task

    def _start(self) -> None:
        """Send what is there, if nothing else has to be awaited; the writer's task does all other things."""
        queue = self._queue
        if not queue or isinstance(queue[0], Barrier) or not self.ready():
            self._run_as_task()
            return
        try:
            batch, followers, unknown = self._gather(queue)
            if batch:
                self.arrange(batch)
                self._sent = batch, followers
                self._work = self._sink.submit(self.tp, [entry.record for entry in batch], term=self.term())
                self._work.add_done_callback(self._answered)
                return
        except Exception as error:
            self._run_as_task(error)
            return
        if unknown is not None or queue:
            self._run_as_task()
        else:
            self._rest()

    def _answered(self, answer: asyncio.Future[Appended]) -> None:
        """The append that went without a task has ended."""
        if answer.cancelled():
            self._sent = None
            self._rest()
            return
        error = answer.exception()
        if error is not None:
            self._run_as_task(error)
            return
        sent, self._sent = self._sent, None
        try:
            if sent is not None:
                self._landed(*sent, answer.result())
        except Exception as trouble:
            self._fail(trouble)
        if self._queue:
            self._start()
        else:
            self._rest()

    def _run_as_task(self, error: BaseException | None = None) -> None:
        self._work = asyncio.create_task(self._run(error), name=f"writer {self.log}")

    def _rest(self) -> None:
        self._work = None
        if not self._queue:
            self._queue = None
        if self._resting is not None:
            self._resting.set()
            self._resting = None

    # -- the writer's task

    async def _run(self, error: BaseException | None) -> None:
        try:
            if error is not None:
                sent, self._sent = self._sent or ([], []), None
                await self._refused(error, *sent)
            self.went_on()
            while self._queue:
                await self._do_next(self._queue)
                self.went_on()  # which may put something before all others
        except asyncio.CancelledError:
            raise
        except Exception as trouble:
            self._fail(trouble)
        finally:
            self._barrier = None
            self._rest()

    async def _do_next(self, queue: deque[LogEntry[K] | Barrier]) -> None:
        head = queue[0]
        if isinstance(head, Barrier):
            queue.popleft()
            self._barrier = head
            await head.run()
            self._barrier = None
            return
        await self.prepare()
        if self._is_next(head) and await self.divert(head):
            if self._is_next(head):
                queue.popleft()
        elif self._is_next(head):
            await self._append_some(queue)

    def _is_next(self, head: LogEntry[K] | Barrier) -> bool:
        """Whether something is still first in the queue: what waits may have been kept elsewhere meanwhile."""
        return bool(self._queue) and self._queue is not None and self._queue[0] is head

    async def _append_some(self, waiting: deque[LogEntry[K] | Barrier] | deque[LogEntry[K]]) -> int:
        """Append one batch from the front of a queue; returns how many entries were appended."""
        batch: list[LogEntry[K]] = []
        followers: list[LogEntry[K]] = []
        try:
            batch, followers = await self._take_batch(waiting)
            if not batch:
                return 0
            self.arrange(batch)
            self._sent = batch, followers
            appended = await self._sink.submit(self.tp, [entry.record for entry in batch], term=self.term())
        except Exception as error:
            await self._refused(error, batch, followers)
            return 0
        finally:
            self._sent = None
        self._landed(batch, followers, appended)
        return len(batch)

    async def _refused(self, error: BaseException, batch: list[LogEntry[K]], followers: list[LogEntry[K]]) -> None:
        """An append has failed; raises where that cannot be dealt with."""
        if isinstance(error, Exception) and await self.refused(error, [*batch, *followers]):
            return
        for entry in (*batch, *followers):
            if entry.stored is not None and not entry.stored.done():
                entry.stored.set_exception(error)
                entry.stored.exception()  # marks it as retrieved: nothing need wait for it
        raise error

    def _landed(self, batch: list[LogEntry[K]], followers: list[LogEntry[K]], appended: Appended) -> None:
        offset = appended.base_offset
        for entry in batch:
            entry.offset = offset
            offset += 1
            self.remember(entry)
            self.finish(entry, EntryOutcome.APPENDED)
        for entry in followers:
            self.finish(entry, EntryOutcome.REPEAT)
        self.went_on()

    async def _take_batch(
        self, waiting: deque[LogEntry[K] | Barrier] | deque[LogEntry[K]]
    ) -> tuple[list[LogEntry[K]], list[LogEntry[K]]]:
        """The next batch, and repeats of entries in it, which are safe only once it is stored."""
        looked: LogEntry[K] | None = None
        while True:
            batch, followers, unknown = self._gather(waiting, looked)
            if unknown is None:
                return batch, followers
            await self.look_back(unknown)
            looked = unknown

    def _gather(
        self, waiting: deque[LogEntry[K] | Barrier] | deque[LogEntry[K]], looked: LogEntry[K] | None = None
    ) -> tuple[list[LogEntry[K]], list[LogEntry[K]], LogEntry[K] | None]:
        """The next batch, repeats of entries in it, and the entry that ``memory`` cannot decide if it is the first one.

        Args:
            looked: The entry for which the log was read further back. A memory that still cannot say has reached its
                bounds. Then the entry is appended: a duplicate is better than a lost reading.
        """
        batch: list[LogEntry[K]] = []
        followers: list[LogEntry[K]] = []
        fresh: set[K] = set()
        size = 0
        while waiting and len(batch) < MAX_BATCH_RECORDS:
            entry = waiting[0]
            if isinstance(entry, Barrier):
                break
            if entry.key in fresh and (entry.redelivered or not self.memory.only_redelivered):
                followers.append(entry)
                waiting.popleft()
                continue
            found = self.memory.check(entry.key, redelivered=entry.redelivered)
            if found is DedupResult.UNDECIDED and entry is not looked:
                return batch, followers, None if batch else entry  # store these first, then look
            if found is DedupResult.REPEAT:
                waiting.popleft()
                self.finish(entry, EntryOutcome.REPEAT)
                continue
            size += len(entry.record.value or b"") + len(entry.record.key or b"") + _RECORD_OVERHEAD
            if batch and size > MAX_BATCH_BYTES:
                break
            waiting.popleft()
            batch.append(entry)
            fresh.add(entry.key)
        return batch, followers, None

    def went_on(self) -> None:
        """Something of the queue is done."""
        self.progress += 1
        if self.blocked:
            self.unblock()

    def remember(self, entry: LogEntry[K]) -> None:
        """An entry is in the log now."""
        self.memory.add(entry.key)

    def finish(self, entry: LogEntry[K], outcome: EntryOutcome) -> None:
        """An entry is safe: tell those who wait for it."""
        if entry.stored is not None and not entry.stored.done():
            entry.stored.set_result(outcome)
        self._settle(entry, outcome)
