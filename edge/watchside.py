"""The watch of one ship as its bridge runs it: made anew from the logs, and told the bookings that reach the ship.

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

from edge.detection.thresholds import Thresholds
from edge.detection.watch import Watch
from edge.follower import Follower
from edge.holdings import Holdings
from edge.lanes import SiteLanes, put_alerts
from edge.logs import booking_logs
from edge.patience import patiently
from edge.recollection import recall_readings
from edge.tails import Tails
from fairlead.records import UNREADABLE, decoder
from fairlead.records.alert import ALERT_ORDERS, AlertOrder
from fairlead.records.booking import Booking
from fairlead.wire.cluster import Cluster
from fairlead.wire.convention import is_data
from fairlead.wire.record import Record
from topologies.model import SiteKind, Topology

log = logging.getLogger(__name__)

Work = Mapping[str, Callable[[], Coroutine[Any, Any, None]]]


class WatchSide:
    """Detection at one site; a site that is no ship has none (``watch`` is None)."""

    def __init__(self, topology: Topology, site: str, thresholds: Thresholds | None = None) -> None:
        on_board = topology.sites[site].kind is SiteKind.SHIP
        self.watch = Watch(site, thresholds=thresholds) if on_board else None
        self._site = site
        self._logs = booking_logs(topology, site) if on_board else ()
        self._bookings: Follower | None = None
        self._orders: Follower | None = None
        self._order = decoder(AlertOrder)
        self._booking = decoder(Booking)

    async def catch_up(self, cluster: Cluster, lanes: SiteLanes, holdings: Holdings, tails: Tails) -> None:
        """Learn the bookings, then the past of each container aboard; called when custody is known."""
        if self.watch is None:
            return
        if self._logs:
            self._bookings = Follower(cluster, self._logs, self._take)
            await patiently(self._bookings.catch_up, f"{self._site}: reading bookings")
        await recall_readings(self.watch, lanes, holdings, tails)
        holdings.when_given(partial(self._given, lanes))
        self._orders = Follower(cluster, [ALERT_ORDERS], partial(self._take_order, lanes))

    def work(self) -> Work:
        """What goes on until the bridge ends."""
        followed = {"bookings": self._bookings, "orders about alerts": self._orders}
        return {name: each.follow for name, each in followed.items() if each is not None}

    def _given(self, lanes: SiteLanes, topic: str) -> None:
        """A box is in another's care now: by an event, by hand, or because another site has claimed it."""
        if self.watch is not None:
            put_alerts(lanes, self.watch.forget(topic.partition(".")[2], time.time_ns() // 1_000_000))

    def _take_order(self, lanes: SiteLanes, topic: str, record: Record, _at_start: bool) -> None:
        """An order by hand: the alert's CLEARED state follows; of one that is over, nothing."""
        if self.watch is None or record.value is None or not is_data(record):
            return
        try:
            order = self._order.decode(record.value)
        except UNREADABLE as error:
            log.error("%s: the record at offset %d of %s is no order: %s", self._site, record.offset, topic, error)
            return
        if order.at_site == self._site:
            put_alerts(lanes, self.watch.dismiss(order, time.time_ns() // 1_000_000))

    def _take(self, topic: str, record: Record, at_start: bool) -> None:
        if self.watch is None or record.value is None or not is_data(record):
            return
        with contextlib.suppress(*UNREADABLE):  # another version's; shore shows it
            self.watch.booked(self._booking.decode(record.value))
