"""The writers of logs of readings.

``DedupWriter`` drops readings that the log has already. ``ContainerWriter`` also obeys custody: it appends while this
site holds the log, and keeps readings as strays while it does not.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Protocol

from edge.holdings import CustodyState, Holdings
from edge.logwriter import records
from edge.logwriter.dedup import DedupResult, SequenceDedup
from edge.logwriter.retry import retry_transient
from edge.logwriter.tail_reader import DEEP, DEPTH, NEWEST, LogTail, TailReader
from edge.logwriter.writer import Barrier, EntryOutcome, LogEntry, LogWriter, Sink
from edge.messages import MessageId
from fairlead.errors import FairleadError
from fairlead.kafka.protocol.errors import BrokerError, Conflict, CorruptBatch, Fenced, Misplaced
from fairlead.kafka.protocol.record import Record

log = logging.getLogger(__name__)


FIRST_LOOK: Final = 1.0  # seconds until a broken log is checked again if the first check fails


@dataclass(slots=True)
class BrokenLog:
    """The next check of a log that cannot be appended to. ``due`` is on the monotonic clock, in seconds."""

    due: float
    retriable: bool  # whether the error that broke it is retriable
    delay: float  # seconds from the next check to the one after it


class BrokenLogs:
    """Containers' logs that cannot be appended to or read. ``edge.custody.recovery`` finds out who holds them."""

    def __init__(self) -> None:
        self.looks: dict[str, BrokenLog] = {}
        self.added = asyncio.Event()

    def add(self, topic: str, error: Exception) -> None:
        """Schedule a check of a log for now."""
        retriable = isinstance(error, FairleadError) and error.retriable
        self.looks[topic] = BrokenLog(time.monotonic(), retriable, FIRST_LOOK)
        self.added.set()


class DedupWriter(LogWriter[MessageId]):
    """The writer of a log of readings, a container's or one of a ship's own. Drops readings that the log has already.

    A reading that is newer than the newest record of its device is new, which the last few records of the log show. The
    writer reads more of the log only for a reading that these do not decide.

    ``waits_for_broker``: whether to wait for a broker that does not serve the log. If not, reading the log raises.
    """

    waits_for_broker: ClassVar[bool] = True
    memory: SequenceDedup
    __slots__ = ("_depth", "_floor", "_start_offset", "_tails")

    def __init__(
        self,
        log: str,
        sink: Sink,
        tails: TailReader,
        *,
        settle: Callable[[LogEntry[MessageId], EntryOutcome], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        super().__init__(log, sink, SequenceDedup(), settle=settle, fail=fail)
        self._tails = tails
        self._depth = 0  # records in the tail that was read last
        self._floor: int | None = None  # offset from which on the log is remembered; None before the first read
        self._start_offset = 0

    def ready(self) -> bool:
        return self._floor is not None

    async def prepare(self) -> None:
        if self._floor is None:
            await self.load()

    async def load(self, depth: int = NEWEST) -> None:
        """Read the log's newest ``depth`` records into memory, in place of what the memory has."""
        tail = await self._read_tail(depth)
        self.memory = SequenceDedup(complete=tail.whole, deep=depth >= DEEP)
        for record in tail.records:
            self._recall(record)
        self._start_offset, self._floor, self._depth = tail.start, tail.floor, depth

    async def _read_tail(self, depth: int) -> LogTail:
        if not self.waits_for_broker:
            return await self._tails.read(self.log, depth)
        return await retry_transient(lambda: self._tails.read(self.log, depth), f"reading the end of {self.log}")

    def opened(self) -> None:
        """Note that the log is new, so that nothing needs to be read."""
        self.memory = SequenceDedup(complete=True)
        self._start_offset = self._floor = self._depth = 0

    def unload(self) -> None:
        """Forget which readings the log has, because another site appends to it now."""
        self.memory = SequenceDedup()
        self._floor, self._depth = None, 0

    async def load_from(self, offset: int) -> None:
        """Load into memory which readings the log has from ``offset`` or earlier on."""
        await self.prepare()
        if self._floor is not None and self._floor > offset and self._depth < DEPTH:
            await self.load(DEPTH)  # cheaper, because it shares requests with other logs; mostly enough
        if self._floor is None or self._floor <= offset:
            return
        async for record in self._tails.records(self.log, offset, self._floor, patient=self.waits_for_broker):
            self._recall(record)
        self._floor = offset

    async def look_back(self, entry: LogEntry[MessageId]) -> None:
        """Read further back in the log until the memory can decide about ``entry``.

        Reads a longer tail first, then as many records as the MQTT broker may send again, then all of the log, once.
        """
        for depth in (DEEP,) if entry.redelivered else (DEPTH, DEEP):
            if self._depth < depth:
                await self.load(depth)
                if self.memory.check(entry.key, redelivered=entry.redelivered) is not DedupResult.UNDECIDED:
                    return
        if self._floor is not None and self._floor > self._start_offset:
            # Set before reading: if the memory overflows while it reads, it must end as "not complete".
            self.memory.complete = True
            await self.load_from(self._start_offset)

    def mark_late(self, batch: Sequence[LogEntry[MessageId]]) -> None:
        """Mark the readings that follow a newer reading of their device in the log as late."""
        newest: dict[str, tuple[int, int]] = {}
        for entry in batch:
            device, at = entry.key.device, (entry.key.boot, entry.key.sequence)
            if at < newest.get(device, at) or self.memory.is_late(entry.key):
                entry.record = records.late(entry.record)
            else:
                newest[device] = at

    def remember(self, entry: LogEntry[MessageId]) -> None:
        self.memory.add(entry.key, late=records.is_late(entry.record))

    def _recall(self, record: Record) -> None:
        identity = records.identity_of(record)
        if identity is not None:
            self.memory.add(identity, late=records.is_late(record))


class StrayKeeper(Protocol):
    """The part of ``edge.strays.store.Strays`` that a container's writer uses."""

    @property
    def log(self) -> str: ...

    def keep_reading(self, log: str, entry: LogEntry[MessageId]) -> None: ...

    def custody_came(self, log: str) -> None: ...


class WaitingStrays(Protocol):
    """The part of ``edge.strays.store.StrayBook`` that a container's writer uses."""

    @property
    def own(self) -> StrayKeeper: ...

    def has_any_for(self, log: str) -> bool: ...


class Drain(Protocol):
    """Drains the strays of a log into it. Called while the writer does nothing else."""

    async def drain(self, writer: ContainerWriter) -> None: ...

    async def look_again(self, log: str) -> None:
        """Search for the strays of a log again, if a seizure has reduced how far they are drained."""


class ContainerCustody(Protocol):
    """Custody of the containers' logs at one site (``edge.writer_registry.SiteCustody``)."""

    @property
    def holdings(self) -> Holdings: ...

    @property
    def book(self) -> WaitingStrays: ...

    @property
    def drain(self) -> Drain: ...

    @property
    def broken(self) -> BrokenLogs: ...


class ContainerWriter(DedupWriter):
    """The writer of one container's log. Asks ``Holdings`` before every batch whether this site may append.

    ``blocked``: this site may append, but nothing has got into the log for some time. The writer then keeps everything
    that arrives as strays, so that no message waits. A batch in flight stays in flight, because its outcome is not
    known; its entries are kept as strays too, and draining drops those that the log has. When the log accepts appends
    again, the kept strays are drained before anything newer.
    """

    waits_for_broker: ClassVar[bool] = False  # keeps readings as strays until the broker serves the log again
    __slots__ = ("_book", "_broken", "_copy", "_drain", "_draining", "_holdings", "_searched_term", "_strays")

    def __init__(
        self,
        log: str,
        sink: Sink,
        tails: TailReader,
        custody: ContainerCustody,
        *,
        settle: Callable[[LogEntry[MessageId], EntryOutcome], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        super().__init__(log, sink, tails, settle=settle, fail=fail)
        self._holdings = custody.holdings
        self._book = custody.book
        self._strays = custody.book.own
        self._drain = custody.drain
        self._broken = custody.broken
        self._draining = False
        self._searched_term = 0  # this site's term in which the strays were last searched for again
        self._copy: SequenceDedup | None = None  # readings in this site's copy while another site holds the log

    def keep_waiting(self) -> None:
        """Block the log: keep everything that waits as strays, and whatever arrives until the log accepts appends."""
        self.blocked = True
        batch, followers = self._in_flight or ((), ())
        for entry in (*batch, *followers):
            self.keep_elsewhere(entry)
        if self._barrier is not None:
            self.keep_elsewhere(self._barrier)
        if self._queue is not None:
            left = [item for item in self._queue if not self.keep_elsewhere(item)]
            self._queue.clear()  # in place, because the writer's task may hold a reference to it
            self._queue.extend(left)

    def keep_elsewhere(self, item: LogEntry[MessageId] | Barrier) -> bool:
        """Keep an item of the queue in the strays log. Returns False for a barrier that must wait."""
        if isinstance(item, Barrier):
            if item.keep is None:
                return False
            item.keep()
        elif not item.kept:
            self._strays.keep_reading(self.log, item)
            item.ack, item.kept = None, True
        return True

    def unblock(self) -> None:
        super().unblock()
        log.warning("%s: appending goes on", self.log)
        if self._book.has_any_for(self.log) and self._queue is not None:
            self._queue.appendleft(Barrier(self.prepare))

    def term(self) -> int | None:
        return self._holdings.term(self.log)

    def may_append(self) -> bool:
        return self._holdings.state(self.log) is CustodyState.HELD

    def ready(self) -> bool:
        term = self._holdings.term(self.log)
        return (
            term > 0
            and term == self._searched_term
            and self._floor is not None
            and not self._book.has_any_for(self.log)
        )

    async def prepare(self) -> None:
        if not self.may_append():
            return
        try:
            await super().prepare()
        except (BrokerError, CorruptBatch) as error:
            self.lose(error)
            return
        await self._look_again()
        if not self._draining and self._book.has_any_for(self.log):
            await self.drain()

    async def _look_again(self) -> None:
        """Search for the log's strays again, once per term: a seizure may have reduced how far they are drained."""
        term = self._holdings.term(self.log)
        if self._searched_term != term:
            await self._drain.look_again(self.log)
            self._searched_term = term

    def taken_over(self) -> None:
        """Start to append, as this site holds the log now: drain its strays and carry out its waiting events."""
        self.unload()
        if self.log in self._holdings.view.seized() or self._book.has_any_for(self.log):
            self.enqueue(Barrier(self.prepare))
        self._strays.custody_came(self.log)

    async def drain(self) -> None:
        """Drain the strays of this log into it, before anything newer."""
        self._draining = True
        try:
            await self._drain.drain(self)
        finally:
            self._draining = False

    async def divert(self, entry: LogEntry[MessageId]) -> bool:
        if self.may_append():
            return False
        if entry.redelivered and await self._copy_has(entry.key):
            self.finish(entry, EntryOutcome.REPEAT)  # stored before the log was granted away, but not acknowledged then
        elif entry.kept:
            return True
        elif self.may_append():  # this site took the log over while the copy was read
            await self.prepare()
            return await self.divert(entry)
        else:
            self.keep_elsewhere(entry)
        return True

    async def _copy_has(self, identity: MessageId) -> bool:
        """Return whether the newest records of this site's copy of the log have a reading."""
        copy = self._copy
        if copy is None:
            copy = self._copy = SequenceDedup()  # a local too: ``unload`` may run while it is filled
            with contextlib.suppress(BrokerError, CorruptBatch):  # there may be no copy, or none that is whole
                for record in (await self._tails.read(self.log, DEEP)).records:
                    if (found := records.identity_of(record)) is not None:
                        copy.add(found)
        return copy.check(identity) is DedupResult.REPEAT

    def unload(self) -> None:
        super().unload()
        self._copy = None

    async def refused(self, error: Exception, entries: Sequence[LogEntry[MessageId]]) -> bool:
        """Give the log up and keep the readings as strays, in order, until recovery finds that it can be appended to.

        Returns False for errors that do not come from the log.
        """
        if not isinstance(error, Fenced | Misplaced | Conflict | BrokerError | CorruptBatch):
            return False
        self.lose(error)
        for entry in entries:
            self.keep_elsewhere(entry)
        return True

    def lose(self, error: Exception) -> None:
        """Stop appending: mark the log broken although the ledger gives it to this site, and have recovery check it.

        Recovery does not check damaged batches, so a log that has one stays broken until the bridge starts again.
        """
        self._holdings.mark_broken(self.log)
        self.unload()
        if not isinstance(error, CorruptBatch):
            self._broken.add(self.log, error)
        log.error("%s: this site cannot append any more (%s); readings go to %s", self.log, error, self._strays.log)
