"""What is remembered of one log: its newest reading, how often the device reports, what lasts, what is open. Pure.

Boxes are kept in Spark's state as bytes, very many together: a ``Bucket``. ``VERSION`` is the first value of these, so
that a later form can be told from this one. A box is some 100 bytes with the name of its log, and 60 more for each
condition that lasts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from fairlead.detection import usual_interval
from fairlead.records.alert import AlertKind, Severity
from shore.alerts.limits import (
    FORGET_MS,
    SILENCE_AT_LEAST_MS,
    SILENCE_INTERVALS,
    SILENCE_UNKNOWN_MS,
)

VERSION: Final = 1


class Reading(NamedTuple):
    """What the rules see of a row of ``readings``. Times in milliseconds since 1970; temperatures Cel."""

    offset: int
    term: int | None
    device: str
    boot: int
    sequence: int
    at_ms: int
    supply_temperature: float | None = None
    return_temperature: float | None = None
    relative_humidity: float | None = None
    setpoint_temperature: float | None = None
    setpoint_relative_humidity: float | None = None
    is_defrosting: bool | None = None
    is_pre_trip_inspection: bool | None = None
    is_connected_to_power_source: bool | None = None
    is_powered: bool | None = None
    latitude: float | None = None
    longitude: float | None = None


COLUMNS: Final = (
    "log_offset",
    "term",
    "device_id",
    "boot_id",
    "sequence",
    "device_date_time",
    *Reading._fields[6:],
)
"""The columns of ``readings`` that a ``Reading`` is made of (``reading_of``), in its order."""


class Named(msgspec.Struct, array_like=True, frozen=True):
    """A reading by its offset, and by what names it for ever."""

    offset: int
    device: str
    boot: int
    sequence: int


class Condition(msgspec.Struct, array_like=True):
    """Something that is out of order: since when, by which readings, how bad.

    Args:
        revision: Of the alert's newest state; -1 as long as it is no alert.
        said: Severity of that state.
    """

    since_ms: int
    first: Named
    worst_offset: int
    size: float
    severity: Severity
    good_since_ms: int | None = None
    revision: int = -1
    said: Severity = "WARNING"


class Box(msgspec.Struct, array_like=True):
    """One log.

    Args:
        newest: Its newest reading, of time ``at_ms``.
        interval_ms: How often the device reports, learnt from its readings; 0: not known yet.
        disturbed_ms: When it last said that it is defrosting or being inspected.
        silent: An alert SILENCE is open, because time passed.
        heard_ms: Where the clock of all readings (the watermark) stood when the newest one came.
    """

    newest: Named
    term: int | None
    at_ms: int
    latitude: float | None = None
    longitude: float | None = None
    interval_ms: int = 0
    disturbed: bool = False
    disturbed_ms: int | None = None
    silent: bool = False
    heard_ms: int = 0
    conditions: dict[AlertKind, Condition] = {}

    @property
    def allowed_ms(self) -> int:
        """How long it may say nothing."""
        if not self.interval_ms:
            return SILENCE_UNKNOWN_MS
        return max(SILENCE_AT_LEAST_MS, SILENCE_INTERVALS * self.interval_ms)

    @property
    def due_ms(self) -> int:
        """When time passing says something of it next: by the clock of all readings, and counted from when its last
        one came, because what is on its way from a ship comes late and is no silence."""
        return max(self.at_ms, self.heard_ms) + (FORGET_MS if self.silent else self.allowed_ms)

    def is_newer(self, reading: Reading) -> bool:
        """Whether a reading is newer than all before: by its device's counters; between two devices by their clocks."""
        newest = self.newest
        if reading.device == newest.device:
            return (reading.boot, reading.sequence) > (newest.boot, newest.sequence)
        return reading.at_ms >= self.at_ms

    def take(self, reading: Reading) -> None:
        """Take in a reading that is newer."""
        self.interval_ms = usual_interval(self.interval_ms, reading.at_ms - self.at_ms, SILENCE_INTERVALS)
        self._remember(reading)

    def _remember(self, reading: Reading) -> None:
        self.newest, self.term, self.at_ms = named(reading), reading.term, reading.at_ms
        self.latitude, self.longitude = reading.latitude, reading.longitude
        self.disturbed = bool(reading.is_defrosting or reading.is_pre_trip_inspection)
        if self.disturbed:
            self.disturbed_ms = reading.at_ms

    def settled(self, at_ms: int, after_ms: int) -> bool:
        """No defrost and no inspection now or within the time before."""
        if self.disturbed_ms is None:
            return True
        return not self.disturbed and not 0 <= at_ms - self.disturbed_ms < after_ms


def new_box(reading: Reading) -> Box:
    """A box of which this is the first reading."""
    box = Box(named(reading), reading.term, reading.at_ms)
    box._remember(reading)  # noqa: SLF001  # the class's other constructor
    return box


def reading_of(values: Sequence[Any]) -> Reading:
    """A reading from the values of ``COLUMNS``; ``device_date_time`` as microseconds since 1970."""
    return Reading._make([*values[:5], values[5] // 1000, *values[6:]])


def named(reading: Reading) -> Named:
    return Named(reading.offset, reading.device, reading.boot, reading.sequence)


class Bucket(msgspec.Struct, array_like=True):
    """What one value of Spark's state holds.

    Args:
        timer_ms: The timer that is set; 0 without one. It is not after the first ``Box.due_ms``.
        boxes: By log.
    """

    version: int = VERSION
    timer_ms: int = 0
    boxes: dict[str, Box] = {}


def pack(bucket: Bucket) -> bytes:
    return _encode(bucket)


def unpack(data: bytes) -> Bucket:
    return _decode(data)


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Bucket).decode
