"""Fetch the logs of one priority class over one link, and queue the batches at the appender.

A fetcher does not wait for an append: it queues what it fetched and fetches on, within the target's memory limit. If a
batch cannot be appended, the appender rewinds the log. ``FetcherManager`` spreads a link's logs over fetchers.
``PollWakeup`` cuts a long poll short when the set of logs changes.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from fairlead.custody.view import Seizure
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.protocol.batch import HEADER_BYTES, parse_header, split
from fairlead.kafka.protocol.errors import OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_ID, CorruptBatch, broker_error
from fairlead.kafka.protocol.types import FetchedPartition, TopicPartition
from replication.batch.prepare import gap_of_batch, prepare_batches
from replication.batch.prepared import GAP_KEY, POSITION_KEY, Gap, PreparedBatch, RejectedBatch
from replication.catalog import EVERY_SOURCE, SourceReach, is_always_whole
from replication.link.byte_budget import FetchSizer
from replication.link.cut_off import before_seizure, within_reach
from replication.link.fetch_state import PartitionFetchState, TailMismatch, tail_mismatch
from replication.link.offset_reset import OffsetReset
from replication.states import LogState, now_ms
from replication.target.appender import TargetAppender
from replication.target.log_reader import base_offset, framed, sound_header
from replication.target.mirror import MirrorPartition
from topologies.model import Priority

if TYPE_CHECKING:
    from replication.link.source_link import SourceLink

READ_COMMITTED: Final = 1  # answers list aborted transactions; free of cost where there are none
POLL_MS: Final = 10_000  # data ends a poll at once; an empty one costs the source 12 microseconds for each log
THIN_POLL_MS: Final = 1000  # over a link with a rate, where polls are not cut short
THIN_POLL_PER_LOG: Final = 10
LOG_BYTES: Final = 1 << 20
BUSY_BYTES: Final = 256 << 10  # an answer of this size means catching up: no pause
PACE: Final = (0.02, 0.25)  # seconds between polls that bring little, so that traffic of many logs shares them
PAUSE_SECONDS: Final = 1.0  # seconds until a paused log is started again
UNSERVED_SECONDS: Final = 30.0  # until a log that no broker serves is shown: an idle one is served once a poll ends
PACE_PER_LOG: Final = 50e-6  # a broker spends about 12 microseconds on each log of a session at each poll


class _Pause(NamedTuple):
    """A log is not fetched until the monotonic time ``at``. If another link brings it first, up to offset ``until``,
    ``end`` is where the log ended here at the last check."""

    at: float
    end: int = -1
    until: int = -1


class Fetcher:
    """Follows logs of one class at one source; a feed of the appender."""

    def __init__(
        self,
        link: SourceLink,
        priority: Priority,
        cluster: Cluster,
        appender: TargetAppender,
        round_trip: float = 0.0,
    ) -> None:
        """``cluster`` is the source; ``round_trip`` is how many seconds its smallest request takes."""
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
        self._wakeup = PollWakeup(lambda: self._session.cut_poll_short(), allowed=self._budget.rate is None)
        self._lag = -1  # 0 is kept until something is fetched; any other value is counted again
        self._session = cluster.fetch_session(isolation=READ_COMMITTED)
        self._states: dict[TopicPartition, PartitionFetchState] = {}
        self._unstarted: set[TopicPartition] = set()  # replicas without a first offset yet
        self._paused: dict[TopicPartition, _Pause] = {}
        self._mismatches: dict[TopicPartition, TailMismatch] = {}  # the source's last batch differs from the target's
        self._unserved: set[TopicPartition] = set()  # logs that are shown as not served
        self._has_logs = asyncio.Event()

    # ---- called by the plan and the appender

    def __len__(self) -> int:
        """Return how many logs are followed."""
        return len(self._states)

    def follow(self, replica: MirrorPartition) -> None:
        """Fetch a log from the target's end on. First fetch the last batch again and compare it."""
        if replica.tp not in self._states:
            state = self._states[replica.tp] = PartitionFetchState(replica)
            self._begin(state)
            self._has_logs.set()
            self._wakeup.request()

    def _begin(self, state: PartitionFetchState) -> None:
        tp, replica = state.tp, state.replica
        is_begun = replica.end > 0 and not replica.may_be_cut_short
        if not is_begun and self._link.start != "earliest" and not is_always_whole(tp.topic):
            self._suspend(state)
            self._unstarted.add(tp)
        else:
            self.verify_tail(state)

    def unfollow(self, tp: TopicPartition) -> None:
        state = self._states.pop(tp, None)
        if state is not None:
            state.replica.remove_feed(self)
            self._unstarted.discard(tp)
            self._paused.pop(tp, None)
            self._mismatches.pop(tp, None)
            self._session.forget(tp)
            self._unserved.discard(tp)
            self._link.unserved.pop(tp, None)
            self._wakeup.request()

    def rewind(self, tp: TopicPartition, end: int) -> None:
        state = self._states.get(tp)
        if state is not None:
            self._paused.pop(tp, None)
            self._begin(state)
            self._wakeup.request()

    def on_appended(self, tp: TopicPartition, prepared: PreparedBatch) -> None:
        self._counters.add_batch(prepared)
        state = self._states.get(tp)
        if state is not None and state.verify_before is None:  # else the source may have lost it since
            state.is_proven = True

    def on_damaged(self, tp: TopicPartition, cause: str) -> None:
        state = self._states.get(tp)
        if state is not None:
            self._suspend(state)
            self._paused.pop(tp, None)
            self._link.stop_log(tp, LogState.QUARANTINED, f"{self.name}: {cause}")

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
                    self._has_logs.clear()
                    await self._has_logs.wait()
                wait = self._budget.wait(self.priority, time.monotonic())
                if wait > 0:
                    await asyncio.sleep(wait)
                    continue
                await self._appender.wait_ready(urgent=self.priority in EVERY_SOURCE)
                self._resume_paused(time.monotonic())
                if self._unstarted:
                    logs, self._unstarted = self._unstarted, set()
                    await self._offset_reset.set_starts({tp: self._states[tp] for tp in logs})
                await self._poll()
        finally:
            self._appender.fetchers -= 1
            self._wakeup.cancel()
            for state in self._states.values():
                state.replica.remove_feed(self)
            self._states.clear()
            await self._session.close()

    def _resume_paused(self, now: float) -> None:
        """Start paused logs again whose time has come."""
        for tp, pause in [(tp, pause) for tp, pause in self._paused.items() if pause.at <= now]:
            state = self._states[tp]
            end = state.replica.end
            is_coming = pause.end < end < pause.until  # the other link makes progress
            if is_coming or (end < state.position and not state.is_proven):  # or queued batches are not stored yet
                self._paused[tp] = pause._replace(at=now + PAUSE_SECONDS, end=end)
                continue
            del self._paused[tp]
            if state.position < 0 or not state.is_proven:
                self._begin(state)

    def _max_wait_ms(self) -> int:
        """Return how long the source may hold an empty poll."""
        longest = POLL_MS
        if self._budget.rate is not None:
            longest = min(THIN_POLL_MS + THIN_POLL_PER_LOG * len(self), POLL_MS)
        if self._paused:
            longest = min(longest, max(0, int((min(self._paused.values()).at - time.monotonic()) * 1000)))
        return longest

    async def _poll(self) -> None:
        most = min(self._sizer.size, self._appender.fetch_share())
        asked = max(self._budget.allowance(self.priority, time.monotonic(), most), self._budget.least)
        received = self._session.received
        began = time.monotonic()
        answer = await self._session.poll(
            max_wait_ms=self._max_wait_ms(),
            max_bytes=asked,
            partition_max_bytes=min(asked, max(LOG_BYTES, asked // max(len(self), 1))),
        )
        self._show_unserved()
        got = sum(len(part.records) for part in answer.values())
        self._sizer.observe(asked, got, self._session.seconds)
        self._counters.fetched_bytes += got
        self._budget.charge(self.priority, self._session.received - received, time.monotonic())
        if answer:
            self._lag = -1
        lost = {}
        for tp, part in answer.items():
            try:
                if not self._process_partition(tp, part):
                    lost[tp] = self._states[tp]
            except CorruptBatch as error:
                self._on_damaged_rest(self._states[tp], error.what, error.hint)
        if lost:
            found = await self._offset_reset.resolve_out_of_range(lost)
            self._ends |= {tp: self._rules.reach(tp.topic).capped(end) for tp, end in found.items()}
        if self._mismatches:
            mismatches, self._mismatches = self._mismatches, {}
            await self._offset_reset.resolve_mismatches([(self._states[tp], found) for tp, found in mismatches.items()])
        if got < BUSY_BYTES and answer and self.priority not in EVERY_SOURCE:
            pace = min(max(len(self) * PACE_PER_LOG, PACE[0]), PACE[1])
            await asyncio.sleep(max(0.0, began + pace - time.monotonic()))

    def _show_unserved(self) -> None:
        """Show the logs that no broker of the source serves; they are still asked for."""
        found = self._session.unserved(UNSERVED_SECONDS)
        for tp in self._unserved - found.keys():
            self._link.show_served(tp)
        for tp, code in found.items():
            self._link.show_unserved(tp, code)
        self._unserved = {*found}

    def _process_partition(self, tp: TopicPartition, part: FetchedPartition) -> bool:
        """Queue one log's part of an answer; False if the source does not have the requested offset, or may end before
        what is to be compared.

        Raises:
            CorruptBatch: the next batch has no readable header, or one that cannot be believed.
        """
        state = self._states.get(tp)
        if state is None:
            return True
        if part.error_code:
            return self._on_fetch_error(tp, part.error_code)
        reach = self._rules.reach(tp.topic)
        self._ends[tp] = reach.capped(part.last_stable_offset if part.last_stable_offset >= 0 else part.high_watermark)
        part = self._behind_skipped(state, part)
        seizure = None
        if seizures := self._rules.seizures(tp.topic):
            part, seizure = before_seizure(part, seizures)
        part, problem = within_reach(part, reach)
        if not part.records:
            if seizure is not None or problem:
                self._on_refused_rest(state, seizure, reach, problem)
                return True
            return not state.ends_before_tail(part.high_watermark)
        if state.is_short or state.is_led_anew(parse_header(part.records).leader_epoch):
            self._verify_again(state)
            return True
        fill_from = state.fill_from
        proven, state.verify_before = state.verify_before, None
        position = state.position if fill_from is None else fill_from
        replica = state.replica
        if proven is not None:
            found = self._difference(state, proven, part.records)
            if found is not None:
                self._mismatches[tp] = found
                return True
            position = proven
            state.is_proven = True
            replica.add_agreeing(self, proven)
        made, rejected = self._prepare(state, part, position, GAP_KEY if fill_from is None else POSITION_KEY)
        if made:
            if self._appender.submit_steps(replica, made, self):
                self._advance(state, made)
            else:
                self._suspend(state)
        elif rejected is None:
            self.seek(state, max(position, state.position))
        elif rejected.diverged:  # or the target has only some parts of a split batch yet
            first = next(split(part.records))
            self._mismatches[tp] = TailMismatch(rejected.cause, position, bytes(part.records[first.start : first.stop]))
        elif rejected.damaged:
            self._on_damaged_rest(state, rejected.cause)
        elif not self._waits_for_queued(state):
            self._appender.stop_log(replica, LogState.QUARANTINED, rejected.cause)
        return True

    def _behind_skipped(self, state: PartitionFetchState, part: FetchedPartition) -> FetchedPartition:
        """Leave out damaged batches that an operator skips, if more follows. Kafka 3.9 returns them first for all
        offsets that they claim, although others have them."""
        if len(part.records) < HEADER_BYTES:
            return part
        log, base = str(state.tp), base_offset(part.records)
        if not self._rules.may_skip(log, base, base + 1):
            return part
        stop = self._rules.skipped_to(log, base)
        with contextlib.suppress(CorruptBatch):
            first, rest = framed(part.records)
            asked = max(state.position, state.skipped_to)
            is_passed = stop is not None and stop <= asked and framed(rest)[0] is not None
            if first is not None and is_passed and sound_header(first) is None:
                return self._behind_skipped(state, msgspec.structs.replace(part, records=rest))
        return part

    def _on_damaged_rest(self, state: PartitionFetchState, cause: str, hint: str = "") -> None:
        """Stop at a damaged batch, once everything before it is stored, unless an operator skips it."""
        if not self._waits_for_queued(state) and not self._skip(state):
            self._link.stop_log(state.tp, LogState.QUARANTINED, f"{self.name}: {cause}", hint)

    def _skip(self, state: PartitionFetchState) -> bool:
        """Continue behind the batch that an operator skips here. Return False if there is none, or if what follows it
        cannot be copied either."""
        fill_from = state.fill_from
        at = max(state.replica.end, 0) if fill_from is None else state.position
        stop = self._rules.skipped_to(str(state.tp), at)
        if stop is None or stop == state.skipped_to:
            return False
        if fill_from is None:
            self._offset_reset.go_on_behind(state, stop)
        else:
            self.seek(state, stop)
            state.fill_from = fill_from
        state.skipped_to = stop
        return True

    def _on_refused_rest(
        self, state: PartitionFetchState, seizure: Seizure | None, reach: SourceReach, problem: str
    ) -> None:
        """Stop at a batch that a seizure cut off or that the source has no right to write.

        Until everything before it is stored, the log stays followed, so that it is fetched again if an append fails.
        """
        if self._waits_for_queued(state):
            return
        if seizure is not None:
            self._link.mark_cut_off(state.tp, seizure)
        else:
            self._link.refuse_log(state.tp, reach, problem)

    def _waits_for_queued(self, state: PartitionFetchState) -> bool:
        """Pause a log while batches of it are queued; return False if none is."""
        if state.fill_from is not None or state.position <= max(state.replica.end, 0):
            return False
        self._suspend(state)
        self._paused[state.tp] = _Pause(time.monotonic() + PAUSE_SECONDS)
        return True

    def _advance(self, state: PartitionFetchState, made: list[PreparedBatch | Gap]) -> None:
        """Fetch on behind what was queued. If another link brought more meanwhile, compare the tail there first."""
        tp, here, there = state.tp, state.replica.end, self._ends[state.tp]
        reached = made[-1].stop
        if reached < here <= there:
            self.verify_tail(state)
        else:
            self.seek(state, reached)
            if reached >= there and not state.is_proven:  # perhaps nothing follows that would show a difference
                self._paused[tp] = _Pause(time.monotonic() + PAUSE_SECONDS)

    @staticmethod
    def _difference(state: PartitionFetchState, proven: int, records: memoryview) -> TailMismatch | None:
        """Return the mismatch between the source's batch before ``proven`` and the target's; None if they are the same.

        If the target has moved on and the logs were equal before, the appender detects a later difference.
        """
        if state.replica.sent == proven:
            return tail_mismatch(state.replica.tail, proven, records)
        first = next(split(records), None)
        if state.is_proven or first is None or first.header.base_offset >= proven:
            return None
        return TailMismatch(f"the batch before {proven}", proven, bytes(records[first.start : first.stop]))

    def _verify_again(self, state: PartitionFetchState) -> None:
        """Compare the tails again, once the source reaches as far as the target; it may have lost what is queued. The
        site that writes the log does so now, or has lost records."""
        self._appender.withdraw(state.replica, self)
        state.is_proven = False
        end = self._ends[state.tp]
        if end < state.replica.end and not self._rules.is_origin(state.tp.topic):
            self.seek(state, end)
            state.is_short = True
        else:
            self.verify_tail(state)

    def verify_tail(self, state: PartitionFetchState, end: int | None = None) -> None:
        """Fetch the batch before ``end``, by default the target's end, again and compare it."""
        self._session.set(state.tp, state.seek_tail(state.replica.end if end is None else end))

    def is_followed(self, state: PartitionFetchState) -> bool:
        return self._states.get(state.tp) is state

    def defer(self, state: PartitionFetchState, until: int) -> None:
        """Pause a log that another link brings first, up to the offset ``until``."""
        self._suspend(state)
        self._paused[state.tp] = _Pause(time.monotonic() + PAUSE_SECONDS, state.replica.end, until)

    def _suspend(self, state: PartitionFetchState) -> None:
        """Fetch nothing of a log until it is started again or rewound."""
        self._session.forget(state.tp)
        state.seek(-1)

    def _on_fetch_error(self, tp: TopicPartition, code: int) -> bool:
        if code == OFFSET_OUT_OF_RANGE:
            return False
        state = LogState.SOURCE_RECREATED if code == UNKNOWN_TOPIC_ID else LogState.UNAVAILABLE
        error = broker_error(code, tp)
        self._link.stop_log(tp, state, error.what, error.hint)
        return True

    def _prepare(
        self, state: PartitionFetchState, part: FetchedPartition, position: int, key: bytes
    ) -> tuple[list[PreparedBatch | Gap], RejectedBatch | None]:
        """Prepare batches up to the first one that is rejected or cannot be read. A batch that an operator skips
        becomes a gap.

        Raises:
            CorruptBatch: the first one cannot be read.
        """
        made: list[PreparedBatch | Gap] = []
        inside, state.tail_matches = state.tail_matches, False
        log = str(state.tp)
        try:
            for step in prepare_batches(part.records, position, part.aborted, gap_key=key, inside=inside):
                if isinstance(step, PreparedBatch) and self._rules.may_skip(log, step.base, step.stop):
                    made.append(gap_of_batch(step, now_ms()))
                elif isinstance(step, RejectedBatch):
                    gap = step.gap
                    if gap is None or not self._rules.may_skip(log, gap.base, gap.stop):
                        return made, step
                    made.append(msgspec.structs.replace(gap, timestamp_ms=now_ms()))
                elif isinstance(step, Gap) and not self._rules.may_leave_out(log, step.base, step.stop):
                    cause = f"the source claims to have no records from {step.base} to {step.stop - 1}"
                    return made, RejectedBatch(step.base, cause, damaged=True)
                else:
                    made.append(step)
        except CorruptBatch:
            if not made:  # else the next answer begins with the unreadable batch
                raise
        return made, None

    def seek(self, state: PartitionFetchState, offset: int) -> None:
        """Fetch from another offset on; ignored for a log that is no longer followed."""
        if self.is_followed(state):
            state.seek(offset)
            self._session.set(state.tp, offset)


WAKEUP: Final = (0.02, 1.0)  # seconds from a change to cutting a poll short, and at least between two cuts


class PollWakeup:
    """Cuts a long poll short after the set of logs changed. A cut costs a connection, so cuts are at least a second
    apart, and changes close together share one. Does nothing unless ``allowed``; over a link with a rate it is not.
    """

    def __init__(self, cut_short: Callable[[], None], *, allowed: bool) -> None:
        self._allowed = allowed
        self._cut_short = cut_short
        self._timer: asyncio.TimerHandle | None = None
        self._last = 0.0

    def request(self) -> None:
        """Cut the current poll short soon, because the set of logs changed."""
        if self._allowed and self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(loop.time() + WAKEUP[0], self._last + WAKEUP[1]), self._cut)

    def cancel(self) -> None:
        """Cancel a cut that is due."""
        if self._timer is not None:
            self._timer.cancel()

    def _cut(self) -> None:
        self._timer, self._last = None, asyncio.get_running_loop().time()
        self._cut_short()


THIN_FETCHERS: Final = 2  # on a link with a rate: one answer travels while the other is asked for
FETCHER_LOGS: Final = 500  # a broker reads every log of a session at every answer: 12 microseconds each


class FetcherManager:
    """The fetchers of one link while it is up.

    A fetcher has logs of one class and one leader: logs of several leaders would take a connection and one of the
    limited fetch sessions (``max.incremental.fetch.session.cache.slots``) at each of them. If a leader moves, its logs
    stay with their fetcher, which then has two connections.

    Args:
        open_fetcher: Opens one more fetcher of a class; returns None while the link is down.
        thin: Whether the link has a rate. Then all leaders share the fetchers.
        leader: Returns the broker that leads a log at the source, as far as it is known.
    """

    def __init__(
        self,
        open_fetcher: Callable[[Priority], Fetcher | None],
        *,
        thin: bool,
        leader: Callable[[TopicPartition], int],
    ) -> None:
        self._open_fetcher = open_fetcher
        self._thin = thin
        self._leader = leader
        self._fetchers: dict[tuple[Priority, int], list[Fetcher]] = {}
        self._fetcher_of: dict[TopicPartition, Fetcher] = {}

    def __len__(self) -> int:
        """Return how many logs are followed."""
        return len(self._fetcher_of)

    def __contains__(self, tp: TopicPartition) -> bool:
        """Return whether a log is followed."""
        return tp in self._fetcher_of

    def follow(self, replicas: Mapping[TopicPartition, MirrorPartition], priority: Callable[[str], Priority]) -> None:
        """Also fetch these logs; ignored while the link is down. ``priority`` returns a topic's class."""
        for tp, replica in replicas.items():
            if tp not in self._fetcher_of:
                fetcher = self._fetcher_for(priority(tp.topic), 0 if self._thin else self._leader(tp))
                if fetcher is None:
                    return
                self._fetcher_of[tp] = fetcher
                fetcher.follow(replica)

    def unfollow(self, tp: TopicPartition) -> bool:
        """Stop fetching this log; False if it was not fetched."""
        fetcher = self._fetcher_of.pop(tp, None)
        if fetcher is None:
            return False
        fetcher.unfollow(tp)
        return True

    def lag(self) -> int:
        """Records that the source has and the target does not, of the logs that are followed."""
        return sum(each.lag() for fetchers in self._fetchers.values() for each in fetchers)

    def clear(self) -> None:
        """Forget the fetchers, which ended with the link's connection."""
        self._fetchers.clear()
        self._fetcher_of.clear()

    def _fetcher_for(self, priority: Priority, leader: int) -> Fetcher | None:
        """Return a fetcher of this class and leader with room for one more log, opened if needed; None while the link
        is down."""
        fetchers = self._fetchers.setdefault((priority, leader), [])
        if not self._thin and fetchers and len(fetchers[-1]) < FETCHER_LOGS:
            return fetchers[-1]  # avoids a search through many fetchers for each of many logs
        youngest = min(fetchers, key=len, default=None)
        wanted = THIN_FETCHERS if self._thin and priority not in EVERY_SOURCE else 1
        if youngest is not None and len(fetchers) >= wanted and len(youngest) < FETCHER_LOGS:
            return youngest
        fetcher = self._open_fetcher(priority)
        if fetcher is not None:
            fetchers.append(fetcher)
        return fetcher
