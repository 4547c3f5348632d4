"""The shipped scenario of one port: a ship that goes out and comes back, and boxes that stay aboard."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.errors import ConfigurationError
from simulators.fleet import routes, scenario_file
from simulators.fleet.planner import check_fit, make_plan
from simulators.fleet.routes import Passage
from simulators.fleet.scenario import Scenario
from simulators.fleet.scenario_file import ScenarioError
from simulators.fleet.timetable import MOORED, UNDER_WAY, timetable
from simulators.voyage.voyage import Voyage
from tests.support.examples import examples
from tests.support.simulators.worlds import published
from topologies.loader.load import load as load_topology
from topologies.model import Topology

HOUR = dt.timedelta(hours=1)
START = dt.datetime(2026, 9, 1, tzinfo=dt.UTC)


@cache
def minimal() -> Topology:
    return load_topology("minimal", env={})


@cache
def text() -> str:
    from importlib import resources

    return resources.files("simulators.scenarios").joinpath("harbour.yaml").read_text(encoding="utf-8")


def harbour(**replaced: str) -> Scenario:
    """The shipped scenario, or one that differs: ``harbour(**{"at_sea: 24h": "at_sea: 3h"})``."""
    changed = text()
    for old, new in replaced.items():
        assert old in changed
        changed = changed.replace(old, new)
    return scenario_file.parse(changed, "mine.yaml")


def test_the_harbour_scenario_fits_its_topology() -> None:
    check_fit(harbour(), minimal())
    voyage = Voyage(harbour(), minimal(), seed=7)
    assert harbour().containers == 10
    assert dt.timedelta(days=3) < voyage.ends - voyage.starts < dt.timedelta(days=4)
    assert 800 < len(published(voyage.steps())) < 2500


def test_the_ship_goes_out_and_comes_back() -> None:
    table = timetable("duck-star", harbour().ships["duck-star"], minimal(), START)
    out, back = table.calls
    assert (out.port, back.port) == ("tokyo", "tokyo")
    assert abs(back.arrives - out.departs - 24 * HOUR) <= dt.timedelta(seconds=1)
    assert table.berthed_at(out.departs + HOUR) is None
    assert table.berthed_at(back.arrives) == "tokyo"
    tokyo = routes.port("JPTYO")
    hours = [table.at(out.departs + n * HOUR) for n in range(25)]
    assert [status for _, status in hours] == [*[UNDER_WAY] * 24, MOORED]
    away = [routes.distance(fix.point, tokyo) for fix, _ in hours]
    assert away[0] < 0.1 > away[-1]
    assert max(away) > 60
    assert all(routes.distance(a.point, b.point) <= 16.01 for (a, _), (b, _) in pairwise(hours))


@given(st.sampled_from(["JPTYO", "SGSIN", "AUSYD", "USLAX", "NLRTM"]), st.integers(5, 14 * 24 * 60), st.floats(5, 25))
@settings(deadline=None)
def test_a_round_trip_takes_the_wanted_time(port: str, minutes: int, speed: float) -> None:
    wanted = dt.timedelta(minutes=minutes)
    passage = Passage(routes.round_trip(port, wanted, speed), START, speed)
    assert abs(passage.duration - wanted) < dt.timedelta(seconds=1)
    assert routes.distance(passage.at(START).point, routes.port(port)) < 0.01
    assert routes.distance(passage.at(passage.arrives).point, routes.port(port)) < 0.01


def test_a_round_trip_beyond_every_sea_lane_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="longer than any sea lane"):
        routes.round_trip("JPTYO", dt.timedelta(days=365), 18)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (", at_sea: 24h", "", "calls at tokyo twice in a row"),
        ("stay: 18h }", "stay: 18h, at_sea: 24h }", "for a ship that calls there again next"),
        ("{ port: tokyo, stay: 18h }", "{ port: yokohama, stay: 18h }", "for a ship that calls there again next"),
        ("at_sea: 24h", "at_sea: 0h", "above zero"),
        ("at_sea: 24h", "at_see: 24h", "did you mean 'at_sea'?"),
        ("afterwards: aboard }", "afterwards: aboard, released_after: 2h }", "these boxes stay aboard"),
    ],
)
def test_a_mistake_is_reported(old: str, new: str, expected: str) -> None:
    with pytest.raises(ScenarioError, match=expected):
        harbour(**{old: new})


@given(st.integers(0, 2**32))
@settings(max_examples=examples(10), deadline=None)
def test_some_boxes_leave_and_the_others_stay_aboard(seed: int) -> None:
    plan = make_plan(harbour(), minimal(), seed)
    codes = Counter("-".join(move.code for move in box.moves) for box in plan.boxes)
    assert codes == {"GTIN-LOAD-DISC-GTOT": 6, "GTIN-LOAD": 4}
    for box in plan.boxes:
        stays = box.lot.afterwards == "aboard"
        assert box.holder(plan.ends) == ("duck-star" if stays or box.falls else None)
        if stays and box.lot.customer:
            assert box.entitled(plan.ends) == "ducks"
    assert sum(box.falls is not None for box in plan.boxes) == 1


def test_a_failure_of_a_box_that_stays_aboard_lasts_to_the_end() -> None:
    fault = (
        "  - { kind: reefer-failure, ship: duck-star, lot: apples-that-stay-aboard, containers: 1, before: tokyo, "
        "by: 3h }\n"
    )
    plan = make_plan(scenario_file.parse(text() + fault, "mine.yaml"), minimal(), 7)
    box = next(box for box in plan.boxes if box.lot_name == "apples-that-stay-aboard")
    ((start, end),) = box.failures
    assert start == plan.timetables["duck-star"].calls[1].arrives - 3 * HOUR
    assert end > plan.ends


def test_a_box_may_make_two_round_trips() -> None:
    twice = harbour(
        **{
            "at_sea: 24h }": "at_sea: 24h }\n      - { port: tokyo, stay: 12h, at_sea: 6h }"
            "\n      - { port: tokyo, stay: 12h, at_sea: 6h }",
            "containers: 2, route: [tokyo, duck-star, tokyo], gate_in": "containers: 2, "
            "route: [tokyo, duck-star, tokyo, duck-star, tokyo], gate_in",
        }
    )
    plan = make_plan(twice, minimal(), 7)
    fish = next(box for box in plan.boxes if box.lot_name == "fish-for-tokyo")
    assert [move.code for move in fish.moves] == ["GTIN", "LOAD", "DISC", "LOAD", "DISC", "GTOT"]
    assert [move.voyage for move in fish.moves] == [None, "001", "002", "003", "004", None]
