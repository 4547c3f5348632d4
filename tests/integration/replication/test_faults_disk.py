"""The target's disk fills up: its broker cannot append, halts, and returns when there is space."""

from __future__ import annotations

import asyncio

import pytest

from fairlead.kafka.protocol.codecs import Codec
from fairlead.local.sites import LocalSites
from tests.support.chaos import fill_disk, impatient
from tests.support.proof import ends, grown, proven
from tests.support.replication.lab import Lab, states, target_up, until
from tests.support.traffic import Traffic

pytestmark = [pytest.mark.integration, pytest.mark.long]


async def test_the_targets_disk_is_full(lab: Lab, sites: LocalSites) -> None:
    with impatient(3.0, client="fairlead-replicator"):
        await fill_the_disk(lab, sites)


async def fill_the_disk(lab: Lab, sites: LocalSites) -> None:
    own, plain, fat = [lab.log(f"alpha.{n}") for n in range(4)], lab.log("alpha.plain"), lab.log("alpha.fat")
    await lab.make("alpha", *own, plain, fat)
    beta = lab.replicator(lab.one_way(), "beta")
    here, there = lab.kafka("alpha"), lab.kafka("beta")
    writers = Traffic(here, own=own, idempotent=[plain])
    filling = Traffic(here, own=[fat], sizes=[40_000], codec=Codec.NONE)
    logs = writers.written | filling.written
    async with lab.running(beta), writers:

        async def copied() -> bool:
            return min((await ends(there, writers.written)).values()) > 0

        await until(copied, "not every log is copied")
        halted = fill_disk(sites, "beta")
        async with filling:
            await until(halted, "the broker does not halt")
        assert any(f"{fat}-0" in each for each in await asyncio.to_thread(errors, sites))

        async def noticed() -> bool:
            return bool(beta.snapshot()["target"]["state"] == "unavailable")

        await until(noticed, "the target is still called up")
        assert "cannot be reached" in beta.snapshot()["target"]["cause"]
        await asyncio.to_thread(sites.restart, "beta")
        await grown(there, writers.written)
        await writers.stop()
        await proven(lab.one_way(), logs, here, there)
        await target_up(beta)
        assert states(beta.snapshot()) == {}


def errors(sites: LocalSites) -> list[str]:
    """Return each line in which beta's broker logged a file that is too large, with the three lines before it."""
    lines = sites.status()["beta"].logs["kafka"].read_text().splitlines()
    return ["\n".join(lines[max(0, n - 3) : n + 1]) for n, line in enumerate(lines) if "File too large" in line]
