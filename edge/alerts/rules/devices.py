"""Rules about devices: a clock that is ahead, two devices on one container, a device that changes its container.

The readings are stored all the same, in the log of the container that they name; these alerts ask people to check the
device. Their times are times of receipt, because the devices' own clocks may be wrong.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from edge.alerts.box import ContainerState, HeardDevice
from edge.alerts.rules.base import AlertRule, RuleFinding
from edge.alerts.ship import ShipState
from edge.messages import ReadingMessage
from fairlead.records.alert import Alert, Cause
from fairlead.records.reading import milliseconds

MOST_DEVICES: Final = 65_536  # remembered by id; a bound against ids without end
_SHARED: Final = 8  # containers remembered of one id, so that a reading of a yard's gateway costs no more than another


@dataclass(slots=True)
class _WrongClock:
    """Readings with a wrong clock since the last one with a right clock, counted by device and by whether they are
    refused. ``newest``: which the newest counts for."""

    counts: Counter[tuple[str, bool]]
    newest: tuple[str, bool]


class ClockRule(AlertRule):
    """A device's clock is ahead of the site's, or so far off that its readings are refused (``refused``).

    A clock that seems to be behind raises nothing, because a reading may be late.
    """

    kind = "CLOCK"
    by_receipt = True

    def judge_reading(self, box: ContainerState, message: ReadingMessage, ship: ShipState) -> RuleFinding | None:
        ahead = message.device_ms - box.received_ms
        wrong = ahead > box.limits.device.ahead
        opened = box.open.get(self.kind)
        if wrong:
            self._note(box, message.identity.device, refused=False)
        else:
            box.pending.pop(self.kind, None)
        if wrong == (opened is not None):
            return None
        cause = box.cause(message)
        if opened is not None:
            return RuleFinding("CLEARED", opened.severity, box.received_ms, (cause,), (self._evidence("right again"),))
        detail = f"the device's clock is {ahead // 60_000} min ahead of the site's"
        return RuleFinding("OPENED", "WARNING", box.received_ms, (cause,), (self._evidence(detail),))

    def refused(self, box: ContainerState, cause: Cause, detail: str, now_ms: int) -> RuleFinding | None:
        """Judge a reading that became a dead letter because of its clock: no rule watches this container meanwhile."""
        self._note(box, cause.device_id, refused=True)
        if self.kind in box.open:
            return None
        said = f"{detail}; its readings are dead letters, and this container is not watched"
        return RuleFinding("OPENED", "WARNING", now_ms, (cause,), (self._evidence(said),))

    def is_same(self, box: ContainerState, dismissed: Alert, finding: RuleFinding) -> bool:
        """Return whether the device's clock was wrong in the same way before, and has not been right since.

        Refused readings are in no log that is read again. After a restart their alert is the same if the last reading
        stored in this stay came before it was cleared.
        """
        story: _WrongClock | None = box.pending.get(self.kind)
        if story is None:
            return False
        now, then = finding.causes[0], dismissed.causes[0]
        refused = story.newest[1] and (now.device_id, now.log) == (then.device_id, then.log)
        quiet = 0 < box.received_ms <= milliseconds(dismissed.event_date_time)
        return story.counts[story.newest] > 1 or (refused and quiet)

    def _note(self, box: ContainerState, device: str, *, refused: bool) -> None:
        key = device, refused
        story: _WrongClock = box.pending.setdefault(self.kind, _WrongClock(Counter(), key))
        if key not in story.counts and len(story.counts) >= _SHARED:
            story.counts.clear()
        story.newest = key
        story.counts[key] += 1


@dataclass(slots=True)
class _Conflict:
    """When a conflict began, and when it was seen last."""

    since_ms: int
    last_ms: int


class DeviceConflictRule(AlertRule):
    """Two devices report for one container: one reports again after the other. A device that replaces another is fine.

    The readings of both are stored, and the rules use the newer one. The alert is cleared when only one device has
    reported for the window (``DeviceThresholds``).
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
                if others:
                    self._note_conflict(box, now, window)
                return None
            detail = f"only {message.identity.device} reports now"
            return RuleFinding("CLEARED", opened.severity, now, (box.cause(message),), (self._evidence(detail),))
        between = [
            each
            for each in others
            if mine.before_ms is not None
            and mine.before_ms < each.last_ms
            and now - mine.before_ms <= window
            # Otherwise one of them only sends readings that it had kept.
            and message.device_ms > each.first_device_ms
            and mine.before_device_ms < each.last_device_ms
        ]
        if not between:
            return None
        self._note_conflict(box, now, window)
        other = max(between, key=lambda each: each.last_ms)
        detail = f"{other.last.device} and {message.identity.device} both report for this container"
        return RuleFinding("OPENED", "WARNING", now, (other.cause(), box.cause(message)), (self._evidence(detail),))

    def is_same(self, box: ContainerState, dismissed: Alert, finding: RuleFinding) -> bool:
        """Return whether the same devices have gone on since the dismissed alert, without a pause of the window.

        They have gone on as far as is known if the oldest readings known are not that long before the conflict.
        """
        story: _Conflict | None = box.pending.get(self.kind)
        known_ms = min(each.first_ms for each in box.heard.values()) + box.limits.device.window
        unknown_ms = known_ms if box.known_from_ms else 0
        return (
            story is not None
            and story.since_ms <= max(milliseconds(dismissed.event_date_time), unknown_ms)
            and {each.device_id for each in finding.causes} <= {each.device_id for each in dismissed.causes}
        )

    def _note_conflict(self, box: ContainerState, now: int, window: int) -> None:
        story: _Conflict = box.pending.setdefault(self.kind, _Conflict(now, now))
        if now - story.last_ms > window:
            story.since_ms = now
        story.last_ms = now


class DeviceMovedRule(AlertRule):
    """A device reports for another container than before, while both containers are aboard.

    The alert opens when the device has reported for the new container twice, and not again for the old one. An id that
    three or more containers share belongs to a gateway and is ignored. The alert is cleared when the device reports for
    the old container again, or when the old container has left or has another device.
    """

    kind = "DEVICE_MOVED"
    takes_late = True
    by_receipt = True

    def __init__(self) -> None:
        self._heard_in: dict[str, tuple[str, ...]] = {}  # containers by device: an index of ``ContainerState.heard``

    def judge_reading(self, box: ContainerState, message: ReadingMessage, ship: ShipState) -> RuleFinding | None:
        device = message.identity.device
        known = self._heard_in.get(device)
        if known is None:
            if len(self._heard_in) >= MOST_DEVICES:
                self._heard_in = _heard_aboard(ship)
            self._heard_in[device] = (box.number,)
            return None
        if box.number not in known:
            aboard = tuple(number for number in known if _has_heard(ship, number, device))
            if len(aboard) >= _SHARED:
                return None
            known = self._heard_in[device] = (*aboard, box.number)
        if len(known) == 1 and self.kind not in box.open:
            return None
        return self._judge(box, device, known, ship, box.received_ms)

    def tick(self, ship: ShipState) -> Iterable[tuple[ContainerState, RuleFinding]]:
        """Clear alerts whose device now reports only for another container, so that no reading here does it."""
        found: list[tuple[ContainerState, RuleFinding]] = []
        for box in [box for box in ship.aboard.values() if self.kind in box.open]:
            device = box.open[self.kind].causes[0].device_id
            known = self._heard_in.get(device, ())
            others = [ship.aboard[number].heard[device] for number in known if _has_heard(ship, number, device)]
            at = max((each.last_ms for each in others), default=box.received_ms)
            finding = self._judge(box, device, known, ship, at)
            if finding is not None and finding.state == "CLEARED":
                found.append((box, finding))
        return found

    def _judge(
        self, box: ContainerState, device: str, known: tuple[str, ...], ship: ShipState, now: int
    ) -> RuleFinding | None:
        mine, opened = box.heard.get(device), box.open.get(self.kind)
        before = [number for number in known if number != box.number and _has_heard(ship, number, device)]
        if opened is not None and opened.causes[0].device_id != device:
            return None
        if mine is None or len(before) > 1:
            return None
        if not before:
            return self._clear(box, mine, now, "the other container has left")
        other = ship.aboard[before[0]]
        there = other.heard[device]
        if there.last_ms >= mine.first_ms:
            return self._clear(box, mine, now, f"it reports for {other.number} again")
        if any(each.last_ms > there.last_ms for each in other.heard.values()):
            return self._clear(box, mine, now, f"{other.number} has another device")
        if opened is not None or mine.last_ms <= mine.first_ms:
            return None
        until = dt.datetime.fromtimestamp(there.last_ms / 1000, dt.UTC)
        detail = (
            f"{device} reported for {other.number} until {until:%Y-%m-%d %H:%M} UTC, and reports for this one since"
        )
        return RuleFinding("OPENED", "WARNING", now, (there.cause(), mine.cause()), (self._evidence(detail),))

    def _clear(self, box: ContainerState, mine: HeardDevice, now: int, why: str) -> RuleFinding | None:
        opened = box.open.get(self.kind)
        if opened is None:
            return None
        return RuleFinding("CLEARED", opened.severity, now, (mine.cause(),), (self._evidence(why),))


def _heard_aboard(ship: ShipState) -> dict[str, tuple[str, ...]]:
    """Return the containers that each device has reported for, as far as the containers aboard remember."""
    found: dict[str, tuple[str, ...]] = {}
    for box in ship.aboard.values():
        for device in box.heard:
            known = found.get(device, ())
            if len(known) < _SHARED:
                found[device] = (*known, box.number)
    return found


def _has_heard(ship: ShipState, number: str, device: str) -> bool:
    box = ship.aboard.get(number)
    return box is not None and device in box.heard
