"""Append batches to the target. One Produce request carries many logs; every log's result is checked.

The batches of all links meet here, one queue per log. A batch that is already in the log is dropped. One that follows
the log's end is sent, up to five batches of a log at a time. Anything else is fetched again. A batch follows the log's
end if its offset does and its feed's source has the log's last batch (``MirrorPartition.is_unproven``).

Before the first append to a log on a connection, the log's end and last batch are read, because a broker that has
forgotten its producer state accepts any sequence once.

After an append whose outcome is unknown, nothing is sent to the log until its end has been read again. If the end has
not moved, the batch was not appended: it is sent again, then the batches queued behind it. If another batch is stored
at its offset, the log has diverged. Otherwise the feeds continue from the new end.

The table gives the meaning of a broker's answer (error, base offset, append time) to an append at offset n:

====================  ==========================================================================================
(0, n, -1)            appended now
(0, n, a time)        a batch was at n already: read it and compare its CRC
45, 47                the log's end is not where it was expected: read its end and the batch at n
(0, m != n)           appended at another offset: ``misplaced``, the log stops
10                    above the target's size limit: raise the limit to the source's, else split the batch
2, 18, 32, 53, 87,    the broker never accepts this batch: ``quarantined``, the log stops; only for the batch's feed if
-1                    its CRC does not match its bytes, since another source may have it whole
no answer, 7, 13      outcome unknown: read every log's end again before its next append
100                   the topic is another one than its end was read in: as retriable errors. Brokers answer it from
                      Kafka 4.1 on; an older one appends, and the answer is (0, m != n)
retriable errors      outcome unknown: read this log's end again after a pause
other errors          ``unavailable``, the log is tried again later
====================  ==========================================================================================
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from enum import Enum, auto
from typing import Final

from fairlead.errors import FairleadError
from fairlead.kafka.client.cluster import PRODUCE, Cluster
from fairlead.kafka.convention import FOREIGN_EPOCH, FOREIGN_PRODUCER_ID, PRODUCER_ID
from fairlead.kafka.protocol.batch import verify_crc
from fairlead.kafka.protocol.errors import (
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_TOPIC_OR_PARTITION,
    BrokerError,
    CorruptBatch,
    WireError,
    broker_error,
    is_retriable,
)
from fairlead.kafka.protocol.types import ProduceResult, TopicPartition
from replication.batch.batch_diff import prepared_conflict
from replication.batch.header_rewrite import id_after, is_foreign, rewrite_header
from replication.batch.prepared import SEQUENCES, Gap, PreparedBatch
from replication.batch.rebuild import split_prepared
from replication.catalog import CLASSES
from replication.changes import PlanChanges
from replication.states import LogState, LogTrouble, TroubleTeller, now, unavailable
from replication.target.gaps import Trimmer, positions, reach_of_fillers
from replication.target.log_reader import first_batch, read_tails, stored_at
from replication.target.mirror import Feed, LastBatch, MirrorPartition, Waiting
from topologies.model import Priority

log = logging.getLogger(__name__)

LOST: Final = (7, 13)
TOO_LARGE: Final = 10
NOT_THERE: Final = (45, 47)  # out of order; a later term exists
UNACCEPTABLE: Final = frozenset({-1, 2, 18, 32, 53, 87})


class AppendMeaning(Enum):
    """The outcome of an append; the module's table lists the answers."""

    APPENDED = auto()
    UNKNOWN = auto()
    DOUBTFUL = auto()
    LATER = auto()
    MISPLACED = auto()
    TOO_LARGE = auto()
    UNACCEPTABLE = auto()
    UNAVAILABLE = auto()


def append_meaning(result: ProduceResult | None, expected: int) -> AppendMeaning:
    """Return the meaning of a broker's answer to a batch for offset ``expected``; ``result`` is None without one."""
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


MAX_IN_FLIGHT: Final = 5  # batches of one log at a time: a broker remembers five to recognise duplicates
MAX_REQUESTS: Final = 5
MAX_REQUEST_BYTES: Final = 8 << 20
MAX_REQUEST_LOGS: Final = 2000
MAX_TRIES: Final = 3
BACKOFF: Final = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0)
LEAST_SHARE: Final = 64 << 10
UNDER_WAY: Final = 32 << 20  # bytes of all fetches in flight; fills the longest, fastest link
REFUSED_SECONDS: Final = 10.0  # until a log that takes no append for now is shown: leaders move in less
SOON: Final = 1.0  # seconds in which a leader must be found while others wait: many moves take less
WAITING: Final = 10_000  # batches; each takes about 1 kB besides its bytes, and this many keep the target busy

LimitOf = Callable[[TopicPartition], Awaitable[int]]
"""Raise a log's size limit at the target to the source's, if possible; return the limit of one batch in bytes."""


class TargetAppender:
    """Appends to one target. All links of a replicator share it, so each log has one writer.

    Args:
        memory: Bytes of fetched batches that may be in flight or wait here.
        changes: Gets a log's topic when the log stops or reaches its limit, so that it is planned again.
        limit_of: Called when a broker refuses a batch as too large.
    """

    def __init__(self, cluster: Cluster, *, memory: int, changes: PlanChanges, limit_of: LimitOf) -> None:
        self.queued = 0  # bytes that wait here or are in flight to the broker
        self.fetchers = 0  # how many fetch at the same time
        self.replicas: dict[TopicPartition, MirrorPartition] = {}
        self.missing_topics: set[str] = set()  # topics that the plan expects and the target does not have
        self.trouble: str | None = None  # why the target cannot be written to now; writing is retried
        self.trimmer = Trimmer(cluster)
        self._cluster = cluster
        self._memory = memory
        self._changes = changes
        self._limit_of = limit_of
        self._room = asyncio.Event()
        self._urgent_room = asyncio.Event()
        self._answers = asyncio.Event()
        self._answers.set()
        self._generation = 0  # ends and tails read in an earlier generation are out of date
        self._connections: dict[int, int] = {}  # broker -> incarnation of the connection that appends there
        self._waiting = 0  # steps in the queues of all logs
        self._account(0, 0)
        self._ready: dict[Priority, deque[MirrorPartition]] = {each: deque() for each in CLASSES}
        self._work = asyncio.Event()
        self._slots = asyncio.Semaphore(MAX_REQUESTS)
        self._teller = TroubleTeller(log)
        self._unchecked: dict[TopicPartition, MirrorPartition] = {}  # their ends are read once more before an append
        self._to_check = asyncio.Event()
        self._too_large: dict[TopicPartition, int] = {}  # size of a batch that was refused
        self._unconfirmed: dict[TopicPartition, dict[int, Waiting]] = {}  # by base: batches with an unknown outcome
        self._to_reconcile = asyncio.Event()
        self._refused: dict[TopicPartition, LogTrouble] = {}  # logs that take no append now, or cannot be read
        self._pause = False  # a broker answered with a retriable error: pause before reconciling

    def replica(self, tp: TopicPartition, priority: Priority) -> MirrorPartition:
        """Return the state of a log; create it at first use."""
        found = self.replicas.get(tp)
        if found is None:
            found = self.replicas[tp] = MirrorPartition(tp, priority)
        return found

    @property
    def certificate_ends(self) -> float | None:
        """Return when the certificate of the target's Kafka expires, in Unix time; None without TLS."""
        return self._cluster.pool.certificate_ends

    def submit_steps(self, replica: MirrorPartition, steps: list[PreparedBatch | Gap], feed: Feed) -> bool:
        """Queue a feed's fetched steps. Never blocks. Drops all steps of a log that is stopped.

        Returns:
            False if the steps are dropped because the log's end is being read again or earlier batches are being sent
            again, or if only those before a batch that cannot be split are queued. The appender rewinds the feed when
            that is done; until then it should not fetch the log. Also if the feed's next batch is damaged.
        """
        if replica.trouble is not None or not steps:
            return True
        replica.add_feed(feed)
        if replica.tp in self._unconfirmed or replica.is_held:
            return False
        rejected = None
        if replica.max_bytes is not None:
            steps, rejected = split_prepared(steps, replica.max_bytes)
        self._account(replica.queue_steps(steps, feed), len(steps))
        self._mark_ready(replica)
        if rejected is None:
            return True
        if not steps and not replica.queue and not replica.in_flight:
            if rejected.damaged:
                self._on_damaged(replica, feed, rejected.base)
                return False
            self.stop_log(replica, LogState.QUARANTINED, rejected.cause)
            return True
        replica.is_held = True  # the feed brings the rejected batch again, as its first, when all before it is stored
        return False

    def withdraw(self, replica: MirrorPartition, feed: Feed) -> None:
        """Drop what a feed has queued of a log, because its source may have other records there by now. What it brings
        next is appended only after a new proof."""
        steps, size = replica.drop_feed(feed)
        self._account(-size, -steps)
        if not self.is_busy(replica.tp):
            self._refused.pop(replica.tp, None)  # nothing is left that could be refused
        self._resume_feeds(replica)

    # ---- sending

    async def run(self) -> None:
        """Send batches and reconcile unknown outcomes until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._reconcile_doubtful())
            group.create_task(self._check_ends())
            group.create_task(self.trimmer.run())
            while True:
                await self._work.wait()
                self._work.clear()
                while True:
                    await self._slots.acquire()
                    request = self._compose()
                    if not request:
                        self._slots.release()
                        break
                    group.create_task(self._send(request))

    def _compose(self) -> dict[TopicPartition, tuple[MirrorPartition, Waiting, PreparedBatch]]:
        """Take the next batch of as many logs as fit in one request, urgent classes first."""
        self._check_connections()
        out: dict[TopicPartition, tuple[MirrorPartition, Waiting, PreparedBatch]] = {}
        size = 0
        for ready in self._ready.values():
            for _ in range(len(ready)):
                if size >= MAX_REQUEST_BYTES or len(out) >= MAX_REQUEST_LOGS:
                    break
                replica = ready.popleft()
                replica.is_ready = False
                waiting = self._next_batch(replica)
                if waiting is None:
                    continue
                prepared = waiting.batch
                replica.mark_sent(waiting, prepared)
                is_renamed = prepared.producer_id == FOREIGN_PRODUCER_ID != replica.foreign_id
                if is_renamed and verify_crc(prepared.data):  # the broker refuses a damaged one as it is
                    rewrite_header(prepared.data, replica.foreign_id, FOREIGN_EPOCH, prepared.base % SEQUENCES)
                out[replica.tp] = replica, waiting, prepared
                size += len(prepared.data)
                self._mark_ready(replica)
        self._account(0, -len(out))
        return out

    def _check_connections(self) -> None:
        """Start a new generation if a connection was replaced: ends and tails must then be read again."""
        for node in self._cluster.metadata.brokers:
            seen, there = self._connections.get(node, 0), self._cluster.pool.incarnation(PRODUCE, node)
            if seen not in (0, there):
                self._generation += 1
            self._connections[node] = there

    def _next_batch(self, replica: MirrorPartition) -> Waiting | None:
        """Return the batch of a log that may be sent now. If there is none, start the checks that it waits for."""
        if replica.trouble is not None or replica.tp in self._unconfirmed or replica.in_flight >= MAX_IN_FLIGHT:
            return None
        if replica.generation != self._generation:
            self._mark_doubtful(replica, keep=True)
            return None
        before = len(replica.queue)
        waiting, dropped, misfit = replica.next_step()
        if dropped or len(replica.queue) != before:
            self._account(-dropped, len(replica.queue) - before)
        self._resume_feeds(replica)
        if misfit is not None:
            if replica.in_flight == 0:
                self._send_back(replica, misfit)
            return None
        if waiting is None or not isinstance(waiting.step, PreparedBatch):
            return None
        if replica.in_flight and (waiting.step.opens_term or not replica.state_confirmed):
            # The broker accepts sequence 0 at any end, and any sequence once if it has forgotten the producer. So
            # everything before must be confirmed first.
            return None
        if replica.may_be_written_here(waiting.step):
            self._unchecked[replica.tp] = replica
            self._to_check.set()
            return None
        problem = replica.follow_problem(waiting.step)
        if problem is None:
            return waiting
        if replica.in_flight == 0 and verify_crc(waiting.step.data):
            self.stop_log(replica, LogState.DIVERGED, problem)
        elif replica.in_flight == 0:  # its header may say anything
            self._on_damaged(replica, waiting.feed, waiting.step.base)
            self._mark_doubtful(replica)
        return None

    def _send_back(self, replica: MirrorPartition, misfit: Waiting) -> None:
        """Rewind feeds to the log's end: all of them, or only ``misfit``'s if just its proof is missing."""
        if misfit.step.base > replica.sent or not replica.is_unproven(misfit):
            self._mark_doubtful(replica)
            return
        self.withdraw(replica, misfit.feed)
        if not replica.is_held:
            misfit.feed.rewind(replica.tp, replica.end)
        self._mark_ready(replica)

    async def _send(self, request: Mapping[TopicPartition, tuple[MirrorPartition, Waiting, PreparedBatch]]) -> None:
        """Send one request, and act on the broker's answer for each of its batches."""
        results: Mapping[TopicPartition, ProduceResult] = {}
        try:
            topic_ids = {
                tp: replica.topic_id for tp, (replica, _, _) in request.items() if replica.topic_id is not None
            }
            results = await self._cluster.produce(
                {tp: prepared.data for tp, (_, _, prepared) in request.items()}, topic_ids=topic_ids
            )
            self._set_trouble(None)
        except WireError as error:
            self._set_trouble(error.what)
            log.warning("appending: %s", error.what)
        finally:
            self._slots.release()
            self._work.set()
            self._account(-sum(waiting.size for _, waiting, _ in request.values()), 0)
            for tp, (replica, waiting, prepared) in request.items():
                replica.in_flight -= 1
                self._conclude(replica, waiting, prepared, results.get(tp))
                if replica.tp in self._unconfirmed:
                    self._to_reconcile.set()

    def _conclude(
        self, replica: MirrorPartition, waiting: Waiting, prepared: PreparedBatch, result: ProduceResult | None
    ) -> None:
        """Act on the answer for one batch; ``result`` is None without an answer."""
        code = result.error_code if result is not None else 0
        match append_meaning(result, prepared.base):
            case AppendMeaning.APPENDED:
                before = replica.confirm_append(prepared)
                if before is not None:
                    self.trimmer.delete_before(replica.tp, before)
                waiting.feed.on_appended(replica.tp, prepared)
                self._resume_feeds(replica)
                if replica.is_complete:
                    self._changes.add([replica.tp.topic])
                self._mark_ready(replica)
                self._refused.pop(replica.tp, None)
            case AppendMeaning.UNKNOWN:
                self._generation += 1
                self._mark_doubtful(replica, waiting, keep=True)
            case AppendMeaning.LATER:
                self._pause = True
                self._note_refused(replica.tp, broker_error(code, replica.tp))
                self._mark_doubtful(replica, waiting, keep=True)
            case AppendMeaning.DOUBTFUL:
                if code and prepared.base == replica.end:
                    replica.tries += 1
                self._mark_doubtful(replica, waiting)
            case AppendMeaning.TOO_LARGE if replica.tries < MAX_TRIES:
                replica.tries += 1
                self._too_large[replica.tp] = len(prepared.data)
                self._mark_doubtful(replica)
            case AppendMeaning.UNACCEPTABLE if not verify_crc(prepared.data):
                self._on_damaged(replica, waiting.feed, prepared.base)
                self._mark_doubtful(replica)
            case AppendMeaning.TOO_LARGE | AppendMeaning.UNACCEPTABLE:
                cause = f"the broker refuses the batch of offset {prepared.base} with error {code}"
                self.stop_log(replica, LogState.QUARANTINED, cause, broker_error(code).hint)
            case AppendMeaning.MISPLACED:
                at = result.base_offset if result is not None else -1
                self.stop_log(replica, LogState.MISPLACED, f"the batch of offset {prepared.base} was appended at {at}")
            case AppendMeaning.UNAVAILABLE:
                error = broker_error(code, replica.tp)
                self.stop_log(replica, LogState.UNAVAILABLE, error.what, error.hint)

    # ---- room, trouble

    def fetch_share(self) -> int:
        """Return how many bytes one fetcher may request at a time. All fetchers together get at most half of the
        memory; the other half is for queued batches."""
        return max(min(self._memory // 2, UNDER_WAY) // max(self.fetchers, 1), LEAST_SHARE)

    async def wait_ready(self, *, urgent: bool = False) -> None:
        """Wait until the target answers and less is queued than half the memory; if ``urgent``, than all of it."""
        room = self._urgent_room if urgent else self._room
        while not self._answers.is_set() or not room.is_set():
            await self._answers.wait()
            await room.wait()

    def _set_trouble(self, trouble: str | None) -> None:
        """Set why the target cannot be written to; None when it can."""
        self.trouble = trouble
        if trouble is None:
            self._answers.set()
        else:
            self._answers.clear()

    def stop_log(self, replica: MirrorPartition, state: LogState, cause: str, hint: str = "") -> None:
        """Stop one log in a named state; all other logs continue. ``hint``: what ends the cause, if that is known."""
        if replica.trouble is None or replica.trouble.state is not state:
            self._teller.tell(replica.tp, state, cause)
            replica.trouble = LogTrouble(state, cause, now(), hint=hint)
            self._changes.add([replica.tp.topic])
        self._refused.pop(replica.tp, None)
        self._drop_queue(replica)

    def _on_damaged(self, replica: MirrorPartition, feed: Feed, base: int) -> None:
        """Take no more of a log from a feed whose batch at ``base`` is damaged."""
        replica.remove_feed(feed)
        feed.on_damaged(replica.tp, f"the CRC of the batch at offset {base} does not match its bytes")

    def drop(self, logs: Iterable[TopicPartition]) -> None:
        """Drop the queues of these logs, which are no longer followed; batches in flight stay in flight."""
        for tp in logs:
            self._refused.pop(tp, None)
            if (replica := self.replicas.get(tp)) is not None and replica.queue:
                self._drop_queue(replica)

    def is_busy(self, tp: TopicPartition) -> bool:
        """Return whether a batch of this log waits, is in flight, or has an unknown outcome."""
        replica = self.replicas.get(tp)
        return tp in self._unconfirmed or (replica is not None and (replica.in_flight > 0 or bool(replica.queue)))

    def troubles(self) -> Iterable[tuple[TopicPartition, LogTrouble]]:
        """Return the logs that are stopped, and those that have taken no append for ``REFUSED_SECONDS``, each with its
        trouble."""
        before = now() - dt.timedelta(seconds=REFUSED_SECONDS)
        yield from ((tp, each) for tp, each in self._refused.items() if each.since <= before)
        yield from ((tp, each.trouble) for tp, each in self.replicas.items() if each.trouble is not None)

    def _note_refused(self, tp: TopicPartition, error: WireError) -> None:
        known = self._refused.get(tp)
        if known is None or known.cause != error.what:
            self._refused[tp] = unavailable(error.what, known, hint=error.hint)

    def _drop_queue(self, replica: MirrorPartition) -> None:
        steps = len(replica.queue)
        self._account(-replica.clear_queue(), -steps)
        replica.is_held = False

    def _account(self, size: int, steps: int) -> None:
        self.queued += size
        self._waiting += steps
        for room, halves in ((self._room, 1), (self._urgent_room, 2)):
            if self.queued < self._memory * halves // 2 and self._waiting < WAITING * halves:
                room.set()
            else:
                room.clear()

    # ---- reading the target's logs

    async def load_ends(
        self, replicas: Collection[MirrorPartition], late: dict[TopicPartition, WireError] | None = None
    ) -> None:
        """Read these logs' ends and last batches; stop those that cannot be read.

        A log whose topic was deleted and created again since its end was last read counts as missing: the plan begins
        it anew.

        Args:
            late: Receives the errors of logs that cannot be read only now, instead of stopping these.

        Raises:
            WireError: the target cannot be reached.
        """
        generation = self._generation
        topic_id = self._cluster.metadata.topic_id
        before = {each.tp: topic_id(each.tp.topic) for each in replicas}
        ends = await self._cluster.end_offsets([each.tp for each in replicas], seconds=SOON)
        known_ends = {tp: end for tp, end in ends.items() if isinstance(end, int)}
        tails = await read_tails(self._cluster, known_ends, seconds=SOON)
        for each in replicas:
            end, tail = ends[each.tp], tails.get(each.tp)
            if isinstance(end, BrokerError):
                self._stop_unreadable(each, end, late)
                continue
            if isinstance(tail, WireError):
                self._stop_unreadable(each, tail, late)
                continue
            present = before[each.tp] or topic_id(each.tp.topic)
            if each.topic_id not in (None, present):
                self.missing_topics.add(each.tp.topic)
                self.stop_log(each, LogState.UNAVAILABLE, "its topic was deleted here and created again")
                continue
            if tail is not None and tail.is_fence and each.fence != tail.base:
                each.fence = tail.base  # this replicator may not have read the order that belongs to it yet
                what = "it was promoted or failed over here; retried once the orders of that time have been read"
                self.stop_log(each, LogState.UNAVAILABLE, what)
                continue
            known = (PRODUCER_ID, each.foreign_id)
            if tail is not None and (tail.producer_id not in known or tail.is_fence):
                found = await self._foreign_id(each.tp, end, tail)
                if isinstance(found, BrokerError):
                    self._stop_unreadable(each, found, late)
                    continue
                each.foreign_id = found
            each.topic_id = present
            each.set_end(end, tail, generation)
            if each.trouble is not None and each.trouble.state is LogState.UNAVAILABLE:
                each.trouble = None
                self._changes.add([each.tp.topic])  # the plan may have stopped it

    def _stop_unreadable(
        self, replica: MirrorPartition, error: WireError, late: dict[TopicPartition, WireError] | None
    ) -> None:
        """Stop a log that cannot be read, or if that may pass, put its error into ``late``."""
        if isinstance(error, BrokerError) and error.code == UNKNOWN_TOPIC_OR_PARTITION:
            self.missing_topics.add(replica.tp.topic)
        elif error.retriable and late is not None:
            late[replica.tp] = error
            return
        self.stop_log(replica, LogState.UNAVAILABLE, f"its end cannot be read: {error.what}", error.hint)

    async def _foreign_id(self, tp: TopicPartition, end: int, tail: LastBatch) -> int | BrokerError:
        if is_foreign(tail.producer_id) and not tail.is_fence:
            return tail.producer_id
        states = (await self._cluster.describe_producers([tp]))[tp]
        return states if isinstance(states, BrokerError) else id_after(end, states)

    async def has_only_fillers(self, replica: MirrorPartition) -> bool:
        """Return whether the log is empty or has only the fillers of an interrupted positioning."""
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

    async def is_trimmed(self, replica: MirrorPartition) -> bool:
        """Return whether only the log's last offset is left, as when its positioning fillers were complete."""
        start = (await self._cluster.start_offsets([replica.tp]))[replica.tp]
        if isinstance(start, BrokerError):
            raise start
        return 0 < start == replica.end - 1

    async def batch_at(self, tp: TopicPartition, offset: int) -> memoryview | None:
        """Return the stored batch that contains an offset or follows it; None if there is none.

        Raises:
            WireError: the target cannot be reached, or the log not be read.
        """
        try:
            found = await first_batch(self._cluster, tp, offset)
        except BrokerError as error:
            if error.code != OFFSET_OUT_OF_RANGE:
                raise
            return None
        return None if found is None else found.data

    # ---- logs that ordinary clients may be writing here

    async def _check_ends(self) -> None:
        while True:
            await self._to_check.wait()
            self._to_check.clear()
            some, self._unchecked = self._unchecked, {}
            try:
                ends = await self._cluster.end_offsets(some, seconds=SOON)
            except WireError as error:
                self._set_trouble(error.what)
                ends = {}
            for tp, replica in some.items():
                if ends.get(tp) == replica.sent:
                    replica.checked = replica.sent
                    self._mark_ready(replica)
                else:
                    self._mark_doubtful(replica)

    # ---- unknown outcomes

    def _mark_doubtful(self, replica: MirrorPartition, sent: Waiting | None = None, *, keep: bool = False) -> None:
        """Send nothing more to this log until its end has been read again.

        Args:
            sent: A batch whose outcome is unknown.
            keep: Keep the queue. Set it when the target was only unreachable: unless the end has moved, the queued
                batches still follow it.
        """
        batches = self._unconfirmed.setdefault(replica.tp, {})
        if sent is not None:
            batches[sent.step.base] = sent
        if not keep:
            self._drop_queue(replica)
        self._to_reconcile.set()

    async def _reconcile_doubtful(self) -> None:
        """Reconcile doubtful logs that have nothing in flight, until cancelled."""
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
                problem = await self._reconcile(landed)
            except FairleadError as error:
                failures += 1
                self._generation += 1
                self._set_trouble(error.what)
                self._to_reconcile.set()
                continue
            self._set_trouble(None)
            failures = failures + 1 if problem is not None else 0
            if problem is not None:
                self.trouble = problem.what
                self._to_reconcile.set()

    async def _reconcile(self, replicas: Collection[MirrorPartition]) -> WireError | None:
        """Settle the outcome of doubtful appends. Send again where the log has not changed; else rewind the feeds.

        A log that cannot be read now stays doubtful, and delays no other.

        Returns:
            The error of such a log.
        """
        before = {replica.tp: (replica.end, replica.agreeing_feeds) for replica in replicas}
        late: dict[TopicPartition, WireError] = {}
        await self.load_ends(replicas, late)
        for tp in late:  # it may stay so for hours: its feeds bring the batches again
            self._drop_queue(self.replicas[tp])
            self.replicas[tp].agreeing_feeds = ()
            sent_before = self._unconfirmed[tp]
            self._unconfirmed[tp] = {base: each for base, each in sent_before.items() if each.batch.positions}
        read = [each for each in replicas if each.tp not in late]
        for replica in read:
            size = self._too_large.get(replica.tp, 0)
            if size and (limit := await self._limit_of(replica.tp)) < size:
                replica.max_bytes = limit or size // 2  # the limit is unknown: try
            self._too_large.pop(replica.tp, None)  # not before the limit is known: the target may be away
        present = {
            (replica.tp, base): sent.batch
            for replica in read
            if replica.trouble is None
            for base, sent in self._unconfirmed[replica.tp].items()
            if base < replica.end
        }
        for replica in read:  # the fillers may be deleted only if they, and nothing else, were appended
            if replica.trouble is None and any(each.batch.positions for each in self._unconfirmed[replica.tp].values()):
                try:
                    await self.has_only_fillers(replica)
                except (BrokerError, CorruptBatch) as error:
                    self._stop_unreadable(replica, error, late)
        # Compare only the oldest batch of each log: if it differs, all later ones differ too.
        first: dict[TopicPartition, PreparedBatch] = {}
        for (tp, _), prepared in sorted(present.items(), key=lambda pair: pair[0][1]):
            first.setdefault(tp, prepared)
        offsets = {tp: each.base for tp, each in first.items()}
        other: dict[TopicPartition, str] = {}
        for tp, there in (await stored_at(self._cluster, offsets, seconds=SOON)).items():
            try:
                if isinstance(there, WireError):
                    raise there
                if there.differs(first[tp]) and await self._contradicts(tp, first[tp]):
                    other[tp] = there.beside(first[tp])
            except (BrokerError, CorruptBatch) as error:
                self._stop_unreadable(self.replicas[tp], error, late)
        for replica in replicas:
            if replica.tp in late:
                self._note_refused(replica.tp, late[replica.tp])
                continue
            unconfirmed = self._unconfirmed.pop(replica.tp)
            end, agreeing = before[replica.tp]
            if not unconfirmed or replica.trouble is not None:
                self._refused.pop(replica.tp, None)  # its next append shows whether it is still refused
            if replica.trouble is not None:
                continue
            if replica.tp in other:
                self.stop_log(replica, LogState.DIVERGED, other[replica.tp])
            elif replica.tries >= MAX_TRIES and unconfirmed:
                refused = min(unconfirmed)
                self.stop_log(
                    replica,
                    LogState.DIVERGED,
                    f"the broker does not accept the batch of offset {refused} (term "
                    f"{unconfirmed[refused].batch.term}) at the log's end, although the last batch there is "
                    f"{replica.tail}",
                )
            elif replica.end == end == min(unconfirmed, default=end) and all(
                each.feed in replica.feeds for each in unconfirmed.values()
            ):
                again = [unconfirmed[base] for base in sorted(unconfirmed)]
                self._account(replica.requeue(again, agreeing), len(again))
                self._mark_ready(replica)
                self._resume_feeds(replica)
            else:
                self._refused.pop(replica.tp, None)
                self._drop_queue(replica)
                self._rewind(replica)
        return next(iter(late.values()), None)

    def _resume_feeds(self, replica: MirrorPartition) -> None:
        """Rewind the feeds once the requeued batches are stored."""
        if replica.is_held and not replica.queue and not replica.in_flight:
            self._rewind(replica)

    def _rewind(self, replica: MirrorPartition) -> None:
        replica.is_held = False
        for feed in replica.feeds:
            feed.rewind(replica.tp, replica.end)
        if replica.is_complete:
            self._changes.add([replica.tp.topic])

    def _mark_ready(self, replica: MirrorPartition) -> None:
        """Schedule the log's queue to be sent."""
        if replica.queue and not replica.is_ready:
            replica.is_ready = True
            self._ready[replica.priority].append(replica)
            self._work.set()

    async def _contradicts(self, tp: TopicPartition, sent: PreparedBatch) -> bool:
        """Return whether other records are stored at the offsets of ``sent``, rather than the same batch split or
        filled."""
        stored = await self.batch_at(tp, sent.base)
        return stored is not None and bool(prepared_conflict(sent, stored))
