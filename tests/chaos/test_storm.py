"""Kill replicators and the brokers on both sides at random moments while writers append."""

from __future__ import annotations

import asyncio
import random
import secrets
import signal
import time
from collections import Counter
from collections.abc import Sequence

import psutil
import pytest

from fairlead.kafka.admin import create_logs
from fairlead.kafka.client.cluster import Cluster
from fairlead.local.sites import LocalSites
from tests.chaos.conftest import SPECS
from tests.support.proof import proven
from tests.support.replication import victim
from tests.support.traffic import Traffic
from tests.support.victims import Victim

LEAST_KILLS = 50  # number of replicator kills, in a run of any length
TARGETS = ("beta", "trio")

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(24 * 3600)]


class Storm:
    """Kill processes and cut links at random until ``end``, and count both."""

    def __init__(self, world: LocalSites, seed: int, seconds: float) -> None:
        self.done: Counter[str] = Counter()
        self._world = world
        self._seed = seed
        self._end = time.monotonic() + seconds

    async def replicator(self, stream: str, target: str) -> None:
        """Kill and restart one replicator; return the last one, which keeps running."""
        chance = self._chance(target)
        async with Victim(str(self._world.folder), stream, f"to={target}") as each:
            while not self._over() or self.done["replicator killed"] < LEAST_KILLS:
                await each.start()
                await asyncio.sleep(chance.choice((0.05, 0.3, 1.0, 5.0)) * chance.random() * 2)
                await each.end(signal.SIGKILL)
                self.done["replicator killed"] += 1
            await each.start()
            await self._calm.wait()
            await each.end(signal.SIGTERM)

    async def brokers(self, site: str, numbers: Sequence[int], pause: float) -> None:
        """Kill or freeze one broker of a site at a time."""
        chance = self._chance(f"brokers of {site}")
        while not self._over():
            await asyncio.sleep(pause * (0.2 + chance.random()))
            gone = chance.sample(numbers, k=2 if len(numbers) > 2 and chance.random() < 0.25 else 1)
            if chance.random() < 0.3:
                await self._stand_still(site, gone[0], chance.uniform(0.5, 15.0))
                continue
            for number in gone:
                await asyncio.to_thread(self._world.kill, site, broker=number)
                self.done[f"broker of {site} killed"] += 1
                await asyncio.sleep(chance.uniform(0.0, 3.0))
            for number in gone:
                await asyncio.sleep(chance.uniform(0.0, 3.0))
                await self._restart(site, number)

    async def _restart(self, site: str, number: int) -> None:
        await asyncio.to_thread(self._world.restart, site, broker=number)

    async def _stand_still(self, site: str, number: int, seconds: float) -> None:
        name = "kafka" if number == 1 else f"kafka-{number}"
        process = psutil.Process(self._world.status()[site].pids[name])
        process.suspend()
        self.done[f"broker of {site} suspended"] += 1
        try:
            await asyncio.sleep(seconds)
        finally:
            process.resume()

    async def blow(self, stream: str, writers: Traffic) -> None:
        """Run all faults until the end; then restart everything and wait until every target has every record."""
        self._calm = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for target in TARGETS:
                group.create_task(self.replicator(stream, target))
            async with asyncio.TaskGroup() as brokers:
                brokers.create_task(self.brokers("alpha", [1], 30.0))
                brokers.create_task(self.brokers("beta", [1], 20.0))
                brokers.create_task(self.brokers("trio", [1, 2, 3], 10.0))
            await asyncio.to_thread(self._world.up, SPECS)
            await writers.stop()
            for target in TARGETS:
                here, there = self._world.kafka("alpha", "admin"), self._world.kafka(target, "admin")
                topology = victim.topology(stream, target)
                await proven(topology, writers.written, here, there, patience=180)
            self._calm.set()

    def _chance(self, whose: str) -> random.Random:
        return random.Random(f"{self._seed} {whose}")  # noqa: S311 - moments, not secrets

    def _over(self) -> bool:
        return time.monotonic() > self._end


async def test_storm(world: LocalSites, seed: int, seconds: float, capsys: pytest.CaptureFixture[str]) -> None:
    """After random kills of replicators and brokers, no target has lost or doubled a record."""
    stream = "s" + secrets.token_hex(4)
    own = [f"{stream}.alpha.own-{n}" for n in range(6)]
    other = [f"{stream}.alpha.plain", f"{stream}.alpha.transactional"]
    alpha = world.kafka("alpha", "admin")
    await asyncio.to_thread(create_logs, alpha, {topic: {} for topic in own + other})
    async with await Cluster.open(alpha, client_id="storm") as cluster:
        await cluster.wait_writable(own + other)
    storm = Storm(world, seed, seconds)
    async with Traffic(alpha, own=own, idempotent=other[:1], transactional=other[1:], seed=seed, pause=0.15) as writers:
        await storm.blow(stream, writers)
    assert storm.done["replicator killed"] >= LEAST_KILLS
    with capsys.disabled():
        print(f"{writers.count} values were acknowledged, all are at {TARGETS} once: {dict(storm.done)}")  # noqa: T201
