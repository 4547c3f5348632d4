"""The bridge of one site: every message from MQTT ends in a log, and is acknowledged when it is there.

    WayIn (MqttSession) -> Intake (Classifier) -> the lane of the message's log -> Appender (acks=all) -> acknowledged
                                       or dead letters, strays; alerts leave before the reading that caused them

One event loop, no threads but for the TCP connect and the creation of topics.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from edge.acks import Ticket
from edge.aisfeed import AisSource, ship_feed
from edge.classifier import Classifier
from edge.custodyside import CustodySide, Work
from edge.detection.thresholds import Thresholds
from edge.errors import FixedLogError
from edge.garbage import search_less_often
from edge.holdings import Holdings
from edge.intake import Intake
from edge.intakes.wayin import WayIn, check_count
from edge.lanes import SiteLanes
from edge.logs import fixed_logs
from edge.metrics import Metrics, write_snapshot
from edge.opening import TopicMaker, connect, open_fixed_logs, recall
from edge.patience import patiently
from edge.strayage import LIMIT, StrayAge
from edge.tails import Tails
from edge.watchside import WatchSide
from fairlead.custody import CustodyView
from fairlead.endpoint import Endpoint, MqttWay
from fairlead.wire.appender import Appender
from fairlead.wire.cluster import Cluster
from fairlead.wire.errors import WireError
from topologies.model import Topology

log = logging.getLogger(__name__)

T = TypeVar("T")

_SHUTDOWN_PATIENCE = 10.0
_SNAPSHOT_EVERY = 1.0
_NOTHING_TAKEN = {
    "acked": 0,
    "unacked": 0,
    "mqtt_connected": False,
    "mqtt_connections": 0,
    "mqtt_sessions_lost": 0,
    "held_for_order": 0,
    "passed_unordered": 0,
    "intakes": [],
}


class Bridge:
    """One site's bridge.

    Args:
        kafka, mqtt: The site's brokers, seen by the user ``bridge``; asked at every login, if they can be.
        snapshot: File that gets the metrics every second; None for none.
        client_id: At the MQTT broker; fixed, because it keeps the session under it. Best one that nobody can guess:
            who knows it, and any password, can end the session or take part in the intakes' shared subscription.
        stray_limit: Seconds that a stray may wait before an alert is raised.
        thresholds: What detection on board goes by; None for the defaults.
        ais: Where a ship's own AIS reports come from; None where it publishes its position by MQTT.
        intakes: How many processes of their own take readings in (``edge.intakes``); 0: this one does.

    Raises:
        ConfigurationError: the topology has no streams for a bridge, or there cannot be so many intakes.
    """

    def __init__(
        self,
        topology: Topology,
        site: str,
        kafka: Endpoint,
        mqtt: MqttWay,
        *,
        snapshot: Path | None = None,
        client_id: str | None = None,
        stray_limit: float = LIMIT,
        thresholds: Thresholds | None = None,
        ais: AisSource | None = None,
        intakes: int = 0,
    ) -> None:
        check_count(intakes)
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
        self._watch_side = WatchSide(topology, site, thresholds)
        self._ais = ais
        self._started, self._began = time.monotonic(), round(time.time(), 3)
        self._intakes = intakes
        self._way: WayIn | None = None
        self._lanes: SiteLanes | None = None
        self._custody: CustodySide | None = None
        self._stray_limit = stray_limit
        self._failure: asyncio.Future[None] | None = None
        self._cluster: Cluster | None = None
        self._appenders: tuple[Appender, ...] = ()

    def snapshot(self) -> dict[str, Any]:
        """What the bridge has done and how it is, JSON-ready."""
        way, lanes = self._way, self._lanes
        return {
            "site": self.site,
            "uptime_s": round(time.monotonic() - self._started, 1),
            "started": self._began,
            "ready": self.ready.is_set(),
            **self.metrics.snapshot(),
            **(way.snapshot() if way else _NOTHING_TAKEN),
            "kafka_connected": self._cluster is not None and self._cluster.pool.connected,
            "append_requests": sum(appender.answers[0] for appender in self._appenders),
            "append_seconds": round(sum(appender.answers[1] for appender in self._appenders), 6),
            "strays_waiting": lanes.strays.index.waiting if lanes else 0,
            "events_waiting": sum(map(len, lanes.strays.events.values())) if lanes else 0,
            "custody": self._holdings.counts(),
        }

    async def run(self, stop: asyncio.Event) -> None:
        """Work until ``stop`` is set, then finish what is under way.

        A broker that is away is waited for. Raises what waiting cannot mend: a refused login, or one of the site's own
        logs that cannot be appended to (``FixedLogError``). The process searches for cycles of garbage less often from
        now on (``edge.garbage``).
        """
        search_less_often()
        self._failure = asyncio.get_running_loop().create_future()
        async with contextlib.AsyncExitStack() as stack:
            parts = await _unless(stop, self._open(stack))
            if parts is not None:
                await self._work(parts, stop)

    async def _open(self, stack: contextlib.AsyncExitStack) -> _Parts:
        """Connect to Kafka and remember what its logs hold; no message is taken yet."""
        cluster = await connect(self._kafka, f"fairlead-bridge-{self.site}")
        stack.push_async_callback(cluster.close)
        appender = Appender(cluster)
        stack.push_async_callback(appender.close)
        urgent = Appender(cluster, linger=0)  # alerts wait for nobody's batch; no log is written by both
        stack.push_async_callback(urgent.close)
        self._cluster, self._appenders = cluster, (appender, urgent)
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
            finish=Ticket.finish,
            fail=self._fail,
            on_lost=self._lost_custody,
        )
        self._lanes = lanes
        age = StrayAge(self.site, lanes, limit=self._stray_limit)
        await patiently(
            lambda: recall(logs, lanes, self._watch_side.watch, age, tails), f"{self.site}: reading its logs"
        )
        custody = self._custody = CustodySide(
            self._topology, logs, self._holdings, cluster, appender, tails, lanes, maker.create, self.metrics
        )
        stack.push_async_callback(custody.close)
        await custody.catch_up()
        await self._watch_side.catch_up(cluster, lanes, self._holdings, tails)

        classifier = Classifier(self._topology, self.site)
        intake = Intake(
            self.site,
            classifier,
            lanes,
            custody.custodian,
            self._holdings,
            self.metrics,
            watch=self._watch_side.watch,
            finish=Ticket.finish,
        )
        custody.wake_with(intake.movements.wake)
        self._way = WayIn(self._topology, self.site, self._mqtt, self._client_id, intake, classifier, self._intakes)
        work: Work = {
            "mqtt": self._way.run,
            "events that wait": lambda: intake.movements.retry(classifier, tails),
            "age of strays": age.run,
            **custody.work(),
            **self._watch_side.work(),
            **self._ais_work(self._way, lanes),
        }
        return _Parts(lanes, self._way, work)

    def _ais_work(self, way: WayIn, lanes: SiteLanes) -> Work:
        """Own AIS reports go the way of the ship's MQTT messages, but for the acknowledgement."""
        imo, location = self._topology.sites[self.site].imo, self._logs.location
        if self._ais is None or imo is None or location is None:
            return {}
        return {"AIS": ship_feed(self._ais, imo, way.take, lanes.ship[location]).run}

    async def _work(self, parts: _Parts, stop: asyncio.Event) -> None:
        work = [asyncio.create_task(run(), name=f"{name} {self.site}") for name, run in parts.work.items()]
        work.append(asyncio.create_task(self._write_snapshots(), name=f"snapshot {self.site}"))
        announcing = asyncio.create_task(self._announce(parts.way))
        stopping = asyncio.create_task(stop.wait())
        ends: set[asyncio.Future[Any]] = {*work, stopping}
        if self._failure is not None:
            ends.add(self._failure)
        try:
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            parts.way.pause()
            for end in done:
                end.result()  # raises what went wrong
            await self._finish_up(parts.lanes)
        finally:
            self.ready.clear()
            with contextlib.suppress(OSError):
                await parts.way.close()
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

    async def _announce(self, way: WayIn) -> None:
        await way.taking()
        self.ready.set()
        log.info("%s: the bridge takes messages; it holds %d logs", self.site, self._holdings.counts()["held"])

    async def _write_snapshots(self) -> None:
        while True:
            if self._snapshot is not None:
                write_snapshot(self._snapshot, self.snapshot())
            await asyncio.sleep(_SNAPSHOT_EVERY)

    # -- what the parts tell

    def _lost_custody(self, topic: str) -> None:
        if self._custody is not None:
            self._custody.lost(topic)

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
    way: WayIn
    work: Work


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
