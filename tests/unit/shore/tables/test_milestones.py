"""Milestones under bookings, transhipments, changes of vessel, and the states of shipments. By DuckDB."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shore.tables import TABLES
from shore.tables.model import Table
from shore.tables.reference import site_rows
from tests.support.examples import examples
from tests.support.oracle.bookings import states
from tests.support.oracle.milestones import milestones, shipments_of
from tests.support.shore.fleet import BOX, MARLIN, OTHER, STAR, at, change, event, topology
from topologies.model import Exceptions

Row = dict[str, Any]
SITES = site_rows(topology(), {})
STRANGER = "9000001"


def of(table: str, rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=TABLES[table].plain_schema)


def made(events: list[Row], changes: list[Row]) -> tuple[list[Row], list[Row]]:
    """Return the rows of both tables, each sorted by time and key."""
    booked = states(of("booking_changes", changes))
    told = milestones(of("events", events), booked, SITES)
    return _sorted(TABLES["milestones"], told), _sorted(TABLES["shipments"], shipments_of(told, booked))


def _sorted(table: Table, rows: pa.Table) -> list[Row]:
    found: list[Row] = table.sorted(rows).to_pylist()
    return sorted(found, key=lambda row: row["event_date_time"]) if table.name == "milestones" else found


def loaded(hours: float, ship: str | None = STAR, site: str = "tokyo", **more: Any) -> Row:
    return event(int(hours * 10), hours, "LOAD", site=site, vessel_imo_number=ship, voyage_reference="V1", **more)


def discharged(hours: float, ship: str | None = STAR, port: str = "SGSIN", **more: Any) -> Row:
    return event(int(hours * 10), hours, "DISC", site="star", vessel_imo_number=ship, un_location_code=port, **more)


def gate(hours: float, code: str, site: str = "tokyo", **more: Any) -> Row:
    return event(int(hours * 10), hours, code, site=site, **more)


def told(rows: list[Row]) -> list[tuple[str, str | None]]:
    return [(row["milestone"], row["from_vessel_imo_number"]) for row in rows]


DERIVED = ("TRANSHIPMENT", "CHANGE_OF_VESSEL")
DIRECT = [gate(1, "GTIN"), loaded(2), discharged(30), gate(40, "GTOT", "singapore")]


def test_every_event_is_a_milestone_of_its_booking() -> None:
    found, _ = made(DIRECT, [change(1, 0, transport_document_reference="BL7")])
    assert [row["milestone"] for row in found] == ["GTIN", "LOAD", "DISC", "GTOT"]
    assert {(row["booking_reference"], row["transport_document_reference"]) for row in found} == {("B1", "BL7")}
    load = found[1]
    assert (load["vessel"], load["un_location_code"], load["voyage_reference"]) == ("MV Duck Star", "JPTYO", "V1")


def test_an_event_is_one_milestone_however_often_it_is_told() -> None:
    first, again = loaded(2), loaded(2) | {"log": "events.star", "log_offset": 9, "event_created_date_time": at(3)}
    found, _ = made([again | {"vessel_imo_number": MARLIN}, first], [change(1, 0)])
    assert [(row["milestone"], row["vessel_imo_number"]) for row in found] == [("LOAD", STAR)]


def test_an_event_without_a_booking_belongs_to_what_holds_at_its_time() -> None:
    changes = [
        change(1, 0, valid_from=at(0), valid_to=at(10)),
        change(2, 0, booking_reference="B2", valid_from=at(10)),
        change(3, 0, booking_reference="B3", valid_from=at(10)),
        change(4, 0, booking_reference="B4", equipment_reference=OTHER, valid_from=at(0)),
    ]
    events = [gate(-1, "GTIN", booking_reference=None), loaded(2, booking_reference=""),
              discharged(12, booking_reference=None), gate(20, "GTOT", booking_reference="B1")]  # fmt: skip
    found, _ = made(events, changes)
    assert [(row["milestone"], row["booking_reference"]) for row in found] == [
        ("LOAD", "B1"), ("DISC", "B2"), ("DISC", "B3"), ("GTOT", "B1")
    ]  # fmt: skip


def test_a_milestone_of_a_booking_that_is_not_known_yet_is_kept() -> None:
    found, shipments = made([loaded(2)], [])
    assert [(row["booking_reference"], row["transport_document_reference"]) for row in found] == [("B1", None)]
    assert shipments == []


def test_loaded_again_after_a_discharge_is_a_transhipment() -> None:
    events = [loaded(2), discharged(30), loaded(40, MARLIN, "singapore"), discharged(60, MARLIN, "AUSYD")]
    found, (shipment,) = made(events, [change(1, 0, port_of_discharge="AUSYD")])
    assert sorted(told(found)) == [
        ("CHANGE_OF_VESSEL", STAR), ("DISC", None), ("DISC", None), ("LOAD", None), ("LOAD", None),
        ("TRANSHIPMENT", STAR),
    ]  # fmt: skip
    (moved,) = (row for row in found if row["milestone"] == "TRANSHIPMENT")
    assert (moved["event_date_time"], moved["un_location_code"]) == (at(40), "SGSIN")
    assert (moved["from_vessel"], moved["vessel"]) == ("MV Duck Star", "MV Blue Marlin")
    assert (shipment["state"], shipment["transhipments"]) == ("IN_TRANSIT", 1)


@pytest.mark.parametrize(
    ("events", "derived"),
    [
        ([loaded(2), discharged(3, port="JPTYO"), loaded(4)], [("TRANSHIPMENT", STAR)]),  # the same ship again
        ([loaded(2), loaded(40, MARLIN)], [("CHANGE_OF_VESSEL", STAR)]),  # the DISC was never told
        ([loaded(2), loaded(3, STAR, event_id="again")], []),
        ([discharged(1), loaded(2)], [("TRANSHIPMENT", STAR)]),  # the first LOAD was never told
        ([loaded(2), discharged(30, None), loaded(40, MARLIN)], [("CHANGE_OF_VESSEL", STAR), ("TRANSHIPMENT", STAR)]),
        ([loaded(2), discharged(30), loaded(40, None)], [("TRANSHIPMENT", STAR)]),  # onto which ship is not told
        ([loaded(2), discharged(30), loaded(40, MARLIN, booking_reference="B2")], []),  # the next journey
        ([loaded(2), discharged(30), loaded(40, STRANGER)], [("CHANGE_OF_VESSEL", STAR), ("TRANSHIPMENT", STAR)]),
    ],
)
def test_what_is_derived(events: list[Row], derived: list[tuple[str, str | None]]) -> None:
    found, _ = made(events, [change(1, 0)])
    assert sorted(each for each in told(found) if each[0] in DERIVED) == derived


@pytest.mark.parametrize(
    ("events", "hours"),
    [
        (DIRECT, [None, 1.0, None, 10.0]),
        ([loaded(2), discharged(30), loaded(44.5, STAR, "singapore")], [None, None, 14.5]),
        ([gate(1, "GTIN"), discharged(5), gate(9, "GTOT", "singapore")], [None, None, 4.0]),
        ([gate(1, "GTIN"), gate(7, "GTOT")], [None, 6.0]),  # it leaves by the gate that it came in by
        ([discharged(30), loaded(40)], [None, None]),  # in another port: moves between were never told
        ([gate(1, "GTIN"), loaded(2), loaded(3, event_id="again")], [None, 1.0, None]),
    ],
)
def test_how_long_a_container_stayed_in_a_port(events: list[Row], hours: list[float | None]) -> None:
    found, _ = made(events, [change(1, 0)])
    assert [row["dwell_hours"] for row in found if row["milestone"] not in DERIVED] == hours
    assert {row["dwell_hours"] for row in found if row["milestone"] in DERIVED} <= {None}
    assert not any(row["long_dwell"] for row in found)


@pytest.mark.parametrize(("dwell_hours", "long"), [(9, ["GTOT"]), (10, []), (11, [])])
def test_a_topology_says_which_stay_is_long(dwell_hours: int, long: list[str]) -> None:
    booked, events = states(of("booking_changes", [change(1, 0)])), of("events", DIRECT)
    rows = milestones(events, booked, SITES, Exceptions(dwell_hours=dwell_hours)).to_pylist()
    assert [row["milestone"] for row in rows if row["long_dwell"]] == long
    assert {row["long_dwell"] for row in rows} <= {True, False}


def state(events: list[Row], *changes: Row) -> str:
    (shipment,) = made(events, list(changes) or [change(1, 0)])[1]
    return str(shipment["state"])


def test_the_state_follows_the_milestones() -> None:
    assert [state(DIRECT[:n]) for n in range(5)] == [
        "SCHEDULED", "SCHEDULED", "IN_TRANSIT", "IN_TRANSIT", "COMPLETED"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("events", "change_of_booking", "wanted"),
    [
        ([gate(1, "GTIN"), gate(2, "GTOT")], {}, "SCHEDULED"),  # it left the yard again
        ([loaded(2), discharged(3), gate(4, "GTOT", "tokyo")], {}, "IN_TRANSIT"),  # by lorry to another terminal
        ([loaded(2), discharged(3), gate(4, "GTOT", "tokyo")], {"port_of_discharge": ""}, "COMPLETED"),
        ([gate(1, "GTOT", "tokyo")], {"port_of_discharge": ""}, "SCHEDULED"),
        ([*DIRECT, loaded(50, MARLIN, "singapore")], {}, "IN_TRANSIT"),  # sent on under the same booking
        (DIRECT[:2], {"status": "COMPLETED", "valid_to": at(9)}, "COMPLETED"),
        (DIRECT, {"status": "CANCELLED"}, "CANCELLED"),
    ],
)
def test_states(events: list[Row], change_of_booking: Row, wanted: str) -> None:
    assert state(events, change(1, 0), change(2, 1, **change_of_booking)) == wanted


def test_a_shipment_says_where_its_container_is() -> None:
    names = ("milestone", "un_location_code", "vessel", "loaded_date_time", "discharged_date_time", "state")
    changes = [change(1, 0, consignee="toyshop", transport_document_reference="BL7")]
    aboard, ashore = (made(DIRECT[:n], changes)[1][0] for n in (2, 3))
    assert [aboard[name] for name in names] == ["LOAD", "JPTYO", "MV Duck Star", at(2), None, "IN_TRANSIT"]
    assert [ashore[name] for name in names] == ["DISC", "SGSIN", None, at(2), at(30), "IN_TRANSIT"]
    assert (aboard["consignee"], aboard["transport_document_reference"]) == ("toyshop", "BL7")


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.sampled_from(["GTIN", "LOAD", "DISC", "GTOT"]), max_size=8), st.randoms(use_true_random=False))
def test_milestones_do_not_depend_on_the_order_of_records(codes: list[str], choose: random.Random) -> None:
    events = [
        event(n, n, code, vessel_imo_number=choose.choice([STAR, MARLIN, None]) if code in ("LOAD", "DISC") else None)
        for n, code in enumerate(codes)
    ]
    found = made(events, [change(1, 0)])
    assert made(choose.sample(events, len(events)), [change(1, 0)]) == found
    plain = [row for row in found[0] if row["milestone"] in ("GTIN", "LOAD", "DISC", "GTOT")]
    assert [row["milestone"] for row in plain] == codes
    again = sum(code == "LOAD" and before == "DISC" for before, code in _after(codes))
    assert found[1][0]["transhipments"] == again
    assert {row["equipment_reference"] for row in found[0]} <= {BOX}


def _after(codes: list[str]) -> list[tuple[str, str]]:
    """Return each LOAD and DISC with the one before it."""
    handled = [code for code in codes if code in ("LOAD", "DISC")]
    return list(pairwise(handled))
