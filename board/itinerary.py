"""Ships' voyages as their events and positions tell them: port calls planned and actual, boxes moved, tracks. Pure.

``Itineraries`` takes the records of ``events.*`` and ``ships.*.location`` in the order of each log. What it keeps of a
ship is bounded: its newest calls, and a track that grows coarser as it grows longer.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from fairlead.records.event import Event
from fairlead.records.ship import Position

_CALLS: Final = 60  # of a ship; older ones are forgotten
_POINTS: Final = 800  # of a track

CallState = Literal["planned", "in port", "left"]


@dataclass(frozen=True, slots=True)
class CallTimes:
    """When a ship arrives at a port, or leaves it.

    Args:
        planned: By the first schedule.
        expected: By the newest schedule, which was ``told`` then.
        actual: When it happened; None before.
    """

    planned: dt.datetime | None = None
    expected: dt.datetime | None = None
    told: dt.datetime | None = None
    first_told: dt.datetime | None = None
    actual: dt.datetime | None = None

    @property
    def best(self) -> dt.datetime | None:
        """The time that is the most certain."""
        return self.actual or self.expected or self.planned

    @property
    def minutes_late(self) -> float | None:
        """How much later than planned it happened, or is expected; below zero: earlier. None: nobody knows."""
        found = self.actual or self.expected
        return None if found is None or self.planned is None else (found - self.planned) / dt.timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class ShipCall:
    """A ship's call at a port, by UN/LOCODE. ``loaded``, ``discharged``: how many boxes."""

    port: str
    voyage: str
    arrival: CallTimes
    departure: CallTimes
    loaded: int = 0
    discharged: int = 0

    @property
    def state(self) -> CallState:
        if self.departure.actual is not None:
            return "left"
        return "in port" if self.arrival.actual is not None else "planned"


@dataclass(frozen=True, slots=True)
class Itinerary:
    """What is known of a ship's voyage: its calls in order of time, and the points (latitude, longitude) of its track.

    ``oldest``, ``newest``: the first and the last time at which it was anywhere.
    """

    imo: str
    calls: tuple[ShipCall, ...] = ()
    track: tuple[tuple[float, float], ...] = ()
    oldest: dt.datetime | None = None
    newest: dt.datetime | None = None

    @property
    def loaded(self) -> int:
        """How many boxes it has loaded at these calls."""
        return sum(call.loaded for call in self.calls)

    @property
    def discharged(self) -> int:
        """How many boxes it has discharged at these calls."""
        return sum(call.discharged for call in self.calls)


@dataclass(slots=True)
class _Stop:
    port: str
    voyage: str
    arrival: CallTimes = field(default_factory=CallTimes)
    departure: CallTimes = field(default_factory=CallTimes)
    loaded: set[str] = field(default_factory=set)
    discharged: set[str] = field(default_factory=set)

    @property
    def at(self) -> dt.datetime | None:
        return self.arrival.best or self.departure.best


@dataclass(slots=True)
class _Track:
    points: list[tuple[float, float]] = field(default_factory=list)
    last: dt.datetime | None = None
    apart: dt.timedelta = dt.timedelta(0)  # at least, between two points
    begun: dt.datetime | None = None

    def add(self, time: dt.datetime, place: tuple[float, float]) -> None:
        if self.last is not None and time - self.last <= self.apart:
            return
        self.begun = self.begun or time
        self.points.append(place)
        self.last = time
        if len(self.points) > _POINTS:
            self.points = self.points[::2]
            self.apart = (time - self.begun) / len(self.points)


@dataclass(slots=True)
class _Ship:
    stops: list[_Stop] = field(default_factory=list)
    track: _Track = field(default_factory=_Track)
    oldest: dt.datetime | None = None
    newest: dt.datetime | None = None

    def heard(self, time: dt.datetime) -> None:
        self.oldest = time if self.oldest is None else min(self.oldest, time)
        self.newest = time if self.newest is None else max(self.newest, time)


class Itineraries:
    """The voyages of some ships.

    Args:
        ships: Their IMO numbers; what is told of other ships is not kept.
    """

    def __init__(self, ships: Collection[str]) -> None:
        self._ships = {imo: _Ship() for imo in ships}

    def apply(self, event: Event) -> bool:
        """Apply one event. Return whether a ship has arrived, has left, or has another schedule.

        An event that is published twice, or by both the ship and the port, counts once.
        """
        body = event.payload
        time = body.event_date_time.astimezone(dt.UTC)
        ship, port = self._ships.get(body.vessel_imo_number or ""), body.un_location_code
        if ship is None or port is None:
            return False
        if body.transport_event_type_code is not None:
            _transport(ship, event, port, time)
            return True
        if body.equipment_event_type_code in ("LOAD", "DISC") and body.equipment_reference and event.happened:
            stop = _stop_at(ship, port, body.voyage_reference, time)
            boxes = stop.loaded if body.equipment_event_type_code == "LOAD" else stop.discharged
            boxes.add(body.equipment_reference)
            ship.heard(time)
        return False

    def locate(self, position: Position) -> None:
        """Apply a position that is newer than those before."""
        ship, place = self._ships.get(position.vessel_imo_number), position.geo_location
        if ship is not None and place is not None:
            time = position.device.device_date_time.astimezone(dt.UTC)
            ship.heard(time)
            ship.track.add(time, (place.latitude, place.longitude))

    def of(self, imo: str) -> Itinerary | None:
        """Return the itinerary of a ship; None if it is none of these ships."""
        ship = self._ships.get(imo)
        if ship is None:
            return None
        return Itinerary(imo, tuple(_calls(ship.stops)), tuple(ship.track.points), ship.oldest, ship.newest)

    def all(self) -> list[Itinerary]:
        """Return the itineraries of all ships of which anything is known."""
        found = [self.of(imo) for imo in self._ships]
        return [each for each in found if each is not None and (each.calls or each.track)]


def _transport(ship: _Ship, event: Event, port: str, time: dt.datetime) -> None:
    body, arrives = event.payload, event.payload.transport_event_type_code == "ARRI"
    stop = _stop_of(ship, port, body.voyage_reference or "", time if event.happened and arrives else None)
    times = stop.arrival if arrives else stop.departure
    if event.happened:
        known = times.actual
        choose = min if arrives else max  # the first ARRI, the last DEPA
        times = replace(times, actual=time if known is None else choose(known, time))
        ship.heard(time)
    else:
        told = event.metadata.event_created_date_time
        if times.first_told is None or told < times.first_told:
            times = replace(times, planned=time, first_told=told)
        if times.told is None or told >= times.told:
            times = replace(times, expected=time, told=told)
    if arrives:
        stop.arrival = times
    else:
        stop.departure = times


def _stop_of(ship: _Ship, port: str, voyage: str, arrived: dt.datetime | None) -> _Stop:
    """Return the newest stop of a voyage at a port; a new one when the ship has left it before it ``arrived``."""
    for stop in reversed(ship.stops):
        if (stop.port, stop.voyage) == (port, voyage):
            left = stop.departure.actual
            if arrived is not None and left is not None and arrived > left:
                break
            return stop
    return _new_stop(ship, port, voyage)


def _stop_at(ship: _Ship, port: str, voyage: str | None, time: dt.datetime) -> _Stop:
    """Return the stop at which a box was moved: that of its voyage, else the one of that time."""
    here = [stop for stop in ship.stops if stop.port == port]
    for stop in reversed(here):
        if voyage is not None and stop.voyage == voyage:
            return stop
    begun = [stop for stop in here if stop.at is not None and stop.at <= time]
    if begun or here:
        return max(begun or here, key=lambda stop: (stop.at is not None, stop.at or time))
    return _new_stop(ship, port, voyage or "")


def _new_stop(ship: _Ship, port: str, voyage: str) -> _Stop:
    stop = _Stop(port, voyage)
    ship.stops.append(stop)
    del ship.stops[:-_CALLS]
    return stop


def _calls(stops: Sequence[_Stop]) -> Iterable[ShipCall]:
    """Yield the calls in order of time. A ship may arrive under one voyage and leave under the next: these are one."""
    timed = sorted((stop for stop in stops if stop.at is not None), key=lambda stop: (stop.at, stop.voyage))
    waiting: ShipCall | None = None
    for stop in timed:
        call = ShipCall(stop.port, stop.voyage, stop.arrival, stop.departure, len(stop.loaded), len(stop.discharged))
        if waiting is not None and _one_call(waiting, call):
            waiting = replace(
                waiting,
                departure=call.departure,
                loaded=waiting.loaded + call.loaded,
                discharged=waiting.discharged + call.discharged,
            )
            continue
        if waiting is not None:
            yield waiting
        waiting = call
    if waiting is not None:
        yield waiting


def _one_call(before: ShipCall, after: ShipCall) -> bool:
    return before.port == after.port and before.departure.best is None and after.arrival.best is None
