"""A box has gone overboard: decided by a score of independent evidence, never by silence.

No operational thresholds are published; these are this project's own proposal. Each kind of evidence counts once per
window; no single kind reaches the score that raises the alert, so two independent signs are always needed. In port,
where boxes are lifted, set down and driven away, more is asked for. Silence of the box or of its neighbours is not
counted: a gateway that fails silences everybody.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from edge.detection.finding import Finding
from edge.detection.geo import distance_m, known
from edge.detection.ship import ShipState
from edge.messages import ReadingMessage
from fairlead.records.alert import AlertKind, Evidence


@dataclass(frozen=True, slots=True)
class Thresholds:
    """When a sign counts, and how much. Units: seconds, g, degrees, metres."""

    free_fall_seconds: float = 0.5
    impact_g: float = 4.0
    tilt_degrees: float = 45.0
    away_m: float = 500.0
    window_ms: int = 15 * 60_000  # signs further apart belong to different stories
    score_at_sea: float = 1.0
    score_in_port: float = 1.6
    weights: dict[str, float] = field(
        default_factory=lambda: {"free-fall": 0.5, "impact": 0.3, "tilt": 0.4, "immersion": 0.6, "away": 0.7}
    )


class Overboard:
    """The rule; keeps the signs of the last window per box."""

    kind: AlertKind = "OVERBOARD"

    def __init__(self, thresholds: Thresholds | None = None) -> None:
        self._limits = thresholds or Thresholds()
        self._signs: dict[str, dict[str, tuple[int, Evidence]]] = {}

    def see(self, message: ReadingMessage, ship: ShipState, *, open_now: bool) -> Finding | None:
        found = self._evidence(message, ship)
        signs = self._signs.get(message.number)
        if open_now or (not found and not signs):
            return None
        if signs is None:
            signs = self._signs[message.number] = {}
        at = message.device_ms
        for evidence in found:
            signs[evidence.name] = (at, evidence)
        for name in [name for name, (seen, _) in signs.items() if abs(at - seen) > self._limits.window_ms]:
            del signs[name]
        if not signs:
            del self._signs[message.number]
            return None
        needed = self._limits.score_in_port if ship.lies_still(at) else self._limits.score_at_sea
        evidence_now = tuple(evidence for _, evidence in signs.values())
        # Weights are decimal fractions; rounding keeps 0.4 + 0.6 from being less than 1.
        if not found or round(sum(evidence.weight for evidence in evidence_now), 6) < needed:
            return None
        del self._signs[message.number]
        return Finding(self.kind, "CRITICAL", "OPENED", evidence_now)

    def forget(self, number: str) -> None:
        self._signs.pop(number, None)

    def _evidence(self, message: ReadingMessage, ship: ShipState) -> list[Evidence]:
        limits, reading = self._limits, message.reading
        found: list[Evidence] = []

        def sign(name: str, detail: str) -> None:
            found.append(Evidence(name=name, weight=limits.weights[name], detail=detail))

        motion = reading.motion
        if motion is not None:
            if motion.free_fall_seconds >= limits.free_fall_seconds:
                sign("free-fall", f"weightless for {motion.free_fall_seconds:.1f} s")
            if motion.peak_g >= limits.impact_g:
                sign("impact", f"{motion.peak_g:.1f} g")
            if motion.tilt_degrees > limits.tilt_degrees:
                sign("tilt", f"tilted by {motion.tilt_degrees:.0f} degrees")
            if motion.immersed:
                sign("immersion", "in water")
        place = known(reading.geo_location)
        reach = ship.reach_m(message.device_ms)
        if place is not None and reach is not None:
            away = distance_m(place, reach[0])
            if away > limits.away_m + reach[1]:
                sign("away", f"{away:,.0f} m from the ship")
        return found
