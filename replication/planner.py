"""Decides again, whenever something changed, which log is followed over which link; makes missing topics.

What can change: a source has new logs, a link came or went, custody moved, a ship berthed, another source got ahead, a
log stopped, an operator gave an order. Whoever notices calls ``changed``; the plan itself is pure
(``replication.plan``).
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from fairlead.admin import create_logs, grow_topics
from fairlead.endpoint import KafkaEndpoint
from fairlead.errors import FairleadError
from fairlead.wire.cluster import Cluster
from fairlead.wire.types import TopicPartition
from replication import settings
from replication.ledger import Ledger
from replication.orders import Order
from replication.plan import EVERY_SOURCE, Catalog, Source, choose, to_survey
from replication.pull import Pull, refresh_pause
from replication.replica import Replica
from replication.retention import keep_sweeping, limited
from replication.states import LinkState, LogState, Trouble
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
SETTINGS: Final = (30.0, 600.0)  # seconds between two comparisons of topic settings
SETTINGS_PER_TOPIC: Final = 0.06


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
        self._followed: dict[TopicPartition, frozenset[str]] = {}
        self._here: dict[str, int] = {}  # topics of the target, with their number of partitions
        self._look = asyncio.Event()
        self._retried: dict[TopicPartition, dt.datetime] = {}  # the newest order to try a log again that was followed
        self.paused: dict[TopicPartition, tuple[str, Order]] = {}  # logs that only orders keep from being mirrored
        self.released: dict[TopicPartition, Order] = {}  # promoted or failed over: written here now
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
        """Ask the sources that are not followed whether they have more; forgive what was only unavailable."""
        forgiven = time.monotonic()
        while True:
            pulls = {pull.name: pull for pull in self._pulls if pull.is_up}
            asked: dict[str, list[TopicPartition]] = {}
            if len(pulls) > 1:
                carried = {name: dict.fromkeys(self._carried(pull), pull.link.from_) for name, pull in pulls.items()}
                asked = to_survey(self._followed, carried, self._holder)
            for name, logs in asked.items():
                await self._ask(pulls[name], logs)
            if any(
                pulls[name].ends.get(tp, 0) > writer.replicas[tp].end
                for name, logs in asked.items()
                for tp in logs
                if tp in writer.replicas
            ):
                self.changed()
            if time.monotonic() - forgiven > FORGIVE:
                forgiven = time.monotonic()
                self._forgive(writer)
            total = sum(len(logs) for logs in asked.values())
            await asyncio.sleep(min(max(total * SURVEY_PER_LOG, SURVEY[0]), SURVEY[1]))

    async def keep_retention(self, cluster: Cluster) -> None:
        """Delete what this site's retention of its replicas no longer covers."""
        await keep_sweeping(cluster, lambda: limited(self._topology, self._site, self._here, self._holder_of))

    async def keep_settings(self, cluster: Cluster) -> None:
        """Let the settings of replicas follow their source's."""
        while True:
            await asyncio.sleep(min(max(len(self._followed) * SETTINGS_PER_TOPIC, SETTINGS[0]), SETTINGS[1]))
            for pull in self._pulls:
                if pull.cluster is None:
                    continue
                topics = {tp.topic for tp, over in self._followed.items() if pull.name == min(over, default="")}
                try:
                    await settings.bring_over(pull.cluster, cluster, self._endpoint, sorted(topics))
                except FairleadError as error:
                    log.warning("%s: settings do not follow: %s", pull.name, error.what)

    async def limit_of(self, cluster: Cluster, tp: TopicPartition) -> int:
        """``max.message.bytes`` of a log at the target, after letting it follow the source's where that is allowed."""
        over = self._followed.get(tp, frozenset())
        for pull in self._pulls:
            if pull.name in over and pull.cluster is not None:
                try:
                    await settings.bring_over(pull.cluster, cluster, self._endpoint, [tp.topic])
                except FairleadError as error:
                    log.warning("%s: max.message.bytes does not follow: %s", tp.topic, error.what)
        there = await cluster.topic_settings([tp.topic], ["max.message.bytes"])
        return int(there.get(tp.topic, {}).get("max.message.bytes", "0"))

    # ---- the plan

    async def _plan(self, cluster: Cluster, writer: Writer) -> None:
        await self._ledger.ready.wait()
        for pull in self._pulls:
            self._permit(pull)
        for topic, what in self._ledger.splits.items():
            writer.stop(self._replica(writer, TopicPartition(topic)), LogState.DIVERGED, what)
        self._try_again(writer)
        self.paused, self.released = {}, {}
        carrying: dict[TopicPartition, list[Pull]] = {}
        for pull in self._pulls:
            if pull.is_up:
                pull.expect(self._ledger.custody.logs())
                for tp in self._carried(pull):
                    if self._ordered(pull, tp):
                        carrying.setdefault(tp, []).append(pull)
        for tp in carrying.keys() & self.paused.keys():
            del self.paused[tp]
        logs = self._catalog.in_order(carrying)
        await self._follow(writer, [tp for tp in logs if self._is_here(tp)], carrying)
        missing = [tp for tp in logs if not self._is_here(tp)]
        for start in range(0, len(missing), CREATE_AT_ONCE):
            some = missing[start : start + CREATE_AT_ONCE]
            await self._make(cluster, some, carrying)
            for tp in some:
                if tp in writer.replicas:  # it was deleted here: nothing known about it counts any more
                    writer.replicas[tp].forget()
            await self._follow(writer, [tp for tp in logs if self._is_here(tp)], carrying)

    def _permit(self, pull: Pull) -> None:
        order = self._ledger.orders.link_paused(pull.name)
        if order is not None:
            pull.forbid(LinkState.PAUSED, said(order))
        elif not self._ledger.berths.is_open(pull.link):
            pull.forbid(LinkState.CLOSED, "the ship is not at this berth")
        else:
            pull.allow()

    def _ordered(self, pull: Pull, tp: TopicPartition) -> bool:
        """Whether operators let this log be followed over this link."""
        orders, facts = self._ledger.orders, self._catalog.facts(tp.topic)
        release = orders.released(str(tp))
        if release is not None:
            self.released[tp] = release
            return False
        pause = orders.paused(pull.name, facts.stream if facts else "", str(tp))
        if pause is not None:
            self.paused[tp] = pull.name, pause
        return pause is None

    def _try_again(self, writer: Writer) -> None:
        """Forget the troubles of logs that an operator wants tried again."""
        again: set[TopicPartition] = set()
        for tp in {tp for tp, _ in writer.troubles()} | {tp for pull in self._pulls for tp in pull.troubles}:
            order = self._ledger.orders.retries(str(tp))
            if order is not None and self._retried.get(tp) != order:
                self._retried[tp] = order
                again.add(tp)
        for tp in again:
            for pull in self._pulls:
                pull.troubles.pop(tp, None)
            if tp in writer.replicas:
                writer.replicas[tp].forget()
            self._followed.pop(tp, None)
        if again:
            log.info("tried again: %s", ", ".join(map(str, sorted(again))))
            self._look.set()

    async def _make(
        self, cluster: Cluster, logs: Collection[TopicPartition], carrying: Mapping[TopicPartition, Sequence[Pull]]
    ) -> None:
        """Make topics, with their source's settings and number of partitions, and partitions that are missing."""
        of = {tp.topic: carrying[tp][0] for tp in logs}
        counts = {topic: max(pull.topics.get(topic, 1) for pull in self._pulls if pull.is_up) for topic in of}
        new = [topic for topic in of if topic not in self._here]
        for pull in self._pulls:
            some = [topic for topic in new if of[topic] is pull]
            if some and pull.cluster is not None:
                there = await settings.read(pull.cluster, some)
                made = {topic: settings.wanted(there.get(topic, {})) for topic in some}
                await asyncio.to_thread(create_logs, self._endpoint, made, partitions=counts)
        grown = {topic: counts[topic] for topic in of if topic in self._here}
        if grown:
            await asyncio.to_thread(grow_topics, self._endpoint, grown)
        await cluster.wait_writable([TopicPartition(topic, n) for topic in of for n in range(counts[topic])])
        self._here |= {topic: counts[topic] for topic in of}
        self._ledger.offer(new)
        if new:
            log.info("%d topics made at %s", len(new), self._site)

    async def _follow(
        self, writer: Writer, logs: Sequence[TopicPartition], carrying: Mapping[TopicPartition, Sequence[Pull]]
    ) -> None:
        """Follow these logs, and no others, over the links that are best for each."""
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
        over: dict[str, dict[TopicPartition, Replica]] = {pull.name: {} for pull in self._pulls}
        followed: dict[TopicPartition, frozenset[str]] = {}
        for tp, replica in replicas.items():
            if replica.trouble is not None or replica.is_complete:
                continue
            chosen = followed[tp] = choose(
                [self._source(pull, tp) for pull in carrying[tp]],
                every=replica.priority in EVERY_SOURCE,
                current=self._followed.get(tp, frozenset()),
                holder=self._holder(tp),
                end=replica.end,
            )
            for name in chosen:
                over[name][tp] = replica
        self._followed = followed
        for pull in self._pulls:
            pull.follow(over[pull.name])

    # ---- shown

    def ordered(self) -> Iterator[tuple[TopicPartition, Trouble]]:
        """Logs that operators have paused, as they are shown."""
        for tp, (link, order) in self.paused.items():
            yield tp, Trouble(LogState.PAUSED, said(order), order.at, link)

    def releases(self) -> dict[str, dict[str, Any]]:
        """Logs that are written here since they were promoted or failed over."""
        return {
            str(tp): {"verb": str(order.kind), "since": order.at.isoformat(), "by": order.by, "end": order.stop}
            for tp, order in self.released.items()
        }

    # ---- helpers

    def _is_here(self, tp: TopicPartition) -> bool:
        return tp.partition < self._here.get(tp.topic, 0)

    def _replica(self, writer: Writer, tp: TopicPartition) -> Replica:
        return writer.replica(tp, self._catalog.priority(tp.topic))

    def _holder(self, tp: TopicPartition) -> str | None:
        return self._holder_of(tp.topic)

    def _holder_of(self, topic: str) -> str | None:
        return self._catalog.holder(self._ledger.custody, topic)

    def _carried(self, pull: Pull) -> list[TopicPartition]:
        return [
            tp
            for topic, partitions in pull.topics.items()
            if self._catalog.carries(self._ledger.custody, pull.link, topic)
            for tp in map(TopicPartition, [topic] * partitions, range(partitions))
            if tp not in pull.troubles
        ]

    @staticmethod
    def _source(pull: Pull, tp: TopicPartition) -> Source:
        return Source(pull.name, pull.link.from_, pull.ends.get(tp), pull.link.rate is not None)

    @staticmethod
    async def _ask(pull: Pull, logs: Collection[TopicPartition]) -> None:
        if pull.cluster is None:
            return
        try:
            ends = await pull.cluster.end_offsets(logs)
        except FairleadError:
            return  # the link's own tasks notice that the source is away
        pull.ends |= {tp: end for tp, end in ends.items() if isinstance(end, int)}

    def _forgive(self, writer: Writer) -> None:
        for pull in self._pulls:
            pull.forgive()
        for replica in writer.replicas.values():
            if replica.trouble is not None and replica.trouble.state is LogState.UNAVAILABLE:
                replica.trouble = None
                self.changed()


def said(order: Order) -> str:
    """An order as the cause of a state."""
    return f"{order.kind} ordered by {order.by}" + (f": {order.reason}" if order.reason else "")
