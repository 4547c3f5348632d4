"""What a bridge does before it takes its first message: connect, open the site's own logs, remember what they hold."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import hashlib
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from confluent_kafka.admin import AdminClient

from edge.alerts.engine import AlertEngine
from edge.alerts.site_alerts import SiteAlerts
from edge.ingest.dead_letters import letter_key
from edge.logwriter import records
from edge.logwriter.retry import retry_transient
from edge.logwriter.tail_reader import DEEP, TailReader
from edge.messages import milliseconds
from edge.site_logs import FixedLogs
from edge.writer_registry import REMEMBERED, WriterRegistry
from fairlead.errors import FairleadError
from fairlead.kafka.admin import LOG_DEFAULTS, create_logs, require_answer
from fairlead.kafka.client.appender import Appender
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.convention import is_data
from fairlead.kafka.endpoint import Endpoint, KafkaEndpoint, current
from fairlead.kafka.protocol.errors import BrokerError, RequestTimeout
from fairlead.kafka.protocol.record import NewRecord
from fairlead.kafka.protocol.types import TP
from fairlead.records import UNREADABLE, decoder
from fairlead.records.alert import Alert
from fairlead.records.custody import Marker
from fairlead.records.edge import DeadLetter
from fairlead.records.event import Event
from fairlead.records.ship import Position

T = TypeVar("T")
_SERVED_SECONDS: Final = 60.0  # for a topic that was created to be served
_SERVED_SOON: Final = 5.0  # the same while other boxes wait for theirs
REFUSED_AT_START: Final = 5.0  # both may be starting; and a wrong password shall show soon


@dataclass(frozen=True, slots=True)
class SiteKafka:
    """A connection to the site's Kafka, and what reads from it and appends to it.

    Args:
        urgent: An appender that waits for no batch; for alerts only.
        create: Creates topics that are missing, many at once; returns, by topic, why it cannot be written now.
    """

    cluster: Cluster
    appender: Appender
    urgent: Appender
    tails: TailReader
    create: Callable[[Sequence[str]], Awaitable[Mapping[str, FairleadError]]]


async def connect(endpoint: Endpoint, client_id: str) -> Cluster:
    """Connect to the site's Kafka, trying again until it is there; ``endpoint`` is asked at every login.

    Raises:
        AuthenticationFailed: the login was refused for ``REFUSED_AT_START`` seconds.
    """
    return await retry_transient(
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
            for error in (await self._create_now(topics, _SERVED_SECONDS)).values():
                raise error

        await retry_transient(create, f"{self._cluster.endpoint.site}: creating {len(topics)} logs")

    async def try_create(self, topics: Sequence[str]) -> dict[str, FairleadError]:
        """Create those that are missing. Returns, by topic, why it cannot be written now; no topic waits for another.
        A Kafka that is away altogether is waited for."""
        return await retry_transient(
            partial(self._create_now, topics, _SERVED_SOON),
            f"{self._cluster.endpoint.site}: creating {len(topics)} logs",
        )

    async def _create_now(self, topics: Sequence[str], seconds: float) -> dict[str, FairleadError]:
        failures: dict[str, FairleadError] = {}
        missing = set(topics) - set(await self._cluster.topics(topics, refresh=True))
        if missing:
            implied = await self._cluster.topic_defaults(self._like, LOG_DEFAULTS) if self._like is not None else {}
            wanted = dict.fromkeys(missing, LOG_DEFAULTS)
            failures = await asyncio.to_thread(self._make, wanted, implied)
        made = [topic for topic in topics if topic not in failures]
        try:
            await self._cluster.wait_writable(made, seconds)
        except (RequestTimeout, BrokerError):
            served = await asyncio.gather(*map(self._why_not_served, made))
            failures |= {topic: error for topic, error in zip(made, served, strict=True) if error is not None}
        self._like = self._like or next((topic for topic in topics if topic not in failures), None)
        return failures

    async def _why_not_served(self, topic: str) -> FairleadError | None:
        try:
            await self._cluster.wait_writable([topic], 0)
        except (RequestTimeout, BrokerError) as error:
            return error
        return None

    def _make(self, wanted: Mapping[str, Mapping[str, str]], implied: Mapping[str, str]) -> dict[str, FairleadError]:
        endpoint = current(self._endpoint)
        if self._client is None or self._client[0] != endpoint or endpoint.other_passwords:
            # This client keeps its password and would try it without end, should it have been changed.
            self._client = endpoint, require_answer(endpoint)
        failures: dict[str, FairleadError] = {}
        create_logs(endpoint, wanted, client=self._client[1], implied=implied, failures=failures)
        return failures


async def served(cluster: Cluster, topic: str) -> None:
    """Ask the leader of a log for its end.

    Raises:
        WireError: it does not answer.
    """
    end = (await cluster.end_offsets([TP(topic)]))[TP(topic)]
    if isinstance(end, BrokerError):
        raise end


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


async def recall(
    logs: FixedLogs,
    writers: WriterRegistry,
    engine: AlertEngine | None,
    site_alerts: SiteAlerts,
    tails: TailReader,
) -> None:
    """Fill what the site's own writers remember from the tails of their logs; give each alert to whoever raised it."""
    async for event in _values(tails, logs.events, Event, REMEMBERED):
        writers.event_ids.add(event.metadata.event_id)
    async for raised in _values(tails, logs.alerts, Alert, REMEMBERED):
        writers.alert_keys.add(records.alert_key(raised))
        site_alerts.restore(raised)
        if engine is not None:
            engine.restore(raised)
    async for letter in _values(tails, logs.deadletters, DeadLetter, DEEP):
        writers.letter_keys.add(letter_key(letter))
    if logs.bookings is not None:
        for record in (await tails.read(logs.bookings, DEEP)).records:
            if record.value is not None and record.key is not None:
                writers.booking_keys.add(records.digest(record.key.decode(), hashlib.sha256(record.value).hexdigest()))
    if logs.location is not None and engine is not None:
        async for position in _values(tails, logs.location, Position, 1):
            engine.recall_ship(position, milliseconds(position.device.device_date_time), time.time_ns() // 1_000_000)


async def _values(tails: TailReader, topic: str, kind: type[T], depth: int) -> AsyncIterator[T]:
    decode = decoder(kind).decode
    for record in (await tails.read(topic, depth)).records:
        if record.value is not None and is_data(record):
            with contextlib.suppress(*UNREADABLE):
                yield decode(record.value)
