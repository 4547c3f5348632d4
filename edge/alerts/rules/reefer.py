"""The rules about a reefer: temperature, power, set point, humidity and gases, door, inspection, unit's alarms. Pure.

Temperature: supply air controls chilled cargo, return air frozen cargo (set point -10 degrees Celsius or lower; Carrier
T-363). During a defrost or a pre-trip inspection, and for some time after it, the probes do not show the cargo's
temperature, so those readings neither begin nor end a condition. A temperature out of the tolerance around the set
point is an ALARM; one beyond the commodity's limits (``minimum``, ``maximum``) is CRITICAL, whatever the set point.

Power: it is off for a while at every gate, load and discharge, which the dwell covers. During a pre-trip inspection the
unit is switched off on purpose.

Humidity, oxygen, carbon dioxide: a band around the unit's own set point, and the commodity's bounds. A quantity without
a set point and without bounds is not judged, nor is a unit without power, in a defrost or in a pre-trip inspection.

The unit's own alarms (RMO ``alarms``) are passed on as they are, without a dwell. Those of severity LOG are entries of
the unit's log and raise nothing.

The inspection before a trip (RMO ``inspection[]``) is judged for a unit with booked cargo alone: one that waits for a
repair in the yard may have failed it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from edge.alerts.box import ContainerState, unique
from edge.alerts.rules.base import GOOD, AlertRule, DwellRule, RuleFinding, good_with, rank
from edge.alerts.ship import ShipState
from edge.alerts.thresholds import BandThresholds
from edge.messages import ReadingMessage
from fairlead.detection import Deviation, Good
from fairlead.records.alert import SEVERITIES, Alert, Cause, Evidence, Severity
from fairlead.records.reading import (
    describe_power_loss,
    milliseconds,
    newest_inspection,
    power_state,
    unit_alarms,
)


class TemperatureRule(DwellRule):
    kind = "TEMPERATURE"

    def find_deviation(self, box: ContainerState, message: ReadingMessage, ship: ShipState) -> Deviation | Good | None:
        reading, limits = message.reading, box.limits.temperature
        setpoint = reading.setpoints.temperature
        if setpoint is None:
            return None
        measured = reading.measurements
        air = measured.return_temperature if setpoint <= limits.frozen_setpoint else measured.supply_temperature
        if air is None or (box.disturbed_ms is not None and not box.settled(message.device_ms, limits.after_defrost)):
            return None
        apart = abs(air - setpoint)
        low, high = limits.minimum, limits.maximum
        if (low is not None and air < low) or (high is not None and air > high):
            return Deviation("CRITICAL", apart, limits.dwell)
        return good_with(limits.recovery) if apart <= limits.tolerance else Deviation("ALARM", apart, limits.dwell)

    def describe(self, box: ContainerState, message: ReadingMessage) -> str:
        reading, limits = message.reading, box.limits.temperature
        setpoint, measured = reading.setpoints.temperature or 0.0, reading.measurements
        frozen = setpoint <= limits.frozen_setpoint
        air = measured.return_temperature if frozen else measured.supply_temperature
        bounds = [
            f"{word} {value:.1f} C"
            for word, value in (("at least", limits.minimum), ("at most", limits.maximum))
            if value is not None
        ]
        stands = f", the cargo stands {' and '.join(bounds)}" if bounds else ""
        return f"{'return' if frozen else 'supply'} air {air or 0.0:.1f} C, set point {setpoint:.1f} C{stands}"


# -- power


class PowerLostRule(DwellRule):
    kind = "POWER_LOST"

    def find_deviation(self, box: ContainerState, message: ReadingMessage, ship: ShipState) -> Deviation | Good | None:
        reading = message.reading
        power = power_state(reading.is_connected_to_power_source, reading.is_powered)
        if power == "POWERED":
            return GOOD
        if power is None:
            return None
        if reading.setpoints.temperature is None or reading.reefer_settings.is_pre_trip_inspection:
            return None  # a container without a set point needs no power
        return Deviation("ALARM", 0.0, box.limits.power.dwell)

    def describe(self, box: ContainerState, message: ReadingMessage) -> str:
        return describe_power_loss(message.reading.is_connected_to_power_source)


# -- set point


class WrongSetpointRule(DwellRule):
    kind = "SETPOINT"

    def find_deviation(self, box: ContainerState, message: ReadingMessage, ship: ShipState) -> Deviation | Good | None:
        booked = box.booking.setpoint_temperature if box.booking is not None else None
        if booked is None:
            return GOOD  # also once the booking is cancelled or over
        actual = message.reading.setpoints.temperature
        if actual is None or message.reading.reefer_settings.is_pre_trip_inspection:
            return None
        limits, apart = box.limits.setpoint, abs(actual - booked)
        if apart <= limits.tolerance:
            return GOOD
        return Deviation("CRITICAL" if apart >= limits.critical else "ALARM", apart, limits.dwell)

    def describe(self, box: ContainerState, message: ReadingMessage) -> str:
        booking = box.booking
        booked = f"{booking.setpoint_temperature:.1f} C (booking {booking.booking_reference})" if booking else "unknown"
        return f"set point {message.reading.setpoints.temperature:.1f} C, booked {booked}"


# -- humidity and gases


class _InRange(DwellRule):
    """``quantity``: its name among a reading's measurements and set points, both in per cent. ``limits``: its name in a
    container's thresholds.
    """

    quantity: ClassVar[str]
    limits: ClassVar[str]
    word = ""
    severity: Severity = "WARNING"

    def find_deviation(self, box: ContainerState, message: ReadingMessage, ship: ShipState) -> Deviation | Good | None:
        reading = message.reading
        value: float | None = getattr(reading.measurements, self.quantity)
        if value is None:
            return None
        setpoint: float | None = getattr(reading.setpoints, self.quantity)
        limits: BandThresholds = getattr(box.limits, self.limits)
        low, high = limits.minimum, limits.maximum
        if setpoint is None and low is None and high is None:
            return None
        if box.disturbed or reading.is_powered is False:
            return None
        beyond = max(
            abs(value - setpoint) - limits.tolerance if setpoint is not None else 0.0,
            low - value if low is not None else 0.0,
            value - high if high is not None else 0.0,
        )
        return good_with(limits.recovery) if beyond <= 0 else Deviation(self.severity, beyond, limits.dwell)

    def describe(self, box: ContainerState, message: ReadingMessage) -> str:
        value: float | None = getattr(message.reading.measurements, self.quantity)
        setpoint: float | None = getattr(message.reading.setpoints, self.quantity)
        limits: BandThresholds = getattr(box.limits, self.limits)
        wanted = (("set to", setpoint), ("at least", limits.minimum), ("at most", limits.maximum))
        named = ", ".join(f"{word} {bound:.1f} %" for word, bound in wanted if bound is not None)
        return f"{self.word} {value or 0.0:.1f} % ({named})"


class HumidityRule(_InRange):
    kind = "HUMIDITY"
    quantity = "relative_humidity"
    limits = "humidity"
    word = "relative humidity"


class OxygenRule(_InRange):
    kind = "O2"
    quantity = limits = "o2"
    word = "oxygen"
    severity: Severity = "ALARM"


class CarbonDioxideRule(_InRange):
    kind = "CO2"
    quantity = limits = "co2"
    word = "carbon dioxide"
    severity: Severity = "ALARM"


# -- door


class DoorOpenRule(DwellRule):
    kind = "DOOR_OPEN"

    def find_deviation(self, box: ContainerState, message: ReadingMessage, ship: ShipState) -> Deviation | Good | None:
        motion = message.reading.motion
        if motion is None:
            return None
        if not motion.door_open:
            return GOOD
        if not ship.under_way(message.device_ms):
            return None
        return Deviation("ALARM", 0.0, box.limits.door.dwell)

    def describe(self, box: ContainerState, message: ReadingMessage) -> str:
        return "door open at sea"


# -- inspection before a trip


class InspectionRule(DwellRule):
    kind = "INSPECTION"

    def find_deviation(self, box: ContainerState, message: ReadingMessage, ship: ShipState) -> Deviation | Good | None:
        if box.booking is None:
            return GOOD  # also once the booking is cancelled or over
        newest = newest_inspection(message.reading.inspection)
        if newest is None:
            return None
        expired = newest.expiry_date is not None and milliseconds(newest.expiry_date) < message.device_ms
        if newest.inspection_result == "PASSED" and not expired:
            return GOOD
        return Deviation("ALARM" if newest.inspection_result == "FAILED" else "WARNING", 0.0, 0)

    def is_same(self, box: ContainerState, dismissed: Alert, finding: RuleFinding) -> bool:
        """Return whether it is the same inspection with the same result, and no reading was in order since."""
        lasting = super().is_same(box, dismissed, finding) or finding.causes[0] in dismissed.causes
        if box.newest is None or not lasting:
            return False
        told = self.describe(box, box.newest)
        return any(each.detail.startswith(told) for each in dismissed.evidence)

    def describe(self, box: ContainerState, message: ReadingMessage) -> str:
        newest = newest_inspection(message.reading.inspection)
        if newest is None:
            return "no inspection is known"
        said = {"PASSED": "has expired", "FAILED": "was not passed", "CHECK": "asks for a check"}
        at = newest.inspection_date.isoformat(" ", "minutes")
        return (
            f"the inspection before the trip ({newest.inspection_type.lower()}, {at}) {said[newest.inspection_result]}"
        )


# -- the unit's own alarms


@dataclass(slots=True)
class _Active:
    """Since when the unit has had an alarm without a pause, and the first reading with one."""

    since_ms: int
    first: Cause


class UnitAlarmRule(AlertRule):
    """The alarms that a reefer unit reports: one alert per container, of the highest severity.

    It is updated with each new alarm and with a severity that rises, and cleared by a reading without any. Of more than
    ``_MOST`` alarms it names the first, and says how many more there are. A reading that does not mention alarms says
    nothing about them.
    """

    kind = "UNIT_ALARM"

    def judge_reading(self, box: ContainerState, message: ReadingMessage, ship: ShipState) -> RuleFinding | None:
        if message.reading.alarms is None:
            return None
        active = {
            f"alarm-{each.alarm_number}"[:_LONGEST_NAME]: (severity, each.alarm_date)
            for each in unit_alarms(message.reading) or ()
            if (severity := _severity(each.alarm_severity)) is not None
        }
        opened, cause, at = box.open.get(self.kind), box.cause(message), message.device_ms
        if not active:
            box.pending.pop(self.kind, None)
            if opened is None:
                return None
            said = Evidence(name="unit-alarm", weight=1.0, detail="the unit has no alarm any more")
            return RuleFinding("CLEARED", opened.severity, at, (cause,), (said,))
        story: _Active = box.pending.setdefault(self.kind, _Active(at, cause))
        highest = max((severity for severity, _ in active.values()), key=rank)
        now = {
            name: Evidence(
                name=name, weight=1.0, detail=severity + (f" since {since[:_LONGEST_NAME]}" if since else "")
            )
            for name, (severity, since) in active.items()
        }
        if opened is None:
            return RuleFinding("OPENED", highest, at, unique([story.first, cause]), _named(now))
        # An alarm that has ended stays named, so that one that comes and goes makes no states without end.
        every = _named({each.name: each for each in opened.evidence if each.name != _MORE} | now)
        if {each.name for each in every} <= _names(opened) and rank(highest) <= rank(opened.severity):
            return None
        return RuleFinding("UPDATED", max(highest, opened.severity, key=rank), at, (cause,), every)

    def is_same(self, box: ContainerState, dismissed: Alert, finding: RuleFinding) -> bool:
        """Return whether the unit has had an alarm ever since, and none that the dismissed alert does not name."""
        story: _Active | None = box.pending.get(self.kind)
        return (
            story is not None
            and story.since_ms <= max(milliseconds(dismissed.event_date_time), box.known_from_ms)
            and {each.name for each in finding.evidence} <= _names(dismissed)
        )


_MOST = 16  # alarms that an alert names
_MORE = "more-alarms"
_LONGEST_NAME = 64


def _named(alarms: dict[str, Evidence]) -> tuple[Evidence, ...]:
    """Return the alarms that an alert names, and how many more there are."""
    every = tuple(alarms.values())
    if len(every) <= _MOST:
        return every
    return *every[:_MOST], Evidence(name=_MORE, weight=1.0, detail=f"and {len(every) - _MOST} more")


def _names(alert: Alert) -> set[str]:
    return {each.name for each in alert.evidence}


def _severity(written: str) -> Severity | None:
    """Return an alarm's severity: None for LOG, WARNING for one that RMO does not know."""
    if written.upper() == "LOG":
        return None
    return next((each for each in SEVERITIES if each == written.upper()), "WARNING")
