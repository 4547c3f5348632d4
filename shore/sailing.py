"""Compute a ship's port calls and passages from its events (ARRI, DEPA) and its positions. Pure.

Events take precedence. Events of one kind and port within a day count as one, because the port and the ship both report
them: the first ARRI, the last DEPA. Where an event is missing, positions decide: a ship is **in port** while it is
within ``PORT_NMI`` of the port and moored (AIS status 5), or slower than ``STILL_KN`` and not at anchor (status 1),
from the first such position to the last before it leaves that circle. Only ports with known coordinates are considered.
What neither events nor positions tell stays unknown (None).

Rows between two events depend only on these events and the positions between them. So a change is local: ``window``
returns which rows it may change, and ``sail`` computes these from the events and positions around them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from fairlead.records.ship import AT_ANCHOR, MOORED, PORT_NMI, STILL_KN

_EARTH_NMI: Final = 6371.0088 / 1.852  # mean radius (IUGG)

Floats = npt.NDArray[np.float64]
Kind = Literal["ARRI", "DEPA"]
Source = Literal["EVENT", "POSITION"]


class ShipEvent(NamedTuple):
    """One ARRI or DEPA; copies of an event count once. Times are microseconds since 1970."""

    time: int
    kind: Kind
    port: str
    event_id: str
    voyage: str | None = None


class PortEvent(NamedTuple):
    """One event, with its repetitions. ``run`` numbers the runs of consecutive events of one kind and port. ``begin``
    is the time of the first repetition, so ``time`` is never before it."""

    time: int
    kind: Kind
    port: str
    voyage: str | None
    run: int
    begin: int


class Port(NamedTuple):
    """A port with known coordinates."""

    code: str
    latitude: float
    longitude: float


@dataclass(frozen=True, slots=True)
class Track:
    """Positions of one ship in order of time, at most one for each time. ``speed`` is in knots, NaN where unknown."""

    time: npt.NDArray[np.int64]
    latitude: Floats
    longitude: Floats
    speed: Floats
    status: npt.NDArray[np.int64]

    def between(self, since: int | None, until: int | None) -> Track:
        """Return the positions from ``since`` (inclusive) to ``until`` (exclusive); None is open."""
        low = 0 if since is None else int(np.searchsorted(self.time, since))
        high = len(self.time) if until is None else int(np.searchsorted(self.time, until))
        part = slice(low, max(low, high))
        return Track(*(getattr(self, name)[part] for name in self.__slots__))

    def __len__(self) -> int:
        return len(self.time)


@dataclass(slots=True)
class Call:
    """One stay at a port. ``left``: the ship has left, whether or not the time is known."""

    port: str
    arrival: int | None = None
    departure: int | None = None
    arrival_source: Source | None = None
    departure_source: Source | None = None
    inbound: str | None = None
    outbound: str | None = None
    left: bool = False

    @property
    def time(self) -> int:
        """The time that, with ship and port, identifies the call: arrival, or departure where that is unknown."""
        known = self.arrival if self.arrival is not None else self.departure
        if known is None:
            raise ValueError("a call has an arrival or a departure")
        return known


@dataclass(frozen=True, slots=True)
class Leg:
    """One passage. Ship and ``time`` identify it. ``distance`` is in nautical miles; ``speed`` is in knots, None where
    the positions span no time."""

    time: int
    from_port: str | None
    to_port: str | None
    departure: int | None
    arrival: int | None
    voyage: str | None
    last_position: int | None
    positions: int
    distance: float | None
    speed: float | None
    gaps: int
    gap_micros: int
    longest_gap_micros: int


@dataclass(frozen=True, slots=True)
class TimeBounds:
    """The part of a ship's history to recompute.

    Rows that begin in [``since``, ``until``) are replaced; for them positions in [``read_since``, ``read_until``) are
    needed. None is open.
    """

    since: int | None = None
    until: int | None = None
    read_since: int | None = None
    read_until: int | None = None

    def has(self, time: int) -> bool:
        """Return whether rows that begin at this time are replaced."""
        return _inside(time, self.since, self.until)


ALL: Final = TimeBounds()


def nautical_miles(latitude: Any, longitude: Any, to_latitude: Any, to_longitude: Any) -> Any:
    """Return great-circle distances in nautical miles on the mean sphere, of arrays or numbers in degrees."""
    lat, lon, to_lat, to_lon = (np.radians(each) for each in (latitude, longitude, to_latitude, to_longitude))
    half = np.sin((to_lat - lat) / 2) ** 2 + np.cos(lat) * np.cos(to_lat) * np.sin((to_lon - lon) / 2) ** 2
    return 2 * _EARTH_NMI * np.arcsin(np.sqrt(np.clip(half, 0.0, 1.0)))


SAME_EVENT_MICROS: Final = 24 * 3_600_000_000


def port_events(events: Sequence[ShipEvent]) -> list[PortEvent]:
    """Return the events in order of time, with repetitions joined."""
    found: list[PortEvent] = []
    for event in sorted(events):
        last = found[-1] if found else None
        same_run = last is not None and (last.kind, last.port) == (event.kind, event.port)
        if last is not None and same_run and event.time - last.begin <= SAME_EVENT_MICROS:
            time = last.time if event.kind == "ARRI" else event.time
            found[-1] = last._replace(time=time, voyage=last.voyage or event.voyage)
            continue
        run = (last.run + (not same_run)) if last is not None else 0
        found.append(PortEvent(event.time, event.kind, event.port, event.voyage, run, event.time))
    return found


def window(events: Sequence[ShipEvent], first: int, last: int, *, cut: bool = False) -> TimeBounds | None:
    """Return which rows may change when events or positions from ``first`` to ``last`` are new.

    Up to two runs of events on either side are recomputed: new data may change the run that it falls into and the start
    of the next ones, and a call or leg depends on the runs at its ends.

    Args:
        events: The ship's events in order of time.
        cut: Earlier events of the ship are missing. The result is None if it may depend on them.
    """
    known = port_events(events)
    runs = [next(group) for _, group in groupby(known, lambda event: event.run)]  # each run's first
    before = sum(event.begin < first for event in runs) - 1
    after = next((i for i, event in enumerate(runs) if event.begin > last), len(runs))
    if cut and before < 3:  # the first run may have begun earlier
        return None

    def time(run: int) -> int | None:
        return runs[run].time if 0 <= run < len(runs) else None

    return TimeBounds(time(before - 1), time(after + 1), time(before - 2), time(after + 2))


class _Run(NamedTuple):
    """Consecutive positions near one port. ``berth``: first and last time in port, None when it never was in port.
    ``at_begin``, ``at_end``: whether the track begins or ends with these positions."""

    port: str
    first: int
    last: int
    berth: tuple[int, int] | None
    at_begin: bool
    at_end: bool


def calls_of(known: Sequence[PortEvent], track: Track, ports: Sequence[Port]) -> list[Call]:
    """Return the calls of one ship in order of time. ``known`` are its port events."""
    calls: list[Call] = []
    here: Call | None = None  # the call that an ARRI has begun and that goes on at the left end of a segment
    for left, right in zip([None, *known], [*known, None], strict=True):
        if left is None or left.kind == "DEPA":
            here = None
        elif here is None or here.left or here.port != left.port:  # else the ARRI repeats: the ship never left
            here = Call(left.port, left.time, None, "EVENT", inbound=left.voyage)
            calls.append(here)
        if here is not None and right is not None and (right.kind, right.port) == ("DEPA", here.port):
            here.left, here.departure, here.departure_source, here.outbound = True, right.time, "EVENT", right.voyage
            continue
        runs = _runs(track.between(left.time if left else None, right.time if right else None), ports)
        if here is not None:
            _leaving(here, runs, right)
        elif left is not None and runs and runs[0].at_begin and runs[0].port == left.port:
            if runs[0].at_end and right is not None and (right.kind, right.port) == ("DEPA", left.port):
                calls[-1].departure = right.time  # the first DEPA came before the ship left
                continue
            runs.pop(0)
        coming = runs.pop() if right is not None and _comes_to(right, runs) else None
        for run in runs:
            if run.berth is not None:
                calls.append(_seen(run, gone=not run.at_end or right is not None))
        if right is not None and right.kind == "DEPA":
            calls.append(_departed(right, coming))
    return calls


def _leaving(here: Call, runs: list[_Run], right: PortEvent | None) -> None:
    """Set when a ship left that has an ARRI but no DEPA, and remove its stay from ``runs``."""
    if not runs or runs[0].port != here.port:
        here.left = bool(runs) or right is not None
        return
    stay = runs.pop(0)
    here.left = not stay.at_end or (right is not None and right.port != here.port)
    if here.left:
        here.departure, here.departure_source = (stay.berth[1] if stay.berth else stay.last), "POSITION"


def _comes_to(event: PortEvent, runs: Sequence[_Run]) -> bool:
    """Return whether the last run of positions before an event belongs to the call of the event."""
    return bool(runs) and runs[-1].port == event.port and (runs[-1].at_end or event.kind == "DEPA")


def _seen(run: _Run, *, gone: bool) -> Call:
    """Return a call that no event reports, from positions."""
    if run.berth is None:
        raise ValueError("the ship never lay in this port")
    arrival, last = run.berth
    if not gone:
        return Call(run.port, arrival, None, "POSITION")
    return Call(run.port, arrival, last, "POSITION", "POSITION", left=True)


def _departed(event: PortEvent, coming: _Run | None) -> Call:
    """Return a call with a DEPA but no ARRI."""
    call = Call(event.port, None, event.time, None, "EVENT", outbound=event.voyage, left=True)
    if coming is not None:
        call.arrival, call.arrival_source = (coming.berth[0] if coming.berth else coming.first), "POSITION"
    return call


def _runs(track: Track, ports: Sequence[Port]) -> list[_Run]:
    """Return the runs of consecutive positions near one port, in order."""
    if not len(track) or not ports:
        return []
    away = np.stack([nautical_miles(track.latitude, track.longitude, p.latitude, p.longitude) for p in ports])
    nearest = np.argmin(away, axis=0)
    zone = np.where(np.min(away, axis=0) <= PORT_NMI, nearest, -1)
    still = (track.status == MOORED) | ((track.status != AT_ANCHOR) & (track.speed < STILL_KN))
    edges = np.flatnonzero(np.diff(zone)) + 1
    begins = [0, *(int(edge) for edge in edges)]
    found = []
    for begin, end in zip(begins, [*begins[1:], len(zone)], strict=True):
        if zone[begin] < 0:
            continue
        moored = np.flatnonzero(still[begin:end])
        berth = (int(track.time[begin + moored[0]]), int(track.time[begin + moored[-1]])) if len(moored) else None
        found.append(
            _Run(
                port=ports[int(zone[begin])].code,
                first=int(track.time[begin]),
                last=int(track.time[end - 1]),
                berth=berth,
                at_begin=begin == 0,
                at_end=end == len(zone),
            )
        )
    return found


GAP_MICROS: Final = 3_600_000_000


def legs_of(calls: Sequence[Call], track: Track) -> list[Leg]:
    """Return the legs before, between and after calls; none where the ship is in port or nothing is known of the leg.

    Contradicting events give two legs of one time. The leg with a departure stays, else the first.
    """
    found: dict[int, Leg] = {}
    for before, after in zip([None, *calls], [*calls, None], strict=True):
        if before is not None and not before.left:
            continue
        leg = _leg(before, after, track)
        if leg is None:
            continue
        known = found.setdefault(leg.time, leg)
        if known.departure is None and leg.departure is not None:
            found[leg.time] = leg
    return list(found.values())


def _leg(before: Call | None, after: Call | None, track: Track) -> Leg | None:
    departure = before.departure if before is not None else None
    arrival = after.arrival if after is not None else None
    since = departure if departure is not None else (before.time if before is not None else None)
    until = arrival if arrival is not None else (after.time if after is not None else None)
    part = track.between(since, until + 1 if until is not None else None)
    first = int(part.time[0]) if len(part) else None
    if before is None and first in (None, until):
        return None  # nothing is known of the leg to its first port
    time = next((t for t in (departure, first, arrival, since) if t is not None), None)
    if time is None:
        return None
    steps = nautical_miles(part.latitude[:-1], part.longitude[:-1], part.latitude[1:], part.longitude[1:])
    distance = float(np.sum(steps)) if len(part) > 1 else None
    hours = (int(part.time[-1]) - int(part.time[0])) / 3.6e9 if len(part) > 1 else 0.0
    ends = [departure] if departure is not None else []
    arrived = [arrival] if arrival is not None else []
    silences = np.diff(np.concatenate([ends, part.time, arrived]).astype(np.int64))
    gaps = silences[silences > GAP_MICROS]
    voyage = (before.outbound if before is not None else None) or (after.inbound if after is not None else None)
    return Leg(
        time=time,
        from_port=before.port if before is not None else None,
        to_port=after.port if after is not None else None,
        departure=departure,
        arrival=arrival,
        voyage=voyage,
        last_position=int(part.time[-1]) if len(part) else None,
        positions=len(part),
        distance=distance,
        speed=distance / hours if distance is not None and hours > 0 else None,
        gaps=len(gaps),
        gap_micros=int(np.sum(gaps)),
        longest_gap_micros=int(np.max(gaps)) if len(gaps) else 0,
    )


def sail(
    events: Sequence[ShipEvent], track: Track, ports: Sequence[Port], bounds: TimeBounds = ALL
) -> tuple[list[Call], list[Leg]]:
    """Return the calls and legs of one ship that begin within ``bounds``, in order of time.

    Args:
        events: All ARRI and DEPA of the ship, at least those from which ``window`` found ``bounds``.
        track: Its positions, at least those that ``bounds`` needs.
    """
    known = [m for m in port_events(events) if _inside(m.time, bounds.read_since, bounds.read_until, closed=True)]
    track = track.between(bounds.read_since, bounds.read_until)
    calls = calls_of(known, track, ports)
    legs = legs_of(calls, track)
    named = {(call.time, call.port): call for call in reversed(calls)}  # of two contradicting calls, the first
    return (
        [call for call in reversed(named.values()) if bounds.has(call.time)],
        [leg for leg in legs if bounds.has(leg.time)],
    )


def _inside(time: int, since: int | None, until: int | None, *, closed: bool = False) -> bool:
    if since is not None and time < since:
        return False
    return until is None or time < until or (closed and time == until)
