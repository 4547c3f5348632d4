"""Carrying what waits in the appender's queues to the brokers: grouping, sending, settling, trying again.

Each log is in the hands of at most one request (``LogQueue.carrier``), so its batches are never reordered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from fairlead.wire.append_outcome import examine, resolve, settle
from fairlead.wire.append_queue import RESTING, LogQueue
from fairlead.wire.cluster import PRODUCE, Cluster
from fairlead.wire.codecs import Codec
from fairlead.wire.errors import (
    NETWORK_EXCEPTION,
    UNKNOWN_TOPIC_OR_PARTITION,
    BrokerError,
    ConnectionLost,
    RequestTimeout,
    broker_error,
    is_retriable,
)
from fairlead.wire.guard import Found, read_positions
from fairlead.wire.metadata import NO_LEADER
from fairlead.wire.outcome import Verdict
from fairlead.wire.retry import backoff
from fairlead.wire.types import TP, LogPosition, ProduceResult

LOGS_PER_REQUEST: Final = 1000
REQUEST_BYTES: Final = 8 << 20
ATTEMPTS_AT_UNKNOWN: Final = 8  # some seconds for a topic that was created just now
_LOST: Final = ProduceResult(NETWORK_EXCEPTION)


class Carrier:
    """Sends ready logs, at most ``max_in_flight`` requests per leader at a time. Used by ``Appender`` only."""

    def __init__(self, cluster: Cluster, *, max_batch_bytes: int, codec: Codec, max_in_flight: int) -> None:
        self._cluster = cluster
        self._max_batch_bytes = max_batch_bytes
        self._codec = codec
        self._max_in_flight = max_in_flight
        self._loop = asyncio.get_running_loop()
        self._ready: dict[LogQueue, None] = {}
        self._in_flight: dict[int, int] = {}
        self._flush_at: asyncio.TimerHandle | None = None
        self._flush_due = 0.0  # when that is due, on the loop's clock
        self._tasks: set[asyncio.Task[None]] = set()
        self._timeout_ms = max(1000, int(cluster.request_timeout * 900))
        self.closed = False
        self.answered = 0  # requests that a broker has answered
        self.answered_seconds = 0.0  # from their sending to the answer, in all

    async def close(self) -> None:
        """Stop sending; what is under way is given up."""
        self.closed = True
        if self._flush_at is not None:
            self._flush_at.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._ready.clear()

    def wake(self, queue: LogQueue, delay: float) -> None:
        """Something waits in this queue; send it after at most ``delay`` seconds."""
        if queue.carrier is None:  # else it is looked at again when its batch is done
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
        """Send what is ready, as far as requests may be under way."""
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
                    queue.carrier = part
                    del self._ready[queue]
                self._in_flight[node] = self._in_flight.get(node, 0) + 1
                task = self._loop.create_task(self._carry(node, part))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    def _release(self, queue: LogQueue) -> None:
        queue.carrier = None
        if not self.closed and (queue.entries or queue.batch is not None):
            self.wake(queue, 0.0)

    def _later(self, queues: Iterable[LogQueue]) -> None:
        """Try again after a pause, with a fresh look at the log."""
        for queue in queues:
            queue.known = False
            queue.carrier = RESTING
            delay = backoff(queue.attempts)
            queue.attempts += 1
            self._loop.call_later(delay, self._release, queue)

    def _give_up(self, queue: LogQueue, error: BaseException) -> None:
        queue.fail(error)
        self._release(queue)

    # --- carrying a group of logs to one leader

    async def _carry(self, node: int, queues: list[LogQueue]) -> None:
        # The list itself is the token of ownership: a log that was given back may be carried by another one by now.
        try:
            if node == NO_LEADER:
                await self._find_leaders(queues)
            else:
                await self._send(node, queues)
        except (ConnectionLost, RequestTimeout):
            waiting = carried(queues)
            self._later(waiting)
            await self._cluster.refresh_after({queue.log: _LOST for queue in waiting})
        except Exception as error:
            # A refused login, or a mistake of ours: nobody may be left waiting for ever.
            for queue in carried(queues):
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
        unsure = [queue for queue in queues if not self.is_current(queue)]
        if unsure:
            await self._prepare(unsure, queues)
        batches: dict[TP, bytes] = {}
        waiting: dict[TP, LogQueue] = {}
        for queue in carried(queues):
            if queue.lane[0] != node or not self.is_current(queue):
                self._release(queue)  # the leader moved, or the connection was lost meanwhile: once more
                continue
            batch = queue.build(self._max_batch_bytes, self._codec)
            if batch is None:
                self._release(queue)
            elif batch.is_marker and queue.position is not None and queue.position.term == batch.term:
                await self._resolve(queue, queue.position)  # perhaps it was stored before this process began
            else:
                batches[queue.log] = batch.data
                waiting[queue.log] = queue
        if not batches:
            return
        incarnation = self._cluster.pool.incarnation(PRODUCE, node)
        parts = by_bytes(batches, REQUEST_BYTES)
        began = self._loop.time()
        answers = await asyncio.gather(
            *(self._cluster.produce_to(node, part, self._timeout_ms, incarnation) for part in parts)
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
            verdict = settle(queue, result)
            if verdict is Verdict.LATER:
                later[log] = result
                self._later([queue])
            elif verdict is Verdict.EXAMINE:
                doubtful.append((queue, result))
            else:
                self._release(queue)
        await asyncio.gather(*(self._examine(queue, result) for queue, result in doubtful))
        if later:
            await self._cluster.refresh_after(later)

    async def _examine(self, queue: LogQueue, result: ProduceResult) -> None:
        try:
            decided = await examine(self._cluster, queue, result)
        except BrokerError as error:
            self._failed(queue, error)
            return
        if decided:
            self._release(queue)
        else:
            self._later([queue])

    def _failed(self, queue: LogQueue, error: BrokerError) -> None:
        if error.retriable:
            self._later([queue])
        else:
            self._give_up(queue, error)

    # --- the guard

    def is_current(self, queue: LogQueue) -> bool:
        """True while the queue's position was read over the connection that is still up."""
        node, incarnation = queue.lane
        return queue.known and incarnation != 0 and self._cluster.pool.incarnation(PRODUCE, node) == incarnation

    async def look(self, queues: Sequence[LogQueue], carrier: object | None = None) -> dict[TP, Found]:
        """Read positions. They are taken over for logs that are in the hands of ``carrier`` all the while (None: that
        nobody appends to) and have no batch whose outcome is open.

        Raises:
            ConnectionLost: no broker can be reached.
        """
        if not queues:
            return {}
        lanes: dict[TP, tuple[int, int]] = {}
        before = {queue.log: queue.position for queue in queues}
        groups = await self._cluster.by_leader([queue.log for queue in queues])
        for node, logs in groups.items():
            if node != NO_LEADER:
                await self._cluster.pool.get(PRODUCE, node)
                lane = node, self._cluster.pool.incarnation(PRODUCE, node)
                lanes.update(dict.fromkeys(logs, lane))
        found = await read_positions(self._cluster, [queue.log for queue in queues])
        for queue in queues:
            position = found[queue.log]
            mine = queue.carrier is carrier and queue.position is before[queue.log]
            if not mine or isinstance(position, BrokerError) or (carrier is None and queue.batch is not None):
                continue
            queue.lane = lanes.get(queue.log, (NO_LEADER, 0))
            if queue.batch is None:
                queue.settle_position(position)
        return found

    async def _prepare(self, queues: Sequence[LogQueue], carrier: object) -> None:
        """Look at logs before sending to them; decide what a look decides."""
        found = await self.look(queues, carrier)
        for queue in queues:
            position = found[queue.log]
            if isinstance(position, BrokerError):
                self._failed(queue, position)
            elif queue.batch is not None:
                await self._resolve(queue, position)

    async def _resolve(self, queue: LogQueue, position: LogPosition | None) -> None:
        """Decide about a batch whose outcome is open; one that is to be sent again stays with its carrier."""
        try:
            await resolve(self._cluster, queue, position)
        except BrokerError as error:
            self._failed(queue, error)
            return
        if queue.batch is None:
            self._release(queue)


def carried(queues: list[LogQueue]) -> list[LogQueue]:
    """Those that are still in the hands of the request that ``queues`` was made for."""
    return [queue for queue in queues if queue.carrier is queues]


def by_bytes(batches: dict[TP, bytes], limit: int) -> list[dict[TP, bytes]]:
    """``batches`` in parts of at most ``limit`` bytes, at least one batch each."""
    parts: list[dict[TP, bytes]] = []
    size = limit + 1
    for log, data in batches.items():
        if size + len(data) > limit:
            parts.append({})
            size = 0
        parts[-1][log] = data
        size += len(data)
    return parts
