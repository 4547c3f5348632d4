"""Decides that a container has gone overboard, by a score of independent evidence, never by silence alone.

No operational thresholds are published; these are this project's own proposal. Each kind of evidence counts once per
window. No single kind reaches the score that raises the alert, so two independent signs are always needed. In port,
where containers are lifted, set down and driven away, the score must be higher. Silence of the container and of its
neighbours in the bay counts only together with a sign in the container's own readings, because a gateway that fails
silences all containers.

An open alert is UPDATED with new kinds of evidence and with the container's drift, at most once in ``update_every``. No
reading clears it: the container leaves the ship by an event, or a person clears the alert.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from edge.alerts.box import ContainerState, unique
from edge.alerts.rules import silence
from edge.alerts.rules.base import AlertRule, RuleFinding
from edge.alerts.ship import ShipState
from edge.alerts.thresholds import OverboardThresholds
from edge.messages import ReadingMessage
from fairlead.records.alert import OVERBOARD, Alert, Cause, Evidence
from fairlead.records.reading import GeoLocation, distance_m, known

KIND: Final = OVERBOARD


class _Sign(NamedTuple):
    at_ms: int
    evidence: Evidence
    cause: Cause


@dataclass(slots=True)
class _Story:
    """The newest sign of each name, until a newer reading is a window away from it, and the last known place.

    ``since_ms``: device time of the first sign.
    """

    since_ms: int
    signs: dict[str, _Sign] = field(default_factory=dict)
    place: GeoLocation | None = None


class OverboardRule(AlertRule):
    kind = KIND
    takes_late = True

    def judge_reading(self, box: ContainerState, message: ReadingMessage, ship: ShipState) -> RuleFinding | None:
        found = _signs_in(box.limits.overboard, message, ship)
        story: _Story | None = box.pending.get(KIND)
        if story is None:
            if not found:
                return None
            story = box.pending[KIND] = _Story(message.device_ms)
        at, window, fresh = message.device_ms, box.limits.overboard.window, message is box.newest
        cause = box.cause(message)
        felt = {evidence.name: _Sign(at, evidence, cause) for evidence in found}
        # A late reading takes no newer sign away. It is judged with the signs of its own time.
        around = {name: sign for name, sign in story.signs.items() if abs(at - sign.at_ms) <= window} | felt
        story.signs |= {
            name: sign
            for name, sign in felt.items()
            if fresh or name not in story.signs or story.signs[name].at_ms <= at
        }
        opened, place = box.open.get(KIND), known(message.reading.geo_location)
        followed = opened is None or "away" in felt  # once open, a drift away from the ship, not the ship itself
        if place is not None and followed and (fresh or story.place is None):
            story.place = place
        updated = _update(box, story, opened, at, cause) if opened is not None else None
        if fresh:
            story.signs = around
        if opened is not None:
            return updated
        if not story.signs:
            del box.pending[KIND]
            return None
        if not found:
            return None
        return _judge(box, around.values(), story.place, ship, at, _neighbours(box, ship, at))

    def is_same(self, box: ContainerState, dismissed: Alert, finding: RuleFinding) -> bool:
        """Return whether the signs have gone on since the dismissed alert, without a new kind among them.

        They have gone on if no known reading shows, a window later, that they are over. Silence alone does not: many
        devices report less often, and one with a faulty sensor would raise the alert again with each reading.
        """
        story: _Story | None = box.pending.get(KIND)
        return (
            story is not None
            and story.since_ms <= max(_ms(dismissed), box.known_from_ms)
            and {each.name for each in finding.evidence} <= {each.name for each in dismissed.evidence}
        )

    def tick(self, ship: ShipState) -> Iterable[tuple[ContainerState, RuleFinding]]:
        """Send delayed updates, and judge the containers that have been silent since the signs of a fall."""
        findings: list[tuple[ContainerState, RuleFinding]] = []
        for box in [box for box in ship.aboard.values() if KIND in box.pending]:
            opened, story = box.open.get(KIND), box.pending[KIND]
            found: RuleFinding | None = None
            if opened is not None:
                found = _update(box, story, opened, ship.at_ms, None)
            elif box.interval_ms and ship.at_ms >= silence.due_ms(box) and box.newest is not None:
                fresh = [sign for sign in story.signs.values() if box.at_ms - sign.at_ms <= box.limits.overboard.window]
                if fresh:
                    silent = _sign(box.limits.overboard, "silence", "nothing heard of it since")
                    extra = [silent, *_neighbours(box, ship, box.at_ms)]
                    found = _judge(box, fresh, story.place, ship, box.at_ms, extra)
            if found is not None:
                findings.append((box, found))
        return findings


def _signs_in(limits: OverboardThresholds, message: ReadingMessage, ship: ShipState) -> list[Evidence]:
    """Return the signs in one reading."""
    found: list[Evidence] = []
    reading = message.reading
    motion = reading.motion
    if motion is not None:
        if motion.free_fall_seconds >= limits.free_fall:
            found.append(_sign(limits, "free-fall", f"weightless for {motion.free_fall_seconds:.1f} s"))
        if motion.peak_g >= limits.impact:
            found.append(_sign(limits, "impact", f"{motion.peak_g:.1f} g"))
        if motion.tilt_degrees > limits.tilt:
            found.append(_sign(limits, "tilt", f"tilted by {motion.tilt_degrees:.0f} degrees"))
        if motion.immersed:
            found.append(_sign(limits, "immersion", "in water"))
    if ship.place is not None and reading.geo_location is not None:
        place = known(reading.geo_location)
        reach = ship.reach_m(message.device_ms)
        if place is not None and reach is not None:
            bound = limits.away + reach[1]
            if not _surely_near(place, reach[0], bound):
                away = distance_m(place, reach[0])
                if away > bound:
                    found.append(_sign(limits, "away", f"{away:,.0f} m from the ship"))
    return found


def _surely_near(a: GeoLocation, b: GeoLocation, bound_m: float) -> bool:
    """Return True if a cheap upper bound of the distance suffices: no degree is longer than 111.7 km."""
    return (abs(a.latitude - b.latitude) + abs(a.longitude - b.longitude)) * 111_700 <= bound_m


def _sign(limits: OverboardThresholds, name: str, detail: str) -> Evidence:
    return Evidence(name=name, weight=limits.weights[name], detail=detail)


def _neighbours(box: ContainerState, ship: ShipState, at: int) -> list[Evidence]:
    """Return evidence of a lost stack: containers of the same bay that last reported around ``at`` and are silent."""
    bay, limits = box.bay, box.limits.overboard
    if bay is None:
        return []
    gone = [
        other.number
        for other in ship.aboard.values()
        if other is not box
        and other.bay == bay
        and (silence.KIND in other.open or KIND in other.open)
        and abs(at - other.at_ms) <= limits.neighbours_window
    ]
    if len(gone) < limits.neighbours:
        return []
    return [_sign(limits, "neighbours", f"silent or overboard in bay {bay}: {', '.join(sorted(gone)[:5])}")]


def _judge(
    box: ContainerState,
    signs: Collection[_Sign],
    place: GeoLocation | None,
    ship: ShipState,
    at: int,
    extra: Iterable[Evidence],
) -> RuleFinding | None:
    """Return an OPENED finding if the signs and the extra evidence reach the score, otherwise None."""
    limits = box.limits.overboard
    evidence = [*(sign.evidence for sign in signs), *extra]
    needed = limits.score_in_port if ship.lies_still(at) else limits.score_at_sea
    # Weights are decimal fractions; rounding keeps 0.4 + 0.6 from being less than 1.
    if round(sum(each.weight for each in evidence), 6) < needed:
        return None
    causes = unique([sign.cause for sign in sorted(signs, key=lambda sign: sign.at_ms)])
    return RuleFinding("OPENED", "CRITICAL", at, causes, tuple(evidence), place)


def _update(box: ContainerState, story: _Story, opened: Alert, now: int, cause: Cause | None) -> RuleFinding | None:
    """Return an UPDATED finding if there is news since the alert's last state and ``update_every`` has passed."""
    limits = box.limits.overboard
    if now - _ms(opened) < limits.update_every:
        return None
    said = {each.name for each in opened.evidence}
    fresh = [sign for name, sign in story.signs.items() if name not in said]
    drifted = story.place is not None and (
        opened.geo_location is None or distance_m(story.place, opened.geo_location) > limits.update_moved
    )
    if not fresh and not drifted:
        return None
    causes = [sign.cause for sign in fresh] or ([cause] if cause is not None else [])
    if not causes and box.newest is not None:
        causes = [box.cause(box.newest)]
    evidence = (*opened.evidence, *(sign.evidence for sign in fresh))
    return RuleFinding("UPDATED", "CRITICAL", max(now, _ms(opened)), unique(causes), evidence, story.place)


def _ms(alert: Alert) -> int:
    return int(alert.event_date_time.timestamp() * 1000)
