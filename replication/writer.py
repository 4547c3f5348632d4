"""Appends to the target: many logs in one Produce, the outcome of every append looked at, nothing taken on trust.

Steps of all links meet here, one queue per log. Whatever is already in the log is dropped, whatever follows its end is
sent, up to five batches of a log at a time; anything else is fetched again. What a broker's answer means is told by
``replication.verdict``.

Before the first append to a log on a connection its end and last batch are read, because a broker that has forgotten
its producer state takes anything once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from fairlead.wire.cluster import PRODUCE, Cluster
from fairlead.wire.convention import FOREIGN_EPOCH, FOREIGN_PRODUCER_ID
from fairlead.wire.errors import WireError, broker_error
from fairlead.wire.types import ProduceResult, TopicPartition
from replication.content import Hole, Item
from replication.examiner import MAX_TRIES, Examiner, LimitOf
from replication.guard import read_ends
from replication.item import SEQUENCES
from replication.rate import CLASSES
from replication.rebuild import split_steps
from replication.replica import Feed, Replica, Tail, Waiting
from replication.stamp import restamp
from replication.states import LogState
from replication.trim import Trimmer
from replication.verdict import Verdict, judge
from topologies.model import Priority

log = logging.getLogger(__name__)

MAX_FLYING: Final = 5  # batches of one log at a time: what a broker remembers for telling duplicates
MAX_REQUESTS: Final = 5
MAX_REQUEST_BYTES: Final = 8 << 20
MAX_REQUEST_LOGS: Final = 2000


class Writer(Examiner):
    """The one place that appends to a target, whoever brings the records."""

    def __init__(self, cluster: Cluster, *, memory: int, on_change: Callable[[], None], limit_of: LimitOf) -> None:
        """``memory``: bytes of fetched batches that may be under way or wait here; ``on_change`` is called when a log
        stops or reaches its limit, so that the plan can be made again."""
        super().__init__(cluster, memory=memory, on_change=on_change, limit_of=limit_of)
        self._ready: dict[Priority, deque[Replica]] = {each: deque() for each in CLASSES}
        self._work = asyncio.Event()
        self._unchecked: dict[TopicPartition, Replica] = {}  # to be appended to once their ends have been read again
        self._to_check = asyncio.Event()
        self._slots = asyncio.Semaphore(MAX_REQUESTS)
        self.trimmer = Trimmer(cluster)
        self._seen: dict[int, int] = {}  # broker -> incarnation of the connection that appends there

    @property
    def certificate_ends(self) -> float | None:
        """When the certificate that the target's Kafka shows expires, Unix time; None without TLS."""
        return self._cluster.pool.certificate_ends

    def submit(self, replica: Replica, steps: list[Item | Hole], feed: Feed) -> None:
        """Queue what a feed has fetched. Never blocks. Nothing is kept of a log that is stopped, or being examined: the
        feed is told where to go on when that is done."""
        if replica.trouble is not None or not steps:
            return
        replica.fed_by(feed)
        if replica.tp in self._doubts:
            return
        unfit = None
        if replica.max_bytes is not None:
            steps, unfit = split_steps(steps, replica.max_bytes)
        self._account(replica.put(steps, feed), len(steps))
        self._list(replica)
        if unfit is not None and not steps:
            self.stop(replica, LogState.QUARANTINED, unfit.cause)

    # ---- sending

    async def run(self) -> None:
        """Send and examine until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._examine_doubts())
            group.create_task(self._check_ends())
            group.create_task(self.trimmer.run())
            while True:
                await self._work.wait()
                self._work.clear()
                while True:
                    await self._slots.acquire()
                    batch = self._compose()
                    if not batch:
                        self._slots.release()
                        break
                    group.create_task(self._send(batch))

    def _compose(self) -> dict[TopicPartition, tuple[Replica, Waiting]]:
        """Take the next batch of as many logs as one request may carry, urgent classes first."""
        self._look_at_connections()
        out = self._taken()
        self._account(0, -len(out))
        return out

    def _taken(self) -> dict[TopicPartition, tuple[Replica, Waiting]]:
        out: dict[TopicPartition, tuple[Replica, Waiting]] = {}
        size = 0
        for ready in self._ready.values():
            for _ in range(len(ready)):
                if size >= MAX_REQUEST_BYTES or len(out) >= MAX_REQUEST_LOGS:
                    return out
                replica = ready.popleft()
                replica.listed = False
                waiting = self._next_of(replica)
                if waiting is None:
                    continue
                item = waiting.step
                assert isinstance(item, Item)  # noqa: S101 - Replica.following yields items only
                replica.take()
                replica.flying += 1
                replica.sent = item.stop
                if item.producer_id == FOREIGN_PRODUCER_ID != replica.foreign_id:
                    restamp(item.data, replica.foreign_id, FOREIGN_EPOCH, item.base % SEQUENCES)
                replica.tail = Tail(item.producer_id, item.term, item.marker, item.base, item.crc)
                out[replica.tp] = (replica, waiting)
                size += len(item.data)
                self._list(replica)
        return out

    def _look_at_connections(self) -> None:
        """A connection that has been replaced since makes everything known about the logs' ends old."""
        for node in self._cluster.metadata.brokers:
            seen, there = self._seen.get(node, 0), self._cluster.pool.incarnation(PRODUCE, node)
            if seen not in (0, there):
                self._generation += 1
            self._seen[node] = there

    def _next_of(self, replica: Replica) -> Waiting | None:
        """The batch of a log that may be sent now; starts what is needed when there is none."""
        if replica.trouble is not None or replica.tp in self._doubts or replica.flying >= MAX_FLYING:
            return None
        if replica.generation != self._generation:
            self._doubt(replica)
            return None
        before = len(replica.queue)
        waiting, dropped, misfit = replica.following()
        if dropped or len(replica.queue) != before:
            self._account(-dropped, len(replica.queue) - before)
        if misfit is not None:
            if replica.flying == 0:
                self._doubt(replica)
            return None
        if waiting is None or not isinstance(waiting.step, Item):
            return None
        if replica.flying and (waiting.step.opens_term or not replica.primed):
            # Sequence 0 is no compare-and-swap, and a broker that has forgotten the producer takes anything once: what
            # is before must be confirmed first.
            return None
        if replica.may_be_written_here(waiting.step):
            self._unchecked[replica.tp] = replica
            self._to_check.set()
            return None
        problem = replica.may_follow(waiting.step)
        if problem is not None:
            if replica.flying == 0:
                self.stop(replica, LogState.DIVERGED, problem)
            return None
        return waiting

    async def _send(self, batch: Mapping[TopicPartition, tuple[Replica, Waiting]]) -> None:
        items = {tp: _item(waiting) for tp, (_, waiting) in batch.items()}
        results: Mapping[TopicPartition, ProduceResult] = {}
        try:
            results = await self._cluster.produce({tp: item.data for tp, item in items.items()})
            self.trouble = None
        except WireError as error:
            self.trouble = error.what
            log.warning("appending: %s", error.what)
        finally:
            self._slots.release()
            self._work.set()
            self._account(-sum(waiting.size for _, waiting in batch.values()), 0)
            for tp, (replica, waiting) in batch.items():
                item = items[tp]
                replica.flying -= 1
                self._conclude(replica, item, waiting.feed, results.get(tp))
                if replica.tp in self._doubts:
                    self._doubted.set()

    def _conclude(self, replica: Replica, item: Item, feed: Feed, result: ProduceResult | None) -> None:
        """Act on the answer for one batch; None when there was none."""
        code = result.error_code if result is not None else 0
        match judge(result, item.base):
            case Verdict.APPENDED:
                replica.end = max(replica.end, item.stop)
                replica.primed, replica.tries = True, 0
                feed.appended(replica.tp, item)
                self._after(replica, item)
                self._list(replica)
            case Verdict.UNKNOWN:
                self._generation += 1
                self._doubt(replica, item)
            case Verdict.LATER:
                self._pause = True
                self._doubt(replica, item)
            case Verdict.DOUBTFUL:
                if code and item.base == replica.end:
                    replica.tries += 1
                self._doubt(replica, item)
            case Verdict.TOO_LARGE if replica.tries < MAX_TRIES:
                replica.tries += 1
                self._too_large[replica.tp] = len(item.data)
                self._doubt(replica)
            case Verdict.TOO_LARGE | Verdict.UNACCEPTABLE:
                cause = f"the broker refuses the batch of offset {item.base} with error {code}"
                self.stop(replica, LogState.QUARANTINED, cause)
            case Verdict.MISPLACED:
                at = result.base_offset if result is not None else -1
                self.stop(replica, LogState.MISPLACED, f"the batch of offset {item.base} was appended at {at}")
            case Verdict.UNAVAILABLE:
                self.stop(replica, LogState.UNAVAILABLE, broker_error(code, replica.tp).what)

    def _after(self, replica: Replica, item: Item) -> None:
        if replica.positioning is not None and item.stop >= replica.positioning:
            if item.base >= replica.positioning:
                self.trimmer.before(replica.tp, replica.positioning)
                replica.positioning = None
            else:
                self.trimmer.before(replica.tp, replica.positioning - 1)  # the last filler stays until data is in
        if replica.is_complete:
            self._on_change()

    # ---- logs that ordinary clients may be writing here

    async def _check_ends(self) -> None:
        while True:
            await self._to_check.wait()
            self._to_check.clear()
            some, self._unchecked = self._unchecked, {}
            try:
                ends = await read_ends(self._cluster, tuple(some))
            except WireError as error:
                self.trouble = error.what
                ends = {}
            for tp, replica in some.items():
                if ends.get(tp) == replica.sent:
                    replica.checked = replica.sent
                    self._list(replica)
                else:
                    self._doubt(replica)

    def _list(self, replica: Replica) -> None:
        if replica.queue and not replica.listed:
            replica.listed = True
            self._ready[replica.priority].append(replica)
            self._work.set()


def _item(waiting: Waiting) -> Item:
    if not isinstance(waiting.step, Item):
        raise TypeError("only batches are sent")
    return waiting.step
