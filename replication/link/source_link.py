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
from dataclasses import dataclass
from typing import Any, Final

from fairlead.custody.view import Seizure
from fairlead.errors import FairleadError
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.metadata import NO_LEADER, TopicChanges
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.errors import RequestTimeout, broker_error
from fairlead.kafka.protocol.types import TopicPartition
from fairlead.waiting import Patience, wait_set
from replication.batch.prepared import PreparedBatch
from replication.catalog import SourceReach
from replication.changes import PlanChanges
from replication.groups.sync import GroupSync
from replication.link.byte_budget import LinkBudget, refresh_pause
from replication.link.cut_off import SourceRules
from replication.link.fetcher import Fetcher, FetcherManager
from replication.states import LinkState, LogState, LogTrouble, TroubleTeller, now, unavailable
from replication.target.appender import TargetAppender
from replication.target.mirror import MirrorPartition
from topologies.model import Link, Priority

log = logging.getLogger(__name__)


Elsewhere = Callable[[Mapping[TopicPartition, int]], Awaitable[Collection[TopicPartition]]]
"""Returns those logs that another link should bring before a link brings them from these offsets on."""


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


@dataclass(slots=True)
class Counters:
    """Shared by all fetchers of a link."""

    records: int = 0
    batches: int = 0
    bytes: int = 0  # of batches appended to the target
    fetched_bytes: int = 0  # over the link, including batches that another link had brought already

    def add_batch(self, prepared: PreparedBatch) -> None:
        """Count a batch that was appended."""
        self.records += prepared.records
        self.batches += 1
        self.bytes += len(prepared.data)

    def as_json(self) -> dict[str, int]:
        return {
            "records": self.records,
            "batches": self.batches,
            "bytes": self.bytes,
            "fetched_bytes": self.fetched_bytes,
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
        self.counters = Counters()
        self.ends: dict[TopicPartition, int] = {}
        self.topics: dict[
            str, int
        ] = {}  # the source's topics that this link may carry, with their number of partitions
        self.troubles: dict[TopicPartition, LogTrouble] = {}  # logs that cannot be copied from this source
        self.unserved: dict[TopicPartition, LogTrouble] = {}  # followed logs that no broker of the source serves now
        self._teller = TroubleTeller(log)
        self.cut_off: dict[TopicPartition, LogTrouble] = {}  # logs whose history at this source a seizure cut off
        self.beyond: dict[
            TopicPartition, tuple[SourceReach, LogTrouble]
        ] = {}  # logs that continue beyond what the source may write
        self._status = LinkStatus(link.name)
        self._endpoint = endpoint
        self._appender: TargetAppender | None = None
        self._changes = changes
        self._groups = groups
        self.rules = rules
        self._elsewhere: Elsewhere | None = None
        self._expected: set[str] = set()
        self._refresh = asyncio.Event()
        self.budget = LinkBudget(link.rate, now=time.monotonic())
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

    def stop_log(self, tp: TopicPartition, state: LogState, cause: str, hint: str = "") -> None:
        """Stop copying a log over this link; the plan looks for another source. ``hint``: what ends the cause."""
        if state is LogState.SOURCE_RECREATED and self.rules.seizures(tp.topic):
            self._on_recreated(tp)  # the source rebuilt its copy after a seizure: compare with the new topic
            return
        known = self.troubles.get(tp)
        if known is None or known.state is not state:
            self._teller.tell(tp, state, cause)
            self.troubles[tp] = LogTrouble(state, cause, now(), self.name, hint)
            self.replan(tp.topic)

    def show_unserved(self, tp: TopicPartition, code: int) -> None:
        """Show that no broker of the source serves a log, and the last error. It goes on being asked for; another link
        that has the log brings it meanwhile."""
        known, error = self.unserved.get(tp), broker_error(code, tp)
        cause = f"{self.name}: no broker of the source serves it: {error.what}"
        if known is None or known.cause != cause:
            self._teller.tell(tp, LogState.UNAVAILABLE, cause)
            self.unserved[tp] = unavailable(cause, known, link=self.name, hint=error.hint)
        if known is None:
            self.replan(tp.topic)

    def show_served(self, tp: TopicPartition) -> None:
        """Show that a broker of the source serves a log now, and have it planned again."""
        if self.unserved.pop(tp, None) is not None:
            self.replan(tp.topic)

    def mark_cut_off(self, tp: TopicPartition, seizure: Seizure) -> None:
        """Stop copying a log whose history here was cut off by a seizure, until the source has rebuilt it."""
        if tp not in self.cut_off:
            cause = (
                f"{self.name}: the source's records from offset {seizure.marker} on were cut off by the seizure by "
                f"{seizure.to_site}; copied again when the source has rebuilt its copy"
            )
            log.info("%s: %s", tp, cause)
            self.cut_off[tp] = LogTrouble(LogState.UNAVAILABLE, cause, now(), self.name)
            self.replan(tp.topic)

    def clear_cut_off(self, logs: Iterable[TopicPartition]) -> None:
        """Copy logs again that the target no longer has: it needs what lies before the seizure."""
        for tp in logs:
            del self.cut_off[tp]

    def clear_recreated(self, logs: Iterable[TopicPartition]) -> None:
        """Copy the source's new topics of those logs of which the target has no copy that could differ."""
        for tp in logs:
            if self.troubles[tp].state is LogState.SOURCE_RECREATED:
                del self.troubles[tp]
                self._fetchers.unfollow(tp)  # what is known is of the old topic
                self.ends.pop(tp, None)

    def refuse_log(self, tp: TopicPartition, reach: SourceReach, problem: str) -> None:
        """Stop copying a log that continues beyond what the source may write, until its right changes."""
        known = self.beyond.get(tp)
        if known is None or known[0] != reach:
            cause = f"{self.name}: {problem}, by this site's ledgers; nothing more is copied from {self.link.from_}"
            log.log(logging.WARNING if reach.stop is None else logging.INFO, "%s: %s", tp, cause)
            self.beyond[tp] = reach, LogTrouble(LogState.UNAVAILABLE, cause, now(), self.name)
            self.replan(tp.topic)

    def replan(self, topic: str) -> None:
        """Have a log planned again: another source may have what comes next."""
        self._changes.add([topic])

    @property
    def start(self) -> str:
        return self.link.start

    async def brought_first(self, logs: Mapping[TopicPartition, int]) -> Collection[TopicPartition]:
        """Return the logs that another link should copy before this link copies them from these offsets on."""
        return await self._elsewhere(logs) if self._elsewhere is not None else ()

    def may_give(self, tp: TopicPartition) -> bool:
        """Return whether a log that this link carries can be copied from here now."""
        known = self.beyond.get(tp)
        if known is not None and self.rules.reach(tp.topic) != known[0]:
            del self.beyond[tp]
        return tp not in self.troubles and tp not in self.cut_off and tp not in self.beyond

    def _on_recreated(self, tp: TopicPartition) -> None:
        """Forget what is known about a log, because the source has a new topic of this name."""
        self.ends.pop(tp, None)
        if self._fetchers.unfollow(tp):
            self._refresh.set()
            asyncio.get_running_loop().call_later(REFRESH_AFTER, self.replan, tp.topic)

    def charge(self, count: int) -> None:
        """Account for bytes of background requests; data of later classes waits for them."""
        self.budget.charge(Priority.NORMAL, count, time.monotonic())

    def expect_topics(self, topics: Collection[str]) -> None:
        """List the source's topics at once if new ones among ``topics`` may be carried over this link."""
        new = {each for each in topics if each not in self._expected and each not in self._ids}
        if any(self.rules.may_carry(each) for each in new):
            self._refresh.set()
        self._expected |= new

    def retry_unavailable(self) -> None:
        """Try logs again whose state is ``unavailable``, once the plan has stopped them: a fetcher that still has such
        a log would not begin it again."""
        stopped = [tp for tp, each in self.troubles.items() if each.state is LogState.UNAVAILABLE]
        again = [tp for tp in stopped if tp not in self._fetchers]
        for tp in again:
            del self.troubles[tp]
        if again:
            self._changes.add(tp.topic for tp in again)

    # ---- running

    async def run(self, appender: TargetAppender, elsewhere: Elsewhere) -> None:
        """Run the link until cancelled. ``elsewhere`` returns the logs that other links should bring first."""
        self._appender, self._elsewhere = appender, elsewhere
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
                if self.budget.rate is not None:
                    cluster.logs_per_request = max(LEAST_LOGS, self.budget.rate // BYTES_PER_LOG)
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
        self.unserved.clear()
        self._changes.add(self._known_topics())

    def _known_topics(self) -> set[str]:
        """Return the topics whose plan depends on this link, also those that the source no longer has."""
        return {*self.topics, *(tp.topic for tp in self.cut_off), *(tp.topic for tp in self.beyond)}

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
            pause = refresh_pause(cluster.whole_bytes, quiet, self.budget.rate, soon=soon, took=took)
            await wait_set(self._refresh, pause)
            self._refresh.clear()

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
        gone = found.lost(self.topics.keys())
        for topic in gone:
            del self.topics[topic]
        changed = set(gone)
        for topic, info in found.topics.items():
            if not self.rules.may_carry(topic):
                continue
            if self.topics.get(topic) != len(info.partitions):
                self.topics[topic] = len(info.partitions)
                changed.add(topic)
            known = self._ids.get(topic)
            self._ids[topic] = info.topic_id
            if known not in (None, info.topic_id):
                for tp in map(TopicPartition, [topic] * len(info.partitions), info.partitions):
                    self.cut_off.pop(tp, None)
                    self.beyond.pop(tp, None)
                    cause = f"{self.name}: the source's topic was deleted and created again"
                    self.stop_log(tp, LogState.SOURCE_RECREATED, cause)
                changed.add(topic)
        return changed

    def _leader_of(self, tp: TopicPartition) -> int:
        return self.cluster.metadata.leader(tp) if self.cluster is not None else NO_LEADER

    def _open_fetcher(self, priority: Priority) -> Fetcher | None:
        """Open a fetcher of this class; None while the link is down, or its connection ends."""
        if self._group is None or self.cluster is None or self._appender is None:
            return None
        fetcher = Fetcher(self, priority, self.cluster, self._appender, self._round_trip)
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
            "logs": sum(self.topics.values()),
            "followed": self.followed,
            **self.counters.as_json(),
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
