"""The times for which bookings hold, against a model that follows the history of each, hour by hour."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.alerts.rules.bookings import Bookings
from fairlead.records.booking import Booking
from shore.feeds.periods import PERIODS
from shore.tables import TABLES
from shore.tables.valid_bookings import COLUMNS, VALID_BOOKINGS
from tests.support.examples import examples
from tests.support.oracle.bookings import states
from tests.support.oracle.sql import select
from tests.support.shore.fleet import BOX, OTHER, at, change

SCHEMA = pa.schema([TABLES["bookings"].plain_schema.field(name) for name in (*COLUMNS, "valid_from", "valid_to")])
PARTIES = pa.schema([SCHEMA.field(name) for name in ("customer", "equipment_reference", "valid_from", "valid_to")])
HOURS = range(-1, 8)


@st.composite
def histories(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw changes of two bookings from two offices' logs, recorded in the order of the list."""
    found = []
    for number in range(draw(st.integers(0, 7))):
        begin = draw(st.integers(0, 6))
        end = draw(st.one_of(st.none(), st.integers(0, 6)))
        found.append(
            change(
                number,
                number,
                draw(st.sampled_from(["hq", "tokyo"])),
                booking_reference=draw(st.sampled_from(["B1", "B1", "B2"])),
                equipment_reference=draw(st.sampled_from([BOX, BOX, OTHER])),
                status=draw(st.sampled_from(["CONFIRMED", "COMPLETED", "CANCELLED", "CANCELLED"])),
                customer=draw(st.sampled_from(["ducks", "toyshop"])),
                valid_from=at(begin),
                valid_to=None if end is None else at(end),
            )
        )
    return found


def valid(changes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    told = pa.Table.from_pylist(changes, schema=TABLES["booking_changes"].plain_schema)
    found: list[dict[str, Any]] = select(VALID_BOOKINGS, SCHEMA, bookings=states(told)).to_pylist()
    return found


def names(change: dict[str, Any], moment: dt.datetime) -> bool:
    return bool(change["valid_from"] <= moment and (change["valid_to"] is None or moment < change["valid_to"]))


def holds(changes: list[dict[str, Any]], moment: dt.datetime) -> set[tuple[str, str, str, str]]:
    """Return bookings that hold at a moment, with customer and status of their newest change that cancels nothing."""
    held: dict[tuple[str, str], tuple[str, str]] = {}
    for each in changes:
        booking = (each["booking_reference"], each["equipment_reference"])
        if each["status"] != "CANCELLED":
            held.pop(booking, None)
        if names(each, moment):
            held.pop(booking, None)
            if each["status"] != "CANCELLED":
                held[booking] = (each["customer"], each["status"])
    return {booking + said for booking, said in held.items()}


@settings(max_examples=examples(150), deadline=None)
@given(histories())
def test_a_booking_holds_less_what_was_cancelled(changes: list[dict[str, Any]]) -> None:
    found = valid(changes)
    for hour in HOURS:
        moment = at(hour)
        here = [row for row in found if names(row, moment)]
        said = {tuple(row[name] for name in ("booking_reference", "equipment_reference", "customer", "status"))
                for row in here}  # fmt: skip
        assert said == holds(changes, moment), hour
        assert len(here) == len(said)  # one row of a booking at a time
    for row in found:
        assert row["valid_to"] is None or row["valid_from"] < row["valid_to"]


def test_what_is_left_around_cancelled_times() -> None:
    changes = [
        change(1, 0, valid_to=at(9)),
        *(cancelled(i, *hours) for i, hours in enumerate([(5, 6), (2, 4), (3, 5)], 2)),
    ]
    assert stretches(changes) == [(at(0), at(2)), (at(6), at(9))]
    assert stretches([*changes, cancelled(6, 1, None)]) == [(at(0), at(1))]
    assert stretches([*changes, cancelled(6, 0, 9)]) == []
    assert stretches([*changes, cancelled(6, 0, None), change(7, 7, valid_from=at(8))]) == [(at(8), None)]


def cancelled(offset: int, begin: int, end: int | None) -> dict[str, Any]:
    stops = None if end is None else at(end)
    return change(offset, offset, status="CANCELLED", valid_from=at(begin), valid_to=stops)


def stretches(changes: list[dict[str, Any]]) -> list[tuple[dt.datetime, dt.datetime | None]]:
    return sorted((row["valid_from"], row["valid_to"]) for row in valid(changes))


@settings(max_examples=examples(150), deadline=None)
@given(histories(), st.lists(st.sampled_from(["", "ducks", "beans"]), min_size=7, max_size=7))
def test_notifications_know_the_same_parties_as_feeds(changes: list[dict[str, Any]], consignees: list[str]) -> None:
    """Feeds ask by SQL over tables, notifications a table of the bookings that they have read from the logs."""
    changes = [{**each, "consignee": name} for each, name in zip(changes, consignees, strict=False)]
    told = pa.Table.from_pylist(changes, schema=TABLES["booking_changes"].plain_schema)
    feeds = select(PERIODS, PARTIES, bookings=states(told)).to_pylist()
    known = Bookings(kept=None)
    for each in changes:
        known.apply(Booking(**{name: each[name] for name in Booking.__struct_fields__ if name in each}))
    for hour in HOURS:
        moment = at(hour)
        for box in (BOX, OTHER):
            wanted = {row["customer"] for row in feeds if row["equipment_reference"] == box and names(row, moment)}
            assert known.parties(box, moment.timestamp() * 1000) == wanted, (box, hour)
