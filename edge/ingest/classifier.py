"""Classifies MQTT messages: decodes them, and checks topic, fields, numbers and clock. Pure.

In: topic, payload and the time of receipt. Out: one typed message that names its log, or a ``Rejected`` with a stable
reason code. Never raises, whatever the bytes are.
"""

from __future__ import annotations

import datetime as dt
import logging
import re
from typing import NamedTuple

import msgspec

from edge.ais.decoder import payload_without_sentinels, without_sentinels
from edge.ingest.dead_letters import KEPT_TOPIC, unwrapped
from edge.messages import (
    BookingMessage,
    EventMessage,
    Message,
    MessageId,
    ReadingMessage,
    Rejected,
    RejectReason,
    ShipMessage,
)
from edge.site_logs import FixedLogs, container_log, fixed_logs
from fairlead.names import is_container_number, is_imo_number
from fairlead.records import decoder
from fairlead.records.booking import Booking
from fairlead.records.event import Event
from fairlead.records.reading import Device, Reading, milliseconds
from fairlead.records.ship import Environment, Position
from topologies.model import SiteKind, Topology

log = logging.getLogger(__name__)

# Messages above the MQTT broker's own limit (4 MiB at local sites) never arrive: the broker closes the publisher's
# connection without an acknowledgement, so the publisher knows.
MAX_PAYLOAD_BYTES = 256 * 1024
EARLIEST = dt.datetime(2015, 1, 1, tzinfo=dt.UTC)
MAX_AHEAD = dt.timedelta(hours=24)
MAX_COUNTER = (1 << 63) - 1
# Alerts and ledger entries hold several names each; without this bound they could exceed a log's record size.
MAX_NAME = 128
_MAX_AHEAD_MS = MAX_AHEAD // dt.timedelta(milliseconds=1)
_CACHED_TOPICS = 65536
_NUMBER = re.compile(r"[A-Z]{3}[A-Z][0-9]{7}")


class _ReadingTopic(NamedTuple):
    number: str
    log: str


class _ShipTopic(NamedTuple):
    imo: str
    log: str
    decoder: msgspec.json.Decoder[Position] | msgspec.json.Decoder[Environment]


class _EventsTopic(NamedTuple):
    pass


class _BookingsTopic(NamedTuple):
    pass


_Route = _ReadingTopic | _ShipTopic | _EventsTopic | _BookingsTopic | Rejected


class Classifier:
    """Classifies the messages of one site. Caches the routes of at most 65,536 topics."""

    def __init__(self, topology: Topology, site: str) -> None:
        self._topology = topology
        self.site = site
        self._logs: FixedLogs = fixed_logs(topology, site)
        self._routes: dict[str, _Route] = {}
        self._reading = decoder(Reading)
        self._position = decoder(Position)
        self._environment = decoder(Environment)
        self._event = decoder(Event)
        self._booking = decoder(Booking)

    def classify(self, topic: str, payload: bytes, received_ms: int) -> Message | Rejected:
        """Return the typed message, or why it is rejected. ``received_ms``: the site's wall time, ms since 1970."""
        if len(payload) > MAX_PAYLOAD_BYTES:
            return Rejected(
                RejectReason.TOO_LARGE,
                f"the payload has {len(payload):,} bytes, at most {MAX_PAYLOAD_BYTES:,} are taken",
            )
        route = self._routes.get(topic)
        if route is None:
            route = self._route(topic)
            if len(self._routes) >= _CACHED_TOPICS:
                self._routes.clear()
            self._routes[topic] = route
        try:
            match route:
                case _ReadingTopic():
                    return self._classify_reading(route, payload, received_ms)
                case _ShipTopic():
                    return self._classify_ship(route, payload, received_ms)
                case _EventsTopic():
                    return self._classify_event(payload, received_ms)
                case _BookingsTopic():
                    return self._classify_booking(payload, received_ms)
                case Rejected():
                    return route
        except msgspec.ValidationError as error:
            return Rejected(RejectReason.INVALID_FIELDS, str(error))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return Rejected(RejectReason.MALFORMED_JSON, f"the payload is not JSON: {error}")
        except Exception as error:
            # A bug in this code. The message would fail again on every delivery, so keep it until the bug is fixed.
            log.exception("%s: a message on %r cannot be classified", self.site, topic[:KEPT_TOPIC])
            return Rejected(
                RejectReason.INTERNAL_ERROR, f"the bridge failed on this message: {type(error).__name__}: {error}"
            )

    def _route(self, topic: str) -> _Route:
        """Return what the messages of an MQTT topic are, or why all of them are rejected."""
        topic, _ = unwrapped(topic)  # a replayed dead letter counts as published on its original topic
        match topic.split("/"):
            case ["fairlead", "v1", "containers", number, "readings"]:
                checked = self._container(number)
                return checked if isinstance(checked, Rejected) else _ReadingTopic(number, checked)
            case ["fairlead", "v1", "ships", imo, ("position" | "environment") as what]:
                return self._ship_route(imo, what)
            case ["fairlead", "v1", "events"]:
                return _EventsTopic()
            case ["fairlead", "v1", "bookings"]:
                if self._logs.bookings is None:
                    return Rejected(
                        RejectReason.NOT_HOLDER, f"{self.site} is a ship; bookings are taken at an office ashore"
                    )
                return _BookingsTopic()
            case _:
                return Rejected(RejectReason.UNKNOWN_TOPIC, f"no message of Fairlead is published on {topic!r}")

    def _container(self, number: str) -> str | Rejected:
        """Return the log of a container number, or why there is none."""
        if not _NUMBER.fullmatch(number):
            return Rejected(RejectReason.UNKNOWN_TOPIC, f"{number!r} is no ISO 6346 container number")
        if not is_container_number(number):
            return Rejected(RejectReason.WRONG_CHECK_DIGIT, f"the check digit of container {number} is wrong")
        log = container_log(self._topology, number)
        if log is None:
            return Rejected(RejectReason.UNKNOWN_OWNER, f"nobody in this topology owns containers of {number[:4]}")
        return log

    def _ship_route(self, imo: str, what: str) -> _Route:
        if not is_imo_number(imo):
            return Rejected(RejectReason.UNKNOWN_SHIP, f"{imo!r} is no IMO ship number")
        ship = self._topology.ship_with(imo)
        if ship is None:
            return Rejected(RejectReason.UNKNOWN_SHIP, f"no ship of this topology has IMO number {imo}")
        if ship != self.site:
            return Rejected(
                RejectReason.NOT_HOLDER, f"the log of ship {imo} is written on board ({ship}), not at {self.site}"
            )
        if what == "position":
            return _ShipTopic(imo, f"ships.{imo}.location", self._position)
        return _ShipTopic(imo, f"ships.{imo}.environment", self._environment)

    def _classify_reading(self, route: _ReadingTopic, payload: bytes, received_ms: int) -> Message | Rejected:
        reading = self._reading.decode(payload)
        if reading.equipment_reference != route.number:
            return _mismatch(route.number, reading.equipment_reference)
        found = _identity_and_time(reading.device, received_ms)
        if isinstance(found, Rejected):
            return found
        identity, device_ms = found
        return ReadingMessage(route.log, route.number, reading, identity, device_ms)

    def _classify_ship(self, route: _ShipTopic, payload: bytes, received_ms: int) -> Message | Rejected:
        report = route.decoder.decode(payload)
        if report.vessel_imo_number != route.imo:
            return _mismatch(route.imo, report.vessel_imo_number)
        found = _identity_and_time(report.device, received_ms)
        if isinstance(found, Rejected):
            return found
        identity, device_ms = found
        if isinstance(report, Position):
            cleaned = without_sentinels(report)
            if cleaned is not report:
                payload = payload_without_sentinels(payload, cleaned)
                return ShipMessage(route.log, route.imo, cleaned, identity, device_ms, payload)
        return ShipMessage(route.log, route.imo, report, identity, device_ms)

    def _classify_event(self, payload: bytes, received_ms: int) -> Message | Rejected:
        event = self._event.decode(payload)
        body = event.payload
        if (wrong := _misnamed("eventID", event.metadata.event_id)) is not None:
            return wrong
        if not event.happened:
            return self._schedule(event, received_ms)
        device_ms = _checked_ms(body.event_date_time, received_ms)
        if isinstance(device_ms, Rejected):
            return device_ms
        if event.metadata.event_type == "TRANSPORT":
            return self._transport(event, device_ms)
        if body.equipment_event_type_code is None or body.equipment_reference is None:
            return Rejected(
                RejectReason.INVALID_FIELDS, "an EQUIPMENT event needs equipmentEventTypeCode and equipmentReference"
            )
        number = body.equipment_reference
        if not _NUMBER.fullmatch(number):
            return Rejected(RejectReason.INVALID_FIELDS, f"{number!r} is no ISO 6346 container number")
        log = self._container(number)
        if isinstance(log, Rejected):
            return self._without_custody(event, device_ms) if log.reason is RejectReason.UNKNOWN_OWNER else log
        to_site = self._receiver(event)
        if isinstance(to_site, Rejected):
            return to_site
        return EventMessage(event, device_ms, log, to_site)

    def _schedule(self, event: Event, received_ms: int) -> Message | Rejected:
        """Return a planned or estimated event of a ship. Its time may lie ahead, so it is stored under the time at
        which it was written down."""
        body = event.payload
        if event.metadata.event_type != "TRANSPORT":
            return Rejected(
                RejectReason.INVALID_FIELDS, "only a TRANSPORT event may be planned (PLN) or estimated (EST)"
            )
        if body.vessel_imo_number is None or body.un_location_code is None or not body.voyage_reference:
            what = "a schedule needs vesselIMONumber, UNLocationCode and voyageReference"
            return Rejected(RejectReason.INVALID_FIELDS, what)
        created_ms = _checked_ms(event.metadata.event_created_date_time, received_ms)
        return created_ms if isinstance(created_ms, Rejected) else self._transport(event, created_ms)

    def _transport(self, event: Event, device_ms: int) -> Message | Rejected:
        if event.payload.transport_event_type_code is None:
            return Rejected(RejectReason.INVALID_FIELDS, "a TRANSPORT event needs transportEventTypeCode")
        return self._without_custody(event, device_ms)

    def _without_custody(self, event: Event, device_ms: int) -> Message | Rejected:
        """Return an event that moves no log. A port sees other lines too, so any valid IMO number will do."""
        imo = event.payload.vessel_imo_number
        if imo is not None and not is_imo_number(imo):
            return Rejected(RejectReason.UNKNOWN_SHIP, f"{imo!r} is no IMO ship number")
        return EventMessage(event, device_ms)

    def _receiver(self, event: Event) -> str | Rejected | None:
        """Return the site that an equipment event passes the box's log to; None for a gate-out."""
        body = event.payload
        ashore = self._topology.sites[self.site].kind is not SiteKind.SHIP
        match body.equipment_event_type_code:
            case "GTIN" | "GTOT" as code:
                if not ashore:
                    return Rejected(RejectReason.NOT_HOLDER, f"{code} happens at a gate ashore, {self.site} is a ship")
                return self.site if code == "GTIN" else None
            case "LOAD":
                ship = self._topology.ship_with(body.vessel_imo_number or "")
                if ship is None:
                    return Rejected(
                        RejectReason.UNKNOWN_SHIP, f"LOAD onto {body.vessel_imo_number!r}: no such ship here"
                    )
                return ship
            case _:
                port = self._topology.port_at(body.un_location_code or "")
                if port is None:
                    return Rejected(RejectReason.UNKNOWN_PORT, f"DISC at {body.un_location_code!r}: no such port here")
                return port

    def _classify_booking(self, payload: bytes, received_ms: int) -> Message | Rejected:
        booking = self._booking.decode(payload)
        number = booking.equipment_reference
        if not is_container_number(number):
            return Rejected(RejectReason.WRONG_CHECK_DIGIT, f"container number {number!r} of the booking is wrong")
        if container_log(self._topology, number) is None:
            # Events of other lines' boxes are stored. A booking would take them into a customer's feed.
            return Rejected(RejectReason.UNKNOWN_OWNER, f"nobody in this topology owns containers of {number[:4]}")
        if (wrong := _misnamed("bookingReference", booking.booking_reference)) is not None:
            return wrong
        document = booking.transport_document_reference
        if document and (wrong := _misnamed("transportDocumentReference", document)) is not None:
            return wrong
        if booking.customer not in self._topology.customers:
            return Rejected(
                RejectReason.UNKNOWN_CUSTOMER, f"no customer of this topology is named {booking.customer!r}"
            )
        if booking.valid_from.tzinfo is None or (booking.valid_to is not None and booking.valid_to.tzinfo is None):
            return Rejected(RejectReason.INVALID_FIELDS, "times of the booking have no time zone")
        # A booking's times may be past or future; changes are ordered by their time of arrival.
        return BookingMessage(booking, received_ms)


def _mismatch(topic: str, payload: str) -> Rejected:
    return Rejected(RejectReason.NUMBER_MISMATCH, f"the topic says {topic}, the payload says {payload}")


def _misnamed(what: str, name: str) -> Rejected | None:
    """Return why a name cannot be stored; None if it has 1 to ``MAX_NAME`` printable characters."""
    if 0 < len(name) <= MAX_NAME and name.isprintable():
        return None
    return Rejected(
        RejectReason.INVALID_FIELDS, f"{what} must have 1 to {MAX_NAME} printable characters; it has {len(name)}"
    )


def _identity_and_time(device: Device, received_ms: int) -> tuple[MessageId, int] | Rejected:
    """Return a report's identity and its device time in milliseconds, or why they are invalid."""
    if (wrong := _misnamed("deviceId", device.device_id)) is not None:
        return wrong
    if not (0 <= device.boot_id <= MAX_COUNTER and 0 <= device.sequence <= MAX_COUNTER):
        return Rejected(RejectReason.INVALID_FIELDS, "bootId and sequence count from 0")
    device_ms = _checked_ms(device.device_date_time, received_ms)
    if isinstance(device_ms, Rejected):
        return device_ms
    return MessageId(device.device_id, device.boot_id, device.sequence), device_ms


def _checked_ms(moment: dt.datetime, received_ms: int) -> int | Rejected:
    """Return a device's time in milliseconds, or why it is rejected."""
    if moment.tzinfo is None:
        return Rejected(RejectReason.INVALID_FIELDS, "the time has no time zone; RFC 3339 in UTC is expected")
    if moment < EARLIEST:
        return Rejected(
            RejectReason.DEVICE_CLOCK, f"the device's clock says {moment.isoformat()}, before {EARLIEST.year}"
        )
    at = milliseconds(moment)
    if at - received_ms > _MAX_AHEAD_MS:
        return Rejected(
            RejectReason.DEVICE_CLOCK, f"the device's clock says {moment.isoformat()}, over 24 h ahead of ours"
        )
    return at
