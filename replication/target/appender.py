"""Appends batches to the target. One Produce request carries many logs; every log's result is checked.

The batches of all links meet here, one queue per log. A batch that is already in the log is dropped; one that follows
the log's end is sent, up to five batches of a log at a time; anything else is fetched again. A batch follows the log's
end if its offset does and its feed is known to have the log's last batch (``MirrorPartition.is_unproven``).

Before the first append to a log on a connection, the log's end and last batch are read, because a broker that has
forgotten its producer state accepts anything once.

What a broker's answer (error, base offset, append time) to an append at offset n means:

====================  ==========================================================================================
(0, n, -1)            appended now
(0, n, a time)        something was at n already: read it, its CRC tells whether it is the same
45, 47                the log's end is not where it was expected: read its end and the batch at n
(0, m != n)           appended at another offset: ``misplaced``, the log stops
10                    above the target's size limit: let the limit follow the source's, else split the batch
2, 18, 32, 53, 87,    not acceptable as it is: ``quarantined``, the log stops
-1
no answer, 7, 13      outcome unknown, and the connection with it: read the log's end, fetch again from there
retriable errors      outcome unknown: the same after a pause
other errors          ``unavailable``, the log is tried again later
====================  ==========================================================================================
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Final

from fairlead.kafka.client.cluster import PRODUCE, Cluster
from fairlead.kafka.convention import FOREIGN_EPOCH, FOREIGN_PRODUCER_ID
from fairlead.kafka.protocol.errors import WireError, broker_error, is_retriable
from fairlead.kafka.protocol.types import ProduceResult, TopicPartition
from replication.batch.header_rewrite import rewrite_header
from replication.batch.prepared import SEQUENCES, Gap, PreparedBatch
from replication.batch.rebuild import split_prepared
from replication.states import LogState
from replication.target.gaps import Trimmer
from replication.target.log_reader import read_ends
from replication.target.mirror import Feed, MirrorPartition, Waiting, sent_batch
from replication.target.reconcile import MAX_TRIES, LimitOf, Reconciler

log = logging.getLogger(__name__)

LOST: Final = (7, 13)
TOO_LARGE: Final = 10
NOT_THERE: Final = (45, 47)  # out of order; a later term exists
UNACCEPTABLE: Final = frozenset({-1, 2, 18, 32, 53, 87})


class AppendMeaning(Enum):
    """See the module."""

    APPENDED = auto()
    UNKNOWN = auto()
    DOUBTFUL = auto()
    LATER = auto()
    MISPLACED = auto()
    TOO_LARGE = auto()
    UNACCEPTABLE = auto()
    UNAVAILABLE = auto()


def judge(result: ProduceResult | None, expected: int) -> AppendMeaning:
    """The meaning of an answer to a batch that belongs at offset ``expected``; None is no answer."""
    if result is None or result.error_code in LOST:
        return AppendMeaning.UNKNOWN
    if result.error_code == 0:
        if result.base_offset != expected:
            return AppendMeaning.MISPLACED
        return AppendMeaning.APPENDED if result.appended_now else AppendMeaning.DOUBTFUL
    if result.error_code == TOO_LARGE:
        return AppendMeaning.TOO_LARGE
    if result.error_code in UNACCEPTABLE:
        return AppendMeaning.UNACCEPTABLE
    if result.error_code in NOT_THERE:
        return AppendMeaning.DOUBTFUL
    return AppendMeaning.LATER if is_retriable(result.error_code) else AppendMeaning.UNAVAILABLE


MAX_IN_FLIGHT: Final = 5  # batches of one log at a time: what a broker remembers for telling duplicates
MAX_REQUESTS: Final = 5
MAX_REQUEST_BYTES: Final = 8 << 20
MAX_REQUEST_LOGS: Final = 2000


class TargetAppender(Reconciler):
    """The one place that appends to a target, whoever brings the records."""

    def __init__(self, cluster: Cluster, *, memory: int, on_change: Callable[[], None], limit_of: LimitOf) -> None:
        """``memory``: bytes of fetched batches that may be under way or wait here; ``on_change`` is called when a log
        stops or reaches its limit, so that the plan can be made again."""
        super().__init__(cluster, memory=memory, on_change=on_change, limit_of=limit_of)
        self._unchecked: dict[
            TopicPartition, MirrorPartition
        ] = {}  # to be appended to once their ends have been read again
        self._to_check = asyncio.Event()
        self._slots = asyncio.Semaphore(MAX_REQUESTS)
        self.trimmer = Trimmer(cluster)
        self._seen: dict[int, int] = {}  # broker -> incarnation of the connection that appends there

    @property
    def certificate_ends(self) -> float | None:
        """When the certificate that the target's Kafka shows expires, Unix time; None without TLS."""
        return self._cluster.pool.certificate_ends

    def submit(self, replica: MirrorPartition, steps: list[PreparedBatch | Gap], feed: Feed) -> bool:
        """Queue what a feed has fetched. Never blocks. Nothing is kept of a log that is stopped.

        Returns:
            False when nothing is kept because the log's end is being read again, or what was sent before is being sent
            again: the feed is told where to go on when that is done, and should fetch nothing of it until then.
        """
        if replica.trouble is not None or not steps:
            return True
        replica.fed_by(feed)
        if replica.tp in self._unconfirmed or replica.is_held:
            return False
        rejected = None
        if replica.max_bytes is not None:
            steps, rejected = split_prepared(steps, replica.max_bytes)
        self._account(replica.put(steps, feed), len(steps))
        self._list(replica)
        if rejected is not None and not steps:
            self.stop(replica, LogState.QUARANTINED, rejected.cause)
        return True

    # ---- sending

    async def run(self) -> None:
        """Send and examine until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._reconcile_doubtful())
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

    def _compose(self) -> dict[TopicPartition, tuple[MirrorPartition, Waiting]]:
        """Take the next batch of as many logs as one request may carry, urgent classes first."""
        self._check_connections()
        out = self._taken()
        self._account(0, -len(out))
        return out

    def _taken(self) -> dict[TopicPartition, tuple[MirrorPartition, Waiting]]:
        out: dict[TopicPartition, tuple[MirrorPartition, Waiting]] = {}
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
                prepared = sent_batch(waiting)
                replica.take()
                replica.launch(waiting, prepared)
                if prepared.producer_id == FOREIGN_PRODUCER_ID != replica.foreign_id:
                    rewrite_header(prepared.data, replica.foreign_id, FOREIGN_EPOCH, prepared.base % SEQUENCES)
                out[replica.tp] = (replica, waiting)
                size += len(prepared.data)
                self._list(replica)
        return out

    def _check_connections(self) -> None:
        """A connection that has been replaced since makes everything known about the logs' ends old."""
        for node in self._cluster.metadata.brokers:
            seen, there = self._seen.get(node, 0), self._cluster.pool.incarnation(PRODUCE, node)
            if seen not in (0, there):
                self._generation += 1
            self._seen[node] = there

    def _next_of(self, replica: MirrorPartition) -> Waiting | None:
        """The batch of a log that may be sent now; starts what is needed when there is none."""
        if replica.trouble is not None or replica.tp in self._unconfirmed or replica.in_flight >= MAX_IN_FLIGHT:
            return None
        if replica.generation != self._generation:
            self._mark_doubtful(replica, keep=True)
            return None
        before = len(replica.queue)
        waiting, dropped, misfit = replica.following()
        if dropped or len(replica.queue) != before:
            self._account(-dropped, len(replica.queue) - before)
        self._release(replica)
        if misfit is not None:
            if replica.in_flight == 0:
                self._send_back(replica, misfit)
            return None
        if waiting is None or not isinstance(waiting.step, PreparedBatch):
            return None
        if replica.in_flight and (waiting.step.opens_term or not replica.state_confirmed):
            # Sequence 0 is no compare-and-swap, and a broker that has forgotten the producer takes anything once: what
            # is before must be confirmed first.
            return None
        if replica.may_be_written_here(waiting.step):
            self._unchecked[replica.tp] = replica
            self._to_check.set()
            return None
        problem = replica.may_follow(waiting.step)
        if problem is not None:
            if replica.in_flight == 0:
                self.stop(replica, LogState.DIVERGED, problem)
            return None
        return waiting

    def _send_back(self, replica: MirrorPartition, misfit: Waiting) -> None:
        """Let the feeds fetch again what does not follow the log's end; if only proof is missing, the one without."""
        if misfit.step.base > replica.sent or not replica.is_unproven(misfit):
            self._mark_doubtful(replica)
            return
        steps, size = replica.drop_of(misfit.feed)
        self._account(-size, -steps)
        if replica.is_held:
            self._release(replica)
        else:
            misfit.feed.rewind(replica.tp, replica.end)
        self._list(replica)

    async def _send(self, batch: Mapping[TopicPartition, tuple[MirrorPartition, Waiting]]) -> None:
        items = {tp: sent_batch(waiting) for tp, (_, waiting) in batch.items()}
        results: Mapping[TopicPartition, ProduceResult] = {}
        try:
            results = await self._cluster.produce({tp: prepared.data for tp, prepared in items.items()})
            self._note(None)
        except WireError as error:
            self._note(error.what)
            log.warning("appending: %s", error.what)
        finally:
            self._slots.release()
            self._work.set()
            self._account(-sum(waiting.size for _, waiting in batch.values()), 0)
            for tp, (replica, waiting) in batch.items():
                replica.in_flight -= 1
                self._conclude(replica, waiting, items[tp], results.get(tp))
                if replica.tp in self._unconfirmed:
                    self._to_reconcile.set()

    def _conclude(
        self, replica: MirrorPartition, waiting: Waiting, prepared: PreparedBatch, result: ProduceResult | None
    ) -> None:
        """Act on the answer for one batch; None when there was none."""
        code = result.error_code if result is not None else 0
        match judge(result, prepared.base):
            case AppendMeaning.APPENDED:
                before = replica.landed(prepared)
                if before is not None:
                    self.trimmer.before(replica.tp, before)
                waiting.feed.appended(replica.tp, prepared)
                self._release(replica)
                if replica.is_complete:
                    self._on_change()
                self._list(replica)
            case AppendMeaning.UNKNOWN:
                self._generation += 1
                self._mark_doubtful(replica, waiting, keep=True)
            case AppendMeaning.LATER:
                self._pause = True
                self._mark_doubtful(replica, waiting, keep=True)
            case AppendMeaning.DOUBTFUL:
                if code and prepared.base == replica.end:
                    replica.tries += 1
                self._mark_doubtful(replica, waiting)
            case AppendMeaning.TOO_LARGE if replica.tries < MAX_TRIES:
                replica.tries += 1
                self._too_large[replica.tp] = len(prepared.data)
                self._mark_doubtful(replica)
            case AppendMeaning.TOO_LARGE | AppendMeaning.UNACCEPTABLE:
                cause = f"the broker refuses the batch of offset {prepared.base} with error {code}"
                self.stop(replica, LogState.QUARANTINED, cause)
            case AppendMeaning.MISPLACED:
                at = result.base_offset if result is not None else -1
                self.stop(replica, LogState.MISPLACED, f"the batch of offset {prepared.base} was appended at {at}")
            case AppendMeaning.UNAVAILABLE:
                self.stop(replica, LogState.UNAVAILABLE, broker_error(code, replica.tp).what)

    # ---- logs that ordinary clients may be writing here

    async def _check_ends(self) -> None:
        while True:
            await self._to_check.wait()
            self._to_check.clear()
            some, self._unchecked = self._unchecked, {}
            try:
                ends = await read_ends(self._cluster, tuple(some))
            except WireError as error:
                self._note(error.what)
                ends = {}
            for tp, replica in some.items():
                if ends.get(tp) == replica.sent:
                    replica.checked = replica.sent
                    self._list(replica)
                else:
                    self._mark_doubtful(replica)
