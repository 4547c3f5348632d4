from __future__ import annotations

import datetime as dt
import math
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fairlead.errors import ConfigurationError, UnknownNameError
from simulators.fleet import routes
from simulators.fleet.routes import Passage, Point
from simulators.fleet.scenario_file import load
from simulators.fleet.timetable import AT_ANCHOR, UNDER_WAY, timetable
from simulators.physics import climate
from topologies.loader.load import load as load_topology

START = dt.datetime(2026, 9, 1, tzinfo=dt.UTC)
PORTS = ["JPTYO", "SGSIN", "AUSYD", "USLAX", "NLRTM"]
points = st.builds(Point, st.floats(-89, 89), st.floats(-180, 179.99))
pairs = st.lists(st.sampled_from(PORTS), min_size=2, max_size=2, unique=True)
times = st.integers(0, 20 * 365 * 24 * 60).map(lambda minutes: START + dt.timedelta(minutes=minutes))


@pytest.mark.parametrize(
    ("origin", "destination", "miles"),
    [("JPTYO", "SGSIN", 2952), ("JPTYO", "AUSYD", 4375), ("JPTYO", "USLAX", 4931), ("SGSIN", "NLRTM", 8365)],
)
def test_routes_have_the_lengths_of_the_sea_lanes(origin: str, destination: str, miles: float) -> None:
    assert routes.route(origin, destination).length == pytest.approx(miles, rel=0.02)


@given(pairs, st.floats(0, 1), st.floats(8, 30))
def test_a_position_at_sea_is_valid(ends: list[str], share: float, speed: float) -> None:
    passage = Passage(routes.route(ends[0], ends[1]), START, speed)
    fix = passage.at(START + share * passage.duration)
    assert all(map(math.isfinite, (*fix.point, fix.speed, fix.course)))
    assert -90 <= fix.point.latitude <= 90
    assert -180 <= fix.point.longitude < 180
    assert 0 <= fix.speed <= speed
    assert 0 <= fix.course < 360


@given(pairs)
def test_a_passage_leads_from_port_to_port_at_its_speed(ends: list[str]) -> None:
    passage = Passage(routes.route(ends[0], ends[1]), START, 18)
    assert routes.distance(passage.at(START).point, routes.port(ends[0])) < 0.01
    assert routes.distance(passage.at(passage.arrives).point, routes.port(ends[1])) < 0.01
    assert passage.at(START - dt.timedelta(days=1)).speed == 0
    hours = int(passage.duration / dt.timedelta(hours=1))
    fixes = [passage.at(START + dt.timedelta(hours=h)).point for h in range(hours)]
    assert all(routes.distance(a, b) <= 18.01 for a, b in pairwise(fixes))


@given(points, st.floats(0, 359.9), st.floats(0.01, 5000))
def test_a_destination_is_as_far_away_as_asked(start: Point, course: float, miles: float) -> None:
    end = routes.destination(start, course, miles)
    assert routes.distance(start, end) == pytest.approx(miles, rel=1e-6, abs=1e-4)


@given(points, points)
def test_a_bearing_leads_to_the_other_point(a: Point, b: Point) -> None:
    miles = routes.distance(a, b)
    reached = routes.destination(a, routes.bearing(a, b), miles)
    assert routes.distance(reached, b) < 0.01


@given(pairs, st.floats(0, 0.999))
def test_the_course_is_where_the_ship_goes_next(ends: list[str], share: float) -> None:
    """A great circle changes its course on the way, by more than ten degrees on a long leg."""
    way = routes.route(ends[0], ends[1])
    point, course = way.at(share * way.length)
    leg = next(number for number, end in enumerate(way.along[1:]) if end > share * way.length)
    assume(way.along[leg + 1] - share * way.length > 1.0)  # a mile: a bearing to a point close by says nothing
    off = (course - routes.bearing(point, way.points[leg + 1]) + 180) % 360 - 180
    assert abs(off) < 0.01


def test_at_its_end_a_route_keeps_its_last_course() -> None:
    way = routes.route("JPTYO", "USLAX")
    assert way.at(way.length)[1] == pytest.approx(way.at(way.length - 0.5)[1], abs=0.1)


def test_a_ship_anchors_before_a_closed_port_without_a_jump() -> None:
    shipped = load("port-strike")
    topology = load_topology(shipped.topology, env={})
    times = [timetable(name, ship, topology, shipped.start, shipped.closures) for name, ship in shipped.ships.items()]
    waits = [(table, call) for table in times for call in table.calls if call.number and call.arrives > call.comes]
    assert waits
    for table, call in waits:
        minutes = [call.comes + dt.timedelta(minutes=minute) for minute in range(-120, 60)]
        fixes = [table.at(time) for time in minutes]
        assert all(routes.distance(a[0].point, b[0].point) < 0.5 for a, b in pairwise(fixes))
        assert [status for _, status in fixes] == sorted(
            (status for _, status in fixes), key=[UNDER_WAY, AT_ANCHOR].index
        )


@pytest.mark.parametrize("unlocode", ["USBOS", "MOMAC"])
def test_a_port_that_a_seachart_has_is_known(unlocode: str) -> None:
    """searoute's own graph lacks Boston, and has one of two ports with the same position."""
    assert routes.distance(routes.route(unlocode, "JPTYO").at(0.0)[0], routes.port(unlocode)) < 0.01


def test_an_unknown_port_names_the_ports_of_its_country() -> None:
    with pytest.raises(UnknownNameError, match="JPTY0") as error:
        routes.port("JPTY0")
    assert error.value.fields["nearest"] == "JPTYO"


def test_no_route_to_the_same_port() -> None:
    with pytest.raises(ConfigurationError, match="JPTYO to itself"):
        routes.route("JPTYO", "JPTYO")


@given(points, times, st.booleans())
def test_weather_stays_within_bounds(place: Point, time: dt.datetime, ashore: bool) -> None:
    assert -75 < climate.air_temperature(place, time, ashore=ashore) < 45
    assert -2 < climate.sea_temperature(place, time) < 35
    assert 0 <= climate.solar_gain(place, time) <= 9
    storm = climate.Storm(time, 16.0, 11.0)
    calm, gale = climate.wind_speed(place, time), climate.wind_speed(place, time, (storm,))
    assert 0 < calm < gale < 35
    assert 0.6 < climate.wave_height(calm) < climate.wave_height(gale) < 25
    assert 920 < climate.air_pressure(gale) < climate.air_pressure(calm) < 1025


def test_summer_is_warmer_than_winter_and_noon_than_night() -> None:
    tokyo = Point(35.6, 139.8)
    noon, night = dt.datetime(2026, 7, 20, 4, tzinfo=dt.UTC), dt.datetime(2026, 7, 20, 16, tzinfo=dt.UTC)
    winter = dt.datetime(2026, 1, 20, 4, tzinfo=dt.UTC)
    warm = climate.air_temperature(tokyo, noon, ashore=True)
    assert warm > climate.air_temperature(tokyo, night, ashore=True) + 3
    assert warm > climate.air_temperature(tokyo, winter, ashore=True) + 10
    assert climate.solar_gain(tokyo, night) == 0 < climate.solar_gain(tokyo, noon)


def test_a_storm_with_a_centre_is_half_as_strong_at_its_radius() -> None:
    tokyo = Point(35.6, 139.8)
    storm = climate.Storm(START, 30.0, 12.0, tokyo, radius=200.0)
    assert storm.at(tokyo, START) == 30
    assert storm.at(routes.destination(tokyo, 180, 200), START) == pytest.approx(15, rel=0.01)
    assert storm.at(routes.destination(tokyo, 180, 1500), START) < 0.1
    assert climate.Storm(START, 30.0, 12.0).at(routes.destination(tokyo, 180, 1500), START) == 30


@given(points, times)
def test_it_is_warmer_below_deck(place: Point, time: dt.datetime) -> None:
    assert climate.hold_temperature(place, time) > climate.air_temperature(place, time, ashore=False)
