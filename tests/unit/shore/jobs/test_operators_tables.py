"""The tables of bookings, docks, ships, boxes and devices: what they say, and that batches make no difference."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from shore.jobs import reference, voyages
from tests.support.examples import examples
from tests.unit.shore.fleet import (
    BOX,
    DERIVED,
    MARLIN,
    OTHER,
    SINGAPORE,
    STAR,
    STRANGER,
    YELLOW,
    Fleet,
    at,
    change,
    docked,
    event,
    merged,
    position,
    reading,
    story,
    topology,
)
from topologies.model import Site, SiteKind


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path)


# -- bookings


STATE = ("recorded_from", "recorded_to", "is_current", "status", "valid_to")


def test_a_booking_has_a_row_for_every_state(fleet: Fleet) -> None:
    fleet.add(booking_changes=[change(1, 0), change(2, 0, equipment_reference=OTHER)])
    fleet.add(booking_changes=[change(3, 5, status="COMPLETED", valid_to=at(4))])
    mine = [row for row in fleet.rows("bookings") if row["equipment_reference"] == BOX]
    assert [tuple(row[name] for name in STATE) for row in mine] == [
        (at(0), at(5), False, "CONFIRMED", None),
        (at(5), None, True, "COMPLETED", at(4)),
    ]
    assert fleet.rows("bookings", "equipment_reference", "is_current")[-1] == (OTHER, True)


def test_the_same_said_again_is_no_new_state(fleet: Fleet) -> None:
    fleet.add(booking_changes=[change(1, 0), change(2, 1), change(3, 2, customer="toyshop"), change(4, 3)])
    assert fleet.rows("bookings", "recorded_from", "recorded_to", "customer") == [
        (at(0), at(2), "ducks"),
        (at(2), at(3), "toyshop"),
        (at(3), None, "ducks"),  # back to what was: a state of its own
    ]


def test_two_offices_are_ordered_by_time_and_no_log_is_read_backwards(fleet: Fleet) -> None:
    fleet.add(booking_changes=[change(1, 4, customer="a"), change(2, 3, customer="b")])  # a clock was set back
    fleet.add(booking_changes=[change(7, 1, "tokyo", customer="c"), change(8, 4, "tokyo", customer="d")])
    states = sorted(fleet.rows("bookings", "recorded_from", "log", "log_offset", "customer"))
    assert [customer for *_, customer in states] == ["c", "a", "b", "d"]
    assert [time for time, *_ in states] == [at(1), at(4), at(4), at(4)]


def test_what_cannot_be_read_is_no_booking(fleet: Fleet) -> None:
    broken = {"log": "bookings.hq", "log_offset": 1, "problem": "broken", "record_date_time": at(0)}
    fleet.add(booking_changes=[broken | dict.fromkeys(("booking_reference", "equipment_reference"))])
    assert fleet.rows("bookings") == []


# -- dock movements


def test_movements_say_what_came_and_left_and_of_which_line(fleet: Fleet) -> None:
    fleet.add(
        events=[
            event(1, 0, "GTIN"),
            event(2, 1, "GTIN", YELLOW),
            event(3, 1.5, "GTIN", STRANGER),
            docked(4, 2, "ARRI"),
            event(5, 3, "LOAD", vessel_imo_number=STAR, voyage_reference="V1"),
        ]
    )
    columns = ("movement", "un_location_code", "equipment_reference", "line", "vessel")
    assert sorted(fleet.rows("dock_movements", "event_date_time", *columns)) == [
        (at(0), "GTIN", "JPTYO", BOX, "Our own", None),
        (at(1), "GTIN", "JPTYO", YELLOW, "Yellow Box Leasing", None),
        (at(1.5), "GTIN", "JPTYO", STRANGER, None, None),
        (at(2), "ARRI", "JPTYO", None, None, "MV Duck Star"),
        (at(3), "LOAD", "JPTYO", BOX, "Our own", "MV Duck Star"),
    ]
    names = set(DeltaTable(fleet.paths.table("dock_movements")).to_pyarrow_dataset().schema.names)
    assert not {"booking_reference", "commodity", "customer", "setpoint_temperature"} & names


def test_an_event_is_one_row_however_often_it_is_told(fleet: Fleet) -> None:
    first = docked(1, 2, "ARRI")
    fleet.add(events=[first | {"event_created_date_time": at(3)}])
    fleet.add(events=[first | {"log": "events.star", "log_offset": 9, "publisher": "star"}])  # written down before
    fleet.add(events=[first | {"log_offset": 2, "event_created_date_time": at(4)}])
    assert fleet.rows("dock_movements", "copies", "log", "publisher") == [(3, "events.star", "star")]


def test_the_port_of_an_event_without_one_is_that_of_the_site_that_tells_it(fleet: Fleet) -> None:
    fleet.add(events=[event(1, 0, "GTIN", un_location_code=None), event(2, 1, "DISC", site="star")])
    assert sorted(fleet.rows("dock_movements", "movement", "un_location_code"), key=str) == [
        ("DISC", None),
        ("GTIN", "JPTYO"),
    ]


# -- port calls and voyages


def test_calls_and_legs_follow_events_and_positions(fleet: Fleet) -> None:
    fleet.add(events=[docked(1, 0, "ARRI"), docked(2, 10, "DEPA")])
    fleet.add(positions=[position(i, 10 + i, (35.0 - i, 139.0 - i)) for i in range(1, 10)])
    assert fleet.rows("voyages", "from_un_location_code", "to_un_location_code", "positions") == [("JPTYO", None, 9)]
    fleet.add(positions=[position(20, 30, SINGAPORE, 0.0), position(21, 32, SINGAPORE, 0.0)])  # no ARRI yet
    assert fleet.rows("port_calls", "un_location_code", "arrival_date_time", "arrival_source", "in_port") == [
        ("JPTYO", at(0), "EVENT", False),
        ("SGSIN", at(30), "POSITION", True),
    ]
    fleet.add(events=[docked(3, 29, "ARRI", "singapore")])  # days late
    assert fleet.rows("port_calls", "arrival_date_time", "arrival_source")[1] == (at(29), "EVENT")
    (leg,) = fleet.rows("voyages")
    assert (leg["vessel"], leg["voyage_reference"], leg["arrival_date_time"]) == ("MV Duck Star", "V1", at(29))
    assert leg["distance"] == pytest.approx(8 * 79.4, rel=0.01)
    assert (leg["gaps"], leg["gap_minutes"], leg["longest_gap_minutes"]) == (1, 600, 600)
    assert fleet.differing() == []


def test_a_repeated_position_counts_once(fleet: Fleet) -> None:
    steps = [position(i, i, (10.0 + i, 120.0)) for i in range(3)]
    fleet.add(positions=[*steps, steps[1] | {"log_offset": 9}])
    (leg,) = fleet.rows("voyages")
    assert (leg["positions"], round(leg["distance"])) == (3, 120)


# -- another topology


def test_another_topology_makes_the_tables_anew(fleet: Fleet) -> None:
    fleet.add(events=[event(1, 0, "GTIN", YELLOW), docked(2, 1, "ARRI", ship=MARLIN)], readings=[reading(1, 0, YELLOW)])
    before = topology()
    after = before.model_copy(
        update={
            "customers": {},
            "sites": before.sites | {"marlin": Site(kind=SiteKind.SHIP, title="MV Red Herring", imo=MARLIN)},
        }
    )
    for again in (False, True):
        reference.refresh(fleet.paths, after)
        voyages.follow_topology(fleet.paths)
        assert set(fleet.rows("dock_movements", "line", "vessel")) == {("yellow", None), (None, "MV Red Herring")}
        assert fleet.rows("port_calls", "vessel") == ["MV Red Herring"]
        assert DeltaTable(fleet.paths.table("sites")).version() == 2, again
    assert fleet.differing() == []


# -- any order, any batches, any repeats


@pytest.fixture(scope="module")
def wanted() -> dict[str, list[Any]]:
    """All tables after the story in one batch."""
    with tempfile.TemporaryDirectory() as folder:
        fleet = Fleet(Path(folder))
        fleet.add(**merged(story()))
        assert fleet.differing() == []
        return {name: fleet.rows(name) for name in DERIVED}


@settings(max_examples=examples(8), deadline=None)
@given(data=st.data())
def test_batches_in_any_order_and_repeated_make_the_same_tables(
    data: st.DataObject, wanted: dict[str, list[Any]]
) -> None:
    shuffled = data.draw(st.permutations(story()))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(shuffled)), max_size=3)))
    parts = [shuffled[a:b] for a, b in zip([0, *cuts], [*cuts, len(shuffled)], strict=True)]
    with tempfile.TemporaryDirectory() as folder:
        fleet = Fleet(Path(folder))
        for part in parts:
            fleet.add(**merged(part))
            if data.draw(st.booleans()):
                fleet.update(merged(part))  # the driver was killed before Spark's commit
        assert fleet.differing() == []
        for name, rows in wanted.items():
            assert fleet.rows(name) == rows, name
