"""Finds out what became of appends whose outcome is not known: the part of ``Writer`` that asks what is there.

The log's end is read again. What lies before it and should be the doubtful batch is compared with it; where it is
another, the log has diverged, and where it is the same, or was never appended, the feeds go on from that end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from fairlead.errors import FairleadError
from fairlead.wire.cluster import Cluster
from fairlead.wire.types import TopicPartition
from replication.agreement import item_conflict
from replication.content import Item
from replication.guard import stored_at
from replication.replica import Replica
from replication.states import LogState
from replication.target import Target

MAX_TRIES: Final = 3
BACKOFF: Final = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0)

LimitOf = Callable[[TopicPartition], Awaitable[int]]
"""Bytes that a batch of a log may have at the target, after an attempt to let that follow the source."""


class Examiner(Target):
    """A target with logs about which there is doubt; to those nothing is sent until they have been examined."""

    def __init__(self, cluster: Cluster, *, memory: int, on_change: Callable[[], None], limit_of: LimitOf) -> None:
        super().__init__(cluster, memory=memory, on_change=on_change)
        self._limit_of = limit_of
        self._too_large: dict[TopicPartition, int] = {}  # size of a batch that was refused
        self._doubts: dict[TopicPartition, dict[int, Item]] = {}  # items by base whose outcome is not known
        self._doubted = asyncio.Event()
        self._pause = False  # before the doubts are examined: the broker asked for patience

    def _doubt(self, replica: Replica, item: Item | None = None) -> None:
        """Nothing more is sent to this log until its end has been read again."""
        items = self._doubts.setdefault(replica.tp, {})
        if item is not None:
            items[item.base] = item
        self._drop(replica)
        self._doubted.set()

    async def _examine_doubts(self) -> None:
        """Examine until cancelled, once nothing is on its way to a doubtful log any more."""
        failures = 0
        while True:
            await self._doubted.wait()
            self._doubted.clear()
            landed = [self.replicas[tp] for tp in self._doubts if self.replicas[tp].flying == 0]
            if not landed:
                continue
            try:
                if failures or self._pause:
                    self._pause = False
                    await asyncio.sleep(BACKOFF[min(max(failures, 1), len(BACKOFF)) - 1])
                await self._examine(landed)
                failures = 0
                self.trouble = None
            except FairleadError as error:
                failures += 1
                self._generation += 1
                self.trouble = error.what
                self._doubted.set()

    async def _examine(self, replicas: Collection[Replica]) -> None:
        """Find out what became of doubtful appends, then let the feeds start again from the log's end."""
        await self.learn(replicas)
        for replica in replicas:
            size = self._too_large.pop(replica.tp, 0)
            if size and (limit := await self._limit_of(replica.tp)) < size:
                replica.max_bytes = limit or size // 2  # not to be learned: by trying
        present = {
            (replica.tp, base): item
            for replica in replicas
            if replica.trouble is None
            for base, item in self._doubts[replica.tp].items()
            if base < replica.end
        }
        # Oldest first: where one differs, all later ones do.
        first: dict[TopicPartition, Item] = {}
        for (tp, _), item in sorted(present.items(), key=lambda pair: pair[0][1]):
            first.setdefault(tp, item)
        stored = await stored_at(self._cluster, {tp: item.base for tp, item in first.items()})
        other = {
            tp: there.beside(first[tp])
            for tp, there in stored.items()
            if there.differs(first[tp]) and await self._contradicts(tp, first[tp])
        }
        for replica in replicas:
            doubts = self._doubts.pop(replica.tp)
            if replica.trouble is not None:
                continue
            if replica.tp in other:
                self.stop(replica, LogState.DIVERGED, other[replica.tp])
            elif replica.tries >= MAX_TRIES and doubts:
                refused = min(doubts)
                self.stop(
                    replica,
                    LogState.DIVERGED,
                    f"the broker does not accept the batch of offset {refused} (term {doubts[refused].term}) at the "
                    f"log's end, although the last batch there is {replica.tail}",
                )
            else:
                for feed in replica.feeds:
                    feed.rewind(replica.tp, replica.end)
                if replica.is_complete:
                    self._on_change()

    async def _contradicts(self, tp: TopicPartition, sent: Item) -> bool:
        """Whether what is stored where ``sent`` belongs is another record, not the same batch split or filled."""
        stored = await self.batch_at(tp, sent.base)
        return stored is not None and bool(item_conflict(sent, stored))
