"""The page of one container: its chart, its map and its words, from rows."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest

from board.pages.container import Seen, chart_of, concerns_of, gaps_of, map_of, outlook_of, page_values
from board.pages.container import _where as where_of
from board.service import templates
from fairlead.records.reading import newest_inspection
from shore.report.container import ContainerReport, Figures
from shore.report.course import SAMPLED, SET, Interval
from shore.report.entitled import ContainerFeeds
from shore.tables import TABLES
from tests.support.port_story import at, number

BOX = number(100001)
SITES = {
    "tokyo": {"site": "tokyo", "title": "Tokyo", "kind": "port", "un_location_code": "JPTYO"},
    "duck-star": {"site": "duck-star", "title": "MV Duck Star", "kind": "ship", "un_location_code": None},
}


def row_of(table: str, **values: Any) -> dict[str, Any]:
    """Return a row of a table; what is not given is null."""
    names = TABLES[table].plain_schema.names
    assert not set(values) - set(names)
    return dict.fromkeys(names) | values


def report(**values: Any) -> ContainerReport:
    """Return a report about nothing, with these parts."""
    empty: dict[str, Any] = dict.fromkeys(
        ("logs", "excursions", "mkt", "cold_treatments", "custody", "movements", "alerts", "alert_readings", "bookings",
         "quality", "states", "wrong_set_points", "gaps", "rejected", "way", "missing"), ())  # fmt: skip
    empty |= dict.fromkeys(("line", "since", "until", "latest", "booking", "inspection"))
    empty |= {"equipment_reference": BOX, "figures": Figures(), "sites": SITES, "versions": {}}
    return ContainerReport(**(empty | values))


def sample(moment: dt.datetime, segment: int = 0, **values: Any) -> dict[str, Any]:
    return dict.fromkeys((*SAMPLED, *SET)) | {"time": moment, "segment": segment} | values


def seconds(moment: dt.datetime) -> float:
    return moment.timestamp()


def position(moment: dt.datetime, latitude: float, longitude: float, source: str = "OWN") -> dict[str, Any]:
    return {"time": moment, "latitude": latitude, "longitude": longitude, "source": source}


# --- the chart


def test_every_series_has_a_value_or_null_at_every_time() -> None:
    samples = [
        sample(at(1, hour), supply_temperature=2.0, setpoint_temperature=2.0, relative_humidity=80.0, o2=None)
        | ({"return_temperature": 3.0} if hour % 2 else {})
        for hour in range(4)
    ]
    chart = chart_of(samples, report())
    assert chart["times"] == [seconds(at(1, hour)) for hour in range(4)]
    panels = {panel["title"]: panel for panel in chart["panels"]}
    assert list(panels) == ["Temperature", "Humidity"]
    air = {series["label"]: series["values"] for series in panels["Temperature"]["series"]}
    assert air == {"Supply air": [2.0] * 4, "Return air": [None, 3.0, None, 3.0], "Set point": [2.0] * 4}
    assert panels["Humidity"]["band"] is None


def test_the_band_lies_around_the_set_point_and_ends_with_it() -> None:
    samples = [
        sample(at(1), supply_temperature=2.0, setpoint_temperature=2.0),
        sample(at(1, 1), supply_temperature=2.0),
        sample(at(1, 2), supply_temperature=2.0, setpoint_temperature=-18.0),
    ]
    (panel,) = chart_of(samples, report())["panels"]
    assert panel["band"] == {"low": [0.0, None, -20.0], "high": [4.0, None, -16.0]}


def test_a_humidity_set_point_has_a_band_of_its_own() -> None:
    samples = [sample(at(1), relative_humidity=70.0, setpoint_relative_humidity=65.0)]
    (panel,) = chart_of(samples, report())["panels"]
    assert (panel["title"], panel["band"]) == ("Humidity", {"low": [50.0], "high": [80.0]})


@pytest.mark.parametrize(
    ("measured", "titles"),
    [
        ({"supply_temperature": 2.0}, ["Temperature"]),
        ({"cargo_probe2_temperature": 2.0, "ambient_temperature": 30.0}, ["Temperature", "Outside"]),
        ({"o2": 3.0}, ["Gases"]),
        ({"co2": 5.0, "relative_humidity": 60.0}, ["Humidity", "Gases"]),
        ({"setpoint_o2": 3.0, "setpoint_temperature": 2.0, "setpoint_relative_humidity": 60.0}, []),
        ({}, []),
    ],
)
def test_panels_are_there_where_something_was_measured(measured: dict[str, Any], titles: list[str]) -> None:
    assert [panel["title"] for panel in chart_of([sample(at(1), **measured)], report())["panels"]] == titles


def test_no_line_is_drawn_across_a_gap() -> None:
    samples = [
        sample(at(1, 0), 0, supply_temperature=2.0),
        sample(at(1, 1), 0, supply_temperature=2.1),
        sample(at(1, 7), 1, supply_temperature=2.2),
    ]
    gap = Interval(kind="GAP", start=at(1, 1), end=at(1, 7))
    chart = chart_of(samples, report(gaps=(gap,)))
    assert chart["times"] == [seconds(at(1, hour)) for hour in (0, 1, 4, 7)]
    assert chart["panels"][0]["series"][0]["values"] == [2.0, 2.1, None, 2.2]
    assert chart["spans"] == [
        {"from": seconds(at(1, 1)), "to": seconds(at(1, 7)), "kind": "gap", "label": "nothing heard"}
    ]


def test_times_ascend_even_where_two_segments_share_one() -> None:
    samples = [sample(at(1), 0, o2=3.0), sample(at(1), 1, o2=4.0), sample(at(1, 1), 1, o2=5.0)]
    times = chart_of(samples, report())["times"]
    assert times == sorted(set(times))


def test_spans_have_the_kinds_of_the_chart() -> None:
    def state(kind: str, hour: int, detail: str = "") -> Interval:
        return Interval(kind=kind, start=at(1, hour), end=at(1, hour + 1), detail=detail)

    states = tuple(
        state(kind, i) for i, kind in enumerate(("DEFROST", "UNPLUGGED", "NO_POWER", "DOOR_OPEN", "IMMERSED"))
    )
    excursions = tuple(
        row_of("excursions", quantity=quantity, direction=direction, worst_value=worst, start_date_time=at(1, 10 + i),
               end_date_time=at(1, 11 + i))
        for i, (quantity, direction, worst) in enumerate(
            (("TEMPERATURE", "HIGH", 7.9), ("HUMIDITY", "LOW", 40.0), ("POWER", None, None))
        )
    )  # fmt: skip
    found = report(states=states, wrong_set_points=(state("SETPOINT", 6, "set to 5"),), excursions=excursions)
    spans = chart_of([sample(at(1, 0), o2=1.0), sample(at(1, 20), o2=1.0)], found)["spans"]
    assert [(span["kind"], span["label"]) for span in spans] == [
        ("defrost", "defrosting"),
        ("unplugged", "not plugged in"),
        ("unplugged", "plugged in, off"),
        ("other", "door open"),
        ("other", "in water"),
        ("other", "set to 5"),
        ("excursion", "temperature high, worst 7.9 °C"),
        ("excursion", "humidity low, worst 40.0 %"),
    ]


def test_what_the_ship_has_and_the_shore_has_not_is_a_gap_to_the_digest() -> None:
    now = row_of("containers_now", reading_source="DIGEST", reading_date_time=at(1, 9))
    found = report(latest=now, figures=Figures(last_date_time=at(1, 1)))
    chart = chart_of([sample(at(1, 1), supply_temperature=2.0)], found)
    assert chart["times"][-1] == seconds(at(1, 9))
    assert chart["panels"][0]["series"][0]["values"] == [2.0, None]
    (span,) = chart["spans"]
    assert (span["kind"], span["label"]) == ("gap", "not ashore yet: the ship has these readings")
    assert gaps_of(found, {})[0]["why"] == "not ashore yet: the ship has these readings"


def test_a_box_that_measured_nothing_has_an_empty_chart() -> None:
    assert chart_of([], report()) == {"times": [], "panels": [], "spans": []}


# --- the map


def test_a_track_across_the_date_line_stays_one() -> None:
    way = (position(at(1), 10.0, 179.5), position(at(1, 1), 10.1, -179.8), position(at(1, 2), 10.2, -179.0))
    found = map_of(report(way=way))
    assert [track["points"] for track in found["tracks"]] == [[[10.0, 179.5], [10.1, -179.8], [10.2, -179.0]]]
    assert found["links"] == []


def test_a_gap_ends_a_track_and_is_named_where_it_was() -> None:
    way = (position(at(1), 1.0, 103.0), position(at(1, 1), 1.1, 103.1), position(at(2), 5.0, 105.0))
    gap = Interval(kind="GAP", start=at(1, 1), end=at(2))
    found = map_of(report(way=way, gaps=(gap,)))
    assert [len(track["points"]) for track in found["tracks"]] == [2, 1]
    assert found["links"] == [
        {"from": [1.1, 103.1], "to": [5.0, 105.0], "tone": "quiet", "title": "nothing heard for 23 h"}
    ]


def test_own_positions_and_the_ships_are_told_apart() -> None:
    way = (position(at(1), 1.0, 103.0), position(at(1, 1), 1.1, 103.1, "SHIP"), position(at(1, 2), 1.2, 103.2, "SHIP"))
    found = map_of(report(way=way))
    assert [track["name"] for track in found["tracks"]] == ["Own positions", "Positions of the ship that held it"]


def test_ports_alerts_and_the_ship_are_on_the_map() -> None:
    alert = row_of("alerts_now", kind="DOOR_OPEN", state="OPENED", severity="ALARM", opened_date_time=at(1),
                   latitude=1.0, longitude=104.0)  # fmt: skip
    nowhere = alert | {"latitude": None}
    ended = alert | {"state": "CLEARED", "longitude": 105.0}
    ship = row_of("ships_now", vessel_imo_number="9074729", latitude=2.0, longitude=104.0, speed_over_ground=16.0,
                  course_over_ground=45.0, device_date_time=at(2))  # fmt: skip
    now = row_of("containers_now", vessel="MV Duck Star", vessel_imo_number="9074729", latitude=2.0, longitude=104.0)
    custody = (row_of("custody", holder="tokyo", term=1, log="x"),)
    found = map_of(report(alerts=(alert, nowhere, ended), custody=custody, latest=now), ship)
    assert [(port["code"], port["name"], port["href"]) for port in found["ports"]] == [
        ("JPTYO", "Tokyo", "/ports/JPTYO")
    ]
    assert [event["tone"] for event in found["events"]] == ["bad", "quiet"]
    (shown,) = found["ships"]
    assert (shown["id"], shown["name"], shown["course"], shown["seen"]) == (
        "9074729", "MV Duck Star", 45.0, "2026-03-02T00:00:00+00:00",
    )  # fmt: skip


def test_without_a_ship_the_box_itself_is_on_the_map() -> None:
    now = row_of("containers_now", latitude=35.61, longitude=139.79, position_date_time=at(4))
    (event,) = map_of(report(latest=now))["events"]
    assert event["label"] == f"{BOX}, 2026-03-04 00:00 UTC"


# --- the words


def outlook(**values: Any) -> dict[str, Any]:
    base = {"state": "UNPLUGGED", "as_of_date_time": at(2), "since_date_time": at(1), "readings": 20}
    return row_of("outlook", **(base | values))


NOW = row_of("containers_now", reading_date_time=at(2))
SPREAD = {"minutes_left": 200.0, "minutes_left_low": 150.0, "minutes_left_high": 260.0}


def test_minutes_left_come_with_their_spread() -> None:
    found = outlook_of(outlook(**SPREAD), NOW)
    assert found["text"] == "about 3 h 20 min"
    assert found["note"].startswith("2 h 30 min to 4 h 20 min in nine of ten boxes; no power since 2026-03-01 00:00")


@pytest.mark.parametrize("lacking", ["minutes_left", "minutes_left_low", "minutes_left_high"])
def test_there_are_no_minutes_without_enough_data(lacking: str) -> None:
    found = outlook_of(outlook(**(SPREAD | {lacking: None})), NOW)
    assert found["text"] == "not known"
    assert "min" not in found["note"]


def test_an_estimate_from_before_the_newest_reading_is_not_shown_as_one_of_now() -> None:
    found = outlook_of(outlook(**SPREAD, as_of_date_time=at(1)), NOW)
    assert (found["text"], "2026-03-01 00:00" in found["note"], "3 h" in found["note"]) == ("not known", True, False)


def test_other_outlooks() -> None:
    assert outlook_of(None, NOW)["text"] == "not known"
    assert outlook_of(outlook(state=None), NOW)["text"] == "not known"
    assert outlook_of(outlook(state="RUNNING"), NOW)["text"] == "stays"
    left = outlook(minutes_left=0.0, minutes_left_low=0.0, minutes_left_high=0.0)
    assert outlook_of(left, NOW)["text"] == "has left it"


def test_a_gap_says_who_held_the_box() -> None:
    custody = (
        row_of("custody", holder="tokyo", from_date_time=at(1), to_date_time=at(2), term=1, log="x"),
        row_of("custody", holder="duck-star", from_date_time=at(2), term=2, log="x"),
        row_of("custody", holder="tokyo", from_date_time=at(2), term=3, log="x", lost=True),
    )
    gaps = (Interval(kind="GAP", start=at(1, 5), end=at(1, 9)), Interval(kind="GAP", start=at(3), end=at(3, 5)),
            Interval(kind="GAP", start=at(1) - dt.timedelta(hours=5), end=at(1) - dt.timedelta(hours=3)))  # fmt: skip
    found = gaps_of(report(custody=custody, gaps=gaps), {"tokyo": "Tokyo", "duck-star": "MV Duck Star"})
    assert [each["where"] for each in found] == ["aboard MV Duck Star", "at Tokyo", None]


def test_what_is_wrong_counts_open_alerts_and_excursions_of_its_holder() -> None:
    now = row_of("containers_now", held_since=at(2), open_alerts=1, worst_severity="ALARM", setpoint_temperature=5.0,
                 is_connected_to_power_source=False)  # fmt: skip
    alerts = (
        row_of("alerts_now", kind="POWER_LOST", state="UPDATED", acknowledged_by="anna"),
        row_of("alerts_now", kind="DOOR_OPEN", state="CLEARED"),
    )
    excursions = tuple(
        row_of("excursions", quantity="TEMPERATURE", end_date_time=end, minutes_out_of_band=30.0)
        for end in (at(1), at(3))
    )
    booking = {"setpoint_temperature": 2.0, "port_of_loading": None, "port_of_discharge": None}
    assert concerns_of(report(latest=now, alerts=alerts, excursions=excursions, booking=booking)) == (
        "open alerts: POWER_LOST (ALARM), acknowledged by anna",
        "out of band once, 30 min",
        "not plugged in",
        "set to 5.0, agreed 2.0",
    )


@pytest.mark.parametrize(("state", "lost"), [("OPENED", True), ("UPDATED", True), ("CLEARED", False)])
def test_a_box_that_fell_overboard_is_lost_until_the_alert_is_cleared(state: str, lost: bool) -> None:
    fell = row_of("alerts_now", kind="OVERBOARD", state=state, opened_date_time=at(1))
    found = report(latest=NOW, alerts=(fell,))
    values = page_values(Seen(found, None, (), None, (), ContainerFeeds((), ()), at(2), ()))
    assert values["lost"] is lost
    listed = {"gone": False, "vessel": "MV Duck Star", "alert_kinds": ["OVERBOARD"] if lost else []}
    assert where_of(listed) == ("MV Duck Star, lost overboard" if lost else "MV Duck Star")


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ("2026-02-20T08:00:00+09:00", "2026-02-19T23:00:00Z"),
        ("2026-02-20T08:00:00Z", "2026-02-20T08:00:00Z"),
        ("9999-12-31T23:59:59-01:00", "9999-12-31T23:59:59Z"),
    ],
)
def test_an_inspection_is_told_in_utc_whatever_time_zone_the_unit_has(told: str, shown: str) -> None:
    """A time that no calendar can convert stays as it was told, and harms no page."""
    inspected = {"inspectionType": "REMOTE", "inspectionDate": told, "inspectionResult": "PASSED", "expiryDate": told}
    found = report(inspection=newest_inspection([inspected]))
    values = page_values(Seen(found, None, (), None, (), ContainerFeeds((), ()), at(2), ()))
    page = templates().get_template("container_latest.html.j2").render(values)
    assert page.count(f'<time datetime="{shown}">') == 2


def test_silence_is_told_against_the_newest_time_of_the_tables() -> None:
    def silent(as_of: dt.datetime | None) -> float | None:
        seen = Seen(report(latest=NOW), None, (), None, (), ContainerFeeds((), ()), as_of, ())
        found: float | None = page_values(seen)["now"]["silent"]
        return found

    assert silent(at(2, 5)) is None
    assert silent(at(2, 8)) == 480.0
    assert silent(None) is None


def test_the_drawings_are_json_that_no_text_of_an_alert_ends() -> None:
    samples = [sample(at(1), supply_temperature=2.0), sample(at(1, 0, 0) + dt.timedelta(microseconds=500), o2=1.0)]
    alert = row_of("alerts_now", kind="</script><script>", state="OPENED", opened_date_time=at(1), latitude=1.0,
                   longitude=1.0)  # fmt: skip
    found = report(alerts=(alert,), figures=Figures(first_date_time=at(1), last_date_time=at(1)))
    values = page_values(Seen(found, None, (), None, tuple(samples), ContainerFeeds((), ()), None, ()))
    assert json.loads(values["chart_json"]) == chart_of(samples, found)
    assert json.loads(values["map_json"]) == map_of(found)
    assert "<" not in values["map_json"]
