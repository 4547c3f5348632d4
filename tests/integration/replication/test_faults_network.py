"""The network between replicator, source and target: slow, cut, reset in the middle of frames, half-open."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from replication.replicator import Replicator
from simulators.network.proxy import ProxyDirection, TcpProxy
from tests.support.chaos import impatient, through_proxy
from tests.support.proof import grown, proven
from tests.support.replication.lab import Lab, links, states, until
from tests.support.traffic import Traffic

pytestmark = [pytest.mark.long, pytest.mark.integration]
CLIENT = "fairlead-replicator.beta"
RESETS = 12


@dataclass
class Voyage:
    """A replicator at beta with a proxy to its source and one to its target, and writers at alpha."""

    lab: Lab
    writers: Traffic
    source: TcpProxy
    target: TcpProxy
    replicator: Replicator

    async def grows(self) -> None:
        """Check that every log gets new records at beta."""
        await grown(self.lab.kafka("beta"), self.writers.written)

    async def knocks(self, line: TcpProxy, times: int) -> None:
        """Wait until the replicator has tried so many connections."""
        before = line.connections

        async def tried() -> bool:
            return line.connections >= before + times

        await until(tried, "nobody tries to connect")

    async def link_is(self, state: str) -> None:
        async def so() -> bool:
            return bool(links([self.replicator.snapshot()])["alpha->beta"]["state"] == state)

        await until(so, f"the link is not {state}: {self.replicator.snapshot()}")

    async def target_is(self, state: str) -> None:
        async def so() -> bool:
            return bool(self.replicator.snapshot()["target"]["state"] == state)

        await until(so, f"the target is not {state}: {self.replicator.snapshot()}")


@contextlib.asynccontextmanager
async def voyage(lab: Lab) -> AsyncIterator[Voyage]:
    """Run writers and replicator; at the end beta must have every record once, and no log in trouble."""
    own, plain, transactional = [lab.log(f"alpha.{n}") for n in range(4)], lab.log("alpha.x"), lab.log("alpha.y")
    await lab.make("alpha", *own, plain, transactional)
    here, there = lab.kafka("alpha"), lab.kafka("beta")
    replicator = lab.replicator(lab.one_way(), "beta")
    writers = Traffic(here, own=own, idempotent=[plain], transactional=[transactional])
    async with through_proxy(here, client=CLIENT) as source, through_proxy(there, client=CLIENT) as target:
        async with lab.running(replicator), writers:
            under_way = Voyage(lab, writers, source, target, replicator)
            await under_way.grows()
            yield under_way
            await writers.stop()
            await proven(lab.one_way(), writers.written, here, there)
            assert states(replicator.snapshot()) == {}
            assert source.down.bytes > 0 and target.up.bytes > 0


async def test_slow_and_cut(lab: Lab) -> None:
    async with voyage(lab) as under_way:
        for line in (under_way.source, under_way.target):
            line.shape(rtt=0.3, rate=2e6)
        await under_way.grows()
        under_way.source.cut()
        await under_way.link_is("unavailable")
        for line in (under_way.source, under_way.target):
            line.shape(rtt=0.0, rate=0.0)
        under_way.source.mend()
        await under_way.link_is("mirroring")
        await under_way.grows()
        under_way.target.cut()
        await under_way.knocks(under_way.target, 5)
        under_way.target.mend()
        await under_way.grows()


async def test_reset_in_the_middle_of_frames(lab: Lab) -> None:
    chance = random.Random(5)  # noqa: S311 - places, not secrets
    async with voyage(lab) as under_way:
        ways = [way for line in (under_way.source, under_way.target) for way in (line.up, line.down)]
        for turn in range(RESETS):
            way = ways[turn % len(ways)]
            line = under_way.source if way in (under_way.source.up, under_way.source.down) else under_way.target
            await reset(line, way, chance.randrange(1, 6000))
        await under_way.grows()
        assert [way.resets for way in ways] == [RESETS // len(ways)] * len(ways)


async def reset(line: TcpProxy, way: ProxyDirection, after: int) -> None:
    before = way.resets
    way.fuse = after

    async def done() -> bool:
        return way.resets > before

    await until(done, f"{after} bytes do not come")


async def test_half_open(lab: Lab) -> None:
    """The replicator recovers from half-open connections: first a silent source, then lost answers of the target."""
    with impatient(2.0, client=CLIENT):
        await silence(lab)


async def silence(lab: Lab) -> None:
    async with voyage(lab) as under_way:
        under_way.source.freeze()
        await under_way.link_is("unavailable")
        under_way.source.mend()
        await under_way.link_is("mirroring")
        await under_way.grows()
        under_way.target.freeze(under_way.target.down)  # appended, but not acknowledged
        await under_way.target_is("unavailable")
        under_way.target.mend()
        await under_way.target_is("up")
        await under_way.grows()
