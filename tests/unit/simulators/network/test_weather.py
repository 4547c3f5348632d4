from __future__ import annotations

import datetime as dt
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from simulators.network.weather import USUAL, LinkTrouble, LinkWeather, carrier_of
from tests.support.simulators.worlds import big_blue
from topologies.loader.load import load
from topologies.model import Link

START = dt.datetime(2026, 5, 4, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)


def link(name: str) -> Link:
    return next(each for each in big_blue().directed_links() if each.name == name)


def trouble(**body: object) -> LinkTrouble:
    return LinkTrouble.model_validate({"starts": "5d", "lasts": "10d", **body})


def weather(*troubles: LinkTrouble) -> LinkWeather:
    return LinkWeather(big_blue(), START, troubles)


def test_the_usual_depends_on_what_carries_a_link() -> None:
    names = ("duck-star->los-angeles", "duck-star->tokyo:berthed", "tokyo->sydney")
    assert [carrier_of(link(name), big_blue()) for name in names] == ["satellite", "berth", "cable"]
    calm = weather()
    satellite, berth, cable = (calm.at(link(name), START) for name in names)
    assert satellite.rate == link(names[0]).rate == 8_000
    assert (satellite.latency, satellite.loss) == (USUAL["satellite"].latency, USUAL["satellite"].loss)
    assert satellite.latency > 239, "no faster than light to a geostationary satellite and back"
    assert cable.loss == 0
    assert berth.up and berth.rate is None


def test_a_link_is_down_from_the_start_of_a_cut_until_its_end() -> None:
    cut = weather(trouble(between=["los-angeles", "duck-star"]))
    each = link("duck-star->los-angeles")
    times = [START + n * DAY for n in (4.99, 5, 14.99, 15)]
    assert [cut.at(each, time).up for time in times] == [True, False, False, True]
    assert cut.at(link("blue-marlin->los-angeles"), times[1]).up
    assert list(cut.outages()) == [(("los-angeles", "duck-star"), START + 5 * DAY, START + 15 * DAY)]


def test_a_site_that_is_cut_loses_every_link() -> None:
    cut = weather(trouble(site="tokyo", lasts="2d"))
    pairs = {frozenset(between) for between, _, _ in cut.outages()}
    others = {"singapore", "sydney", "los-angeles", "ducks-hq", "duck-star", "blue-marlin"}
    assert pairs == {frozenset(("tokyo", other)) for other in others}


def test_a_ship_without_its_satellite_keeps_its_berth() -> None:
    cut = weather(trouble(site="duck-star", carrier="satellite"))
    then = START + 6 * DAY
    assert not cut.at(link("duck-star->los-angeles"), then).up
    assert cut.at(link("duck-star->tokyo:berthed"), then).up
    assert [between for between, _, _ in cut.outages()] == [("duck-star", "los-angeles")]


def test_where_a_pair_has_two_carriers_losing_one_is_no_outage() -> None:
    minimal = load("minimal", env={})
    cut = LinkWeather(minimal, START, [trouble(site="duck-star", carrier="satellite")])
    assert list(cut.outages()) == []
    both = LinkWeather(minimal, START, [trouble(site="duck-star")])
    assert len(list(both.outages())) == 1


def test_trouble_may_degrade_a_link() -> None:
    bad = weather(trouble(between=["duck-star", "los-angeles"], loss=0.1, latency=900, rate="16 kbit/s"))
    now = bad.at(link("duck-star->los-angeles"), START + 6 * DAY)
    assert (now.up, now.loss, now.latency, now.rate) == (True, 0.1, 900, 2_000)
    assert list(bad.outages()) == []


def test_a_storm_over_a_ship_fades_its_satellite_only() -> None:
    storm = LinkWeather(big_blue(), START, (), lambda ship, _: 30.0 if ship == "duck-star" else 0.0)
    faded, clear = (storm.at(link(f"{ship}->los-angeles"), START) for ship in ("duck-star", "blue-marlin"))
    assert (faded.rate or 0) < (clear.rate or 0)
    assert faded.loss > clear.loss
    assert storm.at(link("duck-star->tokyo:berthed"), START) == USUAL["berth"]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), max_size=8), st.floats(0, 80))
def test_outages_are_when_the_link_is_down(spans: list[tuple[int, int]], hours: float) -> None:
    cuts = [trouble(site="duck-star", starts=f"{start}h", lasts=f"{lasts}h") for start, lasts in spans]
    sky = weather(*cuts)
    time = START + dt.timedelta(hours=hours)
    of_pair = [(a, b) for between, a, b in sky.outages() if between == ("duck-star", "los-angeles")]
    assert any(a <= time < b for a, b in of_pair) != sky.at(link("duck-star->los-angeles"), time).up
    assert all(one[1] < other[0] for one, other in pairwise(of_pair))


@pytest.mark.parametrize("body", [{}, {"site": "tokyo", "between": ["tokyo", "sydney"]}, {"site": "tokyo", "loss": 1}])
def test_invalid_trouble_is_refused(body: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        trouble(**body)


def test_a_ship_uses_the_berth_link_in_port() -> None:
    minimal = load("minimal", env={})
    (port,) = (name for name, site in minimal.sites.items() if site.kind == "port")
    berths = {START: port}
    cut = trouble(site="duck-star", starts="1h", lasts="10d", carrier="satellite")
    sky = LinkWeather(minimal, START, [cut], berth=lambda _, time: berths.get(time))
    at_sea = START + 30 * DAY
    assert sky.between("duck-star", port, START).latency == USUAL["berth"].latency
    assert sky.between("duck-star", port, at_sea).latency == USUAL["satellite"].latency
    assert not sky.between("duck-star", port, START + DAY).up, "the satellite fails at sea"
    berths[START + DAY] = port
    assert sky.between("duck-star", port, START + DAY).up, "at the berth nobody needs it"
    assert sky.edges() == {START + dt.timedelta(hours=1), START + dt.timedelta(hours=1) + 10 * DAY}
