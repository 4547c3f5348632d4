"""The storms of a scenario as its ships meet them, and the weather of its links. Pure functions of a plan."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

from simulators import routes
from simulators.climate import Storm
from simulators.faults import Overboard
from simulators.linkweather import LinkWeather
from simulators.plan import Plan

_STORM_WIND, _STORM_HOURS = 16.0, 11.0  # the gale in which boxes are lost, m/s above the usual


def storms_of(plan: Plan, ship: str) -> tuple[Storm, ...]:
    """The gales in which this ship loses boxes, and the scenario's storms."""
    return tuple((*_gales(plan, ship), *_storms(plan)))


def _gales(plan: Plan, ship: str) -> Iterator[Storm]:
    table = plan.timetables[ship]
    for fault in plan.scenario.faults:
        if isinstance(fault, Overboard) and fault.ship == ship:
            arrival = next(call.comes for call in table.calls[1:] if call.port == fault.before)
            yield Storm(arrival - fault.by, _STORM_WIND, _STORM_HOURS)


def _storms(plan: Plan) -> Iterator[Storm]:
    for storm in plan.scenario.storms:
        centre = routes.port(str(plan.topology.sites[storm.near].unlocode))
        # A bell of exp(-x^2) has half its height at 0.83 of its width.
        yield Storm(plan.starts + storm.peak, storm.wind, storm.hours / 0.83, centre, storm.radius)


def link_weather(plan: Plan) -> LinkWeather:
    """The links of a plan: its scenario's troubles, and rain where a ship's satellite dish is in a storm."""
    storms = {ship: storms_of(plan, ship) for ship in plan.timetables}

    def wind(ship: str, time: dt.datetime) -> float:
        if ship not in storms:
            return 0.0
        place = plan.timetables[ship].at(time)[0].point
        return sum(storm.at(place, time) for storm in storms[ship])

    def berth(ship: str, time: dt.datetime) -> str | None:
        return plan.timetables[ship].berthed_at(time) if ship in plan.timetables else None

    return LinkWeather(plan.topology, plan.starts, plan.scenario.links, wind, berth)
