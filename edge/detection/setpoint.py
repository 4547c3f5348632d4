"""A reefer is told to keep another temperature than its booking says: the most common mistake of all (docs/edge.md)."""

from __future__ import annotations

from edge.detection.box import Box
from edge.detection.ship import ShipState
from edge.detection.sustained import GOOD, Sustained
from edge.messages import ReadingMessage
from fairlead.detection import Fault, Good


class WrongSetpoint(Sustained):
    kind = "SETPOINT"

    def look(self, box: Box, message: ReadingMessage, ship: ShipState) -> Fault | Good | None:
        booked = box.booking.setpoint_temperature if box.booking is not None else None
        actual = message.reading.setpoints.temperature
        if booked is None or actual is None or message.reading.reefer_settings.is_pre_trip_inspection:
            return None
        limits, apart = box.limits.setpoint, abs(actual - booked)
        if apart <= limits.tolerance:
            return GOOD
        return Fault("CRITICAL" if apart >= limits.critical else "ALARM", apart, limits.dwell)

    def describe(self, box: Box, message: ReadingMessage) -> str:
        booking = box.booking
        booked = f"{booking.setpoint_temperature:.1f} C (booking {booking.booking_reference})" if booking else "unknown"
        return f"set point {message.reading.setpoints.temperature:.1f} C, booked {booked}"
