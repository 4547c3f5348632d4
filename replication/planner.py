"""Decides again, whenever something changed, which log is followed over which link; makes missing topics.

What can change: a source has new logs, a link came or went, custody moved, a ship berthed, another source got ahead, a
log stopped, an operator gave an order. Whoever notices calls ``changed``; the plan itself is pure
(``replication.plan``).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from fairlead.errors import FairleadError
from fairlead.wire.cluster import Cluster
from fairlead.wire.types import TopicPartition
from replication.ledger import Ledger
from replication.making import AT_ONCE as CREATE_AT_ONCE
from replication.making import make, models
from replication.ordered import Ordered
from replication.placing import Placer
from replication.plan import EVERY_SOURCE, Catalog, Source, choose
from replication.pull import Pull
from replication.refresh import refresh_pause
from replication.remake import Remaker
from replication.replica import Replica
from replication.states import LinkState, LogState, Trouble
from replication.survey import Survey
from replication.upkeep import Upkeep
from replication.writer import Writer
from topologies.model import Topology

log = logging.getLogger(__name__)

GATHER: Final = 0.02  # seconds in which several changes become one plan
LEARN_AT_ONCE: Final = 2000
BREATH: Final = 500
RETRY: Final = 1.0


class Planner:
    """The plan of one target, kept up to date."""

    def __init__(
        self, topology: Topology, site: str, *, catalog: Catalog, ledger: Ledger, pulls: Sequence[Pull]
    ) -> None:
        self._site = site
        self._catalog = catalog
        self._ledger = ledger
        self._pulls = pulls
        self._changed = asyncio.Event()
        self._followed: dict[TopicPartition, frozenset[str]] = {}
        self._same: dict[frozenset[str], frozenset[str]] = {}  # very many logs have the same links: kept once
        self._here: dict[str, int] = {}  # topics of the target, with their number of partitions
        self._look = asyncio.Event()
        self.ordered = Ordered(ledger.orders, catalog)
        self.upkeep = Upkeep(
            topology,
            site,
            pulls,
            followed=lambda: self._followed,
            here=lambda: self._here,
            holder=self._holder_of,
        )
        self._survey = Survey(
            pulls,
            followed=lambda: self._followed,
            carried=self._carried,
            holder=self._holder_of,
            on_change=self.changed,
        )
        self._placer = Placer(topology, site, ledger, catalog)
        self.remaker = Remaker(site, ledger, pulls, catalog)
        self.waiting: dict[TopicPartition, Trouble] = {}  # logs whose sources are all to be made anew first
        self.orders_done = 0  # offset in the topic of orders before which all are carried out
        self.last_error = ""

    @property
    def mirroring(self) -> int:
        """How many logs are followed."""
        return len(self._followed)

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
        """Notice topics that others make or delete at the target: its own ledger, a replica to be made anew. ``say``
        hears whether the target answers."""
        news = time.monotonic()
        while True:
            try:
                found = await cluster.all_topics()
                here = self._here if found is None else {name: len(info.partitions) for name, info in found.items()}
                if here != self._here:
                    news = time.monotonic()
                new, gone = here.keys() - self._here.keys(), self._here.keys() - here.keys()
                self._ledger.offer(new)  # also when there is nothing: then it knows all there is
                self._here = here
                if gone:
                    self.changed()
                say(None)
            except FairleadError as error:
                say(error.what)
            with contextlib.suppress(TimeoutError):
                pause = refresh_pause(cluster.whole_bytes, time.monotonic() - news)
                await asyncio.wait_for(self._look.wait(), pause)
            self._look.clear()

    async def survey(self, writer: Writer) -> None:
        """Ask the sources that are not followed whether they have more."""
        await self._survey.run(writer)

    # ---- the plan

    async def _plan(self, cluster: Cluster, writer: Writer) -> None:
        await self._ledger.ready.wait()
        orders = self._ledger.orders_read
        for pull in self._pulls:
            self._permit(pull)
        for topic, what in self._ledger.splits.items():
            writer.stop(self._replica(writer, TopicPartition(topic)), LogState.DIVERGED, what)
        self._try_again(writer)
        for topic in writer.gone:
            self._here.pop(topic, None)  # deleted here: made anew below
        writer.gone.clear()
        self.ordered.begin(self._here)
        await self._remake(cluster, writer)
        carrying: dict[TopicPartition, list[Pull]] = {}
        for pull in self._pulls:
            if pull.is_up:
                pull.expect(self._ledger.custody.logs())
                for tp in self._carriable(pull):
                    if self.ordered.allows(pull.name, tp) and _may_give(pull, tp):
                        carrying.setdefault(tp, []).append(pull)
        self.ordered.carried(carrying)
        self.waiting = self.remaker.waiting(carrying, self._holder_of)
        logs = self._catalog.in_order(carrying)
        present = [tp for tp in logs if self._is_here(tp)]
        missing = [tp for tp in logs if not self._is_here(tp)]
        followed = await self._choose(writer, present, carrying)
        routes = self._routes(followed, writer)
        for pull in self._pulls:
            pull.follow(routes[pull.name], only=True)
        # What a source had before a seizure cut it off is the log: it is written, though nothing more is taken there.
        cut_off = {tp for pull in self._pulls for tp in pull.overtaken}
        writer.drop_all_but(followed.keys() | self._placer.under_way | cut_off)
        self._followed = followed
        parts = [missing[start : start + CREATE_AT_ONCE] for start in range(0, len(missing), CREATE_AT_ONCE)]
        turns = iter(parts)
        async with contextlib.aclosing(make(cluster, (models(part, carrying) for part in parts), self._here)) as made:
            async for new in made:
                self._ledger.offer(new.keys() - self._here.keys())
                self._here |= {topic: model.partitions for topic, model in new.items()}
                await self._follow_new(writer, next(turns), carrying)
        self._here |= dict.fromkeys(await self._placer.place(cluster, writer, carrying, self._here), 1)
        self.orders_done = orders

    def _permit(self, pull: Pull) -> None:
        pause = self.ordered.link_pause(pull.name)
        if pause:
            pull.forbid(LinkState.PAUSED, pause)
        elif not self._ledger.berths.is_open(pull.link):
            pull.forbid(LinkState.CLOSED, "the ship is not at this berth")
        else:
            pull.allow()

    def _try_again(self, writer: Writer) -> None:
        """Forget the troubles of logs that an operator wants tried again."""
        stopped = {tp for tp, _ in writer.troubles()} | {tp for pull in self._pulls for tp in pull.troubles}
        again = self.ordered.to_try(stopped)
        self._forget(writer, again)
        if again:
            log.info("tried again: %s", ", ".join(map(str, sorted(again))))
            self._look.set()

    def _forget(self, writer: Writer, logs: Collection[TopicPartition]) -> None:
        for tp in logs:
            for pull in self._pulls:
                pull.troubles.pop(tp, None)
            if tp in writer.replicas:
                writer.replicas[tp].forget()
            self._followed.pop(tp, None)

    async def _remake(self, cluster: Cluster, writer: Writer) -> None:
        """Stop the copies that a seizure has cut off, and delete those that may be made anew: they are missing then."""
        seized: dict[TopicPartition, frozenset[str]] = {}
        for tp in map(TopicPartition, self.remaker.seized(self._here)):
            takers = [pull for pull in self._pulls if pull.is_up and tp.topic in pull.topics]
            links = frozenset(pull.name for pull in takers if self.ordered.allows(pull.name, tp))
            if links:
                seized[tp] = links
        self._forget(writer, await self.remaker.examine(cluster, writer, seized))
        for topic in await self.remaker.delete(cluster, writer):
            self._here.pop(topic, None)
            self._forget(writer, [TopicPartition(topic)])

    async def _follow_new(
        self, writer: Writer, logs: Sequence[TopicPartition], carrying: Mapping[TopicPartition, Sequence[Pull]]
    ) -> None:
        """Follow logs whose topics have just been made."""
        for tp in logs:
            if tp in writer.replicas:  # it was deleted here: nothing known about it counts any more
                writer.replicas[tp].forget()
        added = await self._choose(writer, logs, carrying)
        routes = self._routes(added, writer)
        for pull in self._pulls:
            pull.follow(routes[pull.name])
        self._followed |= added

    async def _choose(
        self, writer: Writer, logs: Sequence[TopicPartition], carrying: Mapping[TopicPartition, Sequence[Pull]]
    ) -> dict[TopicPartition, frozenset[str]]:
        """The links over which to follow each of these logs, those left out that are stopped or complete."""
        replicas = {tp: self._replica(writer, tp) for tp in logs}
        for tp, each in replicas.items():
            each.limit = self._catalog.limit(self._ledger.custody, self._site, tp.topic)
        fresh = [
            each
            for tp, each in replicas.items()
            if each.trouble is None and not self._followed.get(tp) and not each.is_complete
        ]
        for start in range(0, len(fresh), LEARN_AT_ONCE):
            await writer.learn(fresh[start : start + LEARN_AT_ONCE])
        followed: dict[TopicPartition, frozenset[str]] = {}
        for number, (tp, replica) in enumerate(replicas.items()):
            if number % BREATH == 0:
                await asyncio.sleep(0)  # a plan for 10,000 logs must not hold up what is under way
            if replica.trouble is not None or replica.is_complete:
                continue
            links = choose(
                [self._source(pull, tp) for pull in self.remaker.sources(tp, replica.end, carrying[tp])],
                every=replica.priority in EVERY_SOURCE,
                current=self._followed.get(tp, frozenset()),
                holder=self._holder_of(tp.topic),
                end=replica.end,
            )
            followed[replica.tp] = self._same.setdefault(links, links)
        return followed

    # ---- helpers

    def _routes(
        self, followed: Mapping[TopicPartition, Collection[str]], writer: Writer
    ) -> dict[str, dict[TopicPartition, Replica]]:
        """The replicas that are followed over each link."""
        out: dict[str, dict[TopicPartition, Replica]] = {pull.name: {} for pull in self._pulls}
        for tp, links in followed.items():
            for link in links:
                out[link][tp] = writer.replicas[tp]
        return out

    def _is_here(self, tp: TopicPartition) -> bool:
        return tp.partition < self._here.get(tp.topic, 0)

    def _replica(self, writer: Writer, tp: TopicPartition) -> Replica:
        return writer.replica(tp, self._catalog.priority(tp.topic))

    def _holder_of(self, topic: str) -> str | None:
        return self._catalog.holder(self._ledger.custody, topic)

    def _carriable(self, pull: Pull) -> list[TopicPartition]:
        return [
            tp
            for topic, partitions in pull.topics.items()
            if self._catalog.carries(self._ledger.custody, pull.link, topic)
            for tp in map(TopicPartition, [topic] * partitions, range(partitions))
        ]

    def _carried(self, pull: Pull) -> list[TopicPartition]:
        return [tp for tp in self._carriable(pull) if _may_give(pull, tp)]

    @staticmethod
    def _source(pull: Pull, tp: TopicPartition) -> Source:
        return Source(pull.name, pull.link.from_, pull.ends.get(tp), pull.link.rate is not None)


def _may_give(pull: Pull, tp: TopicPartition) -> bool:
    return tp not in pull.troubles and tp not in pull.overtaken
