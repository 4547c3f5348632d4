"""The alert engine of a site: gives every reading to every rule, and keeps one alert per container and condition.

It watches the containers that are at the site by custody: those aboard a ship, and those in the yard of a port. The
rules are the same; a yard lies still and has another clock (``edge.alerts.ship.YardState``).

After a restart it is refilled from the logs: ``restore`` the site's alerts, ``recall`` the newest readings of each
container at the site in order, then ``settle``. A reading is acknowledged only when it and its alerts are stored. So
every alert is in the log and not raised again, or its reading is in a container's log and ``recall`` raises the alert,
or the MQTT broker sends the reading again.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Set
from typing import Final, NamedTuple

from edge.alerts.box import ContainerState
from edge.alerts.rules.base import AlertRule, RuleFinding
from edge.alerts.rules.bookings import Bookings
from edge.alerts.rules.devices import ClockRule, DeviceConflictRule, DeviceMovedRule
from edge.alerts.rules.overboard import OverboardRule
from edge.alerts.rules.reefer import (
    CarbonDioxideRule,
    DoorOpenRule,
    HumidityRule,
    InspectionRule,
    OxygenRule,
    PowerLostRule,
    TemperatureRule,
    UnitAlarmRule,
    WrongSetpointRule,
)
from edge.alerts.rules.silence import ALL, SilenceRule
from edge.alerts.ship import ShipState, YardState
from edge.alerts.state import acknowledged, alert_state, cleared_by_hand, ended_by_leaving, is_by_hand, reopened
from edge.alerts.thresholds import Thresholds, default_thresholds
from edge.messages import ReadingMessage
from fairlead.records.alert import Alert, AlertKind, AlertOrder, Cause
from fairlead.records.booking import Booking
from fairlead.records.reading import GeoLocation, known, milliseconds
from fairlead.records.ship import Position

log = logging.getLogger(__name__)

_YARD_TICK_MS: Final = 5 * 60_000
"""How far a yard's clock moves until the rules judge again what time alone shows. At sea, each report does that."""


def default_rules() -> tuple[AlertRule, ...]:
    """Return one of each rule, the most urgent first."""
    return (
        OverboardRule(),
        PowerLostRule(),
        UnitAlarmRule(),
        WrongSetpointRule(),
        TemperatureRule(),
        HumidityRule(),
        OxygenRule(),
        CarbonDioxideRule(),
        DoorOpenRule(),
        InspectionRule(),
        SilenceRule(),
        ClockRule(),
        DeviceConflictRule(),
        DeviceMovedRule(),
    )


class _Said(NamedTuple):
    """The newest alert of one kind for one container in the site's log.

    ``opened_ms``: when it was opened. ``last_ms``: the time of its last state, up to which nothing is raised again.
    ``dismissed``: if a person has cleared it, its last state before that. Times are device times, or times of receipt
    for rules with ``by_receipt``.
    """

    opened_ms: int
    last_ms: int
    dismissed: Alert | None = None


@contextlib.contextmanager
def _as_it_was(box: ContainerState, kind: AlertKind, said: _Said, at_ms: int) -> Iterator[None]:
    """Within the block, give ``box`` the open alert of this kind as it was at ``at_ms``."""
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
    """Turns readings into alerts. Each condition is opened once and, if the rule can detect its end, cleared once.

    An exception in a rule stops neither the other rules nor the storing of the reading. It is logged and counted in
    ``failures``.

    Args:
        ashore: Whether the site is a yard and not a ship.
    """

    def __init__(
        self,
        site: str,
        rules: Iterable[AlertRule] | None = None,
        *,
        thresholds: Thresholds | None = None,
        ashore: bool = False,
    ) -> None:
        self._site = site
        self._rules = tuple(rules) if rules is not None else default_rules()
        self._late_rules = tuple(rule for rule in self._rules if rule.takes_late)
        self._kinds = frozenset(rule.kind for rule in self._rules)
        self._thresholds = thresholds or default_thresholds()
        self._bookings = Bookings()
        self._said: dict[tuple[str, AlertKind], _Said] = {}  # by container and kind, between ``restore`` and ``settle``
        self.failures = 0
        self.yard = YardState() if ashore else None
        self.ship: ShipState = self.yard or ShipState()
        self._ticked_ms = 0  # the yard's clock when the rules last judged what time alone shows
        self._boxes = self.ship.aboard

    # -- before the first message

    @property
    def reach_ms(self) -> int:
        """How far back readings may influence a container's state, in milliseconds."""
        return self._thresholds.longest_ms + 3_600_000

    def restore(self, alert: Alert) -> None:
        """Restore an alert from the site's own log, so that it is not raised again. Call it with the oldest first."""
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
        """Apply a reading that was stored before the restart. Call it in the order of the reading's log.

        Args:
            received_ms: When the reading was received; None if not known, which counts as ``now_ms``.
            sure: Whether the readings before this one are known well enough to judge it. If not, it only updates the
                state.

        Returns:
            Alerts that the restart prevented: their reading is stored and they are not.
        """
        came_ms = now_ms if received_ms is None else received_ms
        box, fresh = self._add_reading(message, log, came_ms, 0)
        if not sure and not box.known_from_ms:
            box.known_from_ms = message.device_ms
        if self.yard is not None:
            self.yard.hear(message.number, message.device_ms, now_ms)
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
        """Apply the ship's newest report from before the restart, without judging any rule."""
        self.ship.report(position, min(at_ms, now_ms) if now_ms else at_ms)

    def settle(self, here: Set[str], now_ms: int) -> list[Alert]:
        """End the refill: return the CLEARED states of the alerts of containers that are not at the site any more."""
        self._said.clear()
        gone = [number for number in self._boxes if number not in here and number != ALL]
        return [alert for number in gone for alert in self.forget(number, now_ms)]

    # -- while the bridge runs

    def ship_reported(self, position: Position, at_ms: int, now_ms: int = 0) -> list[Alert]:
        """Apply a report of the ship's position, which also moves the engine's clock, and return the alerts it causes.

        Some rules raise alerts because time passes without a reading.

        Args:
            now_ms: The site's wall time. A report dated later counts as one of now; otherwise the reports after it
                would count as older ones until its time has come.
        """
        before = self.ship.at_ms
        self.recall_ship(position, at_ms, now_ms)
        return self._tick(now_ms or at_ms) if self.ship.at_ms > before else []

    def booked(self, booking: Booking) -> None:
        """Apply a change of a booking."""
        self._bookings.apply(booking)
        box = self._boxes.get(booking.equipment_reference)
        if box is not None:
            self._assign(box, box.at_ms)

    def taken_over(self, log: str) -> None:
        """Note that the site holds a container's log from now on, and so expects its device to report."""
        box = self._boxes.get(log.partition(".")[2])
        if box is not None:
            box.log, box.held = log, True

    def forget(self, number: str, now_ms: int = 0) -> list[Alert]:
        """Remove a container that has left the site, and return the CLEARED states of its open alerts."""
        box = self._boxes.pop(number, None)
        if box is None:
            return []
        return [
            self._state(box, kind, ended_by_leaving(box, opened, self._site), now_ms or box.at_ms, opened.geo_location)
            for kind, opened in tuple(box.open.items())
        ]

    def judge_reading(self, message: ReadingMessage, log: str, now_ms: int) -> list[Alert]:
        """Apply a reading and return the alerts that it causes, most often none.

        Args:
            log: Where the reading is being stored. An alert does not wait for its reading's offset, so ``causes`` have
                offset -1 and identify the reading by device, boot and sequence.
        """
        ship = self.ship
        box, fresh = self._add_reading(message, log, now_ms, ship.at_ms)
        alerts: list[Alert] = []
        for rule in self._rules if fresh else self._late_rules:
            try:  # as ``_ask`` does; its call would take as long as most rules
                finding = rule.judge_reading(box, message, ship)
            except Exception:
                self._failed_on(rule, message)
                continue
            if finding is not None:
                alerts += self._raise_alert(box, rule, finding, now_ms, known(message.reading.geo_location))
        if self.yard is not None:
            self.yard.hear(message.number, message.device_ms, now_ms)
            if self.yard.at_ms - self._ticked_ms >= _YARD_TICK_MS:
                self._ticked_ms = self.yard.at_ms
                alerts += self._tick(now_ms)
        return alerts

    def refused(self, number: str, cause: Cause, why: str, now_ms: int) -> list[Alert]:
        """Return the alerts about a reading that is a dead letter because of its device's clock.

        ``cause`` identifies the reading, ``why`` is the letter's reason. A yard only reports containers that it knows,
        because messages about any container may reach it.
        """
        alerts: list[Alert] = []
        if self.yard is not None and number not in self._boxes:
            return alerts
        for rule in self._rules:
            if isinstance(rule, ClockRule):
                box = self._box(number, now_ms)
                finding = rule.refused(box, cause, why, now_ms)
                if finding is not None:
                    alerts += self._raise_alert(box, rule, finding, now_ms, None)
        return alerts

    def dismiss(self, order: AlertOrder, now_ms: int) -> list[Alert]:
        """Clear an alert by an operator's order, if it is open. The same condition does not raise it again."""
        box = self._boxes.get(order.equipment_reference)
        opened = box.open.get(order.kind) if box is not None else None
        if box is None or opened is None or opened.alert_id != order.alert_id:
            return []
        by_receipt = any(rule.by_receipt for rule in self._rules if rule.kind == order.kind)
        finding = cleared_by_hand(opened, order, box.received_ms if by_receipt else box.at_ms)
        cleared = self._state(box, order.kind, finding, now_ms, opened.geo_location)
        box.dismissed[order.kind] = cleared
        return [cleared]

    def acknowledge(self, order: AlertOrder, now_ms: int) -> list[Alert]:
        """Note who has acknowledged an alert, by an operator's order, if it is open and was not acknowledged before."""
        box = self._boxes.get(order.equipment_reference)
        opened = box.open.get(order.kind) if box is not None else None
        seen = acknowledged(opened, order, now_ms) if opened is not None else None
        if box is None or seen is None:
            return []
        box.open[order.kind] = seen
        return [seen]

    # -- boxes and alerts

    def _tick(self, now_ms: int) -> list[Alert]:
        """Return the alerts that follow from the time alone."""
        alerts: list[Alert] = []
        for rule in self._rules:
            try:
                found = list(rule.tick(self.ship))
            except Exception:
                self._failed(rule, "the time")
                continue
            for box, finding in found:
                alerts += self._raise_alert(box, rule, finding, now_ms, None)
        return alerts

    def _ask(self, rule: AlertRule, box: ContainerState, message: ReadingMessage) -> RuleFinding | None:
        try:
            return rule.judge_reading(box, message, self.ship)
        except Exception:
            self._failed_on(rule, message)
            return None

    def _failed_on(self, rule: AlertRule, message: ReadingMessage) -> None:
        self._failed(rule, f"reading {message.identity} of {message.number}")

    def _failed(self, rule: AlertRule, what: str) -> None:
        self.failures += 1
        log.exception("%s: rule %s failed on %s; the other rules continue", self._site, rule.kind, what)

    def _add_reading(
        self, message: ReadingMessage, log: str, received_ms: int, ship_ms: int
    ) -> tuple[ContainerState, bool]:
        """Apply a reading to its container's state. Returns the state, and whether the reading is the newest now."""
        box = self._boxes.get(message.number)
        if box is None or not box.stream:
            box = self._box(message.number, message.device_ms)
            box.stream = message.log.partition(".")[0]
            self._assign(box, message.device_ms)
        box.log, box.held = log, log == message.log
        box.note_receipt(message, received_ms)
        fresh = box.add_reading(message, ship_ms)
        if fresh and not box.booking_from_ms <= message.device_ms < box.booking_until_ms:
            self._assign(box, message.device_ms)
        self.ship.roll_call.hear(message.number, message.device_ms, ship_ms, newest=fresh)
        return box, fresh

    def _box(self, number: str, at_ms: int) -> ContainerState:
        box = self._boxes.get(number)
        if box is None:
            box = self._boxes[number] = ContainerState(number, self._thresholds.of(None, ashore=self.yard is not None))
            self._assign(box, at_ms)
        return box

    def _assign(self, box: ContainerState, at_ms: int) -> None:
        box.booking = self._bookings.of(box.number, at_ms)
        box.booking_from_ms, box.booking_until_ms = self._bookings.same_within(box.number, at_ms)
        booking = box.booking
        box.limits = self._thresholds.of(
            booking.commodity if booking is not None else None,
            stream=box.stream,
            customer=booking.customer if booking is not None else None,
            ashore=self.yard is not None,
        )

    def _raise_alert(
        self, box: ContainerState, rule: AlertRule, finding: RuleFinding, now_ms: int, place: GeoLocation | None
    ) -> Iterable[Alert]:
        """Return the alert of a finding, or nothing if a person has cleared it and the same condition persists."""
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
