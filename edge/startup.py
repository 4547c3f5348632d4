"""Opens the site's own logs and reads their newest entries, before a bridge takes its first message."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import hashlib
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import TypeVar

import msgspec

from edge.alerts.engine import AlertEngine
from edge.alerts.roll_call_service import RollCallService
from edge.alerts.site_alerts import SiteAlerts
from edge.alerts.state import is_by_hand
from edge.ingest.dead_letters import letter_key
from edge.logwriter import records
from edge.logwriter.tail_reader import DEEP, TailReader
from edge.site_kafka import TopicMaker
from edge.site_logs import FixedLogs
from edge.writer_registry import REMEMBERED, WriterRegistry
from fairlead.kafka.client.appender import Appender
from fairlead.kafka.convention import is_data
from fairlead.kafka.protocol.record import NewRecord, Record
from fairlead.kafka.protocol.types import TP
from fairlead.records import UNREADABLE, decoder
from fairlead.records.alert import Alert
from fairlead.records.custody import Marker
from fairlead.records.edge import DeadLetter
from fairlead.records.event import Event
from fairlead.records.reading import milliseconds
from fairlead.records.ship import Position, RollCall

T = TypeVar("T")


async def open_fixed_logs(maker: TopicMaker, appender: Appender, logs: FixedLogs, site: str) -> None:
    """Create the site's own logs that are missing, and begin each with the marker of term 1."""
    topics = logs.all()
    await maker.create(topics)
    await asyncio.gather(*(appender.ensure_open(TP(topic), _first_marker(topic, site)) for topic in topics))


def _first_marker(topic: str, site: str) -> NewRecord:
    return records.marker(Marker.opening(topic, site, dt.datetime.now(dt.UTC)))


async def recall(
    logs: FixedLogs,
    writers: WriterRegistry,
    engine: AlertEngine,
    site_alerts: SiteAlerts,
    tails: TailReader,
    roll_calls: RollCallService | None = None,
) -> None:
    """Fill the memories of the site's own writers from the tails of their logs, and restore the alerts.

    Only the alerts log is read whole.
    """
    async for event in _values(tails, logs.events, Event, REMEMBERED):
        writers.event_ids.add(event.metadata.event_id)
        if roll_calls is not None:
            roll_calls.restore_event(event)
    if logs.roll_calls is not None and roll_calls is not None:
        async for made in _values(tails, logs.roll_calls, RollCall, DEEP):
            roll_calls.restore_record(made)
    async for raised in _alerts(tails, logs.alerts):
        writers.alerts.keys.add(records.alert_state_key(raised))
        site_alerts.restore(raised)
        engine.restore(raised)
        if roll_calls is not None:
            roll_calls.restore_alert(raised)
    async for letter in _values(tails, logs.deadletters, DeadLetter, DEEP):
        writers.letter_keys.add(letter_key(letter))
    if logs.bookings is not None:
        for record in (await tails.read(logs.bookings, DEEP)).records:
            if record.value is not None and record.key is not None:
                writers.booking_keys.add(records.digest(record.key.decode(), hashlib.sha256(record.value).hexdigest()))
    if logs.location is not None:
        async for position in _values(tails, logs.location, Position, 1):
            engine.recall_ship(position, milliseconds(position.device.device_date_time), time.time_ns() // 1_000_000)


async def _alerts(tails: TailReader, topic: str) -> AsyncIterator[Alert]:
    """Yield the newest states in a site's alerts log, and before them those of older alerts that still count.

    These are open, however long ago, or a person has cleared them. Of each, yields the first state and the newest two.
    """
    tail = await tails.read(topic, REMEMBERED)
    alerts = decoder(Alert)
    older: dict[str, list[Alert]] = {}
    async for record in tails.records(topic, tail.start, tail.floor):
        for alert in _decoded([record], alerts):
            states = older.setdefault(alert.alert_id, [])
            states.append(alert)
            del states[1:-2]
            if alert.state == "CLEARED" and not is_by_hand(alert):
                del older[alert.alert_id]
    for states in older.values():
        for alert in states:
            yield alert
    for alert in _decoded(tail.records, alerts):
        yield alert


async def _values(tails: TailReader, topic: str, kind: type[T], depth: int) -> AsyncIterator[T]:
    for value in _decoded((await tails.read(topic, depth)).records, decoder(kind)):
        yield value


def _decoded(found: Iterable[Record], kind: msgspec.json.Decoder[T]) -> Iterator[T]:
    for record in found:
        if record.value is not None and is_data(record):
            with contextlib.suppress(*UNREADABLE):
                yield kind.decode(record.value)
