"""One priority class of one link: a fetch session at the source, its long poll, and where each log stands there.

A lane never waits for the writer: it hands over what it has fetched and moves on, within the memory that the writer
allows. When something could not be appended the writer rewinds the log here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from fairlead.custody import Seizure
from fairlead.wire.batch import parse_header, split
from fairlead.wire.cluster import Cluster
from fairlead.wire.errors import OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_ID, CorruptBatch, broker_error
from fairlead.wire.types import FetchedPartition, TopicPartition
from replication.answer import AnswerSize
from replication.content import HOLE_KEY, POSITION_KEY, Hole, Item, Unfit, steps
from replication.counters import Counters
from replication.cursor import Cursor
from replication.hurry import Hurry
from replication.overtaken import Seizures, before, never_seized
from replication.plan import EVERY_SOURCE
from replication.proof import Doubt, doubt
from replication.rate import LinkBudget
from replication.replica import Replica
from replication.seek import LogTrouble, Seeker
from replication.skip import MaySkip, hole_of_item, never
from replication.start import is_always_whole
from replication.states import LogState, now_ms
from replication.writer import Writer
from topologies.model import Priority

READ_COMMITTED: Final = 1  # tells aborted transactions; costs nothing where there are none
POLL_MS: Final = 10_000  # data ends a poll at once; an empty one costs the source 12 microseconds for each log
THIN_POLL_MS: Final = 1000  # over a link with a rate, where a poll cannot be cut short
THIN_POLL_PER_LOG: Final = 10
LOG_BYTES: Final = 1 << 20
BUSY_BYTES: Final = 256 << 10  # an answer of this size means catching up: no pause
PACE: Final = (0.02, 0.25)  # seconds between polls that bring little, so that traffic of many logs shares them
PACE_PER_LOG: Final = 50e-6  # a broker spends about 12 microseconds on each log of a session at each poll


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
        seizures: Seizures = never_seized,
        on_overtaken: Callable[[TopicPartition, Seizure], None] = lambda _, __: None,
    ) -> None:
        """``ends`` is shared by the lanes of a link: each log's end at the source, as last heard. ``is_origin`` tells
        whether the source is the site where a topic's records first enter, for ever. ``start`` is ``Link.start``.
        ``on_overtaken`` hears of a log whose history at the source was cut off by one of its ``seizures``."""
        self.name = name
        self.priority = priority
        self._writer = writer
        self._budget = budget
        self._counters = counters
        self._ends = ends
        self._on_trouble = on_trouble
        self._start = start
        self._may_skip = may_skip
        self._seizures = seizures
        self._on_overtaken = on_overtaken
        self._seeker = Seeker(
            self,
            cluster,
            writer,
            start=start,
            is_origin=is_origin,
            may_skip=may_skip,
            on_trouble=on_trouble,
            on_change=on_change,
            move=self._move,
        )
        self._answer = AnswerSize(round_trip)
        self._hurry = Hurry(lambda: self._session.hurry(), allowed=budget.rate is None)
        self._lag = -1  # 0 stays until something is fetched; anything else is counted again
        self._session = cluster.fetch_session(isolation=READ_COMMITTED)
        self._cursors: dict[TopicPartition, Cursor] = {}
        self._beginning: set[TopicPartition] = set()  # empty replicas whose first offset is not decided yet
        self._doubted: dict[TopicPartition, Doubt] = {}  # the source's last batch is not simply the target's
        self._wanted = asyncio.Event()

    # ---- told by the plan and the writer

    def __len__(self) -> int:
        """How many logs are followed."""
        return len(self._cursors)

    def follow(self, replica: Replica) -> None:
        """Fetch a log from the target's end on; first its last batch once more, to see that it is the same."""
        if replica.tp not in self._cursors:
            cursor = self._cursors[replica.tp] = Cursor(replica)
            if replica.end <= 0 and self._start != "earliest" and not is_always_whole(replica.tp.topic):
                self._beginning.add(replica.tp)
            else:
                self._session.set(replica.tp, cursor.prove())
            self._wanted.set()
            self._hurry.ask()

    def unfollow(self, tp: TopicPartition) -> None:
        cursor = self._cursors.pop(tp, None)
        if cursor is not None:
            cursor.replica.leave(self)
            self._beginning.discard(tp)
            self._doubted.pop(tp, None)
            self._session.forget(tp)
            self._hurry.ask()

    def rewind(self, tp: TopicPartition, end: int) -> None:
        cursor = self._cursors.get(tp)
        if cursor is not None:
            self._move(cursor, end)
            self._hurry.ask()

    def appended(self, tp: TopicPartition, item: Item) -> None:
        self._counters.add(item)

    def lag(self) -> int:
        """Records that the source has and the target does not, of the logs followed here."""
        if self._lag != 0:
            self._lag = sum(max(0, self._ends.get(tp, 0) - each.replica.end) for tp, each in self._cursors.items())
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
                if not self._cursors:
                    self._wanted.clear()
                    await self._wanted.wait()
                wait = self._budget.wait(self.priority, time.monotonic())
                if wait > 0:
                    await asyncio.sleep(wait)
                    continue
                if self.priority not in EVERY_SOURCE:
                    await self._writer.room()
                if self._beginning:
                    logs, self._beginning = self._beginning, set()
                    await self._seeker.begin({tp: self._cursors[tp] for tp in logs})
                await self._poll()
        finally:
            self._writer.lanes -= 1
            self._hurry.cancel()
            for cursor in self._cursors.values():
                cursor.replica.leave(self)
            self._cursors.clear()
            await self._session.close()

    def _patience(self) -> int:
        """Milliseconds that the source may keep an empty poll."""
        if self._budget.rate is None:
            return POLL_MS
        return min(THIN_POLL_MS + THIN_POLL_PER_LOG * len(self), POLL_MS)

    async def _poll(self) -> None:
        most = min(self._answer.size, self._writer.share())
        asked = max(self._budget.allowance(self.priority, time.monotonic(), most), self._budget.least)
        received = self._session.received
        began = time.monotonic()
        answer = await self._session.poll(
            max_wait_ms=self._patience(),
            max_bytes=asked,
            partition_max_bytes=min(asked, max(LOG_BYTES, asked // max(len(self), 1))),
        )
        got = sum(len(part.records) for part in answer.values())
        self._answer.took(asked, got, self._session.seconds)
        self._counters.fetched_bytes += got
        self._budget.charge(self.priority, self._session.received - received, time.monotonic())
        if answer:
            self._lag = -1
        lost = {tp: self._cursors[tp] for tp, part in answer.items() if not self._take(tp, part)}
        if lost:
            self._ends |= await self._seeker.find(lost)
        if self._doubted:  # but for logs that are followed no more since the source was asked
            doubted, self._doubted = self._doubted, {}
            await self._seeker.judge([(self._cursors[tp], found) for tp, found in doubted.items()])
        if got < BUSY_BYTES and answer and self.priority not in EVERY_SOURCE:
            pace = min(max(len(self) * PACE_PER_LOG, PACE[0]), PACE[1])
            await asyncio.sleep(max(0.0, began + pace - time.monotonic()))

    def _take(self, tp: TopicPartition, part: FetchedPartition) -> bool:
        """Hand over one log's part of an answer; False when the position is not in the source's log."""
        cursor = self._cursors.get(tp)
        if cursor is None:
            return True
        if part.error_code:
            return self._refused(tp, part.error_code)
        self._ends[tp] = part.last_stable_offset if part.last_stable_offset >= 0 else part.high_watermark
        if seizures := self._seizures(tp.topic):
            part, seizure = before(part, seizures)
            if seizure is not None and not part.records:
                self._on_overtaken(tp, seizure)
        if not part.records:
            return True
        if cursor.short or cursor.is_led_anew(parse_header(part.records).leader_epoch):
            self._prove_again(cursor)
            return True
        gap, cursor.gap = cursor.gap, None
        proven, cursor.unproven = cursor.unproven, None
        position = cursor.position if gap is None else gap
        try:
            if proven is not None:
                found = doubt(cursor.replica.tail, proven, part.records)
                if found is not None:
                    self._doubted[tp] = found
                    return True
                position = proven
            made, unfit = self._made(cursor, part, position, HOLE_KEY if gap is None else POSITION_KEY)
        except CorruptBatch as error:
            self._on_trouble(tp, LogState.QUARANTINED, error.what)
            return True
        replica = cursor.replica
        if made:
            if gap is not None and isinstance(made[0], Hole):
                replica.positioning = made[0].stop
            self._writer.submit(replica, made, self)
            reached = made[-1].stop
            jumped = reached < replica.end <= self._ends[tp]
            self._move(cursor, replica.end if jumped else reached)
        elif unfit is None:
            self._move(cursor, max(position, cursor.position))
        elif unfit.diverged:  # or one of the pieces of a split batch is there, and the others are not yet
            first = next(split(part.records))
            self._doubted[tp] = Doubt(unfit.cause, position, bytes(part.records[first.start : first.stop]))
        elif unfit.damaged:
            self._on_trouble(tp, LogState.QUARANTINED, f"{self.name}: {unfit.cause}")
        else:
            self._writer.stop(replica, LogState.QUARANTINED, unfit.cause)
        return True

    def _prove_again(self, cursor: Cursor) -> None:
        """Look once more whether the source ends as the target does, as soon as it reaches as far."""
        end = self._ends[cursor.tp]
        if end < cursor.replica.end:
            self._move(cursor, end)
            cursor.short = True
        else:
            self._session.set(cursor.tp, cursor.prove())

    def _refused(self, tp: TopicPartition, code: int) -> bool:
        if code == OFFSET_OUT_OF_RANGE:
            return False
        state = LogState.SOURCE_RECREATED if code == UNKNOWN_TOPIC_ID else LogState.UNAVAILABLE
        self._on_trouble(tp, state, broker_error(code, tp).what)
        return True

    def _made(
        self, cursor: Cursor, part: FetchedPartition, position: int, key: bytes
    ) -> tuple[list[Item | Hole], Unfit | None]:
        """What may be appended up to the first batch that is unfit; what operators let go becomes a hole."""
        made: list[Item | Hole] = []
        inside, cursor.agreed = cursor.agreed, False
        log = str(cursor.tp)
        for step in steps(part.records, position, part.aborted, gap_key=key, inside=inside):
            if isinstance(step, Item) and self._may_skip(log, step.base, step.stop):
                made.append(hole_of_item(step, now_ms()))
            elif isinstance(step, Unfit):
                hole = step.hole
                if hole is None or not self._may_skip(log, hole.base, hole.stop):
                    return made, step
                made.append(hole._replace(timestamp_ms=now_ms()))
            else:
                made.append(step)
        return made, None

    def _move(self, cursor: Cursor, offset: int) -> None:
        cursor.move(offset)
        self._session.set(cursor.tp, offset)
