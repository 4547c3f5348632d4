"""The bridge of one site: every message from MQTT ends in a log, and is acknowledged when it is there.

    MqttSession -> Intake (Classifier) -> the lane of the message's log -> Appender (acks=all) -> acknowledgement
                                          or dead letters, strays; alerts leave before the reading that caused them

One event loop, no threads but for the TCP connect and the creation of topics.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from edge.acks import Ticket
from edge.classifier import Classifier
from edge.completion import Completion
from edge.custodian import Custodian
from edge.detection.watch import Watch
from edge.drain import Drainer
from edge.errors import FixedLogError
from edge.follower import Follower
from edge.handwork import Handwork
from edge.holdings import Custody, Holdings
from edge.intake import DROPPED, Intake
from edge.lane import Control
from edge.lanes import SiteLanes
from edge.logs import custody_logs, fixed_logs
from edge.markers import Markers
from edge.messages import SUBSCRIPTION
from edge.metrics import Metrics, write_snapshot
from edge.movements import Movements
from edge.mqtt import MqttSession
from edge.opening import TopicMaker, connect, open_fixed_logs, recall, recall_strays
from edge.patience import patiently
from edge.receiver import Receiver
from edge.returns import Returns
from edge.strayage import LIMIT, StrayAge
from edge.tails import Tails
from fairlead.custody import CustodyView
from fairlead.endpoint import KafkaEndpoint, MqttEndpoint
from fairlead.records.custody import CUSTODY_ORDERS, LedgerEntry
from fairlead.wire.appender import Appender
from fairlead.wire.errors import WireError
from topologies.model import SiteKind, Topology

log = logging.getLogger(__name__)

T = TypeVar("T")

_SHUTDOWN_PATIENCE = 10.0
_SNAPSHOT_EVERY = 1.0


class Bridge:
    """One site's bridge.

    Args:
        kafka, mqtt: The site's brokers, seen by the user ``bridge``.
        snapshot: File that gets the metrics every second; None for none.
        client_id: Fixed, because the MQTT broker keeps the session under it.
        stray_limit: Seconds that a stray may wait before an alert is raised.

    Raises:
        ConfigurationError: the topology has no streams for a bridge.
    """

    def __init__(
        self,
        topology: Topology,
        site: str,
        kafka: KafkaEndpoint,
        mqtt: MqttEndpoint,
        *,
        snapshot: Path | None = None,
        client_id: str | None = None,
        stray_limit: float = LIMIT,
    ) -> None:
        self.site = site
        self.metrics = Metrics()
        self.ready = asyncio.Event()  # set once messages are taken
        self._topology = topology
        self._logs = fixed_logs(topology, site)
        self._kafka = kafka
        self._mqtt = mqtt
        self._snapshot = snapshot
        self._client_id = client_id or f"fairlead-bridge-{site}"
        self._holdings = Holdings(site, CustodyView())
        self._watch = Watch(site) if topology.sites[site].kind is SiteKind.SHIP else None
        self._started = time.monotonic()
        self._session: MqttSession | None = None
        self._lanes: SiteLanes | None = None
        self._completion: Completion | None = None
        self._drainer: Drainer | None = None
        self._movements: Movements | None = None
        self._stray_limit = stray_limit
        self._failure: asyncio.Future[None] | None = None

    def snapshot(self) -> dict[str, Any]:
        """What the bridge has done and how it is, JSON-ready."""
        session, lanes = self._session, self._lanes
        return {
            "site": self.site,
            "uptime_s": round(time.monotonic() - self._started, 1),
            "ready": self.ready.is_set(),
            **self.metrics.snapshot(),
            "acked": session.acknowledged if session else 0,
            "unacked": session.outstanding if session else 0,
            "mqtt_connected": bool(session and session.connected.is_set()),
            "mqtt_connections": session.connections if session else 0,
            "mqtt_sessions_lost": session.sessions_lost if session else 0,
            "strays_waiting": lanes.strays.index.waiting if lanes else 0,
            "events_waiting": sum(map(len, lanes.strays.events.values())) if lanes else 0,
            "custody": self._holdings.counts(),
        }

    async def run(self, stop: asyncio.Event) -> None:
        """Work until ``stop`` is set, then finish what is under way.

        A broker that is away is waited for. Raises what waiting cannot mend: a refused login, or one of the site's own
        logs that cannot be appended to (``FixedLogError``).
        """
        self._failure = asyncio.get_running_loop().create_future()
        async with contextlib.AsyncExitStack() as stack:
            parts = await _unless(stop, self._open(stack))
            if parts is not None:
                await self._work(parts, stop)

    async def _open(self, stack: contextlib.AsyncExitStack) -> _Parts:
        """Connect to Kafka and remember what its logs hold; no message is taken yet."""
        cluster = await connect(self._kafka, self._client_id)
        stack.push_async_callback(cluster.close)
        appender = Appender(cluster)
        stack.push_async_callback(appender.close)
        urgent = Appender(cluster, linger=0)  # alerts wait for nobody's batch; no log is written by both
        stack.push_async_callback(urgent.close)
        tails = Tails(cluster)
        stack.push_async_callback(tails.close)

        logs = self._logs
        maker = TopicMaker(self._kafka, cluster)
        await patiently(lambda: open_fixed_logs(maker, appender, logs, self.site), f"{self.site}: opening its logs")
        lanes = SiteLanes(
            logs,
            appender,
            urgent,
            tails,
            self._holdings,
            self.metrics,
            finish=self._finish,
            fail=self._fail,
            on_lost=self._lost_custody,
        )
        drainer = Drainer(tails, lanes.book, self._holdings, on_drained=self._count_drained)
        stack.push_async_callback(drainer.close)
        lanes.drain_with(drainer)
        markers = Markers(cluster)
        stack.push_async_callback(markers.close)
        custodian = Custodian(self._holdings, cluster, appender, lanes.book, lanes.ledger, maker.create, markers)
        stack.push_async_callback(custodian.close)
        completion = Completion(self._topology, self._holdings, cluster, appender, markers, custodian)
        returns = Returns(self.site, cluster, tails, self._holdings.view, lanes)
        age = StrayAge(self.site, lanes, limit=self._stray_limit)
        handwork = Handwork(self._topology, self._holdings, lanes, custodian, self.metrics, on_held=self._took_over)

        def own_entry(entry: LedgerEntry) -> None:
            returns.learn(entry)
            handwork.learn(entry)

        receiver = Receiver(
            cluster,
            appender,
            self._holdings,
            custodian,
            custody_logs(self._topology),
            on_own=own_entry,
            on_grant=lambda grant: lanes.book.passed_on(grant.log, grant.drained),
            on_held=self._took_over,
            on_lost=lambda topic: lanes.box(topic).unload(),
        )
        others = Follower(cluster, [topic for topic in logs.all_strays if topic != logs.strays], lanes.book.take)
        self._lanes, self._completion, self._drainer = lanes, completion, drainer
        for step in (
            lambda: recall(logs, lanes, self._watch, age, tails),
            receiver.catch_up,
            completion.complete,
            lambda: recall_strays(cluster, lanes, self._holdings.view),
            others.catch_up,
        ):
            await patiently(step, f"{self.site}: reading its logs")
        self._warn_of_lost_sites()

        intake = Intake(
            self.site,
            Classifier(self._topology, self.site),
            lanes,
            custodian,
            self._holdings,
            self.metrics,
            watch=self._watch,
            finish=self._finish,
        )
        self._movements = intake.movements
        for topic in lanes.book.logs():
            if self._holdings.state(topic) is Custody.HELD:
                self._took_over(topic)
        self._session = MqttSession(
            self._mqtt,
            client_id=self._client_id,
            subscriptions=[(SUBSCRIPTION, 1), (DROPPED, 0)],
            on_message=intake.take,
        )
        by_hand = Follower(cluster, [CUSTODY_ORDERS], handwork.take)
        work = {
            "mqtt": self._session.run,
            "ledgers": receiver.follow,
            "custody": receiver.take_over,
            "strays": others.follow,
            "orders": by_hand.follow,
            "events that wait": lambda: intake.movements.retry(Classifier(self._topology, self.site), tails),
            "returns": returns.run,
            "age of strays": age.run,
        }
        return _Parts(lanes, self._session, work)

    async def _work(self, parts: _Parts, stop: asyncio.Event) -> None:
        work = [asyncio.create_task(run(), name=f"{name} {self.site}") for name, run in parts.work.items()]
        work.append(asyncio.create_task(self._write_snapshots(), name=f"snapshot {self.site}"))
        announcing = asyncio.create_task(self._announce(parts.session))
        stopping = asyncio.create_task(stop.wait())
        ends: set[asyncio.Future[Any]] = {*work, stopping}
        if self._failure is not None:
            ends.add(self._failure)
        try:
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            parts.session.pause()
            for end in done:
                end.result()  # raises what went wrong
            await self._finish_up(parts.lanes)
        finally:
            self.ready.clear()
            with contextlib.suppress(OSError):
                await parts.session.disconnect()
            for task in (*work, announcing, stopping):
                task.cancel()
            await asyncio.gather(*work, announcing, stopping, return_exceptions=True)
            await asyncio.gather(*(lane.close() for lane in parts.lanes.all()))
            if self._snapshot is not None:
                write_snapshot(self._snapshot, self.snapshot())

    async def _finish_up(self, lanes: SiteLanes) -> None:
        """Store and acknowledge what has been taken; what Kafka does not take in time stays at the MQTT broker."""
        try:
            async with asyncio.timeout(_SHUTDOWN_PATIENCE):
                while busy := [lane for lane in lanes.all() if lane.busy]:
                    await asyncio.gather(*(lane.idle() for lane in busy))
        except TimeoutError:
            log.warning("%s: stopped with messages under way; the MQTT broker keeps them", self.site)

    async def _announce(self, session: MqttSession) -> None:
        await session.connected.wait()
        self.ready.set()
        log.info("%s: the bridge takes messages; it holds %d logs", self.site, self._holdings.counts()["held"])

    async def _write_snapshots(self) -> None:
        while True:
            if self._snapshot is not None:
                write_snapshot(self._snapshot, self.snapshot())
            await asyncio.sleep(_SNAPSHOT_EVERY)

    # -- what the parts tell

    def _finish(self, ticket: Ticket) -> None:
        if self._session is not None:
            self._session.finish(ticket)

    def _took_over(self, topic: str) -> None:
        """A log is held here now: bring its strays in, even when no reading comes."""
        if self._lanes is None:
            return
        lane = self._lanes.box(topic)
        lane.unload()
        seized = topic in self._holdings.view.seized()
        if seized and self._drainer is not None:
            lane.put(Control(partial(self._drainer.look_again, topic)))
        if seized or self._lanes.book.wait_for(topic):
            lane.put(Control(lane.prepare))
        if self._movements is not None and topic in self._lanes.strays.events:
            self._movements.wake()

    def _lost_custody(self, topic: str) -> None:
        """An append was refused: perhaps a grant of this site's own was left half done."""
        if self._lanes is not None and self._completion is not None:
            self._lanes.box(topic).put(Control(partial(self._completion.recheck, topic)))

    def _warn_of_lost_sites(self) -> None:
        """Logs whose holder the topology does not have (any more) can be moved by nobody."""
        for holder, logs in self._holdings.view.holders().items():
            if holder not in self._topology.sites:
                log.error(
                    "%s: %d logs are held by %s, which the topology does not have, for example %s; give them to a site "
                    "with 'fairlead custody seize'",
                    self.site,
                    len(logs),
                    holder,
                    min(logs),
                )

    def _count_drained(self, count: int) -> None:
        self.metrics.drained += count

    def _fail(self, error: BaseException) -> None:
        """A lane cannot go on; everything unacknowledged stays at the MQTT broker."""
        if self._failure is None or self._failure.done():
            return
        failure = error
        if isinstance(error, WireError):
            failure = FixedLogError(
                f"the bridge of {self.site} cannot append to one of its own logs: {error.what}",
                hint="nothing is lost: the MQTT broker keeps what is not acknowledged; mend the log and start again",
                **error.fields,
            )
            failure.__cause__ = error
        self._failure.set_exception(failure)
        self._failure.exception()  # seen, even when the bridge is stopping for another reason already


@dataclass(frozen=True, slots=True)
class _Parts:
    lanes: SiteLanes
    session: MqttSession
    work: Mapping[str, Callable[[], Coroutine[Any, Any, None]]]  # what goes on until the end, by name


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """The result of some work, or None when ``stop`` is set first; the work is then cancelled."""
    doing = asyncio.create_task(work)
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((doing, stopping), return_when=asyncio.FIRST_COMPLETED)
        return doing.result() if doing.done() else None
    finally:
        for task in (doing, stopping):
            task.cancel()
        await asyncio.gather(doing, stopping, return_exceptions=True)
