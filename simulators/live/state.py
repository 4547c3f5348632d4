"""What the live view shows, as plain values."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field

Place = tuple[float, float]  # latitude, longitude


@dataclass(frozen=True, slots=True)
class Holder:
    """A ship or a port, and how many boxes it has; ``lost``: how many fell from it. ``place``: None when not known."""

    name: str
    place: Place | None
    boxes: int
    ship: bool
    lost: int = 0


@dataclass(frozen=True, slots=True)
class LinkState:
    """As the replicator of its target says: state, and records that it has still to bring (None: not known)."""

    name: str
    state: str
    lag: int | None


@dataclass(frozen=True, slots=True)
class AlertLine:
    """The newest state of one alert."""

    time: dt.datetime
    severity: str
    kind: str
    container: str
    raised_at: str
    state: str


@dataclass(frozen=True, slots=True)
class View:
    """Everything that is shown at one moment.

    Args:
        clock: Simulated time.
        phase: As in ``simulators.player.Progress``.
        speed: Simulated seconds per second, None for as fast as it goes.
        per_second: Readings published per second, lately.
        open_alerts: How many are open, by severity.
        alerts: Newest first.
    """

    title: str
    clock: dt.datetime | None
    starts: dt.datetime
    ends: dt.datetime
    phase: str
    speed: float | None
    published: int
    expected: int
    per_second: float
    holders: tuple[Holder, ...] = ()
    links: tuple[LinkState, ...] = ()
    open_alerts: dict[str, int] = field(default_factory=dict)
    alerts: tuple[AlertLine, ...] = ()
    troubles: dict[str, str] = field(default_factory=dict)
    keys: bool = True
