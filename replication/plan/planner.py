"""Decide which log is followed over which link, and create missing topics. Plan again after every change.

Changes are: a source has new logs, a link opened or closed, custody moved, a ship berthed, another source got ahead, a
log stopped, an operator gave an order. The part that notices a change adds the topics to ``PlanChanges``, and only
these are planned; an order, or another share of the group's logs, has all of them planned.
``replication.plan.assignment`` decides, pure.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from fairlead.errors import FairleadError
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.protocol.errors import RequestTimeout
from fairlead.kafka.protocol.types import TopicPartition, partitions_of
from fairlead.waiting import Patience, wait_set
from replication.catalog import EVERY_SOURCE, Catalog
from replication.changes import PlanChanges
from replication.custody.bootstrap import LedgerBootstrap
from replication.custody.ledger import Ledger
from replication.custody.rebuild import Rebuilder
from replication.link.byte_budget import refresh_pause
from replication.link.source_link import SourceLink
from replication.link.start import brought_first
from replication.overrides import SiteOverrides
from replication.plan.assignment import LinkSource, choose_links
from replication.plan.maintenance import Survey, Upkeep
from replication.plan.topics import AT_ONCE as CREATE_AT_ONCE
from replication.plan.topics import create_topics, topic_models
from replication.sharing.rules import WorkShare
from replication.states import LinkState, LogState, LogTrouble, now_ms
from replication.target.appender import TargetAppender
from replication.target.mirror import MirrorPartition
from replication.target.topics import TargetTopics
from topologies.model import Topology

log = logging.getLogger(__name__)

GATHER: Final = 0.02  # seconds; changes within them share one plan
LEARN_AT_ONCE: Final = 2000
BREATH: Final = 500
RETRY: Final = 1.0
WORTH: Final = 3.0  # another plan may cut the creation of topics short after so many times the time of planning
PLAN_ALL: Final = 600.0  # seconds; a change that nobody noticed has its effect after that


class Planner:
    """Keep the plan of one target up to date."""

    def __init__(
        self,
        topology: Topology,
        site: str,
        catalog: Catalog,
        ledger: Ledger,
        source_links: Sequence[SourceLink],
        changes: PlanChanges,
        share: WorkShare | None = None,
    ) -> None:
        """``changes``: what to plan next. ``share``: the logs that are followed; all by default."""
        self._site = site
        self._catalog = catalog
        self._ledger = ledger
        self._source_links = source_links
        self._links = {source_link.name: source_link for source_link in source_links}
        self._changes = changes
        self._planned_all = -math.inf  # when, monotonic
        self._share = share or WorkShare(group=False)
        self._shared = 0  # changes of the share that are planned for
        self.counts: dict[str, int] = {}  # logs of each member of the group, by its id
        self._followed: dict[TopicPartition, frozenset[str]] = {}
        self._same: dict[frozenset[str], frozenset[str]] = {}  # equal sets of links are kept once
        self._most: dict[str, int] = {}  # the most partitions of a topic that were planned, if more than one
        self._carried: dict[str, int] = {}  # topics of a shared site that a link carries, with their partitions
        self._here = TargetTopics()
        self._refresh = asyncio.Event()
        self.overrides = SiteOverrides(ledger.overrides, catalog)
        self.upkeep = Upkeep(
            topology,
            site,
            source_links,
            catalog=catalog,
            ledger=ledger,
            followed=lambda: self._followed,
            here=lambda: self._here,
            share=self._share,
        )
        self._survey = Survey(
            source_links,
            followed=lambda: self._followed,
            carried=self._available_from,
            holder=self._holder_of,
            changes=changes,
        )
        self._bootstrap = LedgerBootstrap(topology, site, ledger, catalog, changes)
        self.rebuilder = Rebuilder(site, ledger, source_links, catalog)
        self.waiting: dict[TopicPartition, LogTrouble] = {}  # logs whose sources must all be rebuilt first
        self.orders_done = 0  # offset in the topic of orders; all orders before it are carried out
        self.last_error = ""

    @property
    def mirroring(self) -> int:
        """How many logs are followed."""
        return len(self._followed)

    # ---- tasks; each runs until cancelled

    async def run(self, cluster: Cluster, appender: TargetAppender) -> None:
        """Plan after every change."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, self._planned_all + PLAN_ALL - time.monotonic())):
                    await self._changes.wait()
            await asyncio.sleep(GATHER)
            topics = self._changes.take()
            if time.monotonic() - self._planned_all > PLAN_ALL:
                topics = None
            try:
                await self._plan(cluster, appender, topics)
                self.last_error = ""
            except FairleadError as error:
                if error.what != self.last_error:
                    log.warning("planning: %s", error.what)
                self.last_error = error.what
                await asyncio.sleep(RETRY)
                if topics is None:
                    self._changes.add_all()
                else:
                    self._changes.add(topics)

    async def watch_target(self, cluster: Cluster, say: Callable[[str | None], None]) -> None:
        """Notice topics that others create or delete at the target. Call ``say`` with an error, or None. Where listings
        come too late, let all requests to the target wait longer."""
        news, patience = time.monotonic(), Patience(cluster.request_timeout)
        while True:
            cluster.wait_for_answers(patience.seconds)
            asked = time.monotonic()
            try:
                new, gone = self._here.apply_listing(await cluster.topic_changes())
                if new or gone:
                    news = time.monotonic()
                self._ledger.follow_topics(new)  # also if empty: then the ledger knows that there is none
                if gone:
                    self._changes.add(gone)
                say(None)
            except FairleadError as error:
                if isinstance(error, RequestTimeout):
                    patience.note_late()
                say(error.what)
            ended = time.monotonic()
            await wait_set(self._refresh, refresh_pause(cluster.whole_bytes, ended - news, took=ended - asked))
            self._refresh.clear()

    async def survey(self, appender: TargetAppender) -> None:
        """Ask sources that are not followed whether they have more."""
        await self._survey.run(appender)

    async def brought_first(
        self, appender: TargetAppender, link: str, logs: Mapping[TopicPartition, int]
    ) -> set[TopicPartition]:
        """Return the logs that another link should copy before ``link`` copies them from the given offsets on.

        Where a log starts here cannot be changed later. So links that are connecting, or whose source does not answer,
        count as if they had more until that is known. Logs that are followed over one link at a time start there.
        """
        asked = {tp: at for tp, at in logs.items() if appender.replicas[tp].priority in EVERY_SOURCE}
        ends = {tp: each.end for tp in asked if not (each := appender.replicas[tp]).is_without_records}
        found: set[TopicPartition] = set()
        for source_link in self._source_links:
            its = {
                tp: at for tp, at in asked.items() if source_link.name != link and self._would_follow(source_link, tp)
            }
            if not its:
                continue
            if source_link.cluster is None or not source_link.is_up:
                found |= its.keys()
                continue
            try:
                found |= await brought_first(source_link.cluster, its, ends, source_link.link.start)
            except FairleadError as error:
                log.info("%s: asking where its logs begin: %s", source_link.name, error.what)
                found |= its.keys()
        return found

    def _would_follow(self, source_link: SourceLink, tp: TopicPartition) -> bool:
        """Return whether a log would also be followed over this link, as far as is known now."""
        if not self.overrides.would_allow(source_link.name, tp) or not self._catalog.carries(
            self._ledger.custody, source_link.link, tp.topic
        ):
            return False
        over = self._followed.get(tp, frozenset())
        if (
            source_link.link.rate is not None
            and source_link.name not in over
            and source_link.link.from_ != self._holder_of(tp.topic)
        ):
            return False
        if source_link.is_up:
            return tp.partition < source_link.logs.topics.get(tp.topic, 0) and source_link.logs.may_give(tp)
        return source_link.is_coming and self._catalog.may_carry(source_link.link, tp.topic)

    # ---- the plan

    async def _plan(self, cluster: Cluster, appender: TargetAppender, topics: set[str] | None) -> None:
        """Plan the logs of these topics, None for all."""
        await self._ledger.ready.wait()
        began = time.monotonic()
        orders = self._ledger.orders_read
        for source_link in self._source_links:
            self._set_gate(source_link)
        self._drop_lost(appender)
        also = self._retry_ordered(appender) | appender.missing_topics
        for topic, what in self._ledger.splits.items():
            if self._share.owns(TopicPartition(topic)):
                appender.stop_log(self._replica(appender, TopicPartition(topic)), LogState.DIVERGED, what)
        for topic in appender.missing_topics:
            self._here.forget(topic)  # deleted here: created again below
        appender.missing_topics.clear()
        if topics is None:
            self._planned_all = time.monotonic()
        else:
            topics |= also
        self.overrides.start_plan(self._here, topics)
        rebuilt = await self._rebuild(cluster, appender, topics)
        if topics is not None:
            topics |= rebuilt
        carrying = self._carrying(topics)
        self.overrides.clear_carried(carrying)
        waiting = self.rebuilder.waiting_logs(carrying, self._holder_of, topics)
        self.waiting = {
            **({tp: each for tp, each in self.waiting.items() if tp.topic not in topics} if topics is not None else {}),
            **{tp: trouble for tp, trouble in waiting.items() if self._share.owns(tp)},
        }
        logs = self._catalog.in_order(carrying)
        present = [tp for tp in logs if self._is_here(tp)]
        missing = [tp for tp in logs if not self._is_here(tp)]
        self._follow_only(appender, await self._choose_links(appender, present, carrying), topics)
        parts = [missing[start : start + CREATE_AT_ONCE] for start in range(0, len(missing), CREATE_AT_ONCE)]
        left: dict[str, list[TopicPartition]] = {}
        for tp in missing:
            left.setdefault(tp.topic, []).append(tp)
        planned = time.monotonic()
        wanted = (topic_models(part, carrying, self._catalog.copies_settings) for part in parts)
        async with contextlib.aclosing(create_topics(cluster, wanted, self._here)) as made:
            async for part in made:
                new = part.partitions
                for topic, error in part.refused.items():
                    for tp in left[topic]:
                        appender.stop_log(self._replica(appender, tp), LogState.UNAVAILABLE, error.what, error.hint)
                    left[topic] = []
                self._ledger.follow_topics(new.keys() - self._here.keys())
                self._here.create(new, part.created)
                served = [tp for topic, count in new.items() for tp in left[topic] if tp.partition < count]
                await self._follow_new(appender, served, carrying)
                left |= {topic: [tp for tp in left[topic] if tp.partition >= count] for topic, count in new.items()}
                several = [topic for topic, count in new.items() if count > 1]
                if several:
                    self._changes.add(several)  # now other links carry their further partitions, too
                # A link that is to close, or a member that is gone, waits for no topics.
                if self._changes.are_pending and time.monotonic() - planned >= WORTH * (planned - began):
                    self._changes.add([topic for topic, logs in left.items() if logs])
                    break
        await self._bootstrap.begin_logs(cluster, appender, carrying, self._here, self._share, topics)
        self.orders_done = orders

    def _carrying(self, topics: Collection[str] | None) -> dict[TopicPartition, list[SourceLink]]:
        """Return the logs of these topics (None: all) that may be followed, each with its links."""
        carrying: dict[TopicPartition, list[SourceLink]] = {}
        carried: dict[str, int] = {}
        every = self._ledger.custody.logs()
        expected = every if topics is None else every & set(topics)
        for source_link in self._source_links:
            if source_link.is_up:
                source_link.logs.clear_cut_off([tp for tp in source_link.logs.cut_off if not self._is_here(tp)])
                source_link.clear_recreated([tp for tp in source_link.logs.troubles if tp.topic not in self._here])
                source_link.expect_topics(expected)
                for topic, count in self._carried_topics(source_link, topics):
                    if self._share.is_shared:
                        carried[topic] = max(count, carried.get(topic, 0))
                    for tp in partitions_of(topic, count):
                        if (
                            self._share.owns(tp)
                            and topic not in self._ledger.splits
                            and self.overrides.allows(source_link.name, tp)
                            and source_link.logs.may_give(tp)
                        ):
                            carrying.setdefault(tp, []).append(source_link)
        self._count(carried, topics)
        return carrying

    def _count(self, carried: Mapping[str, int], topics: Collection[str] | None) -> None:
        """Count the logs of each member of the group; ``carried`` are those of the planned topics, with their numbers
        of partitions."""
        gone = {topic: self._carried.pop(topic) for topic in topics or () if topic in self._carried}
        if topics is None:
            self.counts = self._share.counts(())
            self._carried = {}
        for change, sign in ((gone, -1), (carried, 1)):
            logs = [tp for topic, count in change.items() for tp in partitions_of(topic, count)]
            for member, count in self._share.counts(logs).items():
                self.counts[member] = self.counts.get(member, 0) + sign * count
        self._carried |= carried

    def _follow_only(
        self,
        appender: TargetAppender,
        followed: Mapping[TopicPartition, frozenset[str]],
        topics: Collection[str] | None,
    ) -> None:
        """Follow these logs, and no others of the planned topics."""
        logs = appender.replicas.keys() if topics is None else {*self._logs_of(topics)}
        stopped = [tp for tp in logs if tp not in followed]
        if topics is None:
            self._followed = {}
        for tp in stopped:
            self._followed.pop(tp, None)
        self._followed |= followed
        for name, route in self._routes(followed, appender).items():
            source_link = self._links[name]
            source_link.unfollow(tp for tp in logs if tp not in route)
            source_link.follow(route)
        appender.drop(tp for tp in stopped if not self._is_still_written(tp))
        self._on_planned(topics)

    def _is_still_written(self, tp: TopicPartition) -> bool:
        """Return whether what waits of a log that is not followed is still appended: a marker from the ledger, or
        batches from before a seizure, or from before the source exceeded its right."""
        return tp in self._bootstrap.under_way or any(
            tp in source_link.logs.cut_off or tp in source_link.logs.beyond for source_link in self._source_links
        )

    def _on_planned(self, topics: Collection[str] | None) -> None:
        self._survey.on_planned(topics)
        self.upkeep.on_planned(topics)

    def _logs_of(self, topics: Iterable[str]) -> Iterator[TopicPartition]:
        """Yield all logs of these topics that may be followed, or were."""
        for topic in topics:
            counts = (self._here, self._most, *(source_link.logs.topics for source_link in self._source_links))
            yield from partitions_of(topic, max(1, *(each.get(topic, 0) for each in counts)))

    def _set_gate(self, source_link: SourceLink) -> None:
        pause = self.overrides.link_pause(source_link.name)
        if pause:
            source_link.forbid(LinkState.PAUSED, pause)
        elif not (berth := self._ledger.berths.verdict(source_link.link, now_ms())).is_open:
            source_link.forbid(LinkState.CLOSED, f"the ship is not at this berth: {berth.why}")
        else:
            source_link.allow()

    def _drop_lost(self, appender: TargetAppender) -> None:
        """Forget the logs that other members follow now, so that they begin anew should they come back."""
        changes = self._share.changes
        if changes == self._shared:
            return
        lost = [tp for tp in appender.replicas if not self._share.owns(tp)]
        for source_link in self._source_links:
            source_link.unfollow(lost)
        appender.drop(lost)
        self._reset_logs(appender, lost)
        self._bootstrap.under_way.difference_update(lost)
        self._shared = changes

    def _retry_ordered(self, appender: TargetAppender) -> set[str]:
        """Forget the troubles of logs that an operator ordered to retry; return their topics."""
        stopped = itertools.chain(
            (tp for tp, _ in appender.troubles()), *(source_link.logs.troubles for source_link in self._source_links)
        )
        again = self.overrides.logs_to_retry(stopped)
        self._reset_logs(appender, again)
        if again:
            log.info("retried: %s", ", ".join(map(str, sorted(again))))
            self._refresh.set()
        return {tp.topic for tp in again}

    def _reset_logs(self, appender: TargetAppender, logs: Collection[TopicPartition]) -> None:
        for tp in logs:
            for source_link in self._source_links:
                source_link.unfollow([tp])  # a fetcher that stopped it would not begin it again
                source_link.logs.troubles.pop(tp, None)
                source_link.logs.beyond.pop(tp, None)
            if tp in appender.replicas:
                appender.replicas[tp].reset()
            self._followed.pop(tp, None)

    async def _rebuild(self, cluster: Cluster, appender: TargetAppender, topics: set[str] | None) -> set[str]:
        """Stop copies that a seizure cut off; delete those that a source can give back: they are copied anew.

        Returns:
            The topics of the latter.
        """
        seized: dict[TopicPartition, frozenset[str]] = {}
        for tp in map(TopicPartition, self.rebuilder.seized_topics(self._here, topics)):
            if not self._share.owns(tp):
                continue
            takers = [
                source_link
                for source_link in self._source_links
                if source_link.is_up and tp.topic in source_link.logs.topics
            ]
            links = frozenset(source_link.name for source_link in takers if self.overrides.allows(source_link.name, tp))
            if links:
                seized[tp] = links
        self._reset_logs(appender, await self.rebuilder.stop_stale_copies(cluster, appender, seized, topics))
        deleted = set(await self.rebuilder.delete_stale_copies(cluster, appender))
        for topic in deleted:
            self._here.forget(topic)
            self._reset_logs(appender, [TopicPartition(topic)])
        return deleted

    async def _follow_new(
        self,
        appender: TargetAppender,
        logs: Sequence[TopicPartition],
        carrying: Mapping[TopicPartition, Sequence[SourceLink]],
    ) -> None:
        """Follow logs whose topics were just created."""
        for tp in logs:
            if tp in appender.replicas:  # it was deleted here
                appender.replicas[tp].reset()
        added = await self._choose_links(appender, logs, carrying)
        routes = self._routes(added, appender)
        for source_link in self._source_links:
            source_link.follow(routes[source_link.name])
        self._followed |= added
        self._on_planned({tp.topic for tp in added})

    async def _choose_links(
        self,
        appender: TargetAppender,
        logs: Sequence[TopicPartition],
        carrying: Mapping[TopicPartition, Sequence[SourceLink]],
    ) -> dict[TopicPartition, frozenset[str]]:
        """Return the links over which to follow each of these logs; stopped and complete ones are left out."""
        replicas = {tp: self._replica(appender, tp) for tp in logs}
        for tp, each in replicas.items():
            each.limit = self._catalog.limit(self._ledger.custody, self._site, tp.topic)
        fresh = [
            each
            for tp, each in replicas.items()
            if each.trouble is None and not self._followed.get(tp) and not each.is_complete
        ]
        for start in range(0, len(fresh), LEARN_AT_ONCE):
            await appender.load_ends(fresh[start : start + LEARN_AT_ONCE])
        followed: dict[TopicPartition, frozenset[str]] = {}
        for number, (tp, replica) in enumerate(replicas.items()):
            if number % BREATH == 0:
                await asyncio.sleep(0)  # a plan for 10,000 logs must not delay other tasks
            if replica.trouble is not None or replica.is_complete:
                continue
            source_links = self.rebuilder.rebuild_links(tp, replica.end, carrying[tp])
            serving = [each for each in source_links if tp not in each.logs.unserved]
            links = choose_links(
                [self._source(each, tp) for each in serving or source_links],
                every=replica.priority in EVERY_SOURCE,
                current=self._followed.get(tp, frozenset()),
                holder=self._holder_of(tp.topic),
                end=replica.end,
            )
            if len(serving) < len(source_links):  # nothing but a fetch shows when the others serve it again
                links |= {each.name for each in source_links if tp in each.logs.unserved}
            followed[replica.tp] = self._same.setdefault(links, links)
        return followed

    # ---- helpers

    def is_served(self, tp: TopicPartition) -> bool:
        """Return whether the source of a link over which a log is followed serves it, as far as is known."""
        links = self._followed.get(tp, ())
        return any(each.name in links and tp not in each.logs.unserved for each in self._source_links)

    def _routes(
        self, followed: Mapping[TopicPartition, Collection[str]], appender: TargetAppender
    ) -> dict[str, dict[TopicPartition, MirrorPartition]]:
        """Return the replicas to follow over each link."""
        out: dict[str, dict[TopicPartition, MirrorPartition]] = {
            source_link.name: {} for source_link in self._source_links
        }
        for tp, links in followed.items():
            for link in links:
                out[link][tp] = appender.replicas[tp]
        return out

    def _is_here(self, tp: TopicPartition) -> bool:
        return tp.partition < self._here.get(tp.topic, 0)

    def _replica(self, appender: TargetAppender, tp: TopicPartition) -> MirrorPartition:
        if tp.partition >= self._most.get(tp.topic, 1):
            self._most[tp.topic] = tp.partition + 1
        return appender.replica(tp, self._catalog.priority(tp.topic))

    def _holder_of(self, topic: str) -> str | None:
        return self._catalog.holder(self._ledger.custody, topic)

    def _carried_topics(self, source_link: SourceLink, topics: Collection[str] | None) -> Iterator[tuple[str, int]]:
        """Yield those of these topics (None: all) that a link carries, with the number of partitions to follow."""
        there = source_link.logs.topics
        for topic in there if topics is None else topics:
            partitions = there.get(topic, 0)
            if partitions and self._catalog.carries(self._ledger.custody, source_link.link, topic):
                yield topic, self._wanted_partitions(source_link, topic, partitions)

    def _wanted_partitions(self, source_link: SourceLink, topic: str, partitions: int) -> int:
        """Return how many partitions of a topic to follow if the link's source has ``partitions``."""
        if partitions == 1 or self._catalog.copies_settings(source_link.link, topic):
            return partitions
        return min(partitions, self._here.get(topic, 1))

    def _available_from(self, source_link: SourceLink, topics: Collection[str] | None) -> list[TopicPartition]:
        return [
            tp
            for topic, count in self._carried_topics(source_link, topics)
            for tp in partitions_of(topic, count)
            if self._share.owns(tp) and source_link.logs.may_give(tp)
        ]

    @staticmethod
    def _source(source_link: SourceLink, tp: TopicPartition) -> LinkSource:
        """Return a link as the choice sees it. The end of a writer by name does not count: if it has less than the
        target, it has lost records, and only its fetcher says so."""
        end = None if source_link.rules.is_origin(tp.topic) else source_link.logs.ends.get(tp)
        return LinkSource(source_link.name, source_link.link.from_, end, source_link.link.rate is not None)
