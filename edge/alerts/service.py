"""Runs a site's alert engine in its bridge: fills it from the logs, passes it bookings and orders to clear alerts. On a
ship it also sends digests of what the engine knows (``edge.alerts.digest``).

Bookings are made ashore (``bookings.<site>``). A site has its own, and those that a link of the topology brings it.
Without them the engine cannot check set points, and uses the default thresholds for every container.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from edge.alerts.digest import DigestSender
from edge.alerts.engine import AlertEngine
from edge.alerts.thresholds import Thresholds
from edge.alerts.warm_start import recall_readings
from edge.holdings import Holdings
from edge.logwriter.follower import LogFollower, Take, read_order
from edge.logwriter.retry import retry_transient
from edge.logwriter.tail_reader import TailReader
from edge.site_logs import booking_logs, fixed_logs
from edge.writer_registry import AlertWriter, WriterRegistry
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.convention import is_data
from fairlead.kafka.protocol.record import Record
from fairlead.records import UNREADABLE, decoder
from fairlead.records.alert import ALERT_ORDERS, AlertOrder
from fairlead.records.booking import Booking
from topologies.model import SiteKind, Topology


class AlertService:
    """The alert engine of one site and its inputs.

    Args:
        alerts: The writer of the site's alerts.
        thresholds: Thresholds of the rules; None for the defaults.
    """

    def __init__(
        self, topology: Topology, site: str, alerts: AlertWriter, thresholds: Thresholds | None = None
    ) -> None:
        ashore = topology.sites[site].kind is not SiteKind.SHIP
        self.engine = AlertEngine(site, thresholds=thresholds, ashore=ashore)
        self._site = site
        self._alerts = alerts
        self._caught_up = False
        own = fixed_logs(topology, site).bookings
        self._logs = (*((own,) if own is not None else ()), *booking_logs(topology, site))
        self._bookings: LogFollower | None = None
        self._on_booking: Take | None = None
        self._on_order: Sequence[Callable[[AlertOrder], None]] = ()
        self._orders: LogFollower | None = None
        self._imo = topology.sites[site].imo
        self._digests: DigestSender | None = None
        self._order = decoder(AlertOrder)
        self._booking = decoder(Booking)

    async def catch_up(
        self,
        cluster: Cluster,
        writers: WriterRegistry,
        holdings: Holdings,
        tails: TailReader,
        on_booking: Take | None = None,
        on_order: Sequence[Callable[[AlertOrder], None]] = (),
    ) -> None:
        """Read the bookings, then the newest readings of each container here. Call it when custody is known.

        Args:
            on_booking: Also takes each record of the bookings, now and later.
            on_order: Also take each order about alerts of this site.
        """
        self._on_booking, self._on_order = on_booking, on_order
        if self._logs:
            unread, own = writers.metrics.unread, f"bookings.{self._site}"
            self._bookings = LogFollower(cluster, self._logs, self._apply_booking, unread, own=own)
            await retry_transient(self._bookings.catch_up, f"{self._site}: reading bookings")
        await recall_readings(self.engine, writers, holdings, tails)
        self._caught_up = True
        self._orders = LogFollower(cluster, [ALERT_ORDERS], self._apply_order, writers.metrics.unread)
        if self._imo is not None and writers.digests is not None:
            self._digests = DigestSender(self._imo, self.engine.ship, writers.digests, tails)

    def work(self) -> Mapping[str, Callable[[], Coroutine[Any, Any, None]]]:
        """Return the tasks that run until the bridge ends, by name."""
        followed = {"bookings": self._bookings, "orders about alerts": self._orders}
        digests = {"digests": self._digests.run} if self._digests is not None else {}
        return {name: each.follow for name, each in followed.items() if each is not None} | digests

    def on_release(self, topic: str) -> None:
        """Clear the alerts of a container whose log goes to another site, by an event, an order, a claim or a seizure.

        Does nothing before ``catch_up`` has ended, which clears the alerts of all containers that are not here.
        """
        if self._caught_up:
            self._alerts.append_alerts(self.engine.forget(topic.partition(".")[2], time.time_ns() // 1_000_000))

    def _apply_order(self, topic: str, record: Record, _at_start: bool) -> None:
        """Clear or acknowledge the alert that an operator's order names; do nothing if it is not open."""
        order = read_order(record, self._order, self._site, topic)
        if order is None or order.at_site != self._site:
            return
        apply = self.engine.acknowledge if order.acknowledges else self.engine.dismiss
        self._alerts.append_alerts(apply(order, time.time_ns() // 1_000_000))
        for take in self._on_order:
            take(order)

    def _apply_booking(self, topic: str, record: Record, at_start: bool) -> None:
        if self._on_booking is not None:
            self._on_booking(topic, record, at_start)
        if record.value is None or not is_data(record):
            return
        with contextlib.suppress(*UNREADABLE):  # written by another version; shore reports it
            self.engine.booked(self._booking.decode(record.value))
