"""The rule about silence: a device has stopped reporting for its container, while the ship and the others report.

On a ship, the rule's clock is that of the ship's position reports, so while the ship itself is silent, no container's
silence is judged. In a yard it is that of the containers' own readings (``edge.alerts.ship.YardState``). If half of the
containers are silent (``suspect_gateway``), the gateway is at fault: the rule raises one alert about all of them (its
container is ``""``) instead of one each. Only containers whose log the site holds are expected to report.
From a departure until a container is heard again, the roll call speaks for it (``edge.alerts.roll_call``).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from edge.alerts.box import ContainerState
from edge.alerts.rules.base import AlertRule, RuleFinding
from edge.alerts.ship import ShipState
from edge.messages import ReadingMessage
from fairlead.records.alert import OVERBOARD, Evidence

KIND = "SILENCE"
ALL = ""  # the container's number in the alert about all of them
_LOOK_AGAIN_MS = 10 * 60_000
_NAMED = 5  # most readings that are named as causes
_FEW = 3  # with fewer containers aboard, their share does not show a fault of the gateway


class SilenceRule(AlertRule):
    """Keeps a deadline per container, earliest first.

    When a deadline has passed, most containers have reported in the meantime and only get a new one.
    """

    kind = KIND

    def __init__(self) -> None:
        self._deadlines: list[tuple[int, str]] = []

    def judge_reading(self, box: ContainerState, message: ReadingMessage, ship: ShipState) -> RuleFinding | None:
        if KIND not in box.pending:
            # The first deadline is early; the device's usual interval is known by then.
            self._expect(box, _heard_ms(box) + box.limits.silence.at_least)
        opened = box.open.get(KIND)
        if opened is None:
            return None
        return RuleFinding("CLEARED", opened.severity, message.device_ms, (box.cause(message),))

    def tick(self, ship: ShipState) -> Iterable[tuple[ContainerState, RuleFinding]]:
        boxes, now, deadlines = ship.aboard, ship.at_ms, self._deadlines
        silent: list[ContainerState] = []
        while deadlines and deadlines[0][0] <= now:
            deadline, number = heapq.heappop(deadlines)
            box = boxes.get(number)
            if box is None or box.pending.get(KIND) != deadline:
                continue  # it has left the site, and perhaps come back since
            del box.pending[KIND]  # its next reading sets a new one
            due = due_ms(box)
            if due > now:
                self._expect(box, due)
            elif not box.held or OVERBOARD in box.open or ship.roll_call.speaks_for(number, _heard_ms(box)):
                # The log may come to the site, or a person may clear the alert, without another reading.
                self._expect(box, now + _LOOK_AGAIN_MS)
            elif KIND not in box.open:
                silent.append(box)
        everybody = boxes.get(ALL)
        opened = everybody.open.get(KIND) if everybody is not None else None
        if not silent and opened is None:
            return ()
        quiet, expected = _overdue(ship, now, opened is not None)
        limits = (silent[0] if silent else boxes[ALL]).limits
        if expected < _FEW or len(quiet) < limits.silence.suspect_gateway * expected:
            found = [(box, _finding(box, now)) for box in silent]
            if everybody is not None and opened is not None:
                found.append((everybody, RuleFinding("CLEARED", opened.severity, now, opened.causes)))
            return found
        for box in silent:
            self._expect(box, now + _LOOK_AGAIN_MS)
        if opened is not None:
            return ()
        everybody = everybody or boxes.setdefault(ALL, ContainerState(ALL, limits))
        return [(everybody, _all_silent(quiet, expected, now))]

    def _expect(self, box: ContainerState, deadline: int) -> None:
        box.pending[KIND] = deadline
        heapq.heappush(self._deadlines, (deadline, box.number))


def _overdue(ship: ShipState, now: int, all_open: bool) -> tuple[list[ContainerState], int]:
    """Return the containers that have been silent for half the allowed time, and how many are expected to report.

    Half, because devices report at different moments: when the first one is due, the others soon will be. Containers
    for which the roll call speaks are left out, but not while the alert about all is open, which would end it.
    """
    expected = [
        box
        for box in ship.aboard.values()
        if box.held
        and OVERBOARD not in box.open
        and (all_open or not ship.roll_call.speaks_for(box.number, _heard_ms(box)))
    ]
    return [box for box in expected if _heard_ms(box) + _allowed_ms(box) // 2 <= now], len(expected)


def due_ms(box: ContainerState) -> int:
    """Return by when a container must report again, by the ship's clock."""
    return _heard_ms(box) + _allowed_ms(box)


def _heard_ms(box: ContainerState) -> int:
    return max(box.at_ms, box.heard_ms)


def _allowed_ms(box: ContainerState) -> int:
    limits, usual = box.limits.silence, box.interval_ms
    return max(limits.at_least, int(limits.intervals * usual)) if usual else limits.unknown


def _all_silent(quiet: list[ContainerState], expected: int, now: int) -> RuleFinding:
    detail = f"{len(quiet)} of {expected} containers are silent: look at the gateway"
    # The first cause is part of the alert's id. A container that was silent when the gateway failed before must not
    # come first: the alert would have the id of the one then.
    newest = sorted(quiet, key=_heard_ms, reverse=True)[:_NAMED]
    causes = tuple(box.cause(box.newest) for box in newest if box.newest is not None)
    return RuleFinding("OPENED", "ALARM", now, causes, (Evidence(name="silence", weight=1.0, detail=detail),))


def _finding(box: ContainerState, now: int) -> RuleFinding:
    minutes, usual = (now - _heard_ms(box)) // 60_000, box.interval_ms // 60_000
    detail = f"no reading for {minutes} min" + (f", usually one every {usual} min" if usual else "")
    causes = (box.cause(box.newest),) if box.newest is not None else ()
    return RuleFinding("OPENED", "WARNING", box.at_ms, causes, (Evidence(name="silence", weight=1.0, detail=detail),))
