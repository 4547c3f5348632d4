from __future__ import annotations

import datetime as dt
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.errors import ConfigurationError
from simulators.fleet import scenario_file
from simulators.fleet.planner import make_plan
from tests.support.examples import examples
from tests.support.simulators.worlds import TRANSHIPMENT, big_blue, ducks, transhipment
from topologies.loader.load import load as load_topology

HOUR = dt.timedelta(hours=1)


@given(st.integers(0, 2**32), st.integers(10, 400))
@settings(max_examples=examples(15), deadline=None)
def test_only_the_holder_publishes_a_move(seed: int, containers: int) -> None:
    plan = make_plan(ducks().rescaled(containers), big_blue(), seed)
    assert len({box.number for box in plan.boxes}) == containers
    for box in plan.boxes:
        assert box.moves[0].code == "GTIN"
        assert box.moves[0].time >= plan.starts
        assert box.moves[-1].time < plan.ends
        holder = box.moves[0].site
        for one, other in pairwise(box.moves):
            assert one.time < other.time
        for move in box.moves:
            assert move.site == holder
            holder = move.to or ""
            assert box.holder(move.time) == move.to
        assert box.holder(box.moves[0].time - HOUR) is None


def test_ships_move_boxes_only_at_the_berth() -> None:
    plan = make_plan(ducks(), big_blue(), 1)
    handled = 0
    for work in plan.works:
        table = plan.timetables[work.ship]
        for box in (*work.discharged, *work.loaded):
            for move in box.moves:
                if move in work:
                    handled += 1
                    assert table.berthed_at(move.time) == work.call.port
                    assert work.call.arrives < move.time < work.call.departs
    assert handled == sum(move.code in ("LOAD", "DISC") for box in plan.boxes for move in box.moves)


def test_boxes_change_ships() -> None:
    plan = make_plan(transhipment(), big_blue(), 1)
    for box in plan.boxes:
        codes = [(move.code, move.site) for move in box.moves]
        assert codes == [
            ("GTIN", "tokyo"),
            ("LOAD", "tokyo"),
            ("DISC", "duck-star"),
            ("LOAD", "singapore"),
            ("DISC", "blue-marlin"),
            ("GTOT", "sydney"),
        ]
        assert box.destination == "AUSYD"


def test_a_missed_connection_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match=r"lot ducks misses its connection.*blue-marlin at singapore"):
        make_plan(transhipment(**{"first_arrival: 11d": "first_arrival: 3d"}), big_blue(), 1)


def test_a_fault_before_the_ship_has_sailed_is_an_error() -> None:
    fault = "faults:\n  - { kind: overboard, ship: duck-star, lot: ducks, containers: 1, before: singapore, by: 20d }\n"
    with pytest.raises(ConfigurationError, match="fault overboard cannot happen"):
        make_plan(scenario_file.parse(TRANSHIPMENT + fault, "mine.yaml"), big_blue(), 1)


def test_a_lost_box_has_no_later_moves() -> None:
    plan = make_plan(ducks(), big_blue(), 7)
    fallen = [box for box in plan.boxes if box.falls]
    assert len(fallen) == 4
    for box in fallen:
        assert [move.code for move in box.moves] == ["GTIN", "LOAD"]
        assert box.released is None
        assert box.unit.on_deck
        assert plan.timetables["duck-star"].berthed_at(box.falls or plan.starts) is None
    assert plan.chart_box() not in fallen
    assert plan.chart_box().lot.customer == "ducks"


def test_customers_are_entitled_from_load_to_release() -> None:
    plan = make_plan(ducks(), big_blue(), 7)
    box = next(b for b in plan.boxes if b.lot_name == "ducks-for-local-shops")
    load = box.first_load.time
    assert box.released is not None
    assert [box.entitled(t) for t in (load - HOUR, load, box.released - HOUR, box.released)] == [
        None,
        "ducks",
        "ducks",
        None,
    ]
    assert box.moves[-1].time > box.released, "it carries something else before it leaves"
    waiting = next(b for b in plan.boxes if b.lot_name == "ducks-for-london")
    assert waiting.moves[-1].code == "DISC"
    assert waiting.entitled(plan.ends) == "ducks"


def test_no_ship_carries_more_than_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = scenario_file.load("busy-loop")
    topology = load_topology(loop.topology, env={})
    monkeypatch.setattr("simulators.fleet.planner.SHIP_TAKES", 500)
    plan = make_plan(loop.rescaled(1_000), topology, 7)
    assert len({move.to for box in plan.boxes for move in box.moves if move.code == "LOAD"}) == 6
    with pytest.raises(ConfigurationError, match="boxes at once, and a ship takes 500 at most") as error:
        make_plan(loop.rescaled(100_000), topology, 7)
    most = error.value.fields["most"]
    assert f"--containers 1 to {most}" in error.value.hint
    plan = make_plan(loop.rescaled(most - 10), topology, 7)
    aboard: Counter[str] = Counter()
    fullest = 0
    moves = sorted((m.time, m.code, m.site, m.to or "") for b in plan.boxes for m in b.moves)
    for _, code, site, to in moves:
        aboard[to if code == "LOAD" else site] += {"LOAD": 1, "DISC": -1}.get(code, 0)
        fullest = max(fullest, max(aboard.values()))
    assert 450 < fullest <= 500
