"""Follows some logs in the site's own Kafka: reads them up to their ends first, then as they grow."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from edge.logwriter.retry import retry_transient
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.reader import Tail, decode_fetched
from fairlead.kafka.convention import is_data
from fairlead.kafka.protocol.errors import OFFSET_OUT_OF_RANGE, BrokerError, CorruptBatch, broker_error
from fairlead.kafka.protocol.record import Record
from fairlead.kafka.protocol.types import TP
from fairlead.records import UNREADABLE

log = logging.getLogger(__name__)

_LOOK_FOR_LOGS = 1.0  # seconds between checks for logs that were missing at start
_READ_AGAIN = 10  # checks for logs, from one attempt to read a damaged batch to the next
_LOOK_AT_ENDS = 2.0  # seconds between checks whether a log still reaches the end that is awaited
_AT_ONCE = 1 << 19  # bytes per fetch; more is no faster, and would set the process's peak of memory at start

T = TypeVar("T")

Take = Callable[[str, Record, bool], None]
"""Takes a topic, a record, and whether the record was there at start."""


class LogFollower:
    """Reads every record of some logs once, markers and fillers included.

    Args:
        topics: A topic that is missing is followed as soon as it appears.
        take: Called with each record, in the order of its log.
        unread: Gets the names of logs with a damaged batch. Such a log is read up to there, and further once a broker
            has it whole. None: a damaged batch is an error.
        own: A log whose damaged batch is an error in any case.
    """

    def __init__(
        self,
        cluster: Cluster,
        topics: Sequence[str],
        take: Take,
        unread: set[str] | None = None,
        *,
        own: str = "",
    ) -> None:
        self._cluster = cluster
        self._topics = tuple(topics)
        self._take = take
        self._positions: dict[TP, int] = {}
        self._unread: set[str] = set() if unread is None else unread
        self._essential = frozenset(topics if unread is None else (own,))
        self._damaged: dict[TP, int] = {}  # the offset of the damaged batch
        self._tail: Tail | None = None
        self._moved = asyncio.Event()
        self.starts: dict[str, int] = {}  # first offsets of logs that no longer begin at 0

    async def catch_up(self) -> None:
        """Read every log that is here up to its present end. A call after an error continues where that one failed.

        Raises:
            BrokerError, ConnectionLost: a log cannot be read. CorruptBatch: a damaged batch is an error.
        """
        here = [TP(topic) for topic in await self._cluster.topics(self._topics, refresh=True)]
        for tp, start in (await self._cluster.start_offsets(here)).items():
            if isinstance(start, BrokerError):
                raise start
            if start > 0:
                self.starts[tp.topic] = start
            self._positions.setdefault(tp, start)
        ends = await self._cluster.end_offsets(here)
        for tp in here:
            end = ends[tp]
            if isinstance(end, BrokerError):
                raise end
            try:
                await self._read(tp, end)
            except CorruptBatch as error:
                self._stop_before(tp, self._positions[tp], error)

    def stop_before(self, topic: str, offset: int, error: CorruptBatch) -> None:
        """Go back to a damaged batch that another reader of the log has met; read on once a broker has it whole.

        The records from ``offset`` on are then passed on again.
        """
        tp = TP(topic)
        self._stop_before(tp, offset, error)
        self._positions[tp] = offset
        if self._tail is not None:
            self._tail.remove(tp)

    def _stop_before(self, tp: TP, position: int, error: CorruptBatch) -> None:
        if tp.topic in self._essential:
            raise error
        if tp not in self._damaged:
            log.error("%s is not read beyond offset %d: %s; %s", tp, position, error.what, error.hint)
        self._damaged[tp] = position
        self._unread.add(tp.topic)

    async def _read(self, tp: TP, end: int) -> None:
        while self._positions[tp] < end:
            position = self._positions[tp]
            content = (await self._cluster.fetch({tp: position}, partition_max_bytes=_AT_ONCE))[tp]
            if content.error_code == OFFSET_OUT_OF_RANGE:
                await self._skip_deleted(tp)
                continue
            if content.error_code:
                raise broker_error(content.error_code, tp)
            records, after = decode_fetched(tp, content, position, left_out=False)
            for record in records:
                if record.offset >= end:
                    break
                self._positions[tp] = record.offset + 1
                self._take(tp.topic, record, True)
            else:
                self._positions[tp] = after

    async def _skip_deleted(self, tp: TP) -> None:
        """Go on at the log's start, because retention has deleted the records at the position.

        Raises:
            BrokerError: the log begins before the position, so nothing was deleted there.
        """
        start = (await self._cluster.start_offsets([tp]))[tp]
        if isinstance(start, BrokerError):
            raise start
        if start <= self._positions[tp]:
            raise broker_error(OFFSET_OUT_OF_RANGE, tp)
        log.error("%s: records from offset %d to %d are gone", tp, self._positions[tp], start - 1)
        self._positions[tp] = self.starts[tp.topic] = start

    async def follow(self) -> None:
        """Follow the logs until cancelled. Raises CorruptBatch if a damaged batch is an error."""
        tail = self._tail = Tail(self._cluster, self._positions)
        self._moved.set()
        work = [asyncio.create_task(run(tail)) for run in (self._pass_on, self._look_for_logs)]
        try:
            await asyncio.gather(*work)
        finally:
            self._tail = None
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)
            await tail.close()

    async def _pass_on(self, tail: Tail) -> None:
        what = f"following {', '.join(self._topics[:3])}"
        while True:
            for topic, record in await retry_transient(partial(self._next, tail), what):
                self._take(topic, record, False)
            self._moved.set()

    async def _next(self, tail: Tail) -> list[tuple[str, Record]]:
        try:
            tp, found = await anext(tail)
        except CorruptBatch as error:
            tp = TP(str(error.fields["log"]))
            self._stop_before(tp, tail.positions[tp], error)
            tail.remove(tp)
            return []
        except BrokerError as error:
            if error.log is None:
                raise
            tail.add(error.log, 0)  # the tail has dropped it, and its start may not be readable now
            start = (await self._cluster.start_offsets([error.log]))[error.log]
            if isinstance(start, BrokerError):
                raise start from error
            if error.code == OFFSET_OUT_OF_RANGE:
                log.error("%s: records before offset %d are gone: %s", error.log, start, error)
            else:
                log.error("%s: reading it again from its start: %s", error.log, error)
            tail.add(error.log, start)
            return []
        return [(tp.topic, record) for record in found]

    async def read_to_ends(self) -> None:
        """Wait until ``follow`` has passed on every record that the logs have now, also of logs that are new, and also
        those behind a damaged batch.

        Raises:
            BrokerError, ConnectionLost: the ends of the logs cannot be read.
        """
        ends = await self._ends()
        while (tail := self._tail) is None or self._adds_any(tail, ends) or _is_behind(tail, ends):
            self._moved.clear()
            try:
                await asyncio.wait_for(self._moved.wait(), _LOOK_AT_ENDS)
            except TimeoutError:
                now = await self._ends()  # a log that was deleted or recreated never reaches its old end
                ends = {tp: min(end, now[tp]) for tp, end in ends.items() if tp in now}

    async def _ends(self) -> dict[TP, int]:
        ends: dict[TP, int] = {}
        here = [TP(topic) for topic in await self._cluster.topics(self._topics, refresh=True)]
        for tp, end in (await self._cluster.end_offsets(here) if here else {}).items():
            if isinstance(end, BrokerError):
                raise end
            ends[tp] = end
        return ends

    def _adds_any(self, tail: Tail, logs: Iterable[TP]) -> bool:
        """Start to follow the logs that are not followed yet. Returns whether there were any."""
        new = [tp for tp in logs if tp not in self._positions]
        for tp in new:
            self._positions[tp] = 0
            tail.add(tp, 0)
        return bool(new)

    async def _look_for_logs(self, tail: Tail) -> None:
        for check in itertools.count(1):
            if missing := [topic for topic in self._topics if TP(topic) not in self._positions]:
                here = await retry_transient(partial(self._cluster.topics, missing, refresh=True), "looking for logs")
                self._adds_any(tail, map(TP, here))
            if check % _READ_AGAIN == 0:
                self._read_damaged(tail)
            await asyncio.sleep(_LOOK_FOR_LOGS)

    def _read_damaged(self, tail: Tail) -> None:
        """Try to read the damaged batches again. A log that has been read beyond its own is whole."""
        for tp, position in tuple(self._damaged.items()):
            if tp not in tail.positions:
                tail.add(tp, position)
            elif tail.positions[tp] > position:
                del self._damaged[tp]
                self._unread.discard(tp.topic)


def _is_behind(tail: Tail, ends: Mapping[TP, int]) -> bool:
    """Return whether any log is not read to its end. A log that could not be read just now has no position."""
    return any(tail.positions.get(tp, -1) < end for tp, end in ends.items())


def read_order(record: Record, orders: msgspec.json.Decoder[T], site: str, topic: str) -> T | None:
    """Decode the operator's order in a record that a follower took; None for a marker or a filler.

    Logs a record that is no order, and returns None for it as well.
    """
    if record.value is None or not is_data(record):
        return None
    try:
        return orders.decode(record.value)
    except UNREADABLE as error:
        log.error("%s: the record at offset %d of %s is no order: %s", site, record.offset, topic, error)
        return None
