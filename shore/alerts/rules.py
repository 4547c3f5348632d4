"""The rules: what one reading shows, given what is remembered of its box. Pure. docs/shore-alerts.md says how to
add one, docs/alerts.md what each means.

Left out ashore: what needs a booking's commodity (bounds of what cargo stands, set points beside the booking's), what
needs a ship (boxes overboard, doors at sea), gases (no columns of ``readings`` for their set points).

The limits are the values of detection on board for any cargo, so that both mean the same. ``edge/alerts/defaults.yaml``
and docs/alerts.md name their sources; a test compares them.

``BoxState`` is what is remembered of one log: its newest reading, how often the device reports, what lasts, what is
open. States are kept in Spark's state as bytes, very many together: a ``Bucket``. ``VERSION`` is the first value of
these, so that a later form can be told from this one. A state is some 100 bytes with the name of its log, and 60 more
for each condition that lasts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final, NamedTuple, Protocol

import msgspec

from fairlead.detection import Deviation, Good, usual_interval
from fairlead.records.alert import AlertKind, Severity

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS

FROZEN_SETPOINT: Final = -10.0  # Cel; at or below it return air controls, above it supply air (Carrier T-363)
TEMPERATURE_TOLERANCE: Final = 2.0  # Cel around the set point; judgement
TEMPERATURE_CRITICAL: Final = 5.0  # Cel; judgement: what on board makes a wrong set point critical
TEMPERATURE_DWELL_MS: Final = 60 * MINUTE_MS  # judgement
TEMPERATURE_RECOVERY_MS: Final = 15 * MINUTE_MS  # judgement
AFTER_DEFROST_MS: Final = 30 * MINUTE_MS  # judgement

POWER_DWELL_MS: Final = 30 * MINUTE_MS  # judgement: covers the changes of plug at gate, load and discharge

HUMIDITY_TOLERANCE: Final = 15.0  # per cent around the set point; judgement
HUMIDITY_DWELL_MS: Final = 4 * HOUR_MS  # judgement
HUMIDITY_RECOVERY_MS: Final = 30 * MINUTE_MS  # judgement

SILENCE_INTERVALS: Final = 4  # of the device's usual ones; judgement
SILENCE_AT_LEAST_MS: Final = 60 * MINUTE_MS  # judgement
SILENCE_UNKNOWN_MS: Final = 24 * HOUR_MS  # before two readings have told how often the device reports; judgement

CLOCK_AHEAD_MS: Final = 10 * MINUTE_MS  # a device's clock that is further ahead of the bridge's does not move time on

WATERMARK_DELAY_MS: Final = 30 * MINUTE_MS  # how far news of sites may be apart before one counts as behind; judgement
LOOK_AGAIN_MS: Final = 10 * MINUTE_MS  # at a silence that is not shore's to tell
FORGET_MS: Final = 180 * DAY_MS  # a container of which nothing came for so long is gone; judgement


VERSION: Final = 1


class AlertReading(NamedTuple):
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
    *AlertReading._fields[6:],
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


class BoxState(msgspec.Struct, array_like=True):
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

    def is_newer(self, reading: AlertReading) -> bool:
        """Whether a reading is newer than all before: by its device's counters; between two devices by their clocks."""
        newest = self.newest
        if reading.device == newest.device:
            return (reading.boot, reading.sequence) > (newest.boot, newest.sequence)
        return reading.at_ms >= self.at_ms

    def take_reading(self, reading: AlertReading) -> None:
        """Take in a reading that is newer."""
        self.interval_ms = usual_interval(self.interval_ms, reading.at_ms - self.at_ms, SILENCE_INTERVALS)
        self._remember(reading)

    def _remember(self, reading: AlertReading) -> None:
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


def new_box(reading: AlertReading) -> BoxState:
    """A box of which this is the first reading."""
    box = BoxState(named(reading), reading.term, reading.at_ms)
    box._remember(reading)  # noqa: SLF001  # the class's other constructor
    return box


def reading_of(values: Sequence[Any]) -> AlertReading:
    """A reading from the values of ``COLUMNS``; ``device_date_time`` as microseconds since 1970."""
    return AlertReading._make([*values[:5], values[5] // 1000, *values[6:]])


def named(reading: AlertReading) -> Named:
    return Named(reading.offset, reading.device, reading.boot, reading.sequence)


class Bucket(msgspec.Struct, array_like=True):
    """What one value of Spark's state holds.

    Args:
        timer_ms: The timer that is set; 0 without one. It is not after the first ``BoxState.due_ms``.
        boxes: By log.
    """

    version: int = VERSION
    timer_ms: int = 0
    boxes: dict[str, BoxState] = {}


def pack(bucket: Bucket) -> bytes:
    return _encode(bucket)


def unpack(data: bytes) -> Bucket:
    return _decode(data)


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Bucket).decode


class ShoreRule(Protocol):
    """One kind of alert. A rule has no state: what lasts is kept in ``BoxState.conditions`` by the machine."""

    kind: ClassVar[AlertKind]

    def judge(self, box: BoxState, reading: AlertReading) -> Deviation | Good | None:
        """What ``reading``, which ``box`` has just taken in, shows; None when it shows nothing either way."""

    def describe(self, reading: AlertReading) -> str:
        """The fault in words."""


class Temperature:
    """Controlled air out of the tolerance around the unit's set point. Not while defrosting or being inspected, nor a
    while after: the probes show that and not the cargo."""

    kind: ClassVar[AlertKind] = "TEMPERATURE"

    def judge(self, box: BoxState, reading: AlertReading) -> Deviation | Good | None:
        setpoint, air = reading.setpoint_temperature, _controlled(reading)
        if setpoint is None or air is None or not box.settled(reading.at_ms, AFTER_DEFROST_MS):
            return None
        apart = abs(air - setpoint)
        if apart <= TEMPERATURE_TOLERANCE:
            return Good(TEMPERATURE_RECOVERY_MS)
        severity: Severity = "CRITICAL" if apart >= TEMPERATURE_CRITICAL else "ALARM"
        return Deviation(severity, apart, TEMPERATURE_DWELL_MS)

    def describe(self, reading: AlertReading) -> str:
        which = "return" if _is_frozen(reading) else "supply"
        return f"{which} air {_controlled(reading) or 0.0:.1f} C, set point {reading.setpoint_temperature or 0.0:.1f} C"


class PowerLost:
    """A reefer not plugged in or switched off. A box without set point cools nothing and misses no power; a unit that
    is being inspected is switched off on purpose."""

    kind: ClassVar[AlertKind] = "POWER_LOST"

    def judge(self, box: BoxState, reading: AlertReading) -> Deviation | Good | None:
        if reading.is_powered and reading.is_connected_to_power_source:
            return Good()
        if reading.setpoint_temperature is None or reading.is_pre_trip_inspection:
            return None
        return Deviation("ALARM", 0.0, POWER_DWELL_MS)

    def describe(self, reading: AlertReading) -> str:
        return "switched off" if reading.is_connected_to_power_source else "not plugged in"


class Humidity:
    """Relative humidity far from the unit's set point, where it has one and has power."""

    kind: ClassVar[AlertKind] = "HUMIDITY"

    def judge(self, box: BoxState, reading: AlertReading) -> Deviation | Good | None:
        value, setpoint = reading.relative_humidity, reading.setpoint_relative_humidity
        if value is None or setpoint is None or box.disturbed or not reading.is_powered:
            return None
        beyond = abs(value - setpoint) - HUMIDITY_TOLERANCE
        return Good(HUMIDITY_RECOVERY_MS) if beyond <= 0 else Deviation("WARNING", beyond, HUMIDITY_DWELL_MS)

    def describe(self, reading: AlertReading) -> str:
        value, setpoint = reading.relative_humidity or 0.0, reading.setpoint_relative_humidity or 0.0
        return f"relative humidity {value:.1f} % (set to {setpoint:.1f} %)"


RULES: Final[tuple[ShoreRule, ...]] = (Temperature(), PowerLost(), Humidity())
"""In the order in which a reading's states are written."""


def _is_frozen(reading: AlertReading) -> bool:
    return reading.setpoint_temperature is not None and reading.setpoint_temperature <= FROZEN_SETPOINT


def _controlled(reading: AlertReading) -> float | None:
    return reading.return_temperature if _is_frozen(reading) else reading.supply_temperature
