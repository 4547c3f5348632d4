"""Rules about devices: a clock that is ahead, two devices on one container, a device that changes its container.

Readings are stored all the same, in the log of the container that they name; these alerts tell people to look. Their
times are those of receipt, because the devices' own clocks are part of the question.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Final

from edge.alerts.box import ContainerState, Heard
from edge.alerts.rules.base import AlertRule, RuleFinding
from edge.alerts.ship import ShipState
from edge.messages import ReadingMessage
from fairlead.records.alert import Cause, Evidence

MOST_DEVICES: Final = 65_536  # known by name at a time; ids without end must not fill the memory


class ClockRule(AlertRule):
    """A device's clock is ahead of the site's, or so far off that its readings are refused (``refused``).

    Being behind shows nothing: a reading may be late.
    """

    kind = "CLOCK"
    by_receipt = True

    def judge_reading(self, box: ContainerState, message: ReadingMessage, ship: ShipState) -> RuleFinding | None:
        ahead = message.device_ms - box.received_ms
        wrong = ahead > box.limits.device.ahead
        opened = box.open.get(self.kind)
        if wrong == (opened is not None):
            return None
        cause = box.cause(message)
        if opened is not None:
            return RuleFinding("CLEARED", opened.severity, box.received_ms, (cause,), _says(self.kind, "right again"))
        detail = f"the device's clock is {ahead // 60_000} min ahead of the ship's"
        return RuleFinding("OPENED", "WARNING", box.received_ms, (cause,), _says(self.kind, detail))

    def refused(self, box: ContainerState, cause: Cause, detail: str, now_ms: int) -> RuleFinding | None:
        """A reading went to the dead letters because of its clock: nothing watches this container meanwhile."""
        if self.kind in box.open:
            return None
        said = f"{detail}; its readings are dead letters, and this container is not watched"
        return RuleFinding("OPENED", "WARNING", now_ms, (cause,), _says(self.kind, said))


class DeviceConflictRule(AlertRule):
    """Two devices report for one container: one is heard again after another. One that takes over from one is none.

    Both are stored, and rules go by whichever is newer. It is over when only one has been heard for the window.
    """

    kind = "DEVICE_CONFLICT"
    takes_late = True
    by_receipt = True

    def judge_reading(self, box: ContainerState, message: ReadingMessage, ship: ShipState) -> RuleFinding | None:
        opened = box.open.get(self.kind)
        if len(box.heard) == 1 and opened is None:
            return None
        mine = box.heard.get(message.identity.device)
        if mine is None or mine.last != message.identity:
            return None
        now, window = box.received_ms, box.limits.device.window
        others = [each for each in box.heard.values() if each is not mine and now - each.last_ms <= window]
        if opened is not None:
            if others or now - min(each.first_ms for each in box.heard.values()) <= window:
                return None
            detail = f"only {message.identity.device} reports now"
            return RuleFinding("CLEARED", opened.severity, now, (box.cause(message),), _says(self.kind, detail))
        between = [
            each
            for each in others
            if mine.before_ms is not None
            and mine.before_ms < each.last_ms
            and now - mine.before_ms <= window
            # Else one of them only sends what it had kept.
            and message.device_ms > each.first_device_ms
            and mine.before_device_ms < each.last_device_ms
        ]
        if not between:
            return None
        other = max(between, key=lambda each: each.last_ms)
        detail = f"{other.last.device} and {message.identity.device} both report for this container"
        return RuleFinding("OPENED", "WARNING", now, (other.cause(), box.cause(message)), _says(self.kind, detail))


class DeviceMovedRule(AlertRule):
    """A device reports for another container than before, and both are aboard.

    Raised when it has done so twice and not again for the one before. An id that three containers or more share is a
    gateway's and says nothing. It is over when the device returns, or the container before it has left or has another.
    """

    kind = "DEVICE_MOVED"
    takes_late = True
    by_receipt = True

    def __init__(self) -> None:
        self._heard_in: dict[
            str, tuple[str, ...]
        ] = {}  # device to containers, to find them; follows from ``ContainerState.heard``

    def judge_reading(self, box: ContainerState, message: ReadingMessage, ship: ShipState) -> RuleFinding | None:
        device = message.identity.device
        known = self._heard_in.get(device)
        if known is None:
            if len(self._heard_in) >= MOST_DEVICES:
                self._heard_in = _heard_aboard(ship)
            self._heard_in[device] = (box.number,)
            return None
        if box.number not in known:
            aboard = tuple(number for number in known if _has(ship, number, device))
            known = self._heard_in[device] = (*aboard, box.number)
        if len(known) == 1 and self.kind not in box.open:
            return None
        return self._judge(box, device, known, ship, box.received_ms)

    def tick(self, ship: ShipState) -> Iterable[tuple[ContainerState, RuleFinding]]:
        """The device may be heard elsewhere, and here no more."""
        found: list[tuple[ContainerState, RuleFinding]] = []
        for box in [box for box in ship.aboard.values() if self.kind in box.open]:
            device = box.open[self.kind].causes[0].device_id
            known = self._heard_in.get(device, ())
            others = [ship.aboard[number].heard[device] for number in known if _has(ship, number, device)]
            at = max((each.last_ms for each in others), default=box.received_ms)
            finding = self._judge(box, device, known, ship, at)
            if finding is not None and finding.state == "CLEARED":
                found.append((box, finding))
        return found

    def _judge(
        self, box: ContainerState, device: str, known: tuple[str, ...], ship: ShipState, now: int
    ) -> RuleFinding | None:
        mine, opened = box.heard.get(device), box.open.get(self.kind)
        before = [number for number in known if number != box.number and _has(ship, number, device)]
        if opened is not None and opened.causes[0].device_id != device:
            return None
        if mine is None or len(before) > 1:
            return None
        if not before:
            return self._over(box, mine, now, "the other container has left")
        other = ship.aboard[before[0]]
        there = other.heard[device]
        if there.last_ms >= mine.first_ms:
            return self._over(box, mine, now, f"it reports for {other.number} again")
        if any(each.last_ms > there.last_ms for each in other.heard.values()):
            return self._over(box, mine, now, f"{other.number} has another device")
        if opened is not None or mine.last_ms <= mine.first_ms:
            return None
        until = dt.datetime.fromtimestamp(there.last_ms / 1000, dt.UTC)
        detail = (
            f"{device} reported for {other.number} until {until:%Y-%m-%d %H:%M} UTC, and reports for this one since"
        )
        return RuleFinding("OPENED", "WARNING", now, (there.cause(), mine.cause()), _says(self.kind, detail))

    def _over(self, box: ContainerState, mine: Heard, now: int, why: str) -> RuleFinding | None:
        opened = box.open.get(self.kind)
        if opened is None:
            return None
        return RuleFinding("CLEARED", opened.severity, now, (mine.cause(),), _says(self.kind, why))


def _heard_aboard(ship: ShipState) -> dict[str, tuple[str, ...]]:
    """Which containers each device was heard for, as far as the containers aboard remember."""
    found: dict[str, tuple[str, ...]] = {}
    for box in ship.aboard.values():
        for device in box.heard:
            found[device] = (*found.get(device, ()), box.number)
    return found


def _has(ship: ShipState, number: str, device: str) -> bool:
    box = ship.aboard.get(number)
    return box is not None and device in box.heard


def _says(kind: str, detail: str) -> tuple[Evidence, ...]:
    return (Evidence(name=kind.lower().replace("_", "-"), weight=1.0, detail=detail),)
