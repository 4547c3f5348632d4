from __future__ import annotations

import random
from collections import Counter

import pytest

from simulators.run import ships
from simulators.scenario_file import load
from simulators.steps import Barrier, BarrierKind
from simulators.voyage import Voyage
from tests.chaos.legs import KILLS, Leg, legs, strikes
from topologies.load import load as load_topology

TOPOLOGY = load_topology("big-blue", env={})


@pytest.fixture(scope="module")
def voyage() -> Voyage:
    return Voyage(load("duck-voyage"), TOPOLOGY, seed=3, containers=12)


@pytest.fixture(scope="module")
def found(voyage: Voyage) -> list[Leg]:
    return legs(voyage.steps(), ships(TOPOLOGY))


def test_a_leg_ends_with_each_departure_and_with_the_voyage(voyage: Voyage, found: list[Leg]) -> None:
    steps = list(voyage.steps())
    calls = {"duck-star": ["tokyo", "singapore", ""], "blue-marlin": ["singapore", ""]}
    assert {ship: [leg.port for leg in found if leg.ship == ship] for ship in calls} == calls
    for leg in found:
        end = steps[leg.last]
        assert isinstance(end, Barrier)
        assert end.kind is (BarrierKind.DEPARTURE if leg.port else BarrierKind.FINISHED)
        assert leg.moves and all(leg.first <= move <= leg.last for move in leg.moves)
    for ship in ships(TOPOLOGY):
        own = [leg for leg in found if leg.ship == ship]
        assert [leg.first for leg in own] == [0, *(leg.last + 1 for leg in own[:-1])]


def test_every_leg_has_its_kills_and_they_strike_within_it(found: list[Leg]) -> None:
    sites, links = list(TOPOLOGY.sites), [("duck-star", "tokyo"), ("blue-marlin", "tokyo"), ("sydney", "tokyo")]
    for seed in range(20):
        planned = strikes(found, sites, links, random.Random(seed))  # noqa: S311
        assert [strike.step for strike in planned] == sorted(strike.step for strike in planned)
        kills = [strike for strike in planned if not strike.peer]
        assert Counter(strike.leg for strike in kills) == dict.fromkeys(range(len(found)), KILLS)
        assert all(found[each.leg].first <= each.step <= found[each.leg].last for each in planned)
        assert all((each.site, each.peer) in links and each.seconds > 0 for each in planned if each.peer)
    assert strikes(found, sites, links, random.Random(1)) == strikes(found, sites, links, random.Random(1))  # noqa: S311
