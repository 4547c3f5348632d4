"""Play the duck voyage, from ship to port to ship, while links are cut and bridges, replicators and brokers are
killed."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import deque
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from replication.audit import compare_records
from simulators.fleet.scenario_file import load
from simulators.report.assemble import assemble
from simulators.steps import Step
from simulators.voyage.run import sail
from simulators.voyage.voyage import Voyage
from simulators.voyage.waiting import wait_until_settled
from tests.chaos.legs import KILLS, Leg, Strike, legs, strikes
from tests.chaos.world import World
from topologies.model import SiteKind

BOXES: Final = 24
PATIENCE: Final = 240.0  # seconds without any progress
_TOPOLOGIES: Final = Path(__file__).parents[2] / "topologies"

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(24 * 3600)]


def big_blue(folder: Path) -> Path:
    """Return the fleet without feeds, and with links as fast as possible."""
    body: dict[str, Any] = yaml.safe_load((_TOPOLOGIES / "big-blue.yaml").read_text(encoding="utf-8"))
    body["name"] = "duck-chaos"
    del body["sites"]["ducks-hq"], body["users"]
    body["links"] = [link for link in body["links"] if "ducks-hq" not in (link["from"], link["to"])]
    for link in body["links"]:
        link.pop("rate", None)
        link["streams"].pop("feeds", None)
    body["customers"] = {name: {} for name in body["customers"]}
    file = folder / "duck-chaos.yaml"
    file.write_text(yaml.safe_dump(body, sort_keys=False), encoding="utf-8")
    return file


class Trouble:
    """Kill processes and cut links at planned steps of the voyage; no leg ends before its kills have happened."""

    def __init__(self, world: World, planned: list[Strike], ways: list[Leg], chance: random.Random) -> None:
        self._world = world
        self._planned = deque(planned)
        self._chance = chance
        self._ends = {leg.last: number for number, leg in enumerate(ways)}
        self._struck: dict[int, list[asyncio.Task[None]]] = {}
        self._step = 0
        self.kills = 0

    async def at(self, _step: Step) -> None:
        """Inject the faults planned for a step; called before each step of the voyage."""
        for last in [last for last in self._ends if last < self._step]:
            await asyncio.gather(*self._struck.pop(self._ends.pop(last), []))
        while self._planned and self._planned[0].step == self._step:
            strike = self._planned.popleft()
            self._struck.setdefault(strike.leg, []).append(asyncio.create_task(self._strike(strike)))
        self._step += 1

    async def over(self) -> None:
        """Wait until all injected faults are over; raise the first error among them."""
        await asyncio.gather(*(task for tasks in self._struck.values() for task in tasks))
        assert not self._planned

    async def _strike(self, strike: Strike) -> None:
        await asyncio.sleep(strike.delay)
        if strike.peer:
            await self._world.break_link(strike.site, strike.peer, strike.seconds, freeze=strike.freeze)
        else:
            await self._world.harm(self._chance, strike.site)
            self.kills += 1


async def sailed(world: World, seed: int) -> str:
    """Run one voyage and fail unless every line of its report holds. Return what was killed and cut."""
    voyage = Voyage(load("duck-voyage").adjusted(containers=BOXES), world.topology, seed=seed)
    chance = random.Random(f"voyage {seed}")  # noqa: S311 - moments, not secrets
    ships = [name for name, site in world.topology.sites.items() if site.kind is SiteKind.SHIP]
    ways = legs(voyage.steps(), ships)
    trouble = Trouble(world, strikes(ways, world.sites, world.pairs, chance), ways, chance)
    began = time.monotonic()
    made = await sail(
        voyage, world.topology, world.resolver, on_step=trouble.at, barrier_timeout=PATIENCE, check=world.check
    )
    await trouble.over()
    assert trouble.kills == KILLS * len(ways)
    await wait_until_settled(world.topology, world.resolver, world.folder, patience=PATIENCE)
    seconds = {"voyage": round(time.monotonic() - began, 1)}
    report = await assemble(
        made, world.topology, world.resolver, world.folder, checks=(), seconds=seconds, tell=lambda _text: None
    )
    # Shore does not run here, so its lines are left out.
    of_shore = ("Delta", "hours", "tables equal")
    wrong = [line for line in report.lines() if not line.ok and not any(word in line.what for word in of_shore)]
    assert wrong == []
    assert (report.readings_lost, report.readings_repeated, report.logs_differing) == (0, 0, 0)
    full = await compare_records(
        world.topology, world.resolver.kafka("tokyo", "admin"), world.resolver.kafka("los-angeles", "admin")
    )
    assert full.ok, full.as_json()
    world.check()
    done = ", ".join(f"{count} {what}" for what, count in sorted(world.done.items()))
    return f"{report.readings_published} readings, {report.logs_compared} logs, {seconds['voyage']:.0f} s; {done}"


async def test_custody_survives_kills_during_the_duck_voyage(
    home: Path, seed: int, seconds: float, capsys: pytest.CaptureFixture[str]
) -> None:
    """Run as many voyages as fit the time, or ``FAIRLEAD_CHAOS_SEEDS`` of them; seeds count up from ``seed``."""
    source = big_blue(home)
    wanted = int(os.environ.get("FAIRLEAD_CHAOS_SEEDS") or 0)
    end = time.monotonic() + seconds
    longest, number = 0.0, 0
    while number < wanted if wanted else number == 0 or time.monotonic() + longest < end:
        with capsys.disabled():
            print(f"voyage {number + 1}: FAIRLEAD_CHAOS_SEED={seed + number}", flush=True)  # noqa: T201
        began = time.monotonic()
        async with World(source) as world:
            done = await sailed(world, seed + number)
        longest = max(longest, time.monotonic() - began)
        with capsys.disabled():
            print(f"  {time.monotonic() - began:.0f} s: {done}", flush=True)  # noqa: T201
        number += 1
