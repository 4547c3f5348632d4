"""The proxies of a topology follow the weather of simulated time."""

from __future__ import annotations

import asyncio
import datetime as dt
import time

import pytest

from fairlead.kafka.endpoint import Address
from simulators.network.controller import CutPeriod, Network
from simulators.network.weather import Conditions, LinkTrouble, LinkWeather
from simulators.steps import BarrierKind, LinkChange, Step, VoyageBarrier
from simulators.voyage.run import steered
from tests.unit.simulators.network.echo import answers
from topologies.loader.load import load
from topologies.model import Link, Topology

START = dt.datetime(2026, 5, 4, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)
SITES = ("tokyo", "duck-star")


class Still(LinkWeather):
    """Only the scenario's cuts, without latency, so that tests are quick."""

    def at(self, link: Link, time: dt.datetime) -> Conditions:
        return Conditions(up=super().at(link, time).up)


@pytest.fixture(scope="module")
def minimal() -> Topology:
    return load("minimal", env={})


def weather(topology: Topology) -> LinkWeather:
    return Still(topology, START, [LinkTrouble.model_validate({"site": "tokyo", "starts": "5d", "lasts": "2d"})])


async def connected(network: Network, target: str, source: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    ((_, proxy),) = network.address_overrides[target][source]
    return await asyncio.open_connection(*proxy)


async def test_a_link_swallows_everything_while_it_is_cut(minimal: Topology, echo: Address) -> None:
    with Network(minimal, weather(minimal), dict.fromkeys(SITES, (echo,)), seed=1) as network:
        assert {(target, source) for target, of in network.address_overrides.items() for source in of} == {
            SITES,
            SITES[::-1],
        }
        network.apply_weather(START)
        before = [await connected(network, *each) for each in (SITES, SITES[::-1])]
        assert [await answers(each) for each in before] == [True, True]
        assert not network.cut_pairs

        network.apply_weather(START + 5 * DAY)
        assert set(network.cut_pairs) == {frozenset(SITES)}
        during = await connected(network, *SITES)
        assert [await answers(each, within=0.05) for each in (*before, during)] == [False] * 3

        network.apply_weather(START + 7 * DAY)
        assert [await answers(each) for each in (*before, during)] == [False] * 3, "the old connections are reset"
        after = await connected(network, *SITES)
        assert await answers(after)
        for _, writer in (*before, during, after):
            writer.close()
    (cut,) = network.cuts
    assert (set(cut.between), cut.starts, cut.ends) == (set(SITES), START + 5 * DAY, START + 7 * DAY)
    assert 0 < cut.seconds < 60


async def test_the_end_of_a_voyage_mends_every_link(minimal: Topology, echo: Address) -> None:
    seen: list[Step] = []

    async def then(step: Step) -> None:
        seen.append(step)

    steps: list[Step] = [
        LinkChange(START + 6 * DAY, ("tokyo", "duck-star"), up=False),
        VoyageBarrier(START + 6 * DAY, BarrierKind.RECORDED, "a barrier in between"),
        VoyageBarrier(START + 6.5 * DAY, BarrierKind.FINISHED, "all is in the logs"),
    ]
    with Network(minimal, weather(minimal), dict.fromkeys(SITES, (echo,)), seed=1) as network:
        before = steered(network, then)
        for step in steps:
            assert bool(network.cut_pairs) == (step is not steps[0])
            await before(step)
        assert not network.cut_pairs
        streams = await connected(network, *SITES)
        assert await answers(streams)
        streams[1].close()
    assert seen == steps
    assert network.cuts == (
        CutPeriod(("duck-star", "tokyo"), START + 6 * DAY, START + 6.5 * DAY, network.cuts[0].seconds),
    )


async def test_latency_is_that_of_what_carries_the_link(minimal: Topology, echo: Address) -> None:
    class Slow(Still):
        def at(self, link: Link, time: dt.datetime) -> Conditions:
            return Conditions(latency=50.0 if link.when == "always" else 500.0)

    with Network(minimal, Slow(minimal, START, ()), dict.fromkeys(SITES, (echo,)), seed=1) as network:
        network.apply_weather(START)
        streams = await connected(network, *SITES)
        began = time.monotonic()
        assert await answers(streams)
        assert time.monotonic() - began >= 0.1
        streams[1].close()


async def test_a_network_must_be_entered_first(minimal: Topology) -> None:
    network = Network(minimal, weather(minimal), dict.fromkeys(SITES, (("127.0.0.1", 1),)), seed=1)
    with pytest.raises(RuntimeError, match="not been entered"):
        network.apply_weather(START)


async def test_a_cut_lasts_long_enough_to_be_noticed(minimal: Topology, echo: Address) -> None:
    with Network(minimal, weather(minimal), dict.fromkeys(SITES, (echo,)), seed=1) as network:
        before = steered(network, least=0.3)
        for hour, cut in ((120, True), (121, True), (167, True), (168, False), (169, False)):
            time = START + dt.timedelta(hours=hour)
            await before(VoyageBarrier(time, BarrierKind.RECORDED, "any step will do"))
            assert bool(network.cut_pairs) == cut, hour
            assert network.seconds_missing(time + dt.timedelta(minutes=1), 9.0) == 0.0, "nothing changes then"
    (cut_then,) = network.cuts
    assert cut_then.seconds >= 0.3
    assert (cut_then.starts, cut_then.ends) == (START + 5 * DAY, START + 7 * DAY)
