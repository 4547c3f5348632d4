"""What the page of a voyage shows, and that it fits into one file."""

from __future__ import annotations

import datetime as dt
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from board.itinerary import CallTimes, Itinerary, ShipCall
from board.pages.voyage import (
    VoyageSources,
    ahead,
    lanes,
    link_history,
    of_ship,
    read_report,
    voyage_document,
    voyage_values,
    zero_counters,
)
from simulators.network.controller import CutPeriod
from simulators.voyage.control import Underway
from tests.support.board import alert
from tests.support.one_file import plain, reaches
from tests.support.simulators.reports import alerts, customer, report
from topologies.loader.load import load

BIG_BLUE = load("big-blue", env={})
STAR, MARLIN = "9074729", "9321483"
START = dt.datetime(2026, 9, 1, tzinfo=dt.UTC)
PANEL: dict[str, Any] = {"alerts": [], "alerts_known": True, "next": ""}


def at(day: float) -> dt.datetime:
    return START + dt.timedelta(days=day)


def call(port: str, voyage: str, arrives: float | None, leaves: float | None, *, planned: float = 0) -> ShipCall:
    return ShipCall(
        port,
        voyage,
        CallTimes(planned=at(planned), expected=at(planned), actual=None if arrives is None else at(arrives)),
        CallTimes(actual=None if leaves is None else at(leaves)),
        loaded=3,
        discharged=2,
    )


SAILING = Itinerary(
    STAR,
    (
        call("JPTYO", "001", 1, 2),
        call("SGSIN", "002", 9, 10, planned=8.5),
        call("AUSYD", "003", None, None, planned=20),
    ),
    ((35.6, 139.8), (20.0, 125.0), (1.3, 103.8)),
    at(0),
    at(12),
)
"""The Duck Star has left Tokyo and Singapore, and is bound for Sydney."""


def page(given: VoyageSources) -> str:
    return voyage_document(given, PANEL)


# --- links


def test_links_at_a_berth_are_open_while_the_ship_is_there_and_cuts_are_shown() -> None:
    cut = CutPeriod(("duck-star", "los-angeles"), at(3), at(4), 5.0)
    found = link_history(BIG_BLUE, [SAILING], [cut], at(12))
    tokyo = next(each for each in found.timelines if each.title == "MV Duck Star and Port of Tokyo")
    assert [(span.start, span.end, span.tone) for span in tokyo.spans] == [(at(1), at(2), "good")]
    assert not tokyo.is_open
    assert (tokyo.spans[0].left, tokyo.spans[0].width) == pytest.approx((100 / 12, 100 / 12), abs=0.01)
    home = next(each for each in found.timelines if each.title == "MV Duck Star and Big Blue headquarters")
    assert [(span.tone, span.start, span.end) for span in home.spans] == [
        ("good", at(0), at(12)), ("bad", at(3), at(4)),
    ]  # fmt: skip
    assert home.is_open
    assert [(each.time, each.what) for each in found.changes] == [
        (at(10), "closed"), (at(9), "open"), (at(4), "back"), (at(3), "cut"), (at(2), "closed"), (at(1), "open"),
    ]  # fmt: skip
    assert found.never  # Sydney, and the berths of the other ship
    assert found.ashore


def test_a_link_that_is_cut_now_is_not_open() -> None:
    cut = CutPeriod(("duck-star", "los-angeles"), at(3), at(12), 5.0)
    found = link_history(BIG_BLUE, [SAILING], [cut], at(12))
    (home,) = [each for each in found.timelines if each.policy == "always" and "Duck Star" in each.title]
    assert not home.is_open
    assert [each.what for each in found.changes if each.title == home.title] == ["cut"]


def test_a_ship_that_was_there_from_the_beginning_has_its_link_open_from_then() -> None:
    begun = Itinerary(STAR, (call("JPTYO", "001", None, 2),), (), at(0.5), at(3))
    found = link_history(BIG_BLUE, [begun], (), at(3), STAR)
    (berth,) = [each for each in found.timelines if each.policy == "at berth"]
    assert [(span.start, span.end) for span in berth.spans] == [(at(0.5), at(2))]


def test_without_any_time_there_are_no_timelines() -> None:
    assert link_history(BIG_BLUE, [], (), None).timelines == ()
    assert link_history(BIG_BLUE, [Itinerary(STAR)], (), at(1)).timelines == ()


# --- what must stay zero


def fleet(**bridge: Any) -> dict[str, Any]:
    none: dict[str, Any] = {"bridge": None, "logs_in_trouble": {}, "overtaken": []}
    trouble = {"containers.X": {"state": "diverged"}, "containers.Y": {"state": "paused"}}
    return {
        "sites": [
            {**none, "bridge": bridge, "overtaken": [{"records": 7}]},
            {**none, "logs_in_trouble": trouble},
        ]
    }


def test_counters_say_what_the_sites_tell_and_what_only_the_end_tells() -> None:
    found = {each.name: each for each in zero_counters(fleet(mqtt_dropped=2, dead_letters=1), None, underway=True)}
    assert found["Lost before their log"].value == 3
    assert found["Deleted too early"].value == 7
    assert found["Logs in conflict"].value == 1  # a log that an operator has paused lacks nothing
    assert (found["Logs with two writers"].value, found["Logs with two writers"].tone) == (0, "good")
    assert (found["Readings lost"].value, found["Readings lost"].tone) == (None, "quiet")


def test_counters_of_a_good_voyage_are_zero_and_each_wrong_one_is_not() -> None:
    assert not any(each.value for each in zero_counters(None, report()))
    wrong: dict[str, dict[str, object]] = {
        "Readings lost": {"readings_lost": 1},
        "Readings stored twice": {"readings_repeated": 1},
        "Logs that differ": {"logs_differing": 1},
        "Rows missing in tables": {"delta_rows": 99},
        "Seen by the wrong eyes": {"customers": {"ducks": customer(foreign_read=1)}},
        "False alerts": {"false_alerts": 1},
    }
    for name, changes in wrong.items():
        bad = [each.name for each in zero_counters(None, report(**changes)) if each.tone == "bad"]
        assert bad == [name]


def test_sites_that_nobody_can_ask_are_not_called_good() -> None:
    assert all(each.value is None for each in zero_counters(None, None, underway=True))
    assert len(zero_counters(None, None)) < len(zero_counters(None, None, underway=True))  # nobody will count the rest


# --- ships and the map


def test_the_way_ahead_follows_the_sea_and_ends_with_the_voyage() -> None:
    assert ahead(SAILING) == [("SGSIN", "AUSYD")]
    ways = lanes(ahead(SAILING))
    assert len(ways["SGSIN", "AUSYD"]) > 5
    assert lanes([("SGSIN", "XXXXX")]) == {}
    drawn = voyage_values(VoyageSources(BIG_BLUE, (SAILING,), ways=ways))["map"]
    assert [(each["name"], each.get("planned", False)) for each in drawn["tracks"]] == [
        ("MV Duck Star, planned: SGSIN to AUSYD", True),
        ("MV Duck Star", False),
    ]
    assert [each["name"] for each in drawn["ports"]] == ["Port of Sydney", "Port of Tokyo", "Port of Singapore"]


def test_a_ships_own_page_has_its_legs_with_what_the_table_knows() -> None:
    row = {"vessel_imo_number": STAR, "departure_date_time": at(2), "distance": 2900.0, "mean_speed": 17.3}
    row |= {"gaps": 0, "gap_minutes": 0.0}
    given = VoyageSources(BIG_BLUE, (SAILING, Itinerary(MARLIN)), legs=(row, row | {"vessel_imo_number": MARLIN}))
    values = voyage_values(given, STAR)
    assert values["title"] == "MV Duck Star"
    (ship,) = values["ships"]
    assert [(leg.state, leg.row) for leg in ship.legs] == [("sailed", row), ("under way", None)]
    assert ship.now == ("bound for Port of Sydney", "good")


def test_an_alert_concerns_the_ship_that_raised_it_or_that_it_names() -> None:
    assert of_ship(BIG_BLUE, STAR, alert("duck-star"))
    assert of_ship(BIG_BLUE, STAR, alert("tokyo", vessel_imo_number=STAR))
    assert not of_ship(BIG_BLUE, STAR, alert("tokyo", vessel_imo_number=MARLIN))


# --- the page


def test_a_page_on_which_nothing_is_known_yet_has_a_map_for_what_comes() -> None:
    html = page(VoyageSources(BIG_BLUE))
    assert '<div class="map" data-map="voyage-map"' in html
    assert "No ship has told where it is" in plain(html)


def test_a_voyage_under_way_says_where_it_is_and_what_is_not_counted_yet() -> None:
    now = Underway(
        pid=1,
        scenario="duck-voyage",
        paused=False,
        phase="publishing",
        sim_time=at(11),
        published=1200,
        acknowledged=1190,
    )
    told = plain(page(VoyageSources(BIG_BLUE, (SAILING,), underway=now)))
    assert "sails duck-voyage, 2026-09-12 00:00 aboard: publishing" in told
    assert "1,190 acknowledged by a broker" in told
    assert re.search(r"Readings lost . not known counted at the voyage's end", told.replace("&#39;", "'"))
    assert "12 h later" in told  # Singapore
    assert "Results" not in told


def test_the_page_of_a_voyage_marks_false_lines_and_has_all_figures() -> None:
    good = report(customers={"ducks": customer(), "yellow": customer(alerts=alerts())})
    html = page(VoyageSources(BIG_BLUE, (SAILING,), report=good))
    told = plain(html)
    assert "FALSE" not in html
    assert "Every line is true." in told
    assert "Digest against bulk" in told
    assert "true duck-star, tokyo to singapore 2 1,300 650 40 40 0.00" in told
    assert "Alerts of customers" in told
    assert "true yellow 2 3 3 0 0" in told
    assert "Roll calls" in told
    assert "BIGU1000016 1 720 min" in told
    bad = page(VoyageSources(BIG_BLUE, report=report(readings_lost=1, readings_in_logs=99)))
    assert "FALSE" in bad
    assert "At least one line is false." in plain(bad)
    bare = plain(page(VoyageSources(BIG_BLUE, report=report(digests=(), roll_calls=()))))
    for absent in ("Digest against bulk", "Roll calls", "Alerts of customers"):
        assert absent not in bare


def test_the_page_is_one_file_that_draws_and_reaches_nothing() -> None:
    air = {"label": "Supply air", "tone": "", "values": [5, 6]}
    chart = {
        "times": [at(1).timestamp(), at(2).timestamp()],
        "panels": [{"title": "Temperature", "unit": "°C", "band": None, "series": [air]}],
        "spans": [],
        "marks": [{"time": at(1).timestamp(), "label": "LOAD JPTYO"}],
    }
    made = report(chart_container="BIGU1000016")
    html = page(VoyageSources(BIG_BLUE, (SAILING,), report=made, chart=chart))
    assert "Temperatures of BIGU1000016" in html
    assert "LOAD JPTYO" in plain(html)
    assert reaches(html) == []
    assert "default-src 'none'" in html
    data = re.search(r'<script type="application/json" id="voyage-map">(.*?)</script>', html)
    assert data is not None
    assert [each["name"] for each in json.loads(data[1])["tracks"]] == ["MV Duck Star"]


# --- the report


def test_the_boards_report_is_the_voyages_own(tmp_path: Path) -> None:
    file = tmp_path / "voyage.json"
    assert read_report(file) is None
    file.write_bytes(report().to_json())
    assert read_report(file) == report()
    file.write_bytes(msgspec.json.encode({"topology": "of another version"}))
    assert read_report(file) is None
