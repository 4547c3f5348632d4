"""What is known about a target's logs, and how much may wait for them. Sends nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Container, Iterable
from typing import Final

from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.convention import PRODUCER_ID
from fairlead.kafka.protocol.errors import UNKNOWN_TOPIC_OR_PARTITION, BrokerError
from fairlead.kafka.protocol.types import TopicPartition
from replication.batch.header_rewrite import id_after, is_foreign
from replication.states import LogState, LogTrouble, now
from replication.target.gaps import positions, reach_of_fillers
from replication.target.log_reader import first_batch, read_ends, read_tails
from replication.target.mirror import LastBatch, MirrorPartition
from topologies.model import Priority

log = logging.getLogger(__name__)

LEAST_SHARE: Final = 64 << 10
UNDER_WAY: Final = 32 << 20  # fills the longest fattest link; more would only be memory
WAITING: Final = 10_000  # batches; each takes about 1 kB besides its bytes, and this many keep the target busy


class TargetLogs:
    """The logs of one target as its replicator knows them."""

    def __init__(self, cluster: Cluster, *, memory: int, on_change: Callable[[], None]) -> None:
        self._cluster = cluster
        self._memory = memory
        self._on_change = on_change
        self._room = asyncio.Event()
        self._room.set()
        self._answers = asyncio.Event()
        self._answers.set()
        self._generation = 0  # what was learned in an earlier one is old
        self.queued = 0  # bytes that wait or are on their way to the broker
        self._waiting = 0  # steps in the queues of all logs
        self.fetchers = 0  # how many fetch at the same time
        self.replicas: dict[TopicPartition, MirrorPartition] = {}
        self.gone: set[str] = set()  # topics that the target does not have, to the plan's surprise
        self.trouble: str | None = None  # why the target cannot be written to at the moment; something tries again

    def replica(self, tp: TopicPartition, priority: Priority) -> MirrorPartition:
        """The one record of a log, made at first use."""
        found = self.replicas.get(tp)
        if found is None:
            found = self.replicas[tp] = MirrorPartition(tp, priority)
        return found

    async def learn(self, replicas: Collection[MirrorPartition]) -> None:
        """Read where these logs end and who wrote last; logs that cannot be read get into trouble.

        Raises:
            WireError: the target cannot be reached.
        """
        generation = self._generation
        ends = await read_ends(self._cluster, [each.tp for each in replicas])
        tails = await read_tails(self._cluster, {tp: end for tp, end in ends.items() if isinstance(end, int)})
        for each in replicas:
            end = ends[each.tp]
            if isinstance(end, BrokerError):
                if end.code == UNKNOWN_TOPIC_OR_PARTITION:
                    self.gone.add(each.tp.topic)
                elif end.retriable:
                    raise end
                self.stop(each, LogState.UNAVAILABLE, f"its end cannot be read: {end.what}")
                continue
            tail = tails.get(each.tp)
            if tail is not None and tail.is_fence and each.fence != tail.base:
                each.fence = tail.base  # the order that goes with it may not be read yet, by one that slept
                what = "it was promoted or failed over here; looked at again when the orders of that time are read"
                self.stop(each, LogState.UNAVAILABLE, what)
                continue
            known = (PRODUCER_ID, each.foreign_id)
            if tail is not None and (tail.producer_id not in known or tail.is_fence):
                each.foreign_id = await self._foreign_id(each.tp, end, tail)
            each.learned(end, tail, generation)
            if each.trouble is not None and each.trouble.state is LogState.UNAVAILABLE:
                each.trouble = None

    async def _foreign_id(self, tp: TopicPartition, end: int, tail: LastBatch) -> int:
        if is_foreign(tail.producer_id) and not tail.is_fence:
            return tail.producer_id
        return id_after(end, (await self._cluster.producer_states([tp]))[tp])

    async def only_positioned(self, replica: MirrorPartition) -> bool:
        """Whether the log has nothing but the fillers of an interrupted positioning, or nothing at all."""
        if replica.end <= 0:
            return True
        end = replica.end
        if replica.positioned == end:
            return True
        last = await self.batch_at(replica.tp, end - 1)
        if last is None or not positions(last) or await reach_of_fillers(self._cluster, replica.tp) != end:
            return False
        replica.holds_only_fillers(end)
        return True

    async def batch_at(self, tp: TopicPartition, offset: int) -> memoryview | None:
        """The target's batch that contains an offset, as stored; None when it has none.

        Raises:
            WireError: the target cannot be reached, or answers with an error that may pass.
        """
        try:
            found = await first_batch(self._cluster, tp, offset)
        except BrokerError as error:
            if error.retriable:
                raise
            return None
        return None if found is None else found.data

    def share(self) -> int:
        """Bytes that one fetcher may ask for at a time: at most half of the memory is for what is under way, the rest
        for what waits here."""
        return max(min(self._memory // 2, UNDER_WAY) // max(self.fetchers, 1), LEAST_SHARE)

    async def ready(self, *, room: bool = True) -> None:
        """Wait until the target answers and, where ``room`` is needed, less is queued than the memory allows. What is
        fetched before could not be appended."""
        while not self._answers.is_set() or (room and not self._room.is_set()):
            await self._answers.wait()
            if room:
                await self._room.wait()

    def _note(self, trouble: str | None) -> None:
        """The target cannot be written to, or can be again."""
        self.trouble = trouble
        if trouble is None:
            self._answers.set()
        else:
            self._answers.clear()

    def stop(self, replica: MirrorPartition, state: LogState, cause: str) -> None:
        """Stop one log in a named state; all others go on."""
        if replica.trouble is None or replica.trouble.state is not state:
            log.error("%s %s: %s", replica.tp, state, cause)
            replica.trouble = LogTrouble(state, cause, now())
        self._drop(replica)
        self._on_change()

    def drop_all_but(self, followed: Container[TopicPartition]) -> None:
        """Forget what waits for logs that are not followed any more. What is on its way to the broker stays so."""
        for tp, replica in self.replicas.items():
            if replica.queue and tp not in followed:
                self._drop(replica)

    def is_busy(self, tp: TopicPartition) -> bool:
        """Whether something is on its way to this log."""
        replica = self.replicas.get(tp)
        return replica is not None and (replica.in_flight > 0 or bool(replica.queue))

    def troubles(self) -> Iterable[tuple[TopicPartition, LogTrouble]]:
        """Logs that are stopped, with why."""
        return ((tp, each.trouble) for tp, each in self.replicas.items() if each.trouble is not None)

    def _drop(self, replica: MirrorPartition) -> None:
        steps = len(replica.queue)
        self._account(-replica.clear(), -steps)
        replica.is_held = False

    def _account(self, size: int, steps: int) -> None:
        self.queued += size
        self._waiting += steps
        has_room = self.queued < self._memory // 2 and self._waiting < WAITING
        if has_room != self._room.is_set():
            if has_room:
                self._room.set()
            else:
                self._room.clear()
