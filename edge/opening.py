"""What a bridge does before it takes its first message: connect, open the site's own logs, remember what they hold."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import hashlib
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final, TypeVar

from confluent_kafka.admin import AdminClient

from edge import records
from edge.deadletters import letter_key
from edge.detection.watch import Watch
from edge.lanes import REMEMBERED, SiteLanes
from edge.logs import FixedLogs
from edge.messages import milliseconds
from edge.patience import patiently
from edge.strayage import StrayAge
from edge.strays import WaitingEvent
from edge.tails import DEEP, Tails
from fairlead.admin import LOG_DEFAULTS, create_logs, require_answer
from fairlead.custody import CustodyView
from fairlead.endpoint import Endpoint, KafkaEndpoint, current
from fairlead.records import UNREADABLE, decoder
from fairlead.records.alert import Alert
from fairlead.records.custody import Marker
from fairlead.records.edge import DeadLetter
from fairlead.records.event import Event
from fairlead.records.ship import Position
from fairlead.wire.appender import Appender
from fairlead.wire.cluster import Cluster
from fairlead.wire.convention import is_data
from fairlead.wire.reader import read_log
from fairlead.wire.record import NewRecord
from fairlead.wire.types import TP

T = TypeVar("T")
REFUSED_AT_START: Final = 5.0  # both may be starting; and a wrong password shall show soon


async def connect(endpoint: Endpoint, client_id: str) -> Cluster:
    """Connect to the site's Kafka, trying again until it is there; ``endpoint`` is asked at every login.

    Raises:
        AuthenticationFailed: the login was refused for ``REFUSED_AT_START`` seconds.
    """
    return await patiently(
        lambda: Cluster.open(endpoint, client_id=client_id),
        f"{current(endpoint).site}: connecting to Kafka",
        refused_seconds=REFUSED_AT_START,
    )


class TopicMaker:
    """Creates logs at a site, many at once."""

    def __init__(self, endpoint: Endpoint, cluster: Cluster) -> None:
        self._endpoint = endpoint
        self._cluster = cluster
        self._client: tuple[KafkaEndpoint, AdminClient] | None = None  # and whom it logs in as
        self._like: str | None = None  # a log that is there

    async def create(self, topics: Sequence[str]) -> None:
        """Create those that are missing and wait until all can be written."""

        async def create() -> None:
            missing = set(topics) - set(await self._cluster.topics(topics, refresh=True))
            if missing:
                implied = await self._cluster.topic_defaults(self._like, LOG_DEFAULTS) if self._like is not None else {}
                wanted = dict.fromkeys(missing, LOG_DEFAULTS)
                await asyncio.to_thread(self._make, wanted, implied)
            await self._cluster.wait_writable(topics)
            self._like = self._like or next(iter(topics), None)

        await patiently(create, f"{self._cluster.endpoint.site}: creating {len(topics)} logs")

    def _make(self, wanted: Mapping[str, Mapping[str, str]], implied: Mapping[str, str]) -> None:
        endpoint = current(self._endpoint)
        if self._client is None or self._client[0] != endpoint or endpoint.other_passwords:
            # This client keeps its password and would try it without end, should it have been changed.
            self._client = endpoint, require_answer(endpoint)
        create_logs(endpoint, wanted, client=self._client[1], implied=implied)


async def open_fixed_logs(maker: TopicMaker, appender: Appender, logs: FixedLogs, site: str) -> None:
    """Make sure that the site's own logs exist and begin with the marker of term 1."""
    topics = logs.all()
    await maker.create(topics)
    await asyncio.gather(*(appender.ensure_open(TP(topic), _first_marker(topic, site)) for topic in topics))


def _first_marker(topic: str, site: str) -> NewRecord:
    now = int(time.time() * 1000)
    marker = Marker(
        log=topic,
        term=1,
        from_site=None,
        to_site=site,
        event="HAND",
        event_id=f"open-{topic}",
        event_date_time=dt.datetime.fromtimestamp(now / 1000, dt.UTC),
        nonce=uuid.uuid4().hex,
    )
    return records.marker(marker)


async def recall(logs: FixedLogs, lanes: SiteLanes, watch: Watch | None, age: StrayAge, tails: Tails) -> None:
    """Fill the memories of the site's own logs from their tails."""
    async for event in _values(tails, logs.events, Event, REMEMBERED):
        lanes.event_ids.add(event.metadata.event_id)
    async for alert in _values(tails, logs.alerts, Alert, REMEMBERED):
        lanes.alert_keys.add(records.alert_key(alert))
        age.restore(alert)
        if watch is not None:
            watch.restore(alert)
    async for letter in _values(tails, logs.deadletters, DeadLetter, DEEP):
        lanes.letter_keys.add(letter_key(letter))
    if logs.bookings is not None:
        for record in (await tails.read(logs.bookings, DEEP)).records:
            if record.value is not None and record.key is not None:
                lanes.booking_keys.add(records.digest(record.key.decode(), hashlib.sha256(record.value).hexdigest()))
    if logs.location is not None and watch is not None:
        async for position in _values(tails, logs.location, Position, 1):
            watch.recall_ship(position, milliseconds(position.device.device_date_time), time.time_ns() // 1_000_000)


async def recall_strays(cluster: Cluster, lanes: SiteLanes, view: CustodyView) -> None:
    """Find what still waits in this site's strays log. May be called again after an error: it goes on from there."""
    strays = lanes.strays

    def drained_before(topic: str) -> int:
        grant = view.grant(topic)
        return grant.drained.get(strays.log, 0) if grant is not None else 0

    def done(topic: str, event: WaitingEvent) -> bool:
        """Whether an event was carried out: it moved the log, or did and others have since."""
        grant = view.grant(topic)
        if grant is None:
            return False
        return grant.event_id == event.event_id or (grant.at > event.at and event.event_id in lanes.event_ids)

    async for record in read_log(cluster, TP(strays.log), strays.index.end or None):
        strays.found(record, drained_before, done)


async def _values(tails: Tails, topic: str, kind: type[T], depth: int) -> AsyncIterator[T]:
    decode = decoder(kind).decode
    for record in (await tails.read(topic, depth)).records:
        if record.value is not None and is_data(record):
            with contextlib.suppress(*UNREADABLE):
                yield decode(record.value)
