"""The state of the ship, from its own reports: its place, whether it is under way, and the containers aboard. Pure.

Ashore, ``YardState`` stands in for it. A yard lies still and has no position reports, so its containers' readings move
its clock. They come through the same queue as all others: after an outage of the bridge, the clock moves on as the
readings of the outage come in, and no container counts as silent for it. Two containers must agree: the clock is at the
time of the second newest one. So one device with a wrong clock does not move it, and a yard in which nothing reports
has no clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from edge.alerts.box import ContainerState
from edge.alerts.roll_call import RollCallTracker
from fairlead.records.reading import GeoLocation, known
from fairlead.records.ship import SPEED_NOT_AVAILABLE, UNDER_WAY_KN, Position

KNOT = 1852 / 3600  # metres per second
_STOPPED = (1, 5, 6)  # AIS navigation status: at anchor, moored, aground
_MOVING = (0, 8)  # under way using engine, under way sailing
_USEFUL_MS = 3_600_000  # an older report does not tell where the ship is now


@dataclass(slots=True)
class ShipState:
    """The ship's newest report, and its containers by number. ``at_ms`` is the report's time (0: no report yet).

    ``roll_call``: which of them were heard since the last departure.
    """

    imo: str | None = None
    place: GeoLocation | None = None
    speed_knots: float | None = None
    status: int = 15
    at_ms: int = 0
    aboard: dict[str, ContainerState] = field(default_factory=dict)
    roll_call: RollCallTracker = field(default_factory=RollCallTracker)

    def report(self, position: Position, at_ms: int) -> None:
        """Apply a report. One that is older than the newest known changes nothing."""
        if at_ms < self.at_ms:
            return
        speed = position.speed_over_ground
        self.imo = position.vessel_imo_number
        self.place = known(position.geo_location)
        self.speed_knots = speed if speed is not None and speed < SPEED_NOT_AVAILABLE else None
        self.status = position.navigation_status
        self.at_ms = at_ms

    def lies_still(self, at_ms: int) -> bool:
        """Return whether the ship is known to be at a berth, at anchor or aground around this time."""
        if abs(at_ms - self.at_ms) > _USEFUL_MS:
            return False
        if self.speed_knots is not None:
            return self.speed_knots < UNDER_WAY_KN
        return self.status in _STOPPED

    def under_way(self, at_ms: int) -> bool:
        """Return whether the ship is known to be moving around this time."""
        if abs(at_ms - self.at_ms) > _USEFUL_MS:
            return False
        if self.speed_knots is not None:
            return self.speed_knots >= UNDER_WAY_KN
        return self.status in _MOVING

    def reach_m(self, at_ms: int) -> tuple[GeoLocation, float] | None:
        """Return the last known place, and how many metres the ship may be from it at ``at_ms``; None if not known."""
        gap = abs(at_ms - self.at_ms)
        if self.place is None or gap > _USEFUL_MS:
            return None
        speed = self.speed_knots if self.speed_knots is not None else 25.0
        return self.place, 1.2 * speed * KNOT * gap / 1000


@dataclass(slots=True)
class YardState(ShipState):
    """A yard and its containers by number. It has no IMO number, no speed and no place of its own."""

    _newest: str = ""
    _newest_ms: int = 0

    def hear(self, number: str, device_ms: int, now_ms: int) -> None:
        """Move the clock by a reading. A device whose clock is ahead of the site's does not move it."""
        if device_ms > now_ms or device_ms <= self.at_ms:
            return
        if number == self._newest:
            self._newest_ms = max(self._newest_ms, device_ms)
        elif device_ms > self._newest_ms:
            self.at_ms = self._newest_ms
            self._newest, self._newest_ms = number, device_ms
        else:
            self.at_ms = device_ms

    def lies_still(self, at_ms: int) -> bool:
        return True

    def under_way(self, at_ms: int) -> bool:
        return False
