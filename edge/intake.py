"""Where messages from MQTT go: into the lane of their log, events through custody, the unusable to dead letters."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable
from functools import partial

from edge import records
from edge.acks import Ticket
from edge.classifier import Classifier
from edge.custodian import Custodian
from edge.deadletters import dead_letter, letter_key
from edge.detection.watch import Watch
from edge.holdings import Custody, Holdings
from edge.lane import Control, Entry
from edge.lanes import SiteLanes, put_alerts
from edge.messages import (
    BookingMessage,
    EventMessage,
    Identity,
    ReadingMessage,
    Reason,
    Rejected,
    ShipMessage,
    readings_topic,
)
from edge.metrics import Metrics
from edge.movements import Movements
from edge.mqtt import Delivery
from fairlead.records.alert import Alert, Cause
from fairlead.records.ship import Position

log = logging.getLogger(__name__)

DROPPED = "$SYS/broker/publish/messages/dropped"


class Intake:
    """Routes messages; ``take`` is called for each, in the order of receipt, and only puts things into lanes.

    Args:
        watch: The detection on board; None ashore.
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
        finish: Callable[[Ticket], None],
    ) -> None:
        self._site = site
        self._classify = classifier.classify
        self._lanes = lanes
        self._holdings = holdings
        self._metrics = metrics
        self._watch = watch
        self._finish = finish
        self._dropped = 0  # as the MQTT broker counts
        self.movements = Movements(site, lanes, custodian, metrics, finish=finish, reject=self.reject)

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

    def take_checked(
        self,
        log: str,
        number: str,
        identity: Identity,
        device_ms: int,
        received_ms: int,
        payload: bytes,
        redelivered: bool,
        ticket: Ticket | None,
    ) -> None:
        """A reading that an intake process has classified (``edge.intakes``). Detection wants to see all of it."""
        if self._watch is not None:
            self.take(Delivery(readings_topic(number), payload, redelivered, ticket))
            return
        self._metrics.received += 1
        record = records.published(payload, key=number, at_ms=device_ms, received_ms=received_ms)
        self._lanes.box(log).put(Entry(record, identity, redelivered, ticket))

    def refuse_checked(
        self, rejected: Rejected, topic: str, payload: bytes, received_ms: int, redelivered: bool, ticket: Ticket | None
    ) -> None:
        """A message that an intake process has found unusable."""
        self._metrics.received += 1
        self._reject(rejected, Delivery(topic, payload, redelivered, ticket), received_ms)

    def _take_reading(self, message: ReadingMessage, delivery: Delivery, now: int) -> None:
        if self._watch is not None:
            self._look_out(self._watch, message, delivery, now)
        record = records.published(delivery.payload, key=message.number, at_ms=message.device_ms, received_ms=now)
        self._lanes.box(message.log).put(Entry(record, message.identity, delivery.redelivered, delivery.ticket))

    def _look_out(self, watch: Watch, message: ReadingMessage, delivery: Delivery, now: int) -> None:
        """Raise what the reading tells before the reading itself; it is acknowledged when both are stored."""
        ticket, alerts = delivery.ticket, self._lanes.alerts
        held = self._holdings.state(message.log) is Custody.HELD
        put_alerts(self._lanes, watch.see(message, message.log if held else self._lanes.strays.log, now), ticket)
        if ticket is not None and delivery.redelivered and alerts.busy:
            # Its alert may have been raised at the first delivery and still be under way.
            ticket.parts += 1
            alerts.put(Control(partial(self._finish_later, ticket)))

    async def _finish_later(self, ticket: Ticket) -> None:
        self._finish(ticket)

    def _take_ship(self, message: ShipMessage, delivery: Delivery, now: int) -> None:
        if self._watch is not None and isinstance(message.report, Position):
            put_alerts(self._lanes, self._watch.ship_reported(message.report, message.device_ms, now), delivery.ticket)
        payload = message.payload if message.payload is not None else delivery.payload
        record = records.published(payload, key=message.imo, at_ms=message.device_ms, received_ms=now)
        self._lanes.ship[message.log].put(Entry(record, message.identity, delivery.redelivered, delivery.ticket))

    def _take_booking(self, message: BookingMessage, delivery: Delivery, now: int) -> None:
        number = message.booking.equipment_reference
        record = records.published(delivery.payload, key=number, at_ms=message.device_ms, received_ms=now)
        key = records.digest(number, hashlib.sha256(delivery.payload).hexdigest())
        entry = Entry(record, key, delivery.redelivered, delivery.ticket)
        if self._lanes.bookings is not None:
            self._lanes.bookings.put(entry)

    def _take_event(self, message: EventMessage, delivery: Delivery, now: int) -> None:
        event_id = message.event.metadata.event_id
        record = records.published(delivery.payload, key=event_id, at_ms=message.device_ms, received_ms=now)
        entry = Entry(record, event_id, delivery.redelivered, delivery.ticket)
        if message.log is None:
            self._lanes.events.put(entry)
            return
        self.movements.take(message, record, delivery.topic, redelivered=delivery.redelivered, ticket=delivery.ticket)

    def _reject(self, rejected: Rejected, delivery: Delivery, now: int) -> None:
        self.reject(rejected, delivery.topic, delivery.payload, delivery.redelivered, delivery.ticket, now)

    def _clock_off(self, watch: Watch, rejected: Rejected, topic: str, payload: bytes, now: int) -> list[Alert]:
        """Somebody must look at a container whose readings nobody watches."""
        identity = records.identity(payload)
        match topic.split("/"):
            case [_, _, "containers", number, "readings"] if identity is not None:
                device, boot, sequence = identity
                cause = Cause(log=self._lanes.letters.log, offset=-1, device_id=device, boot_id=boot, sequence=sequence)
                return watch.refused(number, cause, rejected.detail, now)
        return []

    def reject(
        self, rejected: Rejected, topic: str, payload: bytes, redelivered: bool, ticket: Ticket | None, now: int = 0
    ) -> None:
        """Put a message among the dead letters; it is acknowledged when it is there."""
        now = now or time.time_ns() // 1_000_000
        if self._watch is not None and rejected.reason is Reason.DEVICE_CLOCK:
            put_alerts(self._lanes, self._clock_off(self._watch, rejected, topic, payload, now), ticket)
        self._metrics.refused_by_reason[rejected.reason.value] += 1
        letter = dead_letter(topic, payload, rejected, now)
        self._lanes.letters.put(Entry(records.dead(letter, now), letter_key(letter), redelivered, ticket))

    def _saw_dropped(self, payload: bytes) -> None:
        """Mosquitto counts what its queues dropped, for all clients together, since it started."""
        try:
            dropped = int(payload)
        except ValueError:
            return
        grown, self._dropped = dropped - self._dropped, dropped
        if grown > 0:
            self._metrics.mqtt_dropped += grown
            log.error(
                "%s: THE MQTT BROKER HAS DROPPED %d MESSAGES (%d since it started): its queue limits are too small",
                self._site,
                grown,
                dropped,
            )
