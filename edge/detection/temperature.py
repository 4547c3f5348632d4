"""A reefer's controlled air has been out of band for longer than its dwell.

Supply air controls chilled cargo, return air frozen cargo (set point -10 degrees Celsius or lower). During a defrost,
and a while after it, the probes show the defrost and not the cargo, so those readings neither begin nor end anything.
"""

from __future__ import annotations

from dataclasses import dataclass

from edge.detection.finding import Finding
from edge.detection.ship import ShipState
from edge.messages import ReadingMessage
from fairlead.records.alert import AlertKind, Evidence

FROZEN_SETPOINT_C = -10.0


@dataclass(frozen=True, slots=True)
class Band:
    """Degrees around the set point, and how long out of it (or back in it) counts. This project's defaults."""

    tolerance_c: float = 2.0
    dwell_ms: int = 60 * 60_000
    recovery_ms: int = 15 * 60_000
    after_defrost_ms: int = 30 * 60_000


@dataclass(slots=True)
class _Box:
    seen_ms: int = 0
    out_since: int | None = None
    in_since: int | None = None
    defrosted_ms: int | None = None


class Temperature:
    """The rule; keeps since when each box is in or out of its band."""

    kind: AlertKind = "TEMPERATURE"

    def __init__(self, band: Band | None = None) -> None:
        self._band = band or Band()
        self._boxes: dict[str, _Box] = {}

    def see(self, message: ReadingMessage, ship: ShipState, *, open_now: bool) -> Finding | None:
        reading, at = message.reading, message.device_ms
        setpoint = reading.setpoints.temperature
        if setpoint is None:
            return None
        frozen = setpoint <= FROZEN_SETPOINT_C
        air = reading.measurements.return_temperature if frozen else reading.measurements.supply_temperature
        box = self._boxes.setdefault(message.number, _Box())
        if at < box.seen_ms:
            return None  # late; the dwell goes by device time, forwards
        box.seen_ms = at
        if reading.reefer_settings.is_defrosting:
            box.defrosted_ms = at
            return None
        if box.defrosted_ms is not None and at - box.defrosted_ms < self._band.after_defrost_ms:
            return None
        if air is None:
            return None
        if abs(air - setpoint) <= self._band.tolerance_c:
            box.out_since = None
            box.in_since = at if box.in_since is None else box.in_since
            if open_now and at - box.in_since >= self._band.recovery_ms:
                return Finding(self.kind, "ALARM", "CLEARED")
            return None
        box.in_since = None
        box.out_since = at if box.out_since is None else box.out_since
        lasted = at - box.out_since
        if open_now or lasted < self._band.dwell_ms:
            return None
        which = "return" if frozen else "supply"
        detail = f"{which} air {air:.1f} C, set point {setpoint:.1f} C, out of band for {lasted // 60_000} min"
        return Finding(self.kind, "ALARM", "OPENED", (Evidence(name="temperature", weight=1.0, detail=detail),))

    def forget(self, number: str) -> None:
        self._boxes.pop(number, None)
