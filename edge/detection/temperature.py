"""A reefer's controlled air has been out of band for longer than its dwell.

Supply air controls chilled cargo, return air frozen cargo (set point -10 degrees Celsius or lower; Carrier T-363).
During a defrost or a pre-trip inspection, and a while after it, the probes show that and not the cargo, so those
readings neither begin nor end anything. Out of the tolerance around the set point is an ALARM; beyond what the
commodity stands (``minimum``, ``maximum``) it is CRITICAL, whatever the set point.
"""

from __future__ import annotations

from edge.detection.box import Box
from edge.detection.ship import ShipState
from edge.detection.sustained import Sustained
from edge.messages import ReadingMessage
from fairlead.detection import Fault, Good


class OutOfBand(Sustained):
    kind = "TEMPERATURE"

    def look(self, box: Box, message: ReadingMessage, ship: ShipState) -> Fault | Good | None:
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
            return Fault("CRITICAL", apart, limits.dwell)
        return Good(limits.recovery) if apart <= limits.tolerance else Fault("ALARM", apart, limits.dwell)

    def describe(self, box: Box, message: ReadingMessage) -> str:
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
