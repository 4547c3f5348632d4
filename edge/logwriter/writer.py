"""Writes one log: appends its entries to Kafka in the order of arrival, one batch in flight, without repeats.

Every log has its own writer, so that no container waits behind another. Every entry from MQTT leaves its message
unacknowledged until it is stored, so the broker's limit on unacknowledged messages bounds a writer's queue. Barriers
(events that move custody, for example) stand in the same queue as the readings and run alone: earlier entries are
stored before a barrier begins, later ones wait for its end.

There is one writer per log of the site, so an idle writer is small and the common case is cheap: if only the append
itself must be awaited, the writer creates no task.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, Protocol, TypeVar

import msgspec

from edge.logwriter.dedup import DedupResult
from edge.mqtt.acks import PendingAck
from fairlead.kafka.protocol.record import NewRecord
from fairlead.kafka.protocol.types import Appended, TopicPartition

MAX_BATCH_RECORDS = 1_000
MAX_BATCH_BYTES = 850_000  # below the appender's own limit, with room for the framing of each record
_RECORD_OVERHEAD = 120

K = TypeVar("K")
_InFlight = tuple["list[LogEntry[K]]", "list[LogEntry[K]]"]  # a batch, and the repeats of its entries
K_contra = TypeVar("K_contra", contravariant=True)


class Sink(Protocol):
    """The part of ``fairlead.kafka.client.appender.Appender`` that writers use."""

    def submit(
        self, log: TopicPartition, records: Sequence[NewRecord], *, term: int | None = None
    ) -> asyncio.Future[Appended]: ...


class Memory(Protocol[K_contra]):
    """Knows which entries the log has.

    ``only_redelivered``: a known key makes a repeat only if the MQTT broker also marks the message as sent again.
    """

    @property
    def only_redelivered(self) -> bool: ...

    def check(self, key: K_contra, *, redelivered: bool = False) -> DedupResult: ...

    def add(self, key: K_contra) -> None: ...


class EntryOutcome(Enum):
    """How an entry became safe: appended now, or stored already."""

    APPENDED = "appended"
    REPEAT = "repeat"


class LogEntry(msgspec.Struct, Generic[K], eq=False):  # a struct, as one is made for each reading
    """One record to append to a log. Repeats have the same ``key``.

    ``kept``: the entry is in a strays log too, so a refused append loses nothing and no message waits for it.
    """

    record: NewRecord
    key: K
    redelivered: bool = False
    ack: PendingAck | None = None
    stored: asyncio.Future[EntryOutcome] | None = None
    offset: int = -1  # -1 until it is stored
    kept: bool = False


@dataclass(slots=True, eq=False)
class Barrier:
    """Work that must run between two entries of a writer, while the writer does nothing else.

    ``keep``: stores the barrier's event in the strays log, so that its message need not wait. It may be called while
    ``run`` is running. None: the barrier cannot be kept.
    """

    run: Callable[[], Awaitable[None]]
    keep: Callable[[], None] | None = None


class LogWriter(Generic[K]):
    """The queue of one log, and the append loop that empties it.

    Args:
        memory: Knows which entries the log has; ``prepare`` may replace it.
        settle: Called for each entry that is stored now, or was before, in order.
        fail: Called with an error that the writer cannot handle; the bridge stops.
    """

    __slots__ = (
        "_barrier",
        "_fail",
        "_in_flight",
        "_queue",
        "_resting",
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
            None  # while empty: a deque takes more memory than the rest of the writer
        )
        self._in_flight: _InFlight[K] | None = None  # the batch whose append is under way
        self._barrier: Barrier | None = None  # running
        self.blocked = False  # whether new items go to ``keep_elsewhere`` instead of the queue
        self.progress = 0  # changes whenever an item of the queue is done
        # The present activity: a start in the next turn of the event loop, an append without a task, or a task.
        self._work: asyncio.Handle | asyncio.Future[Appended] | asyncio.Task[None] | None = None
        self._resting: asyncio.Event | None = None  # set when idle; None while no caller waits for it

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
        """Enqueue a record and wait until it is stored. Returns its entry with the offset, -1 for a repeat."""
        entry = LogEntry(record, key, redelivered, stored=asyncio.get_running_loop().create_future())
        self.enqueue(entry)
        assert entry.stored is not None  # noqa: S101 - for the type checker
        await entry.stored
        return entry

    async def run_alone(self, what: Callable[[], Awaitable[None]]) -> None:
        """Run a coroutine function as a barrier after everything that is queued now, and wait for its end."""
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
        """Stop at once. Entries that are not stored stay unacknowledged."""
        work = self._work
        if work is None:
            return
        work.cancel()
        if isinstance(work, asyncio.Future):
            await asyncio.gather(work, return_exceptions=True)
        else:
            self._note_idle()

    async def write(self, entries: Iterable[LogEntry[K]]) -> None:
        """Append entries now, in order, past the queue.

        Call it only from a barrier of this writer, while the writer does nothing else.
        """
        waiting = deque(entries)
        while waiting and self.may_append():
            await self._append_some(waiting)

    # -- for writers of logs that move from site to site

    def may_append(self) -> bool:
        """Return whether this site may append to the log now."""
        return True

    def term(self) -> int | None:
        """Return the term in which this site may append; None for a log whose term never changes."""
        return None

    def ready(self) -> bool:
        """Return whether ``prepare`` has nothing to do and ``divert`` would return False."""
        return True

    async def prepare(self) -> None:
        """Called before a batch is taken from the queue; subclasses load their memory of the log here."""

    async def look_back(self, entry: LogEntry[K]) -> None:
        """Called for an entry that ``memory`` left undecided; subclasses read the log further back."""

    def mark_late(self, batch: Sequence[LogEntry[K]]) -> None:
        """Called with each batch before it is appended; subclasses mark those readings that come late here."""

    async def divert(self, entry: LogEntry[K]) -> bool:
        """Return whether the entry was kept elsewhere because this site may not append to the log."""
        return False

    def keep_elsewhere(self, item: LogEntry[K] | Barrier) -> bool:
        """Keep an item elsewhere if possible, and return whether it was. Called only while ``blocked`` is set."""
        return False

    def unblock(self) -> None:
        """End the block, because the log accepts appends again. Called only while the writer is ``blocked``."""
        self.blocked = False

    async def refused(self, error: Exception, entries: Sequence[LogEntry[K]]) -> bool:
        """Handle an append that failed for good, or a log that cannot be read. Returns whether the error was handled.

        ``entries`` are those of the append, none for a log that cannot be read; all others stay in the queue.
        """
        return False

    # -- without a task

    def _start(self) -> None:
        """Submit the first batch if only the append must be awaited; otherwise start the writer's task."""
        queue = self._queue
        if not queue or isinstance(queue[0], Barrier) or not self.ready():
            self._run_as_task()
            return
        try:
            batch, followers, unknown = self._gather(queue)
            if batch:
                self.mark_late(batch)
                self._in_flight = batch, followers
                self._work = self._sink.submit(self.tp, [entry.record for entry in batch], term=self.term())
                self._work.add_done_callback(self._answered)
                return
        except Exception as error:
            self._run_as_task(error)
            return
        if unknown is not None or queue:
            self._run_as_task()
        else:
            self._note_idle()

    def _answered(self, answer: asyncio.Future[Appended]) -> None:
        """Handle the end of an append that was submitted without a task."""
        if answer.cancelled():
            self._in_flight = None
            self._note_idle()
            return
        error = answer.exception()
        if error is not None:
            self._run_as_task(error)
            return
        in_flight, self._in_flight = self._in_flight, None
        try:
            if in_flight is not None:
                self._note_stored(*in_flight, answer.result())
        except Exception as trouble:
            self._fail(trouble)
        if self._queue:
            self._start()
        else:
            self._note_idle()

    def _run_as_task(self, error: BaseException | None = None) -> None:
        self._work = asyncio.create_task(self._run(error), name=f"writer {self.log}")

    def _note_idle(self) -> None:
        """End the present activity, and wake those that wait for an idle writer."""
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
                in_flight, self._in_flight = self._in_flight or ([], []), None
                await self._refused(error, *in_flight)
            self._note_progress()
            while self._queue:
                await self._do_next(self._queue)
                self._note_progress()  # it may put a barrier first in the queue
        except asyncio.CancelledError:
            raise
        except Exception as trouble:
            self._fail(trouble)
        finally:
            self._barrier = None
            self._note_idle()

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
        """Return whether an item is still first in the queue; it may have been kept elsewhere meanwhile."""
        return bool(self._queue) and self._queue is not None and self._queue[0] is head

    async def _append_some(self, waiting: deque[LogEntry[K] | Barrier] | deque[LogEntry[K]]) -> None:
        """Append one batch from the front of a queue."""
        batch: list[LogEntry[K]] = []
        followers: list[LogEntry[K]] = []
        try:
            batch, followers = await self._take_batch(waiting)
            if not batch:
                return
            self.mark_late(batch)
            self._in_flight = batch, followers
            appended = await self._sink.submit(self.tp, [entry.record for entry in batch], term=self.term())
        except Exception as error:
            await self._refused(error, batch, followers)
            return
        finally:
            self._in_flight = None
        self._note_stored(batch, followers, appended)

    async def _refused(self, error: BaseException, batch: list[LogEntry[K]], followers: list[LogEntry[K]]) -> None:
        """Handle an append that failed: call ``refused``, and raise the error if it was not handled."""
        if isinstance(error, Exception) and await self.refused(error, [*batch, *followers]):
            return
        for entry in (*batch, *followers):
            if entry.stored is not None and not entry.stored.done():
                entry.stored.set_exception(error)
                entry.stored.exception()  # marks it as retrieved: maybe no caller waits for it
        raise error

    def _note_stored(self, batch: list[LogEntry[K]], followers: list[LogEntry[K]], appended: Appended) -> None:
        """Remember a batch that is in the log now, and settle it with its repeats."""
        offset = appended.base_offset
        for entry in batch:
            entry.offset = offset
            offset += 1
            self.remember(entry)
            self.finish(entry, EntryOutcome.APPENDED)
        for entry in followers:
            self.finish(entry, EntryOutcome.REPEAT)
        self._note_progress()

    async def _take_batch(
        self, waiting: deque[LogEntry[K] | Barrier] | deque[LogEntry[K]]
    ) -> tuple[list[LogEntry[K]], list[LogEntry[K]]]:
        """Take the next batch from the queue, and the repeats of its entries, which are safe only once it is stored."""
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
        """Take a batch from the queue without awaiting anything.

        Returns the batch, the repeats of its entries, and the first entry of the queue if ``memory`` cannot decide
        about it; the batch is empty then.

        Args:
            looked: The entry for which the log was read further back. If the memory still cannot decide, it has reached
                its bounds, and the entry is appended: a duplicate is better than a lost reading.
        """
        batch: list[LogEntry[K]] = []
        followers: list[LogEntry[K]] = []
        fresh: set[K] = set()
        size = 0
        while waiting and len(batch) < MAX_BATCH_RECORDS:
            entry = waiting[0]
            if isinstance(entry, Barrier):
                break
            if batch and entry.key in fresh and (entry.redelivered or not self.memory.only_redelivered):
                followers.append(entry)
                waiting.popleft()
                continue
            found = self.memory.check(entry.key, redelivered=entry.redelivered)
            if found is DedupResult.UNDECIDED and entry is not looked:
                return batch, followers, None if batch else entry  # store the batch first, then read further back
            if found is DedupResult.REPEAT:
                waiting.popleft()
                self.finish(entry, EntryOutcome.REPEAT)
                continue
            size += len(entry.record.value or b"") + len(entry.record.key or b"") + _RECORD_OVERHEAD
            if batch and size > MAX_BATCH_BYTES:
                break
            waiting.popleft()
            batch.append(entry)
            if waiting:  # most batches have one entry, whose key need not be hashed
                fresh.add(entry.key)
        return batch, followers, None

    def _note_progress(self) -> None:
        """Note that an item of the queue is done."""
        self.progress += 1
        if self.blocked:
            self.unblock()

    def remember(self, entry: LogEntry[K]) -> None:
        """Add an entry that was appended to the memory."""
        self.memory.add(entry.key)

    def finish(self, entry: LogEntry[K], outcome: EntryOutcome) -> None:
        """Note that an entry is safe: wake the caller that waits for it, and settle it."""
        if entry.stored is not None and not entry.stored.done():
            entry.stored.set_result(outcome)
        self._settle(entry, outcome)
