"""Simulate a ship whose bridge may be killed at every step of a reading, and show the alerts that result."""

from __future__ import annotations

from typing import Any

from edge.alerts.engine import AlertEngine
from edge.logwriter.records import alert_state_key
from edge.messages import ReadingMessage
from fairlead.records.alert import Alert
from tests.support.edge.detecting import FALL, MINUTE, NEIGHBOURS, TILT, booking, ms, position
from tests.support.edge.samples import BOX

STEP = 15 * MINUTE
BOXES = (BOX, NEIGHBOURS[0])


def chilled(supply: float, **more: Any) -> dict[str, Any]:
    return {"setpoints": {"temperature": 4.0}, "measurements": {"supplyTemperature": supply}, **more}


KINDS: dict[str, dict[str, Any]] = {
    "good": chilled(4.0, motion={}),
    "warm": chilled(7.0),
    "hot": chilled(12.0),
    "off": chilled(4.0, isPowered=False),
    "defrost": chilled(20.0, reeferSettings={"isDefrosting": True}),
    "door": chilled(4.0, motion={"doorOpen": True}),
    "wrong": {"setpoints": {"temperature": 9.0}, "measurements": {"supplyTemperature": 9.0}},
    "tilt": TILT,
    "fall": FALL,
    "water": {"motion": {"immersed": True}},
}


class Ship:
    """A ship whose bridge may be killed: stored readings, stored alerts, and the alert engine."""

    def __init__(self) -> None:
        self.stored: list[tuple[ReadingMessage, int]] = []  # each with the time of its receipt
        self.alerts: list[Alert] = []
        self.engine = self.started()

    def started(self) -> AlertEngine:
        engine = AlertEngine("star")
        engine.ship_reported(position(), ms(0), ms(0))
        return engine

    def append(self, alerts: list[Alert]) -> None:
        """Append alerts as their writer does: a state that is stored already is not written again."""
        known = {alert_state_key(alert) for alert in self.alerts}
        self.alerts += [alert for alert in alerts if alert_state_key(alert) not in known]

    def restart(self) -> None:
        self.engine = AlertEngine("star")
        for alert in self.alerts:
            self.engine.restore(alert)
        self.engine.ship_reported(position(), ms(0), ms(0))
        for number in BOXES:
            self.engine.booked(booking(number, commodity="pharmaceuticals"))
        for seen, came_ms in self.stored:
            self.append(self.engine.recall(seen, seen.log, ms(0), received_ms=came_ms))
        self.append(self.engine.settle(set(BOXES), ms(0)))

    def take(self, seen: ReadingMessage, crash: str, came_ms: int | None = None) -> None:
        """Process one reading, with a crash at one of the places where its alerts and the reading itself are stored."""
        came_ms = seen.device_ms if came_ms is None else came_ms
        alerts = self.engine.judge_reading(seen, seen.log, came_ms)
        if crash == "before":
            pass
        elif crash == "reading stored":
            self.stored.append((seen, came_ms))
        elif crash == "first alert stored":
            self.append(alerts[:1])
        elif crash == "alerts stored":
            self.append(alerts)
        else:
            self.append(alerts)
            self.stored.append((seen, came_ms))
        if crash == "none":
            return
        self.restart()
        if crash != "all stored":  # it was not acknowledged, so the MQTT broker sends it again
            self.append(self.engine.judge_reading(seen, seen.log, came_ms))
            if (seen, came_ms) not in self.stored:
                self.stored.append((seen, came_ms))


CRASHES = ("none", "before", "reading stored", "first alert stored", "alerts stored", "all stored")


def said(alerts: list[Alert]) -> dict[str, list[tuple[str, str, str, int, tuple[int, ...]]]]:
    """Return, per container, the alert states in their order, with the readings that caused them."""
    told: dict[str, list[tuple[str, str, str, int, tuple[int, ...]]]] = {}
    for alert in alerts:
        causes = tuple(cause.sequence for cause in alert.causes)
        told.setdefault(f"{alert.kind} {alert.equipment_reference}", []).append(
            (alert.alert_id, alert.state, alert.severity, alert.revision, causes)
        )
    return told
