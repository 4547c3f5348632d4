"""What goes wrong in the yards of a voyage's ports, and which of it their alerts have found. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from edge.alerts.thresholds import default_thresholds
from fairlead.records.alert import Alert
from simulators.fleet.plan import MINUTE, SPREAD, PlannedBox, VoyagePlan
from simulators.fleet.timetable import Span

KINDS: Final = ("POWER_LOST", "SETPOINT", "OVERBOARD", "UNIT_ALARM")
"""Kinds of alerts whose cause the plan of a voyage knows; others may follow from these, or from the weather."""


class YardFigures(msgspec.Struct, frozen=True):
    """Faults in yards that detection must find, those that it found in time, and alerts without a fault."""

    faults: int = 0
    found: int = 0
    false_alerts: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.found == self.faults and not self.false_alerts


class FaultAshore(NamedTuple):
    """A fault that the alert ``kind`` of ``port`` must show, with a device time up to ``latest``.

    ``severity``: the severity that it must have, if the reefer unit says it.
    """

    container: str
    port: str
    kind: str
    starts: dt.datetime
    latest: dt.datetime
    severity: str | None = None


def faults_ashore(plan: VoyagePlan) -> Iterator[FaultAshore]:
    """Yield the faults in yards that last long enough to be found: the rule's dwell and two readings."""
    limits = default_thresholds().of(None, ashore=True)
    slack = 2 * plan.scenario.reading_interval + SPREAD
    for box in plan.boxes:
        for kind, (starts, ends), dwell_ms in (
            *(("POWER_LOST", span, limits.power.dwell) for span in box.outages),
            *(("SETPOINT", span, limits.setpoint.dwell) for span, _ in box.setpoints if _is_booked(box, span)),
        ):
            port, latest = box.holder(starts), starts + dt.timedelta(milliseconds=dwell_ms) + slack
            if port is not None and box.ashore(starts) and latest <= ends:
                yield FaultAshore(box.number, port, kind, starts, latest)
        for (starts, ends), alarm in box.alarms:
            port = box.holder(starts)
            if port is not None and box.ashore(starts) and starts + slack <= ends and alarm.alarm_severity != "LOG":
                yield FaultAshore(box.number, port, "UNIT_ALARM", starts, starts + slack, alarm.alarm_severity)
        if box.falls is not None and box.ashore(box.falls):
            yield FaultAshore(box.number, box.holder(box.falls) or "", "OVERBOARD", box.falls, box.falls + MINUTE)


def judge_yards(plan: VoyagePlan, alerts: Iterable[Alert]) -> YardFigures:
    """Compare the alerts of all sites with the plan."""
    faults = list(faults_ashore(plan))
    ports = {call.port for table in plan.timetables.values() for call in table.calls}
    boxes = {box.number: box for box in plan.boxes}
    raised = [alert for alert in alerts if alert.raised_at in ports and alert.state == "OPENED" and alert.kind in KINDS]
    found = [
        fault
        for fault in faults
        if any(
            (alert.equipment_reference, alert.raised_at, alert.kind) == fault[:3]
            and fault.starts <= alert.event_date_time <= fault.latest
            and fault.severity in (None, alert.severity)
            for alert in raised
        )
    ]
    slack = 2 * plan.scenario.reading_interval + SPREAD
    false = [
        alert.alert_id
        for alert in raised
        if not any(
            starts <= alert.event_date_time <= ends + slack
            for starts, ends in _causes(boxes.get(alert.equipment_reference), alert.kind)
        )
    ]
    return YardFigures(len(faults), len(found), tuple(sorted(false)))


def _is_booked(box: PlannedBox, span: Span) -> bool:
    return box.entitled(span[0]) is not None and (box.released is None or span[1] <= box.released)


def _causes(box: PlannedBox | None, kind: str) -> list[Span]:
    if box is None:
        return []
    if kind == "POWER_LOST":
        return box.outages
    if kind == "SETPOINT":
        return [span for span, _ in box.setpoints]
    if kind == "UNIT_ALARM":
        return [span for span, alarm in box.alarms if alarm.alarm_severity != "LOG"]
    return [(box.falls, box.falls + MINUTE)] if box.falls is not None else []
