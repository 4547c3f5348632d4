"""Fill the ends of replicas where compaction has removed the last records before the source's end.

A fetch brings no batch for such offsets, so a complete replica would stay behind until the source's next record. They
become fillers when both ends have not moved for a while, the source answers that it has no records there, and its topic
is compacted. Without compaction, an end without records is a loss and stays visible. Logs of Fairlead's own writers are
not filled: only the next record shows whether these offsets belong to the last term or the next, and it closes them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

from fairlead.errors import FairleadError
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.convention import FOREIGN_EPOCH, FOREIGN_PRODUCER_ID, PRODUCER_ID
from fairlead.kafka.protocol.batch import parse_header
from fairlead.kafka.protocol.errors import OFFSET_OUT_OF_RANGE
from fairlead.kafka.protocol.types import TopicPartition
from replication.batch.prepared import GAP_KEY, POSITION_KEY, Gap, PreparedBatch
from replication.catalog import Catalog
from replication.link.source_link import SourceLink
from replication.target.appender import TargetAppender
from replication.target.mirror import MirrorPartition

log = logging.getLogger(__name__)

EVERY: Final = 1.0
STILL: Final = 3.0  # seconds in which neither end has moved
AGAIN: Final = 300.0  # seconds until a log is asked for once more, though nothing has moved
AT_ONCE: Final = 50  # logs checked at a time over one link; 1 over a link with a rate


class _Rest(NamedTuple):
    """A log's ends at the target and the source, and since when they have not moved."""

    here: int
    there: int
    since: float


class _Filling:
    """The feed of fillers that come from no fetcher."""

    def __init__(self, source_link: SourceLink) -> None:
        self.name = source_link.name
        self._source_link = source_link

    def rewind(self, tp: TopicPartition, end: int) -> None:
        """Do nothing: the next round starts again."""

    def on_appended(self, tp: TopicPartition, prepared: PreparedBatch) -> None:
        self._source_link.logs.counters.add_batch(prepared)

    def on_damaged(self, tp: TopicPartition, cause: str) -> None:
        """Do nothing: fillers are made here."""


class TrailingGaps:
    """Check the ends of all followed logs.

    Args:
        followed: The links over which each log is followed now.
        cluster: The target's.
    """

    def __init__(
        self,
        source_links: Sequence[SourceLink],
        followed: Callable[[], Mapping[TopicPartition, Collection[str]]],
        catalog: Catalog,
        cluster: Cluster,
        appender: TargetAppender,
    ) -> None:
        self._source_links = source_links
        self._followed = followed
        self._catalog = catalog
        self._cluster = cluster
        self._appender = appender
        self._fillable: list[TopicPartition] | None = None  # followed logs whose ends may be filled; None: not chosen
        self._resting: dict[tuple[str, TopicPartition], _Rest] = {}
        self._feeds = {source_link.name: _Filling(source_link) for source_link in source_links}

    async def run(self) -> None:
        """Check until cancelled; retry what cannot be asked now."""
        while True:
            await asyncio.sleep(EVERY)
            for source_link in self._source_links:
                try:
                    await self.close_gaps(source_link, time.monotonic())
                except FairleadError as error:
                    log.warning("%s: ends without records: %s", source_link.name, error.what)

    async def close_gaps(self, source_link: SourceLink, now: float) -> None:
        """Close trailing gaps over one link.

        Raises:
            FairleadError: one of the ends cannot be asked.
        """
        followed = self._followed()
        waiting = {
            tp: replica
            for tp in self._choose(followed)
            if source_link.name in followed.get(tp, ())
            and (replica := self._appender.replicas.get(tp)) is not None
            and self._may_wait(source_link, replica)
        }
        before = self._resting
        self._resting = {key: rest for key, rest in before.items() if key[0] != source_link.name}
        due: list[MirrorPartition] = []
        for tp, replica in waiting.items():
            rest = before.get((source_link.name, tp))
            if rest is None or (rest.here, rest.there) != (replica.end, source_link.logs.ends[tp]):
                rest = _Rest(replica.end, source_link.logs.ends[tp], now)
            elif now - rest.since >= STILL and len(due) < (AT_ONCE if source_link.link.rate is None else 1):
                due.append(replica)
                rest = rest._replace(since=now + AGAIN)
            self._resting[source_link.name, tp] = rest
        source = source_link.cluster
        if not due or source is None:
            return
        compacted = await _compacted(source, {each.tp.topic for each in due})
        for replica in due:
            if replica.tp.topic in compacted:
                await self._close(source_link, source, replica, source_link.logs.ends[replica.tp])

    def on_planned(self, topics: Collection[str] | None) -> None:
        """Choose the logs anew if a plan of these topics (None: of all) may have changed which are followed."""
        if self._fillable is not None and (topics is None or any(map(self._may_be_filled, topics))):
            self._fillable = None

    def _choose(self, followed: Mapping[TopicPartition, Collection[str]]) -> Sequence[TopicPartition]:
        """Return the logs whose ends may be filled.

        A round comes each second. Looking at every log took a tenth of a core at 100,000 container logs, of which none
        is ever filled.
        """
        if self._fillable is None:
            self._fillable = [tp for tp in followed if self._may_be_filled(tp.topic)]
        return self._fillable

    def _may_be_filled(self, topic: str) -> bool:
        facts = self._catalog.facts(topic)
        return facts is not None and not facts.moves and facts.fixed_holder is None

    def _may_wait(self, source_link: SourceLink, replica: MirrorPartition) -> bool:
        """Return whether a log is behind its source and has nothing in flight."""
        if not 0 <= replica.end < source_link.logs.ends.get(replica.tp, -1) or not self._is_idle(replica):
            return False
        if replica.tail is None:
            return source_link.link.start == "earliest"
        return replica.tail.producer_id != PRODUCER_ID

    def _is_idle(self, replica: MirrorPartition) -> bool:
        return replica.trouble is None and not self._appender.is_busy(replica.tp)

    async def _close(self, source_link: SourceLink, source: Cluster, replica: MirrorPartition, stop: int) -> None:
        """Fill up to the source's end if the source has nothing there and no other client wrote here."""
        tp, end = replica.tp, replica.end
        start, key = end, GAP_KEY
        answer = (await source.fetch({tp: end}, max_wait_ms=0, partition_max_bytes=1))[tp]
        if answer.error_code == OFFSET_OUT_OF_RANGE and await self._appender.has_only_fillers(replica):
            first = (await source.start_offsets([tp]))[tp]
            if not isinstance(first, int) or not end < first < stop:
                return
            start, key = first, POSITION_KEY
            answer = (await source.fetch({tp: first}, max_wait_ms=0, partition_max_bytes=1))[tp]
        source_link.charge(len(answer.records))
        if answer.error_code or len(answer.records) or min(answer.last_stable_offset, answer.high_watermark) != stop:
            return
        last = await self._appender.batch_at(tp, end - 1) if end > 0 else None
        when = parse_header(last).max_timestamp if last is not None else 1
        there = (await self._cluster.end_offsets([tp]))[tp]
        if there != end or replica.end != end or not self._is_idle(replica):
            return
        log.info("%s: the source has nothing from %d to its end %d: filled", tp, start, stop)
        gap = Gap(end, stop, FOREIGN_PRODUCER_ID, FOREIGN_EPOCH, 0, when, key)
        replica.add_agreeing(
            self._feeds[source_link.name], end
        )  # the gap is this site's own: there is nothing that could differ
        self._appender.submit_steps(replica, [gap], self._feeds[source_link.name])


async def _compacted(source: Cluster, topics: Collection[str]) -> set[str]:
    found = await source.topic_settings(topics, ["cleanup.policy"])
    return {topic for topic, settings in found.items() if "compact" in settings.get("cleanup.policy", "")}
