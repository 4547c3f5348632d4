"""What a plan has of what a scenario can expect: its figures, and which expectations they do not meet. Pure."""

from __future__ import annotations

import datetime as dt

from simulators.faults import PowerLoss
from simulators.plan import Plan
from simulators.weather import link_weather

_DAY = dt.timedelta(days=1)


def figures(plan: Plan) -> dict[str, float]:
    """Each of ``simulators.scenario.FIGURES``, counted in a plan."""
    calls = [call for table in plan.timetables.values() for call in table.calls]
    outages = list(link_weather(plan).outages())
    at_sea = {fault.lot for fault in plan.scenario.faults if isinstance(fault, PowerLoss)}
    return {
        "ships": sum(bool(table.passages) for table in plan.timetables.values()),
        "ports": len({call.port for call in calls}),
        "calls": len(calls),
        "transhipped": sum(sum(move.code == "LOAD" for move in box.moves) > 1 for box in plan.boxes),
        "overboard": sum(box.falls is not None for box in plan.boxes),
        "power_lost": sum(bool(box.outages) and box.lot_name in at_sea for box in plan.boxes),
        "failed": sum(bool(box.failures) for box in plan.boxes),
        "doors_open": sum(any(box.holder(start) in plan.timetables for start, _ in box.doors) for box in plan.boxes),
        "wrong_setpoint": sum(bool(box.setpoints) for box in plan.boxes),
        "silent": sum(bool(box.silences) for box in plan.boxes),
        "days": (plan.ends - plan.starts) / _DAY,
        "days_cut": max(((until - since) / _DAY for _, since, until in outages), default=0.0),
        "days_waiting": max((call.arrives - call.comes) / _DAY for call in calls),
        "links_cut": len({frozenset(between) for between, _, _ in outages}),
    }


def unmet(plan: Plan) -> list[str]:
    """The expectations whose figure the plan does not reach, each with what it has."""
    found = figures(plan)
    return [
        f"{expected.says}: {expected.figure} is {found[expected.figure]:g}, expected at least {expected.at_least:g}"
        for expected in plan.scenario.expects
        if expected.figure is not None and found[expected.figure] < (expected.at_least or 0.0)
    ]
