"""Decides again, whenever something changed, which log is followed over which link; makes missing topics.

What can change: a source has new logs, a link came or went, custody moved, a ship berthed, another source got ahead, a
log stopped. Whoever notices calls ``changed``; the plan itself is pure (``replication.plan``).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from fairlead.admin import LOG_DEFAULTS, create_logs
from fairlead.endpoint import KafkaEndpoint
from fairlead.errors import FairleadError
from fairlead.wire.cluster import Cluster
from fairlead.wire.types import TopicPartition
from replication.ledger import Ledger
from replication.plan import EVERY_SOURCE, Catalog, Source, choose, to_survey
from replication.pull import Pull, refresh_pause
from replication.replica import Replica
from replication.retention import keep_sweeping, limited
from replication.states import LogState
from replication.writer import Writer
from topologies.model import Topology

log = logging.getLogger(__name__)

GATHER: Final = 0.02  # seconds in which several changes become one plan
CREATE_AT_ONCE: Final = 250
LEARN_AT_ONCE: Final = 2000
RETRY: Final = 1.0
SURVEY: Final = (2.0, 30.0)
SURVEY_PER_LOG: Final = 0.002
FORGIVE: Final = 5.0


class Planner:
    """The plan of one target, kept up to date."""

    def __init__(
        self,
        topology: Topology,
        site: str,
        *,
        catalog: Catalog,
        endpoint: KafkaEndpoint,
        ledger: Ledger,
        pulls: Sequence[Pull],
    ) -> None:
        self._topology = topology
        self._site = site
        self._catalog = catalog
        self._endpoint = endpoint
        self._ledger = ledger
        self._pulls = pulls
        self._changed = asyncio.Event()
        self._followed: dict[str, frozenset[str]] = {}
        self._here: set[str] = set()  # topics of the target
        self.last_error = ""

    def changed(self) -> None:
        """Plan again soon."""
        self._changed.set()

    # ---- tasks; each runs until cancelled

    async def run(self, cluster: Cluster, writer: Writer) -> None:
        """Plan at every change."""
        while True:
            await self._changed.wait()
            await asyncio.sleep(GATHER)
            self._changed.clear()
            try:
                await self._plan(cluster, writer)
                self.last_error = ""
            except FairleadError as error:
                if error.what != self.last_error:
                    log.warning("planning: %s", error.what)
                self.last_error = error.what
                await asyncio.sleep(RETRY)
                self._changed.set()

    async def watch_target(self, cluster: Cluster, say: Callable[[str | None], None]) -> None:
        """Notice topics that others make at the target: its own ledger, its own events. ``say`` hears whether the
        target answers."""
        news = time.monotonic()
        while True:
            try:
                here = set(await cluster.topics(refresh=True))
                if here - self._here:
                    news = time.monotonic()
                self._ledger.offer(here - self._here)
                self._here = here
                say(None)
            except FairleadError as error:
                say(error.what)
            await asyncio.sleep(refresh_pause(len(self._here), time.monotonic() - news))

    async def survey(self, writer: Writer) -> None:
        """Ask the sources that are not followed whether they have more; forgive what was only unavailable."""
        forgiven = time.monotonic()
        while True:
            pulls = {pull.name: pull for pull in self._pulls if pull.is_up}
            carried = {name: {topic: pull.link.from_ for topic in self._carried(pull)} for name, pull in pulls.items()}
            asked = to_survey(self._followed, carried, self._holder)
            for name, topics in asked.items():
                await self._ask(pulls[name], topics)
            if any(
                pulls[name].ends.get(topic, 0) > writer.replicas[topic].end
                for name, topics in asked.items()
                for topic in topics
                if topic in writer.replicas
            ):
                self.changed()
            if time.monotonic() - forgiven > FORGIVE:
                forgiven = time.monotonic()
                self._forgive(writer)
            total = sum(len(topics) for topics in asked.values())
            await asyncio.sleep(min(max(total * SURVEY_PER_LOG, SURVEY[0]), SURVEY[1]))

    async def keep_retention(self, cluster: Cluster) -> None:
        """Delete what this site's retention of its replicas no longer covers."""
        await keep_sweeping(cluster, lambda: limited(self._topology, self._site, self._here, self._holder))

    # ---- the plan

    async def _plan(self, cluster: Cluster, writer: Writer) -> None:
        for pull in self._pulls:
            pull.allow(self._ledger.berths.is_open(pull.link))
        await self._ledger.ready.wait()
        for topic, what in self._ledger.splits.items():
            writer.stop(self._replica(writer, topic), LogState.DIVERGED, what)
        carrying: dict[str, list[Pull]] = {}
        for pull in self._pulls:
            if pull.is_up:
                pull.expect(self._ledger.custody.logs())
                for topic in self._carried(pull):
                    carrying.setdefault(topic, []).append(pull)
        topics = self._catalog.in_order(carrying)
        missing = [topic for topic in topics if topic not in self._here]
        present = [topic for topic in topics if topic in self._here]
        await self._follow(writer, present, carrying)
        for start in range(0, len(missing), CREATE_AT_ONCE):
            some = missing[start : start + CREATE_AT_ONCE]
            await self._create(cluster, some)
            present += some
            await self._follow(writer, present, carrying)

    async def _create(self, cluster: Cluster, topics: Collection[str]) -> None:
        await asyncio.to_thread(create_logs, self._endpoint, dict.fromkeys(topics, LOG_DEFAULTS))
        await cluster.wait_writable(topics)
        self._here.update(topics)
        self._ledger.offer(topics)
        log.info("%d logs made at %s", len(topics), self._site)

    async def _follow(self, writer: Writer, topics: Sequence[str], carrying: Mapping[str, Sequence[Pull]]) -> None:
        """Follow these logs, and no others, over the links that are best for each."""
        replicas = {topic: self._replica(writer, topic) for topic in topics}
        for topic, each in replicas.items():
            each.limit = self._catalog.limit(self._ledger.custody, self._site, topic)
        fresh = [
            each
            for topic, each in replicas.items()
            if each.trouble is None and not self._followed.get(topic) and not each.is_complete
        ]
        for start in range(0, len(fresh), LEARN_AT_ONCE):
            await writer.learn(fresh[start : start + LEARN_AT_ONCE])
        over: dict[str, dict[str, Replica]] = {pull.name: {} for pull in self._pulls}
        followed: dict[str, frozenset[str]] = {}
        for topic, replica in replicas.items():
            if replica.trouble is not None or replica.is_complete:
                continue
            chosen = followed[topic] = choose(
                [self._source(pull, topic) for pull in carrying[topic]],
                every=replica.priority in EVERY_SOURCE,
                current=self._followed.get(topic, frozenset()),
                holder=self._holder(topic),
                end=replica.end,
            )
            for name in chosen:
                over[name][topic] = replica
        self._followed = followed
        for pull in self._pulls:
            pull.follow(over[pull.name])

    # ---- helpers

    def _replica(self, writer: Writer, topic: str) -> Replica:
        return writer.replica(topic, self._catalog.priority(topic))

    def _holder(self, topic: str) -> str | None:
        return self._catalog.holder(self._ledger.custody, topic)

    def _carried(self, pull: Pull) -> list[str]:
        return [
            topic
            for topic in pull.logs
            if topic not in pull.troubles and self._catalog.carries(self._ledger.custody, pull.link, topic)
        ]

    @staticmethod
    def _source(pull: Pull, topic: str) -> Source:
        return Source(pull.name, pull.link.from_, pull.ends.get(topic), pull.link.rate is not None)

    @staticmethod
    async def _ask(pull: Pull, topics: Collection[str]) -> None:
        if pull.cluster is None:
            return
        try:
            ends = await pull.cluster.end_offsets([TopicPartition(topic) for topic in topics])
        except FairleadError:
            return  # the link's own tasks notice that the source is away
        for tp, end in ends.items():
            if isinstance(end, int):
                pull.ends[tp.topic] = end

    def _forgive(self, writer: Writer) -> None:
        for pull in self._pulls:
            pull.forgive()
        for replica in writer.replicas.values():
            if replica.trouble is not None and replica.trouble.state is LogState.UNAVAILABLE:
                replica.trouble = None
                self.changed()
