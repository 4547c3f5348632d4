"""The alert engine of a ship: gives every reading to every rule, and keeps one alert per container and condition.

After a restart it is filled again from the logs: ``restore`` the site's alerts, ``recall`` the newest readings of each
container aboard in their order, then ``settle``. A reading is acknowledged only when it and the alerts that it caused
are stored; so each alert is either in the log (and not raised again), or its reading is in a container's log and
recalling it raises the alert, or the reading comes again from the MQTT broker.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Set
from typing import NamedTuple

from edge.alerts.box import NOT_YET_STORED, ContainerState
from edge.alerts.rules.base import AlertRule, RuleFinding
from edge.alerts.rules.bookings import Bookings
from edge.alerts.rules.devices import ClockRule, DeviceConflictRule, DeviceMovedRule
from edge.alerts.rules.overboard import OverboardRule
from edge.alerts.rules.reefer import (
    CarbonDioxideRule,
    DoorOpenRule,
    HumidityRule,
    OxygenRule,
    PowerLostRule,
    TemperatureRule,
    WrongSetpointRule,
)
from edge.alerts.rules.silence import ALL, SilenceRule
from edge.alerts.ship import ShipState, known
from edge.alerts.state import alert_state, cleared_by_hand, ended_by_leaving, is_by_hand, reopened
from edge.alerts.thresholds import Thresholds, default_thresholds
from edge.messages import ReadingMessage, milliseconds
from fairlead.records.alert import Alert, AlertKind, AlertOrder, Cause
from fairlead.records.booking import Booking
from fairlead.records.reading import GeoLocation
from fairlead.records.ship import Position

log = logging.getLogger(__name__)

__all__ = ["NOT_YET_STORED", "AlertEngine", "default_rules"]


def default_rules() -> tuple[AlertRule, ...]:
    """Every rule, the one that cannot wait first."""
    return (
        OverboardRule(),
        PowerLostRule(),
        WrongSetpointRule(),
        TemperatureRule(),
        HumidityRule(),
        OxygenRule(),
        CarbonDioxideRule(),
        DoorOpenRule(),
        SilenceRule(),
        ClockRule(),
        DeviceConflictRule(),
        DeviceMovedRule(),
    )


class _Said(NamedTuple):
    """Of a kind's newest alert of a box: when it was opened, up to when all is said, and where a person has cleared it
    its last state before. Device times, or for rules ``by_receipt`` times of receipt."""

    opened_ms: int
    last_ms: int
    dismissed: Alert | None = None


@contextlib.contextmanager
def _as_it_was(box: ContainerState, kind: AlertKind, said: _Said, at_ms: int) -> Iterator[None]:
    """What was open when an earlier reading came, in place of what is open now."""
    then = now = box.open.get(kind)
    if at_ms <= said.opened_ms:
        then = None
    elif said.dismissed is not None and at_ms <= said.last_ms:
        then = said.dismissed
    _set_open(box, kind, then)
    try:
        yield
    finally:
        _set_open(box, kind, now)


def _set_open(box: ContainerState, kind: AlertKind, alert: Alert | None) -> None:
    if alert is None:
        box.open.pop(kind, None)
    else:
        box.open[kind] = alert


class AlertEngine:
    """Turns readings into alerts. A condition is opened once and, where the rule can tell, cleared once.

    A rule that raises an exception stops neither the other rules nor the reading on its way into its log: that is
    logged, and counted in ``failures``.
    """

    def __init__(
        self, site: str, rules: Iterable[AlertRule] | None = None, *, thresholds: Thresholds | None = None
    ) -> None:
        self._site = site
        self._rules = tuple(rules) if rules is not None else default_rules()
        self._late_rules = tuple(rule for rule in self._rules if rule.takes_late)
        self._kinds = frozenset(rule.kind for rule in self._rules)
        self._thresholds = thresholds or default_thresholds()
        self._bookings = Bookings()
        self._said: dict[tuple[str, AlertKind], _Said] = {}  # while the past is recalled
        self.failures = 0
        self.ship = ShipState()
        self._boxes = self.ship.aboard

    # -- what is known before the first message

    @property
    def reach_ms(self) -> int:
        """How much of a container's past its state may depend on."""
        return self._thresholds.longest_ms + 3_600_000

    def restore(self, alert: Alert) -> None:
        """Take in an alert of the site's own log, oldest first, so that a restart raises nothing twice."""
        if alert.kind not in self._kinds:
            return
        at_ms = milliseconds(alert.event_date_time)
        box = self._box(alert.equipment_reference, at_ms)
        before = self._said.get((box.number, alert.kind))
        opened_ms = at_ms if alert.state == "OPENED" or before is None else before.opened_ms
        last = box.open.pop(alert.kind, None)
        if alert.state != "CLEARED":
            box.open[alert.kind] = alert
        elif is_by_hand(alert):
            box.dismissed[alert.kind] = alert
        self._said[box.number, alert.kind] = _Said(opened_ms, at_ms, last if is_by_hand(alert) else None)

    def recall(
        self, message: ReadingMessage, log: str, now_ms: int, *, received_ms: int | None = None, sure: bool = True
    ) -> list[Alert]:
        """Take in a reading that was stored before the restart, in the order of its log.

        Args:
            received_ms: When it came; ``now_ms`` where that is not known.
            sure: Enough of what came before it is known to judge it; else it is only remembered.

        Returns:
            Alerts that the restart came in between of: their reading is stored and they are not.
        """
        came_ms = now_ms if received_ms is None else received_ms
        box, fresh = self._add_reading(message, log, came_ms, 0)
        alerts: list[Alert] = []
        for rule in self._rules if fresh else self._late_rules:
            said = self._said.get((box.number, rule.kind))
            at_ms = came_ms if rule.by_receipt else message.device_ms
            if said is None:
                finding = self._ask(rule, box, message)
            else:
                with _as_it_was(box, rule.kind, said, at_ms):
                    finding = self._ask(rule, box, message)
            if finding is not None and sure and (said is None or finding.at_ms > said.last_ms):
                alerts += self._raise_alert(box, rule, finding, now_ms, known(message.reading.geo_location))
        return alerts

    def recall_ship(self, position: Position, at_ms: int, now_ms: int = 0) -> None:
        """Take in the ship's newest report of before the restart; nothing is concluded from it."""
        self.ship.report(position, min(at_ms, now_ms) if now_ms else at_ms)

    def settle(self, aboard: Set[str], now_ms: int) -> list[Alert]:
        """The past is recalled; end what was open for boxes that are not among those ``aboard`` any more."""
        self._said.clear()
        gone = [number for number in self._boxes if number not in aboard and number != ALL]
        return [alert for number in gone for alert in self.forget(number, now_ms)]

    # -- what happens

    def ship_reported(self, position: Position, at_ms: int, now_ms: int = 0) -> list[Alert]:
        """The ship says where it is, and what time it is: some conditions show by nothing happening.

        ``now_ms``: the site's wall time. A report from beyond it counts as one of now: else those that follow would be
        taken for older ones, for as long as that one was ahead.
        """
        before = self.ship.at_ms
        self.recall_ship(position, at_ms, now_ms)
        if self.ship.at_ms <= before:
            return []
        alerts: list[Alert] = []
        for rule in self._rules:
            try:
                found = list(rule.tick(self.ship))
            except Exception:
                self._failed(rule, "the time")
                continue
            for box, finding in found:
                alerts += self._raise_alert(box, rule, finding, now_ms or at_ms, None)
        return alerts

    def booked(self, booking: Booking) -> None:
        """A booking has changed."""
        self._bookings.apply(booking)
        box = self._boxes.get(booking.equipment_reference)
        if box is not None:
            self._assign(box, box.at_ms)

    def forget(self, number: str, now_ms: int = 0) -> list[Alert]:
        """The box has left the ship: returns the ends of what was open for it."""
        box = self._boxes.pop(number, None)
        if box is None:
            return []
        return [
            self._state(box, kind, ended_by_leaving(box, opened, self._site), now_ms or box.at_ms, opened.geo_location)
            for kind, opened in tuple(box.open.items())
        ]

    def judge_reading(self, message: ReadingMessage, log: str, now_ms: int) -> list[Alert]:
        """The alerts that a reading causes, most often none.

        ``log`` is where the reading is being stored; its offset is not known yet, because an alert does not wait for
        it, so ``causes`` give offset -1 and name the reading by device, boot and sequence.
        """
        box, fresh = self._add_reading(message, log, now_ms, self.ship.at_ms)
        alerts: list[Alert] = []
        for rule in self._rules if fresh else self._late_rules:
            finding = self._ask(rule, box, message)
            if finding is not None:
                alerts += self._raise_alert(box, rule, finding, now_ms, known(message.reading.geo_location))
        return alerts

    def refused(self, number: str, cause: Cause, why: str, now_ms: int) -> list[Alert]:
        """A container's reading went to the dead letters because of its device's clock; ``cause`` says which."""
        alerts: list[Alert] = []
        for rule in self._rules:
            if isinstance(rule, ClockRule):
                box = self._box(number, now_ms)
                finding = rule.refused(box, cause, why, now_ms)
                if finding is not None:
                    alerts += self._raise_alert(box, rule, finding, now_ms, None)
        return alerts

    def dismiss(self, order: AlertOrder, now_ms: int) -> list[Alert]:
        """End an alert because a person says so; nothing where it is not open. The same condition raises it no more."""
        box = self._boxes.get(order.equipment_reference)
        opened = box.open.get(order.kind) if box is not None else None
        if box is None or opened is None or opened.alert_id != order.alert_id:
            return []
        by_receipt = any(rule.by_receipt for rule in self._rules if rule.kind == order.kind)
        finding = cleared_by_hand(opened, order, box.received_ms if by_receipt else box.at_ms)
        cleared = self._state(box, order.kind, finding, now_ms, opened.geo_location)
        box.dismissed[order.kind] = cleared
        return [cleared]

    # -- boxes and alerts

    def _ask(self, rule: AlertRule, box: ContainerState, message: ReadingMessage) -> RuleFinding | None:
        try:
            return rule.judge_reading(box, message, self.ship)
        except Exception:
            self._failed(rule, f"reading {message.identity} of {message.number}")
            return None

    def _failed(self, rule: AlertRule, what: str) -> None:
        self.failures += 1
        log.exception("%s: rule %s cannot judge %s; the others go on", self._site, rule.kind, what)

    def _add_reading(
        self, message: ReadingMessage, log: str, received_ms: int, ship_ms: int
    ) -> tuple[ContainerState, bool]:
        """The reading's box, and whether the reading is its newest now."""
        box = self._boxes.get(message.number)
        if box is None:
            box = self._box(message.number, message.device_ms)
        box.log, box.held = log, log == message.log
        box.note_receipt(message, received_ms)
        return box, box.add_reading(message, ship_ms)

    def _box(self, number: str, at_ms: int) -> ContainerState:
        box = self._boxes.get(number)
        if box is None:
            box = self._boxes[number] = ContainerState(number, self._thresholds.default)
            self._assign(box, at_ms)
        return box

    def _assign(self, box: ContainerState, at_ms: int) -> None:
        box.booking = self._bookings.of(box.number, at_ms)
        box.limits = self._thresholds.of(box.booking.commodity if box.booking is not None else None)

    def _raise_alert(
        self, box: ContainerState, rule: AlertRule, finding: RuleFinding, now_ms: int, place: GeoLocation | None
    ) -> Iterable[Alert]:
        """The alert of a finding; none where a person has cleared it and the same condition goes on."""
        dismissed = box.dismissed.get(rule.kind) if finding.state == "OPENED" else None
        if dismissed is not None:
            other = None if rule.is_same(box, dismissed, finding) else reopened(finding, dismissed)
            if other is None:
                return ()
            del box.dismissed[rule.kind]
            finding = other
        return (self._state(box, rule.kind, finding, now_ms, place),)

    def _state(
        self, box: ContainerState, kind: AlertKind, finding: RuleFinding, now_ms: int, place: GeoLocation | None
    ) -> Alert:
        return alert_state(self._site, self.ship, box, kind, finding, now_ms, place)
