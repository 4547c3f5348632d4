"""In any graph of links, every site that a log's links reach gets all its batches, and nothing circulates."""

from __future__ import annotations

import asyncio
import itertools
import random
import secrets
from collections.abc import Callable, Iterable

import pytest

from tests.integration.replication.crew import Crew, both_ways, crew_of, graph_of, moved, one_way
from tests.support.replication.lab import Lab, until
from topologies.loader.load import load
from topologies.model import ENDS, Topology

pytestmark = [pytest.mark.long, pytest.mark.integration]

A, B, C, D, E = SITES = "alpha", "beta", "gamma", "delta", "epsilon"
QUIET = 0.4  # seconds without a byte fetched anywhere: nothing circulates

GRAPHS = {
    "pair": both_ways((A, B)),
    "chain": both_ways((A, B), (B, C)),
    "star": both_ways((A, B), (A, C), (A, D)),
    "ring": one_way((A, B), (B, C), (C, D), (D, A)),
    "full mesh": both_ways(*itertools.combinations((A, B, C, D), 2)),
    "diamond": one_way((A, B), (A, C), (B, D), (C, D)),
    "diamond, both ways": both_ways((A, B), (A, C), (B, D), (C, D)),
    "five in a tangle": both_ways((A, B), (B, C), (C, A)) + one_way((C, D), (D, E), (E, A)),
}
IN_OTHERS = {
    "pair": pytest.mark.chaos,  # covered by two replicators per target and the two-way topology, which always run
    "chain": pytest.mark.chaos,  # covered by the chain topology
    "diamond": pytest.mark.chaos,  # covered by the diamond with links both ways
}
SHIPPED = {
    "two-way": {"east": A, "west": B},
    "chain": {"san-francisco": A, "singapore": B, "sydney": C},
    "fan-in": {"new-york": A, "paris": B, "london": C},
}


async def prove(crew: Crew, replicators: Iterable[str] | None = None) -> None:
    """Check that all copies are equal after writes while replicators come and go, and that each record moves once.

    Every site has a log of its own in each stream; ordinary producers at one site write one more topic with three
    partitions.
    """
    seed = secrets.randbits(32)
    dice = random.Random(seed)  # noqa: S311 - an order of events, no secret
    names = list(replicators or crew.targets())
    first, *_ = sorted({link.from_ for link in crew.topology.directed_links()})
    for stream in crew.topology.streams:
        for site in crew.topology.sites:
            await crew.open(site, f"{stream}.{site}.cpu")
        await crew.open_topic(first, f"{stream}.orders", 3)
    await crew.write(10)
    dice.shuffle(names)
    crew.start(*names)
    for _ in range(3):
        name = dice.choice(names)
        await asyncio.gather(crew.write(10), crew.stop(name))
        await crew.write(5)
        crew.start(name)
    await crew.settle()
    await crew.assert_identical()

    await come_to_rest(crew)
    before = crew.moved()
    replicas = sum(len(crew.replicas(tp)) for tp in crew.origin)
    await crew.write(15)
    await crew.settle()
    await crew.assert_identical()
    await come_to_rest(crew)
    assert crew.moved()["records"] - before["records"] == 15 * replicas, f"seed {seed}"


async def come_to_rest(crew: Crew) -> None:
    """Wait until nothing is fetched any more, which never happens if records circulate."""

    async def at_rest() -> bool:
        before = crew.moved()
        await asyncio.sleep(QUIET)
        return crew.moved() == before

    await until(at_rest, "bytes are still fetched, though nobody writes")


@pytest.mark.parametrize("name", [pytest.param(name, marks=IN_OTHERS.get(name, ())) for name in GRAPHS])
async def test_every_log_reaches_every_site_once(lab: Lab, more_sites: Callable[..., None], name: str) -> None:
    topology = graph_of(lab.stream, GRAPHS[name])
    await asyncio.to_thread(more_sites, *topology.sites)
    async with crew_of(lab, topology) as crew:
        await prove(crew)


def mapped(lab: Lab, name: str) -> Topology:
    """Return a shipped topology with the sites of this run, and streams that only this test uses."""
    topology = load(name)
    del topology.streams[ENDS]  # the replicators write it themselves (test_retention)
    links = [
        link.model_copy(update={"streams": {name: what for name, what in link.streams.items() if name != ENDS}})
        for link in topology.links
    ]
    topology = topology.model_copy(update={"links": tuple(link for link in links if link.streams)})
    streams = {each: f"{lab.stream}{number}" for number, each in enumerate(topology.streams)}
    return moved(topology, sites=SHIPPED[name], streams=streams)


@pytest.mark.parametrize("name", SHIPPED)
async def test_the_topologies_of_the_book(lab: Lab, more_sites: Callable[..., None], name: str) -> None:
    """The shipped topologies copy every log to every site that their links reach, once."""
    topology = mapped(lab, name)
    await asyncio.to_thread(more_sites, *topology.sites)
    async with crew_of(lab, topology) as crew:
        await prove(crew)


@pytest.mark.parametrize("name", ["pair", "ring"])
async def test_two_replicators_on_every_target(lab: Lab, more_sites: Callable[..., None], name: str) -> None:
    """A second replicator of a target, started by mistake or too early, appends nothing twice."""
    topology = graph_of(lab.stream, GRAPHS[name])
    await asyncio.to_thread(more_sites, *topology.sites)
    async with crew_of(lab, topology) as crew:
        await prove(crew, [f"{site}#{n}" for site in crew.targets() for n in (1, 2)])
