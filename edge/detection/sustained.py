"""The usual form of a rule: something is out of order for longer than its dwell, and over when it has recovered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from edge.detection.box import Box, unique
from edge.detection.finding import Finding, Rule
from edge.detection.ship import ShipState
from edge.messages import ReadingMessage
from fairlead.detection import Fault, Good
from fairlead.records.alert import SEVERITIES, AlertState, Cause, Evidence, Severity

GOOD: Final = Good()
_UNKNOWN: Final = -1


@dataclass(slots=True)
class _Condition:
    """Since when, by which readings, and how bad."""

    since_ms: int
    first: Cause
    worst: Cause
    size: float
    severity: Severity
    good_since_ms: int | None = None


class Sustained(Rule):
    """Subclasses say what a reading shows (``look``) and put it into words (``describe``); the rest is here.

    A reading in order ends a condition that is not yet an alert at once. An open alert goes on until everything has
    been in order for the recovery time. A severity that rises is an UPDATED state; one that falls is not said.
    """

    def look(self, box: Box, message: ReadingMessage, ship: ShipState) -> Fault | Good | None:
        """What the reading shows; None when it shows nothing either way."""
        raise NotImplementedError

    def describe(self, box: Box, message: ReadingMessage) -> str:
        """The fault in words, without how long it has lasted."""
        raise NotImplementedError

    def see(self, box: Box, message: ReadingMessage, ship: ShipState) -> Finding | None:
        found = self.look(box, message, ship)
        if found is None:
            return None
        if isinstance(found, Good):
            if self.kind not in box.pending and self.kind not in box.open:
                return None
            return self._good(box, message, found)
        return self._fault(box, message, found)

    def _good(self, box: Box, message: ReadingMessage, found: Good) -> Finding | None:
        at, condition = message.device_ms, box.pending.get(self.kind)
        opened = box.open.get(self.kind)
        if opened is None:
            box.pending.pop(self.kind, None)
            return None
        cause = box.cause(message)
        if condition is None:  # the readings that opened it are too far back to be known after a restart
            condition = box.pending[self.kind] = _Condition(_UNKNOWN, cause, cause, 0.0, opened.severity)
        if condition.good_since_ms is None or at < condition.good_since_ms:
            condition.good_since_ms = at
        if at - condition.good_since_ms < found.recovery_ms:
            return None
        del box.pending[self.kind]
        lasted = condition.good_since_ms - condition.since_ms if condition.since_ms != _UNKNOWN else 0
        detail = "in order again" + (f"; it lasted {lasted // 60_000} min" if lasted >= 60_000 else "")
        return Finding("CLEARED", opened.severity, at, (cause,), (self._evidence(detail),))

    def _fault(self, box: Box, message: ReadingMessage, found: Fault) -> Finding | None:
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
            if _rank(found.severity) > _rank(condition.severity):
                condition.severity = found.severity
        lasted = at - condition.since_ms
        if opened is not None:
            if _rank(found.severity) <= _rank(opened.severity):
                return None
            return self._finding("UPDATED", found.severity, box, message, condition, lasted)
        if lasted < found.dwell_ms:
            return None
        return self._finding("OPENED", condition.severity, box, message, condition, lasted)

    def _finding(
        self,
        state: AlertState,
        severity: Severity,
        box: Box,
        message: ReadingMessage,
        condition: _Condition,
        lasted: int,
    ) -> Finding:
        detail = self.describe(box, message) + (f", for {lasted // 60_000} min" if lasted >= 60_000 else "")
        causes = unique([condition.first, condition.worst, box.cause(message)])
        return Finding(state, severity, message.device_ms, causes, (self._evidence(detail),))

    def _evidence(self, detail: str) -> Evidence:
        return Evidence(name=self.kind.lower().replace("_", "-"), weight=1.0, detail=detail)


def _rank(severity: Severity) -> int:
    return SEVERITIES.index(severity)
