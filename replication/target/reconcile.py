"""Finds out what became of appends whose outcome is not known: the part of ``TargetAppender`` that asks what is there.

The log's end is read again. What lies before it and should be the doubtful batch is compared with it; where it is
another, the log has diverged. Where the end has not moved, the batch was never appended: it is sent again, and what
waits behind it follows. Else the feeds go on from that end.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final

from fairlead.errors import FairleadError
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.protocol.errors import BrokerError
from fairlead.kafka.protocol.types import TopicPartition
from replication.batch.batch_diff import prepared_conflict
from replication.batch.prepared import PreparedBatch
from replication.catalog import CLASSES
from replication.states import LogState
from replication.target.log_reader import stored_at
from replication.target.logs import TargetLogs
from replication.target.mirror import MirrorPartition, Waiting, sent_batch
from topologies.model import Priority

MAX_TRIES: Final = 3
BACKOFF: Final = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0)

LimitOf = Callable[[TopicPartition], Awaitable[int]]
"""Bytes that a batch of a log may have at the target, after an attempt to let that follow the source."""


class Reconciler(TargetLogs):
    """A target with logs about which there is doubt; to those nothing is sent until they have been examined."""

    def __init__(self, cluster: Cluster, *, memory: int, on_change: Callable[[], None], limit_of: LimitOf) -> None:
        super().__init__(cluster, memory=memory, on_change=on_change)
        self._limit_of = limit_of
        self._ready: dict[Priority, deque[MirrorPartition]] = {each: deque() for each in CLASSES}
        self._work = asyncio.Event()
        self._too_large: dict[TopicPartition, int] = {}  # size of a batch that was refused
        self._unconfirmed: dict[TopicPartition, dict[int, Waiting]] = {}  # batches by base whose outcome is not known
        self._to_reconcile = asyncio.Event()
        self._pause = False  # before the doubts are examined: the broker asked for patience

    def is_busy(self, tp: TopicPartition) -> bool:
        return super().is_busy(tp) or bool(self._unconfirmed.get(tp))

    def _mark_doubtful(self, replica: MirrorPartition, sent: Waiting | None = None, *, keep: bool = False) -> None:
        """Nothing more is sent to this log until its end has been read again.

        Args:
            sent: A batch whose outcome is not known.
            keep: What waits is still what follows, unless the end turns out to be another one: the target was away.
        """
        batches = self._unconfirmed.setdefault(replica.tp, {})
        if sent is not None:
            batches[sent.step.base] = sent
        if not keep:
            self._drop(replica)
        self._to_reconcile.set()

    async def _reconcile_doubtful(self) -> None:
        """Examine until cancelled, once nothing is on its way to a doubtful log any more."""
        failures = 0
        while True:
            await self._to_reconcile.wait()
            self._to_reconcile.clear()
            landed = [self.replicas[tp] for tp in self._unconfirmed if self.replicas[tp].in_flight == 0]
            if not landed:
                continue
            try:
                if failures or self._pause:
                    self._pause = False
                    await asyncio.sleep(BACKOFF[min(max(failures, 1), len(BACKOFF)) - 1])
                problem = await self._reconcile_apart(landed)
            except FairleadError as error:
                failures += 1
                self._generation += 1
                self._note(error.what)
                self._to_reconcile.set()
                continue
            self._note(None)
            failures = failures + 1 if problem is not None else 0
            if problem is not None:
                self.trouble = problem.what
                self._to_reconcile.set()

    async def _reconcile_apart(self, replicas: Sequence[MirrorPartition]) -> BrokerError | None:
        """Examine these logs. One that has no leader, for instance, holds up none but itself: its error is returned."""
        try:
            await self._reconcile(replicas)
        except BrokerError as error:
            if len(replicas) == 1:
                return error
            half = len(replicas) // 2
            first = await self._reconcile_apart(replicas[:half])
            return await self._reconcile_apart(replicas[half:]) or first
        return None

    async def _reconcile(self, replicas: Collection[MirrorPartition]) -> None:
        """Find out what became of doubtful appends, then go on with what waits where the log has not changed; else let
        the feeds start again from its end."""
        before = {replica.tp: (replica.end, replica.agreeing) for replica in replicas}
        await self.learn(replicas)
        for replica in replicas:
            size = self._too_large.pop(replica.tp, 0)
            if size and (limit := await self._limit_of(replica.tp)) < size:
                replica.max_bytes = limit or size // 2  # not to be learned: by trying
        present = {
            (replica.tp, base): sent_batch(sent)
            for replica in replicas
            if replica.trouble is None
            for base, sent in self._unconfirmed[replica.tp].items()
            if base < replica.end
        }
        for replica in replicas:  # whether its fillers are in, or another's records, decides what is deleted
            if replica.trouble is None and any(
                sent_batch(each).positions for each in self._unconfirmed[replica.tp].values()
            ):
                await self.only_positioned(replica)
        # Oldest first: where one differs, all later ones do.
        first: dict[TopicPartition, PreparedBatch] = {}
        for (tp, _), prepared in sorted(present.items(), key=lambda pair: pair[0][1]):
            first.setdefault(tp, prepared)
        stored = await stored_at(self._cluster, {tp: prepared.base for tp, prepared in first.items()})
        other = {
            tp: there.beside(first[tp])
            for tp, there in stored.items()
            if there.differs(first[tp]) and await self._contradicts(tp, first[tp])
        }
        for replica in replicas:
            unconfirmed = self._unconfirmed.pop(replica.tp)
            end, agreeing = before[replica.tp]
            if replica.trouble is not None:
                continue
            if replica.tp in other:
                self.stop(replica, LogState.DIVERGED, other[replica.tp])
            elif replica.tries >= MAX_TRIES and unconfirmed:
                refused = min(unconfirmed)
                self.stop(
                    replica,
                    LogState.DIVERGED,
                    f"the broker does not accept the batch of offset {refused} (term "
                    f"{sent_batch(unconfirmed[refused]).term}) at the log's end, although the last batch there is "
                    f"{replica.tail}",
                )
            elif replica.end == end == min(unconfirmed, default=end) and all(
                each.feed in replica.feeds for each in unconfirmed.values()
            ):
                again = [unconfirmed[base] for base in sorted(unconfirmed)]
                self._account(replica.hold(again, agreeing), len(again))
                self._list(replica)
                self._release(replica)
            else:
                self._drop(replica)
                self._rewind(replica)

    def _release(self, replica: MirrorPartition) -> None:
        """Let the feeds go on once nothing is held any more."""
        if replica.is_held and not replica.queue and not replica.in_flight:
            self._rewind(replica)

    def _rewind(self, replica: MirrorPartition) -> None:
        replica.is_held = False
        for feed in replica.feeds:
            feed.rewind(replica.tp, replica.end)
        if replica.is_complete:
            self._on_change()

    def _list(self, replica: MirrorPartition) -> None:
        """Have what waits for a log sent."""
        if replica.queue and not replica.listed:
            replica.listed = True
            self._ready[replica.priority].append(replica)
            self._work.set()

    async def _contradicts(self, tp: TopicPartition, sent: PreparedBatch) -> bool:
        """Whether what is stored where ``sent`` belongs is another record, not the same batch split or filled."""
        stored = await self.batch_at(tp, sent.base)
        return stored is not None and bool(prepared_conflict(sent, stored))
