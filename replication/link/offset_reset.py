"""Where to go on in a log when its next offset is not simply there: at the beginning, after a doubt, out of range.

Clusters are asked meanwhile, so a log may be followed no more when they answer: then nothing is done about it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from fairlead.custody.view import Seizure
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.protocol.batch import parse_header, verify_crc
from fairlead.kafka.protocol.types import TopicPartition
from replication.batch.batch_diff import conflict
from replication.catalog import EVERY_SOURCE, SourceReach
from replication.link.byte_budget import LinkBudget
from replication.link.cut_off import SourceRules
from replication.link.fetch_state import PartitionFetchState, TailMismatch
from replication.link.start import beginnings
from replication.link.status import Counters
from replication.states import LogState
from replication.target.appender import TargetAppender
from replication.target.gaps import positions
from replication.target.mirror import Feed


class LinkContext(Protocol):
    """What fetchers need of the link that they belong to."""

    @property
    def name(self) -> str: ...
    @property
    def start(self) -> str:
        """Where the link begins in a log that is empty here (``Link.start``)."""

    @property
    def budget(self) -> LinkBudget: ...
    @property
    def counters(self) -> Counters: ...
    @property
    def ends(self) -> dict[TopicPartition, int]:
        """Each log's end at the source, as last heard; shared by the fetchers of a link."""

    @property
    def rules(self) -> SourceRules: ...

    def trouble(self, tp: TopicPartition, state: LogState, cause: str) -> None:
        """This log cannot be had from the source."""

    def mark_cut_off(self, tp: TopicPartition, seizure: Seizure) -> None:
        """The log's history at the source was cut off by a seizure."""

    def hold_back(self, tp: TopicPartition, reach: SourceReach, problem: str) -> None:
        """The log goes on at the source beyond what the source may write."""

    def changed(self) -> None:
        """The plan should be made again."""

    async def elsewhere(self, logs: Mapping[TopicPartition, int]) -> Collection[TopicPartition]:
        """Of logs that this link could bring from these offsets on only, those that another link is to bring first: it
        begins earlier in a log that is empty here, or has what comes next in one that is not."""


class FetchPositions(Feed, Protocol):
    """The fetcher whose logs are looked at."""

    def is_followed(self, state: PartitionFetchState) -> bool:
        """Whether this is still the state that the fetcher follows the log with."""

    def move(self, state: PartitionFetchState, offset: int) -> None:
        """Fetch a log from another offset on."""

    def prove(self, state: PartitionFetchState, end: int) -> None:
        """Compare the source's batch before ``end`` with the target's."""

    def wait(self, state: PartitionFetchState, until: int) -> None:
        """Leave a log alone until another link has brought it up to an offset, or for a while; then begin anew."""


class OffsetReset:
    """Decides where one fetcher goes on in a log."""

    def __init__(self, link: LinkContext, fetcher: FetchPositions, source: Cluster, appender: TargetAppender) -> None:
        self._link = link
        self._fetcher = fetcher
        self._source = source
        self._appender = appender

    async def begin(self, states: Mapping[TopicPartition, PartitionFetchState]) -> None:
        """Decide where to begin in empty replicas; with everything skipped, fill at once, which keeps the decision."""
        found = await beginnings(self._source, states, self._link.start)
        waiting = await self._link.elsewhere({tp: begin.position for tp, begin in found.items() if begin.position > 0})
        for tp, state in states.items():
            if not self._fetcher.is_followed(state):
                continue
            if tp in waiting:
                self._fetcher.wait(state, found[tp].position)
                continue
            if tp not in found:
                self._link.trouble(tp, LogState.UNAVAILABLE, f"{self._link.name}: the source does not tell its offsets")
                continue
            position, fill = found[tp]
            limit = state.replica.limit
            if limit is not None and position >= limit > 0:
                position, fill = limit - 1, None  # this site was given the log: it goes on after the marker of its term
            self._fetcher.move(state, position)
            if fill is not None:
                self._appender.submit(state.replica, [fill], self._fetcher)
            elif position > 0:
                state.fill_from = 0

    async def judge(self, mismatches: Collection[tuple[PartitionFetchState, TailMismatch]]) -> None:
        """Look closely at replicas that end in another batch than the source. Fillers that only position are no
        history; else the records decide."""
        for state, found in mismatches:
            replica = state.replica
            if not self._fetcher.is_followed(state):
                continue
            stored = await self._appender.batch_at(state.tp, found.end - 1)
            if stored is not None and positions(stored):
                await self._appender.only_positioned(replica)
                stored = None
            if not self._fetcher.is_followed(state):
                continue
            if stored is None:
                self._go_on(state, max(replica.end, 0))
            elif not verify_crc(found.batch):
                self._is_damaged(state, found)
            elif problem := conflict(found.batch, stored):
                self._appender.stop(replica, LogState.DIVERGED, f"{self._link.name}: {found.what}: {problem}")
            else:
                self._go_on(state, found.end)
                state.agreed = True

    def _go_on(self, state: PartitionFetchState, offset: int) -> None:
        """As far as can be told, the source has what is here up to ``offset``."""
        self._fetcher.move(state, offset)
        state.shared = True
        state.replica.agree(self._fetcher, offset)

    def _is_damaged(self, state: PartitionFetchState, found: TailMismatch) -> None:
        """The source's batch can neither prove nor disprove anything; an operator may have said to go on without it."""
        header = parse_header(found.batch)
        if self._link.rules.may_skip(str(state.tp), header.base_offset, header.next_offset):
            self._go_on(state, found.end)
            state.agreed = True
            return
        cause = f"the CRC of the batch at offset {header.base_offset} does not match its bytes; it is here already"
        self._link.trouble(state.tp, LogState.QUARANTINED, f"{self._link.name}: {cause}")

    async def find(self, states: Mapping[TopicPartition, PartitionFetchState]) -> dict[TopicPartition, int]:
        """The source's logs do not have the positions asked for: they begin later, or end earlier.

        Returns:
            where these logs end at the source.
        """
        starts = await self._source.start_offsets(states)
        ends = await self._source.end_offsets(states)
        out: dict[TopicPartition, int] = {}
        later: dict[TopicPartition, int] = {}
        for tp, state in states.items():
            if not self._fetcher.is_followed(state):
                continue
            start, end = starts[tp], ends[tp]
            if not isinstance(start, int) or not isinstance(end, int):
                error = start if not isinstance(start, int) else end
                self._link.trouble(tp, LogState.UNAVAILABLE, str(getattr(error, "what", error)))
                continue
            out[tp] = end
            if state.position > end:
                self._is_behind(state, end)
            elif state.position < start:
                later[tp] = start
            else:  # it has grown meanwhile: ask again, and what had to be proven still has to
                unproven = state.unproven
                self._fetcher.move(state, state.position)
                state.unproven = unproven
        waiting = await self._link.elsewhere({tp: at for tp, at in later.items() if states[tp].replica.end < at})
        for tp, start in later.items():
            await self._begins_later(states[tp], start, is_first=tp not in waiting)
        return out

    def _is_behind(self, state: PartitionFetchState, end: int) -> None:
        """Another source had more. Wait at this source's end: what comes there first is here already. Where both are
        followed, see once before that it is the same log."""
        if self._link.rules.is_origin(state.tp.topic):
            here = state.replica.end
            cause = f"{self._link.name}: the site that writes this log ends at {end}, this site has it up to {here}"
            self._link.trouble(state.tp, LogState.SOURCE_TRUNCATED, cause)
            return
        if state.shared or end == 0 or state.replica.priority not in EVERY_SOURCE:
            self._fetcher.move(state, end)
            state.short = True
        else:
            self._fetcher.prove(state, end)
        self._link.changed()  # another source may have what comes next

    async def _begins_later(self, state: PartitionFetchState, start: int, *, is_first: bool) -> None:
        replica = state.replica
        is_positioned = await self._appender.only_positioned(replica)
        if not self._fetcher.is_followed(state):
            return
        if replica.end >= start:  # of what is here, the source has nothing left to compare
            self._go_on(state, replica.end)
        elif not is_first:
            self._fetcher.wait(state, start)
        elif is_positioned:
            self._fetcher.move(state, start)
            state.fill_from = max(replica.end, 0)
        elif self._link.rules.may_skip(str(state.tp), replica.end, start):
            self._go_on(state, start)
            state.position = replica.end  # what is between becomes a gap
            replica.agree(self._fetcher, replica.end)
        else:
            cause = f"{self._link.name}: the source begins at {start}, this site ends at {replica.end}"
            self._link.trouble(state.tp, LogState.BEHIND_RETENTION, cause)
