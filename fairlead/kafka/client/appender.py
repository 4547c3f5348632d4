"""Append to many logs under the append convention, with group commit (docs/append-convention.md).

Appends to many logs share one Produce request per leader. Records that arrive while their log's batch is in flight go
into the log's next batch. ``append_queue`` is the pure state machine of one log, ``append_sender`` sends and applies
the answers, ``guard`` reads a log's position before the first append on a connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence

from fairlead.errors import FairleadError
from fairlead.kafka.client.append_queue import LogQueue, PendingAppend, again, fenced
from fairlead.kafka.client.append_sender import AppendSender
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.guard import Found
from fairlead.kafka.convention import FIRST_TERM, LAST_TERM
from fairlead.kafka.protocol.codecs import Codec
from fairlead.kafka.protocol.errors import Conflict, ConnectionLost, Fenced, Misplaced, WireError
from fairlead.kafka.protocol.record import NewRecord
from fairlead.kafka.protocol.types import TP, Appended, LogPosition


class Appender:
    """Appends to logs that this process holds. One appender per process and cluster; belongs to one event loop.

    Args:
        linger: Seconds that an append waits for others to share a request with.
        max_batch_bytes: Upper bound of a batch before compression; below the logs' ``max.message.bytes``.
        codec: Compression of the batches.
        max_in_flight: Requests under way per leader.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        linger: float = 0.005,
        max_batch_bytes: int = 900_000,
        codec: Codec = Codec.NONE,
        max_in_flight: int = 5,
    ) -> None:
        self._site = cluster.endpoint.site
        self._linger = linger
        self._loop = asyncio.get_running_loop()
        self._queues: dict[TP, LogQueue] = {}
        self._sender = AppendSender(cluster, max_batch_bytes=max_batch_bytes, codec=codec, max_in_flight=max_in_flight)

    @property
    def answers(self) -> tuple[int, float]:
        """Return how many append requests brokers have answered, and the seconds that these took in total."""
        return self._sender.answered, self._sender.answered_seconds

    async def position(self, log: TP) -> LogPosition | None:
        """Return where the log ends and in which term; None when it is empty.

        ``term`` 0 means that the last batch was not written under the convention. The position is cached until a
        connection is lost or an append fails.

        Raises:
            BrokerError: the log does not exist, or may not be read.
            CorruptBatch: its last batch is damaged.
            ConnectionLost: no broker can be reached.
        """
        return (await self.positions([log]))[log]

    async def positions(self, logs: Collection[TP]) -> dict[TP, LogPosition | None]:
        """Return the ``position`` of many logs, with a few requests.

        Raises:
            BrokerError, CorruptBatch: for the first log that cannot be read.
        """
        queues = [self._queue(log) for log in logs]
        fresh = await self._sender.look_at([queue for queue in queues if not self._sender.is_current(queue)])
        result: dict[TP, LogPosition | None] = {}
        for queue in queues:
            found = fresh.get(queue.log, queue.position)
            if isinstance(found, WireError):
                raise found
            result[queue.log] = found
        return result

    async def open_term(
        self, log: TP, term: int, marker: NewRecord, *, expected_end: int | None = None, hold: bool = True
    ) -> Appended:
        """Append the marker of ``term`` at the log's end; from then on brokers fence appends of every older term.

        Calling it again with the same marker (for example after a crash) returns the same result and appends nothing.

        Args:
            marker: Unique content, see ``convention.marker_record``.
            expected_end: Open the term only if the log ends here.
            hold: False for a grant to another site: ``append`` then raises ``Fenced`` here.

        Raises:
            Fenced: a later term exists.
            Conflict: another writer opened this term, or the log does not end at ``expected_end``.
            Misplaced: another writer appended before the marker arrived: the marker is stored, at
                ``fields['base_offset']``.
        """
        if not FIRST_TERM <= term <= LAST_TERM:
            raise FairleadError(f"term {term} is outside {FIRST_TERM}..{LAST_TERM}", term=term)
        entry = self._entry([marker], term)
        entry.is_marker = True
        entry.hold = hold
        entry.expected_end = expected_end
        return await self._submit(self._queue(log), entry)

    async def ensure_open(self, log: TP, marker: NewRecord) -> LogPosition:
        """Return the log's position; open term 1 with ``marker`` first if the log is empty."""
        position = await self.position(log)
        if position is None:
            try:
                await self.open_term(log, FIRST_TERM, marker)
            except (Conflict, Fenced):
                self._queue(log).known = False  # another caller opened it first
            position = await self.position(log)
        if position is None:
            raise Misplaced(f"log {log} is empty although its first term was opened", log=str(log))
        return position

    async def append(self, log: TP, records: Sequence[NewRecord], *, term: int | None = None) -> Appended:
        """Append ``records`` at the log's end and wait until they are stored.

        Retries retriable errors for ever. Cancel the call to give up; the outcome is then unknown. Records beyond
        ``max_batch_bytes`` go into several batches, one after the other: contiguous, but not atomic.

        Args:
            term: When given, it must be the log's current term; a holder should pass the term it was granted.

        Raises:
            Fenced: a later term exists, or this appender gave the log away. The log takes no more appends here.
            Misplaced: no term is open, or the batch was stored at another offset than it must. The caller must stop.
            Conflict: another writer's record is at their offset; they are not stored. All waiting appends of the log
                fail with it; the next append reads the log's position again.
            BrokerError: the broker will never take these records (too large, time refused, not authorised).
        """
        return await self.submit(log, records, term=term)

    def submit(self, log: TP, records: Sequence[NewRecord], *, term: int | None = None) -> asyncio.Future[Appended]:
        """Start ``append`` and return a future of its result.

        Raises at once what ``append`` would raise before it waits; any later error is the future's exception. Cancel
        the future to give up.
        """
        if not records:
            raise FairleadError(f"an append to {log} needs at least one record")
        queue = self._queue(log)
        if queue.stopped is not None and not queue.entries:
            raise again(queue.stopped)
        return self._submit(queue, self._entry(records, term))

    async def adopt(self, log: TP, *, term: int) -> LogPosition:
        """Take over a log: verify that its last record is the marker of ``term``. Appends then go on in that term.

        Raises:
            Fenced: a later term exists.
            Misplaced: the log does not end with that marker (yet); ``fields`` say where it ends, in which term, and
                where that term's marker is.
        """
        found = (await self.adopt_many({log: term}))[log]
        if isinstance(found, FairleadError):
            raise found
        return found

    async def adopt_many(self, terms: Mapping[TP, int]) -> dict[TP, LogPosition | FairleadError]:
        """Adopt many logs, each in its term, with a few requests.

        The result has an error in place of the position for each log that ``adopt`` would raise for.

        Raises:
            ConnectionLost: no broker can be reached.
        """
        result: dict[TP, LogPosition | FairleadError] = {}
        queues: list[LogQueue] = []
        for log in terms:
            queue = self._queue(log)
            try:
                self._forget(queue)
            except Conflict as error:
                result[log] = error
            else:
                queues.append(queue)
        found = await self._sender.look_at(queues)
        for queue in queues:
            result[queue.log] = adopted = _adopted(queue.log, terms[queue.log], found[queue.log])
            if not isinstance(adopted, FairleadError):
                queue.stopped = None
        return result

    async def renew(self, log: TP) -> LogPosition | None:
        """Read where the log ends and in which term, and drop all other state of the log.

        The appender then no longer knows that it was fenced or gave the log away, so only a caller that opens a new
        term next may use this.

        Raises:
            BrokerError: the log does not exist, or may not be read.
            CorruptBatch: its last batch is damaged.
            Conflict: appends to it are under way.
        """
        found = (await self.renew_all([log]))[log]
        if isinstance(found, FairleadError):
            raise found
        return found

    async def renew_all(self, logs: Collection[TP]) -> dict[TP, LogPosition | FairleadError | None]:
        """``renew`` of many logs, with a few requests; an error stands for the log that it concerns."""
        result: dict[TP, LogPosition | FairleadError | None] = {}
        queues: list[LogQueue] = []
        for log in logs:
            try:
                self._forget(self._queue(log))
            except Conflict as error:
                result[log] = error
            else:
                queues.append(self._queue(log))
        found = await self._sender.look_at(queues)
        for queue in queues:
            result[queue.log] = position = found[queue.log]
            if not isinstance(position, FairleadError):
                queue.stopped = None
        return result

    @staticmethod
    def _forget(queue: LogQueue) -> None:
        if queue.owner is not None or queue.entries:
            log = queue.log
            raise Conflict(f"log {log} cannot be looked at anew while appends to it are under way", log=str(log))
        queue.position, queue.known = None, False

    async def close(self) -> None:
        """Stop. Waiting appends fail with ``ConnectionLost``; their outcome is unknown."""
        await self._sender.close()
        for queue in self._queues.values():
            queue.fail(self._closed_error())

    def _entry(self, records: Sequence[NewRecord], term: int | None) -> PendingAppend:
        for record in records:
            if record.timestamp_ms < 0:
                raise FairleadError(
                    f"a record has the time {record.timestamp_ms}, which would make the broker's answer unreadable",
                    hint="give the time of the event in milliseconds since 1970 UTC",
                    timestamp_ms=record.timestamp_ms,
                )
        return PendingAppend(records, self._loop.create_future(), term)

    def _submit(self, queue: LogQueue, entry: PendingAppend) -> asyncio.Future[Appended]:
        if self._sender.closed:
            raise self._closed_error()
        queue.entries.append(entry)
        self._sender.wake(queue, self._linger)
        return entry.future

    def _closed_error(self) -> ConnectionLost:
        return ConnectionLost(f"the appender for site {self._site!r} was closed", site=self._site)

    def _queue(self, log: TP) -> LogQueue:
        queue = self._queues.get(log)
        if queue is None:
            queue = self._queues[log] = LogQueue(log)
        return queue


def _adopted(log: TP, term: int, found: Found) -> LogPosition | FairleadError:
    """Return the position of a log that may be taken over in ``term``, or the error that forbids it."""
    if isinstance(found, WireError):
        return found
    if found is not None and found.term > term:
        return fenced(log, term, found.term)
    if found is None or found.term != term or found.marker != found.end - 1:
        end, now, marker = found or (0, 0, -1)
        return Misplaced(
            f"log {log} does not end with the marker of term {term}: it ends at {end} in term {now}",
            hint="wait until the replica has the marker, then adopt again",
            log=str(log),
            end=end,
            term=now,
            marker=marker,
        )
    return found
