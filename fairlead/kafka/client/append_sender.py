"""Send the batches of the appender's queues: group them by leader, send, apply the answers, retry.

Each log belongs to at most one request at a time (``LogQueue.owner``), so its batches are never reordered. When an
answer leaves the outcome open, ``examine_stored`` and ``resolve_position`` decide by the log's content.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from fairlead.kafka.client.append_queue import RESTING, AppendVerdict, LogQueue, OpenBatch, conflict, fenced
from fairlead.kafka.client.cluster import PRODUCE, Cluster
from fairlead.kafka.client.connection import backoff
from fairlead.kafka.client.guard import SETTLE_SECONDS, UNKNOWN_TERM, Found, read_positions, stored_at
from fairlead.kafka.client.metadata import NO_LEADER
from fairlead.kafka.protocol.batch import BatchHeader
from fairlead.kafka.protocol.codecs import Codec
from fairlead.kafka.protocol.errors import (
    NETWORK_EXCEPTION,
    UNKNOWN_TOPIC_OR_PARTITION,
    BrokerError,
    ConnectionLost,
    CorruptBatch,
    Misplaced,
    RequestTimeout,
    WireError,
    broker_error,
    is_retriable,
)
from fairlead.kafka.protocol.types import TP, LogPosition, ProduceResult

LOGS_PER_REQUEST: Final = 1000
REQUEST_BYTES: Final = 8 << 20
ATTEMPTS_AT_UNKNOWN: Final = 8  # gives a new topic some seconds to appear
DUPLICATE_SECONDS: Final = 30.0  # how long a stored batch may take to become readable
_LOST: Final = ProduceResult(NETWORK_EXCEPTION)


class AppendSender:
    """Sends ready logs, at most ``max_in_flight`` requests per leader at a time. Only ``Appender`` uses it."""

    def __init__(self, cluster: Cluster, *, max_batch_bytes: int, codec: Codec, max_in_flight: int) -> None:
        self._cluster = cluster
        self._max_batch_bytes = max_batch_bytes
        self._codec = codec
        self._max_in_flight = max_in_flight
        self._loop = asyncio.get_running_loop()
        self._ready: dict[LogQueue, None] = {}
        self._in_flight: dict[int, int] = {}
        self._flush_at: asyncio.TimerHandle | None = None
        self._flush_due = 0.0  # when ``_flush_at`` is due, on the loop's clock
        self._tasks: set[asyncio.Task[None]] = set()
        self._timeout_ms = max(1000, int(cluster.request_timeout * 900))
        self.closed = False
        self.answered = 0  # number of requests that brokers have answered
        self.answered_seconds = 0.0  # total seconds from sending to answer

    async def close(self) -> None:
        """Stop sending and cancel the requests under way."""
        self.closed = True
        if self._flush_at is not None:
            self._flush_at.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._ready.clear()

    def wake(self, queue: LogQueue, delay: float) -> None:
        """Send the entries of this queue within ``delay`` seconds."""
        if queue.owner is None:  # otherwise its request wakes it when its batch is done
            self._ready[queue] = None
            self._flush_in(delay)

    def _flush_in(self, delay: float) -> None:
        due = self._loop.time() + delay
        if self._flush_at is not None:
            if self._flush_due <= due:
                return
            self._flush_at.cancel()
        self._flush_at, self._flush_due = self._loop.call_later(delay, self._flush), due

    def _flush(self) -> None:
        """Send all ready queues, up to ``max_in_flight`` requests per leader."""
        self._flush_at = None
        if self.closed:
            return
        groups: dict[int, list[LogQueue]] = {}
        leader = self._cluster.metadata.leader
        for queue in self._ready:
            groups.setdefault(leader(queue.log), []).append(queue)
        for node, queues in groups.items():
            for start in range(0, len(queues), LOGS_PER_REQUEST):
                if self._in_flight.get(node, 0) >= self._max_in_flight:
                    break
                part = queues[start : start + LOGS_PER_REQUEST]
                for queue in part:
                    queue.owner = part
                    del self._ready[queue]
                self._in_flight[node] = self._in_flight.get(node, 0) + 1
                task = self._loop.create_task(self._run_request(node, part))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    def _release(self, queue: LogQueue) -> None:
        queue.owner = None
        if not self.closed and (queue.entries or queue.batch is not None):
            self.wake(queue, 0.0)

    def _later(self, queues: Iterable[LogQueue]) -> None:
        """Retry after a pause; read each log's position again first."""
        for queue in queues:
            queue.known = False
            queue.owner = RESTING
            delay = backoff(queue.attempts)
            queue.attempts += 1
            self._loop.call_later(delay, self._release, queue)

    def _give_up(self, queue: LogQueue, error: BaseException) -> None:
        queue.fail(error)
        self._release(queue)

    # --- sending a group of logs to one leader

    async def _run_request(self, node: int, queues: list[LogQueue]) -> None:
        # The list object itself marks ownership: another request may own a log that was released meanwhile.
        try:
            if node == NO_LEADER:
                await self._find_leaders(queues)
            else:
                await self._send(node, queues)
        except (ConnectionLost, RequestTimeout):
            waiting = still_owned(queues)
            self._later(waiting)
            await self._cluster.refresh_after({queue.log: _LOST for queue in waiting})
        except Exception as error:
            # A refused login, or a programming error: fail the callers, so that none waits for ever.
            for queue in still_owned(queues):
                self._give_up(queue, error)
        finally:
            self._in_flight[node] -= 1
            if self._ready and not self.closed:
                self._flush_in(0.0)

    async def _find_leaders(self, queues: list[LogQueue]) -> None:
        metadata = self._cluster.metadata
        await self._cluster.refresh({queue.log.topic for queue in queues})
        for queue in queues:
            if metadata.leader(queue.log) != NO_LEADER:
                self._release(queue)
                continue
            code = metadata.why_no_leader(queue.log)
            missing = code == UNKNOWN_TOPIC_OR_PARTITION and queue.attempts >= ATTEMPTS_AT_UNKNOWN
            if is_retriable(code) and not missing:
                self._later([queue])
            else:
                self._give_up(queue, broker_error(code, queue.log))

    async def _send(self, node: int, queues: list[LogQueue]) -> None:
        over = self._connection(node)
        unsure = [queue for queue in queues if not queue.is_known(over)]
        if unsure:
            await self._prepare(unsure, queues)
            over = self._connection(node)
        batches: dict[TP, bytes] = {}
        waiting: dict[TP, LogQueue] = {}
        for queue in still_owned(queues):
            if not queue.is_known(over):
                self._release(queue)  # the leader moved, or the connection was lost meanwhile: try again
                continue
            batch = queue.build(self._max_batch_bytes, self._codec)
            if batch is None:
                self._release(queue)
            elif batch.is_marker and queue.position is not None and queue.position.term == batch.term:
                await self._resolve(queue, queue.position)  # an earlier process may have stored it
            else:
                batches[queue.log] = batch.data
                waiting[queue.log] = queue
        if not batches:
            return
        incarnation = over[1]  # of the connection for which the positions hold; a later one gets nothing
        parts = by_bytes(batches, REQUEST_BYTES)
        topic_ids = {log: queue.topic_id for log, queue in waiting.items() if queue.topic_id is not None}
        began = self._loop.time()
        answers = await asyncio.gather(
            *(self._cluster.produce_to(node, part, self._timeout_ms, incarnation, topic_ids) for part in parts)
        )
        self.answered += 1
        self.answered_seconds += self._loop.time() - began
        for results in answers:
            await self._settle(waiting, results)

    async def _settle(self, waiting: dict[TP, LogQueue], results: dict[TP, ProduceResult]) -> None:
        doubtful: list[tuple[LogQueue, ProduceResult]] = []
        later: dict[TP, ProduceResult] = {}
        for log, result in results.items():
            queue = waiting[log]
            verdict = queue.apply_answer(result)
            if verdict is AppendVerdict.LATER:
                later[log] = result
                self._later([queue])
            elif verdict is AppendVerdict.EXAMINE:
                doubtful.append((queue, result))
            else:
                self._release(queue)
        lost = await asyncio.gather(*(self._examine(queue, result) for queue, result in doubtful))
        later |= {queue.log: _LOST for (queue, _), is_lost in zip(doubtful, lost, strict=True) if is_lost}
        if later:
            await self._cluster.refresh_after(later)

    async def _examine(self, queue: LogQueue, result: ProduceResult) -> bool:
        """Settle one batch by comparing it with the stored one; return True when no broker could be reached.

        Handles every error of its log. An escaping error would end the request while the checks of the other logs still
        ran.
        """
        try:
            decided = await examine_stored(self._cluster, queue, result)
        except BrokerError as error:
            self._failed(queue, error)
        except (ConnectionLost, RequestTimeout):
            self._later([queue])
            return True
        except Exception as error:
            self._give_up(queue, error)
        else:
            if decided:
                self._release(queue)
            else:
                self._later([queue])
        return False

    def _failed(self, queue: LogQueue, error: BrokerError | CorruptBatch) -> None:
        if error.retriable:
            self._later([queue])
        else:
            self._give_up(queue, error)

    # --- the guard

    def is_current(self, queue: LogQueue) -> bool:
        """Whether the connection over which the queue's position was read is still up."""
        return queue.is_known(self._connection(queue.read_over[0]))

    def _connection(self, node: int) -> tuple[int, int]:
        """Return the leader and the incarnation of its connection, as ``LogQueue.read_over`` has them."""
        return node, self._cluster.pool.incarnation(PRODUCE, node)

    async def look_at(self, queues: Sequence[LogQueue], owner: object | None = None) -> dict[TP, Found]:
        """Read the positions of logs, and keep them in the queues where that is safe.

        A queue takes over its position only if it belonged to ``owner`` throughout (None: to no request) and has no
        batch whose outcome is open.

        Raises:
            ConnectionLost: no broker can be reached.
        """
        if not queues:
            return {}
        connections: dict[TP, tuple[int, int]] = {}
        before = {queue.log: queue.position for queue in queues}
        groups = await self._cluster.by_leader([queue.log for queue in queues])
        unreached: set[str] = set()
        for node, logs in groups.items():
            if node == NO_LEADER:
                continue
            try:
                await self._cluster.pool.get(PRODUCE, node)
            except (ConnectionLost, RequestTimeout):
                if owner is not None:
                    raise  # the request finds the new leaders, and tries again
                unreached.update(log.topic for log in logs)
                continue
            connections.update(dict.fromkeys(logs, self._connection(node)))
        if unreached:
            await self._cluster.refresh(unreached)  # another broker may lead their logs now
        topic_ids = self._cluster.topic_ids(queue.log for queue in queues)
        found = await read_positions(self._cluster, [queue.log for queue in queues])
        for queue in queues:
            position = found[queue.log]
            mine = queue.owner is owner and queue.position is before[queue.log]
            if not mine or isinstance(position, WireError) or (owner is None and queue.batch is not None):
                continue
            queue.read_over = connections.get(queue.log, (NO_LEADER, 0))
            queue.topic_id = topic_ids.get(queue.log)
            if queue.batch is None:
                queue.settle_position(position)
        return found

    async def _prepare(self, queues: Sequence[LogQueue], owner: object) -> None:
        """Read the positions of logs before sending to them, and settle open outcomes by them."""
        found = await self.look_at(queues, owner)
        for queue in queues:
            position = found[queue.log]
            if isinstance(position, WireError):
                self._failed(queue, position)
            elif queue.batch is not None:
                await self._resolve(queue, position)

    async def _resolve(self, queue: LogQueue, position: LogPosition | None) -> None:
        """Settle a batch whose outcome is open; a batch that must be sent again stays with its request."""
        try:
            await resolve_position(self._cluster, queue, position)
        except (BrokerError, CorruptBatch) as error:
            self._failed(queue, error)
            return
        if queue.batch is None:
            self._release(queue)


def still_owned(queues: list[LogQueue]) -> list[LogQueue]:
    """Return the queues that still belong to their request."""
    return [queue for queue in queues if queue.owner is queues]


def by_bytes(batches: dict[TP, bytes], limit: int) -> list[dict[TP, bytes]]:
    """Split ``batches`` into parts of at most ``limit`` bytes, with at least one batch each."""
    parts: list[dict[TP, bytes]] = []
    size = limit + 1
    for log, data in batches.items():
        if size + len(data) > limit:
            parts.append({})
            size = 0
        parts[-1][log] = data
        size += len(data)
    return parts


async def examine_stored(cluster: Cluster, queue: LogQueue, result: ProduceResult) -> bool:
    """Settle the batch in flight by what is stored, after a duplicate answer or error 45.

    Returns:
        False when that cannot be decided now.

    Raises:
        BrokerError, CorruptBatch: the log cannot be read.
    """
    batch = queue.in_flight()
    duplicate = result.error_code == 0
    if batch.is_marker and not duplicate:
        found = (await read_positions(cluster, [queue.log]))[queue.log]
        if found is None or not isinstance(found, LogPosition) or found.term < batch.term:
            return False
        await resolve_position(cluster, queue, found)
        return queue.batch is None
    offset = result.base_offset if duplicate else batch.offset
    replicated = cluster.metadata.replicas(queue.log) > 1
    wait = DUPLICATE_SECONDS if duplicate else SETTLE_SECONDS if replicated else 0.0
    stored = await stored_at(cluster, queue.log, offset, wait=wait)
    if stored is None and duplicate:
        return False
    queue.apply_stored(offset, stored)
    return True


async def resolve_position(cluster: Cluster, queue: LogQueue, found: LogPosition | None) -> None:
    """Settle a batch whose outcome is open by the log's current position, ``found``.

    Afterwards the batch is stored, or has failed, or remains in ``queue.batch`` to be sent again at that position.

    Raises:
        BrokerError, CorruptBatch: the log cannot be read.
    """
    batch = queue.in_flight()
    end = 0 if found is None else found.end
    term = UNKNOWN_TERM if found is None else found.term
    if term > batch.term:
        # The term may have been closed after our batch was stored: check before failing it.
        stored = None if batch.is_marker else await _stored_below(cluster, queue, batch, end)
        if stored is not None and stored.crc == batch.crc:
            queue.landed(batch.offset)
        queue.fail(fenced(queue.log, batch.term, term), stop=True)
    elif batch.is_marker:
        await _resolve_marker(cluster, queue, batch, found)
    elif end > batch.offset:
        queue.apply_stored(batch.offset, await _stored_below(cluster, queue, batch, end))
        queue.known = False
    elif end == batch.offset and term == batch.term:
        queue.position = found
        queue.known = True
    else:
        error = Misplaced(
            f"log {queue.log} ends at {end} in term {term} although records up to {batch.offset} were stored in term "
            f"{batch.term}",
            hint="the topic was recreated or lost its tail; keep both versions, then open a new term",
            log=str(queue.log),
            end=end,
            stored=batch.offset,
        )
        queue.fail(error, stop=True)


async def _resolve_marker(cluster: Cluster, queue: LogQueue, batch: OpenBatch, found: LogPosition | None) -> None:
    if found is not None and found.term == batch.term:
        stored = await stored_at(cluster, queue.log, found.marker)
        if stored is not None and stored.crc == batch.crc:
            queue.landed(found.marker)
            queue.position = found
        else:
            queue.fail(conflict(queue.log, batch, found.marker))
        return
    end = 0 if found is None else found.end
    expected = batch.shares[0][0].expected_end
    if expected is not None and expected != end:
        queue.fail(conflict(queue.log, batch, end))
        return
    # A marker's bytes do not depend on its offset, so the same bytes go to the log's end, wherever that is now.
    batch.offset = batch.marker = end
    queue.position = found
    queue.known = True


async def _stored_below(cluster: Cluster, queue: LogQueue, batch: OpenBatch, end: int) -> BatchHeader | None:
    return await stored_at(cluster, queue.log, batch.offset) if end > batch.offset else None
