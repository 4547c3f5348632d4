"""Where messages from MQTT go: into the lane of their log, events through custody, the unusable to dead letters."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable
from functools import partial

from edge import records
from edge.acks import Ticket
from edge.boxes import BoxLane
from edge.classifier import Classifier
from edge.custodian import Custodian, Move
from edge.deadletters import dead_letter
from edge.detection.watch import Watch
from edge.errors import LostCustodyError, NotHolderError, ReplicaBehindError
from edge.holdings import Custody, Holdings
from edge.lane import Control, Entry
from edge.lanes import SiteLanes, digest
from edge.messages import (
    BookingMessage,
    EventMessage,
    ReadingMessage,
    Reason,
    Rejected,
    ShipMessage,
)
from edge.metrics import Metrics
from edge.mqtt import Delivery
from fairlead.records.ship import Position

log = logging.getLogger(__name__)

DROPPED = "$SYS/broker/publish/messages/dropped"
PATIENCE = 30.0  # seconds that an event waits for custody which is on its way to this site


class Intake:
    """Routes messages; ``take`` is called for each, in the order of receipt, and only puts things into lanes.

    Args:
        watch: The detection on board; None ashore.
        custody_changed: Notified whenever a log has been taken over here.
        finish: Acknowledges a part of a message.
    """

    def __init__(
        self,
        site: str,
        classifier: Classifier,
        lanes: SiteLanes,
        custodian: Custodian,
        holdings: Holdings,
        metrics: Metrics,
        *,
        watch: Watch | None,
        custody_changed: asyncio.Condition,
        finish: Callable[[Ticket], None],
        patience: float = PATIENCE,
    ) -> None:
        self._site = site
        self._classify = classifier.classify
        self._lanes = lanes
        self._custodian = custodian
        self._holdings = holdings
        self._metrics = metrics
        self._watch = watch
        self._custody_changed = custody_changed
        self._finish = finish
        self._patience = patience

    def take(self, delivery: Delivery) -> None:
        """Route one message."""
        now = time.time_ns() // 1_000_000
        if delivery.topic == DROPPED:
            self._saw_dropped(delivery.payload)
            return
        self._metrics.received += 1
        message = self._classify(delivery.topic, delivery.payload, now)
        match message:
            case ReadingMessage():
                self._take_reading(message, delivery, now)
            case ShipMessage():
                self._take_ship(message, delivery, now)
            case EventMessage():
                self._take_event(message, delivery, now)
            case BookingMessage():
                self._take_booking(message, delivery, now)
            case Rejected():
                self._reject(message, delivery, now)

    def _take_reading(self, message: ReadingMessage, delivery: Delivery, now: int) -> None:
        if self._watch is not None:
            self._look_out(self._watch, message, delivery, now)
        record = records.published(delivery.payload, key=message.number, at_ms=message.device_ms, received_ms=now)
        self._lanes.box(message.log).put(Entry(record, message.identity, delivery.redelivered, delivery.ticket))

    def _look_out(self, watch: Watch, message: ReadingMessage, delivery: Delivery, now: int) -> None:
        """Raise what the reading tells before the reading itself; it is acknowledged when both are stored."""
        ticket, alerts = delivery.ticket, self._lanes.alerts
        held = self._holdings.state(message.log) is Custody.HELD
        for alert in watch.see(message, message.log if held else self._lanes.strays.log, now):
            if ticket is not None:
                ticket.parts += 1
            alerts.put(Entry(records.alert(alert), (alert.alert_id, alert.state), ticket=ticket))
        if ticket is not None and delivery.redelivered and alerts.busy:
            # Its alert may have been raised at the first delivery and still be under way.
            ticket.parts += 1
            alerts.put(Control(partial(self._finish_later, ticket)))

    async def _finish_later(self, ticket: Ticket) -> None:
        self._finish(ticket)

    def _take_ship(self, message: ShipMessage, delivery: Delivery, now: int) -> None:
        if self._watch is not None and isinstance(message.report, Position):
            self._watch.ship_reported(message.report, message.device_ms)
        record = records.published(delivery.payload, key=message.imo, at_ms=message.device_ms, received_ms=now)
        self._lanes.ship[message.log].put(Entry(record, message.identity, delivery.redelivered, delivery.ticket))

    def _take_booking(self, message: BookingMessage, delivery: Delivery, now: int) -> None:
        number = message.booking.equipment_reference
        record = records.published(delivery.payload, key=number, at_ms=message.device_ms, received_ms=now)
        entry = Entry(
            record, digest(number, hashlib.sha256(delivery.payload).hexdigest()), delivery.redelivered, delivery.ticket
        )
        if self._lanes.bookings is not None:
            self._lanes.bookings.put(entry)

    def _take_event(self, message: EventMessage, delivery: Delivery, now: int) -> None:
        event_id = message.event.metadata.event_id
        record = records.published(delivery.payload, key=event_id, at_ms=message.device_ms, received_ms=now)
        entry = Entry(record, event_id, delivery.redelivered, delivery.ticket)
        if message.log is None:
            self._lanes.events.put(entry)
            return
        lane = self._lanes.box(message.log)
        lane.put(Control(partial(self._carry_out, message, entry, delivery, lane, now)))

    async def _carry_out(
        self, message: EventMessage, entry: Entry[str], delivery: Delivery, lane: BoxLane, now: int
    ) -> None:
        """An event that moves a box: into the site's events first, then custody; acknowledged after both."""
        repeated = entry.key in self._lanes.event_ids
        try:
            if self._custodian.plan(message) is Move.WAIT:
                await self._wait_for_custody(lane.log)
            self._custodian.plan(message)  # a refusal must come before anything is written
            await self._lanes.events.append(entry.record, entry.key)
            move = await self._custodian.perform(message, lane)
        except (NotHolderError, ReplicaBehindError, LostCustodyError) as error:
            if repeated:  # it was carried out before, and since then the box has moved on
                self._metrics.repeats += 1
                self._done(delivery)
            else:
                log.error("%s: event %s refused: %s", self._site, entry.key, error)
                self._reject(Rejected(Reason.NOT_HOLDER, error.what), delivery, now)
            return
        if move is Move.GRANT:
            self._metrics.grants += 1
            if self._watch is not None:
                self._watch.forget(message.event.payload.equipment_reference or "")
        elif move is not Move.NOTHING:
            self._metrics.opened += 1
            if self._lanes.strays.wait_for(lane.log):
                lane.put(Control(lane.prepare))  # its strays come in even when no reading follows
        self._done(delivery)

    async def _wait_for_custody(self, topic: str) -> None:
        """Wait while custody of a log is on its way here, for as long as a message may stay unacknowledged."""
        try:
            async with asyncio.timeout(self._patience), self._custody_changed:
                await self._custody_changed.wait_for(lambda: self._holdings.state(topic) is not Custody.INCOMING)
        except TimeoutError:
            raise NotHolderError(
                topic, self._site, self._holdings.view.holder(topic), doing="pass on what has not arrived yet"
            ) from None

    def _reject(self, rejected: Rejected, delivery: Delivery, now: int) -> None:
        self._metrics.refused_by_reason[rejected.reason.value] += 1
        letter = dead_letter(delivery.topic, delivery.payload, rejected, now)
        key = digest(letter.mqtt_topic, letter.payload_sha256)
        self._lanes.letters.put(Entry(records.dead(letter, now), key, delivery.redelivered, delivery.ticket))

    def _done(self, delivery: Delivery) -> None:
        if delivery.ticket is not None:
            self._finish(delivery.ticket)

    def _saw_dropped(self, payload: bytes) -> None:
        """Mosquitto counts what its queues dropped, for all clients together, since it started."""
        try:
            dropped = int(payload)
        except ValueError:
            return
        grown = dropped - self._metrics.mqtt_dropped
        if grown > 0:
            log.error(
                "%s: THE MQTT BROKER HAS DROPPED %d MESSAGES (%d since it started): its queue limits are too small",
                self._site,
                grown,
                dropped,
            )
        self._metrics.mqtt_dropped = dropped
