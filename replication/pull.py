"""One link: connect to the source, find its logs, fetch by priority class; try again when the source is away.

A link knows nothing of other links. What it carries is offered to the plan, which says what to follow here.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from fairlead.custody import Seizure
from fairlead.endpoint import KafkaEndpoint
from fairlead.errors import FairleadError
from fairlead.wire.cluster import Cluster
from fairlead.wire.types import TopicInfo, TopicPartition
from replication.counters import Counters
from replication.group_sync import GroupSync
from replication.lane import Lane
from replication.lanes import Lanes
from replication.overtaken import Seizures, never_seized
from replication.permission import Permission
from replication.plan import Catalog
from replication.rate import LinkBudget
from replication.refresh import refresh_pause
from replication.replica import Replica
from replication.skip import MaySkip
from replication.standing import Standing
from replication.states import LinkState, LogState, Trouble, now
from replication.writer import Writer
from topologies.model import Link, Priority

log = logging.getLogger(__name__)

REQUEST_TIMEOUT: Final = 10.0
BACKOFF: Final = (0.25, 0.5, 1.0, 2.0, 4.0)
LOOK_AGAIN: Final = 0.25
BYTES_PER_LOG: Final = 60  # of a question for a log's offsets: on a thin link a request takes about a second
LEAST_LOGS: Final = 40


class Pull:
    """One link's fetching side."""

    def __init__(
        self,
        link: Link,
        catalog: Catalog,
        *,
        endpoint: Callable[[], KafkaEndpoint],
        on_change: Callable[[], None],
        may_skip: MaySkip,
        groups: GroupSync | None = None,
        seizures: Seizures = never_seized,
    ) -> None:
        """``endpoint`` is asked at every attempt: addresses and passwords may change while a link is down."""
        self.link = link
        self.name = link.name
        self.counters = Counters()
        self.ends: dict[TopicPartition, int] = {}
        self.topics: dict[str, int] = {}  # what the source has of this link's streams: how many partitions each
        self.troubles: dict[TopicPartition, Trouble] = {}  # logs that cannot be had from this source
        self.overtaken: dict[TopicPartition, Trouble] = {}  # logs whose history a seizure has cut off at this source
        self._standing = Standing(link.name)
        self._catalog = catalog
        self._endpoint = endpoint
        self._writer: Writer | None = None
        self._on_change = on_change
        self._may_skip = may_skip
        self._groups = groups
        self._seizures = seizures
        if groups is not None and link.rate is not None:
            groups.on_bytes = self.charge
        self._expected: set[str] = set()
        self._look = asyncio.Event()
        self._budget = LinkBudget(link.rate, now=time.monotonic())
        self._ids: dict[str, bytes] = {}  # of every topic seen at the source
        self._lanes = Lanes(self._open_lane, thin=link.rate is not None)
        self._group: asyncio.TaskGroup | None = None
        self._permission = Permission()
        self.cluster: Cluster | None = None
        self._round_trip = 0.0

    @property
    def is_up(self) -> bool:
        return self._standing.state is LinkState.MIRRORING

    def allow(self) -> None:
        """The link may be used."""
        self._permission.give()

    def forbid(self, state: LinkState, cause: str) -> None:
        """The link must not be used now: its policy says so (``CLOSED``), or an operator (``PAUSED``)."""
        self._permission.withdraw(state, cause)
        if self._standing.state in (LinkState.CLOSED, LinkState.PAUSED):
            self._standing.enter(state, cause)

    def follow(self, replicas: Mapping[TopicPartition, Replica], *, only: bool = False) -> None:
        """Fetch these logs here; with ``only``, no others."""
        if only:
            self._lanes.unfollow_all_but(replicas)
        self._lanes.follow(replicas, lambda topic: self._catalog.priority_on(self.link, topic))

    def trouble(self, tp: TopicPartition, state: LogState, cause: str) -> None:
        """This log cannot be had from here; the plan looks for another source."""
        if state is LogState.SOURCE_RECREATED and self._seizures(tp.topic):
            self._made_anew(tp)  # as every copy is that a seizure has cut off: what is there now is proven anew
            return
        known = self.troubles.get(tp)
        if known is None or known.state is not state:
            log.error("%s %s: %s", tp, state, cause)
            self.troubles[tp] = Trouble(state, cause, now(), self.name)
            self._on_change()

    def overtake(self, tp: TopicPartition, seizure: Seizure) -> None:
        """A seizure has cut off what this source has of a log: nothing is taken from here until it is made anew."""
        if tp not in self.overtaken:
            cause = (
                f"{self.name}: the source's records from offset {seizure.marker} on were cut off by the seizure by "
                f"{seizure.to_site}; taken again when they are made anew there"
            )
            log.info("%s: %s", tp, cause)
            self.overtaken[tp] = Trouble(LogState.UNAVAILABLE, cause, now(), self.name)
            self._on_change()

    def _made_anew(self, tp: TopicPartition) -> None:
        """The source's topic is another one now: whatever was known about it is void."""
        self.ends.pop(tp, None)
        if self._lanes.unfollow(tp):
            self._look.set()
            asyncio.get_running_loop().call_later(LOOK_AGAIN, self._on_change)

    def charge(self, count: int) -> None:
        """Account for bytes of background questions over the link: data of its later classes waits for them."""
        self._budget.charge(Priority.NORMAL, count, time.monotonic())

    def expect(self, topics: Collection[str]) -> None:
        """Other sites' logs have these names by now: look at once whether the source has them, too."""
        new = {each for each in topics if each not in self._expected and each not in self._ids}
        if any(self._catalog.takes(self.link, each) for each in new):
            self._look.set()
        self._expected |= new

    def forgive(self) -> None:
        """Try again what was only unavailable."""
        for tp in [tp for tp, each in self.troubles.items() if each.state is LogState.UNAVAILABLE]:
            del self.troubles[tp]

    # ---- running

    async def run(self, writer: Writer) -> None:
        """Keep the link going until cancelled, appending through ``writer``."""
        self._writer = writer
        failures = 0
        while True:
            if not self._permission.is_given:
                self._standing.enter(*self._permission.why_not)
                failures = 0
                await self._permission.wait()
                self._standing.enter(LinkState.CONNECTING)
            began = time.monotonic()
            try:
                await self._permission.during(self._connected())
                continue
            except* FairleadError as group:
                if time.monotonic() - began > BACKOFF[-1]:
                    failures = 0
                self._standing.fail(_first(group).what)
            wait = BACKOFF[min(failures, len(BACKOFF) - 1)]
            failures += 1
            await self._permission.during(asyncio.sleep(wait))

    async def _connected(self) -> None:
        try:
            client = f"fairlead-replicator.{self.link.to}"
            async with await Cluster.open(
                self._endpoint(), client_id=client, request_timeout=REQUEST_TIMEOUT
            ) as cluster:
                if self.link.rate is not None:
                    cluster.logs_per_request = max(LEAST_LOGS, self.link.rate // BYTES_PER_LOG)
                self.cluster = cluster
                self._round_trip = await _round_trip(cluster)
                async with asyncio.TaskGroup() as group:
                    self._group = group
                    group.create_task(self._discover(cluster))
                    if self._groups is not None:
                        group.create_task(self._groups.run())
        finally:
            self.cluster = self._group = None
            self._lanes.clear()
            self._on_change()

    async def _discover(self, cluster: Cluster) -> None:
        """Look for new logs at the source, about every second, less often where there are very many."""
        news = time.monotonic()
        while True:
            found = await cluster.all_topics()
            self.charge(cluster.whole_bytes)
            if found is not None or not self.is_up:
                changed = found is not None and self._saw(found)
                if changed or not self.is_up:
                    news = time.monotonic()
                    self._standing.enter(LinkState.MIRRORING)
                    self._on_change()
            await asyncio.sleep(LOOK_AGAIN)
            with contextlib.suppress(TimeoutError):
                pause = refresh_pause(cluster.whole_bytes, time.monotonic() - news, self.link.rate)
                await asyncio.wait_for(self._look.wait(), pause)
            self._look.clear()

    def _saw(self, found: Mapping[str, TopicInfo]) -> bool:
        """Take in what the source has; True when this link's topics are others than before."""
        topics, recreated = {}, False
        for topic, info in found.items():
            if not self._catalog.takes(self.link, topic):
                continue
            topics[topic] = len(info.partitions)
            known = self._ids.get(topic)
            self._ids[topic] = info.topic_id
            if known not in (None, info.topic_id):
                for tp in map(TopicPartition, [topic] * len(info.partitions), info.partitions):
                    self.overtaken.pop(tp, None)
                    cause = f"{self.name}: the source's topic was deleted and made anew"
                    self.trouble(tp, LogState.SOURCE_RECREATED, cause)
                recreated = True
        changed = topics != self.topics
        self.topics = topics
        return changed or recreated

    def _open_lane(self, priority: Priority) -> Lane | None:
        """One more lane of this class; None while the link is not up."""
        if self._group is None or self.cluster is None or self._writer is None:
            return None
        lane = Lane(
            self.name,
            priority,
            cluster=self.cluster,
            writer=self._writer,
            budget=self._budget,
            counters=self.counters,
            ends=self.ends,
            on_trouble=self.trouble,
            on_change=self._on_change,
            is_origin=self._is_origin,
            start=self.link.start,
            round_trip=self._round_trip,
            may_skip=self._may_skip,
            seizures=self._seizures,
            on_overtaken=self.overtake,
        )
        self._group.create_task(lane.run())
        return lane

    def _is_origin(self, topic: str) -> bool:
        facts = self._catalog.facts(topic)
        return facts is not None and facts.fixed_holder == self.link.from_

    # ---- shown

    @property
    def followed(self) -> int:
        return len(self._lanes)

    def snapshot(self) -> dict[str, Any]:
        """This link as JSON-ready values."""
        return {
            "name": self.name,
            "from": self.link.from_,
            "to": self.link.to,
            "when": self.link.when,
            **self._standing.as_json(),
            "logs": sum(self.topics.values()),
            "followed": self.followed,
            **self.counters.as_json(),
            "lag": self._lanes.lag() if self.is_up else None,
            "last_error": self._standing.last_error,
            "certificate_ends": self.cluster.pool.certificate_ends if self.cluster is not None else None,
            "groups": self._groups.snapshot() if self._groups is not None else None,
        }


async def _round_trip(cluster: Cluster) -> float:
    """Seconds for the smallest question to the cluster and its answer."""
    began = time.monotonic()
    await cluster.ask_metadata(())
    return time.monotonic() - began


def _first(group: BaseExceptionGroup[FairleadError]) -> FairleadError:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            return _first(error)
        return error
    raise AssertionError("an exception group is never empty")
