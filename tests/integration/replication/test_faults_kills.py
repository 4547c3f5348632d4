"""``kill -9`` of the replicator at many random moments, of the source, and of the target, while writers append."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from collections.abc import AsyncIterator

import pytest

from fairlead.local.sites import LocalSites
from tests.support.chaos import impatient
from tests.support.proof import ends, grown, proven
from tests.support.replication.lab import Lab, links, states, target_up, until
from tests.support.traffic import Traffic
from tests.support.victims import Victim

pytestmark = pytest.mark.integration
KILLS = 15
MANY_KILLS = 50


@contextlib.asynccontextmanager
async def traffic(lab: Lab, *, seed: int = 1, pause: float = 0.05) -> AsyncIterator[Traffic]:
    """Run writers of every kind at alpha."""
    own = [lab.log(f"alpha.own-{n}") for n in range(4)]
    plain, transactional = lab.log("alpha.plain"), lab.log("alpha.transactional")
    await lab.make("alpha", *own, plain, transactional)
    made = Traffic(
        lab.kafka("alpha"), own=own, idempotent=[plain], transactional=[transactional], seed=seed, pause=pause
    )
    async with made as writers:
        yield writers


@pytest.mark.parametrize("kills", [KILLS, pytest.param(MANY_KILLS, marks=pytest.mark.chaos)])
async def test_kills_of_the_replicator_lose_nothing_and_repeat_nothing(lab: Lab, sites: LocalSites, kills: int) -> None:
    chance = random.Random(20)  # noqa: S311 - moments, not secrets
    moved = 0
    async with traffic(lab) as writers, Victim(str(sites.folder), lab.stream) as victim:
        before: dict[str, int] = {}

        async def at_work() -> bool:
            return await ends(lab.kafka("beta"), writers.written) != before

        for kill in range(kills):
            await victim.start()
            if kill % 2:  # on a busy machine a replicator starts too slowly for the kills to hit it at work
                await until(at_work, f"anything copied after kill {kill}")
            await asyncio.sleep(chance.uniform(0.0, 0.6))
            await victim.end(signal.SIGKILL)
            there = await ends(lab.kafka("beta"), writers.written)
            moved += there != before
            before = there
        await victim.start()

        async def much() -> bool:
            return writers.count > 500

        await until(much, "the writers do not write")
        await writers.stop()
        assert await all_is_well(lab, writers) > 500
        assert moved >= kills // 2
        await victim.end(signal.SIGTERM)


async def test_the_source_is_killed_under_load(lab: Lab, sites: LocalSites) -> None:
    beta = lab.replicator(lab.one_way(), "beta")
    async with lab.running(beta), traffic(lab) as writers:
        await grown(lab.kafka("beta"), writers.written)
        await asyncio.to_thread(sites.kill, "alpha")

        async def noticed() -> bool:
            return bool(links([beta.snapshot()])["alpha->beta"]["state"] == "unavailable")

        await until(noticed, "the dead source is not noticed")
        assert links([beta.snapshot()])["alpha->beta"]["cause"]
        await asyncio.to_thread(sites.restart, "alpha")
        await grown(lab.kafka("beta"), writers.written)
        await writers.stop()
        await all_is_well(lab, writers)
        assert states(beta.snapshot()) == {}


async def test_the_target_is_killed_under_load(lab: Lab, sites: LocalSites) -> None:
    with impatient(3.0, client="fairlead-replicator"):
        await kill_the_target(lab, sites)


async def kill_the_target(lab: Lab, sites: LocalSites) -> None:
    beta = lab.replicator(lab.one_way(), "beta")
    async with lab.running(beta), traffic(lab) as writers:
        await grown(lab.kafka("beta"), writers.written)
        await asyncio.to_thread(sites.kill, "beta")

        async def noticed() -> bool:
            return bool(beta.snapshot()["target"]["state"] == "unavailable")

        await until(noticed, "the dead target is not noticed")
        assert beta.snapshot()["target"]["cause"]
        await asyncio.to_thread(sites.restart, "beta")
        await grown(lab.kafka("beta"), writers.written)
        await writers.stop()
        await all_is_well(lab, writers)
        await target_up(beta)
        assert states(beta.snapshot()) == {}


async def all_is_well(lab: Lab, writers: Traffic) -> int:
    here, there = lab.kafka("alpha"), lab.kafka("beta")
    return await proven(lab.one_way(), writers.written, here, there)
