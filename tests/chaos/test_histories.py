"""Replicate many histories of a log from a source with three brokers, whose leader is killed during each of them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Final

import pytest
from hypothesis import HealthCheck, example, given, settings

from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.local.sites import LocalSites
from tests.support.replication.cleaner import eager
from tests.support.replication.histories import (
    Compact,
    End,
    History,
    Life,
    MoveLeader,
    Run,
    Transact,
    Write,
    histories,
    new_lab,
)

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(7200)]

MANY: Final = int(os.environ.get("FAIRLEAD_HISTORIES", "50"))


@pytest.fixture(scope="module")
def cleaned(world: LocalSites) -> Iterator[LocalSites]:
    """Run the sites with brokers that compact logs several times a second."""
    with eager(world.kafka("trio", "admin")), eager(world.kafka("beta", "admin")):
        yield world


@settings(max_examples=MANY, deadline=None, suppress_health_check=list(HealthCheck), report_multiple_bugs=False)
@given(history=histories(with_leaders=True))
@example(
    History(
        "compact",
        (
            Transact(0, 20, "lz4"),
            Run(on=True),
            MoveLeader("alpha"),
            Write(20, "zstd", idempotent=True, tombstones=True),
            End(0, commit=False),
            MoveLeader("alpha"),
            Compact(),
        ),
    )
)
async def test_a_replica_shows_what_its_source_shows(cleaned: LocalSites, history: History) -> None:
    """A replica shows consumers the same records as its source, although the source's leader is killed."""
    places = {"alpha": "trio", "beta": "beta"}

    def kafka(site: str, user: str = "admin") -> KafkaEndpoint:
        return cleaned.kafka(places[site], user)

    async def move_leader(site: str, topic: str) -> None:
        cluster = await lab.cluster(site)
        found = (await cluster.topics([topic], refresh=True)).get(topic)
        leader = found.partitions[0] if found is not None else 1
        await asyncio.to_thread(cleaned.kill, places[site], broker=max(leader, 1))
        await asyncio.to_thread(cleaned.restart, places[site], broker=max(leader, 1))
        if found is not None:
            await cluster.wait_writable([topic])

    lab = new_lab(kafka)
    try:
        await Life(lab, history, move_leader).live()
    finally:
        await lab.close()
