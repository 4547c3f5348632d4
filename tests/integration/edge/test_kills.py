"""Bridge, Mosquitto and Kafka are killed in every combination while devices publish: no reading is lost or repeated.

The devices have the profile ``durable``: they send again what Mosquitto had acknowledged shortly before it was killed
(``simulators.voyage.sender``).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import signal
from collections.abc import Collection

import pytest
from confluent_kafka import KafkaException

from fairlead.local.sites import LocalSites, What
from simulators.voyage.sender import MqttSender
from tests.support.edge.fleet import EVENTS, Fleet, child, now, until
from tests.support.edge.samples import reading, readings_topic

pytestmark = pytest.mark.integration

BROKERS: tuple[What, ...] = ("mqtt", "kafka")
PARTS = ("bridge", *BROKERS)
COMBINATIONS = [which for count in (1, 2, 3) for which in itertools.combinations(PARTS, count)]
KILLS = int(os.environ.get("FAIRLEAD_CHAOS_KILLS") or 4)  # of each combination, by make chaos
BOXES = 5
PAUSE = 0.02  # seconds between two rounds of readings


class Quay:
    """Boxes at the port with devices that publish continuously."""

    def __init__(self, fleet: Fleet, device: MqttSender) -> None:
        self._fleet = fleet
        self._device = device
        self.boxes = [fleet.new_box() for _ in range(BOXES)]
        self.rounds = 0
        for box in self.boxes:
            device.send(EVENTS, fleet.event("GTIN", box))

    async def publish(self, rounds: int) -> None:
        """Publish readings of each box in turn, whether or not a broker accepts them."""
        for _ in range(rounds):
            for box in self.boxes:
                body = reading(self.rounds, number=box, at=now(), name=f"dev-{box}")
                self._device.send(readings_topic(box), body)
            self.rounds += 1
            await asyncio.sleep(PAUSE)

    def stored(self) -> list[list[int]]:
        return [self._fleet.sequences(self._fleet.port, box) for box in self.boxes]

    async def all_stored(self) -> None:
        """Wait until every reading is in the logs, in order and once. Fails if one is repeated or missing."""
        wanted = [list(range(self.rounds))] * BOXES

        def enough() -> bool:
            with contextlib.suppress(KafkaException):  # a log that its bridge has not created yet
                return all(len(log) >= self.rounds for log in self.stored())
            return False

        await until(enough, what="every reading in its log")
        assert self.stored() == wanted


async def saved(sites: LocalSites) -> None:
    """Wait until Mosquitto has saved all its present state: a save that begins from now on and completes."""
    file = sites.folder / "sites" / "alpha" / "mosquitto" / "mosquitto.db"

    def written() -> int:
        return file.stat().st_mtime_ns if file.exists() else 0

    for _ in range(2):  # the first may have begun before
        before = written()
        await until(lambda before=before: written() not in (0, before), what="a save")  # type: ignore[misc]


async def storm(fleet: Fleet, sites: LocalSites, kills: list[Collection[str]], seed: int) -> None:
    """Publish, kill the named processes, restart them while publishing; once for each of ``kills``."""
    chance = random.Random(seed)  # noqa: S311 - moments, not secrets
    async with (
        MqttSender(fleet.devices[fleet.port], f"quay-{fleet.port}") as device,
        contextlib.AsyncExitStack() as running,
    ):
        bridge = await running.enter_async_context(child(fleet, fleet.port))
        quay = Quay(fleet, device)
        await saved(sites)  # the bridge's session is new
        for which in kills:
            brokers: list[What] = [part for part in BROKERS if part in which]
            await quay.publish(chance.randint(5, 100))
            if "bridge" in which:
                bridge.send_signal(signal.SIGKILL)
            await asyncio.gather(*(asyncio.to_thread(sites.kill, "alpha", part) for part in brokers))
            publishing = asyncio.create_task(quay.publish(40))
            for part in chance.sample(brokers, len(brokers)):
                await asyncio.to_thread(sites.restart, "alpha", part)
            if "bridge" in which:
                await running.aclose()
                bridge = await running.enter_async_context(child(fleet, fleet.port))
            await publishing
        await quay.publish(10)
        await device.flush()
        await quay.all_stored()


async def test_all_three_killed_at_once(fleet: Fleet, sites: LocalSites) -> None:
    await storm(fleet, sites, [PARTS], seed=1)


@pytest.mark.chaos
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("which", COMBINATIONS, ids=lambda which: "+".join(which))
async def test_every_combination_again_and_again(fleet: Fleet, sites: LocalSites, which: tuple[str, ...]) -> None:
    """No reading is lost after any combination of kills, repeated."""
    seed = random.SystemRandom().randrange(10**9)
    print(f"seed {seed}")  # noqa: T201 - what a test prints
    await storm(fleet, sites, [which] * KILLS, seed)
