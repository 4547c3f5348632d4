"""A door stands open while the ship is under way. In port doors are opened for good reasons: nothing is said there."""

from __future__ import annotations

from edge.detection.box import Box
from edge.detection.ship import ShipState
from edge.detection.sustained import GOOD, Sustained
from edge.messages import ReadingMessage
from fairlead.detection import Fault, Good


class DoorOpen(Sustained):
    kind = "DOOR_OPEN"

    def look(self, box: Box, message: ReadingMessage, ship: ShipState) -> Fault | Good | None:
        motion = message.reading.motion
        if motion is None:
            return None
        if not motion.door_open:
            return GOOD
        if not ship.under_way(message.device_ms):
            return None
        return Fault("ALARM", 0.0, box.limits.door.dwell)

    def describe(self, box: Box, message: ReadingMessage) -> str:
        return "door open at sea"
