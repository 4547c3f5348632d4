"""A reefer has been without power for longer than a connection takes.

Power is off for a while at every gate, load and discharge; the dwell covers that.
"""

from __future__ import annotations

from edge.detection.finding import Finding
from edge.detection.ship import ShipState
from edge.messages import ReadingMessage
from fairlead.records.alert import AlertKind, Evidence

DWELL_MS = 30 * 60_000  # this project's proposal; unit makers publish no value


class PowerLost:
    """The rule; keeps since when each unpowered box is without power."""

    kind: AlertKind = "POWER_LOST"

    def __init__(self, dwell_ms: int = DWELL_MS) -> None:
        self._dwell_ms = dwell_ms
        self._since: dict[str, int] = {}

    def see(self, message: ReadingMessage, ship: ShipState, *, open_now: bool) -> Finding | None:
        reading = message.reading
        if reading.setpoints.temperature is None:
            return None  # a box that cools nothing misses no power
        if reading.is_powered and reading.is_connected_to_power_source:
            since = self._since.get(message.number)
            if since is not None and message.device_ms < since:
                return None  # a late reading from before the loss
            self._since.pop(message.number, None)
            return Finding(self.kind, "ALARM", "CLEARED") if open_now else None
        since = self._since.setdefault(message.number, message.device_ms)
        lasted = message.device_ms - since
        if open_now or lasted < self._dwell_ms:
            return None
        what = "switched off" if reading.is_connected_to_power_source else "not plugged in"
        evidence = Evidence(name="power", weight=1.0, detail=f"{what} for {lasted // 60_000} min")
        return Finding(self.kind, "ALARM", "OPENED", (evidence,))

    def forget(self, number: str) -> None:
        self._since.pop(number, None)
