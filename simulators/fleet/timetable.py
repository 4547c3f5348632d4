"""Timetables of ships: their calls with working hours, and the passages between them. Pure functions."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from simulators.fleet import routes
from simulators.fleet.routes import Fix, Passage, SeaRoute
from simulators.fleet.scenario import Closure, ScenarioShip
from topologies.model import Topology

MOORING = dt.timedelta(hours=1)  # between arrival and the first box, and between the last box and departure
ANCHORAGE_NM = 6.0
AT_ANCHOR, MOORED, UNDER_WAY = 1, 5, 0  # AIS navigation status


Span = tuple[dt.datetime, dt.datetime]


def worked(closed: Sequence[Span], start: dt.datetime, working: dt.timedelta) -> dt.datetime:
    """Return when ``working`` has been worked from ``start`` on, with no work in the ``closed`` spans (in order)."""
    time, left = start, working
    for begins, ends in closed:
        if ends <= time:
            continue
        if time + left <= begins:
            break
        left -= max(begins - time, dt.timedelta(0))
        time = ends
    return time + left


@dataclass(frozen=True, slots=True)
class TimetableCall:
    """One call. Boxes are discharged from ``works_from`` to ``turns`` and loaded from ``turns`` to ``works_until``.

    If the port is closed when the ship ``comes``, the ship waits at anchor and ``arrives`` at the berth when it opens.
    """

    number: int  # 0 is the ship's first call in the scenario
    port: str
    unlocode: str
    comes: dt.datetime
    arrives: dt.datetime
    stay: dt.timedelta  # without the time in which the port is closed
    departs: dt.datetime
    last: bool  # the ship stays in port
    closed: tuple[Span, ...] = ()

    @property
    def works_from(self) -> dt.datetime:
        return worked(self.closed, self.arrives, min(MOORING, self.stay / 8))

    @property
    def turns(self) -> dt.datetime:
        return worked(self.closed, self.arrives, self.stay / 2)

    @property
    def works_until(self) -> dt.datetime:
        return worked(self.closed, self.arrives, self.stay - min(MOORING, self.stay / 8))

    def closed_at(self, time: dt.datetime) -> Span | None:
        """Return the closure of the port at ``time``; None if the port is open."""
        return next((span for span in self.closed if span[0] <= time < span[1]), None)


@dataclass(frozen=True, slots=True)
class Timetable:
    """A ship's calls and passages in a scenario. ``passages[i]`` leads from ``calls[i]`` to ``calls[i + 1]``."""

    ship: str
    imo: str
    calls: tuple[TimetableCall, ...]
    passages: tuple[Passage, ...]

    def at(self, time: dt.datetime) -> tuple[Fix, int]:
        """Return the ship's fix and AIS navigation status: at anchor before its first call, moored after its last."""
        for call, passage in zip(self.calls, (*self.passages, None), strict=True):
            if time < call.arrives:  # before its first call, or the port is closed
                return Fix(self._anchorage(call), 0.0, 0.0), AT_ANCHOR
            if time < call.departs or passage is None:
                return Fix(routes.port(call.unlocode), 0.0, 0.0), MOORED
            following = self.calls[call.number + 1]
            slow = _anchorage_nm(passage.route) / passage.approach_speed
            if following.arrives > following.comes and time >= passage.arrives - dt.timedelta(hours=slow):
                continue  # the port is closed
            if time < passage.arrives:
                return passage.at(time), UNDER_WAY
        raise AssertionError("a timetable has at least one call")

    def _anchorage(self, call: TimetableCall) -> routes.Point:
        if call.number:
            way = self.passages[call.number - 1].route
            return way.at(way.length - _anchorage_nm(way))[0]
        if self.passages:
            return self.passages[0].route.at(_anchorage_nm(self.passages[0].route))[0]
        return routes.port(call.unlocode)

    def berthed_at(self, time: dt.datetime) -> str | None:
        """Return the port site at whose berth the ship lies, its time of departure included; None at sea."""
        last = self.calls[-1].number
        return next((c.port for c in self.calls if c.arrives <= time and (time <= c.departs or c.number == last)), None)


def _anchorage_nm(route: SeaRoute) -> float:
    """Return how far before a port its anchorage is: less than a passage's approach."""
    return min(ANCHORAGE_NM, route.length / 4)


def closed_spans(closures: Iterable[Closure], port: str, start: dt.datetime) -> tuple[Span, ...]:
    """Return the spans in which a port is closed, in order; spans that touch are merged."""
    spans: list[Span] = []
    for closure in sorted((c for c in closures if c.port == port), key=lambda c: c.starts):
        begins = start + closure.starts
        ends = begins + closure.lasts
        if spans and begins <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], ends))
        else:
            spans.append((begins, ends))
    return tuple(spans)


def timetable(
    name: str, ship: ScenarioShip, topology: Topology, start: dt.datetime, closures: Iterable[Closure] = ()
) -> Timetable:
    """Return a ship's timetable from its first arrival, the sea routes, its speed, and the ports' closures."""
    closures = tuple(closures)
    unlocodes = [str(topology.sites[call.port].unlocode) for call in ship.calls]
    comes = start + ship.first_arrival
    calls: list[TimetableCall] = []
    passages: list[Passage] = []
    ways: list[routes.SeaRoute | None] = [
        routes.route(a, b) if call.at_sea is None else routes.round_trip(a, call.at_sea, ship.service_speed)
        for call, (a, b) in zip(ship.calls, pairwise(unlocodes), strict=False)
    ]
    for number, (call, unlocode, way) in enumerate(zip(ship.calls, unlocodes, [*ways, None], strict=True)):
        closed = closed_spans(closures, call.port, start)
        arrives = worked(closed, comes, dt.timedelta(0))
        departs = worked(closed, arrives, call.stay)
        calls.append(
            TimetableCall(number, call.port, unlocode, comes, arrives, call.stay, departs, way is None, closed)
        )
        if way is not None:
            passage = Passage(way, departs, ship.service_speed)
            passages.append(passage)
            comes = passage.arrives.replace(microsecond=0)
    return Timetable(name, str(topology.sites[name].imo), tuple(calls), tuple(passages))
