"""A recipient's coarse feed: hours and their revisions, milestones; nothing of single readings."""

from __future__ import annotations

from typing import Any

from fairlead.kafka.protocol.record import Record
from tests.support.feeds import followed, value_of
from tests.unit.shore.feeds.histories import BOOKED, BOXES, SHOP, Change, Happened, Moved, World

BOX = BOXES[0]


def booked() -> World:
    world = World()
    world.changed(BOOKED)
    return world


def read(world: World, *hours: int) -> None:
    for hour in hours:
        world.happened(Happened("readings", BOX, hour))


def given(world: World) -> list[Record]:
    """What the shop got by one more delivery."""
    before = len(world.feeds[SHOP])
    world.deliver(None)
    return world.feeds[SHOP][before:]


def told(records: list[Record]) -> list[tuple[str, int, int]]:
    """Origin, readings and revision of hours."""
    found = []
    for record in records:
        value = value_of(record)
        origin = dict(record.headers)["origin"] or b""
        found.append((origin.decode(), value["readings"], value["revision"]))
    return found


def hour(number: int) -> str:
    return f"hours/{BOX}@{492312 + number}"


def test_an_hour_comes_with_the_first_reading_of_a_later_one() -> None:
    world = booked()
    read(world, 0, 0)
    assert given(world) == []
    read(world, 3)
    (record,) = given(world)
    assert told([record]) == [(hour(0), 2, 0)]
    assert record.key == BOX.encode()
    assert value_of(record) == {
        "kind": "conditions",
        "equipmentReference": BOX,
        "windowStart": "2026-03-01T00:00:00Z",
        "windowEnd": "2026-03-01T01:00:00Z",
        "readings": 2,
        "supplyTemperature": {"min": 1.3, "mean": 1.95, "max": 2.6},
        "returnTemperature": {},
        "minutesOutOfBand": 0.0,
        "minutesWithoutPower": 0.0,
        "minutesObserved": 37.0,
        "revision": 0,
    }
    assert given(world) == []


def test_a_late_reading_makes_a_revision_of_its_hour_and_of_the_next_that_it_stands_into() -> None:
    world = booked()
    read(world, 0, 1, 2, 3)
    assert told(given(world)) == [(hour(0), 1, 0), (hour(1), 1, 0), (hour(2), 1, 0)]
    read(world, 1)
    assert told(given(world)) == [(hour(1), 2, 1), (hour(2), 1, 1)]  # at 01:35, for half an hour
    read(world, 0)
    assert told(given(world)) == [(hour(0), 2, 1), (hour(1), 2, 2)]
    read(world, 0)
    world.tables["readings"][-1] |= {"device_date_time": world.tables["readings"][0]["device_date_time"]}
    assert told(given(world)) == [(hour(0), 3, 2)]


def test_a_corrected_booking_takes_hours_back_and_gives_them_again() -> None:
    world = booked()
    read(world, 0, 1, 2, 3)
    given(world)
    world.changed(Change("B1", BOX, "ducks", "CONFIRMED", 1, None, SHOP))
    (taken,) = given(world)
    assert dict(taken.headers)["retracts"] == hour(0).encode()
    world.changed(BOOKED)
    assert told(given(world)) == [(hour(0), 1, 1)]
    world.changed(Change("B1", BOX, "ducks", "CONFIRMED", 0, None, None))  # no recipient after all
    given(world)
    assert followed(world.feeds[SHOP]) == []


def test_milestones_are_those_of_the_box_and_of_the_ship_while_it_is_aboard() -> None:
    world = booked()
    for code, at in (("ARRI", 0), ("LOAD", 1), ("DEPA", 2), ("ARRI", 3), ("DISC", 4), ("DEPA", 5)):
        world.moved(Moved(code, BOX, at, copies=2))
    values = [value_of(record) for record in given(world)]
    codes = [value.get("equipmentEventTypeCode") or value["transportEventTypeCode"] for value in values]
    assert codes == ["LOAD", "DEPA", "ARRI", "DISC"]
    assert values[0] == {
        "kind": "milestone",
        "equipmentReference": BOX,
        "eventID": "e2",
        "equipmentEventTypeCode": "LOAD",
        "eventDateTime": "2026-03-01T01:00:00Z",
        "vesselIMONumber": "9074729",
        "revision": 0,
    }
    world.changed(Change("B1", BOX, "ducks", "CANCELLED", 3, None, None))
    assert len(given(world)) == 2
    kept: list[dict[str, Any]] = [value_of(record) for record in followed(world.feeds[SHOP])]
    assert [value["eventID"] for value in kept] == ["e2", "e4"]


def test_single_readings_and_custody_are_not_for_a_recipient() -> None:
    world = booked()
    for table in ("readings", "custody_entries", "alerts"):
        world.happened(Happened(table, BOX, 1))
    assert [record.value for record in given(world)] == [b"alerts.tokyo@3"]
    assert len(world.feeds["ducks"]) == 3
