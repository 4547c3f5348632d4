"""The steps of a voyage: messages to publish, barriers to wait at, links to switch; and the messages' MQTT topics."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

EVENTS_TOPIC = "fairlead/v1/events"
BOOKINGS_TOPIC = "fairlead/v1/bookings"


class MessageKind(StrEnum):
    """The kind of a message. A repeat has the bytes and identity of an earlier reading; no bridge can use a bad one."""

    READING = "reading"
    REPEAT = "repeat"
    EVENT = "event"
    SCHEDULE = "schedule"
    BOOKING = "booking"
    POSITION = "position"
    ENVIRONMENT = "environment"
    BAD = "bad"


class ReadingId(NamedTuple):
    """The identity of a reading: the box, and three fields of ``fairlead.records.reading.Device``."""

    container: str
    device_id: str
    boot_id: int
    sequence: int


class Probes(NamedTuple):
    """The values of a reading that reports draw: degrees Celsius, and whether the unit had power."""

    supply: float | None
    return_: float | None
    ambient: float | None
    setpoint: float
    powered: bool


@dataclass(slots=True)
class Publish:
    """One MQTT message at one site. Treat it as frozen; it is not declared so because a frozen dataclass takes three
    times as long to make, and a day of a large ship has millions.

    Args:
        sim_time: When it happens; for a reading, the device's time as well.
        site: The site whose broker gets it.
        topic: MQTT topic.
        payload: The bytes as published.
        kind: What it is.
        key: Container number, IMO number or event id; "" for a bad message.
        log: The log in which it must be, once; None for a bad message.
        reading: Identity, of readings and repeats.
        customer: The customer that a booking entitles to the reading, or None.
        detail: The event's type code, the booking's status, or the reason code that a bad message must get.
        probes: Of readings.
        place: Latitude and longitude, of positions and of readings that know theirs.
        decides: True for the reading whose evidence must raise an overboard alert.
        moves_log: The container's log whose holder an equipment event changes: the bridge appends one marker to it.
    """

    sim_time: dt.datetime
    site: str
    topic: str
    payload: bytes
    kind: MessageKind
    key: str = ""
    log: str | None = None
    reading: ReadingId | None = None
    customer: str | None = None
    detail: str = ""
    probes: Probes | None = None
    place: tuple[float, float] | None = None
    decides: bool = False
    moves_log: str | None = None


class BarrierKind(StrEnum):
    """What the real system must have done before simulated time continues.

    ``recorded``: every log of ``log_ends`` has reached its end at ``site``.
    ``custody``: ``site`` has taken custody of ``containers``, and their logs have reached ``log_ends`` there.
    ``departure``: before a ship leaves. ``peer`` (the ship) has taken custody of ``containers`` (loaded there), and
    each log of ``log_ends`` (all boxes aboard) has reached its end at both ``site`` (the port) and ``peer``.
    ``arrival``: just before a ship arrives. Each log of ``log_ends`` (all boxes aboard, and the ship's own) has reached
    its end at ``peer`` (the ship); then how much of all that lies ahead of the ship reaches ``site`` (the port) is
    measured.
    ``finished``: nothing more will be published; each log of ``log_ends`` has reached its end at some site.
    """

    RECORDED = "recorded"
    CUSTODY = "custody"
    DEPARTURE = "departure"
    ARRIVAL = "arrival"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class VoyageBarrier:
    """Wait here for the real system, after the brokers have acknowledged everything published so far.

    ``log_ends`` maps a log to the smallest end offset that it must have: one for each message published for it so far
    (repeats and bad messages not counted) and one for each marker. So all its strays must be drained.

    ``gives_way``: simulated time may go on without the condition while a link of ``site`` or ``peer`` is cut: the
    condition may need that link, and comes true when the link is back.
    """

    sim_time: dt.datetime
    kind: BarrierKind
    description: str
    site: str = ""
    peer: str = ""
    containers: tuple[str, ...] = ()
    log_ends: Mapping[str, int] = field(default_factory=dict)
    gives_way: bool = False


@dataclass(frozen=True, slots=True)
class LinkChange:
    """A link goes down or comes up again, in both directions."""

    sim_time: dt.datetime
    between: tuple[str, str]
    up: bool


@dataclass(frozen=True, slots=True)
class ShipSinks:
    """A ship is lost: everything of its site ends for good."""

    sim_time: dt.datetime
    ship: str


@dataclass(frozen=True, slots=True)
class ShipSeized:
    """A port takes over every log that a lost ship holds."""

    sim_time: dt.datetime
    ship: str
    port: str


Step = Publish | VoyageBarrier | LinkChange | ShipSinks | ShipSeized


def readings_topic(number: str) -> str:
    return f"fairlead/v1/containers/{number}/readings"


def position_topic(imo: str) -> str:
    return f"fairlead/v1/ships/{imo}/position"


def environment_topic(imo: str) -> str:
    return f"fairlead/v1/ships/{imo}/environment"
