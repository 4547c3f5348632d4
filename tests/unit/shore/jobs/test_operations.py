"""Raw rows into the tables of alerts, events, positions, bookings and custody."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
from deltalake import DeltaTable

from shore.jobs.operations import PATTERN
from shore.source.operations import rows_of
from tests.support.deltars import append_once, create
from tests.unit.shore.raw_records import BOX, BY_NAME, RECORDS, T, raw


def test_each_table_takes_its_own_records() -> None:
    batch = raw(*RECORDS, ("ships.9074729.engine", b"{}"), ("containers.x", b"{}"))
    found = {name: rows_of(operation, batch).to_pylist() for name, operation in BY_NAME.items()}
    assert {name: len(rows) for name, rows in found.items()} == dict.fromkeys(BY_NAME, 1)
    for name, operation in BY_NAME.items():
        assert rows_of(operation, batch).schema == operation.table.plain_schema
        assert found[name][0]["problem"] is None
    (alert,), (event,), (position,) = found["alerts"], found["events"], found["positions"]
    assert (alert["alert_id"], alert["latitude"], alert["event_date_time"]) == ("a1", 1.5, T)
    assert msgspec.json.decode(alert["evidence"]) == [{"name": "immersed", "weight": 0.5}]
    assert (event["equipment_event_type_code"], event["un_location_code"], event["log_offset"]) == ("LOAD", "JPTYO", 2)
    assert (position["heading"], position["navigation_status"], position["latitude"]) == (90, 15, None)
    (weather,) = found["environment"]
    assert (weather["wind_speed"], weather["air_pressure"], weather["record_date_time"]) == (7.5, None, T)
    (booking,), (custody,) = found["booking_changes"], found["custody_entries"]
    assert (booking["status"], booking["valid_to"]) == ("CONFIRMED", None)  # a default that writers leave out
    assert (custody["entry_type"], custody["entry_log"], custody["entry_term"]) == ("grant", f"containers.{BOX}", 2)
    assert (custody["marker_offset"], custody["end_offset"], custody["order_id"]) == (10, None, None)


def test_what_cannot_be_read_is_kept_with_its_problem() -> None:
    rows = rows_of(BY_NAME["booking_changes"], raw(("bookings.hq", b"{"), RECORDS[4])).to_pylist()
    assert [row["customer"] for row in rows] == [None, "ducks"]
    assert rows[0]["problem"]
    assert rows[0]["payload"] == b"{"


def test_the_source_reads_what_the_tables_take() -> None:
    import re

    taken = [topic for topic, _ in RECORDS]
    assert all(re.fullmatch(PATTERN, topic) for topic in taken)
    assert not any(re.fullmatch(PATTERN, t) for t in ("containers.x", "ships.9074729.engine", "xalerts.tokyo"))


def test_a_table_of_before_gets_its_new_columns_and_keeps_its_rows(tmp_path: Path) -> None:
    alerts = BY_NAME["alerts"].table
    before = dataclasses.replace(alerts, columns=tuple(c for c in alerts.columns if c.name != "revision"))
    location = str(tmp_path / "alerts")
    create(before, location)
    rows = rows_of(BY_NAME["alerts"], raw(*RECORDS))
    append_once(location, rows.drop_columns(["revision"]), app="old", version=0)
    for _ in range(2):  # as at every start
        create(alerts, location)
    second = msgspec.structs.replace(RECORDS[0][1], state="UPDATED", revision=1)
    append_once(location, rows_of(BY_NAME["alerts"], raw((RECORDS[0][0], second))), app="new", version=0)
    found = DeltaTable(location).to_pyarrow_table().sort_by("state").to_pylist()
    assert [(row["state"], row["revision"], row["alert_id"]) for row in found] == [
        ("OPENED", None, "a1"),
        ("UPDATED", 1, "a1"),
    ]
    described = {field.name: field.metadata["comment"] for field in DeltaTable(location).schema().fields}
    assert described["revision"].startswith("Counts the states")
