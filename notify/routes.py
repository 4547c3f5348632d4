"""Decide which alerts a route sends, what they change, whether they wait for the end of quiet hours, and their words.

Pure. A route's book is made of the states of alerts in the order of their logs, so that reading the logs again after a
restart makes the same book.
"""

from __future__ import annotations

import datetime as dt
import uuid
import zoneinfo
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from edge.alerts.rules.bookings import Bookings
from fairlead.records.alert import SEVERITIES, Alert, Evidence, alert_key
from topologies.model import Change, Quiet, Route, Topology

_REMEMBERED: Final = 50_000  # alerts that are over, so that a record that is there twice does not open one again
_SHOWN: Final = 50  # alerts of a digest whose evidence is written out
_NAMESPACE: Final = uuid.UUID("6f0c2f0e-52f1-4c5c-9d0a-3f6a3c1b7a51")

_SAYS: Final[Mapping[Change, str]] = {"opened": "", "raised": "raised to ", "cleared": "over: "}


@dataclass(frozen=True, slots=True)
class Message:
    """One notification.

    Args:
        id: The same at every repeat, so that a receiver can drop repeats.
        events: The alerts as a webhook gets them, in DCSA's form of events.
    """

    id: str
    title: str
    text: str
    events: tuple[dict[str, Any], ...]


def entitled(topology: Topology, customer: str, alert: Alert, bookings: Bookings) -> bool:
    """Return whether a customer gets an alert in its feed (``shore.feeds.entitlement.entitled_records``).

    By its bookings at the alert's time, or for a feed of alerts by the owner of the container.
    """
    party, box = topology.customers.get(customer), alert.equipment_reference
    if party is None or not box or party.feed == "movements":
        return False
    if party.feed == "alerts":
        return box[:4] in party.owners
    return customer in bookings.parties(box, alert.event_date_time.timestamp() * 1000)


class RouteBook:
    """What one route has said of which alerts, and what it holds back.

    Args:
        bookings: Filled by the caller; only looked at for a route with customers.
    """

    def __init__(self, name: str, route: Route, topology: Topology, bookings: Bookings) -> None:
        self._name = name
        self._route = route
        self._topology = topology
        self._bookings = bookings
        self._open: dict[tuple[str, str], int] = {}  # by alert: the highest severity so far
        self._over: dict[tuple[str, str], None] = {}
        self.held: dict[tuple[str, str], tuple[Change, Alert]] = {}

    def take(self, alert: Alert) -> Change | None:
        """Note a state of an alert. Return what it changes for the receiver; None if the route has nothing to send.

        An alert that opened and is held back still opens for the receiver when it is raised.
        """
        change = self._change(alert)
        if change in self._route.changes:
            return change
        if change == "raised" and alert_key(alert) in self.held:
            return self.held[alert_key(alert)][0]
        if change == "cleared":  # not to be sent, and no longer open
            self.held.pop(alert_key(alert), None)
        return None

    def _change(self, alert: Alert) -> Change | None:
        name, height = alert_key(alert), SEVERITIES.index(alert.severity)
        if alert.state == "CLEARED":
            self._over[name] = None
            if len(self._over) > _REMEMBERED:
                del self._over[next(iter(self._over))]
            return "cleared" if self._open.pop(name, None) is not None else None
        known = self._open.get(name)
        if name in self._over or (known is not None and height <= known) or not self._fits(alert):
            return None
        self._open[name] = height
        return "opened" if known is None else "raised"

    def _fits(self, alert: Alert) -> bool:
        """Return whether an alert fits every filter of the route."""
        route, box = self._route, alert.equipment_reference
        return (
            SEVERITIES.index(alert.severity) >= SEVERITIES.index(route.severity)
            and (not route.ports or alert.raised_at in route.ports)
            and (not route.kinds or alert.kind in route.kinds)
            and (not route.streams or bool(box and self._topology.container_stream(box) in route.streams))
            and self._is_for_customers(alert)
        )

    def _is_for_customers(self, alert: Alert) -> bool:
        """Return whether a customer of the route may see this state; True for a route without customers."""
        customers = self._route.customers
        return not customers or any(entitled(self._topology, each, alert, self._bookings) for each in customers)

    def _to_tell(self, change: Change, alert: Alert) -> Alert:
        """Return what the route may tell of a state: of an end that no customer of it may see, only that it is over."""
        if change != "cleared" or self._is_for_customers(alert):
            return alert
        return msgspec.structs.replace(
            alert,
            vessel_imo_number=None,
            geo_location=None,
            evidence=(),
            causes=(),
            acknowledged_by="",
            acknowledged_date_time=None,
            acknowledgement="",
        )

    def may_wait(self, alert: Alert) -> bool:
        """Return whether quiet hours hold an alert back."""
        quiet = self._route.quiet
        return quiet is not None and not (quiet.critical and alert.severity == "CRITICAL")

    def is_quiet(self, now: dt.datetime) -> bool:
        """Return whether the route has quiet hours now."""
        return self._route.quiet is not None and _covers(self._route.quiet, now)

    def hold(self, change: Change, alert: Alert) -> None:
        """Keep a change for the digest. One that ends what the digest would open takes that out."""
        before = self.held.pop(alert_key(alert), None)
        opens = before is not None and before[0] == "opened"
        if change == "cleared" and opens:
            return
        self.held[alert_key(alert)] = ("opened" if opens else change, self._to_tell(change, alert))

    def release(self, alert: Alert) -> None:
        """Take an alert out of what is held back, because the receiver hears of it now."""
        self.held.pop(alert_key(alert), None)

    def message(self, change: Change, alert: Alert) -> Message:
        """Return the notification of one change. What was held back of the alert is said with it."""
        self.release(alert)
        alert = self._to_tell(change, alert)
        number = _identity(self._name, *alert_key(alert), alert.state, alert.revision)
        return Message(
            number,
            _headline(change, alert),
            _letter([(change, alert)], self._route.quiet, self._name, number),
            (_event(change, alert),),
        )

    def digest(self, span: Iterable[tuple[str, int, int]]) -> Message | None:
        """Return one notification of all that was held back; None if nothing of it is left.

        Args:
            span: The parts of logs that it is about: they make its id.
        """
        if not self.held:
            return None
        told = sorted(
            self.held.values(),
            key=lambda each: (-SEVERITIES.index(each[1].severity), each[1].alert_id, each[1].raised_at),
        )
        number = _identity(self._name, "digest", *sorted(span))
        still = sum(change != "cleared" for change, _ in told)
        parts = [f"{still} open"] if still else []
        parts += [f"{len(told) - still} over"] if len(told) > still else []
        return Message(
            number,
            f"Alerts of the quiet hours: {', '.join(parts)}",
            _letter(told, self._route.quiet, self._name, number),
            tuple(_event(change, alert) for change, alert in told),
        )


def example(name: str, route: Route, topology: Topology, now: dt.datetime) -> Message:
    """Return the notification that ``fairlead notify test`` sends. It is about no real container."""
    alert = Alert(
        alert_id=f"test-{int(now.timestamp() * 1000)}",
        kind=route.kinds[0] if route.kinds else "TEMPERATURE",
        severity=route.severity,
        state="OPENED",
        equipment_reference="",
        raised_at=route.ports[0] if route.ports else topology.notify.at if topology.notify else "",
        event_date_time=now,
        raised_date_time=now,
        evidence=(Evidence(name="test", weight=0.0, detail="this is a test: nothing is wrong"),),
    )
    made = RouteBook(name, route, topology, Bookings()).message("opened", alert)
    return Message(made.id, f"Test of route {name}: {made.title}", made.text, made.events)


def _covers(quiet: Quiet, now: dt.datetime) -> bool:
    """Return whether a moment lies in the hours, from ``from`` until before ``until`` by the clock of the zone."""
    at = now.astimezone(zoneinfo.ZoneInfo(quiet.zone)).time()
    if quiet.from_ <= quiet.until:
        return quiet.from_ <= at < quiet.until
    return at >= quiet.from_ or at < quiet.until


def _identity(*parts: object) -> str:
    return str(uuid.uuid5(_NAMESPACE, "\x1f".join(map(str, parts))))


def _headline(change: Change, alert: Alert) -> str:
    about = _line(alert.equipment_reference) or "all containers"
    return f"{_SAYS[change]}{alert.severity} {alert.kind}: {about}, {_line(alert.raised_at)}"


def _letter(told: list[tuple[Change, Alert]], quiet: Quiet | None, route: str, number: str) -> str:
    zone = zoneinfo.ZoneInfo(quiet.zone) if quiet is not None else None
    lines: list[str] = []
    for place, (change, alert) in enumerate(told):
        lines.append(_headline(change, alert))
        if place >= _SHOWN:
            continue
        when = f"{alert.event_date_time.astimezone(dt.UTC):%Y-%m-%d %H:%M} UTC"
        if zone is not None:
            when += f" ({alert.event_date_time.astimezone(zone):%Y-%m-%d %H:%M} {zone.key})"
        lines.append(f"  when: {when}")
        lines += [f"  {_line(each.name)}: {_line(each.detail)}" for each in alert.evidence if each.detail]
        if alert.acknowledged_by:
            lines.append(f"  acknowledged by {_line(alert.acknowledged_by)}")
        lines.append(f"  alert: {_line(alert.alert_id)}")
    return "\n".join([*lines, "", f"Route {route} of Fairlead, notification {number}. A repeat has the same number."])


def _line(text: str) -> str:
    """Return text of a record on one line, without characters that control a terminal or a mail's header."""
    return "".join(c if c.isprintable() else " " for c in text).strip()[:500]


def _event(change: Change, alert: Alert) -> dict[str, Any]:
    """Return an alert in the form of DCSA's events: their fields, and the alert's record as ``alert``."""
    record = msgspec.to_builtins(alert)
    return {
        "eventID": _identity(*alert_key(alert), alert.state, alert.revision),
        "eventType": "ALERT",
        "eventClassifierCode": "ACT",
        "eventDateTime": record["eventDateTime"],
        "eventCreatedDateTime": record["raisedDateTime"],
        "equipmentReference": alert.equipment_reference or None,
        "change": change,
        "alert": record,
    }
