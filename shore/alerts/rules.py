"""The rules: what one reading shows. Pure. docs/shore-alerts.md says how to add one,
docs/alerts.md what each means.

Left out ashore: what needs a booking's commodity (bounds of what cargo stands, set points beside the booking's), what
needs a ship (boxes overboard, doors at sea), gases (no columns of ``readings`` for their set points).
"""

from __future__ import annotations

from typing import ClassVar, Final, Protocol

from fairlead.detection import Deviation, Good
from fairlead.records.alert import AlertKind, Severity
from shore.alerts import limits
from shore.alerts.box import Box, Reading


class Rule(Protocol):
    """One kind of alert. A rule has no state: what lasts is kept in ``Box.conditions`` by the machine."""

    kind: ClassVar[AlertKind]

    def look(self, box: Box, reading: Reading) -> Deviation | Good | None:
        """What ``reading``, which ``box`` has just taken in, shows; None when it shows nothing either way."""

    def describe(self, reading: Reading) -> str:
        """The fault in words."""


class Temperature:
    """Controlled air out of the tolerance around the unit's set point. Not while defrosting or being inspected, nor a
    while after: the probes show that and not the cargo."""

    kind: ClassVar[AlertKind] = "TEMPERATURE"

    def look(self, box: Box, reading: Reading) -> Deviation | Good | None:
        setpoint, air = reading.setpoint_temperature, _controlled(reading)
        if setpoint is None or air is None or not box.settled(reading.at_ms, limits.AFTER_DEFROST_MS):
            return None
        apart = abs(air - setpoint)
        if apart <= limits.TEMPERATURE_TOLERANCE:
            return Good(limits.TEMPERATURE_RECOVERY_MS)
        severity: Severity = "CRITICAL" if apart >= limits.TEMPERATURE_CRITICAL else "ALARM"
        return Deviation(severity, apart, limits.TEMPERATURE_DWELL_MS)

    def describe(self, reading: Reading) -> str:
        which = "return" if _is_frozen(reading) else "supply"
        return f"{which} air {_controlled(reading) or 0.0:.1f} C, set point {reading.setpoint_temperature or 0.0:.1f} C"


class PowerLost:
    """A reefer not plugged in or switched off. A box without set point cools nothing and misses no power; a unit that
    is being inspected is switched off on purpose."""

    kind: ClassVar[AlertKind] = "POWER_LOST"

    def look(self, box: Box, reading: Reading) -> Deviation | Good | None:
        if reading.is_powered and reading.is_connected_to_power_source:
            return Good()
        if reading.setpoint_temperature is None or reading.is_pre_trip_inspection:
            return None
        return Deviation("ALARM", 0.0, limits.POWER_DWELL_MS)

    def describe(self, reading: Reading) -> str:
        return "switched off" if reading.is_connected_to_power_source else "not plugged in"


class Humidity:
    """Relative humidity far from the unit's set point, where it has one and has power."""

    kind: ClassVar[AlertKind] = "HUMIDITY"

    def look(self, box: Box, reading: Reading) -> Deviation | Good | None:
        value, setpoint = reading.relative_humidity, reading.setpoint_relative_humidity
        if value is None or setpoint is None or box.disturbed or not reading.is_powered:
            return None
        beyond = abs(value - setpoint) - limits.HUMIDITY_TOLERANCE
        return (
            Good(limits.HUMIDITY_RECOVERY_MS) if beyond <= 0 else Deviation("WARNING", beyond, limits.HUMIDITY_DWELL_MS)
        )

    def describe(self, reading: Reading) -> str:
        value, setpoint = reading.relative_humidity or 0.0, reading.setpoint_relative_humidity or 0.0
        return f"relative humidity {value:.1f} % (set to {setpoint:.1f} %)"


RULES: Final[tuple[Rule, ...]] = (Temperature(), PowerLost(), Humidity())
"""In the order in which a reading's states are written."""


def _is_frozen(reading: Reading) -> bool:
    return reading.setpoint_temperature is not None and reading.setpoint_temperature <= limits.FROZEN_SETPOINT


def _controlled(reading: Reading) -> float | None:
    return reading.return_temperature if _is_frozen(reading) else reading.supply_temperature
