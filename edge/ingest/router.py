"""Routes MQTT messages: to the writer of their log, to the handler of equipment events, or to the dead letters."""

from __future__ import annotations

import hashlib
import logging
import time
from typing import Final, Protocol

import msgspec

from edge.alerts.engine import AlertEngine
from edge.alerts.roll_call_service import RollCallService
from edge.holdings import CustodyState
from edge.ingest.classifier import Classifier
from edge.ingest.dead_letters import DeadLetters
from edge.ingest.limits import Decision, DeviceLimits
from edge.ingest.references import BookingReferences
from edge.logwriter import records
from edge.logwriter.writer import LogEntry
from edge.messages import (
    BookingMessage,
    EventMessage,
    ReadingMessage,
    Rejected,
    RejectReason,
    ShipMessage,
)
from edge.mqtt.acks import PendingAck, WithoutPuback
from edge.mqtt.session import EXCESS, WINDOW, Delivery
from edge.writer_registry import WriterRegistry
from fairlead.kafka.protocol.record import NewRecord
from fairlead.records.ship import Position

log = logging.getLogger(__name__)

DROPPED = "$SYS/broker/publish/messages/dropped"
MOST_UNACKNOWLEDGED: Final = EXCESS * WINDOW  # as many as of QoS 1; nothing holds a publisher of QoS 0 back


class EventHandler(Protocol):
    """Carries out equipment events (``edge.custody.handlers.CustodyEventHandler``)."""

    def handle_event(
        self, message: EventMessage, record: NewRecord, topic: str, *, redelivered: bool, ack: PendingAck | None
    ) -> None: ...


class MessageRouter:
    """Routes messages to writers. Call ``route_message`` for each, in the order of receipt; it only enqueues.

    Args:
        events: Carries out equipment events.
        roll_calls: The roll calls of a ship; None ashore.
    """

    def __init__(
        self,
        classifier: Classifier,
        writers: WriterRegistry,
        events: EventHandler,
        dead_letters: DeadLetters,
        engine: AlertEngine,
        roll_calls: RollCallService | None = None,
    ) -> None:
        self._site = classifier.site
        self._classify = classifier.classify
        self._writers = writers
        self._metrics = writers.metrics
        self._events = events
        self._dead_letters = dead_letters
        self.references = BookingReferences()
        self.limits = DeviceLimits(classifier.site)
        self._engine = engine
        self._roll_calls = roll_calls
        self._dropped: int | None = None  # the MQTT broker's own count; None until it was received once
        self._without_puback = WithoutPuback()
        self._told_drops = False

    def route_message(self, delivery: Delivery) -> None:
        """Route one message."""
        now = time.time_ns() // 1_000_000
        if delivery.topic == DROPPED:
            self._saw_dropped(delivery.payload)
            return
        self._metrics.received += 1
        if delivery.ack is None:
            if not self._has_room():
                return
            delivery = msgspec.structs.replace(delivery, ack=self._without_puback.received())
        decision = self.limits.check(delivery.topic, delivery.payload, now)
        if decision is not Decision.TAKE:
            self._refuse_flood(decision, delivery, now)
            return
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

    def _has_room(self) -> bool:
        """Return whether one more message without PUBACK may wait; if not, count it and log the first one."""
        waiting = len(self._without_puback)
        self._told_drops = self._told_drops and waiting > 0
        if waiting < MOST_UNACKNOWLEDGED:
            return True
        self._metrics.qos0_dropped += 1
        if not self._told_drops:
            self._told_drops = True
            log.error(
                "%s: MESSAGES OF QOS 0 ARE DROPPED: %d wait already, because Kafka does not store them in time; "
                "devices that publish with QoS 1 lose nothing",
                self._site,
                waiting,
            )
        return False

    def _refuse_flood(self, decision: Decision, delivery: Delivery, now: int) -> None:
        """Keep a message over its device's limit as a dead letter, or acknowledge and drop it."""
        if decision is Decision.LETTER:
            self._reject(Rejected(RejectReason.FLOOD, self.limits.why(delivery.topic)), delivery, now)
            return
        self._metrics.flood_dropped += 1
        if delivery.ack is not None:
            delivery.ack.finish_part()

    def _take_reading(self, message: ReadingMessage, delivery: Delivery, now: int) -> None:
        """Enqueue a reading, and before it the alerts that it causes. Its PUBACK waits until all are stored.

        A yard judges only the readings of containers that the ledgers give to it.
        """
        writers, ack = self._writers, delivery.ack
        custody = writers.holdings.state(message.log)
        if self._engine.yard is None or custody is not CustodyState.ELSEWHERE:
            stored_in = message.log if custody is CustodyState.HELD else writers.strays.log
            raised = self._engine.judge_reading(message, stored_in, now)
            if raised:
                writers.alerts.append_alerts(raised, ack)
            if ack is not None and delivery.redelivered and writers.alerts.busy:
                writers.alerts.hold_back(ack)  # the first delivery may have raised an alert that is not stored yet
        record = records.published(delivery.payload, key=message.number, at_ms=message.device_ms, received_ms=now)
        writers.box(message.log).enqueue(LogEntry(record, message.identity, delivery.redelivered, ack))

    def _take_ship(self, message: ShipMessage, delivery: Delivery, now: int) -> None:
        if isinstance(message.report, Position):
            self._writers.alerts.append_alerts(
                self._engine.ship_reported(message.report, message.device_ms, now), delivery.ack
            )
            if self._roll_calls is not None:
                self._roll_calls.tick(now, delivery.ack)
        payload = message.payload if message.payload is not None else delivery.payload
        record = records.published(payload, key=message.imo, at_ms=message.device_ms, received_ms=now)
        self._writers.ship[message.log].enqueue(LogEntry(record, message.identity, delivery.redelivered, delivery.ack))

    def _take_booking(self, message: BookingMessage, delivery: Delivery, now: int) -> None:
        number, reference = message.booking.equipment_reference, message.booking.booking_reference
        owner = self.references.owner(reference)
        if owner is not None and owner != self._site:
            self.references.note_attempt(message.booking, owner, now)
            log.error("%s: a change of booking %r, which belongs to %s, was refused", self._site, reference, owner)
            detail = f"booking {reference} belongs to {owner}, where it was first seen; only that office may change it"
            self._reject(Rejected(RejectReason.FOREIGN_BOOKING, detail), delivery, now)
            return
        self.references.learn(reference, self._site, now)
        record = records.published(delivery.payload, key=number, at_ms=message.device_ms, received_ms=now)
        key = records.digest(number, hashlib.sha256(delivery.payload).hexdigest())
        entry = LogEntry(record, key, delivery.redelivered, delivery.ack)
        if self._writers.bookings is not None:
            self._writers.bookings.enqueue(entry)

    def _take_event(self, message: EventMessage, delivery: Delivery, now: int) -> None:
        event_id = message.event.metadata.event_id
        record = records.published(delivery.payload, key=event_id, at_ms=message.device_ms, received_ms=now)
        entry = LogEntry(record, event_id, delivery.redelivered, delivery.ack)
        if message.log is None:
            self._writers.events.enqueue(entry)
            if self._roll_calls is not None:
                self._roll_calls.apply_event(message.event)
            return
        self._events.handle_event(message, record, delivery.topic, redelivered=delivery.redelivered, ack=delivery.ack)

    def _reject(self, rejected: Rejected, delivery: Delivery, now: int) -> None:
        self._dead_letters.reject(rejected, delivery.topic, delivery.payload, delivery.redelivered, delivery.ack, now)

    def _saw_dropped(self, payload: bytes) -> None:
        """Count the messages that Mosquitto has dropped, from its own count for all clients since its start.

        The first value is a retained message and only sets the base: an earlier bridge has counted what it covers.
        """
        try:
            dropped = int(payload)
        except ValueError:
            return
        before, self._dropped = self._dropped, dropped
        if before is None:
            if dropped > 0:
                log.warning(
                    "%s: the MQTT broker dropped %d messages between its start and this bridge's: its queue limits "
                    "are too small",
                    self._site,
                    dropped,
                )
            return
        grown = dropped - before if dropped >= before else dropped  # a lower count: Mosquitto has restarted
        if grown > 0:
            self._metrics.mqtt_dropped += grown
            log.error(
                "%s: THE MQTT BROKER DROPPED %d MESSAGES (%d since its start): its queue limits are too small",
                self._site,
                grown,
                dropped,
            )
