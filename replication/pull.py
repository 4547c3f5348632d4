"""One link: connect to the source, find its logs, fetch by priority class; try again when the source is away.

A link knows nothing of other links. What it carries is offered to the plan, which says what to follow here.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from fairlead.endpoint import KafkaEndpoint
from fairlead.errors import FairleadError
from fairlead.wire.cluster import Cluster
from replication.lane import Counters, Lane
from replication.plan import Catalog
from replication.rate import LinkBudget
from replication.replica import Replica
from replication.states import LinkState, LogState, Trouble, now
from replication.writer import Writer
from topologies.model import Link, Priority

log = logging.getLogger(__name__)

REQUEST_TIMEOUT: Final = 10.0
BACKOFF: Final = (0.25, 0.5, 1.0, 2.0, 4.0)
REFRESH: Final = (1.0, 30.0)  # seconds between two looks for new logs
QUIET: Final = (10.0, 3.0)  # after this many seconds without a new one: this many seconds at least
LOOK_AGAIN: Final = 0.25
REFRESH_PER_TOPIC: Final = 0.002  # seconds for each topic there: looking stays below 1 % of a core


class Pull:
    """One link's fetching side."""

    def __init__(
        self,
        link: Link,
        catalog: Catalog,
        *,
        endpoint: Callable[[], KafkaEndpoint],
        on_change: Callable[[], None],
    ) -> None:
        """``endpoint`` is asked at every attempt: addresses and passwords may change while a link is down."""
        self.link = link
        self.name = link.name
        self.counters = Counters()
        self.ends: dict[str, int] = {}
        self.logs: frozenset[str] = frozenset()  # what the source has of this link's streams
        self.troubles: dict[str, Trouble] = {}  # logs that cannot be had from this source
        self.state = LinkState.CONNECTING
        self.since: dt.datetime = now()
        self.cause = ""
        self.last_error = ""
        self._catalog = catalog
        self._endpoint = endpoint
        self._writer: Writer | None = None
        self._on_change = on_change
        self._expected: set[str] = set()
        self._look = asyncio.Event()
        self._budget = LinkBudget(link.rate, now=time.monotonic())
        self._ids: dict[str, uuid.UUID] = {}  # of every topic seen at the source
        self._taken: set[str] = set()  # those of them that the link takes
        self._lanes: dict[Priority, Lane] = {}
        self._group: asyncio.TaskGroup | None = None
        self._allowed = asyncio.Event()
        self._forbidden = asyncio.Event()
        self._forbidden.set()
        self.cluster: Cluster | None = None

    @property
    def is_up(self) -> bool:
        return self.state is LinkState.MIRRORING

    def allow(self, allowed: bool) -> None:
        """Whether the link's policy lets it be used now."""
        if allowed:
            self._forbidden.clear()
            self._allowed.set()
        else:
            self._allowed.clear()
            self._forbidden.set()

    def follow(self, replicas: Mapping[str, Replica]) -> None:
        """Fetch exactly these logs here."""
        for lane in self._lanes.values():
            for topic in lane.topics:
                if topic not in replicas:
                    lane.unfollow(topic)
        for replica in replicas.values():
            lane_of = self._lanes.get(replica.priority)
            if lane_of is None:
                lane_of = self._open_lane(replica.priority)
            if lane_of is not None:
                lane_of.follow(replica)

    def trouble(self, topic: str, state: LogState, cause: str) -> None:
        """This log cannot be had from here; the plan looks for another source."""
        known = self.troubles.get(topic)
        if known is None or known.state is not state:
            log.error("%s %s: %s", topic, state, cause)
            self.troubles[topic] = Trouble(state, cause, now(), self.name)
            self._on_change()

    def expect(self, topics: Collection[str]) -> None:
        """Other sites' logs have these names by now: look at once whether the source has them, too."""
        new = {each for each in topics if each not in self._expected and each not in self._ids}
        if any(self._catalog.takes(self.link, each) for each in new):
            self._look.set()
        self._expected |= new

    def forgive(self) -> None:
        """Try again what was only unavailable."""
        for topic in [topic for topic, each in self.troubles.items() if each.state is LogState.UNAVAILABLE]:
            del self.troubles[topic]

    # ---- running

    async def run(self, writer: Writer) -> None:
        """Keep the link going until cancelled, appending through ``writer``."""
        self._writer = writer
        failures = 0
        while True:
            if not self._allowed.is_set():
                if self.link.when == "berthed":
                    self._enter(LinkState.CLOSED, "the ship is not at this berth")
                failures = 0
                await self._allowed.wait()
                self._enter(LinkState.CONNECTING)
            began = time.monotonic()
            try:
                await self._until_forbidden(self._connected())
                continue
            except* FairleadError as group:
                error = _first(group)
                if time.monotonic() - began > BACKOFF[-1]:
                    failures = 0
                self.last_error = error.what
                self._enter(LinkState.UNAVAILABLE, error.what)
            wait = BACKOFF[min(failures, len(BACKOFF) - 1)]
            failures += 1
            await self._until_forbidden(asyncio.sleep(wait))

    async def _until_forbidden(self, work: Any) -> None:
        """Do the work, but stop it when the link's policy forbids the link."""
        task = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(self._forbidden.wait())
        try:
            await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        if not task.cancelled():
            task.result()

    async def _connected(self) -> None:
        try:
            client = f"fairlead-replicator.{self.link.to}"
            async with await Cluster.open(
                self._endpoint(), client_id=client, request_timeout=REQUEST_TIMEOUT
            ) as cluster:
                self.cluster = cluster
                async with asyncio.TaskGroup() as group:
                    self._group = group
                    group.create_task(self._discover(cluster))
        finally:
            self.cluster = self._group = None
            self._lanes.clear()
            self._on_change()

    async def _discover(self, cluster: Cluster) -> None:
        """Look for new logs at the source, about every second, less often where there are very many."""
        news = time.monotonic()
        while True:
            found = await cluster.topics(refresh=True)
            for topic, info in found.items():
                known = self._ids.get(topic)
                if known == info.topic_id:
                    continue
                self._ids[topic] = info.topic_id
                if not self._catalog.takes(self.link, topic):
                    continue
                self._taken.add(topic)
                if known is not None:
                    self.trouble(topic, LogState.SOURCE_RECREATED, f"{self.name}: the source's topic was made anew")
                elif len(info.partitions) != 1:
                    self.trouble(topic, LogState.QUARANTINED, f"a log has one partition, not {len(info.partitions)}")
            logs = frozenset(self._taken & found.keys())
            if logs != self.logs or not self.is_up:
                news = time.monotonic()
                self.logs = logs
                self._enter(LinkState.MIRRORING)
                self._on_change()
            await asyncio.sleep(LOOK_AGAIN)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._look.wait(), refresh_pause(len(found), time.monotonic() - news))
            self._look.clear()

    def _open_lane(self, priority: Priority) -> Lane | None:
        if self._group is None or self.cluster is None or self._writer is None:
            return None
        lane = self._lanes[priority] = Lane(
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
        )
        self._group.create_task(lane.run())
        return lane

    def _is_origin(self, topic: str) -> bool:
        facts = self._catalog.facts(topic)
        return facts is not None and facts.fixed_holder == self.link.from_

    def _enter(self, state: LinkState, cause: str = "") -> None:
        if (state, cause) == (self.state, self.cause):
            return
        if state is LinkState.UNAVAILABLE and self.state is not state:
            log.warning("%s %s: %s", self.name, state, cause)
        if state is not self.state:
            self.since = now()
        self.state, self.cause = state, cause

    # ---- shown

    @property
    def followed(self) -> int:
        return sum(len(lane.topics) for lane in self._lanes.values())

    def snapshot(self) -> dict[str, Any]:
        """This link as JSON-ready values."""
        return {
            "name": self.name,
            "from": self.link.from_,
            "to": self.link.to,
            "when": self.link.when,
            "state": str(self.state),
            "since": self.since.isoformat(timespec="milliseconds"),
            "cause": self.cause,
            "logs": len(self.logs),
            "followed": self.followed,
            "records": self.counters.records,
            "batches": self.counters.batches,
            "bytes": self.counters.bytes,
            "fetched_bytes": self.counters.fetched_bytes,
            "lag": sum(lane.lag() for lane in self._lanes.values()) if self.is_up else None,
            "last_error": self.last_error,
        }


def refresh_pause(topics: int, quiet: float) -> float:
    """Seconds to wait before a cluster with this many topics, ``quiet`` seconds without news, is asked again."""
    least = QUIET[1] if quiet > QUIET[0] else REFRESH[0]
    return min(max(topics * REFRESH_PER_TOPIC, least), REFRESH[1])


def _first(group: BaseExceptionGroup[FairleadError]) -> FairleadError:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            return _first(error)
        return error
    raise AssertionError("an exception group is never empty")
