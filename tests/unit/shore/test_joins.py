"""The named views: readings and alerts with the bookings, positions and holders of their time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shore.read import rows, sql
from shore.tables import TABLES
from tests.support.delta_rs import create
from tests.support.ledgers import entry
from tests.support.shore.fleet import BOX, OTHER, Fleet, alert, at, change, ledger, position, reading
from tests.support.shore.raw_records import make_custody

LOG = f"containers.{BOX}"


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    made = Fleet(tmp_path)
    create(TABLES["custody"], made.paths.table("custody"))
    return made


def held(fleet: Fleet, *entries: Any) -> None:
    fleet.add(custody_entries=[ledger(i, each) for i, each in enumerate(entries)])
    make_custody(fleet.paths)


def ask(fleet: Fleet, query: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in rows(sql(fleet.folder, query))]


def test_readings_get_the_booking_valid_at_their_time(fleet: Fleet) -> None:
    fleet.add(
        readings=[reading(i, i) for i in range(5)],
        booking_changes=[
            change(1, 0, valid_from=at(1)),
            change(2, 5, valid_from=at(1), valid_to=at(3), status="COMPLETED"),
            change(3, 5, booking_reference="B2", customer="toyshop", valid_from=at(3)),
            change(4, 5, booking_reference="B3", customer="nobody", status="CANCELLED"),
        ],
    )
    query = "select log_offset, booking_reference, customer, commodity from readings_with_bookings order by log_offset"
    assert ask(fleet, query) == [
        (0, None, None, None),
        (1, "B1", "ducks", "toy-ducks"),
        (2, "B1", "ducks", "toy-ducks"),
        (3, "B2", "toyshop", "toy-ducks"),
        (4, "B2", "toyshop", "toy-ducks"),
    ]


def test_readings_before_a_cancellation_keep_their_booking(fleet: Fleet) -> None:
    fleet.add(
        readings=[reading(i, i) for i in range(6)],
        booking_changes=[
            change(1, 0, valid_to=at(5)),
            change(2, 2, valid_from=at(2), valid_to=at(4), status="CANCELLED", customer="toyshop"),
        ],
    )
    query = "select log_offset, customer, valid_from, valid_to from readings_with_bookings order by log_offset"
    kept, again = ("ducks", at(0), at(2)), ("ducks", at(4), at(5))
    none = (None, None, None)
    assert ask(fleet, query) == [
        (offset, *booking) for offset, booking in enumerate((kept, kept, none, none, again, none))
    ]


POSITIONS = """select log_offset, holder, vessel_imo_number, round(ship_latitude, 4), round(ship_longitude, 4),
    ship_gap_minutes from readings_with_positions order by log, log_offset"""


def test_readings_get_the_position_of_the_ship_that_held_the_log(fleet: Fleet) -> None:
    held(fleet, entry(1, 0, "tokyo", "GTIN"), entry(2, 2, "star", "LOAD"), entry(3, 8, "tokyo", "DISC", by="star"))
    steps = [(10.0, (10.0, 179.5)), (10.5, (11.0, -179.5)), (12.5, (12.0, -178.0)), (13.0, (12.5, -177.0))]
    fleet.add(positions=[position(i, hours, place) for i, (hours, place) in enumerate(steps)])
    fleet.add(positions=[position(9, 10.0, (0.0, 0.0))])  # of two at one moment, the first written counts
    times = {1: 10.25, 3: 9.0, 4: 10.0, 5: 10.25, 6: 11.0, 7: 14.0, 9: 10.25}
    fleet.add(readings=[reading(offset, hours) for offset, hours in times.items()])
    assert ask(fleet, POSITIONS) == [
        (1, "tokyo", None, None, None, None),
        (3, "star", "9074729", None, None, None),  # before the first position
        (4, "star", "9074729", 10.0, 179.5, 0.0),
        (5, "star", "9074729", 10.5, 180.0, 30.0),  # over the antimeridian
        (6, "star", "9074729", None, None, 120.0),  # too long without a position
        (7, "star", "9074729", None, None, None),  # after the last one
        (9, "tokyo", None, None, None, None),
    ]


def test_alerts_get_who_held_the_box(fleet: Fleet) -> None:
    first, second = entry(1, 0, "tokyo", "GTIN"), entry(2, 2, "star", "LOAD")
    lost, seized = entry(3, 9, "marlin", "HAND"), entry(18, 5, "tokyo", "SEIZURE")
    held(fleet, first, second, lost, seized)
    between = [each.event_date_time for each in (first, second, lost, seized)]
    alerts = [alert(i, 0, event_date_time=time) for i, time in enumerate(between)]
    fleet.add(alerts=[*alerts, alert(8, -1), alert(9, 20, equipment_reference=OTHER)])
    query = "select log_offset, holder, holder_kind, custody_term, custody_event from alerts_with_custody order by 1"
    assert ask(fleet, query) == [
        (0, "tokyo", "port", 1, "GTIN"),
        (1, "star", "ship", 2, "LOAD"),
        (2, "star", "ship", 2, "LOAD"),  # what the lost holder granted does not count
        (3, "tokyo", "port", 18, "SEIZURE"),
        (8, None, None, None, None),
        (9, None, None, None, None),
    ]


def test_gaps_between_days(fleet: Fleet) -> None:
    fleet.add(readings=[reading(1, 1), reading(2, 2), reading(5, 26), reading(6, 50), reading(9, 75, boot_id=2)])
    query = "select previous_date_time, next_date_time, boot_id, missing from device_gaps"
    assert ask(fleet, query) == [(at(2), at(26), 1, 2)]


def test_a_gap_of_any_sequence_numbers(fleet: Fleet) -> None:
    fleet.add(readings=[reading(1, 1, sequence=-5), reading(2, 26, sequence=2**63 - 1)])
    assert ask(fleet, "select missing from device_gaps") == [(2**63 - 1,)]


def test_views_can_be_joined_and_filtered(fleet: Fleet) -> None:
    fleet.add(readings=[reading(1, 1), reading(1, 1, OTHER)], booking_changes=[change(1, 0)])
    query = f"""select r.equipment_reference, b.customer from READINGS_WITH_BOOKINGS b
        join readings r using (log, log_offset) where b.equipment_reference = '{BOX}'"""  # noqa: S608
    assert ask(fleet, query) == [(BOX, "ducks")]
