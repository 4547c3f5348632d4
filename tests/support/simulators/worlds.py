"""Small voyages for the tests: quick to unfold, yet with every kind of thing that can happen."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Iterable
from functools import cache

from simulators.fleet.plan import VoyagePlan
from simulators.fleet.scenario import PowerLossFault, Scenario
from simulators.fleet.scenario_file import load, parse
from simulators.physics.climate import link_weather
from simulators.steps import Publish, Step, VoyageBarrier
from simulators.voyage.voyage import Voyage
from topologies.loader.load import load as load_topology
from topologies.model import Topology

_DAY = dt.timedelta(days=1)


@cache
def big_blue() -> Topology:
    return load_topology("big-blue", env={})


@cache
def ducks() -> Scenario:
    return load("duck-voyage")


def voyage(seed: int = 7, containers: int = 30, *, hours: int = 12, with_bad: bool = True) -> Voyage:
    intervals = {"ship_interval": dt.timedelta(hours=6), "reading_interval": dt.timedelta(hours=hours)}
    scenario = ducks().model_copy(update=intervals)
    return Voyage(scenario.adjusted(containers=containers), big_blue(), seed=seed, with_bad=with_bad)


@cache
def small_plan() -> VoyagePlan:
    return voyage().plan


@cache
def small_steps() -> tuple[Step, ...]:
    return tuple(voyage().steps())


def published(steps: Iterable[Step]) -> list[Publish]:
    return [step for step in steps if isinstance(step, Publish)]


def barriers(steps: Iterable[Step]) -> list[VoyageBarrier]:
    return [step for step in steps if isinstance(step, VoyageBarrier)]


TRANSHIPMENT = """
name: transhipment
topology: big-blue
booking_office: los-angeles
start: 2026-09-01T00:00:00Z
reading_interval: 12h
ship_interval: 1d
ships:
  duck-star:
    first_arrival: 2d
    calls: [{ port: tokyo, stay: 24h }, { port: singapore, stay: 24h }]
  blue-marlin:
    first_arrival: 11d
    calls: [{ port: singapore, stay: 24h }, { port: sydney, stay: 24h }]
cargo:
  ducks:
    { owner: BIGU, commodity: toy-ducks, containers: 3, route: [tokyo, duck-star, singapore, blue-marlin, sydney],
      customer: ducks }
"""


def transhipment(**replaced: str) -> Scenario:
    """Ducks that change ships in Singapore. ``first_arrival="1d"`` replaces the text ``11d`` and so on."""
    text = TRANSHIPMENT
    for old, new in replaced.items():
        text = text.replace(old, new)
    return parse(text, "transhipment.yaml")


def digest(steps: Iterable[Step]) -> str:
    """A hash of a voyage's messages and their times."""
    total = hashlib.sha256()
    for step in steps:
        total.update(step.payload if isinstance(step, Publish) else repr(step).encode())
        total.update(step.sim_time.isoformat().encode())
    return total.hexdigest()


def figures(plan: VoyagePlan) -> dict[str, float]:
    """Return each of ``simulators.fleet.scenario.FIGURES``, counted in a plan."""
    calls = [call for table in plan.timetables.values() for call in table.calls]
    outages = list(link_weather(plan).outages())
    at_sea = {fault.lot for fault in plan.scenario.faults if isinstance(fault, PowerLossFault)}
    lost = plan.scenario.lost_headquarters
    return {
        "ships": sum(bool(table.passages) for table in plan.timetables.values()),
        "ports": len({call.port for call in calls}),
        "calls": len(calls),
        "transhipped": sum(sum(move.code == "LOAD" for move in box.moves) > 1 for box in plan.boxes),
        "overboard": sum(box.falls is not None and not box.ashore(box.falls) for box in plan.boxes),
        "dropped": sum(box.falls is not None and box.ashore(box.falls) for box in plan.boxes),
        "power_lost_ashore": sum(any(box.ashore(start) for start, _ in box.outages) for box in plan.boxes),
        "power_lost": sum(bool(box.outages) and box.lot_name in at_sea for box in plan.boxes),
        "failed": sum(bool(box.failures) for box in plan.boxes),
        "doors_open": sum(any(box.holder(start) in plan.timetables for start, _ in box.doors) for box in plan.boxes),
        "wrong_setpoint": sum(bool(box.setpoints) for box in plan.boxes),
        "cold_treatments": sum(box.lot.cold_treatment is not None for box in plan.boxes),
        "unit_alarms": sum(bool(box.alarms) for box in plan.boxes),
        "sunk": sum(box.sinks is not None for box in plan.boxes),
        "landed": sum(box.landed is not None for box in plan.boxes),
        "days_after_loss": (plan.ends - plan.starts - lost.starts) / _DAY if lost else 0.0,
        "silent": sum(bool(box.silences) for box in plan.boxes),
        "other_lines": len({move.number for move in plan.others if move.number is not None}),
        "days": (plan.ends - plan.starts) / _DAY,
        "days_cut": max(((until - since) / _DAY for _, since, until in outages), default=0.0),
        "days_waiting": max((call.arrives - call.comes) / _DAY for call in calls),
        "links_cut": len({frozenset(between) for between, _, _ in outages}),
    }


def unmet(plan: VoyagePlan) -> list[str]:
    """Return the expectations whose figure the plan does not reach, each with the figure that it has."""
    found = figures(plan)
    return [
        f"{expected.says}: {expected.figure} is {found[expected.figure]:g}, expected at least {expected.at_least:g}"
        for expected in plan.scenario.expects
        if expected.figure is not None and found[expected.figure] < (expected.at_least or 0.0)
    ]


async def no_wait(barrier: VoyageBarrier) -> None:
    """Return at once, as a player's ``wait``: for MQTT brokers without bridges, where no barrier could open."""
