"""Run one link: connect to the source, list its logs, fetch them by priority class, and reconnect.

A link does not know other links. It lists its source's logs; the planner decides which of them it follows.
``LinkGate`` stops the link's work as soon as its policy or an operator forbids it.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, Final

from fairlead.errors import FairleadError
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.metadata import NO_LEADER, TopicChanges
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.errors import RequestTimeout
from fairlead.kafka.protocol.types import TopicPartition
from fairlead.waiting import Patience, wait_set
from replication.changes import PlanChanges
from replication.groups.sync import GroupSync
from replication.link.byte_budget import refresh_pause
from replication.link.cut_off import SourceRules
from replication.link.fetcher import Fetcher, FetcherManager
from replication.link.link_logs import Elsewhere, LinkLogs
from replication.states import LinkState, LogState, now
from replication.target.appender import TargetAppender
from replication.target.mirror import MirrorPartition
from topologies.model import Link, Priority

log = logging.getLogger(__name__)


class LinkStatus:
    """The state of one link, for the status file. ``cause`` is empty if the state needs none."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.state = LinkState.CONNECTING
        self.since: dt.datetime = now()
        self.cause = ""
        self.last_error = ""  # kept after the link has recovered

    def set_state(self, state: LinkState, cause: str = "") -> None:
        """Set state and cause; ``since`` changes only with the state."""
        if (state, cause) == (self.state, self.cause):
            return
        if state is LinkState.UNAVAILABLE and self.state is not state:
            log.warning("%s %s: %s", self._name, state, cause)
        if state is not self.state:
            self.since = now()
        self.state, self.cause = state, cause

    def set_unavailable(self, cause: str) -> None:
        """Set the link to unavailable."""
        self.last_error = cause
        self.set_state(LinkState.UNAVAILABLE, cause)

    def as_json(self) -> dict[str, str]:
        return {
            "state": str(self.state),
            "since": self.since.isoformat(timespec="milliseconds"),
            "cause": self.cause,
        }


class LinkGate:
    """Whether a link may be used now; closed at first.

    ``closed_as`` is the state that the link shows while the gate is closed, and the cause.
    """

    def __init__(self) -> None:
        self.closed_as: tuple[LinkState, str] = (LinkState.CLOSED, "")
        self._open = asyncio.Event()
        self._closed = asyncio.Event()
        self._closed.set()

    @property
    def is_open(self) -> bool:
        return self._open.is_set()

    def open(self) -> None:
        self._closed.clear()
        self._open.set()

    def close(self, state: LinkState, cause: str) -> None:
        """Stop the link's work because its policy (``CLOSED``) or an operator (``PAUSED``) forbids it now."""
        self.closed_as = state, cause
        self._open.clear()
        self._closed.set()

    async def wait_open(self) -> None:
        """Wait until the gate is open."""
        await self._open.wait()

    async def run_while_open(self, work: Awaitable[None]) -> None:
        """Run ``work``; cancel it when the gate closes. Raises what the work raises."""
        task = asyncio.ensure_future(work)
        closed = asyncio.ensure_future(self._closed.wait())
        try:
            await asyncio.wait({task, closed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            closed.cancel()
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        if not task.cancelled():
            task.result()


REQUEST_TIMEOUT: Final = 10.0
BACKOFF: Final = (0.25, 0.5, 1.0, 2.0, 4.0)
REFRESH_AFTER: Final = 0.25
BYTES_PER_LOG: Final = 60  # in a request for a log's offsets; on a thin link one request takes about a second
LEAST_LOGS: Final = 40


class SourceLink:
    """One link's fetching side."""

    def __init__(
        self,
        link: Link,
        rules: SourceRules,
        endpoint: Callable[[], KafkaEndpoint],
        changes: PlanChanges,
        groups: GroupSync | None = None,
    ) -> None:
        """``endpoint`` is called at every attempt to connect, since addresses and passwords may change meanwhile.
        ``changes`` gets the topics that must be planned again."""
        self.link = link
        self.name = link.name
        self.rules = rules
        self.logs = LinkLogs(link, rules, changes)
        self._status = LinkStatus(link.name)
        self._endpoint = endpoint
        self._appender: TargetAppender | None = None
        self._changes = changes
        self._groups = groups
        self._expected: set[str] = set()
        self._ids: dict[str, bytes] = {}  # topic ids at the source
        self._fetchers = FetcherManager(self._open_fetcher, thin=link.rate is not None, leader=self._leader_of)
        self._group: asyncio.TaskGroup | None = None
        self._gate = LinkGate()
        self.cluster: Cluster | None = None
        self._round_trip = 0.0
        self._patience = Patience(REQUEST_TIMEOUT)

    @property
    def is_up(self) -> bool:
        return self._status.state is LinkState.MIRRORING

    @property
    def is_coming(self) -> bool:
        """Whether the link is connecting and its source is not known to be away."""
        return self._gate.is_open and self._status.state not in (LinkState.MIRRORING, LinkState.UNAVAILABLE)

    def allow(self) -> None:
        """Open the link's gate."""
        self._gate.open()

    def forbid(self, state: LinkState, cause: str) -> None:
        """Close the link's gate because its policy (``CLOSED``) or an operator (``PAUSED``) forbids its use."""
        self._gate.close(state, cause)
        if self._status.state in (LinkState.CLOSED, LinkState.PAUSED):
            self._status.set_state(state, cause)

    def follow(self, replicas: Mapping[TopicPartition, MirrorPartition]) -> None:
        """Fetch these logs over this link, too."""
        self._fetchers.follow(replicas, self.rules.priority)

    def unfollow(self, logs: Iterable[TopicPartition]) -> None:
        """Stop fetching these logs."""
        for tp in logs:
            self._fetchers.unfollow(tp)

    def clear_recreated(self, logs: Iterable[TopicPartition]) -> None:
        """Copy the source's new topics of those logs of which the target has no copy that could differ."""
        for tp in logs:
            if self.logs.troubles[tp].state is LogState.SOURCE_RECREATED:
                del self.logs.troubles[tp]
                self._fetchers.unfollow(tp)  # what is known is of the old topic
                self.logs.ends.pop(tp, None)

    def _on_recreated(self, tp: TopicPartition) -> None:
        """Act on a log whose topic the source has deleted and created again. After a seizure the source has rebuilt
        its copy: forget what is known, and compare with the new topic."""
        if not self.rules.seizures(tp.topic):
            cause = f"{self.name}: the source's topic was deleted and created again"
            self.logs.stop_log(tp, LogState.SOURCE_RECREATED, cause)
            return
        self.logs.ends.pop(tp, None)
        if self._fetchers.unfollow(tp):
            self.logs.relist.set()
            asyncio.get_running_loop().call_later(REFRESH_AFTER, self.logs.replan, tp.topic)

    def charge(self, count: int) -> None:
        """Account for bytes of background requests; data of later classes waits for them."""
        self.logs.budget.charge(Priority.NORMAL, count, time.monotonic())

    def expect_topics(self, topics: Collection[str]) -> None:
        """List the source's topics at once if new ones among ``topics`` may be carried over this link."""
        new = {each for each in topics if each not in self._expected and each not in self._ids}
        if any(self.rules.may_carry(each) for each in new):
            self.logs.relist.set()
        self._expected |= new

    def retry_unavailable(self) -> None:
        """Try logs again whose state is ``unavailable``, once the plan has stopped them: a fetcher that still has such
        a log would not begin it again."""
        stopped = [tp for tp, each in self.logs.troubles.items() if each.state is LogState.UNAVAILABLE]
        again = [tp for tp in stopped if tp not in self._fetchers]
        for tp in again:
            del self.logs.troubles[tp]
        if again:
            self._changes.add(tp.topic for tp in again)

    # ---- running

    async def run(self, appender: TargetAppender, elsewhere: Elsewhere) -> None:
        """Run the link until cancelled. ``elsewhere`` returns the logs that other links should bring first."""
        self._appender, self.logs.elsewhere = appender, elsewhere
        failures = 0
        while True:
            if not self._gate.is_open:
                self._status.set_state(*self._gate.closed_as)
                failures = 0
                await self._gate.wait_open()
                self._status.set_state(LinkState.CONNECTING)
            began = time.monotonic()
            try:
                await self._gate.run_while_open(self._connected())
                continue
            except* FairleadError as group:
                if time.monotonic() - began > BACKOFF[-1]:
                    failures = 0
                if group.subgroup(RequestTimeout) is not None:
                    self._patience.note_late()
                self._status.set_unavailable(_first(group).what)
            wait = BACKOFF[min(failures, len(BACKOFF) - 1)]
            failures += 1
            await self._gate.run_while_open(asyncio.sleep(wait))

    async def _connected(self) -> None:
        try:
            client = f"fairlead-replicator.{self.link.to}"
            async with await Cluster.open(
                self._endpoint(), client_id=client, request_timeout=self._patience.seconds
            ) as cluster:
                if self.logs.budget.rate is not None:
                    cluster.logs_per_request = max(LEAST_LOGS, self.logs.budget.rate // BYTES_PER_LOG)
                self.cluster = cluster
                self._round_trip = await _round_trip(cluster)
                async with asyncio.TaskGroup() as group:
                    self._group = group
                    group.create_task(self._discover(cluster))
                    if self._groups is not None:
                        group.create_task(self._groups.run(self.charge if self.link.rate is not None else None))
        finally:
            self.cluster = self._group = None
            self._on_lost()

    def _on_lost(self) -> None:
        self._fetchers.clear()
        self.logs.unserved.clear()
        self._changes.add(self._known_topics())

    def _known_topics(self) -> set[str]:
        """Return the topics whose plan depends on this link, also those that the source no longer has."""
        return {*self.logs.topics, *(tp.topic for tp in self.logs.cut_off), *(tp.topic for tp in self.logs.beyond)}

    async def _discover(self, cluster: Cluster) -> None:
        """List the source's topics every few seconds (``refresh_pause``)."""
        news = time.monotonic()
        while True:
            asked = time.monotonic()
            found = await cluster.topic_changes()
            took = time.monotonic() - asked
            self.charge(cluster.whole_bytes)
            if self._on_listing(found):
                news = time.monotonic()
            await asyncio.sleep(REFRESH_AFTER)
            quiet = time.monotonic() - news
            soon = not self.rules.are_announced
            pause = refresh_pause(cluster.whole_bytes, quiet, self.logs.budget.rate, soon=soon, took=took)
            await wait_set(self.logs.relist, pause)
            self.logs.relist.clear()

    def _on_listing(self, found: TopicChanges | None) -> bool:
        """Act on a listing of the source's topics, None for one without changes; True if it has news for the plan."""
        changed = self._update_topics(found) if found is not None else set()
        if self.is_up and not changed:
            return False
        self._changes.add(changed if self.is_up else {*changed, *self._known_topics()})
        self._status.set_state(LinkState.MIRRORING)
        return True

    def _update_topics(self, found: TopicChanges) -> set[str]:
        """Update the source's topics; return those of this link that are new, gone or different."""
        gone = found.lost(self.logs.topics.keys())
        for topic in gone:
            del self.logs.topics[topic]
        changed = set(gone)
        for topic, info in found.topics.items():
            if not self.rules.may_carry(topic):
                continue
            if self.logs.topics.get(topic) != len(info.partitions):
                self.logs.topics[topic] = len(info.partitions)
                changed.add(topic)
            known = self._ids.get(topic)
            self._ids[topic] = info.topic_id
            if known not in (None, info.topic_id):
                for tp in map(TopicPartition, [topic] * len(info.partitions), info.partitions):
                    self.logs.cut_off.pop(tp, None)
                    self.logs.beyond.pop(tp, None)
                    self._on_recreated(tp)
                changed.add(topic)
        return changed

    def _leader_of(self, tp: TopicPartition) -> int:
        return self.cluster.metadata.leader(tp) if self.cluster is not None else NO_LEADER

    def _open_fetcher(self, priority: Priority) -> Fetcher | None:
        """Open a fetcher of this class; None while the link is down, or its connection ends."""
        if self._group is None or self.cluster is None or self._appender is None:
            return None
        fetcher = Fetcher(self.logs, priority, self.cluster, self._appender, self._round_trip)
        work = fetcher.run()
        try:
            self._group.create_task(work)
        except RuntimeError:  # the group takes no more tasks: it is ending
            work.close()
            return None
        return fetcher

    # ---- shown

    @property
    def followed(self) -> int:
        return len(self._fetchers)

    def snapshot(self) -> dict[str, Any]:
        """This link as JSON-ready values."""
        return {
            "name": self.name,
            "from": self.link.from_,
            "to": self.link.to,
            "when": self.link.when,
            **self._status.as_json(),
            "logs": sum(self.logs.topics.values()),
            "followed": self.followed,
            **self.logs.counters.as_json(),
            "lag": self._fetchers.lag() if self.is_up else None,
            "last_error": self._status.last_error,
            "certificate_ends": self.cluster.pool.certificate_ends if self.cluster is not None else None,
            "groups": self._groups.snapshot() if self._groups is not None else None,
        }


async def _round_trip(cluster: Cluster) -> float:
    """Measure how many seconds the cluster's smallest request takes."""
    began = time.monotonic()
    await cluster.ask_metadata(())
    return time.monotonic() - began


def _first(group: BaseExceptionGroup[FairleadError]) -> FairleadError:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            return _first(error)
        return error
    raise AssertionError("an exception group is never empty")
