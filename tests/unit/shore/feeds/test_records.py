"""Rows become records of a feed, and records become rows again."""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from fairlead.kafka.convention import is_data, is_filler
from fairlead.kafka.protocol.record import NewRecord, Record
from shore.feeds.records import MAX_BYTES, MAX_RECORDS, given_rows, kind_of, new_record, parse_origin, restored, slices
from shore.tables.feeds import FEEDS

T = dt.datetime(2026, 3, 1, 12, 0, 0, 7000, tzinfo=dt.UTC)
ROW: dict[str, Any] = {
    "log": "containers.BIGU0000016",
    "log_offset": 41,
    "equipment_reference": "BIGU0000016",
    "device_date_time": T,
    "received_date_time": T + dt.timedelta(seconds=1),
    "late": True,
    "payload": b"{}",
    "retracts": None,
    "revision": None,
}


def test_a_record_tells_where_it_came_from() -> None:
    record = new_record(ROW)
    assert (record.value, record.key, record.timestamp_ms) == (b"{}", b"BIGU0000016", 1772366400007)
    assert record.headers == (("origin", b"containers.BIGU0000016@41"), ("received", b"1772366401007"), ("late", b"1"))
    plain = new_record(ROW | {"received_date_time": None, "late": False})
    assert plain.headers == (("origin", b"containers.BIGU0000016@41"),)


def test_a_feed_read_back_gives_the_ledger() -> None:
    record = new_record(ROW)
    stored = Record(7, record.timestamp_ms, record.key, record.value, record.headers)
    stranger = Record(8, 0, None, b"?", (("origin", b"nowhere"),))
    table = given_rows([("ducks", stored), ("ducks", stranger)], FEEDS.plain_schema)
    assert table.schema == FEEDS.plain_schema
    assert table.to_pylist() == [
        {
            "customer": "ducks",
            "feed_offset": 7,
            "log": ROW["log"],
            "log_offset": 41,
            "equipment_reference": "BIGU0000016",
            "device_date_time": T,
            "retracts": False,
            "revision": None,
            "digest": None,
        }
    ]


@given(st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30)), st.integers(0, 31))
def test_a_feed_is_completed_at_its_own_offsets(there: set[int], lost: set[int], end: int) -> None:
    """A record has the offset of its row; fillers stand where there is no row, or no content any more."""
    rows = [ROW | {"feed_offset": at, "payload": None if at in lost else b"%d" % at} for at in sorted(there)]
    found = list(enumerate(restored(rows, end), start=end))
    assert len(found) == max(0, max(there, default=-1) + 1 - end)
    for offset, record in found:
        if offset in there - lost:
            assert record == new_record(ROW | {"payload": b"%d" % offset})
            assert is_data(record)
        else:
            assert is_filler(record)


def test_a_retraction_is_completed_like_any_record() -> None:
    row = ROW | {"feed_offset": 9, "retracts": 7, "payload": None, "received_date_time": None, "late": None}
    assert list(restored([row], 9)) == [new_record(row)]


def test_a_retraction_says_in_header_and_value_what_it_takes_back() -> None:
    record = new_record(ROW | {"retracts": 7, "payload": None, "received_date_time": None, "late": False})
    assert record.headers == (("retracts", b"containers.BIGU0000016@41"),)
    assert (record.key, record.timestamp_ms) == (b"BIGU0000016", 1772366400007)
    assert msgspec.json.decode(record.value or b"") == {
        "retracts": "containers.BIGU0000016@41",
        "feedOffset": 7,
        "equipmentReference": "BIGU0000016",
    }
    stored = Record(9, record.timestamp_ms, record.key, record.value, record.headers)
    (row,) = given_rows([("ducks", stored)], FEEDS.plain_schema).to_pylist()
    assert (row["feed_offset"], row["log"], row["log_offset"], row["retracts"]) == (9, ROW["log"], 41, True)


def test_origins() -> None:
    assert parse_origin(b"a.b@c@12") == ("a.b@c", 12)
    assert [parse_origin(text) for text in (None, b"", b"a.b", b"@1", b"a.b@", b"a.b@-1", b"a.b@x")] == [None] * 7


@given(st.lists(st.integers(0, 300_000), max_size=40))
def test_slices_keep_order_and_bounds(sizes: list[int]) -> None:
    records = [NewRecord(bytes(size), timestamp_ms=index) for index, size in enumerate(sizes)]
    parts = list(slices(records))
    assert [r for part in parts for r in part] == records
    assert all(parts)
    for part in parts:
        assert len(part) == 1 or sum(r.size_bound() for r in part) <= MAX_BYTES


def test_many_small_records_make_several_appends() -> None:
    parts = list(slices([NewRecord(b"", timestamp_ms=0)] * (2 * MAX_RECORDS + 1)))
    assert [len(part) for part in parts] == [MAX_RECORDS, MAX_RECORDS, 1]


def test_kinds_are_told_by_the_origin() -> None:
    logs = [
        "containers.BIGU1",
        "yellow.YELU1",
        "alerts.tokyo",
        "custody.a",
        "hours/B",
        "milestones/B/e",
        "movements/e.1",
    ]
    kinds = ["reading", "reading", "alert", "custody", "conditions", "milestone", "movement"]
    assert [kind_of(log) for log in logs] == kinds
