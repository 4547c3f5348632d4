"""A target that forgets producers, as managed clusters do: what protects copies there, and what does not."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator

import pytest

from fairlead.kafka.convention import term_batch
from fairlead.kafka.protocol.types import TopicPartition
from fairlead.local.sites import LocalSites, SiteSpec
from tests.support.proof import grown, proven
from tests.support.replication.lab import Lab, link, records, states, until
from tests.support.sites import USERS, NewSites
from tests.support.traffic import Traffic

pytestmark = [pytest.mark.long, pytest.mark.integration]

MANAGED = "managed"
FORGETS = {"producer.id.expiration.ms": "1", "producer.id.expiration.check.interval.ms": "10"}
YEAR_MS = 365 * 24 * 3600 * 1000


@pytest.fixture(scope="module")
def managed(tmp_path_factory: pytest.TempPathFactory, new_sites: NewSites) -> Iterator[LocalSites]:
    """Run a site whose broker forgets a producer some milliseconds after its records' time."""
    local = new_sites(tmp_path_factory.mktemp(MANAGED))
    local.up([SiteSpec(MANAGED, USERS, properties=FORGETS)])
    yield local
    local.down(purge=True)


@pytest.fixture
def both(lab: Lab, managed: LocalSites) -> Lab:
    """Return the lab, which also knows the site ``managed``."""
    shared = lab.kafka
    lab.kafka = lambda site, user="admin": managed.kafka(site, user) if site == MANAGED else shared(site, user)
    return lab


async def forgotten(lab: Lab, log: TopicPartition) -> None:
    """Wait until the broker has forgotten who wrote a log."""

    async def gone() -> bool:
        return not (await (await lab.cluster(MANAGED)).producer_states([log]))[log]

    await until(gone, f"the broker remembers the producers of {log}")


async def test_the_broker_accepts_a_gap_once_it_has_forgotten_the_producer(both: Lab) -> None:
    """This is the danger: the compare-and-swap of the append convention is gone."""
    log = TopicPartition(both.log("alpha.any"))
    await both.make(MANAGED, log.topic)
    at = await both.open_term(MANAGED, log.topic, term=1, at=0)
    await forgotten(both, log)
    batch = term_batch(records(0, 1), term=1, offset=at + 100, marker=0)
    result = (await (await both.cluster(MANAGED)).produce({log: batch}))[log]
    assert (result.error_code, result.base_offset) == (0, at)


async def test_one_replicator_copies_offset_for_offset(both: Lab, managed: LocalSites) -> None:
    """It reads the end before its first append on each connection, and sends a log's batches in order: also records of
    a year ago, whose producer is forgotten at once, and while the broker is killed and the replicator starts again.
    """
    own = [both.log(f"alpha.own-{n}") for n in range(4)]
    other = [both.log("alpha.idem"), both.log("alpha.txn")]
    await both.make("alpha", *own, *other)
    topology, here, there = link(both, "alpha", MANAGED), both.kafka("alpha"), both.kafka(MANAGED)
    old = itertools.count(int(time.time() * 1000) - YEAR_MS)
    async with Traffic(here, own=own, idempotent=other[:1], transactional=other[1:], pause=0.05, times=old) as writers:
        async with both.running(both.replicator(topology, MANAGED)):
            await grown(there, writers.written)
            for topic in own:
                await forgotten(both, TopicPartition(topic))
            await asyncio.to_thread(managed.kill, MANAGED)
            await asyncio.to_thread(managed.restart, MANAGED)
            await grown(there, writers.written)
        replicator = both.replicator(topology, MANAGED)
        async with both.running(replicator):
            await grown(there, writers.written)
            await writers.stop()
            await proven(topology, writers.written, here, there)
            assert states(replicator.snapshot()) == {}


async def test_two_replicators_never_differ_silently(both: Lab) -> None:
    """Two at once may append the same batch twice. Then the log stops in a named state; a log without one is equal.

    A replicator that starts later, as the last one, finds a copy longer than its source, or with other records.
    """
    logs = [both.log(f"alpha.own-{n}") for n in range(6)]
    await both.make("alpha", *logs)
    topology, here = link(both, "alpha", MANAGED), both.kafka("alpha")
    old = itertools.count(int(time.time() * 1000) - YEAR_MS)
    first, second = both.replicator(topology, MANAGED), both.replicator(topology, MANAGED)
    named: dict[str, str] = {}
    async with Traffic(here, own=logs, pause=0.02, times=old) as writers, both.running(first, second):
        await grown(here, writers.written)
        await grown(here, writers.written)
        await writers.stop()
        ends = {topic: await both.end("alpha", topic) for topic in logs}

        async def settled() -> bool:
            named.update(states(first.snapshot()) | states(second.snapshot()))
            return all([topic in named or await both.end(MANAGED, topic) == ends[topic] for topic in logs])

        await until(settled, f"some logs are neither copied nor stopped: {named}")
    last = both.replicator(topology, MANAGED)
    async with both.running(last):

        async def equal_or_named() -> bool:
            named.update(states(last.snapshot()))
            return all([topic in named or await equal(both, topic) for topic in logs])

        await until(equal_or_named, f"a log differs without a state: {named}")
    assert set(named.values()) <= {"misplaced", "diverged", "source-truncated"}


async def equal(lab: Lab, topic: str) -> bool:
    """Whether the managed site has the same batches of a log as alpha."""
    return await lab.stored("alpha", topic) == await lab.stored(MANAGED, topic)
