"""What is new while people look: alerts, ships' positions and calls from the site's Kafka, tables, states of sites.

``LiveLogs`` follows ``alerts.*``, ``ships.*.location`` and ``events.*`` in one task, and passes what is new on to its
subscribers, the open pages. A subscriber that does not keep up is dropped; its browser connects again and reads its
page anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from board.itinerary import Itineraries, Itinerary
from edge.logwriter.follower import LogFollower
from fairlead.errors import FairleadError
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.convention import is_data
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.record import Record
from fairlead.records import UNREADABLE, decoder
from fairlead.records.alert import Alert, alert_key, is_own_alert
from fairlead.records.event import Event
from fairlead.records.ship import Position
from fairlead.waiting import in_background
from topologies.model import SHORE_ALERTS, Topology

log = logging.getLogger(__name__)

_WAITING: Final = 1000  # events that wait for one page
_PAUSE: Final = 2.0  # seconds between two attempts to connect, and between two checks of the connection
_PATIENCE: Final = 5.0
_CLEARED: Final = 1000  # cleared alerts that are kept in memory; open ones all are


@dataclass(frozen=True, slots=True)
class Changed:
    """Something that pages read again. ``what`` is ``alerts``, ``tables``, ``status`` or ``voyages``; on a customer's
    pages it is ``feed``."""

    what: str


News = Alert | Position | Changed


class Subscription:
    """The news for one open page, in order. Ends when the page does not keep up, or when the board ends.

    Args:
        customer: Whose portal the page belongs to; None for a page of staff. A portal hears of its own feed alone.
        version: The version of the customer's table that the page shows.
    """

    def __init__(self, customer: str | None = None, version: int | None = None) -> None:
        self.customer, self.version = customer, version
        self._queue: asyncio.Queue[News | None] = asyncio.Queue()
        self.ended = False

    def put(self, news: News) -> None:
        if self._queue.qsize() >= _WAITING:
            self.end()
        if not self.ended:
            self._queue.put_nowait(news)

    def end(self) -> None:
        """Let the page's stream end after what waits for it."""
        if not self.ended:
            self.ended = True
            self._queue.put_nowait(None)

    async def next(self, seconds: float) -> News | None:
        """Return the next news; None after ``seconds`` without any.

        Raises:
            StopAsyncIteration: there will be none any more.
        """
        try:
            news = await asyncio.wait_for(self._queue.get(), seconds)
        except TimeoutError:
            return None
        if news is None:
            raise StopAsyncIteration
        return news


@dataclass(slots=True)
class _NewestStates:
    """The newest state of each alert, position of each ship, and the ships' voyages, from the logs' starts on."""

    itineraries: Itineraries
    alerts: dict[tuple[str, str], Alert] = field(default_factory=dict)  # these three by ``alert_key``
    opened: dict[tuple[str, str], dt.datetime] = field(default_factory=dict)
    cleared: dict[tuple[str, str], None] = field(default_factory=dict)
    positions: dict[str, Position] = field(default_factory=dict)

    def take(self, news: Alert | Position | Event) -> News | None:
        """Take the next record of a log. Return what it says that is new.

        All states of an alert are in one log, so the later record is the newer state.
        """
        if isinstance(news, Event):
            return Changed("voyages") if self.itineraries.apply(news) else None
        if isinstance(news, Alert):
            self._take_alert(news)
            return news
        known = self.positions.get(news.vessel_imo_number)
        if news.geo_location is None or (
            known is not None and known.device.device_date_time >= news.device.device_date_time
        ):
            return None
        self.positions[news.vessel_imo_number] = news
        self.itineraries.locate(news)
        return news

    def _take_alert(self, alert: Alert) -> None:
        key = alert_key(alert)
        self.alerts[key] = alert
        self.opened.setdefault(key, alert.event_date_time)
        if alert.state != "CLEARED":
            self.cleared.pop(key, None)
            return
        self.cleared[key] = None
        if len(self.cleared) > _CLEARED:
            oldest = next(iter(self.cleared))
            del self.cleared[oldest], self.alerts[oldest], self.opened[oldest]


class LiveLogs:
    """The newest state of each alert, the newest position and the voyage of each ship, and who wants to hear of more.

    Args:
        endpoint: Returns the Kafka of the board's site, and its user.
    """

    def __init__(self, topology: Topology, endpoint: Callable[[], KafkaEndpoint]) -> None:
        self._ships = [site.imo for site in topology.sites.values() if site.imo]
        self._topics = [f"{log}.{site}" for log in ("alerts", "events") for site in topology.sites] + [SHORE_ALERTS]
        self._topics += [f"ships.{imo}.location" for imo in self._ships]
        self._endpoint = endpoint
        self._known = self._nothing()
        self._subscriptions: set[Subscription] = set()
        self._decode: dict[str, Callable[[bytes], Alert | Event | Position]] = {
            "alerts": decoder(Alert).decode,
            "events": decoder(Event).decode,
            "ships": decoder(Position).decode,
        }
        self._read = asyncio.Event()
        self.read_at: dt.datetime | None = None
        """When Kafka last answered; None before everything that is in the logs has been read once."""
        self.trouble = "the logs are being read"
        """Why Kafka does not answer, or the logs are not read yet; empty while it answers."""
        self.unread: Set[str] = frozenset()
        """The logs that cannot be read beyond a damaged batch."""

    def open_alerts(self) -> list[Alert]:
        """Return the newest state of every open alert, the newest alert first."""
        known = self._known
        found = [alert for alert in known.alerts.values() if alert.state != "CLEARED"]
        return sorted(found, key=lambda alert: known.opened[alert_key(alert)], reverse=True)

    def alert(self, alert_id: str, site: str) -> Alert | None:
        """Return the newest state of an alert; None if it is not known, or was cleared long ago.

        Args:
            site: The site that raised it. Empty: any, an open alert before one that is over.
        """
        if site:
            return self._known.alerts.get((site, alert_id))
        found = [alert for alert in self._known.alerts.values() if alert.alert_id == alert_id]
        return min(found, key=lambda alert: alert.state == "CLEARED", default=None)

    def opened(self, alert: Alert) -> dt.datetime:
        """Return when an alert that is known was opened, by the device's clock."""
        return self._known.opened[alert_key(alert)]

    def alerts(self) -> list[Alert]:
        """Return the newest state of every alert that is open, or was cleared not long ago."""
        return list(self._known.alerts.values())

    def itineraries(self) -> list[Itinerary]:
        """Return the voyages of all ships of which anything is known."""
        return self._known.itineraries.all()

    def positions(self) -> dict[str, Position]:
        """Return the newest position of each ship, by IMO number."""
        return dict(self._known.positions)

    @property
    def streams(self) -> int:
        """How many pages are open."""
        return len(self._subscriptions)

    @property
    def has_staff(self) -> bool:
        """Whether a page of staff is open."""
        return any(each.customer is None for each in self._subscriptions)

    @property
    def customers(self) -> frozenset[str]:
        """The customers whose portals are open."""
        return frozenset(each.customer for each in self._subscriptions if each.customer is not None)

    @contextlib.contextmanager
    def subscribe(self, customer: str | None = None, version: int | None = None) -> Iterator[Subscription]:
        """Pass the news to a page while it is open (``Subscription``)."""
        subscription = Subscription(customer, version)
        self._subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)

    def tell(self, news: News) -> None:
        """Pass news to every open page of staff."""
        for subscription in tuple(self._subscriptions):
            if subscription.customer is None:
                subscription.put(news)

    def tell_customers(self, versions: Mapping[str, int | None], *, all_of_them: bool = False) -> None:
        """Let portals read their customer's table again.

        Args:
            versions: The newest version of each customer's table. A portal that shows it is left alone.
            all_of_them: Tell those too, because what they show depends on the time of day.
        """
        for subscription in tuple(self._subscriptions):
            if subscription.customer is not None and subscription.customer in versions:
                newest = versions[subscription.customer]
                if all_of_them or newest != subscription.version:
                    subscription.version = newest
                    subscription.put(Changed("feed"))

    async def read(self) -> None:
        """Wait until everything that is in the logs has been read once, and Kafka answers."""
        await self._read.wait()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow the logs inside the context."""
        try:
            async with in_background(self._run()):
                yield
        finally:
            for subscription in tuple(self._subscriptions):
                subscription.end()

    def _nothing(self) -> _NewestStates:
        return _NewestStates(Itineraries(self._ships))

    async def _run(self) -> None:
        while True:
            try:
                async with await Cluster.open(
                    self._endpoint(), client_id="fairlead-board", request_timeout=_PATIENCE
                ) as cluster:
                    known, unread = self._nothing(), set[str]()
                    follower = LogFollower(cluster, self._topics, partial(self._take, known), unread)
                    await follower.catch_up()
                    self._known, self.unread = known, unread
                    self.tell(Changed("alerts"))
                    async with in_background(follower.follow()) as following:
                        await self._watch(cluster, following)
            except Exception as error:  # whatever it is: pages would go on showing what was read, as if it were new
                self._silent(error)
            await asyncio.sleep(_PAUSE)

    async def _watch(self, cluster: Cluster, following: asyncio.Task[None]) -> None:
        """Return when the follower has ended; meanwhile notice whether Kafka answers."""
        while not following.done():
            try:
                await cluster.ask_metadata(())
            except FairleadError as error:
                self._silent(error)
            else:
                self.read_at, self.trouble = dt.datetime.now(dt.UTC), ""
                self._read.set()
            await asyncio.wait({following}, timeout=_PAUSE)
        await following

    def _silent(self, error: Exception) -> None:
        what = error.what if isinstance(error, FairleadError) else f"reading the logs failed: {type(error).__name__}"
        if what != self.trouble:
            log.warning("the board reads no logs: %s", error, exc_info=not isinstance(error, FairleadError))
        self.trouble = what

    def _take(self, known: _NewestStates, topic: str, record: Record, at_start: bool) -> None:
        if record.value is None or not is_data(record):
            return
        try:
            told = self._decode[topic.partition(".")[0]](record.value)
        except UNREADABLE as error:
            log.warning("%s: the record at offset %d cannot be read: %s", topic, record.offset, error)
            return
        if isinstance(told, Alert) and not is_own_alert(told, topic):
            log.warning("%s: the alert at offset %d is in the name of %s", topic, record.offset, told.raised_at)
            return
        news = known.take(told)
        if news is not None and not at_start:
            self.tell(news)
