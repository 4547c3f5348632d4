"""The types of MQTT messages: a reading, a ship's report, an event, a booking, or a rejected message. Pure data.

``edge.ingest.classifier`` creates them. A message is stored with its payload unchanged, or goes whole to the dead
letters. The one exception are AIS values for "not available" in a ship's report, which become null.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import msgspec

from fairlead.records.booking import Booking
from fairlead.records.event import Event
from fairlead.records.reading import Reading
from fairlead.records.ship import Environment, Position

ROOT = "fairlead/v1"
SUBSCRIPTION = f"{ROOT}/#"


class RejectReason(StrEnum):
    """Why a message went to the dead letters. The codes are stable, because people and programs filter by them."""

    MALFORMED_JSON = "malformed-json"
    INVALID_FIELDS = "invalid-fields"
    WRONG_CHECK_DIGIT = "wrong-check-digit"
    NUMBER_MISMATCH = "number-mismatch"
    UNKNOWN_OWNER = "unknown-owner"
    UNKNOWN_SHIP = "unknown-ship"
    UNKNOWN_PORT = "unknown-port"
    UNKNOWN_CUSTOMER = "unknown-customer"
    UNKNOWN_TOPIC = "unknown-topic"
    DEVICE_CLOCK = "device-clock"
    TOO_LARGE = "too-large"
    NOT_HOLDER = "not-holder"
    FLOOD = "flood"
    FOREIGN_BOOKING = "foreign-booking"
    INTERNAL_ERROR = "internal-error"


class MessageId(NamedTuple):
    """The identity of a reading: a repeat of it has the same three values."""

    device: str
    boot: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Rejected:
    """A message that cannot be used; ``detail`` is a sentence for a person."""

    reason: RejectReason
    detail: str


class ReadingMessage(msgspec.Struct, frozen=True):  # a struct: faster to make than a frozen dataclass
    """A reading of a container. ``log`` is the container's log, whichever site holds it."""

    log: str
    number: str
    reading: Reading
    identity: MessageId
    device_ms: int


@dataclass(frozen=True, slots=True)
class ShipMessage:
    """A ship's report about itself, for one of the ship's two logs.

    ``payload``: the payload to store instead of the published one, with null for AIS values that mean "not available".
    None: store the published payload.
    """

    log: str
    imo: str
    report: Position | Environment
    identity: MessageId
    device_ms: int
    payload: bytes | None = None


@dataclass(frozen=True, slots=True)
class EventMessage:
    """A port or vessel event.

    For an equipment event, ``log`` is the container's log and ``to_site`` the site that receives custody, None if the
    box leaves the system. An event of a box of another line, which has no log here, moves no custody.
    """

    event: Event
    device_ms: int
    log: str | None = None
    to_site: str | None = None


@dataclass(frozen=True, slots=True)
class BookingMessage:
    """A change of a booking."""

    booking: Booking
    device_ms: int


Message = ReadingMessage | ShipMessage | EventMessage | BookingMessage
