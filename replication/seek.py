"""Where to go on in a log when its next offset is not simply there: at the beginning, after a doubt, out of range."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from fairlead.wire.batch import parse_header, verify_crc
from fairlead.wire.cluster import Cluster
from fairlead.wire.types import TopicPartition
from replication.agreement import conflict
from replication.cursor import Cursor
from replication.leftover import positions
from replication.proof import Doubt
from replication.replica import Feed
from replication.skip import MaySkip
from replication.start import beginnings
from replication.states import LogState
from replication.writer import Writer

LogTrouble = Callable[[TopicPartition, LogState, str], None]


class Seeker:
    """Answers these questions for one lane. ``move`` puts a cursor to another offset, in the fetch session too."""

    def __init__(
        self,
        feed: Feed,
        source: Cluster,
        writer: Writer,
        *,
        start: str,
        is_origin: Callable[[str], bool],
        may_skip: MaySkip,
        on_trouble: LogTrouble,
        on_change: Callable[[], None],
        move: Callable[[Cursor, int], None],
    ) -> None:
        self._feed = feed
        self._source = source
        self._writer = writer
        self._start = start
        self._is_origin = is_origin
        self._may_skip = may_skip
        self._on_trouble = on_trouble
        self._on_change = on_change
        self._move = move

    async def begin(self, cursors: Mapping[TopicPartition, Cursor]) -> None:
        """Decide where to begin in empty replicas; with everything skipped, fill at once, which keeps the decision."""
        found = await beginnings(self._source, cursors, self._start)
        for tp, cursor in cursors.items():
            if tp not in found:
                self._on_trouble(tp, LogState.UNAVAILABLE, f"{self._feed.name}: the source does not tell its offsets")
                continue
            position, fill = found[tp]
            limit = cursor.replica.limit
            if limit is not None and position >= limit > 0:
                position, fill = limit - 1, None  # this site was given the log: it goes on after the marker of its term
            self._move(cursor, position)
            if fill is not None:
                cursor.replica.positioning = fill.stop
                self._writer.submit(cursor.replica, [fill], self._feed)
            elif position > 0:
                cursor.gap = 0

    async def judge(self, doubts: Collection[tuple[Cursor, Doubt]]) -> None:
        """Look closely at replicas that end in another batch than the source. Fillers that only position are no
        history; else the records decide."""
        for cursor, found in doubts:
            replica = cursor.replica
            stored = await self._writer.batch_at(cursor.tp, found.end - 1)
            if stored is None:
                self._move(cursor, max(replica.end, 0))
            elif positions(stored):
                replica.positioning = replica.end
                self._move(cursor, replica.end)
            elif not verify_crc(found.batch):
                self._is_damaged(cursor, found)
            elif problem := conflict(found.batch, stored):
                self._writer.stop(replica, LogState.DIVERGED, f"{self._feed.name}: {found.what}: {problem}")
            else:
                self._move(cursor, found.end)
                cursor.agreed = True

    def _is_damaged(self, cursor: Cursor, found: Doubt) -> None:
        """The source's batch can neither prove nor disprove anything; an operator may have said to go on without it."""
        header = parse_header(found.batch)
        if self._may_skip(str(cursor.tp), header.base_offset, header.next_offset):
            self._move(cursor, found.end)
            cursor.agreed = True
            return
        cause = f"the CRC of the batch at offset {header.base_offset} does not match its bytes; it is here already"
        self._on_trouble(cursor.tp, LogState.QUARANTINED, f"{self._feed.name}: {cause}")

    async def find(self, cursors: Mapping[TopicPartition, Cursor]) -> dict[TopicPartition, int]:
        """The source's logs do not have the positions asked for: they begin later, or end earlier.

        Returns:
            where these logs end at the source.
        """
        starts = await self._source.start_offsets(cursors)
        ends = await self._source.end_offsets(cursors)
        out: dict[TopicPartition, int] = {}
        for tp, cursor in cursors.items():
            start, end = starts[tp], ends[tp]
            if not isinstance(start, int) or not isinstance(end, int):
                error = start if not isinstance(start, int) else end
                self._on_trouble(tp, LogState.UNAVAILABLE, str(getattr(error, "what", error)))
                continue
            out[tp] = end
            if cursor.position > end:
                self._is_behind(cursor, end)
            elif cursor.position < start:
                await self._begins_later(cursor, start)
            else:  # it has grown meanwhile: ask again, and what had to be proven still has to
                unproven = cursor.unproven
                self._move(cursor, cursor.position)
                cursor.unproven = unproven
        return out

    def _is_behind(self, cursor: Cursor, end: int) -> None:
        """Another source had more. Wait at this source's end: what comes there first is here already."""
        if self._is_origin(cursor.tp.topic):
            here = cursor.replica.end
            cause = f"{self._feed.name}: the site that writes this log ends at {end}, this site has it up to {here}"
            self._on_trouble(cursor.tp, LogState.SOURCE_TRUNCATED, cause)
            return
        self._move(cursor, end)
        cursor.short = True
        self._on_change()  # another source may have what comes next

    async def _begins_later(self, cursor: Cursor, start: int) -> None:
        replica = cursor.replica
        is_positioned = await self._writer.only_positioned(replica)
        if replica.end >= start:
            if is_positioned:
                replica.positioning = replica.end  # a replicator before this one had filled, and not come further
            self._move(cursor, replica.end)
        elif is_positioned:
            self._move(cursor, start)
            cursor.gap = max(replica.end, 0)
        elif self._may_skip(str(cursor.tp), replica.end, start):
            self._move(cursor, start)
            cursor.position = replica.end  # what is between becomes a hole
        else:
            cause = f"{self._feed.name}: the source begins at {start}, this site ends at {replica.end}"
            self._on_trouble(cursor.tp, LogState.BEHIND_RETENTION, cause)
