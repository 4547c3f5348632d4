"""Builds the next state of an alert from a rule's finding; the alert keeps its id. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import msgspec

from edge.alerts.box import ContainerState, unique
from edge.alerts.rules.base import RuleFinding
from edge.alerts.ship import ShipState
from fairlead.records.alert import Alert, AlertKind, AlertOrder, AlertState, Cause, Evidence
from fairlead.records.reading import GeoLocation, milliseconds, moment_of

BY_HAND: Final = "by-hand"
_ORDER: Final = "order"
_LONGEST_DETAIL: Final = 1_000  # characters


def alert_state(
    site: str,
    ship: ShipState,
    box: ContainerState,
    kind: AlertKind,
    finding: RuleFinding,
    now_ms: int,
    place: GeoLocation | None,
) -> Alert:
    """Return the next state of the container's alert of this kind, and update its open alerts in ``box``."""
    opened = box.open.get(kind)
    alert = Alert(
        alert_id=opened.alert_id if opened is not None else _id(kind, box.number, finding.causes[0]),
        kind=kind,
        severity=finding.severity,
        state=finding.state,
        equipment_reference=box.number,
        raised_at=site,
        event_date_time=moment_of(finding.at_ms),
        raised_date_time=moment_of(now_ms),
        vessel_imo_number=ship.imo,
        geo_location=finding.place or place or ship.place,
        evidence=finding.evidence,
        causes=finding.causes,
        revision=opened.revision + 1 if opened is not None else 0,
        acknowledged_by=opened.acknowledged_by if opened is not None else "",
        acknowledged_date_time=opened.acknowledged_date_time if opened is not None else None,
        acknowledgement=opened.acknowledgement if opened is not None else "",
    )
    if finding.state == "CLEARED":
        box.open.pop(kind, None)
    else:
        box.open[kind] = alert
    return alert


def next_state(
    opened: Alert, state: AlertState, evidence: Iterable[Evidence], *, at: dt.datetime, raised: dt.datetime
) -> Alert:
    """Return the next state of an open alert, with the next revision. All else stays, an acknowledgement too.

    Args:
        at: The event time.
        raised: When the site says so.
    """
    return msgspec.structs.replace(
        opened,
        state=state,
        event_date_time=at,
        raised_date_time=raised,
        evidence=tuple(evidence),
        revision=opened.revision + 1,
    )


def ended_by_leaving(box: ContainerState, opened: Alert, site: str) -> RuleFinding:
    """Return the finding that clears an alert because its container has left the site."""
    said = Evidence(name="left", weight=1.0, detail=f"the container is no longer in the care of {site}")
    at_ms = max(box.at_ms, milliseconds(opened.event_date_time))
    return RuleFinding("CLEARED", opened.severity, at_ms, opened.causes, (said,))


def cleared_by_hand(opened: Alert, order: AlertOrder, newest_ms: int) -> RuleFinding:
    """Return the finding that clears an alert by an operator's order.

    Its evidence has the operator, the reason, the order's id, and the alert's evidence so far.

    Args:
        newest_ms: The time of the container's newest reading, which is older than the order.
    """
    said = Evidence(name=BY_HAND, weight=1.0, detail=f"{order.ordered_by}: {order.reason}"[:_LONGEST_DETAIL])
    by = Evidence(name=_ORDER, weight=0.0, detail=order.order_id[:_LONGEST_DETAIL])
    at_ms = max(newest_ms, milliseconds(opened.event_date_time))
    return RuleFinding("CLEARED", opened.severity, at_ms, opened.causes, (said, by, *opened.evidence))


def acknowledged(opened: Alert, order: AlertOrder, now_ms: int) -> Alert | None:
    """Return the state of an open alert that an order acknowledges; None if it names another, or if it was before.

    Its event time and evidence stay, so the rules go on as if nothing had happened.
    """
    if not order.acknowledges or order.acknowledges != opened.alert_id or opened.acknowledged_by:
        return None
    return msgspec.structs.replace(
        opened,
        state="UPDATED",
        raised_date_time=moment_of(now_ms),
        revision=opened.revision + 1,
        acknowledged_by=order.ordered_by,
        acknowledged_date_time=order.ordered_date_time,
        acknowledgement=order.reason[:_LONGEST_DETAIL],
    )


def is_by_hand(alert: Alert) -> bool:
    """Return whether a person has cleared the alert."""
    return alert.state == "CLEARED" and any(each.name == BY_HAND for each in alert.evidence)


def order_of(alert: Alert) -> str | None:
    """Return the id of the order that cleared an alert; None if no order did."""
    return next((each.detail for each in alert.evidence if each.name == _ORDER), None) if is_by_hand(alert) else None


def reopened(finding: RuleFinding, dismissed: Alert) -> RuleFinding | None:
    """Return a finding with new causes first, after a person cleared ``dismissed``; None if it has no new causes.

    The first cause is part of the alert's id, so the new alert gets another id than the dismissed one.
    """
    fresh = [cause for cause in finding.causes if cause not in dismissed.causes]
    return replace(finding, causes=unique([*fresh, *finding.causes])) if fresh else None


def _id(kind: AlertKind, number: str, first: Cause) -> str:
    return f"{kind}.{number}.{first.device_id}.{first.boot_id}.{first.sequence}"
