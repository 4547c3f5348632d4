"""When each ship is where: its calls with their working hours, and its passages between them. Pure functions."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from itertools import pairwise

from simulators import routes
from simulators.routes import Fix, Passage
from simulators.scenario import Ship
from topologies.model import Topology

MOORING = dt.timedelta(hours=1)  # from all fast to the first box, and from the last box to cast off
ANCHORAGE_NM = 6.0
AT_ANCHOR, MOORED, UNDER_WAY = 1, 5, 0  # AIS navigation status


@dataclass(frozen=True, slots=True)
class CallTimes:
    """One call. Boxes are discharged from ``works_from`` to ``turns`` and loaded from ``turns`` to ``works_until``."""

    number: int  # 0 is the ship's first call in the scenario
    port: str
    unlocode: str
    arrives: dt.datetime
    departs: dt.datetime
    last: bool  # the ship stays; nobody knows its next port

    @property
    def _working(self) -> dt.timedelta:
        return self.departs - self.arrives

    @property
    def works_from(self) -> dt.datetime:
        return self.arrives + min(MOORING, self._working / 8)

    @property
    def turns(self) -> dt.datetime:
        return self.arrives + self._working / 2

    @property
    def works_until(self) -> dt.datetime:
        return self.departs - min(MOORING, self._working / 8)


@dataclass(frozen=True, slots=True)
class Timetable:
    """A ship's whole time in a scenario. ``passages[i]`` leads from ``calls[i]`` to ``calls[i + 1]``."""

    ship: str
    imo: str
    calls: tuple[CallTimes, ...]
    passages: tuple[Passage, ...]

    def at(self, time: dt.datetime) -> tuple[Fix, int]:
        """Where the ship is, and its AIS navigation status: at anchor before its first call, moored after its last."""
        for call, passage in zip(self.calls, (*self.passages, None), strict=True):
            if time < call.arrives:  # only before the first call: a passage ends when the call begins
                return Fix(self._anchorage(), 0.0, 0.0), AT_ANCHOR
            if time < call.departs or passage is None:
                return Fix(routes.port(call.unlocode), 0.0, 0.0), MOORED
            if time < passage.arrives:
                return passage.at(time), UNDER_WAY
        raise AssertionError("a timetable has at least one call")

    def _anchorage(self) -> routes.Point:
        if self.passages:
            return self.passages[0].route.at(min(ANCHORAGE_NM, self.passages[0].route.length / 2))[0]
        return routes.port(self.calls[0].unlocode)

    def berthed_at(self, time: dt.datetime) -> str | None:
        """The port site alongside which the ship lies, or None at sea."""
        last = self.calls[-1].number
        return next((c.port for c in self.calls if c.arrives <= time and (time < c.departs or c.number == last)), None)


def timetable(name: str, ship: Ship, topology: Topology, start: dt.datetime) -> Timetable:
    """Work out a ship's times from its first arrival, the sea routes and its speed."""
    unlocodes = [str(topology.sites[call.port].unlocode) for call in ship.calls]
    arrives = start + ship.first_arrival
    calls: list[CallTimes] = []
    passages: list[Passage] = []
    ways: list[routes.Route | None] = [
        routes.route(a, b) if call.at_sea is None else routes.round_trip(a, call.at_sea, ship.service_speed)
        for call, (a, b) in zip(ship.calls, pairwise(unlocodes), strict=False)
    ]
    for number, (call, unlocode, way) in enumerate(zip(ship.calls, unlocodes, [*ways, None], strict=True)):
        departs = arrives + call.stay
        calls.append(CallTimes(number, call.port, unlocode, arrives, departs, last=way is None))
        if way is not None:
            passage = Passage(way, departs, ship.service_speed)
            passages.append(passage)
            arrives = passage.arrives.replace(microsecond=0)
    return Timetable(name, str(topology.sites[name].imo), tuple(calls), tuple(passages))
