"""What a message from MQTT can be: a reading, a ship's own report, an event, a booking, or nothing usable. Pure data.

Made by ``edge.ingest.classifier``. Nothing is corrected and no payload is changed, but for what AIS sends in place of a
value that it does not have: a message is taken as it is, or goes whole to the dead letters.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from fairlead.records.booking import Booking
from fairlead.records.event import Event
from fairlead.records.reading import Reading
from fairlead.records.ship import Environment, Position

ROOT = "fairlead/v1"
SUBSCRIPTION = f"{ROOT}/#"
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MILLISECOND = dt.timedelta(milliseconds=1)


class RejectReason(StrEnum):
    """Why a message went to the dead letters. Stable codes: people and programs filter by them."""

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
    """What names a reading for ever: a repeat has the same three."""

    device: str
    boot: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Rejected:
    """A message that cannot be used; ``detail`` is a sentence for a person."""

    reason: RejectReason
    detail: str


@dataclass(frozen=True, slots=True)
class ReadingMessage:
    """A reading of a container; ``log`` is the container's log, wherever it is held."""

    log: str
    number: str
    reading: Reading
    identity: MessageId
    device_ms: int


@dataclass(frozen=True, slots=True)
class ShipMessage:
    """A ship's report about itself, for one of the two logs of this ship.

    ``payload``: what is stored instead of the message, where AIS values for "not available" had to become null.
    """

    log: str
    imo: str
    report: Position | Environment
    identity: MessageId
    device_ms: int
    payload: bytes | None = None


@dataclass(frozen=True, slots=True)
class EventMessage:
    """A port or vessel event. ``log`` is the container's log for an equipment event; ``to_site`` who gets custody."""

    event: Event
    device_ms: int
    log: str | None = None
    to_site: str | None = None


@dataclass(frozen=True, slots=True)
class BookingMessage:
    """A change of a booking."""

    booking: Booking
    device_ms: int


def readings_topic(number: str) -> str:
    """Where the readings of a container are published."""
    return f"{ROOT}/containers/{number}/readings"


Message = ReadingMessage | ShipMessage | EventMessage | BookingMessage


def milliseconds(moment: dt.datetime) -> int:
    """Milliseconds since 1970 of an aware time."""
    return (moment - _EPOCH) // _MILLISECOND
