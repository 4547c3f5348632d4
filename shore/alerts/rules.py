"""The rules: what one reading shows, given what is remembered of its box. Pure. docs/shore-alerts.md says how to add a
rule, docs/alerts.md what each means.

Left out ashore: rules that need a booking's commodity (the limits of a cargo, set points that differ from the
booking's) or a ship (boxes overboard, doors at sea).

The limits are those of detection on board for any cargo, so both mean the same. ``edge/alerts/defaults.yaml`` and
docs/alerts.md name their sources; a test compares them.

``BoxState`` is what is remembered of one log: its newest reading, how often the device reports, which conditions last,
which alerts are open. Spark's state holds many of them as the bytes of one ``Bucket``, whose first value is
``VERSION``, so that a later format can be told apart. A state has some 100 bytes with the name of its log, and 60 more
for each condition that lasts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, ClassVar, Final, NamedTuple, Protocol

import msgspec

from fairlead.detection import Deviation, Good, usual_interval
from fairlead.records.alert import AlertKind, Severity
from fairlead.records.reading import describe_power_loss, power_state

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS

FROZEN_SETPOINT: Final = -10.0  # Cel; at or below it return air controls, above it supply air (Carrier T-363)
TEMPERATURE_TOLERANCE: Final = 2.0  # Cel around the set point; judgement
TEMPERATURE_CRITICAL: Final = 5.0  # Cel; judgement: the deviation at which a wrong set point is critical on board
TEMPERATURE_DWELL_MS: Final = 60 * MINUTE_MS  # judgement
TEMPERATURE_RECOVERY_MS: Final = 15 * MINUTE_MS  # judgement
AFTER_DEFROST_MS: Final = 30 * MINUTE_MS  # judgement

POWER_DWELL_MS: Final = 30 * MINUTE_MS  # judgement: covers replugging at gate, load and discharge

HUMIDITY_TOLERANCE: Final = 15.0  # per cent around the set point; judgement
HUMIDITY_DWELL_MS: Final = 4 * HOUR_MS  # judgement
HUMIDITY_RECOVERY_MS: Final = 30 * MINUTE_MS  # judgement

GAS_TOLERANCE: Final = 2.0  # per cent by volume around the set point of O2 or CO2; judgement
GAS_DWELL_MS: Final = 2 * HOUR_MS  # judgement
GAS_RECOVERY_MS: Final = 30 * MINUTE_MS  # judgement

SILENCE_INTERVALS: Final = 4  # of the device's usual length; judgement
SILENCE_AT_LEAST_MS: Final = 60 * MINUTE_MS  # judgement
SILENCE_UNKNOWN_MS: Final = 24 * HOUR_MS  # before two readings show how often the device reports; judgement

CLOCK_AHEAD_MS: Final = 10 * MINUTE_MS  # a device's clock further ahead of the bridge's does not move the watermark

WATERMARK_DELAY_MS: Final = 30 * MINUTE_MS  # how far readings of sites may be apart before one is late; judgement
LOOK_AGAIN_MS: Final = 10 * MINUTE_MS  # when shore does not report a silence
FORGET_MS: Final = 180 * DAY_MS  # a container that is silent for so long is gone; judgement


VERSION: Final = 1


class AlertReading(NamedTuple):
    """What the rules see of a row of ``readings``. Times in milliseconds since 1970; temperatures in Cel."""

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
    o2: float | None = None
    co2: float | None = None
    setpoint_o2: float | None = None
    setpoint_co2: float | None = None


COLUMNS: Final = (
    "log_offset",
    "term",
    "device_id",
    "boot_id",
    "sequence",
    "device_date_time",
    *AlertReading._fields[6:],
)
"""The columns of ``readings`` that make an ``AlertReading`` (``reading_of``), in its order."""


class Named(msgspec.Struct, array_like=True, frozen=True):
    """A reading's offset, and its permanent identity."""

    offset: int
    device: str
    boot: int
    sequence: int


class Condition(msgspec.Struct, array_like=True):
    """A fault that lasts: since when, by which readings, how bad.

    Args:
        revision: Of the alert's newest state; -1 while it is no alert.
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
    """What is remembered of one log.

    Args:
        newest: Its newest reading, of time ``at_ms``.
        interval_ms: How often the device reports, learnt from its readings; 0: not known yet.
        disturbed_ms: Device time of its last reading that reports a defrost or an inspection.
        silent: Whether the passing of time has opened an alert SILENCE.
        heard_ms: The watermark when the newest reading came.
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
        """How long the box may be silent."""
        if not self.interval_ms:
            return SILENCE_UNKNOWN_MS
        return max(SILENCE_AT_LEAST_MS, SILENCE_INTERVALS * self.interval_ms)

    @property
    def due_ms(self) -> int:
        """When the passing of time next means something, by the watermark. It counts from when the last reading came:
        what is on its way from a ship comes late and is no silence."""
        return max(self.at_ms, self.heard_ms) + (FORGET_MS if self.silent else self.allowed_ms)

    def is_newer(self, reading: AlertReading) -> bool:
        """Return whether a reading is newer than all before: by its device's counters, between two devices by
        clocks."""
        newest = self.newest
        if reading.device == newest.device:
            return (reading.boot, reading.sequence) > (newest.boot, newest.sequence)
        return reading.at_ms >= self.at_ms

    def take_reading(self, reading: AlertReading) -> None:
        """Remember a reading that is newer."""
        self.interval_ms = usual_interval(self.interval_ms, reading.at_ms - self.at_ms, SILENCE_INTERVALS)
        self._remember(reading)

    def _remember(self, reading: AlertReading) -> None:
        self.newest, self.term, self.at_ms = named(reading), reading.term, reading.at_ms
        self.latitude, self.longitude = reading.latitude, reading.longitude
        self.disturbed = bool(reading.is_defrosting or reading.is_pre_trip_inspection)
        if self.disturbed:
            self.disturbed_ms = reading.at_ms

    def settled(self, at_ms: int, after_ms: int) -> bool:
        """Return whether there is no defrost and no inspection now or within the time before."""
        if self.disturbed_ms is None:
            return True
        return not self.disturbed and not 0 <= at_ms - self.disturbed_ms < after_ms


def new_box(reading: AlertReading) -> BoxState:
    """Return the state of a box after its first reading."""
    box = BoxState(named(reading), reading.term, reading.at_ms)
    box._remember(reading)  # noqa: SLF001  # the class's other constructor
    return box


def reading_of(values: Sequence[Any]) -> AlertReading:
    """Make a reading from the values of ``COLUMNS``, with ``device_date_time`` as microseconds since 1970."""
    return AlertReading._make([*values[:5], values[5] // 1000, *values[6:]])


def named(reading: AlertReading) -> Named:
    return Named(reading.offset, reading.device, reading.boot, reading.sequence)


class Bucket(msgspec.Struct, array_like=True):
    """The content of one value of Spark's state.

    Args:
        timer_ms: The timer that is set, never after the first ``BoxState.due_ms``; 0: none.
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
    """One kind of alert. A rule has no state: the machine keeps what lasts in ``BoxState.conditions``."""

    @property
    def kind(self) -> AlertKind: ...

    def judge(self, box: BoxState, reading: AlertReading) -> Deviation | Good | None:
        """Return what ``reading``, which ``box`` has already taken in, shows; None when it shows nothing either way."""

    def describe(self, reading: AlertReading) -> str:
        """Describe the fault in words."""


class Temperature:
    """Controlling air out of the tolerance around the unit's set point. Not judged during a defrost or inspection, nor
    shortly after: the probes then do not show the cargo."""

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
    """A reefer that is not plugged in or is switched off. A box without a set point cools nothing and needs no power; a
    unit that is being inspected is switched off on purpose."""

    kind: ClassVar[AlertKind] = "POWER_LOST"

    def judge(self, box: BoxState, reading: AlertReading) -> Deviation | Good | None:
        power = power_state(reading.is_connected_to_power_source, reading.is_powered)
        if power == "POWERED":
            return Good()
        if power is None:
            return None
        if reading.setpoint_temperature is None or reading.is_pre_trip_inspection:
            return None
        return Deviation("ALARM", 0.0, POWER_DWELL_MS)

    def describe(self, reading: AlertReading) -> str:
        return describe_power_loss(reading.is_connected_to_power_source)


@dataclass(frozen=True, slots=True)
class AroundSetPoint:
    """A value in per cent that is far from the unit's set point, where the unit has one and has power.

    Args:
        word: What the value is, in words.
        measured: Returns the value of a reading and its set point.
    """

    kind: AlertKind
    word: str
    measured: Callable[[AlertReading], tuple[float | None, float | None]]
    severity: Severity
    tolerance: float
    dwell_ms: int
    recovery_ms: int

    def judge(self, box: BoxState, reading: AlertReading) -> Deviation | Good | None:
        value, setpoint = self.measured(reading)
        if value is None or setpoint is None or box.disturbed or reading.is_powered is False:
            return None
        beyond = abs(value - setpoint) - self.tolerance
        return Good(self.recovery_ms) if beyond <= 0 else Deviation(self.severity, beyond, self.dwell_ms)

    def describe(self, reading: AlertReading) -> str:
        value, setpoint = self.measured(reading)
        return f"{self.word} {value or 0.0:.1f} % (set to {setpoint or 0.0:.1f} %)"


_HUMIDITY: Final = AroundSetPoint(
    "HUMIDITY",
    "relative humidity",
    attrgetter("relative_humidity", "setpoint_relative_humidity"),
    "WARNING",
    HUMIDITY_TOLERANCE,
    HUMIDITY_DWELL_MS,
    HUMIDITY_RECOVERY_MS,
)
_OF_GASES: Final = ("ALARM", GAS_TOLERANCE, GAS_DWELL_MS, GAS_RECOVERY_MS)
RULES: Final[tuple[ShoreRule, ...]] = (
    Temperature(),
    PowerLost(),
    _HUMIDITY,
    AroundSetPoint("O2", "oxygen", attrgetter("o2", "setpoint_o2"), *_OF_GASES),
    AroundSetPoint("CO2", "carbon dioxide", attrgetter("co2", "setpoint_co2"), *_OF_GASES),
)
"""In the order in which a reading's states are written."""


def _is_frozen(reading: AlertReading) -> bool:
    return reading.setpoint_temperature is not None and reading.setpoint_temperature <= FROZEN_SETPOINT


def _controlled(reading: AlertReading) -> float | None:
    return reading.return_temperature if _is_frozen(reading) else reading.supply_temperature
