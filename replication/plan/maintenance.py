"""Run maintenance tasks besides copying: retention, settings, leftover fillers, surveys.

Retention: ``replication.plan.retention``.

Survey: sources over which a log is not followed are asked whether they have more (``assignment.to_survey``), and logs
that were unavailable are retried.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from fairlead.errors import FairleadError
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.protocol.types import TopicPartition
from replication.catalog import Catalog
from replication.changes import PlanChanges
from replication.custody.ledger import Ledger
from replication.link.source_link import SourceLink
from replication.plan.assignment import to_survey
from replication.plan.retention import DOUBTFUL, RetentionKeeper
from replication.plan.topics import BYTES_PER_TOPIC, COMPARE_PAUSE, comparing_pace, copy_settings
from replication.plan.trailing_gaps import TrailingGaps
from replication.sharing.rules import WorkShare
from replication.states import LogState
from replication.target.appender import TargetAppender
from replication.target.gaps import Trimmer, interrupted
from topologies.model import Topology

log = logging.getLogger(__name__)

PAUSE: Final = (2.0, 30.0)  # seconds between two surveys
PAUSE_PER_LOG: Final = 0.002
FORGIVE: Final = 5.0


class Survey:
    """Asks for ends of logs at sources from which they are not fetched.

    Args:
        followed: The links over which each log is followed now.
        carried: Those of the given topics' logs (None: of all) that could be followed over a link.
        holder: The site that appends to a topic, as far as it is known.
        changes: Gets the topics of which a source has more than the target, or that may be tried again.
    """

    def __init__(
        self,
        source_links: Sequence[SourceLink],
        *,
        followed: Callable[[], Mapping[TopicPartition, Collection[str]]],
        carried: Callable[[SourceLink, Collection[str] | None], Collection[TopicPartition]],
        holder: Callable[[str], str | None],
        changes: PlanChanges,
    ) -> None:
        self._source_links = source_links
        self._followed = followed
        self._carried = carried
        self._holder = holder
        self._changes = changes
        self._planned: set[str] | None = None  # topics planned since the logs were chosen; None: all
        self._to_ask: dict[str, dict[str, list[TopicPartition]]] = {}  # logs to ask for, by link and topic

    def on_planned(self, topics: Collection[str] | None) -> None:
        """Choose the logs of these topics anew, None for all: they have just been planned."""
        if topics is None:
            self._planned = None
        elif self._planned is not None:
            self._planned.update(topics)

    async def run(self, appender: TargetAppender) -> None:
        """Survey until cancelled."""
        forgiven = time.monotonic()
        while True:
            asked = await self.survey_once(appender)
            if time.monotonic() - forgiven > FORGIVE:
                forgiven = time.monotonic()
                self.retry_unavailable(appender)
            await asyncio.sleep(min(max(asked * PAUSE_PER_LOG, PAUSE[0]), PAUSE[1]))

    async def survey_once(self, appender: TargetAppender) -> int:
        """Ask once; return how many ends were asked for."""
        source_links = {source_link.name: source_link for source_link in self._source_links if source_link.is_up}
        if len(source_links) < 2:
            return 0
        asked = self._choose(source_links)
        for name, logs in asked.items():
            await _ask(source_links[name], logs)
        ahead = {
            tp.topic
            for name, logs in asked.items()
            for tp in logs
            if tp in appender.replicas and source_links[name].logs.ends.get(tp, 0) > appender.replicas[tp].end
        }
        if ahead:
            self._changes.add(ahead)
        return sum(len(logs) for logs in asked.values())

    def _choose(self, source_links: Mapping[str, SourceLink]) -> Mapping[str, Collection[TopicPartition]]:
        """Return the logs to ask for over each link that is up; looks only at topics that were planned meanwhile.

        Looking at all logs of all links takes seconds at 500,000 logs, and a survey comes every 2 s if it asks for few.
        """
        topics, self._planned = self._planned, set()
        if topics is None:
            self._to_ask.clear()
        if topics is None or topics:
            carried = {
                name: dict.fromkeys(self._carried(source_link, topics), source_link.link.from_)
                for name, source_link in source_links.items()
            }
            for known in self._to_ask.values():
                for topic in topics or ():
                    known.pop(topic, None)
            for name, logs in to_survey(self._followed(), carried, lambda tp: self._holder(tp.topic)).items():
                for tp in logs:
                    self._to_ask.setdefault(name, {}).setdefault(tp.topic, []).append(tp)
        return {
            name: [*itertools.chain.from_iterable(known.values())]
            for name, known in self._to_ask.items()
            if known and name in source_links
        }

    def retry_unavailable(self, appender: TargetAppender) -> None:
        """Retry logs that are ``unavailable``, at the sources and here, once the plan has stopped them."""
        for source_link in self._source_links:
            source_link.retry_unavailable()
        followed = self._followed()
        for replica in appender.replicas.values():
            trouble = replica.trouble
            if trouble is not None and trouble.state is LogState.UNAVAILABLE and replica.tp not in followed:
                replica.trouble = None
                self._changes.add([replica.tp.topic])


async def _ask(source_link: SourceLink, logs: Collection[TopicPartition]) -> None:
    if source_link.cluster is None:
        return
    try:
        ends = await source_link.cluster.end_offsets(logs)
    except FairleadError:
        return  # the link's own tasks notice that the source is away
    source_link.logs.ends |= {
        tp: source_link.rules.reach(tp.topic).capped(end) for tp, end in ends.items() if isinstance(end, int)
    }


TIDY: Final = 20.0


class Upkeep:
    """Tasks that run while the target is connected; each runs until cancelled.

    Args:
        followed: The links over which each log is followed now.
        here: The target's topics, with their number of partitions.
        share: The logs that this replicator takes care of.
    """

    def __init__(
        self,
        topology: Topology,
        site: str,
        source_links: Sequence[SourceLink],
        *,
        catalog: Catalog,
        ledger: Ledger,
        followed: Callable[[], Mapping[TopicPartition, Collection[str]]],
        here: Callable[[], Mapping[str, int]],
        share: WorkShare,
    ) -> None:
        self._share = share
        self._catalog = catalog
        self._source_links = source_links
        self._followed = followed
        self._appender: TargetAppender | None = None
        self._gaps: TrailingGaps | None = None
        self._plans = 0  # how often all logs were planned
        self.retention = RetentionKeeper(
            topology,
            site,
            ledger,
            here,
            lambda topic: self._catalog.holder(ledger.custody, topic),
            self._doubtful,
            share,
        )

    async def keep_retention(self, cluster: Cluster, appender: TargetAppender) -> None:
        """Delete records that this site's retention no longer covers and that no other site waits for."""
        self._appender = appender
        await self.retention.run(cluster)

    def _doubtful(self) -> set[TopicPartition]:
        troubles = [*self._appender.troubles()] if self._appender else []
        troubles += [each for source_link in self._source_links for each in source_link.logs.troubles.items()]
        return {tp for tp, trouble in troubles if trouble.state in DOUBTFUL}

    async def keep_tidy(self, cluster: Cluster, trimmer: Trimmer) -> None:
        """Delete fillers that an interrupted replicator left at the starts of logs. Look once at each log of each
        source, at those that are followed later once all are planned again; and at all of them after a change of the
        share, because a member that has gone may have left some."""
        looked: dict[str, set[TopicPartition]] = {}
        done: dict[str, tuple[int, int]] = {}  # changes of the share and plans of all logs at the last look
        while True:
            await asyncio.sleep(TIDY)
            for source_link in self._source_links:
                name, now = source_link.name, (self._share.changes, self._plans)
                before = done.get(name, (-1, -1))
                if source_link.cluster is None or before == now:
                    continue
                if before[0] != now[0]:
                    looked[name] = set()
                logs = [tp for tp, over in self._followed().items() if name in over]
                if not logs:
                    continue
                try:
                    some = [tp for tp in logs if tp not in looked[name]]
                    found = await interrupted(cluster, source_link.cluster, some, source_link.link.start)
                    for tp, offset in found.items():
                        trimmer.delete_before(tp, offset)
                    looked[name].update(found)
                    done[name] = now
                except FairleadError as error:
                    log.warning("%s: fillers of an interrupted positioning: %s", source_link.name, error.what)

    async def keep_closed(self, cluster: Cluster, appender: TargetAppender) -> None:
        """Fill offsets at the ends of logs for which the sources have no records left."""
        gaps = self._gaps = TrailingGaps(self._source_links, self._followed, self._catalog, cluster, appender)
        await gaps.run()

    def on_planned(self, topics: Collection[str] | None) -> None:
        """Note that these topics have just been planned; None stands for all."""
        self._plans += topics is None
        if self._gaps is not None:
            self._gaps.on_planned(topics)

    async def keep_settings(self, cluster: Cluster) -> None:
        """Copy settings of replicas from their sources, for logs whose settings are copied."""
        async with asyncio.TaskGroup() as group:
            for source_link in self._source_links:
                group.create_task(self._keep_settings_over(source_link, cluster))

    async def _keep_settings_over(self, source_link: SourceLink, cluster: Cluster) -> None:
        while True:
            await asyncio.sleep(COMPARE_PAUSE[0])
            topics = sorted({tp.topic for tp in self._followed() if source_link in self._shaping(tp)[:1]})
            step, wait = comparing_pace(len(topics), source_link.logs.budget.rate)
            for start in range(0, len(topics), step):
                some = topics[start : start + step]
                if source_link.cluster is None:
                    break
                source_link.charge(len(some) * BYTES_PER_TOPIC)
                try:
                    await copy_settings(source_link.cluster, cluster, some)
                except FairleadError as error:
                    log.warning("%s: settings are not copied: %s", source_link.name, error.what)
                    break
                await asyncio.sleep(wait)

    def _shaping(self, tp: TopicPartition) -> list[SourceLink]:
        """Return the links from which a log's settings may be copied, of those over which it is followed, by name."""
        over = self._followed().get(tp, ())
        source_links = [
            source_link
            for source_link in self._source_links
            if source_link.name in over and self._catalog.copies_settings(source_link.link, tp.topic)
        ]
        return sorted(source_links, key=lambda source_link: source_link.name)

    async def limit_of(self, cluster: Cluster, tp: TopicPartition) -> int:
        """``max.message.bytes`` of a log at the target, after copying the source's if that is allowed."""
        for source_link in self._shaping(tp):
            if source_link.cluster is not None:
                try:
                    await copy_settings(source_link.cluster, cluster, [tp.topic])
                except FairleadError as error:
                    log.warning("%s: max.message.bytes is not copied: %s", tp.topic, error.what)
        there = await cluster.topic_settings([tp.topic], ["max.message.bytes"])
        return int(there.get(tp.topic, {}).get("max.message.bytes", "0"))
