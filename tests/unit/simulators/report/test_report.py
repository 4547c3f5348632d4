"""A line of the report is true only if its figures are, in all three forms."""

from __future__ import annotations

import datetime as dt
import io
import json
from collections import Counter

import msgspec
import pytest
from rich.console import Console

from simulators.report.counting import LogCount, count_readings
from simulators.report.model import CustomerFigures, LinkFigures, Report, as_table
from simulators.report.page import MapPlace, PageData, TemperaturePoint, TrackPoint, render
from simulators.steps import ReadingId
from simulators.voyage.waiting import AheadOfShip


def customer(**changes: object) -> CustomerFigures:
    good = CustomerFigures(entitled=5, read=5, repeated=0, foreign_read=0, refused=("read containers.*",))
    return msgspec.structs.replace(good, **changes)


def report(**changes: object) -> Report:
    good = Report(
        topology="big-blue",
        scenario="duck-voyage",
        seed=7,
        starts=dt.datetime(2026, 9, 1, tzinfo=dt.UTC),
        containers=200,
        readings_published=100,
        readings_in_logs=100,
        readings_lost=0,
        readings_repeated=0,
        repeats_sent=3,
        overboard=("BIGU1000016",),
        overboard_alerts=1,
        false_alerts=0,
        logs_compared=10,
        logs_differing=0,
        delta_rows=100,
        delta_rows_expected=100,
        condition_rows=5,
        tables_equal=("readings + readings_rejected", "conditions"),
        alert_seconds={"tokyo": 0.4},
        customers={"ducks": customer()},
        links=(LinkFigures(name="tokyo->sydney", records=1, bytes=2, lag=0, state="mirroring"),),
        seconds={"voyage": 10.0},
        versions={"kafka": "4.3.1"},
    )
    return msgspec.structs.replace(good, **changes)


ARRIVAL = AheadOfShip(
    ship="duck-star",
    port="singapore",
    at=dt.datetime(2026, 9, 9, 14, tzinfo=dt.UTC),
    ashore=5120,
    ashore_here=5120,
    own=310,
    own_here=310,
    boxes=9800,
    boxes_here=4100,
    seconds=0.8,
)


@pytest.mark.parametrize(
    "changes",
    [
        {"arrivals": (ARRIVAL, msgspec.structs.replace(ARRIVAL, ashore_here=5119))},
        {"arrivals": (msgspec.structs.replace(ARRIVAL, own_here=0, missing="alerts.duck-star: 0 of 310"),)},
        {"readings_published": 0, "readings_in_logs": 0},
        {"readings_in_logs": 99, "readings_lost": 1},
        {"readings_repeated": 1},
        {"logs_differing": 1},
        {"logs_compared": 0},
        {"delta_rows": 99},
        {"delta_rows": 0, "delta_rows_expected": 0},
        {"condition_rows": 0},
        {"tables_equal": ()},
        {"tables_different": ("events",)},
        {"tables_not_compared": ("events",)},
        {"overboard_alerts": 0},
        {"false_alerts": 1},
        {"alert_seconds": {"tokyo": 0.4, "sydney": None}},
        {"links": (LinkFigures(name="tokyo->sydney", records=1, bytes=2, lag=3, state="mirroring"),)},
        {"customers": {"ducks": customer(read=4)}},
        {"customers": {"ducks": customer(repeated=1)}},
        {"customers": {"ducks": customer(foreign_read=1)}},
        {"customers": {"ducks": customer(wrongly_allowed=("write",))}},
        {"customers": {"ducks": customer(refused=())}},
    ],
)
def test_each_false_figure_fails_the_report(changes: dict[str, object]) -> None:
    bad = report(**changes)
    assert not bad.ok
    assert sum(not line.ok for line in bad.lines()) >= 1


def test_the_next_port_was_up_to_date_before_the_ship_arrived() -> None:
    """Text and page say so; a link that the scenario cuts excuses what is missing, and is named."""
    shown = (
        "5,120 of 5,120 records known ashore, 310 of 310 of the ship&#39;s alerts, positions and custody, "
        "the last 0.8 s later; 4,100 of 9,800 of its boxes"
    )
    good = report(arrivals=(ARRIVAL,))
    assert good.ok and shown in render(good, PageData())
    (line,) = [each for each in good.lines() if each.what.startswith("singapore up to date before duck-star arrives")]
    assert line.value == shown.replace("&#39;", "'") and line.what.endswith("09 Sep 14:00")
    cut = report(
        arrivals=(msgspec.structs.replace(ARRIVAL, own_here=0, cut=True, missing="alerts.duck-star: 0 of 310"),)
    )
    assert cut.ok
    assert any(each.value.endswith("missing alerts.duck-star: 0 of 310; a link was cut") for each in cut.lines())


def test_json_has_the_promised_keys() -> None:
    body = json.loads(report().to_json())
    promised = {
        "ok", "readings_published", "readings_lost", "readings_repeated", "logs_compared", "logs_differing",
        "delta_rows", "delta_rows_expected", "alert_seconds", "customers",
    }  # fmt: skip
    assert promised <= body.keys()
    assert {"entitled", "read", "foreign_read", "refused"} <= body["customers"]["ducks"].keys()
    assert body["ok"] is True


def test_table_and_page_mark_the_false_line() -> None:
    bad = report(readings_lost=1, readings_in_logs=99)
    console = Console(width=120, file=io.StringIO())
    with console.capture() as shown:
        console.print(as_table(bad))
    assert "FALSE" in shown.get()
    assert "FALSE" in render(bad, PageData())
    assert "FALSE" not in render(report(), PageData())


def test_page_draws_map_and_chart_without_network() -> None:
    start = dt.datetime(2026, 9, 1, tzinfo=dt.UTC)
    hours = [start + dt.timedelta(hours=i) for i in range(5)]
    page = render(
        report(),
        PageData(
            tracks=tuple(TrackPoint("duck-star", when, 139.0 - i, 35.0 - i) for i, when in enumerate(hours)),
            ports=(MapPlace("Tokyo", 139.79, 35.65),),
            losses=(MapPlace("BIGU1000016", 150.0, -30.0),),
            container="BIGU1000016",
            temperatures=tuple(TemperaturePoint(when, 5.0, 5.5, 20.0, 5.0) for when in hours),
            milestones=((hours[1], "LOAD JPTYO"),),
        ),
    )
    assert "Temperatures of BIGU1000016" in page
    assert "LOAD JPTYO" in page
    assert page.replace(" ", "").count('"scale":{"type":"utc"}') == 3  # the axis says UTC, wherever the reader is
    assert "<script src" not in page


def test_lost_and_repeated_readings_are_counted() -> None:
    a, b, c = (ReadingId("BIGU1000016", "d", 0, n) for n in range(3))
    assert count_readings({a, b, c}, Counter({a: 1, b: 3})) == LogCount(in_logs=2, lost=1, repeated=2)
    assert count_readings({a}, Counter({a: 1})) == LogCount(in_logs=1, lost=0, repeated=0)


def test_without_shore_no_tables_are_expected() -> None:
    changes = {"delta_rows": 0, "condition_rows": 0}
    assert not report(**changes).ok
    assert report(shore=False, **changes).ok
    assert not report(shore=False, readings_lost=1, **changes).ok
