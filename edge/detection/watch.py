"""The watch on board: all rules over all readings, one alert per box and incident, with an id that stays the same."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable

from edge.detection.finding import Finding, Rule
from edge.detection.overboard import Overboard
from edge.detection.power import PowerLost
from edge.detection.ship import ShipState
from edge.detection.temperature import Temperature
from edge.messages import ReadingMessage
from fairlead.records.alert import Alert, AlertKind, Cause
from fairlead.records.ship import Position

NOT_YET_STORED = -1


def default_rules() -> tuple[Rule, ...]:
    return (Overboard(), PowerLost(), Temperature())


class Watch:
    """Turns readings into alerts. An incident is opened once and, where the rule can tell, cleared once."""

    def __init__(self, site: str, rules: Iterable[Rule] | None = None) -> None:
        self._site = site
        self._rules = tuple(rules) if rules is not None else default_rules()
        self._open: dict[tuple[AlertKind, str], str] = {}
        self.ship = ShipState()

    def restore(self, alert: Alert) -> None:
        """Take in an alert of the site's own log, oldest first, so that a restart raises nothing twice."""
        incident = (alert.kind, alert.equipment_reference)
        if alert.state == "CLEARED":
            self._open.pop(incident, None)
        else:
            self._open[incident] = alert.alert_id

    def ship_reported(self, position: Position, at_ms: int) -> None:
        self.ship.report(position, at_ms)

    def forget(self, number: str) -> None:
        """The box has left the ship: what was open for it is no longer this watch's business."""
        for rule in self._rules:
            rule.forget(number)
            self._open.pop((rule.kind, number), None)

    def see(self, message: ReadingMessage, log: str, now_ms: int) -> list[Alert]:
        """The alerts that a reading causes, most often none.

        ``log`` is where the reading is being stored; its offset is not known yet, because an alert does not wait for
        it, so ``causes`` give offset -1 and name the reading by device, boot and sequence.
        """
        alerts: list[Alert] = []
        for rule in self._rules:
            incident = (rule.kind, message.number)
            finding = rule.see(message, self.ship, open_now=incident in self._open)
            if finding is None:
                continue
            if finding.state == "OPENED":
                self._open[incident] = _incident_id(message, finding)
                alert_id = self._open[incident]
            else:
                alert_id = self._open.pop(incident)
            alerts.append(self._alert(alert_id, finding, message, log, now_ms))
        return alerts

    def _alert(self, alert_id: str, finding: Finding, message: ReadingMessage, log: str, now_ms: int) -> Alert:
        device = message.reading.device
        cause = Cause(
            log=log,
            offset=NOT_YET_STORED,
            device_id=device.device_id,
            boot_id=device.boot_id,
            sequence=device.sequence,
        )
        return Alert(
            alert_id=alert_id,
            kind=finding.kind,
            severity=finding.severity,
            state=finding.state,
            equipment_reference=message.number,
            raised_at=self._site,
            event_date_time=device.device_date_time,
            raised_date_time=dt.datetime.fromtimestamp(now_ms / 1000, dt.UTC),
            vessel_imo_number=self.ship.imo,
            geo_location=message.reading.geo_location or self.ship.place,
            evidence=finding.evidence,
            causes=(cause,),
        )


def _incident_id(message: ReadingMessage, finding: Finding) -> str:
    device = message.reading.device
    return f"{finding.kind}.{message.number}.{device.device_id}.{device.boot_id}.{device.sequence}"
