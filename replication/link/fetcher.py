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
from typing import Final

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
from replication.link.fetch_state import FollowedLogs, PartitionFetchState, TailMismatch, tail_mismatch
from replication.link.link_logs import LinkLogs
from replication.link.offset_reset import OffsetReset
from replication.overrides import Skips
from replication.states import LogState, now_ms
from replication.target.appender import TargetAppender
from replication.target.log_reader import base_offset, framed, sound_header
from replication.target.mirror import MirrorPartition
from topologies.model import Priority

READ_COMMITTED: Final = 1  # answers list aborted transactions; free of cost where there are none
POLL_MS: Final = 10_000  # data ends a poll at once; an empty one costs the source 12 microseconds for each log
THIN_POLL_MS: Final = 1000  # over a link with a rate, where polls are not cut short
THIN_POLL_PER_LOG: Final = 10
LOG_BYTES: Final = 1 << 20
BUSY_BYTES: Final = 256 << 10  # an answer of this size means catching up: no pause
PACE: Final = (0.02, 0.25)  # seconds between polls that bring little, so that traffic of many logs shares them
UNSERVED_SECONDS: Final = 30.0  # until a log that no broker serves is shown: an idle one is served once a poll ends
PACE_PER_LOG: Final = 50e-6  # a broker spends about 12 microseconds on each log of a session at each poll


class Fetcher:
    """Follows logs of one class at one source; a feed of the appender."""

    def __init__(
        self,
        logs: LinkLogs,
        priority: Priority,
        cluster: Cluster,
        appender: TargetAppender,
        round_trip: float = 0.0,
    ) -> None:
        """``cluster`` is the source; ``round_trip`` is how many seconds its smallest request takes."""
        self.name = logs.name
        self.priority = priority
        self._logs = logs
        self._rules = logs.rules
        self._appender = appender
        self._budget = logs.budget
        self._counters = logs.counters
        self._ends = logs.ends
        self._session = cluster.fetch_session(isolation=READ_COMMITTED)
        self._followed = FollowedLogs(self._session)
        self._offset_reset = OffsetReset(logs, self._followed, self, cluster, appender)
        self._sizer = FetchSizer(round_trip)
        self._wakeup = PollWakeup(self._session.cut_poll_short, allowed=self._budget.rate is None)
        self._lag = -1  # 0 is kept until something is fetched; any other value is counted again
        self._unstarted: dict[TopicPartition, PartitionFetchState] = {}  # without a first offset yet
        self._mismatches: dict[TopicPartition, tuple[PartitionFetchState, TailMismatch]] = {}  # of last batches
        self._unserved: set[TopicPartition] = set()  # logs that are shown as not served
        self._has_logs = asyncio.Event()

    # ---- called by the plan and the appender

    def __len__(self) -> int:
        """Return how many logs are followed."""
        return len(self._followed)

    def follow(self, replica: MirrorPartition) -> None:
        """Fetch a log from the target's end on. First fetch the last batch again and compare it."""
        if self._followed.get(replica.tp) is None:
            self._begin(self._followed.add(replica))
            self._has_logs.set()
            self._wakeup.request()

    def _begin(self, state: PartitionFetchState) -> None:
        tp, replica = state.tp, state.replica
        is_begun = replica.end > 0 and not replica.may_be_cut_short
        if not is_begun and self._logs.start != "earliest" and not is_always_whole(tp.topic):
            self._followed.suspend(state)
            self._unstarted[tp] = state
        else:
            self._followed.verify_tail(state)

    def unfollow(self, tp: TopicPartition) -> None:
        state = self._followed.remove(tp)
        if state is not None:
            state.replica.remove_feed(self)
            self._unstarted.pop(tp, None)
            self._mismatches.pop(tp, None)
            self._unserved.discard(tp)
            self._logs.unserved.pop(tp, None)
            self._wakeup.request()

    def rewind(self, tp: TopicPartition, end: int) -> None:
        state = self._followed.get(tp)
        if state is not None:
            self._followed.unpause(tp)
            self._begin(state)
            self._wakeup.request()

    def on_appended(self, tp: TopicPartition, prepared: PreparedBatch) -> None:
        self._counters.add_batch(prepared)
        state = self._followed.get(tp)
        if state is not None and state.verify_before is None:  # else the source may have lost it since
            state.is_proven = True

    def on_damaged(self, tp: TopicPartition, cause: str) -> None:
        state = self._followed.get(tp)
        if state is not None:
            self._followed.suspend(state)
            self._followed.unpause(tp)
            self._logs.stop_log(tp, LogState.QUARANTINED, f"{self.name}: {cause}")

    def lag(self) -> int:
        """Records that the source has and the target does not, of the logs followed here."""
        if self._lag != 0:
            self._lag = sum(max(0, self._ends.get(each.tp, 0) - each.replica.end) for each in self._followed)
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
                if not self._followed:
                    self._has_logs.clear()
                    await self._has_logs.wait()
                wait = self._budget.wait(self.priority, time.monotonic())
                if wait > 0:
                    await asyncio.sleep(wait)
                    continue
                await self._appender.wait_ready(urgent=self.priority in EVERY_SOURCE)
                for state in self._followed.due(time.monotonic()):
                    self._begin(state)
                if self._unstarted:
                    unstarted, self._unstarted = self._unstarted, {}
                    await self._offset_reset.set_starts(unstarted)
                await self._poll()
        finally:
            self._appender.fetchers -= 1
            self._wakeup.cancel()
            for state in self._followed:
                state.replica.remove_feed(self)
            self._followed.clear()
            await self._session.close()

    def _max_wait_ms(self) -> int:
        """Return how long the source may hold an empty poll."""
        longest = POLL_MS
        if self._budget.rate is not None:
            longest = min(THIN_POLL_MS + THIN_POLL_PER_LOG * len(self._followed), POLL_MS)
        due = self._followed.next_due()
        if due is not None:
            longest = min(longest, max(0, int((due - time.monotonic()) * 1000)))
        return longest

    async def _poll(self) -> None:
        most = min(self._sizer.size, self._appender.fetch_share())
        asked = max(self._budget.allowance(self.priority, time.monotonic(), most), self._budget.least)
        received = self._session.received
        began = time.monotonic()
        answer = await self._session.poll(
            max_wait_ms=self._max_wait_ms(),
            max_bytes=asked,
            partition_max_bytes=min(asked, max(LOG_BYTES, asked // max(len(self._followed), 1))),
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
            state = self._followed.get(tp)
            if state is None:
                continue
            try:
                if not self._process_partition(state, part):
                    lost[tp] = state
            except CorruptBatch as error:
                self._stop_at_damaged(state, error.what, error.hint)
        if lost:
            found = await self._offset_reset.resolve_out_of_range(lost)
            self._ends |= {tp: self._rules.reach(tp.topic).capped(end) for tp, end in found.items()}
        if self._mismatches:
            mismatches, self._mismatches = self._mismatches, {}
            await self._offset_reset.resolve_mismatches([*mismatches.values()])
        if got < BUSY_BYTES and answer and self.priority not in EVERY_SOURCE:
            pace = min(max(len(self._followed) * PACE_PER_LOG, PACE[0]), PACE[1])
            await asyncio.sleep(max(0.0, began + pace - time.monotonic()))

    def _show_unserved(self) -> None:
        """Show the logs that no broker of the source serves; they are still asked for."""
        found = self._session.unserved(UNSERVED_SECONDS)
        for tp in self._unserved - found.keys():
            self._logs.show_served(tp)
        for tp, code in found.items():
            self._logs.show_unserved(tp, code)
        self._unserved = {*found}

    def _process_partition(self, state: PartitionFetchState, part: FetchedPartition) -> bool:
        """Queue one log's part of an answer; False if the source does not have the requested offset, or may end before
        what is to be compared.

        Raises:
            CorruptBatch: the next batch has no readable header, or one that cannot be believed.
        """
        tp = state.tp
        if part.error_code:
            return self._on_fetch_error(state, part.error_code)
        reach = self._rules.reach(tp.topic)
        self._ends[tp] = reach.capped(part.last_stable_offset if part.last_stable_offset >= 0 else part.high_watermark)
        skips = self._rules.skips(str(tp))
        if skips:
            part = self._without_skipped(state, part, skips)
        seizure = None
        if seizures := self._rules.seizures(tp.topic):
            part, seizure = before_seizure(part, seizures)
        part, problem = within_reach(part, reach)
        if not part.records:
            if seizure is not None or problem:
                self._stop_at_refused(state, seizure, reach, problem)
                return True
            return not state.ends_before_tail(part.high_watermark)
        if state.is_short or state.is_led_anew(parse_header(part.records).leader_epoch):
            self._verify_again(state)
            return True
        fill_from = state.fill_from
        tail_end, state.verify_before = state.verify_before, None
        position = state.position if fill_from is None else fill_from
        replica = state.replica
        if tail_end is not None:
            found = self._difference(state, tail_end, part.records)
            if found is not None:
                self._mismatches[tp] = state, found
                return True
            position = tail_end
            state.is_proven = True
            replica.add_agreeing(self, tail_end)
        steps, rejected = self._prepare(state, part, position, skips)
        if steps:
            if self._appender.submit_steps(replica, steps, self):
                self._advance(state, steps)
            else:
                self._followed.suspend(state)
        elif rejected is None:
            self._followed.seek(state, max(position, state.position))
        elif rejected.diverged:  # or the target has only some parts of a split batch yet
            first = next(split(part.records))
            source_batch = bytes(part.records[first.start : first.stop])
            self._mismatches[tp] = state, TailMismatch(rejected.cause, position, source_batch)
        elif rejected.damaged:
            self._stop_at_damaged(state, rejected.cause)
        elif not self._waits_for_queued(state):
            self._appender.stop_log(replica, LogState.QUARANTINED, rejected.cause)
        return True

    @staticmethod
    def _without_skipped(state: PartitionFetchState, part: FetchedPartition, skips: Skips) -> FetchedPartition:
        """Leave out damaged batches that an operator skips, if more follows. Kafka 3.9 returns them first for all
        offsets that they claim, although others have them."""
        if len(part.records) < HEADER_BYTES:
            return part
        base = base_offset(part.records)
        if not skips.cover(base, base + 1):
            return part
        stop = skips.stop_at(base)
        with contextlib.suppress(CorruptBatch):
            first, rest = framed(part.records)
            asked = max(state.position, state.skipped_to)
            is_passed = stop is not None and stop <= asked and framed(rest)[0] is not None
            if first is not None and is_passed and sound_header(first) is None:
                return Fetcher._without_skipped(state, msgspec.structs.replace(part, records=rest), skips)
        return part

    def _stop_at_damaged(self, state: PartitionFetchState, cause: str, hint: str = "") -> None:
        """Stop at a damaged batch, once everything before it is stored, unless an operator skips it."""
        if not self._waits_for_queued(state) and not self._skip(state):
            self._logs.stop_log(state.tp, LogState.QUARANTINED, f"{self.name}: {cause}", hint)

    def _skip(self, state: PartitionFetchState) -> bool:
        """Continue behind the batch that an operator skips here. Return False if there is none, or if what follows it
        cannot be copied either."""
        fill_from = state.fill_from
        at = max(state.replica.end, 0) if fill_from is None else state.position
        stop = self._rules.skips(str(state.tp)).stop_at(at)
        if stop is None or stop == state.skipped_to:
            return False
        if fill_from is None:
            self._offset_reset.go_on_behind(state, stop)
        else:
            self._followed.seek(state, stop)
            state.fill_from = fill_from
        state.skipped_to = stop
        return True

    def _stop_at_refused(
        self, state: PartitionFetchState, seizure: Seizure | None, reach: SourceReach, problem: str
    ) -> None:
        """Stop at a batch that a seizure cut off or that the source has no right to write.

        Until everything before it is stored, the log stays followed, so that it is fetched again if an append fails.
        """
        if self._waits_for_queued(state):
            return
        if seizure is not None:
            self._logs.mark_cut_off(state.tp, seizure)
        else:
            self._logs.refuse_log(state.tp, reach, problem)

    def _waits_for_queued(self, state: PartitionFetchState) -> bool:
        """Pause a log while batches of it are queued; return False if none is."""
        if state.fill_from is not None or state.position <= max(state.replica.end, 0):
            return False
        self._followed.pause(state)
        return True

    def _advance(self, state: PartitionFetchState, steps: list[PreparedBatch | Gap]) -> None:
        """Fetch on behind what was queued. If another link brought more meanwhile, compare the tail there first."""
        here, there = state.replica.end, self._ends[state.tp]
        reached = steps[-1].stop
        if reached < here <= there:
            self._followed.verify_tail(state)
        else:
            self._followed.seek(state, reached)
            if reached >= there and not state.is_proven:  # perhaps nothing follows that would show a difference
                self._followed.check_later(state)

    @staticmethod
    def _difference(state: PartitionFetchState, tail_end: int, records: memoryview) -> TailMismatch | None:
        """Return the mismatch between the source's batch before ``tail_end`` and the target's; None if there is none.

        If the target has moved on and the logs were equal before, the appender detects a later difference.
        """
        if state.replica.sent == tail_end:
            return tail_mismatch(state.replica.tail, tail_end, records)
        first = next(split(records), None)
        if state.is_proven or first is None or first.header.base_offset >= tail_end:
            return None
        return TailMismatch(f"the batch before {tail_end}", tail_end, bytes(records[first.start : first.stop]))

    def _verify_again(self, state: PartitionFetchState) -> None:
        """Compare the tails again, once the source reaches as far as the target; it may have lost what is queued. The
        site that writes the log does so now, or has lost records."""
        self._appender.withdraw(state.replica, self)
        state.is_proven = False
        end = self._ends[state.tp]
        if end < state.replica.end and not self._rules.is_origin(state.tp.topic):
            self._followed.seek(state, end)
            state.is_short = True
        else:
            self._followed.verify_tail(state)

    def _on_fetch_error(self, state: PartitionFetchState, code: int) -> bool:
        if code == OFFSET_OUT_OF_RANGE:
            return False
        tp, is_recreated = state.tp, code == UNKNOWN_TOPIC_ID
        if is_recreated and self._rules.seizures(tp.topic):
            # The source rebuilds its copy after a seizure: the link follows the new topic once it is listed.
            self._followed.pause(state)
            self._logs.relist.set()
            return True
        error = broker_error(code, tp)
        why = LogState.SOURCE_RECREATED if is_recreated else LogState.UNAVAILABLE
        self._logs.stop_log(tp, why, error.what, error.hint)
        return True

    def _prepare(
        self, state: PartitionFetchState, part: FetchedPartition, position: int, skips: Skips
    ) -> tuple[list[PreparedBatch | Gap], RejectedBatch | None]:
        """Prepare batches up to the first one that is rejected or cannot be read. A batch that an operator skips
        becomes a gap.

        Raises:
            CorruptBatch: the first one cannot be read.
        """
        steps: list[PreparedBatch | Gap] = []
        inside, state.tail_matches = state.tail_matches, False
        key = GAP_KEY if state.fill_from is None else POSITION_KEY
        try:
            for step in prepare_batches(part.records, position, part.aborted, gap_key=key, inside=inside):
                if isinstance(step, PreparedBatch) and skips.cover(step.base, step.stop):
                    steps.append(gap_of_batch(step, now_ms()))
                elif isinstance(step, RejectedBatch):
                    gap = step.gap
                    if gap is None or not skips.cover(gap.base, gap.stop):
                        return steps, step
                    steps.append(msgspec.structs.replace(gap, timestamp_ms=now_ms()))
                elif isinstance(step, Gap) and not self._rules.may_leave_out(str(state.tp), step.base, step.stop):
                    cause = f"the source claims to have no records from {step.base} to {step.stop - 1}"
                    return steps, RejectedBatch(step.base, cause, damaged=True)
                else:
                    steps.append(step)
        except CorruptBatch:
            if not steps:  # else the next answer begins with the unreadable batch
                raise
        return steps, None


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
