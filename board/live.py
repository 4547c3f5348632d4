"""What is new while people look: alerts and ships' positions from the site's Kafka, new tables, new states of sites.

``LiveLogs`` follows ``alerts.*`` and ``ships.*.location`` in one task, and passes each record on to its subscribers,
the open pages. A subscriber that does not keep up is dropped; its browser connects again and reads its page anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Final

from edge.logwriter.follower import LogFollower
from fairlead.errors import FairleadError
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.convention import is_data
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.record import Record
from fairlead.records import UNREADABLE, decoder
from fairlead.records.alert import Alert
from fairlead.records.ship import Position
from topologies.model import Topology

log = logging.getLogger(__name__)

_WAITING: Final = 1000  # events that wait for one page
_PAUSE: Final = 2.0  # seconds between two attempts to connect, and between two checks of the connection
_PATIENCE: Final = 5.0
_CLEARED: Final = 1000  # cleared alerts that are kept in memory; open ones all are


@dataclass(frozen=True, slots=True)
class Changed:
    """Something that pages read again. ``what`` is ``tables`` or ``status``."""

    what: str


News = Alert | Position | Changed


class Subscription:
    """The news for one open page, in order. Ends when the page does not keep up, or when the board ends."""

    def __init__(self) -> None:
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


class LiveLogs:
    """The newest state of each alert and the newest position of each ship, and who wants to hear of new ones.

    Args:
        endpoint: Returns the Kafka of the board's site, and its user.
    """

    def __init__(self, topology: Topology, endpoint: Callable[[], KafkaEndpoint]) -> None:
        ships = [site.imo for site in topology.sites.values() if site.imo]
        self._topics = [f"alerts.{site}" for site in topology.sites] + [f"ships.{imo}.location" for imo in ships]
        self._endpoint = endpoint
        self._alerts: dict[str, Alert] = {}
        self._opened: dict[str, dt.datetime] = {}
        self._cleared: dict[str, None] = {}
        self._positions: dict[str, Position] = {}
        self._subscriptions: set[Subscription] = set()
        self._decode_alert, self._decode_position = decoder(Alert).decode, decoder(Position).decode
        self.read_at: dt.datetime | None = None
        """When Kafka last answered; None before everything that is in the logs has been read once."""
        self.trouble = "the logs are being read"
        """Why Kafka does not answer, or the logs are not read yet; empty while it answers."""

    def open_alerts(self) -> list[Alert]:
        """Return the newest state of every open alert, the newest alert first."""
        found = [alert for alert in self._alerts.values() if alert.state != "CLEARED"]
        return sorted(found, key=lambda alert: self._opened[alert.alert_id], reverse=True)

    def alert(self, alert_id: str) -> Alert | None:
        """Return the newest state of an alert; None if it is not known, or was cleared long ago."""
        return self._alerts.get(alert_id)

    def opened(self, alert_id: str) -> dt.datetime:
        """Return when an alert that is known was opened, by the device's clock."""
        return self._opened[alert_id]

    def positions(self) -> dict[str, Position]:
        """Return the newest position of each ship, by IMO number."""
        return dict(self._positions)

    @property
    def watched(self) -> bool:
        """Whether any page is open."""
        return bool(self._subscriptions)

    @contextlib.contextmanager
    def subscribe(self) -> Iterator[Subscription]:
        """Pass all news to a page while it is open."""
        subscription = Subscription()
        self._subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)

    def tell(self, news: News) -> None:
        """Pass news to every open page."""
        for subscription in tuple(self._subscriptions):
            subscription.put(news)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow the logs inside the context."""
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            for subscription in tuple(self._subscriptions):
                subscription.end()

    async def _run(self) -> None:
        while True:
            try:
                async with await Cluster.open(
                    self._endpoint(), client_id="fairlead-board", request_timeout=_PATIENCE
                ) as cluster:
                    follower = LogFollower(cluster, self._topics, self._take)
                    await follower.catch_up()
                    following = asyncio.create_task(follower.follow())
                    try:
                        await self._watch(cluster, following)
                    finally:
                        following.cancel()
                        await asyncio.gather(following, return_exceptions=True)
            except FairleadError as error:
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
            await asyncio.wait({following}, timeout=_PAUSE)
        await following

    def _silent(self, error: FairleadError) -> None:
        if error.what != self.trouble:
            log.warning("the board reads no logs: %s", error)
        self.trouble = error.what

    def _take(self, topic: str, record: Record, at_start: bool) -> None:
        if record.value is None or not is_data(record):
            return
        try:
            if topic.startswith("alerts."):
                self._take_alert(self._decode_alert(record.value), at_start)
            else:
                self._take_position(self._decode_position(record.value), at_start)
        except UNREADABLE as error:
            log.warning("%s: the record at offset %d cannot be read: %s", topic, record.offset, error)

    def _take_alert(self, alert: Alert, at_start: bool) -> None:
        known = self._alerts.get(alert.alert_id)
        if known is not None and known.revision >= alert.revision:
            return
        self._alerts[alert.alert_id] = alert
        self._opened.setdefault(alert.alert_id, alert.event_date_time)
        if alert.state == "CLEARED":
            self._cleared[alert.alert_id] = None
            if len(self._cleared) > _CLEARED:
                oldest = next(iter(self._cleared))
                del self._cleared[oldest], self._alerts[oldest], self._opened[oldest]
        if not at_start:
            self.tell(alert)

    def _take_position(self, position: Position, at_start: bool) -> None:
        if position.geo_location is None:
            return
        imo = position.vessel_imo_number
        known = self._positions.get(imo)
        if known is not None and known.device.device_date_time >= position.device.device_date_time:
            return
        self._positions[imo] = position
        if not at_start:
            self.tell(position)
