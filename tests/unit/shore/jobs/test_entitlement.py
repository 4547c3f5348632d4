"""Who may see which record, over tables that delta-rs wrote."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from shore.feeds.readers import FeedReader
from shore.jobs.entitlement import TOUCHED, entitled
from shore.paths import TablePaths
from shore.tables import TABLES

Allowed = Callable[..., list[tuple[str, str, int]]]

T0 = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
MINE, OTHER = "BIGU0000016", "BIGU0000021"


def hours(count: float) -> dt.datetime:
    return T0 + dt.timedelta(hours=count)


def reading(offset: int, at: float, box: str = MINE) -> dict[str, Any]:
    return {
        "log": f"containers.{box}",
        "log_offset": offset,
        "equipment_reference": box,
        "device_date_time": hours(at),
        "late": False,
        "payload": b"{}",
    }


def booking(offset: int, begin: float, end: float | None, **more: Any) -> dict[str, Any]:
    return {
        "log": "bookings.hq",
        "log_offset": offset,
        "booking_reference": "B1",
        "customer": "ducks",
        "equipment_reference": MINE,
        "status": "CONFIRMED",
        "valid_from": hours(begin),
        "valid_to": None if end is None else hours(end),
    } | more


@pytest.fixture
def allowed(tmp_path: Path) -> Allowed:
    paths = TablePaths.of(tmp_path)

    def run(*, limit: int = 1000, retracted: bool = False, **rows: list[dict[str, Any]]) -> list[tuple[str, str, int]]:
        for name in ("readings", "alerts", "booking_changes", "custody_entries", "events", "feeds"):
            TABLES[name].create(paths.table(name))
            content = pa.Table.from_pylist(rows.get(name, []), schema=TABLES[name].plain_schema)
            write_deltalake(paths.table(name), content, mode="overwrite")
        everything = [{"equipment_reference": box, "log": None, "first_offset": None} for box in (MINE, OTHER)]
        touched = pa.Table.from_pylist(rows.get("touched", everything), schema=TOUCHED)
        found = entitled(paths, [FeedReader("ducks"), FeedReader("toyshop")], touched, limit=limit).to_pylist()
        chosen = [row for row in found if (row["retracts"] is not None) == retracted]
        return [(row["customer"], row["log"], row["log_offset"]) for row in chosen]

    return run


LOG = f"containers.{MINE}"


def test_from_valid_from_inclusive_to_valid_to_exclusive(allowed: Allowed) -> None:
    readings = [reading(i, at) for i, at in enumerate((0.9, 1.0, 1.5, 2.0), start=1)]
    assert allowed(readings=readings, booking_changes=[booking(1, 1, 2)]) == [("ducks", LOG, 2), ("ducks", LOG, 3)]


def test_other_boxes_and_unknown_customers_give_nothing(allowed: Allowed) -> None:
    readings = [reading(1, 1), reading(1, 1, OTHER)]
    assert allowed(readings=readings, booking_changes=[booking(1, 0, None)]) == [("ducks", LOG, 1)]
    assert allowed(readings=readings, booking_changes=[booking(1, 0, None, customer="stranger")]) == []
    assert allowed(readings=readings) == []


def test_the_newest_state_of_a_booking_counts(allowed: Allowed) -> None:
    readings = [reading(i, i) for i in range(1, 6)]
    running, ended = booking(1, 2, None), booking(2, 2, 4, status="COMPLETED")
    assert [offset for *_, offset in allowed(readings=readings, booking_changes=[ended, running])] == [2, 3]
    cancelled = booking(3, 2, 4, status="CANCELLED")
    assert allowed(readings=readings, booking_changes=[running, cancelled, ended]) == []


def test_between_two_offices_the_change_recorded_last_counts(allowed: Allowed) -> None:
    """Offsets of two logs say nothing about each other; table bookings has the same order."""
    readings = [reading(i, i) for i in range(1, 4)]
    opened = booking(9, 0, None, record_date_time=hours(1))
    cancelled = booking(1, 0, None, log="bookings.tokyo", status="CANCELLED", record_date_time=hours(2))
    assert allowed(readings=readings, booking_changes=[opened, cancelled]) == []
    assert allowed(readings=readings, booking_changes=[opened, cancelled | {"record_date_time": hours(0)}]) != []


def test_overlapping_bookings_deliver_once_and_two_customers_each_get_theirs(allowed: Allowed) -> None:
    readings = [reading(i, i) for i in range(1, 4)]
    bookings = [booking(1, 0, 3), booking(2, 1, None, booking_reference="B2")]
    bookings.append(booking(3, 3, None, booking_reference="B3", customer="toyshop"))
    assert allowed(readings=readings, booking_changes=bookings) == [
        ("ducks", LOG, 1),
        ("ducks", LOG, 2),
        ("ducks", LOG, 3),
        ("toyshop", LOG, 3),
    ]


def test_what_was_delivered_is_not_delivered_again(allowed: Allowed) -> None:
    readings = [reading(i, i) for i in range(1, 4)]
    given = {"customer": "ducks", "feed_offset": 1, "log": LOG, "log_offset": 2, "equipment_reference": MINE}
    assert allowed(readings=readings, booking_changes=[booking(1, 0, None)], feeds=[given]) == [
        ("ducks", LOG, 1),
        ("ducks", LOG, 3),
    ]
    others = [given | {"customer": "toyshop"}]
    assert len(allowed(readings=readings, booking_changes=[booking(1, 0, None)], feeds=others)) == 3


def test_what_a_booking_that_was_corrected_gave_no_right_to_is_taken_back(allowed: Allowed) -> None:
    readings = [reading(i, i) for i in range(1, 6)]
    given = [
        {"customer": "ducks", "feed_offset": i, "log": LOG, "log_offset": i, "equipment_reference": MINE}
        for i in range(1, 6)
    ]
    running = booking(1, 0, None)

    def back(*changes: dict[str, Any], **more: Any) -> list[int]:
        rows: dict[str, Any] = {"readings": readings, "booking_changes": [running, *changes], "feeds": given, **more}
        return [offset for *_, offset in allowed(retracted=True, **rows)]

    assert back() == []
    assert back(booking(2, 2, 4)) == [1, 4, 5]
    assert back(booking(2, 0, None, customer="toyshop")) == [1, 2, 3, 4, 5]
    assert back(booking(2, 0, None, status="CANCELLED")) == [1, 2, 3, 4, 5]
    assert back(booking(2, 2, 4, status="CANCELLED")) == [2, 3]  # the times that it names
    assert back(booking(2, 6, None, status="CANCELLED")) == []  # from now on
    assert back(booking(2, 0, None, status="CANCELLED"), booking(3, 3, None)) == [1, 2]
    reached = [{"equipment_reference": MINE, "log": LOG, "first_offset": 1}]
    assert back(booking(2, 2, 4), touched=reached) == []  # the change itself touches all of the container
    taken = [{**given[0], "feed_offset": 6, "retracts": True}]
    assert back(booking(2, 2, 4), feeds=[*given, *taken]) == [4, 5]
    again = {"readings": readings, "booking_changes": [running], "feeds": [*given, *taken]}
    assert allowed(**again) == [("ducks", LOG, 1)]


def test_a_record_that_the_tables_have_no_more_is_judged_by_the_feeds_time(allowed: Allowed) -> None:
    given = {"customer": "ducks", "log": LOG, "equipment_reference": MINE}
    feeds = [given | {"feed_offset": i, "log_offset": i, "device_date_time": hours(i)} for i in range(1, 4)]
    assert allowed(retracted=True, booking_changes=[booking(1, 2, None)], feeds=feeds) == [("ducks", LOG, 1)]


def test_alerts_go_by_the_time_of_the_event(allowed: Allowed) -> None:
    alert = {"log": "alerts.tokyo", "equipment_reference": MINE, "payload": b"{}"}
    alerts = [alert | {"log_offset": i, "event_date_time": hours(at)} for i, at in ((4, 0.5), (5, 1.5))]
    assert allowed(alerts=alerts, booking_changes=[booking(1, 1, 2)]) == [("ducks", "alerts.tokyo", 5)]


def test_custody_goes_by_the_time_of_the_event_and_only_grants_count(allowed: Allowed) -> None:
    entry = {"log": "custody.tokyo", "entry_type": "grant", "entry_log": LOG, "payload": b"{}"}
    rows = [entry | {"log_offset": i, "event_date_time": hours(at)} for i, at in ((1, 0.5), (2, 1), (3, 1.9), (4, 2))]
    rows.append(entry | {"log_offset": 5, "event_date_time": hours(1.5), "entry_log": f"containers.{OTHER}"})
    rows.append(entry | {"log_offset": 6, "event_date_time": hours(1.5), "entry_type": "claim"})
    rows.append(entry | {"log_offset": 7, "entry_log": None, "entry_type": None})
    found = allowed(custody_entries=rows, booking_changes=[booking(1, 1, 2)])
    assert found == [("ducks", "custody.tokyo", 2), ("ducks", "custody.tokyo", 3)]


def test_only_what_is_touched_is_looked_at(allowed: Allowed) -> None:
    readings = [reading(i, i) for i in range(1, 5)]
    touched = [{"equipment_reference": MINE, "log": LOG, "first_offset": 3}]
    found = allowed(readings=readings, booking_changes=[booking(1, 0, None)], touched=touched)
    assert [offset for *_, offset in found] == [3, 4]


def test_readings_before_the_first_touched_one_are_left_alone_and_alerts_touch_no_reading(allowed: Allowed) -> None:
    readings = [*(reading(i, i) for i in (1, 2, 3)), *(reading(i, i, OTHER) for i in (1, 2, 3))]
    bookings = [booking(1, 0, None), booking(2, 0, None, booking_reference="B2", equipment_reference=OTHER)]
    alert = {"log": "alerts.tokyo", "log_offset": 1, "equipment_reference": MINE, "event_date_time": hours(1)}
    touched = [
        {"equipment_reference": MINE, "log": "alerts.tokyo", "first_offset": 1},
        {"equipment_reference": MINE, "log": LOG, "first_offset": 3},
        {"equipment_reference": OTHER, "log": f"containers.{OTHER}", "first_offset": 2},
    ]
    rows: dict[str, Any] = {"readings": readings, "booking_changes": bookings, "alerts": [alert | {"payload": b"{}"}]}
    found = allowed(touched=touched, **rows)
    assert [(log, offset) for _, log, offset in found] == [
        ("alerts.tokyo", 1),
        (LOG, 3),
        (f"containers.{OTHER}", 2),
        (f"containers.{OTHER}", 3),
    ]
    assert [log for _, log, _ in allowed(touched=touched[:1], **rows)] == ["alerts.tokyo"]


def test_passes_are_bounded_and_in_order(allowed: Allowed) -> None:
    readings = [reading(i, i) for i in (3, 1, 2)]
    found = allowed(readings=readings, booking_changes=[booking(1, 0, None)], limit=2)
    assert [offset for *_, offset in found] == [1, 2]
