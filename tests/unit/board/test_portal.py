"""What a customer's portal shows, from rows of its own table: which count, what they mean, how they are drawn."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
from collections.abc import Mapping
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from board.own_feed import WHATS, BoxStory, OwnFeed, What, box_story, boxes, export, has_box, trouble_of_feeds
from board.pages.portal import GAPS, chart_of, gaps_of, list_map, listed, map_of
from shore.jobs.status import JobStatus, write_status
from shore.tables.readings import READINGS
from tests.support.customer_tables import FeedRows
from tests.support.examples import examples
from tests.support.oracle.conditions import parts_of, sessions_of

BOX, OTHER = "BIGU1000010", "BIGU1000026"
T0 = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
NOW = T0 + dt.timedelta(days=2)
MINUTE, HOUR = dt.timedelta(minutes=1), dt.timedelta(hours=1)


def feed_of(rows: FeedRows) -> OwnFeed:
    return OwnFeed("ducks", pads.dataset(rows.table), 0, NOW)


def story_of(rows: FeedRows) -> BoxStory:
    found = box_story(feed_of(rows), BOX, NOW)
    assert found is not None
    return found


def readings_in(rows: FeedRows) -> list[int]:
    content = b"".join(export(feed_of(rows), "readings", "parquet", BOX))
    offsets: list[int] = pq.read_table(io.BytesIO(content))["log_offset"].to_pylist()
    return sorted(offsets)


# --- which records count


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=25))
@settings(max_examples=examples(25))
def test_the_last_row_of_a_record_counts_unless_it_takes_back(steps: list[tuple[int, bool]]) -> None:
    rows, model = FeedRows(), dict[int, bool]()
    for record, takes_back in steps:
        if not takes_back:
            rows.reading(BOX, T0 + record * MINUTE, record)
            model[record] = True
        elif model.get(record):
            rows.take_back(f"containers.{BOX}", record)
            model[record] = False
    assert readings_in(rows) == sorted(record for record, stands in model.items() if stands)
    assert has_box(feed_of(rows), BOX) is any(model.values())
    assert (box_story(feed_of(rows), BOX, NOW) is None) is not any(model.values())
    assert [each.number for each in boxes(feed_of(rows), NOW)] == ([BOX] if any(model.values()) else [])


def test_the_order_of_files_does_not_matter() -> None:
    rows = FeedRows()
    rows.hour(BOX, T0, revision=0, readings=1)
    rows.hour(BOX, T0, revision=1, readings=2)
    rows.reading(OTHER, T0, 0)
    rows.take_back(f"containers.{OTHER}", 0)
    turned = OwnFeed("ducks", pads.dataset(pa.Table.from_pylist(rows.rows[::-1], schema=rows.table.schema)), 0, NOW)
    (box,) = boxes(turned, NOW)
    assert (box.number, box.newest["readings"]) == (BOX, 2)


def test_a_record_of_a_wrong_form_leaves_values_unknown_and_does_no_harm() -> None:
    rows = FeedRows()
    rows.add("reading", BOX, T0, "no JSON {", f"containers.{BOX}", 0)
    rows.add("reading", BOX, T0 + MINUTE, {"measurements": [], "motion": 3}, f"containers.{BOX}", 1)
    rows.add("alert", BOX, T0, "[", "alerts.tokyo", 0)
    rows.add("digest", BOX, T0, "7", f"digests/{BOX}", 0)
    rows.add("conditions", BOX, T0, '{"windowEnd": "never"}', f"hours/{BOX}", 0)
    rows.add("milestone", BOX, T0, "null", f"milestones/{BOX}/e", 0)
    (box,) = boxes(feed_of(rows), NOW)
    assert listed([box], NOW)[0]["tone"] == "warn"  # an alert that nobody can read is open
    found = story_of(rows)
    assert found.readings == 2
    json.dumps([chart_of(found), map_of(found)], allow_nan=False)
    assert readings_in(rows) == [0, 1]


def test_readings_of_a_wrong_clock_are_in_the_file_and_in_no_chart() -> None:
    rows = FeedRows()
    rows.reading(BOX, T0, 0)
    rows.reading(BOX, NOW + dt.timedelta(days=400), 1)
    found = story_of(rows)
    assert (found.ahead, found.heard) == (1, T0)
    assert chart_of(found)["times"] == [T0.timestamp()]
    assert readings_in(rows) == [0, 1]
    (box,) = boxes(feed_of(rows), NOW)
    assert box.heard == T0


# --- the list


def test_problems_come_first_and_old_values_are_not_new_ones() -> None:
    rows, now = FeedRows(), T0 + 2 * HOUR
    rows.reading("BIGU1000031", T0 - dt.timedelta(days=3), 0, measurements={"supplyTemperature": 20.0})
    rows.reading(BOX, now, 1)
    rows.reading(OTHER, now, 1, isConnectedToPowerSource=False)
    rows.reading("BIGU1000047", now, 1, measurements={"supplyTemperature": 9.0})
    rows.reading("BIGU1000052", now, 1)
    rows.alert("BIGU1000052", T0, 0)
    shown = listed(boxes(feed_of(rows), now), now)
    assert [(row["box"].number, row["tone"]) for row in shown] == [
        ("BIGU1000052", "bad"),
        ("BIGU1000047", "bad"),
        (OTHER, "warn"),
        (BOX, "good"),
        ("BIGU1000031", "quiet"),
    ]
    assert shown[1]["states"] == [("out of band", "bad")]
    assert shown[2]["states"] == [("not plugged in", "warn")]
    assert shown[3]["states"] == [("in band", "good")]
    assert shown[4]["states"] == [("nothing heard for 3 d 2 h", "quiet")]  # and not: out of band


def test_an_alert_is_open_until_its_newest_state_is_cleared() -> None:
    rows = FeedRows()
    rows.reading(BOX, T0, 0)
    rows.alert(BOX, T0 + MINUTE, 1, state="CLEARED", revision=1)  # stands in the feed before the state that opened it
    rows.alert(BOX, T0, 0, evidence=[{"name": "return", "weight": 1.0, "detail": "9 Cel"}])
    rows.alert(BOX, T0, 5, log="alerts.osaka", alertID="b", severity="WARNING", acknowledgedBy="mina")
    (box,) = boxes(feed_of(rows), NOW)
    assert [row["alert_id"] for row in box.alerts] == ["b"]
    open_one, over = story_of(rows).alerts
    assert (open_one["alert_id"], open_one["acknowledged_by"]) == ("b", "mina")
    assert (over["state"], over["since"], over["until"]) == ("CLEARED", T0, T0 + MINUTE)


def test_each_site_ends_only_its_own_alerts() -> None:
    rows = FeedRows()
    rows.reading(BOX, T0, 0)
    rows.alert(BOX, T0, 0)
    rows.alert(BOX, T0 + MINUTE, 0, log="alerts.star", raisedAt="star", state="CLEARED", revision=7)
    rows.alert(BOX, T0 + HOUR, 1, log="alerts.star", state="CLEARED", revision=9)  # stored by an earlier release
    (box,) = boxes(feed_of(rows), NOW)
    assert [(row["raised_at"], row["state"]) for row in box.alerts] == [("tokyo", "OPENED")]
    assert [(row["raised_at"], row["state"], row["since"]) for row in story_of(rows).alerts] == [
        ("tokyo", "OPENED", T0),
        ("star", "CLEARED", T0 + MINUTE),  # its last state names tokyo
    ]


def test_probes_are_not_judged_until_half_an_hour_after_a_defrost() -> None:
    for minutes, expected in ((29, None), (31, False)):
        rows, at = FeedRows(), T0 + minutes * MINUTE
        rows.reading(BOX, T0, 0, reeferSettings={"isDefrosting": True})
        rows.reading(BOX, at, 1, measurements={"supplyTemperature": 9.0})
        (box,) = boxes(feed_of(rows), NOW)
        assert box.newest["in_band"] is expected


def test_a_digest_is_the_newest_value_while_no_newer_reading_is_there() -> None:
    rows = FeedRows()
    rows.reading(BOX, T0, 0)
    rows.digest(BOX, T0 + HOUR, supplyTemperature=7.0, inBand=False)
    (row,) = listed(boxes(feed_of(rows), T0 + HOUR), T0 + HOUR)
    assert row["value"] == {"celsius": 7.0, "what": "supply air, by the ship's digest", "wanted": 2.0}
    assert row["states"] == [("out of band", "bad")]


def test_the_map_has_known_places_only() -> None:
    rows = FeedRows()
    rows.reading(BOX, T0, 0, geoLocation={"latitude": 35.0, "longitude": 139.0})
    rows.reading(OTHER, T0, 0, geoLocation={"latitude": 0, "longitude": 0})
    rows.reading("BIGU1000031", T0, 0, geoLocation={"latitude": 91, "longitude": 181})
    rows.milestone("BIGU1000031", T0, "e1")
    found = list_map(listed(boxes(feed_of(rows), NOW), NOW))
    assert [(each["latitude"], each["longitude"]) for each in found["events"]] == [(35.0, 139.0)]
    assert [port["code"] for port in found["ports"]] == ["JPTYO"]


def test_a_port_authority_sees_movements_and_an_owner_alerts() -> None:
    rows = FeedRows()
    moved = {"eventID": "e", "UNLocationCode": "SGSIN", "vesselIMONumber": "9074729", "vessel": "MV Duck Star"}
    rows.add("movement", "9074729", T0, {**moved, "transportEventTypeCode": "ARRI"}, "movements/e1", 0)
    rows.add("movement", BOX, T0 + HOUR, {**moved, "equipmentEventTypeCode": "DISC"}, "movements/e2", 0)
    rows.alert(OTHER, T0, 0)
    shown = listed(boxes(feed_of(rows), NOW), NOW)
    assert [(row["box"].number, row["event"], row["states"][0]) for row in shown] == [
        (OTHER, "", ("temperature out of band", "bad")),
        ("9074729", "ship arrived, Singapore (SGSIN), MV Duck Star", ("no measurements", "quiet")),
        (BOX, "unloaded, Singapore (SGSIN), MV Duck Star", ("no measurements", "quiet")),
    ]
    found = story_of(rows)
    assert (chart_of(found)["panels"], gaps_of(found), found.heard) == ([], [], None)


# --- one box


def test_a_chart_has_the_same_times_everywhere_and_no_line_across_a_gap() -> None:
    rows = FeedRows()
    times = [T0 + n * 10 * MINUTE for n in range(6)] + [T0 + 5 * HOUR + n * 10 * MINUTE for n in range(6)]
    for sequence, at in enumerate(times):
        rows.reading(
            BOX,
            at,
            sequence,
            measurements={"supplyTemperature": 2.0 + sequence / 10, "relativeHumidity": 80.0, "o2": 5.0},
        )
    chart = chart_of(story_of(rows))
    assert [panel["title"] for panel in chart["panels"]] == ["Temperature", "Humidity", "Gases"]
    assert chart["times"] == sorted(set(chart["times"]))
    supply = chart["panels"][0]["series"][0]["values"]
    assert [len(series["values"]) for panel in chart["panels"] for series in panel["series"]] == [13] * 4
    assert supply[6] is None
    assert None not in supply[:6] + supply[7:]
    assert chart["panels"][0]["band"]["low"][0] == 0.0
    assert chart["panels"][0]["band"]["high"][6] is None
    assert [(each["kind"], each["label"]) for each in chart["spans"]] == [("gap", "nothing heard")]


def test_readings_that_a_digest_stood_for_are_back_filled() -> None:
    rows = FeedRows()
    for n in range(6):
        rows.reading(BOX, T0 + n * 10 * MINUTE, n)
    rows.digest(BOX, T0 + 80 * MINUTE)
    at_sea = story_of(rows)
    assert [each["kind"] for each in gaps_of(at_sea)] == ["AT_SEA"]
    assert at_sea.source == "digest"
    temperature = chart_of(at_sea)["panels"][0]["series"]
    assert temperature[-1]["label"] == "Supply air, by the ship's digest"
    assert temperature[-1]["values"][-1] == 2.2
    rows.take_back(f"digests/{BOX}", 0)
    for n in range(6, 12):
        rows.reading(BOX, T0 + n * 10 * MINUTE, n)
    ashore = story_of(rows)
    (gap,) = gaps_of(ashore)
    assert (gap["words"], gap["start"]) == (GAPS["LATE"], T0 + 60 * MINUTE)
    assert gap["end"] == T0 + 90 * MINUTE  # the reading of 80 minutes stands for ten more; the next came in time
    assert ("other", GAPS["LATE"]) in [(each["kind"], each["label"]) for each in chart_of(ashore)["spans"]]


def test_a_record_that_was_given_again_is_not_late() -> None:
    rows = FeedRows()
    rows.reading(BOX, T0, 0)
    rows.digest(BOX, T0 + HOUR)
    rows.take_back(f"containers.{BOX}", 0)
    rows.reading(BOX, T0, 0)
    assert [each["kind"] for each in gaps_of(story_of(rows))] == ["AT_SEA"]


def test_a_coarse_feed_has_its_hours_drawn() -> None:
    rows = FeedRows()
    for n in (0, 1, 5):
        rows.hour(
            BOX, T0 + n * HOUR, minutesOutOfBand=10.0 if n == 1 else 0.0, minutesWithoutPower=5.0 if n == 5 else 0.0
        )
    rows.hour(BOX, T0, revision=1, supplyTemperature={"min": 1.0, "mean": 1.5, "max": 2.0})
    found = story_of(rows)
    chart = chart_of(found)
    assert found.coarse
    assert [panel["title"] for panel in chart["panels"]] == ["Supply air", "Return air", "Minutes of each hour"]
    assert chart["panels"][0]["series"][1]["values"] == [1.5, 2.0, None, 2.0]
    assert [each["kind"] for each in chart["spans"]] == ["excursion", "gap", "unplugged"]
    (gap,) = gaps_of(found)
    assert (gap["start"], gap["end"]) == (T0 + 2 * HOUR, T0 + 5 * HOUR)


STEPS = st.lists(
    st.tuples(
        st.sampled_from((1, 10, 20, 45, 400)),  # minutes since the one before
        st.sampled_from((2.0, 3.9, 9.0, -9.0)),
        st.sampled_from((2.0, 2.0, -18.0, None)),
        st.sampled_from((80.0, 99.0, None)),
        st.booleans(),
        st.sampled_from((False, False, False, True)),
    ),
    min_size=1,
    max_size=40,
)


@given(STEPS)
@settings(max_examples=examples(25))
def test_excursions_are_those_of_the_table_excursions(
    steps: list[tuple[int, float, float | None, Any, bool, bool]],
) -> None:
    rows, expected, at = FeedRows(), list[Mapping[str, Any]](), T0
    for sequence, (minutes, air, wanted, humidity, plugged, defrosts) in enumerate(steps):
        at += minutes * MINUTE
        rows.reading(
            BOX,
            at,
            sequence,
            measurements={"supplyTemperature": air, "returnTemperature": air + 1, "relativeHumidity": humidity},
            setpoints={"temperature": wanted, "relativeHumidity": 80.0},
            isConnectedToPowerSource=plugged,
            reeferSettings={"isDefrosting": defrosts},
        )
        expected.append(
            {
                "equipment_reference": BOX,
                "log": f"containers.{BOX}",
                "log_offset": sequence,
                "device_id": "d",
                "boot_id": 1,
                "sequence": sequence,
                "device_date_time": at,
                "supply_temperature": air,
                "return_temperature": air + 1,
                "relative_humidity": humidity,
                "setpoint_temperature": wanted,
                "setpoint_relative_humidity": 80.0,
                "is_defrosting": defrosts,
                "is_pre_trip_inspection": False,
                "is_connected_to_power_source": plugged,
                "is_powered": True,
            }
        )
    readings = pa.Table.from_pylist(expected, schema=READINGS.plain_schema)
    told = sessions_of(parts_of(readings, T0 - HOUR, T0 + dt.timedelta(days=30))).to_pylist()
    names = ("quantity", "start_date_time", "end_date_time", "recovered_date_time", "readings")
    found = box_story(feed_of(rows), BOX, at)
    assert found is not None
    values = itemgetter(*names)
    first = itemgetter(*names[:2])
    assert list(map(values, sorted(found.excursions, key=first))) == list(map(values, sorted(told, key=first)))
    minutes_out = {(row["quantity"], row["start_date_time"]): row["minutes_out_of_band"] for row in told}
    for row in found.excursions:
        assert row["minutes_out_of_band"] == pytest.approx(minutes_out[row["quantity"], row["start_date_time"]])


# --- files


def test_cells_that_a_spreadsheet_would_run_are_text() -> None:
    rows = FeedRows()
    for sequence, name in enumerate(("=1+1", "+1", "-1", "@a", "\ta", "\ra", "plain")):
        rows.reading(
            BOX, T0 + sequence * MINUTE, sequence, device={"deviceId": name, "bootId": 1, "sequence": sequence}
        )
    text = b"".join(export(feed_of(rows), "readings", "csv", BOX)).decode()
    cells = [row["device_id"] for row in csv.DictReader(io.StringIO(text, newline=""))]
    assert cells == ["'=1+1", "'+1", "'-1", "'@a", "'\ta", "'\ra", "plain"]


@pytest.mark.parametrize("what", WHATS)
def test_a_file_without_rows_has_its_columns(what: What) -> None:
    empty = feed_of(FeedRows())
    table = pq.read_table(io.BytesIO(b"".join(export(empty, what, "parquet"))))
    header = b"".join(export(empty, what, "csv")).decode().strip()
    assert table.num_rows == 0
    assert [name.strip('"') for name in header.split(",")] == table.schema.names


def test_large_files_are_streamed() -> None:
    rows = FeedRows()
    for n in range(45_000):
        rows.alert(BOX, T0 + n * MINUTE, n)
    parts = list(export(feed_of(rows), "alerts", "csv"))
    assert len(parts) > 2
    assert b"".join(parts).count(b"\n") == 45_001


# --- what is not known


def test_a_customer_hears_that_its_table_is_not_filled_and_nothing_else(tmp_path: Any) -> None:
    assert trouble_of_feeds(tmp_path) == ""  # shore runs elsewhere
    (tmp_path / "run").mkdir()
    write_status(tmp_path, {"feeds": JobStatus("feeds", "running")})
    assert trouble_of_feeds(tmp_path) == ""
    failed = JobStatus("readings", "retrying", error="customer toyshop has no /path", failing_since=T0)
    write_status(tmp_path, {"feeds": JobStatus("feeds", "running"), "readings": failed})
    trouble = trouble_of_feeds(tmp_path)
    assert "has not added all new records since 2026-03-01 00:00 UTC" in trouble
    assert "toyshop" not in trouble
    write_status(tmp_path, {"feeds": JobStatus("feeds", "running"), "mkt": failed})
    assert trouble_of_feeds(tmp_path) == ""
