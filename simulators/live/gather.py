"""The state of the live view, updated from a voyage's messages, progress and alerts. No I/O."""

from __future__ import annotations

import datetime as dt
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fairlead.records import decoder
from fairlead.records.alert import Alert
from fairlead.records.event import Event
from simulators.fleet import routes
from simulators.steps import MessageKind, Publish
from simulators.voyage.player import Player, Progress
from simulators.voyage.voyage import VoyageSource

Place = tuple[float, float]  # latitude, longitude


@dataclass(frozen=True, slots=True)
class BoxHolder:
    """A ship or a port, and how many boxes it has. ``lost``: how many fell from it. ``place``: None if not known."""

    name: str
    place: Place | None
    boxes: int
    ship: bool
    lost: int = 0


@dataclass(frozen=True, slots=True)
class LinkLine:
    """A link's state and lag in records (None: not known), from the status file of the target's replicator."""

    name: str
    state: str
    lag: int | None


@dataclass(frozen=True, slots=True)
class AlertLine:
    """The newest revision of one alert."""

    time: dt.datetime
    severity: str
    kind: str
    container: str
    raised_at: str
    state: str


@dataclass(frozen=True, slots=True)
class VoyageView:
    """The data on the screen at one moment.

    Args:
        clock: Simulated time.
        phase: As in ``simulators.voyage.player.Progress``.
        speed: Simulated seconds per second, None for as fast as possible.
        per_second: Readings published per second, over the last ten seconds.
        open_alerts: How many alerts are open, by severity.
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
    holders: tuple[BoxHolder, ...] = ()
    links: tuple[LinkLine, ...] = ()
    open_alerts: dict[str, int] = field(default_factory=dict)
    alerts: tuple[AlertLine, ...] = ()
    troubles: dict[str, str] = field(default_factory=dict)
    keys: bool = True


_NEWEST = 60  # alerts in a view; a terminal hardly has more lines
_WINDOW = 10.0  # seconds over which readings per second are counted
_event = decoder(Event)


class Gathering:
    """The state of one running voyage; ``view`` is a snapshot.

    Args:
        clock: Wall time in seconds, for the rate.
    """

    def __init__(
        self, voyage: VoyageSource, *, speed: float | None, keys: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        plan = voyage.plan
        self._voyage, self._topology = voyage, plan.topology
        self._speed, self._keys, self._clock = speed, keys, clock
        self._title = plan.scenario.title or plan.scenario.name
        self._ships = list(plan.timetables)
        calls = [call for table in plan.timetables.values() for call in table.calls]
        self._places: dict[str, Place] = {}
        for call in calls:
            port = routes.port(call.unlocode)
            self._places[call.port] = (port.latitude, port.longitude)
        self._ports = sorted({call.port for call in calls})
        self._boxes: Counter[str] = Counter()
        self._lost: Counter[str] = Counter()
        self._expected = voyage.expected_messages()
        self._readings = 0
        self._marks: deque[tuple[float, int]] = deque()
        self._alerts: dict[str, Alert] = {}
        self._progress: Progress | None = None

    def published(self, message: Publish) -> None:
        """Count a message that was handed to its broker."""
        if message.kind is MessageKind.READING:
            self._readings += 1
            if message.decides:
                self._boxes[message.site] -= 1
                self._lost[message.site] += 1
        elif message.moves_log is not None:
            self._move(message)
        elif message.kind is MessageKind.POSITION and message.place is not None:
            self._places[message.site] = message.place

    def _move(self, message: Publish) -> None:
        payload = _event.decode(message.payload).payload
        if message.detail in ("GTIN", "DISC"):
            port = self._topology.port_at(payload.un_location_code or "")
            self._boxes[port or ""] += 1
        if message.detail in ("LOAD", "DISC", "GTOT"):
            self._boxes[message.site] -= 1
        if message.detail == "LOAD":
            self._boxes[self._topology.ship_with(payload.vessel_imo_number or "") or ""] += 1

    def progressed(self, now: Progress) -> None:
        self._progress = now

    def alerted(self, alert: Alert) -> None:
        """Add an alert from one site; keep only the newest revision."""
        known = self._alerts.get(alert.alert_id)
        if known is None or alert.revision > known.revision:
            self._alerts.pop(alert.alert_id, None)
            self._alerts[alert.alert_id] = alert

    def view(self, player: Player | None, links: Iterable[LinkLine] = ()) -> VoyageView:
        now, progress = self._clock(), self._progress
        newest = sorted(self._alerts.values(), key=lambda alert: alert.event_date_time, reverse=True)
        still = Counter(str(alert.severity) for alert in newest if alert.state != "CLEARED")
        return VoyageView(
            title=self._title,
            clock=(player.clock if player else None) or (progress.sim_time if progress else None),
            starts=self._voyage.starts,
            ends=self._voyage.ends,
            phase=progress.phase if progress else "starting",
            speed=self._speed,
            published=progress.published if progress else 0,
            expected=self._expected,
            per_second=self._rate(now),
            holders=tuple(self._holders()),
            links=tuple(links),
            open_alerts=dict(still),
            alerts=tuple(_line(alert) for alert in newest[:_NEWEST]),
            troubles=progress.troubles if progress else {},
            keys=self._keys,
        )

    def _holders(self) -> Iterable[BoxHolder]:
        for name in (*self._ships, *self._ports):
            ship = name in self._ships
            yield BoxHolder(name, self._places.get(name), self._boxes[name], ship, self._lost[name])

    def _rate(self, now: float) -> float:
        marks = self._marks
        marks.append((now, self._readings))
        while now - marks[0][0] > _WINDOW and len(marks) > 2:
            marks.popleft()
        (since, before), (until, after) = marks[0], marks[-1]
        return (after - before) / (until - since) if until > since else 0.0


def links_of(snapshots: Iterable[Mapping[str, Any] | None]) -> list[LinkLine]:
    """Return the links of replicators' status files; None stands for a site without one."""
    return [
        LinkLine(link["name"], link["state"], link["lag"])
        for snapshot in snapshots
        if snapshot is not None
        for link in snapshot["links"]
    ]


def _line(alert: Alert) -> AlertLine:
    return AlertLine(
        alert.event_date_time, alert.severity, alert.kind, alert.equipment_reference, alert.raised_at, alert.state
    )
