"""Fetches logs of one priority class over one link: the fetch session, its long poll, and what is done with answers.

A fetcher never waits for the appender: it hands over what it has fetched and moves on, within the memory that the
target allows. When a batch could not be appended, the appender rewinds the log here. ``FetcherManager`` spreads a
link's logs over fetchers; ``PollWakeup`` cuts a long poll short when other logs are to be fetched.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Container, Mapping
from typing import Final, NamedTuple

from fairlead.custody.view import Seizure
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.protocol.batch import parse_header, split
from fairlead.kafka.protocol.errors import OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_ID, CorruptBatch, broker_error
from fairlead.kafka.protocol.types import FetchedPartition, TopicPartition
from replication.batch.prepare import gap_of_batch, prepare_batches
from replication.batch.prepared import GAP_KEY, POSITION_KEY, Gap, PreparedBatch, RejectedBatch
from replication.catalog import EVERY_SOURCE, SourceReach, is_always_whole
from replication.link.byte_budget import FetchSizer
from replication.link.cut_off import before, within
from replication.link.fetch_state import PartitionFetchState, TailMismatch, tail_mismatch
from replication.link.offset_reset import LinkContext, OffsetReset
from replication.states import LogState, now_ms
from replication.target.appender import TargetAppender
from replication.target.mirror import MirrorPartition
from topologies.model import Priority

READ_COMMITTED: Final = 1  # tells aborted transactions; costs nothing where there are none
POLL_MS: Final = 10_000  # data ends a poll at once; an empty one costs the source 12 microseconds for each log
THIN_POLL_MS: Final = 1000  # over a link with a rate, where a poll cannot be cut short
THIN_POLL_PER_LOG: Final = 10
LOG_BYTES: Final = 1 << 20
BUSY_BYTES: Final = 256 << 10  # an answer of this size means catching up: no pause
PACE: Final = (0.02, 0.25)  # seconds between polls that bring little, so that traffic of many logs shares them
WAIT_AGAIN: Final = 1.0  # seconds until a log that another link is to bring first is begun with anew
PACE_PER_LOG: Final = 50e-6  # a broker spends about 12 microseconds on each log of a session at each poll


class _Pause(NamedTuple):
    """A log is looked at once more ``at`` a time. Where another link brings it first, up to ``until``, it ended at
    ``end`` here when it was looked at last."""

    at: float
    end: int = -1
    until: int = -1


class Fetcher:
    """Follows logs of one class at one source and feeds them to the appender."""

    def __init__(
        self,
        link: LinkContext,
        priority: Priority,
        cluster: Cluster,
        appender: TargetAppender,
        round_trip: float = 0.0,
    ) -> None:
        """``cluster`` is the source's, ``round_trip`` the seconds of the smallest request to it."""
        self.name = link.name
        self.priority = priority
        self._link = link
        self._rules = link.rules
        self._appender = appender
        self._budget = link.budget
        self._counters = link.counters
        self._ends = link.ends
        self._offset_reset = OffsetReset(link, self, cluster, appender)
        self._sizer = FetchSizer(round_trip)
        self._wakeup = PollWakeup(lambda: self._session.hurry(), allowed=self._budget.rate is None)
        self._lag = -1  # 0 stays until something is fetched; anything else is counted again
        self._session = cluster.fetch_session(isolation=READ_COMMITTED)
        self._states: dict[TopicPartition, PartitionFetchState] = {}
        self._beginning: set[TopicPartition] = set()  # empty replicas whose first offset is not decided yet
        self._waiting: dict[TopicPartition, _Pause] = {}  # logs to be looked at once more
        self._mismatches: dict[TopicPartition, TailMismatch] = {}  # the source's last batch is not simply the target's
        self._wanted = asyncio.Event()

    # ---- told by the plan and the appender

    def __len__(self) -> int:
        """How many logs are followed."""
        return len(self._states)

    def follow(self, replica: MirrorPartition) -> None:
        """Fetch a log from the target's end on; first its last batch once more, to see that it is the same."""
        if replica.tp not in self._states:
            state = self._states[replica.tp] = PartitionFetchState(replica)
            self._begin(state)
            self._wanted.set()
            self._wakeup.request()

    def _begin(self, state: PartitionFetchState) -> None:
        tp, end = state.tp, state.replica.end
        if end <= 0 and self._link.start != "earliest" and not is_always_whole(tp.topic):
            self._rest(state)
            self._beginning.add(tp)
        else:
            self.prove(state)

    def unfollow(self, tp: TopicPartition) -> None:
        state = self._states.pop(tp, None)
        if state is not None:
            state.replica.leave(self)
            self._beginning.discard(tp)
            self._waiting.pop(tp, None)
            self._mismatches.pop(tp, None)
            self._session.forget(tp)
            self._wakeup.request()

    def rewind(self, tp: TopicPartition, end: int) -> None:
        state = self._states.get(tp)
        if state is not None:
            self._waiting.pop(tp, None)
            self._begin(state)
            self._wakeup.request()

    def appended(self, tp: TopicPartition, prepared: PreparedBatch) -> None:
        self._counters.add(prepared)
        if tp in self._states:
            self._states[tp].shared = True

    def lag(self) -> int:
        """Records that the source has and the target does not, of the logs followed here."""
        if self._lag != 0:
            self._lag = sum(max(0, self._ends.get(tp, 0) - each.replica.end) for tp, each in self._states.items())
        return self._lag

    # ---- fetching

    async def run(self) -> None:
        """Fetch until cancelled.

        Raises:
            WireError: the source cannot be reached.
        """
        self._appender.fetchers += 1
        try:
            while True:
                if not self._states:
                    self._wanted.clear()
                    await self._wanted.wait()
                wait = self._budget.wait(self.priority, time.monotonic())
                if wait > 0:
                    await asyncio.sleep(wait)
                    continue
                await self._appender.ready(room=self.priority not in EVERY_SOURCE)
                self._begin_anew(time.monotonic())
                if self._beginning:
                    logs, self._beginning = self._beginning, set()
                    await self._offset_reset.begin({tp: self._states[tp] for tp in logs})
                await self._poll()
        finally:
            self._appender.fetchers -= 1
            self._wakeup.cancel()
            for state in self._states.values():
                state.replica.leave(self)
            self._states.clear()
            await self._session.close()

    def _begin_anew(self, now: float) -> None:
        """Look once more at logs that another link was to bring first, or has brought all of."""
        for tp, pause in [(tp, pause) for tp, pause in self._waiting.items() if pause.at <= now]:
            state = self._states[tp]
            end = state.replica.end
            is_coming = pause.end < end < pause.until  # the other link is bringing it
            if is_coming or (end < state.position and not state.shared):  # or what was handed over is not all in yet
                self._waiting[tp] = pause._replace(at=now + WAIT_AGAIN, end=end)
                continue
            del self._waiting[tp]
            if state.position < 0 or not state.shared:
                self._begin(state)

    def _patience(self) -> int:
        """Milliseconds that the source may keep an empty poll."""
        longest = POLL_MS
        if self._budget.rate is not None:
            longest = min(THIN_POLL_MS + THIN_POLL_PER_LOG * len(self), POLL_MS)
        if self._waiting:
            longest = min(longest, max(0, int((min(self._waiting.values()).at - time.monotonic()) * 1000)))
        return longest

    async def _poll(self) -> None:
        most = min(self._sizer.size, self._appender.share())
        asked = max(self._budget.allowance(self.priority, time.monotonic(), most), self._budget.least)
        received = self._session.received
        began = time.monotonic()
        answer = await self._session.poll(
            max_wait_ms=self._patience(),
            max_bytes=asked,
            partition_max_bytes=min(asked, max(LOG_BYTES, asked // max(len(self), 1))),
        )
        got = sum(len(part.records) for part in answer.values())
        self._sizer.observe(asked, got, self._session.seconds)
        self._counters.fetched_bytes += got
        self._budget.charge(self.priority, self._session.received - received, time.monotonic())
        if answer:
            self._lag = -1
        lost = {tp: self._states[tp] for tp, part in answer.items() if not self._take(tp, part)}
        if lost:
            found = await self._offset_reset.find(lost)
            self._ends |= {tp: self._rules.reach(tp.topic).capped(end) for tp, end in found.items()}
        if self._mismatches:  # but for logs that are followed no more since the source was asked
            mismatches, self._mismatches = self._mismatches, {}
            await self._offset_reset.judge([(self._states[tp], found) for tp, found in mismatches.items()])
        if got < BUSY_BYTES and answer and self.priority not in EVERY_SOURCE:
            pace = min(max(len(self) * PACE_PER_LOG, PACE[0]), PACE[1])
            await asyncio.sleep(max(0.0, began + pace - time.monotonic()))

    def _take(self, tp: TopicPartition, part: FetchedPartition) -> bool:
        """Hand over one log's part of an answer; False when the position is not in the source's log."""
        state = self._states.get(tp)
        if state is None:
            return True
        if part.error_code:
            return self._refused(tp, part.error_code)
        reach = self._rules.reach(tp.topic)
        self._ends[tp] = reach.capped(part.last_stable_offset if part.last_stable_offset >= 0 else part.high_watermark)
        seizure = None
        if seizures := self._rules.seizures(tp.topic):
            part, seizure = before(part, seizures)
        part, problem = within(part, reach)
        if not part.records:
            if seizure is not None or problem:
                self._reached_the_rest(state, seizure, reach, problem)
            return True
        if state.short or state.is_led_anew(parse_header(part.records).leader_epoch):
            self._prove_again(state)
            return True
        fill_from, state.fill_from = state.fill_from, None
        proven, state.unproven = state.unproven, None
        position = state.position if fill_from is None else fill_from
        replica = state.replica
        try:
            if proven is not None:
                found = self._difference(state, proven, part.records)
                if found is not None:
                    self._mismatches[tp] = found
                    return True
                position = proven
                state.shared = True
                replica.agree(self, proven)
            made, rejected = self._made(state, part, position, GAP_KEY if fill_from is None else POSITION_KEY)
        except CorruptBatch as error:
            self._link.trouble(tp, LogState.QUARANTINED, error.what)
            return True
        if made:
            if self._appender.submit(replica, made, self):
                self._after(state, made)
            else:
                self._rest(state)
        elif rejected is None:
            self.move(state, max(position, state.position))
        elif rejected.diverged:  # or one of the pieces of a split batch is there, and the others are not yet
            first = next(split(part.records))
            self._mismatches[tp] = TailMismatch(rejected.cause, position, bytes(part.records[first.start : first.stop]))
        elif rejected.damaged:
            self._link.trouble(tp, LogState.QUARANTINED, f"{self.name}: {rejected.cause}")
        else:
            self._appender.stop(replica, LogState.QUARANTINED, rejected.cause)
        return True

    def _reached_the_rest(
        self, state: PartitionFetchState, seizure: Seizure | None, reach: SourceReach, problem: str
    ) -> None:
        """All that follows at this source is not taken: cut off by a seizure, or written without a right to.

        While what comes before is not stored yet, the log stays followed, so that it is fetched again if that fails.
        """
        if state.fill_from is None and state.position > max(state.replica.end, 0):
            self._rest(state)
            self._waiting[state.tp] = _Pause(time.monotonic() + WAIT_AGAIN)
        elif seizure is not None:
            self._link.mark_cut_off(state.tp, seizure)
        else:
            self._link.hold_back(state.tp, reach, problem)

    def _after(self, state: PartitionFetchState, made: list[PreparedBatch | Gap]) -> None:
        """Go on behind what was handed over; where another link has brought more meanwhile, behind that, but only after
        proof that it is the same log."""
        tp, here, there = state.tp, state.replica.end, self._ends[state.tp]
        reached = made[-1].stop
        if reached < here <= there:
            self.prove(state)
        else:
            self.move(state, reached)
            if reached >= there and not state.shared:  # nothing may follow from which a difference would be seen
                self._waiting[tp] = _Pause(time.monotonic() + WAIT_AGAIN)

    @staticmethod
    def _difference(state: PartitionFetchState, proven: int, records: memoryview) -> TailMismatch | None:
        """Why the source's batch before ``proven`` must be compared with the target's record by record, if so.

        Where the target has got further meanwhile and they were seen to be one log before, the appender sees whether
        they still are.
        """
        if state.replica.sent == proven:
            return tail_mismatch(state.replica.tail, proven, records)
        first = next(split(records), None)
        if state.shared or first is None or first.header.base_offset >= proven:
            return None
        return TailMismatch(f"the batch before {proven}", proven, bytes(records[first.start : first.stop]))

    def _prove_again(self, state: PartitionFetchState) -> None:
        """Look once more whether the source ends as the target does, as soon as it reaches as far."""
        end = self._ends[state.tp]
        if end < state.replica.end:
            self.move(state, end)
            state.short = True
        else:
            self.prove(state)

    def prove(self, state: PartitionFetchState, end: int | None = None) -> None:
        """Fetch the batch before the target's end once more, or before ``end``, to see that it is the same."""
        self._session.set(state.tp, state.prove(state.replica.end if end is None else end))

    def is_followed(self, state: PartitionFetchState) -> bool:
        return self._states.get(state.tp) is state

    def wait(self, state: PartitionFetchState, until: int) -> None:
        """Leave a log alone that another link brings first, up to an offset; then begin with it anew."""
        self._rest(state)
        self._waiting[state.tp] = _Pause(time.monotonic() + WAIT_AGAIN, state.replica.end, until)

    def _rest(self, state: PartitionFetchState) -> None:
        """Fetch nothing of a log until it is begun with anew, or rewound."""
        self._session.forget(state.tp)
        state.move(-1)

    def _refused(self, tp: TopicPartition, code: int) -> bool:
        if code == OFFSET_OUT_OF_RANGE:
            return False
        state = LogState.SOURCE_RECREATED if code == UNKNOWN_TOPIC_ID else LogState.UNAVAILABLE
        self._link.trouble(tp, state, broker_error(code, tp).what)
        return True

    def _made(
        self, state: PartitionFetchState, part: FetchedPartition, position: int, key: bytes
    ) -> tuple[list[PreparedBatch | Gap], RejectedBatch | None]:
        """What may be appended up to the first batch that is rejected; what operators let go becomes a gap."""
        made: list[PreparedBatch | Gap] = []
        inside, state.agreed = state.agreed, False
        log = str(state.tp)
        for step in prepare_batches(part.records, position, part.aborted, gap_key=key, inside=inside):
            if isinstance(step, PreparedBatch) and self._rules.may_skip(log, step.base, step.stop):
                made.append(gap_of_batch(step, now_ms()))
            elif isinstance(step, RejectedBatch):
                gap = step.gap
                if gap is None or not self._rules.may_skip(log, gap.base, gap.stop):
                    return made, step
                made.append(gap._replace(timestamp_ms=now_ms()))
            else:
                made.append(step)
        return made, None

    def move(self, state: PartitionFetchState, offset: int) -> None:
        """Fetch from another offset on; a log that is followed no more is not subscribed again."""
        if self.is_followed(state):
            state.move(offset)
            self._session.set(state.tp, offset)


WAKEUP: Final = (0.02, 1.0)  # seconds from a change to cutting a poll short, and between two of those


class PollWakeup:
    """Cuts a long poll short when other logs are to be fetched: soon, but seldom, because it costs a connection.

    Several requests close together cut one poll short. Where it is not ``allowed``, as over a thin link, none is.
    """

    def __init__(self, cut_short: Callable[[], None], *, allowed: bool) -> None:
        self._allowed = allowed
        self._cut_short = cut_short
        self._timer: asyncio.TimerHandle | None = None
        self._last = 0.0

    def request(self) -> None:
        """Other logs are to be fetched: cut the poll that is under way short."""
        if self._allowed and self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(loop.time() + WAKEUP[0], self._last + WAKEUP[1]), self._cut)

    def cancel(self) -> None:
        """Cut nothing short any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _cut(self) -> None:
        self._timer, self._last = None, asyncio.get_running_loop().time()
        self._cut_short()


THIN_FETCHERS: Final = 2  # on a link with a rate: one answer travels while the other is asked for
FETCHER_LOGS: Final = 500  # a broker reads every log of a session at every answer: 12 microseconds each


class FetcherManager:
    """The fetchers of one link while it is up.

    Args:
        open_fetcher: Opens one more fetcher of a class; None while the link is not up.
        thin: Whether the link has a rate.
    """

    def __init__(self, open_fetcher: Callable[[Priority], Fetcher | None], *, thin: bool) -> None:
        self._open_fetcher = open_fetcher
        self._thin = thin
        self._fetchers: dict[Priority, list[Fetcher]] = {}
        self._fetcher_of: dict[TopicPartition, Fetcher] = {}

    def __len__(self) -> int:
        """How many logs are followed."""
        return len(self._fetcher_of)

    def follow(self, replicas: Mapping[TopicPartition, MirrorPartition], priority: Callable[[str], Priority]) -> None:
        """Fetch these logs, too; nothing happens while the link is not up. ``priority`` is that of a topic."""
        for tp, replica in replicas.items():
            if tp not in self._fetcher_of:
                fetcher = self._fetcher_for(priority(tp.topic))
                if fetcher is None:
                    return
                self._fetcher_of[tp] = fetcher
                fetcher.follow(replica)

    def unfollow(self, tp: TopicPartition) -> bool:
        """Do not fetch this log any more; False when it was not fetched."""
        fetcher = self._fetcher_of.pop(tp, None)
        if fetcher is None:
            return False
        fetcher.unfollow(tp)
        return True

    def unfollow_all_but(self, kept: Container[TopicPartition]) -> None:
        """Fetch none but these."""
        for tp in [tp for tp in self._fetcher_of if tp not in kept]:
            self.unfollow(tp)

    def lag(self) -> int:
        """Records that the source has and the target does not, of the logs that are followed."""
        return sum(each.lag() for fetchers in self._fetchers.values() for each in fetchers)

    def clear(self) -> None:
        """The link is down: its fetchers have ended."""
        self._fetchers.clear()
        self._fetcher_of.clear()

    def _fetcher_for(self, priority: Priority) -> Fetcher | None:
        """A fetcher of this class with room for one more log, opened if need be; None while the link is not up."""
        fetchers = self._fetchers.setdefault(priority, [])
        if not self._thin and fetchers and len(fetchers[-1]) < FETCHER_LOGS:
            return fetchers[-1]  # so that very many logs are not compared with very many fetchers
        youngest = min(fetchers, key=len, default=None)
        wanted = THIN_FETCHERS if self._thin and priority not in EVERY_SOURCE else 1
        if youngest is not None and len(fetchers) >= wanted and len(youngest) < FETCHER_LOGS:
            return youngest
        fetcher = self._open_fetcher(priority)
        if fetcher is not None:
            fetchers.append(fetcher)
        return fetcher
