"""Humidity, oxygen or carbon dioxide out of band: around the unit's own set point, and between the commodity's bounds.

A quantity without set point and without bounds is not judged. Nor is a unit without power, which has its own alert,
nor one that is defrosting or being inspected.
"""

from __future__ import annotations

from edge.detection.box import Box
from edge.detection.ship import ShipState
from edge.detection.sustained import Sustained
from edge.detection.thresholds import Range
from edge.messages import ReadingMessage
from fairlead.detection import Fault, Good
from fairlead.records.alert import Severity


class _InRange(Sustained):
    word = ""
    severity: Severity = "WARNING"

    def measured(self, message: ReadingMessage) -> tuple[float | None, float | None]:
        """What was measured and what it is set to, per cent."""
        raise NotImplementedError

    def limits(self, box: Box) -> Range:
        raise NotImplementedError

    def look(self, box: Box, message: ReadingMessage, ship: ShipState) -> Fault | Good | None:
        value, setpoint = self.measured(message)
        if value is None:
            return None
        limits = self.limits(box)
        low, high = limits.minimum, limits.maximum
        if setpoint is None and low is None and high is None:
            return None
        if box.disturbed or not message.reading.is_powered:
            return None
        beyond = max(
            abs(value - setpoint) - limits.tolerance if setpoint is not None else 0.0,
            low - value if low is not None else 0.0,
            value - high if high is not None else 0.0,
        )
        return Good(limits.recovery) if beyond <= 0 else Fault(self.severity, beyond, limits.dwell)

    def describe(self, box: Box, message: ReadingMessage) -> str:
        value, setpoint = self.measured(message)
        limits = self.limits(box)
        wanted = (("set to", setpoint), ("at least", limits.minimum), ("at most", limits.maximum))
        named = ", ".join(f"{word} {bound:.1f} %" for word, bound in wanted if bound is not None)
        return f"{self.word} {value or 0.0:.1f} % ({named})"


class Humidity(_InRange):
    kind = "HUMIDITY"
    word = "relative humidity"

    def measured(self, message: ReadingMessage) -> tuple[float | None, float | None]:
        return message.reading.measurements.relative_humidity, message.reading.setpoints.relative_humidity

    def limits(self, box: Box) -> Range:
        return box.limits.humidity


class Oxygen(_InRange):
    kind = "O2"
    word = "oxygen"
    severity: Severity = "ALARM"

    def measured(self, message: ReadingMessage) -> tuple[float | None, float | None]:
        return message.reading.measurements.o2, message.reading.setpoints.o2

    def limits(self, box: Box) -> Range:
        return box.limits.o2


class CarbonDioxide(_InRange):
    kind = "CO2"
    word = "carbon dioxide"
    severity: Severity = "ALARM"

    def measured(self, message: ReadingMessage) -> tuple[float | None, float | None]:
        return message.reading.measurements.co2, message.reading.setpoints.co2

    def limits(self, box: Box) -> Range:
        return box.limits.co2
