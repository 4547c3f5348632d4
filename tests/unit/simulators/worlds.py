"""Small voyages for the tests: quick to unfold, yet with every kind of thing that can happen."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Iterable
from functools import cache

from simulators.fleet.plan import VoyagePlan
from simulators.fleet.scenario import Scenario
from simulators.fleet.scenario_file import load, parse
from simulators.steps import Publish, Step, VoyageBarrier
from simulators.voyage.voyage import Voyage, figures
from topologies.loader.load import load as load_topology
from topologies.model import Topology


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
