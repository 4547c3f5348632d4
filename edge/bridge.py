"""The bridge of one site: stores every MQTT message in a log, and acknowledges it once it is stored.

    MqttSession -> MessageRouter (Classifier) -> the writer of the message's log -> Appender (acks=all) -> PUBACK
                               or dead letters, strays; an alert is appended before the reading that caused it

The bridge runs in one event loop; only the TCP connect to MQTT and the creation of topics use threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import time
from collections.abc import Coroutine, Set
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from edge.ais.feed import AisSource, ship_feed
from edge.alerts.engine import AlertEngine
from edge.alerts.roll_call_service import RollCallService
from edge.alerts.service import AlertService
from edge.alerts.site_alerts import KINDS, LIMIT, LedgerAlerts, SiteAlerts, strays_waiting
from edge.alerts.thresholds import Thresholds, default_thresholds
from edge.custody.blocked import BlockedLogs
from edge.custody.handlers import CustodyEventHandler
from edge.custody.manager import CustodyManager, Work
from edge.errors import FixedLogError
from edge.holdings import Holdings
from edge.ingest.classifier import Classifier
from edge.ingest.dead_letters import DeadLetters
from edge.ingest.router import DROPPED, MessageRouter
from edge.logwriter.retry import retry_transient
from edge.logwriter.tail_reader import TailReader
from edge.messages import SUBSCRIPTION
from edge.metrics import Metrics, write_snapshot
from edge.mqtt.session import MqttSession
from edge.site_kafka import SiteKafka, TopicMaker, connect, served
from edge.site_logs import fixed_logs
from edge.startup import open_fixed_logs, recall
from edge.writer_registry import AlertWriter, Settlement, WriterRegistry
from fairlead.custody.view import CustodyView
from fairlead.kafka.client.appender import Appender
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.endpoint import Endpoint, MqttWay
from fairlead.kafka.protocol.codecs import Codec
from fairlead.kafka.protocol.errors import WireError
from fairlead.waiting import in_background
from topologies.ledger_trust import Believer, Rules
from topologies.model import SiteKind, Topology

log = logging.getLogger(__name__)

T = TypeVar("T")

_SHUTDOWN_PATIENCE = 10.0
_SNAPSHOT_EVERY = 1.0

NEW_OBJECTS: Final = 100_000  # see ``search_less_often``


@dataclass(frozen=True, slots=True)
class BridgeSettings:
    """An operator's settings for a bridge; each has a default.

    Args:
        snapshot: File to write the metrics to every second; None for no file.
        client_id: Client id at the MQTT broker, which keeps the session under it; None for ``fairlead-bridge-<site>``.
            Choose one that is hard to guess: anyone who knows it and any password can end the session.
        stray_limit: Seconds that a stray may wait before an alert is raised.
        thresholds: Thresholds of the alert rules; None for the defaults.
        ais: Source of the ship's own AIS reports; None if the ship publishes its position by MQTT.
    """

    snapshot: Path | None = None
    client_id: str | None = None
    stray_limit: float = LIMIT
    thresholds: Thresholds | None = None
    ais: AisSource | None = None


class Bridge:
    """One site's bridge.

    Args:
        kafka, mqtt: The site's brokers, with the login of user ``bridge``. If callable, called at every login.

    Raises:
        ConfigurationError: the topology lacks a stream that a bridge needs.
    """

    def __init__(
        self,
        topology: Topology,
        site: str,
        kafka: Endpoint,
        mqtt: MqttWay,
        settings: BridgeSettings | None = None,
    ) -> None:
        self.site = site
        self.metrics = Metrics()
        self.ready = asyncio.Event()  # set once the bridge takes messages
        self._topology = topology
        self._logs = fixed_logs(topology, site)
        self._kafka = kafka
        self._mqtt = mqtt
        self._settings = settings or BridgeSettings()
        self._snapshot = self._settings.snapshot
        self._unwritten = False  # the last attempt to write the snapshot failed
        self._holdings = Holdings(site, CustodyView())
        self._started, self._began = time.monotonic(), round(time.time(), 3)
        self._session: MqttSession | None = None
        self._writers: WriterRegistry | None = None
        self._alerts: SiteAlerts | None = None
        self._failure: asyncio.Future[None] | None = None
        self._cluster: Cluster | None = None
        self._appenders: tuple[Appender, ...] = ()

    def snapshot(self) -> dict[str, Any]:
        """Return the bridge's counters and state, JSON-ready."""
        session, writers = self._session, self._writers
        return {
            "site": self.site,
            "uptime_s": round(time.monotonic() - self._started, 1),
            "started": self._began,
            "ready": self.ready.is_set(),
            **self.metrics.snapshot(),
            "acked": session.acknowledged if session else 0,
            "unacked": session.outstanding if session else 0,
            "mqtt_connected": session is not None and session.connected.is_set(),
            "mqtt_connections": session.connections if session else 0,
            "mqtt_sessions_lost": session.sessions_lost if session else 0,
            "kafka_connected": self._cluster is not None and self._cluster.pool.connected,
            "append_requests": sum(appender.answers[0] for appender in self._appenders),
            "append_seconds": round(sum(appender.answers[1] for appender in self._appenders), 6),
            "strays_waiting": writers.strays.index.waiting if writers else 0,
            "events_waiting": sum(map(len, writers.strays.events.values())) if writers else 0,
            "custody": self._holdings.counts(),
            "site_alerts": self._alerts.counts() if self._alerts else dict.fromkeys(KINDS, 0),
        }

    async def run(self, stop: asyncio.Event) -> None:
        """Run until ``stop`` is set, then store and acknowledge the messages in flight.

        Waits for brokers that are away.

        Raises:
            FairleadError: an error that waiting cannot repair, such as a refused login, or a ``FixedLogError`` when
                appends to one of the site's own logs fail.
        """
        search_less_often()
        self._failure = asyncio.get_running_loop().create_future()
        async with in_background(self._write_snapshots()) as writing, contextlib.AsyncExitStack() as stack:
            parts = await _unless(stop, self._open(stack))
            if parts is not None:
                await self._work(parts, writing, stop)

    async def _open(self, stack: contextlib.AsyncExitStack) -> _Parts:
        """Connect to Kafka, create the bridge's parts and fill them from the logs, without taking any message."""
        cluster = await connect(self._kafka, f"fairlead-bridge-{self.site}")
        stack.push_async_callback(cluster.close)
        # What a ship stores goes over a satellite: compressed, as copies keep their batches' bytes.
        codec = Codec.ZSTD if self._topology.sites[self.site].kind is SiteKind.SHIP else Codec.NONE
        appender = Appender(cluster, codec=codec)
        stack.push_async_callback(appender.close)
        urgent = Appender(cluster, linger=0, codec=codec)  # for alerts, without linger; no log is written by both
        stack.push_async_callback(urgent.close)
        self._cluster, self._appenders = cluster, (appender, urgent)
        tails = TailReader(cluster)
        stack.push_async_callback(tails.close)

        logs = self._logs
        maker = TopicMaker(self._kafka, cluster)
        await retry_transient(
            lambda: open_fixed_logs(maker, appender, logs, self.site), f"{self.site}: opening its logs"
        )
        kafka = SiteKafka(cluster, appender, urgent, tails, maker.try_create)
        settlement = Settlement(self.metrics, self._fail)
        alert_writer = AlertWriter(logs.alerts, urgent, settlement)
        alert_service = AlertService(self._topology, self.site, alert_writer, self._settings.thresholds)
        engine = alert_service.engine
        holdings = self._holdings = Holdings(self.site, CustodyView(), alert_service.on_release, engine.taken_over)
        ledgers = LedgerAlerts(self._topology, self.site, self.metrics)
        believer = Believer(Rules.of(self._topology), holdings.view, on_refused=ledgers.refuse)
        custody = CustodyManager(self._topology, kafka, holdings, believer, alert_writer, settlement)
        stack.push_async_callback(custody.close)
        writers = self._writers = custody.writers
        classifier = Classifier(self._topology, self.site)
        dead_letters = DeadLetters(writers, engine)
        events = CustodyEventHandler(classifier, tails, writers, custody.term_writer, dead_letters)
        roll_calls = self._roll_calls(engine, writers, holdings)
        router = MessageRouter(classifier, writers, events, dead_letters, engine, roll_calls)

        blocked = BlockedLogs(writers, holdings, custody.term_writer.uncreated, partial(served, cluster, logs.strays))
        sources = [
            strays_waiting(writers, limit=self._settings.stray_limit),
            blocked.source(),
            router.references.source(),
            router.limits.source(),
        ]
        alerts = self._alerts = SiteAlerts(self.site, writers, sources, ledgers, believer.doubtful)
        await retry_transient(
            lambda: recall(logs, writers, engine, alerts, tails, roll_calls), f"{self.site}: reading its logs"
        )
        await custody.catch_up()
        on_booking = router.references.add_record if self._logs.bookings is not None else None  # a ship takes none
        on_order = [alerts.apply_order, *([roll_calls.apply_order] if roll_calls is not None else [])]
        await alert_service.catch_up(cluster, writers, holdings, tails, on_booking, on_order)
        session = self._session = MqttSession(
            self._mqtt,
            client_id=self._settings.client_id or f"fairlead-bridge-{self.site}",
            subscriptions=[(SUBSCRIPTION, 1), (DROPPED, 0)],
            on_message=router.route_message,
        )
        work: Work = {
            "mqtt": session.run,
            "events that wait": events.retry_waiting,
            "alerts of the site": alerts.run,
            "blocked logs": blocked.run,
            **custody.work(),
            **alert_service.work(),
            **self._ais_work(router, writers),
        }
        return _Parts(writers, session, work)

    def _roll_calls(self, engine: AlertEngine, writers: WriterRegistry, holdings: Holdings) -> RollCallService | None:
        """Return the roll calls of a ship; None at any other site."""
        imo = self._topology.sites[self.site].imo
        if imo is None or writers.roll_calls is None:
            return None

        def listed() -> Set[str]:
            return {topic.partition(".")[2] for topic in holdings.view.held_by(self.site)}

        limits = (self._settings.thresholds or default_thresholds()).default
        return RollCallService(self.site, imo, engine.ship, limits, listed, writers.alerts, writers.roll_calls)

    def _ais_work(self, router: MessageRouter, writers: WriterRegistry) -> Work:
        """Return the task that routes the ship's own AIS reports like MQTT messages, without acknowledgement."""
        imo, location = self._topology.sites[self.site].imo, self._logs.location
        if self._settings.ais is None or imo is None or location is None:
            return {}
        return {"AIS": ship_feed(self._settings.ais, imo, router.route_message).run}

    async def _work(self, parts: _Parts, writing: asyncio.Task[None], stop: asyncio.Event) -> None:
        work = [asyncio.create_task(run(), name=f"{name} {self.site}") for name, run in parts.work.items()]
        announcing = asyncio.create_task(self._announce(parts.session))
        stopping = asyncio.create_task(stop.wait())
        ends: set[asyncio.Future[Any]] = {*work, writing, stopping}
        if self._failure is not None:
            ends.add(self._failure)
        try:
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            parts.session.pause()
            for end in done:
                end.result()  # raises the error, if it failed
            await self._finish_up(parts.writers)
        finally:
            self.ready.clear()
            with contextlib.suppress(OSError):
                await parts.session.disconnect()
            for task in (*work, announcing, stopping):
                task.cancel()
            await asyncio.gather(*work, announcing, stopping, return_exceptions=True)
            await asyncio.gather(*(writer.close() for writer in parts.writers.all()))
            self._write_snapshot()

    async def _finish_up(self, writers: WriterRegistry) -> None:
        """Store and acknowledge the messages in flight, for at most ``_SHUTDOWN_PATIENCE`` seconds.

        The rest stays at the MQTT broker.
        """
        try:
            async with asyncio.timeout(_SHUTDOWN_PATIENCE):
                while busy := [writer for writer in writers.all() if writer.busy]:
                    await asyncio.gather(*(writer.idle() for writer in busy))
        except TimeoutError:
            log.warning("%s: stopped with unacknowledged messages; the MQTT broker keeps them", self.site)

    async def _announce(self, session: MqttSession) -> None:
        await session.connected.wait()
        self.ready.set()
        log.info("%s: the bridge is ready; this site holds %d logs", self.site, self._holdings.counts()["held"])

    async def _write_snapshots(self) -> None:
        while True:
            self._write_snapshot()
            await asyncio.sleep(_SNAPSHOT_EVERY)

    def _write_snapshot(self) -> None:
        """Write the metrics to their file. An error, such as a full disk, is logged once and stops nothing."""
        if self._snapshot is None:
            return
        try:
            write_snapshot(self._snapshot, self.snapshot())
        except OSError as error:
            if not self._unwritten:
                log.warning("%s: the status file cannot be written: %s", self.site, error)
            self._unwritten = True
        else:
            self._unwritten = False

    # -- errors of the parts

    def _fail(self, error: BaseException) -> None:
        """Stop the bridge with a writer's error; all unacknowledged messages stay at the MQTT broker."""
        if self._failure is None or self._failure.done():
            return
        failure = error
        if isinstance(error, WireError):
            failure = FixedLogError(
                f"the bridge of {self.site} cannot append to one of its own logs: {error.what}",
                hint="repair the log and restart the bridge; the MQTT broker keeps unacknowledged messages",
                **error.fields,
            )
            failure.__cause__ = error
        self._failure.set_exception(failure)
        self._failure.exception()  # marks it as retrieved, even if the bridge already stops for another reason


@dataclass(frozen=True, slots=True)
class _Parts:
    writers: WriterRegistry
    session: MqttSession
    work: Work


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """Return the result of ``work``. Cancel it and return None if ``stop`` is set first."""
    doing = asyncio.create_task(work)
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((doing, stopping), return_when=asyncio.FIRST_COMPLETED)
        return doing.result() if doing.done() else None
    finally:
        for task in (doing, stopping):
            task.cancel()
        await asyncio.gather(doing, stopping, return_exceptions=True)


def search_less_often() -> None:
    """Make Python's garbage collector search less often, in the whole process.

    It searches when there are ``NEW_OBJECTS`` objects more than at the last time; Python's own threshold is 700. Up to
    5,000 messages are in flight, about 15 objects each, which are freed without a search. So they alone must not cause
    one: that took a tenth of the CPU. Older objects, of which a bridge of 20,000 logs keeps 400,000 for good, are
    searched after ten searches of new ones, as is usual. A threshold that is higher already stays, as does a collector
    that is switched off.
    """
    new, middle, old = gc.get_threshold()
    if 0 < new < NEW_OBJECTS:  # 0 switches the collector off
        gc.set_threshold(NEW_OBJECTS, middle, old)
