"""Decide where to continue fetching a log that is empty, differs from the source, or is out of the source's range.

If a log is no longer followed when a cluster's answer arrives, the answer is ignored.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.protocol.batch import Buffer, parse_header, verify_crc
from fairlead.kafka.protocol.errors import BrokerError, CorruptBatch, WireError
from fairlead.kafka.protocol.types import TopicPartition
from replication.batch.batch_diff import conflict
from replication.catalog import EVERY_SOURCE
from replication.link.fetch_state import FollowedLogs, PartitionFetchState, TailMismatch
from replication.link.link_logs import LinkLogs
from replication.link.start import beginnings
from replication.states import LogState
from replication.target.appender import TargetAppender
from replication.target.gaps import positions
from replication.target.mirror import Feed
from topologies.model import ENDS


class OffsetReset:
    """Decides where one fetcher continues in a log."""

    def __init__(
        self, logs: LinkLogs, followed: FollowedLogs, feed: Feed, source: Cluster, appender: TargetAppender
    ) -> None:
        """``feed`` is the fetcher, to which the appender reports."""
        self._logs = logs
        self._followed = followed
        self._feed = feed
        self._source = source
        self._appender = appender

    async def set_starts(self, states: Mapping[TopicPartition, PartitionFetchState]) -> None:
        """Set where to start in replicas that are empty, or whose positioning was interrupted."""
        states = {tp: each for tp, each in states.items() if await self._is_without_records(each)}
        found = await beginnings(self._source, states, self._logs.start)
        waiting = await self._logs.brought_first(
            {tp: begin.position for tp, begin in found.items() if begin.position > 0}
        )
        for tp, state in states.items():
            if not self._followed.is_followed(state):
                continue
            if tp in waiting:
                self._followed.defer(state, found[tp].position)
                continue
            if tp not in found:
                self._logs.stop_log(
                    tp, LogState.UNAVAILABLE, f"{self._logs.name}: the source did not return its offsets"
                )
                continue
            position, fill = found[tp]
            limit, end = state.replica.limit, max(state.replica.end, 0)
            if limit is not None and position >= limit > 0:
                position, fill = limit - 1, None  # this site took custody: it needs the marker of its term
            if not self._logs.rules.may_leave_out(str(tp), 0, position):
                self._stop_behind(state, position)
                continue
            if position <= end > 0:
                self._followed.verify_tail(state)
                continue
            self._followed.seek(state, position)
            if fill is not None:
                self._appender.submit_steps(state.replica, [fill], self._feed)
            elif position > 0:
                state.fill_from = end

    async def _is_without_records(self, state: PartitionFetchState) -> bool:
        """Return whether a log has nothing but positioning fillers, of which some may be missing; if not, compare what
        is there."""
        replica = state.replica
        try:
            if replica.end <= 0:
                return True
            if await self._appender.has_only_fillers(replica) and not await self._appender.is_trimmed(replica):
                return True
        except (BrokerError, CorruptBatch) as error:
            self._stop_unreadable(state, error)
            return False
        if self._followed.is_followed(state):
            self._followed.verify_tail(state)
        return False

    async def resolve_mismatches(self, mismatches: Collection[tuple[PartitionFetchState, TailMismatch]]) -> None:
        """Compare replicas with the source by records where their last batches differ. Positioning fillers never
        differ from anything."""
        for state, found in mismatches:
            replica = state.replica
            if not self._followed.is_followed(state):
                continue
            try:
                stored = await self._appender.batch_at(state.tp, found.end - 1)
                if stored is not None and positions(stored):
                    await self._appender.has_only_fillers(replica)
                    stored = None
            except (BrokerError, CorruptBatch) as error:
                self._stop_unreadable(state, error)
                continue
            if not self._followed.is_followed(state):
                continue
            if stored is None:
                self._go_on(state, min(found.end, max(replica.end, 0)))
                state.tail_matches = found.end == replica.end  # what is here agrees, also inside a batch of the source
            elif not verify_crc(found.batch):
                self._is_damaged(state, found)
            elif problem := conflict(found.batch, stored):
                self._appender.stop_log(replica, LogState.DIVERGED, f"{self._logs.name}: {found.what}: {problem}")
            elif not self._is_compared_farther_back(state, found, stored):
                self._go_on(state, max(found.end, state.controls_to))
                state.tail_matches = True

    def _is_compared_farther_back(self, state: PartitionFetchState, found: TailMismatch, stored: Buffer) -> bool:
        """Compare what is before a control batch of either site, unless the source was seen to have that. Every
        transaction ends with such a batch, and its copy is a filler, whatever is before it."""
        marks = [each.base_offset for each in map(parse_header, (found.batch, stored)) if each.is_control]
        before = min(marks, default=0)
        if state.is_proven or not 0 < before < found.end:  # compaction may have left only a later batch here
            return False
        reached = max(found.end, state.controls_to)
        self._followed.verify_tail(state, before)
        state.controls_to = reached
        return True

    def _stop_unreadable(self, state: PartitionFetchState, error: WireError) -> None:
        """Stop a log that the target cannot read now; it is tried again."""
        if self._followed.is_followed(state):
            cause = f"its last batch cannot be read: {error.what}"
            self._appender.stop_log(state.replica, LogState.UNAVAILABLE, cause, error.hint)

    def _go_on(self, state: PartitionFetchState, offset: int) -> None:
        """Continue at ``offset``, up to which the source has what is here as far as can be known."""
        self._followed.seek(state, offset)
        state.is_proven = True
        state.replica.add_agreeing(self._feed, offset)

    def go_on_behind(self, state: PartitionFetchState, offset: int) -> None:
        """Continue at ``offset``; the offsets from the target's end up to there become a gap."""
        end = max(state.replica.end, 0)
        self._go_on(state, offset)
        state.position = end
        state.replica.add_agreeing(self._feed, end)

    def _is_damaged(self, state: PartitionFetchState, found: TailMismatch) -> None:
        """Stop at a batch that is damaged at the source, unless an operator skips it."""
        if self._logs.rules.skips(str(state.tp)).cover(found.end - 1, found.end):  # its header may claim any offsets
            self._go_on(state, found.end)
            state.tail_matches = True
            return
        at = parse_header(found.batch).base_offset
        cause = f"the CRC of the batch at offset {at} does not match its bytes; it is here already"
        self._logs.stop_log(state.tp, LogState.QUARANTINED, f"{self._logs.name}: {cause}")

    async def resolve_out_of_range(
        self, states: Mapping[TopicPartition, PartitionFetchState]
    ) -> dict[TopicPartition, int]:
        """Reset logs whose requested offset, or the batch to compare with, the source does not have, because it starts
        later or ends earlier.

        Returns:
            The logs' ends at the source.
        """
        asked = {tp: (state.position, state.verify_before) for tp, state in states.items()}
        starts = await self._source.start_offsets(states)
        ends = await self._source.end_offsets(states)
        out: dict[TopicPartition, int] = {}
        later: dict[TopicPartition, int] = {}
        for tp, state in states.items():
            if not self._followed.is_followed(state):
                continue
            start, end = starts[tp], ends[tp]
            if isinstance(start, BrokerError):
                self._logs.stop_log(tp, LogState.UNAVAILABLE, start.what, start.hint)
                continue
            if isinstance(end, BrokerError):
                self._logs.stop_log(tp, LogState.UNAVAILABLE, end.what, end.hint)
                continue
            out[tp] = end
            if asked[tp] != (state.position, state.verify_before):
                continue  # it was rewound, to where the source may not have been yet
            if state.position > end or state.ends_before_tail(end):
                self._is_behind(state, end)
            elif state.position < start:
                later[tp] = start
            else:  # it has grown meanwhile: fetch again and keep the pending comparison
                unproven, controls_to = state.verify_before, state.controls_to
                self._followed.seek(state, state.position)
                state.verify_before, state.controls_to = unproven, controls_to
        waiting = await self._logs.brought_first({tp: at for tp, at in later.items() if states[tp].replica.end < at})
        for tp, start in later.items():
            await self._begins_later(states[tp], start, is_first=tp not in waiting)
        return out

    def _is_behind(self, state: PartitionFetchState, end: int) -> None:
        """Wait at the source's end for a log of which the target has more. If all sources are followed, compare the
        tail there first."""
        if self._logs.rules.is_origin(state.tp.topic):
            here = state.replica.end
            cause = f"{self._logs.name}: the site that writes this log ends at {end}, this site has it up to {here}"
            self._logs.stop_log(state.tp, LogState.SOURCE_TRUNCATED, cause)
            return
        if state.is_proven or end == 0 or state.replica.priority not in EVERY_SOURCE:
            self._followed.seek(state, end)
            state.is_short = True
        else:
            self._followed.verify_tail(state, end)
        self._logs.replan(state.tp.topic)  # another source may have what comes next

    async def _begins_later(self, state: PartitionFetchState, start: int, *, is_first: bool) -> None:
        replica = state.replica
        try:
            is_positioned = await self._appender.has_only_fillers(replica)
        except (BrokerError, CorruptBatch) as error:
            self._stop_unreadable(state, error)
            return
        if not self._followed.is_followed(state):
            return
        if replica.end >= start:  # the source has nothing left to compare with
            self._go_on(state, replica.end)
        elif not is_first:
            self._followed.defer(state, start)
        elif not self._logs.rules.may_leave_out(str(state.tp), max(replica.end, 0), start):
            self._stop_behind(state, start)
        elif is_positioned:
            self._followed.seek(state, start)
            state.fill_from = max(replica.end, 0)
        elif state.tp.topic.startswith(f"{ENDS}.") or self._logs.rules.skips(str(state.tp)).cover(replica.end, start):
            # Sites keep what they confirm for a day only, and say all of it again every few hours.
            self.go_on_behind(state, start)
        else:
            self._stop_behind(state, start)

    def _stop_behind(self, state: PartitionFetchState, start: int) -> None:
        cause = f"{self._logs.name}: the source begins at {start}, this site ends at {state.replica.end}"
        self._logs.stop_log(state.tp, LogState.BEHIND_RETENTION, cause)
