"""The base classes of alert rules: ``AlertRule``, its result ``RuleFinding``, and ``DwellRule`` for most rules."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, Final

from edge.alerts.box import ContainerState, unique
from edge.alerts.ship import ShipState
from edge.messages import ReadingMessage
from fairlead.detection import Deviation, Good
from fairlead.records.alert import SEVERITIES, Alert, AlertKind, AlertState, Cause, Evidence, Severity
from fairlead.records.reading import GeoLocation

GOOD: Final = Good()
good_with: Final = cache(Good)
"""Return ``Good(recovery_ms)``, the same object for the same time: nearly every reading needs some."""
_UNKNOWN: Final = -1


@dataclass(frozen=True, slots=True)
class RuleFinding:
    """One change of one condition: it begins (OPENED), changes (UPDATED) or ends (CLEARED).

    Args:
        at_ms: Device time of the reading that decided it.
        causes: The readings that led to it. The first one is the condition's first and becomes part of the alert's id.
        place: Where the container was, if that is known better than from the reading.
    """

    state: AlertState
    severity: Severity
    at_ms: int
    causes: tuple[Cause, ...]
    evidence: tuple[Evidence, ...] = ()
    place: GeoLocation | None = None


class AlertRule:
    """One kind of alert.

    A rule keeps its memory of a container in ``box.pending[self.kind]`` and has no state of its own. So its memory goes
    away with the container, and is rebuilt from the container's readings after a restart. It must depend on the
    readings alone, not on ``box.open``.
    """

    kind: ClassVar[AlertKind]
    takes_late: ClassVar[bool] = False
    """Whether the rule also judges late readings, which arrive after a newer one of their device."""
    by_receipt: ClassVar[bool] = False
    """Whether ``RuleFinding.at_ms`` is the time of receipt, for rules that do not trust the clocks of devices."""

    def judge_reading(self, box: ContainerState, message: ReadingMessage, ship: ShipState) -> RuleFinding | None:
        """Judge a reading that was just applied to ``box``. Returns the change of the condition, None if none."""
        return None

    def is_same(self, box: ContainerState, dismissed: Alert, finding: RuleFinding) -> bool:
        """Return whether a finding that would open an alert is about the same condition as the dismissed alert."""
        return bool(finding.causes) and finding.causes[0] == dismissed.causes[0]

    def tick(self, ship: ShipState) -> Iterable[tuple[ContainerState, RuleFinding]]:
        """Judge what time alone shows. Called when the clock of the ship or yard (``ship.at_ms``) has advanced."""
        return ()

    def _evidence(self, detail: str) -> Evidence:
        """Return a finding's evidence with the rule's own name."""
        return Evidence(name=self.kind.lower().replace("_", "-"), weight=1.0, detail=detail)


@dataclass(slots=True)
class _Condition:
    """A condition that lasts: since when, its first and its worst reading, and its severity."""

    since_ms: int
    first: Cause
    worst: Cause
    size: float
    severity: Severity
    good_since_ms: int | None = None


class DwellRule(AlertRule):
    """A rule that opens an alert when a deviation has lasted for its dwell time.

    Subclasses judge a reading (``find_deviation``) and describe the fault (``describe``). A reading in order ends at
    once a condition that is not yet an alert. An open alert is cleared when the readings have been in order for the
    recovery time. A rising severity makes an UPDATED state, a falling one does not.
    """

    def is_same(self, box: ContainerState, dismissed: Alert, finding: RuleFinding) -> bool:
        """Also return True if the condition began with the oldest reading known: older ones are not known to differ."""
        condition: _Condition | None = box.pending.get(self.kind)
        lasting = condition is not None and condition.since_ms <= box.known_from_ms
        return lasting or super().is_same(box, dismissed, finding)

    def find_deviation(self, box: ContainerState, message: ReadingMessage, ship: ShipState) -> Deviation | Good | None:
        """Return whether the reading deviates or is in order; None when it shows neither."""
        raise NotImplementedError

    def describe(self, box: ContainerState, message: ReadingMessage) -> str:
        """Return a description of the fault, without its duration."""
        raise NotImplementedError

    def judge_reading(self, box: ContainerState, message: ReadingMessage, ship: ShipState) -> RuleFinding | None:
        found = self.find_deviation(box, message, ship)
        if found is None:
            return None
        if isinstance(found, Good):
            if self.kind not in box.pending and self.kind not in box.open:
                return None
            return self._good(box, message, found)
        return self._fault(box, message, found)

    def _good(self, box: ContainerState, message: ReadingMessage, found: Good) -> RuleFinding | None:
        at, condition = message.device_ms, box.pending.get(self.kind)
        opened = box.open.get(self.kind)
        if opened is None:
            box.pending.pop(self.kind, None)
            return None
        cause = box.cause(message)
        if condition is None:  # after a restart: the readings that opened the alert are too old to be read
            condition = box.pending[self.kind] = _Condition(_UNKNOWN, cause, cause, 0.0, opened.severity)
        if condition.good_since_ms is None or at < condition.good_since_ms:
            condition.good_since_ms = at
        if at - condition.good_since_ms < found.recovery_ms:
            return None
        del box.pending[self.kind]
        lasted = condition.good_since_ms - condition.since_ms if condition.since_ms != _UNKNOWN else 0
        detail = "in order again" + (f"; it lasted {lasted // 60_000} min" if lasted >= 60_000 else "")
        return RuleFinding("CLEARED", opened.severity, at, (cause,), (self._evidence(detail),))

    def _fault(self, box: ContainerState, message: ReadingMessage, found: Deviation) -> RuleFinding | None:
        at, condition = message.device_ms, box.pending.get(self.kind)
        opened = box.open.get(self.kind)
        if condition is None or condition.since_ms == _UNKNOWN:
            cause = box.cause(message)
            condition = box.pending[self.kind] = _Condition(at, cause, cause, found.size, found.severity)
        else:
            condition.good_since_ms = None
            condition.since_ms = min(condition.since_ms, at)  # a clock that was set back
            if found.size > condition.size:
                condition.size, condition.worst = found.size, box.cause(message)
            if rank(found.severity) > rank(condition.severity):
                condition.severity = found.severity
        lasted = at - condition.since_ms
        if opened is not None:
            if rank(found.severity) <= rank(opened.severity):
                return None
            return self._finding("UPDATED", found.severity, box, message, condition, lasted)
        if lasted < found.dwell_ms:
            return None
        return self._finding("OPENED", condition.severity, box, message, condition, lasted)

    def _finding(
        self,
        state: AlertState,
        severity: Severity,
        box: ContainerState,
        message: ReadingMessage,
        condition: _Condition,
        lasted: int,
    ) -> RuleFinding:
        detail = self.describe(box, message) + (f", for {lasted // 60_000} min" if lasted >= 60_000 else "")
        causes = unique([condition.first, condition.worst, box.cause(message)])
        return RuleFinding(state, severity, message.device_ms, causes, (self._evidence(detail),))


def rank(severity: Severity) -> int:
    """Return a number that rises with the severity."""
    return SEVERITIES.index(severity)
