"""One priority class of one link: a fetch session at the source, its long poll, and where each log stands there.

A lane never waits for the writer: it hands over what it has fetched and moves on, within the memory that the writer
allows. When something could not be appended the writer rewinds the log here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from fairlead.wire.batch import parse_header, split
from fairlead.wire.cluster import Cluster
from fairlead.wire.errors import OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_ID, CorruptBatch, broker_error
from fairlead.wire.types import FetchedPartition, TopicPartition
from replication.agreement import conflict
from replication.answer import AnswerSize
from replication.content import HOLE_KEY, POSITION_KEY, Hole, Item, Unfit, steps
from replication.guard import positions
from replication.plan import EVERY_SOURCE
from replication.proof import Doubt, doubt
from replication.rate import LinkBudget
from replication.replica import Replica
from replication.skip import MaySkip, hole_of_item, never
from replication.start import beginnings
from replication.states import LogState, now_ms
from replication.writer import Writer
from topologies.model import Priority

READ_COMMITTED: Final = 1  # tells aborted transactions; costs nothing where there are none
POLL_MS: Final = 10_000  # data ends a poll at once; an empty one costs the source 12 microseconds for each log
THIN_POLL_MS: Final = 1000  # over a link with a rate, where a poll cannot be cut short
THIN_POLL_PER_LOG: Final = 10
HURRY: Final = (0.02, 1.0)  # seconds from a change to cutting a poll short, and between two of those
LOG_BYTES: Final = 1 << 20
LEAST_ANSWER: Final = 4096  # what a link with a rate is asked for at least
BUSY_BYTES: Final = 256 << 10  # an answer of this size means catching up: no pause
PACE: Final = (0.02, 0.25)  # seconds between polls that bring little, so that traffic of many logs shares them
PACE_PER_LOG: Final = 50e-6  # a broker spends about 12 microseconds on each log of a session at each poll


@dataclass(slots=True)
class Counters:
    """What one link has moved since its replicator started."""

    records: int = 0
    batches: int = 0
    bytes: int = 0  # of batches appended to the target
    fetched_bytes: int = 0  # over the link, with what another link had brought already

    def add(self, item: Item) -> None:
        self.records += item.records
        self.batches += 1
        self.bytes += len(item.data)


LogTrouble = Callable[[TopicPartition, LogState, str], None]


class Lane:
    """Follows logs of one class at one source and feeds them to the writer."""

    def __init__(
        self,
        name: str,
        priority: Priority,
        *,
        cluster: Cluster,
        writer: Writer,
        budget: LinkBudget,
        counters: Counters,
        ends: dict[TopicPartition, int],
        on_trouble: LogTrouble,
        on_change: Callable[[], None],
        is_origin: Callable[[str], bool],
        start: str = "earliest",
        round_trip: float = 0.0,
        may_skip: MaySkip = never,
    ) -> None:
        """``ends`` is shared by the lanes of a link: each log's end at the source, as last heard. ``is_origin`` tells
        whether the source is the site where a topic's records first enter, for ever. ``start`` is ``Link.start``."""
        self.name = name
        self.priority = priority
        self._cluster = cluster
        self._writer = writer
        self._budget = budget
        self._counters = counters
        self._ends = ends
        self._on_trouble = on_trouble
        self._on_change = on_change
        self._is_origin = is_origin
        self._start = start
        self._may_skip = may_skip
        self._answer = AnswerSize(round_trip)
        self._hurrying: asyncio.TimerHandle | None = None
        self._hurried = 0.0
        self._lag = -1  # 0 stays until something is fetched; anything else is counted again
        self._session = cluster.fetch_session(isolation=READ_COMMITTED)
        self._replicas: dict[TopicPartition, Replica] = {}
        self._positions: dict[TopicPartition, int] = {}
        self._gaps: dict[TopicPartition, int] = {}  # empty replicas whose source starts later: where fillers begin
        self._unproven: dict[TopicPartition, int] = {}  # end at which the source's last batch must be the target's
        self._doubted: dict[TopicPartition, Doubt] = {}  # the source's last batch is not simply the target's
        self._agreed: set[TopicPartition] = set()  # its records agree: the target may end inside a batch
        self._short: set[TopicPartition] = set()  # the source has less than the target: proven when it has caught up
        self._epochs: dict[TopicPartition, int] = {}  # leader epoch of the last batch fetched
        self._beginning: set[TopicPartition] = set()  # empty replicas whose first offset is not decided yet
        self._wanted = asyncio.Event()

    # ---- told by the plan and the writer

    def __len__(self) -> int:
        """How many logs are followed."""
        return len(self._replicas)

    def follow(self, replica: Replica) -> None:
        """Fetch a log from the target's end on; first its last batch once more, to see that it is the same."""
        if replica.tp not in self._replicas:
            self._replicas[replica.tp] = replica
            if replica.end <= 0 and self._start != "earliest":
                self._beginning.add(replica.tp)
            else:
                self._move(replica.tp, max(replica.end - 1, 0))
            if replica.end > 0:
                self._unproven[replica.tp] = replica.end
            self._wanted.set()
            self._hurry()

    def unfollow(self, tp: TopicPartition) -> None:
        replica = self._replicas.pop(tp, None)
        if replica is not None:
            replica.feeds.discard(self)
            self._positions.pop(tp, None)
            self._gaps.pop(tp, None)
            self._unproven.pop(tp, None)
            self._beginning.discard(tp)
            self._short.discard(tp)
            self._epochs.pop(tp, None)
            self._session.forget(tp)
            self._hurry()

    def rewind(self, tp: TopicPartition, end: int) -> None:
        if tp in self._replicas:
            self._move(tp, end)
            self._hurry()

    def appended(self, tp: TopicPartition, item: Item) -> None:
        self._counters.add(item)

    def lag(self) -> int:
        """Records that the source has and the target does not, of the logs followed here."""
        if self._lag != 0:
            self._lag = sum(max(0, self._ends.get(tp, 0) - each.end) for tp, each in self._replicas.items())
        return self._lag

    # ---- fetching

    async def run(self) -> None:
        """Fetch until cancelled.

        Raises:
            WireError: the source cannot be reached.
        """
        self._writer.lanes += 1
        try:
            while True:
                if not self._replicas:
                    self._wanted.clear()
                    await self._wanted.wait()
                wait = self._budget.wait(self.priority, time.monotonic())
                if wait > 0:
                    await asyncio.sleep(wait)
                    continue
                if self.priority not in EVERY_SOURCE:
                    await self._writer.room()
                if self._beginning:
                    await self._begin()
                await self._poll()
        finally:
            self._writer.lanes -= 1
            if self._hurrying is not None:
                self._hurrying.cancel()
            for replica in self._replicas.values():
                replica.feeds.discard(self)
            self._replicas.clear()
            await self._session.close()

    def _patience(self) -> int:
        """Milliseconds that the source may keep an empty poll."""
        if self._budget.rate is None:
            return POLL_MS
        return min(THIN_POLL_MS + THIN_POLL_PER_LOG * len(self), POLL_MS)

    def _hurry(self) -> None:
        """Somebody else has changed what is fetched: do not let it wait for the poll that is under way."""
        if self._budget.rate is None and self._hurrying is None:
            loop = asyncio.get_running_loop()
            at = max(loop.time() + HURRY[0], self._hurried + HURRY[1])
            self._hurrying = loop.call_at(at, self._cut_short)

    def _cut_short(self) -> None:
        self._hurrying, self._hurried = None, asyncio.get_running_loop().time()
        self._session.hurry()

    async def _begin(self) -> None:
        """Decide where to begin in empty replicas; with everything skipped, fill at once, which keeps the decision."""
        logs = tuple(self._beginning)
        for tp, (position, fill) in (await beginnings(self._cluster, logs, self._start)).items():
            replica = self._replicas.get(tp)
            self._beginning.discard(tp)
            if replica is None:
                continue
            self._move(tp, position)
            if fill is not None:
                replica.positioning = fill.stop
                self._writer.submit(replica, [fill], self)
            elif position > 0:
                self._gaps[tp] = 0
        for tp in self._beginning.intersection(logs):
            self._beginning.discard(tp)
            self._on_trouble(tp, LogState.UNAVAILABLE, f"{self.name}: the source does not tell where the log begins")

    async def _poll(self) -> None:
        most = min(self._answer.size, self._writer.share())
        asked = max(self._budget.allowance(self.priority, time.monotonic(), most), LEAST_ANSWER)
        began = time.monotonic()
        answer = await self._session.poll(
            max_wait_ms=self._patience(),
            max_bytes=asked,
            partition_max_bytes=min(asked, max(LOG_BYTES, asked // max(len(self), 1))),
        )
        got = sum(len(part.records) for part in answer.values())
        self._answer.took(asked, got, self._session.seconds)
        self._counters.fetched_bytes += got
        self._budget.charge(self.priority, got, time.monotonic())
        if answer:
            self._lag = -1
        lost = [tp for tp, part in answer.items() if not self._take(tp, part)]
        if lost:
            await self._find(lost)
        if self._doubted:
            await self._judge()
        if got < BUSY_BYTES and answer and self.priority not in EVERY_SOURCE:
            pace = min(max(len(self._replicas) * PACE_PER_LOG, PACE[0]), PACE[1])
            await asyncio.sleep(max(0.0, began + pace - time.monotonic()))

    def _take(self, tp: TopicPartition, part: FetchedPartition) -> bool:
        """Hand over one log's part of an answer; False when the position is not in the source's log."""
        replica = self._replicas.get(tp)
        if replica is None:
            return True
        if part.error_code:
            return self._refused(tp, part.error_code)
        self._ends[tp] = part.last_stable_offset if part.last_stable_offset >= 0 else part.high_watermark
        if not part.records:
            return True
        if tp in self._short or self._is_new_leader(tp, part.records):
            self._prove_again(tp, replica)
            return True
        gap = self._gaps.pop(tp, None)
        position = self._positions[tp] if gap is None else gap
        key = HOLE_KEY if gap is None else POSITION_KEY
        try:
            proven = self._unproven.pop(tp, None)
            if proven is not None:
                found = doubt(replica.tail, proven, part.records)
                if found is not None:
                    self._doubted[tp] = found
                    return True
                position = proven
            made, unfit = self._made(tp, part, position, key)
        except CorruptBatch as error:
            self._on_trouble(tp, LogState.QUARANTINED, error.what)
            return True
        if made:
            if gap is not None and isinstance(made[0], Hole):
                replica.positioning = made[0].stop
            self._writer.submit(replica, made, self)
            reached = made[-1].stop
            jumped = reached < replica.end <= self._ends[tp]
            self._move(tp, replica.end if jumped else reached)
        elif unfit is None:
            self._move(tp, max(position, self._positions[tp]))
        elif unfit.diverged:  # or one of the pieces of a split batch is there, and the others are not yet
            first = next(split(part.records))
            batch = bytes(part.records[first.start : first.stop])
            self._doubted[tp] = Doubt(unfit.cause, position, batch)
        else:
            self._writer.stop(replica, LogState.QUARANTINED, unfit.cause)
        return True

    def _is_new_leader(self, tp: TopicPartition, records: memoryview) -> bool:
        """Whether another leader than before wrote the first of these batches. It may have lost what the target has
        already (an unclean election) and written something else there since."""
        epoch = parse_header(records).leader_epoch
        before = self._epochs.get(tp)
        self._epochs[tp] = epoch
        return before is not None and epoch > before

    def _prove_again(self, tp: TopicPartition, replica: Replica) -> None:
        """Look once more whether the source ends as the target does, as soon as it reaches as far."""
        if self._ends[tp] < replica.end:
            self._move(tp, self._ends[tp])
            self._short.add(tp)
            return
        self._move(tp, max(replica.end - 1, 0))
        if replica.end > 0:
            self._unproven[tp] = replica.end

    def _refused(self, tp: TopicPartition, code: int) -> bool:
        if code == OFFSET_OUT_OF_RANGE:
            return False
        state = LogState.SOURCE_RECREATED if code == UNKNOWN_TOPIC_ID else LogState.UNAVAILABLE
        self._on_trouble(tp, state, broker_error(code, tp).what)
        return True

    def _made(
        self, tp: TopicPartition, part: FetchedPartition, position: int, key: bytes
    ) -> tuple[list[Item | Hole], Unfit | None]:
        """What may be appended up to the first batch that is unfit; what operators let go becomes a hole."""
        made: list[Item | Hole] = []
        inside = tp in self._agreed
        self._agreed.discard(tp)
        for step in steps(part.records, position, part.aborted, gap_key=key, inside=inside):
            if isinstance(step, Item) and self._may_skip(str(tp), step.base, step.stop):
                made.append(hole_of_item(step, now_ms()))
            elif isinstance(step, Unfit):
                hole = step.hole
                if hole is None or not self._may_skip(str(tp), hole.base, hole.stop):
                    return made, step
                made.append(hole._replace(timestamp_ms=now_ms()))
            else:
                made.append(step)
        return made, None

    async def _judge(self) -> None:
        """Look closely at replicas that end in another batch than the source. Fillers that only position are no
        history; else the records decide."""
        doubted, self._doubted = self._doubted, {}
        for tp, found in doubted.items():
            replica = self._replicas.get(tp)
            if replica is None:
                continue
            stored = await self._writer.batch_at(tp, found.end - 1)
            if stored is None:
                self._move(tp, max(replica.end, 0))
            elif positions(stored):
                replica.positioning = replica.end
                self._move(tp, replica.end)
            elif problem := conflict(found.batch, stored):
                self._writer.stop(replica, LogState.DIVERGED, f"{self.name}: {found.what}: {problem}")
            else:
                self._move(tp, found.end)
                self._agreed.add(tp)

    async def _find(self, lost: list[TopicPartition]) -> None:
        """The source's log does not have the position asked for: it begins later, or ends earlier."""
        starts = await self._cluster.start_offsets(lost)
        ends = await self._cluster.end_offsets(lost)
        for tp in lost:
            replica = self._replicas.get(tp)
            start, end = starts[tp], ends[tp]
            if replica is None:
                continue
            if not isinstance(start, int) or not isinstance(end, int):
                error = start if not isinstance(start, int) else end
                self._on_trouble(tp, LogState.UNAVAILABLE, str(getattr(error, "what", error)))
                continue
            self._ends[tp] = end
            position = self._positions[tp]
            if position > end:
                self._source_is_behind(tp, replica, end)
            elif position < start:
                await self._source_begins_later(tp, replica, start)
            else:  # it has grown meanwhile: ask again, and what had to be proven still has to
                self._session.set(tp, position)

    def _source_is_behind(self, tp: TopicPartition, replica: Replica, end: int) -> None:
        """Another source had more. Wait at this source's end: what comes there first is here already."""
        if self._is_origin(tp.topic):
            cause = f"{self.name}: the site that writes this log ends at {end}, this site has it up to {replica.end}"
            self._on_trouble(tp, LogState.SOURCE_TRUNCATED, cause)
            return
        self._move(tp, end)
        self._short.add(tp)
        self._on_change()

    async def _source_begins_later(self, tp: TopicPartition, replica: Replica, start: int) -> None:
        is_positioned = await self._writer.only_positioned(replica)
        if replica.end >= start:
            if is_positioned:
                replica.positioning = replica.end  # a replicator before this one had filled, and not come further
            self._move(tp, replica.end)
        elif is_positioned:
            self._move(tp, start)
            self._gaps[tp] = max(replica.end, 0)
        elif self._may_skip(str(tp), replica.end, start):
            self._move(tp, start)
            self._positions[tp] = replica.end  # what is between becomes a hole
        else:
            cause = f"{self.name}: the source begins at {start}, this site ends at {replica.end}"
            self._on_trouble(tp, LogState.BEHIND_RETENTION, cause)

    def _move(self, tp: TopicPartition, offset: int) -> None:
        self._positions[tp] = offset
        self._gaps.pop(tp, None)
        self._unproven.pop(tp, None)
        self._agreed.discard(tp)
        self._short.discard(tp)
        self._session.set(tp, offset)
