"""A reefer has been without power for longer than a connection takes.

Power is off for a while at every gate, load and discharge; the dwell covers that. A unit that is inspected before a
trip is switched off on purpose.
"""

from __future__ import annotations

from edge.detection.box import Box
from edge.detection.ship import ShipState
from edge.detection.sustained import GOOD, Sustained
from edge.messages import ReadingMessage
from fairlead.detection import Fault, Good


class PowerLost(Sustained):
    kind = "POWER_LOST"

    def look(self, box: Box, message: ReadingMessage, ship: ShipState) -> Fault | Good | None:
        reading = message.reading
        if reading.is_powered and reading.is_connected_to_power_source:
            return GOOD
        if reading.setpoints.temperature is None or reading.reefer_settings.is_pre_trip_inspection:
            return None  # a box that cools nothing misses no power
        return Fault("ALARM", 0.0, box.limits.power.dwell)

    def describe(self, box: Box, message: ReadingMessage) -> str:
        return "switched off" if message.reading.is_connected_to_power_source else "not plugged in"
