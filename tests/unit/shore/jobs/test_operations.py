"""Raw rows become rows of the tables of alerts, events, positions, bookings and custody."""

from __future__ import annotations

import datetime as dt

import msgspec

from fairlead.records import encode
from fairlead.records.digest import MOST_BOXES, Digest, DigestBox, encode_digest
from shore.jobs.operations import PATTERN
from shore.source.operations import rows_of
from shore.source.parsing import MOST_BYTES, TOO_LONG
from tests.support.shore.raw_records import BOX, BY_NAME, RECORDS, T, raw
from tests.support.shore.world import number


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
    (said,) = found["digests"]
    assert (said["vessel_imo_number"], said["as_of_date_time"], said["whole"]) == ("9074729", T, True)
    (box,) = said["boxes"]
    assert (box["equipment_reference"], box["reading_date_time"], box["supply_temperature"]) == (BOX, T, 4.25)
    assert (box["in_band"], box["return_temperature"], box["open_alerts"]) == (True, None, 0)
    (booking,), (custody,) = found["booking_changes"], found["custody_entries"]
    assert (booking["status"], booking["valid_to"]) == ("CONFIRMED", None)  # a default that writers leave out
    assert (custody["entry_type"], custody["entry_log"], custody["entry_term"]) == ("grant", f"containers.{BOX}", 2)
    assert (custody["marker_offset"], custody["end_offset"], custody["order_id"]) == (10, None, None)


def test_what_cannot_be_read_is_kept_with_its_problem() -> None:
    rows = rows_of(BY_NAME["booking_changes"], raw(("bookings.hq", b"{"), RECORDS[4])).to_pylist()
    assert [row["customer"] for row in rows] == [None, "ducks"]
    assert rows[0]["problem"]
    assert rows[0]["payload"] == b"{"


def test_an_alert_in_the_name_of_another_site_is_kept_with_its_problem() -> None:
    alert = RECORDS[0][1]
    found = rows_of(BY_NAME["alerts"], raw(("alerts.star", alert), ("alerts.tokyo", alert))).to_pylist()
    assert [row["alert_id"] for row in found] == [None, "a1"]
    assert [row["problem"] for row in found] == ["raisedAt names tokyo, whose log this is not", None]
    forged = {name for name, value in found[0].items() if value is not None}
    assert forged == {"log", "log_offset", "term", "record_date_time", "problem", "payload"}


def test_a_damaged_digest_is_kept_with_its_problem_and_the_others_go_on() -> None:
    good = dict(RECORDS)["ships.9074729.digest"]
    assert isinstance(good, bytes)
    values = (good, good[:-1], b"\x09" + good[1:], good)
    rows = rows_of(BY_NAME["digests"], raw(*(("ships.9074729.digest", value) for value in values))).to_pylist()
    assert [row["boxes"] and len(row["boxes"]) for row in rows] == [1, None, None, 1]
    assert [row["payload"] for row in rows] == list(values)
    assert "its check sum is wrong" in rows[1]["problem"]
    assert "version 9" in rows[2]["problem"]


def test_a_record_that_is_too_long_is_kept_with_its_problem() -> None:
    alert = RECORDS[0][1]
    assert not isinstance(alert, bytes)
    short = encode(alert)
    values = (short, short[:-1] + b',"more":"%s"}' % (b"x" * MOST_BYTES), short)
    rows = rows_of(BY_NAME["alerts"], raw(*(("alerts.tokyo", value) for value in values))).to_pylist()
    assert [row["problem"] for row in rows] == [None, TOO_LONG, None]
    assert [row["event_date_time"] for row in rows] == [T, None, T]
    assert [row["payload"] for row in rows] == list(values)


def test_the_digest_of_a_large_ship_is_not_too_long() -> None:
    boxes = tuple(
        DigestBox(
            equipment_reference=number(n * 15),
            reading_date_time=T - dt.timedelta(milliseconds=n * 7919),
            setpoint_temperature=-18.0,
            supply_temperature=25.0,
        )
        for n in range(MOST_BOXES)
    )
    said = encode_digest(Digest(vessel_imo_number="9074729", as_of_date_time=T, boxes=boxes))
    assert len(said) > MOST_BYTES
    (row,) = rows_of(BY_NAME["digests"], raw(("ships.9074729.digest", said))).to_pylist()
    assert (row["problem"], len(row["boxes"])) == (None, MOST_BOXES)


def test_the_source_reads_what_the_tables_take() -> None:
    import re

    taken = [topic for topic, _ in RECORDS]
    assert all(re.fullmatch(PATTERN, topic) for topic in taken)
    assert not any(re.fullmatch(PATTERN, t) for t in ("containers.x", "ships.9074729.engine", "xalerts.tokyo"))
