"""Runs the alert engine of a ship in its bridge: fills it from the logs, gives it bookings and orders to end alerts.

Bookings are made ashore (``bookings.<site>``). A ship has them where a link of the topology brings them aboard; without
them set points cannot be compared, and the default thresholds count for every container.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any

from edge.alerts.engine import AlertEngine
from edge.alerts.thresholds import Thresholds
from edge.alerts.warm_start import recall_readings
from edge.holdings import Holdings
from edge.logwriter.follower import LogFollower
from edge.logwriter.retry import retry_transient
from edge.logwriter.tail_reader import TailReader
from edge.site_logs import booking_logs
from edge.writer_registry import WriterRegistry, put_alerts
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.convention import is_data
from fairlead.kafka.protocol.record import Record
from fairlead.records import UNREADABLE, decoder
from fairlead.records.alert import ALERT_ORDERS, AlertOrder
from fairlead.records.booking import Booking
from topologies.model import SiteKind, Topology

log = logging.getLogger(__name__)

Work = Mapping[str, Callable[[], Coroutine[Any, Any, None]]]


class AlertService:
    """Detection at one site; a site that is no ship has none (``engine`` is None)."""

    def __init__(self, topology: Topology, site: str, thresholds: Thresholds | None = None) -> None:
        on_board = topology.sites[site].kind is SiteKind.SHIP
        self.engine = AlertEngine(site, thresholds=thresholds) if on_board else None
        self._site = site
        self._logs = booking_logs(topology, site) if on_board else ()
        self._bookings: LogFollower | None = None
        self._orders: LogFollower | None = None
        self._order = decoder(AlertOrder)
        self._booking = decoder(Booking)

    async def catch_up(self, cluster: Cluster, writers: WriterRegistry, holdings: Holdings, tails: TailReader) -> None:
        """Learn the bookings, then the past of each container aboard; called when custody is known."""
        if self.engine is None:
            return
        if self._logs:
            self._bookings = LogFollower(cluster, self._logs, self._take)
            await retry_transient(self._bookings.catch_up, f"{self._site}: reading bookings")
        await recall_readings(self.engine, writers, holdings, tails)
        holdings.when_given(partial(self._given, writers))
        self._orders = LogFollower(cluster, [ALERT_ORDERS], partial(self._take_order, writers))

    def work(self) -> Work:
        """What goes on until the bridge ends."""
        followed = {"bookings": self._bookings, "orders about alerts": self._orders}
        return {name: each.follow for name, each in followed.items() if each is not None}

    def _given(self, writers: WriterRegistry, topic: str) -> None:
        """A box is in another's care now: by an event, by hand, or because another site has claimed it."""
        if self.engine is not None:
            put_alerts(writers, self.engine.forget(topic.partition(".")[2], time.time_ns() // 1_000_000))

    def _take_order(self, writers: WriterRegistry, topic: str, record: Record, _at_start: bool) -> None:
        """An order by hand: the alert's CLEARED state follows; of one that is over, nothing."""
        if self.engine is None or record.value is None or not is_data(record):
            return
        try:
            order = self._order.decode(record.value)
        except UNREADABLE as error:
            log.error("%s: the record at offset %d of %s is no order: %s", self._site, record.offset, topic, error)
            return
        if order.at_site == self._site:
            put_alerts(writers, self.engine.dismiss(order, time.time_ns() // 1_000_000))

    def _take(self, topic: str, record: Record, at_start: bool) -> None:
        if self.engine is None or record.value is None or not is_data(record):
            return
        with contextlib.suppress(*UNREADABLE):  # another version's; shore shows it
            self.engine.booked(self._booking.decode(record.value))
