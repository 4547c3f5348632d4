"""Who may see which record: the SQL of the feeds, run by DuckDB."""

from __future__ import annotations

import datetime as dt
from typing import Any

import duckdb
import pyarrow as pa

from shore.feeds.entitlement import ENTITLED
from shore.tables import TABLES

T0 = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
MINE, OTHER = "BIGU0000013", "BIGU0000029"


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


def entitled(**rows: list[dict[str, Any]]) -> list[tuple[str, str, int]]:
    touched_schema = pa.schema(
        [("equipment_reference", pa.string()), ("log", pa.string()), ("first_offset", pa.int64())]
    )
    everything = [{"equipment_reference": box, "log": None, "first_offset": 0} for box in (MINE, OTHER)]
    with duckdb.connect(":memory:") as connection:
        connection.execute("set timezone = 'UTC'")
        for name in ("readings", "alerts", "bookings", "feeds"):
            connection.register(f"t_{name}", pa.Table.from_pylist(rows.get(name, []), schema=TABLES[name].plain_schema))
        connection.register("t_touched", pa.Table.from_pylist(rows.get("touched", everything), schema=touched_schema))
        connection.register("t_customers", pa.table({"customer": ["ducks", "toyshop"]}))
        names = {n: f"t_{n}" for n in ("readings", "alerts", "bookings", "feeds", "touched", "customers")}
        relation: Any = connection.sql(ENTITLED.format(**names))
        found = relation.to_arrow_table().to_pylist()
    return [(row["customer"], row["log"], row["log_offset"]) for row in found]


LOG = f"containers.{MINE}"


def test_from_valid_from_inclusive_to_valid_to_exclusive() -> None:
    readings = [reading(i, at) for i, at in enumerate((0.9, 1.0, 1.5, 2.0), start=1)]
    assert entitled(readings=readings, bookings=[booking(1, 1, 2)]) == [("ducks", LOG, 2), ("ducks", LOG, 3)]


def test_other_boxes_and_unknown_customers_give_nothing() -> None:
    readings = [reading(1, 1), reading(1, 1, OTHER)]
    assert entitled(readings=readings, bookings=[booking(1, 0, None)]) == [("ducks", LOG, 1)]
    assert entitled(readings=readings, bookings=[booking(1, 0, None, customer="stranger")]) == []
    assert entitled(readings=readings) == []


def test_the_newest_state_of_a_booking_counts() -> None:
    readings = [reading(i, i) for i in range(1, 6)]
    running, ended = booking(1, 2, None), booking(2, 2, 4, status="COMPLETED")
    assert [offset for *_, offset in entitled(readings=readings, bookings=[ended, running])] == [2, 3]
    cancelled = booking(3, 2, 4, status="CANCELLED")
    assert entitled(readings=readings, bookings=[running, cancelled, ended]) == []


def test_overlapping_bookings_deliver_once_and_two_customers_each_get_theirs() -> None:
    readings = [reading(i, i) for i in range(1, 4)]
    bookings = [booking(1, 0, 3), booking(2, 1, None, booking_reference="B2")]
    bookings.append(booking(3, 3, None, booking_reference="B3", customer="toyshop"))
    assert entitled(readings=readings, bookings=bookings) == [
        ("ducks", LOG, 1),
        ("ducks", LOG, 2),
        ("ducks", LOG, 3),
        ("toyshop", LOG, 3),
    ]


def test_what_was_delivered_is_not_delivered_again() -> None:
    readings = [reading(i, i) for i in range(1, 4)]
    given = {"customer": "ducks", "feed_offset": 1, "log": LOG, "log_offset": 2}
    assert entitled(readings=readings, bookings=[booking(1, 0, None)], feeds=[given]) == [
        ("ducks", LOG, 1),
        ("ducks", LOG, 3),
    ]
    assert (
        len(entitled(readings=readings, bookings=[booking(1, 0, None)], feeds=[given | {"customer": "toyshop"}])) == 3
    )


def test_alerts_go_by_the_time_of_the_event() -> None:
    alert = {"log": "alerts.tokyo", "equipment_reference": MINE, "payload": b"{}"}
    alerts = [alert | {"log_offset": i, "event_date_time": hours(at)} for i, at in ((4, 0.5), (5, 1.5))]
    assert entitled(alerts=alerts, bookings=[booking(1, 1, 2)]) == [("ducks", "alerts.tokyo", 5)]


def test_only_what_is_touched_is_looked_at() -> None:
    readings = [reading(i, i) for i in range(1, 5)]
    touched = [{"equipment_reference": MINE, "log": LOG, "first_offset": 3}]
    found = entitled(readings=readings, bookings=[booking(1, 0, None)], touched=touched)
    assert [offset for *_, offset in found] == [3, 4]
