"""Histories written step by step: entitlement by bookings, coarse feeds, movements, and changes of a feed's kind."""

from __future__ import annotations

import datetime as dt
from collections.abc import Generator
from itertools import combinations
from typing import Any

from fairlead.kafka.protocol.record import Record
from fairlead.records import decoder
from fairlead.records.alert import Alert
from tests.integration.shore.feeds.scenarios import KEPT_SINCE, T0, Play, Scenario, Wish, World, hours
from tests.support.feeds import followed, value_of
from topologies.model import Grain

SHOP, PORT = "shop", "port-authority"
Delivered = Generator[Wish, dict[str, list[Record]], list[Record]]


def delivered(world: World, name: str, wish: Wish = "batch") -> Delivered:
    """Return what a customer gets by one more delivery."""
    return (yield wish)[world.customer(name)]


def offsets(records: list[Record], header: str = "origin") -> list[int]:
    """Return the offsets that records name as their origin, or that they retract."""
    named = [dict(record.headers).get(header) for record in records]
    return [int(name.rpartition(b"@")[2]) for name in named if name is not None]


def from_valid_from_inclusive_to_valid_to_exclusive(world: World) -> Play:
    world.reader("ducks")
    rows = [world.happened("readings", at) for at in (0.9, 1.0, 1.5, 2.0)]
    world.booked(1, 2)
    found = yield from delivered(world, "ducks")
    assert offsets(found) == [row["log_offset"] for row in rows[1:3]]


def other_boxes_and_unknown_customers_give_nothing(world: World) -> Play:
    world.reader("ducks")
    world.happened("readings", 1, box=1)
    world.happened("readings", 1)
    world.booked(0, None, "stranger")
    assert not (yield from delivered(world, "ducks"))
    world.booked(0, None, reference="B2")
    assert offsets((yield from delivered(world, "ducks"))) == [1]
    assert not world.feed("stranger")


def the_newest_state_of_a_booking_counts(world: World) -> Play:
    world.reader("ducks")
    for at in range(1, 6):
        world.happened("readings", at)
    world.booked(2, None)
    world.booked(2, 4, status="COMPLETED")
    assert offsets((yield from delivered(world, "ducks"))) == [2, 3]
    world.booked(2, 4, status="CANCELLED")
    assert offsets((yield from delivered(world, "ducks")), "retracts") == [2, 3]


def between_two_offices_the_change_recorded_last_counts(world: World) -> Play:
    """Offsets of two logs cannot be compared, so record times decide, as in table ``bookings``."""
    world.reader("ducks")
    world.happened("readings", 1)
    world.booked(0, None, record_date_time=hours(1))
    world.booked(0, None, status="CANCELLED", log="bookings.tokyo", record_date_time=hours(2))
    assert not (yield from delivered(world, "ducks"))
    world.tables["booking_changes"][-1]["record_date_time"] = hours(0)
    world.changes.append({"kind": "bookings", "equipment_reference": world.box()})
    assert offsets((yield from delivered(world, "ducks"))) == [1]


def overlapping_bookings_deliver_once_and_two_customers_each_get_theirs(world: World) -> Play:
    world.reader("ducks")
    world.reader("toyshop")
    for at in range(1, 4):
        world.happened("readings", at)
    world.booked(0, 3)
    world.booked(1, None, reference="B2")
    world.booked(3, None, "toyshop", reference="B3")
    assert offsets((yield from delivered(world, "ducks"))) == [1, 2, 3]
    assert offsets(world.feed("toyshop")) == [3]


def what_a_corrected_booking_gives_no_right_to_is_retracted(world: World) -> Play:
    world.reader("ducks")
    world.reader("toyshop")
    for at in range(1, 6):
        world.happened("readings", at)
    world.booked(0, None)
    assert len((yield from delivered(world, "ducks"))) == 5
    world.booked(2, 4)
    assert offsets((yield from delivered(world, "ducks")), "retracts") == [1, 4, 5]
    world.booked(0, None, "toyshop")
    assert offsets((yield from delivered(world, "ducks")), "retracts") == [2, 3]
    assert offsets(world.feed("toyshop")) == [1, 2, 3, 4, 5]
    world.booked(0, None)
    assert offsets((yield from delivered(world, "ducks"))) == [1, 2, 3, 4, 5]
    world.booked(2, 4, status="CANCELLED")  # cancels only the times that it names
    assert offsets((yield from delivered(world, "ducks")), "retracts") == [2, 3]
    world.booked(6, None, status="CANCELLED")  # cancels only hours from 6 on
    assert not (yield from delivered(world, "ducks"))
    world.booked(0, None, status="CANCELLED")
    world.booked(3, None)
    again = yield from delivered(world, "ducks")
    assert (offsets(again, "retracts"), offsets(again)) == ([1], [3])
    world.tables["readings"].clear()  # without a row in the tables, the time in the feed decides
    world.booked(5, None)
    assert offsets((yield from delivered(world, "ducks")), "retracts") == [3, 4]


def alerts_and_custody_go_by_the_time_of_the_event_and_only_grants_count(world: World) -> Play:
    world.reader("ducks")
    alerts = [world.happened("alerts", at) for at in (0.5, 1.5)]
    grants = [world.happened("custody_entries", at) for at in (0.5, 1, 1.9, 2)]
    world.happened("custody_entries", 1.5, entry_log=f"containers.{world.box(1)}")
    world.happened("custody_entries", 1.5, entry_type="claim")
    world.happened("custody_entries", 1.5, entry_log=f"containers.{world.box()}", entry_type="return")
    world.booked(1, 2)
    found = yield from delivered(world, "ducks")
    assert [record.value for record in found] == [alerts[1]["payload"], *(row["payload"] for row in grants[1:3])]
    late = world.happened("custody_entries", 1.2)
    assert [record.value for record in (yield from delivered(world, "ducks"))] == [late["payload"]]


def new_records_are_compared_by_themselves(world: World) -> Play:
    """A reading that was in no batch is delivered when its booking changes."""
    world.reader("ducks")
    world.booked(0, None)
    world.happened("readings", 1)
    yield "batch"
    world.happened("readings", 2)
    world.changes.clear()
    world.happened("readings", 3)
    world.happened("readings", 3, box=1)
    assert offsets((yield from delivered(world, "ducks"))) == [3]
    world.booked(0, 9)
    assert offsets((yield from delivered(world, "ducks"))) == [2]


def an_hour_comes_with_the_first_reading_of_a_later_one(world: World) -> Play:
    begin(world)
    world.happened("readings", 7 / 60, supply_temperature=1.3)
    world.happened("readings", 14 / 60, supply_temperature=2.6)
    assert not (yield from delivered(world, SHOP))
    world.happened("readings", 3.35)
    (record,) = yield from delivered(world, SHOP)
    assert told([record]) == [(hour(world, 0), 2, 0)]
    assert record.key == world.box().encode()
    assert value_of(record) == {
        "kind": "conditions",
        "equipmentReference": world.box(),
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
    assert not (yield from delivered(world, SHOP))


def the_reading_before_may_be_long_ago(world: World) -> Play:
    begin(world)
    world.happened("readings", -24 * 400)
    world.booked(-24 * 500, None, consignee=SHOP)
    assert not (yield from delivered(world, SHOP))
    world.happened("readings", 5)
    assert told((yield from delivered(world, SHOP))) == [(hour(world, -24 * 400), 1, 0)]


def a_late_reading_makes_a_revision_of_its_hour_and_of_the_next_that_it_stands_into(world: World) -> Play:
    begin(world)
    for at, minute in enumerate((7, 14, 21, 28)):
        world.happened("readings", at + minute / 60)
    expected = [(hour(world, at), 1, 0) for at in range(3)]
    assert told((yield from delivered(world, SHOP))) == expected
    world.happened("readings", 1 + 35 / 60)  # counts for half an hour, so into hour 2
    assert told((yield from delivered(world, SHOP))) == [(hour(world, 1), 2, 1), (hour(world, 2), 1, 1)]
    world.happened("readings", 42 / 60)
    assert told((yield from delivered(world, SHOP))) == [(hour(world, 0), 2, 1), (hour(world, 1), 2, 2)]
    world.happened("readings", 7 / 60)
    assert told((yield from delivered(world, SHOP))) == [(hour(world, 0), 3, 2)]


def a_corrected_booking_takes_hours_back_and_gives_them_again(world: World) -> Play:
    begin(world)
    for at in range(4):
        world.happened("readings", at)
    yield "batch"
    world.booked(1, None, consignee=SHOP)
    (taken,) = yield from delivered(world, SHOP)
    assert dict(taken.headers)["retracts"] == hour(world, 0).encode()
    world.booked(0, None, consignee=SHOP)
    assert told((yield from delivered(world, SHOP))) == [(hour(world, 0), 1, 1)]
    world.booked(0, None)  # without a recipient
    yield "batch"
    assert followed(world.feed(SHOP)) == []


def hours_whose_readings_retention_has_deleted_stay_while_a_booking_covers_them(world: World) -> Play:
    world.reader("ducks")
    world.reader(SHOP, "coarse")
    limit = (KEPT_SINCE - T0) // dt.timedelta(hours=1)
    world.booked(limit - 9, None, consignee=SHOP)
    for at in (-3, -2, -0.2, 0.2, 1.2, 2.2):
        world.happened("readings", limit + at)
    given = [(hour(world, limit + at), 1, 0) for at in (-3, -2, -1, 0, 1)]
    assert told((yield from delivered(world, SHOP))) == given
    world.tables["readings"] = [row for row in world.tables["readings"] if row["device_date_time"] >= KEPT_SINCE]
    world.booked(limit + 5, limit + 6, "stranger", reference="B2")
    assert not (yield from delivered(world, SHOP))
    world.happened("readings", limit - 2.5)  # late: it may be one of many in an hour that was given
    assert not (yield from delivered(world, SHOP))
    world.happened("readings", limit - 5)  # in an hour that was not given
    assert told((yield from delivered(world, SHOP))) == [(hour(world, limit - 5), 1, 0)]
    world.happened("readings", limit + 1.5)
    assert told((yield from delivered(world, SHOP))) == [(hour(world, limit + 1), 2, 1)]
    assert not (yield from delivered(world, SHOP, "everything"))
    world.booked(limit - 2, None, consignee=SHOP)
    assert offsets((yield from delivered(world, SHOP)), "retracts") == [492312 + limit - 5, 492312 + limit - 3]
    world.booked(limit - 2, limit, consignee=SHOP, status="CANCELLED")
    assert offsets((yield from delivered(world, SHOP)), "retracts") == [492312 + limit - 2, 492312 + limit - 1]
    world.reader(SHOP)
    assert len(offsets((yield from delivered(world, SHOP, "everything")), "retracts")) == 2
    world.reader(SHOP, "coarse")
    yield "everything"
    world.booked(limit - 2, None, consignee=SHOP, status="CANCELLED")
    yield "batch"
    assert followed(world.feed(SHOP)) == []


def milestones_are_those_of_the_box_and_of_the_ship_while_it_is_aboard(world: World) -> Play:
    begin(world)
    for code, at in (("ARRI", 0), ("LOAD", 1), ("DEPA", 2), ("ARRI", 3), ("DISC", 4), ("DEPA", 5)):
        world.moved(f"e{at}", code, at, copies=2)
    world.event("planned", 3.5, transport_event_type_code="DEPA", event_classifier_code="PLN")  # did not happen
    values = [value_of(record) for record in (yield from delivered(world, SHOP))]
    codes = [value.get("equipmentEventTypeCode") or value["transportEventTypeCode"] for value in values]
    assert codes == ["LOAD", "DEPA", "ARRI", "DISC"]
    assert values[0] == {
        "kind": "milestone",
        "equipmentReference": world.box(),
        "eventID": f"e1.{world.number}",
        "equipmentEventTypeCode": "LOAD",
        "eventDateTime": "2026-03-01T01:00:00Z",
        "vesselIMONumber": world.ship,
        "revision": 0,
    }
    world.moved("e6", "ARRI", 3.5)  # an event of the ship concerns the boxes aboard
    assert len((yield from delivered(world, SHOP))) == 1
    world.booked(3, None, status="CANCELLED")
    assert len((yield from delivered(world, SHOP))) == 3
    kept = [value_of(record)["eventID"] for record in followed(world.feed(SHOP))]
    assert kept == [f"e1.{world.number}", f"e2.{world.number}"]


def an_event_of_another_box_or_ship_with_the_id_of_a_boxs_own_hides_no_milestone(world: World) -> Play:
    begin(world)
    loaded: dict[str, Any] = {"equipment_event_type_code": "LOAD", "equipment_reference": world.box()}
    world.event("e1", 1, **loaded)
    world.event("e1", 0.5, copy=-1, log="events.star", **loaded | {"equipment_reference": world.box(1)})
    world.event("e1", 2, copy=-1, log="events.star", transport_event_type_code="DEPA")
    (milestone,) = yield from delivered(world, SHOP)
    assert value_of(milestone)["eventDateTime"] == "2026-03-01T01:00:00Z"
    assert (yield "everything")[world.customer(SHOP)] == []


def an_event_of_another_ship_with_the_id_of_the_boxs_ship_hides_no_milestone(world: World) -> Play:
    begin(world)
    world.moved("e1", "LOAD", 1)
    sailed: dict[str, Any] = {"transport_event_type_code": "DEPA"}
    world.event("e2", 2, **sailed)
    world.event("e2", 1.5, copy=-1, log="events.marlin", **sailed, vessel_imo_number="9074729")
    values = [value_of(record) for record in (yield from delivered(world, SHOP))]
    assert [(each["eventDateTime"], each["vesselIMONumber"]) for each in values] == [
        ("2026-03-01T01:00:00Z", world.ship),
        ("2026-03-01T02:00:00Z", world.ship),
    ]


def single_readings_and_custody_are_not_for_a_recipient(world: World) -> Play:
    begin(world)
    for table in ("readings", "custody_entries", "alerts"):
        row = world.happened(table, 1)
    assert [record.value for record in (yield from delivered(world, SHOP))] == [row["payload"]]
    assert len(world.feed("ducks")) == 3


def begin(world: World) -> None:
    """Add a booking of ducks with the shop as its recipient."""
    world.reader("ducks")
    world.reader(SHOP, "coarse")
    world.booked(0, None, consignee=SHOP)


def told(records: list[Record]) -> list[tuple[str, int, int]]:
    """Return origin, readings and revision of the hours in these records."""
    values = [(dict(record.headers)["origin"] or b"", value_of(record)) for record in records]
    return [(origin.decode(), value["readings"], value["revision"]) for origin, value in values]


def hour(world: World, number: int) -> str:
    return f"hours/{world.box()}@{492312 + number}"


def harbour(world: World) -> None:
    """Add a port authority, and the names of a ship and a line."""
    world.reader("ducks")
    world.reader(PORT, "movements", f"SG{world.number}")
    world.tables["sites"] += [
        {"site": f"singapore-{world.number}", "kind": "port", "un_location_code": f"SG{world.number}"},
        {"site": f"star-{world.number}", "kind": "ship", "title": "MV Duck Star", "vessel_imo_number": world.ship},
    ]
    world.tables["owners"].append({"owner_code": f"Y{world.number:03d}", "stream": "y", "line": "Yellow"})


def ships_and_boxes_of_all_lines_at_the_port_and_nowhere_else(world: World) -> Play:
    harbour(world)
    port: dict[str, Any] = {"un_location_code": f"SG{world.number}"}
    box = f"Y{world.number:03d}0000014"
    unloaded: dict[str, Any] = {
        "equipment_event_type_code": "DISC",
        "equipment_reference": box,
        "voyage_reference": "V1",
    }
    world.event("a", 1, transport_event_type_code="ARRI", **port)
    world.event("b/1", 2, **unloaded, **port)
    world.event("c", 3, equipment_event_type_code="LOAD", equipment_reference="XXXU1", un_location_code="JPTYO")
    gate: dict[str, Any] = {
        "equipment_event_type_code": "GTIN",
        "equipment_reference": "XXXU1",
        "vessel_imo_number": None,
    }
    world.event("d", 4, **gate, **port)
    world.event("e", 5, transport_event_type_code="ARRI", **port | {"vessel_imo_number": None})
    world.event("f", 6, transport_event_type_code="ARRI", event_classifier_code="EST", **port)  # did not happen
    first, second, third, nameless = yield from delivered(world, PORT)
    assert (nameless.key, value_of(nameless)["eventID"]) == (b"", f"e.{world.number}")
    assert first.key == world.ship.encode()
    expected = {
        "kind": "movement",
        "eventID": f"a.{world.number}",
        "transportEventTypeCode": "ARRI",
        "eventDateTime": "2026-03-01T01:00:00Z",
        "UNLocationCode": f"SG{world.number}",
        "vesselIMONumber": world.ship,
        "vessel": "MV Duck Star",
        "revision": 0,
    }
    assert value_of(first) == expected
    del expected["transportEventTypeCode"]
    assert value_of(second) == expected | {
        "eventID": f"b/1.{world.number}",
        "equipmentEventTypeCode": "DISC",
        "eventDateTime": "2026-03-01T02:00:00Z",
        "voyageReference": "V1",
        "equipmentReference": box,
        "line": "Yellow",
    }
    assert (third.key, value_of(third)["equipmentEventTypeCode"]) == (b"XXXU1", "GTIN")
    assert not world.feed("ducks")
    assert not (yield from delivered(world, PORT))


def an_event_that_comes_again_is_told_once_unless_an_earlier_copy_says_something_else(world: World) -> Play:
    harbour(world)
    more: dict[str, Any] = {"transport_event_type_code": "ARRI", "un_location_code": f"SG{world.number}"}
    world.event("a", 1, copy=1, **more)
    assert len((yield from delivered(world, PORT))) == 1
    world.event("a", 1, copy=2, log="events.sydney", **more)
    assert not (yield from delivered(world, PORT))
    world.event("a", 2, copy=0, log="events.duck-star", **more)
    (corrected,) = yield from delivered(world, PORT)
    assert (value_of(corrected)["eventDateTime"], value_of(corrected)["revision"]) == ("2026-03-01T02:00:00Z", 1)
    world.event("a", 2, copy=-1, **more | {"un_location_code": "JPTYO"})
    assert "retracts" in value_of((yield from delivered(world, PORT))[0])
    assert followed(world.feed(PORT)) == []


def one_id_about_several_boxes_and_ships_is_a_movement_of_each(world: World) -> Play:
    """Senders count their events on their own: none hides another one, and a repeat is none."""
    harbour(world)
    port: dict[str, Any] = {"un_location_code": f"SG{world.number}"}
    gate: dict[str, Any] = {"equipment_event_type_code": "GTIN"}
    name = f"movements/7.{world.number}"

    def origins(records: list[Record]) -> list[str]:
        named = [dict(record.headers) for record in records]
        return [(each.get("origin") or b"back " + (each["retracts"] or b"")).decode() for each in named]

    world.event("7", 1, equipment_reference="XXXU1", **gate, **port)
    assert origins((yield from delivered(world, PORT))) == [f"{name}@0"]
    world.event("7", 2, copy=1, log="events.sydney", equipment_reference="XXXU2", **gate, **port)
    world.event("7", 3, copy=2, log="events.duck-star", transport_event_type_code="ARRI", **port)
    world.event("7", 4, copy=3, log="events.oakland", equipment_reference="XXXU3", un_location_code="JPTYO", **gate)
    assert origins((yield from delivered(world, PORT))) == [
        f"back {name}@0", f"{name}/XXXU1@0", f"{name}/XXXU2@0", f"{name}/{world.ship}@0",
    ]  # fmt: skip
    world.event("7", 2, copy=4, log="events.oakland", equipment_reference="XXXU2", **gate, **port)
    sham: dict[str, Any] = {"transport_event_type_code": "ARRI", "equipment_reference": world.ship}
    world.event("7", 6, copy=5, log="events.marlin", **sham, **port)
    assert not (yield from delivered(world, PORT))
    world.event("7", 5, copy=-1, log="events.oakland", equipment_reference="XXXU4", **gate, **port)
    assert origins((yield from delivered(world, PORT))) == [f"{name}/XXXU4@0"]
    assert not any((yield "everything").values())


def ships_and_lines_with_other_names_make_revisions(world: World) -> Play:
    harbour(world)
    port: dict[str, Any] = {"un_location_code": f"SG{world.number}"}
    box = f"Y{world.number:03d}0000014"
    world.event("a", 1, transport_event_type_code="ARRI", **port)
    world.event("b", 2, equipment_event_type_code="DISC", equipment_reference=box, **port)
    assert len((yield from delivered(world, PORT))) == 2
    world.tables["sites"][1]["title"] = "MV Duck Moon"
    world.tables["owners"][0]["line"] = "Amber"
    values = [value_of(record) for record in (yield from delivered(world, PORT, "everything"))]
    assert [(each["vessel"], each.get("line"), each["revision"]) for each in values] == [
        ("MV Duck Moon", None, 1),
        ("MV Duck Moon", "Amber", 1),
    ]


def a_port_authority_sees_nothing_of_a_booked_containers_readings(world: World) -> Play:
    harbour(world)
    world.happened("readings", 1)
    world.booked(0, None, PORT)
    assert not (yield from delivered(world, PORT))


KINDS: tuple[tuple[Grain, str | None], ...] = (
    ("detailed", None),
    ("coarse", None),
    ("movements", "SGSIN"),
    ("movements", "JPTYO"),
)


def of_another_kind(first: tuple[Grain, str | None], second: tuple[Grain, str | None]) -> Scenario:
    """After a change of kind, only records of the new kind are valid; changing back restores the old ones."""

    def play(world: World) -> Play:
        for box, name in enumerate(("shop", "first", "second")):
            world.booked(0, None, name, box=box, reference=f"B{box}", consignee=name)
            for table, at in (("readings", 0), ("readings", 1), ("readings", 2), ("alerts", 1), ("custody_entries", 1)):
                world.happened(table, at, box)
        for identity, port, code in (("a", "JPTYO", "LOAD"), ("b", "SGSIN", "DISC"), ("c", "SGSIN", "ARRI")):
            of_box = {"equipment_event_type_code": code, "equipment_reference": world.box()}
            more: dict[str, Any] = {"transport_event_type_code": code} if code == "ARRI" else of_box
            world.event(identity, 1, un_location_code=port, **more)
        stood: dict[int, list[tuple[str, str]]] = {}
        for turn, kind in enumerate((first, second, first)):
            world.readers.clear()
            world.reader("shop", *kind)
            yield "everything"
            stood[turn] = stands(world)
            assert stood[turn]
        assert not any((yield "everything").values())
        assert stood[0] == stood[2] != stood[1]
        origins = {origin.partition("/")[0].partition(".")[0] for origin, _ in stood[1]}
        assert (
            origins
            == {
                "detailed": {"containers", "alerts", "custody"},
                "coarse": {"hours", "milestones", "alerts"},
                "movements": {"movements"},
            }[second[0]]
        )

    return play


def an_owner_gets_the_alerts_about_its_boxes_and_nothing_else(world: World) -> Play:
    """With a booking or without one; readings, custody and the alerts of other owners' boxes stay with others."""
    world.owner = "OWNA"
    world.reader("owner", "alerts", owners=("OWNA",))
    world.reader("rival", "alerts", owners=("OWNB",))
    world.reader("ducks")
    world.happened("readings", 1)
    world.happened("custody_entries", 1)
    mine = [world.happened("alerts", at)["log_offset"] for at in (2, 9)]
    world.booked(0, 5)
    world.owner = "OWNC"
    foreign = world.happened("alerts", 3)["log_offset"]
    found = yield "batch"
    assert offsets(found[world.customer("owner")]) == mine
    assert not found[world.customer("rival")]
    assert len(found[world.customer("ducks")]) == 3  # its booking covers one of the two alerts
    later = world.happened("alerts", 4)["log_offset"]
    world.reader("rival", "alerts", owners=("OWNB", "OWNC"))
    found = yield "everything"
    assert offsets(found[world.customer("rival")]) == [foreign, later]
    assert not found[world.customer("owner")]
    world.reader("owner", "alerts", owners=("OWNC",))
    found = yield "everything"
    assert offsets(found[world.customer("owner")], "retracts") == mine
    assert offsets(found[world.customer("owner")]) == [foreign, later]


def an_alert_that_only_shore_finds_is_one_record_with_its_newest_state(world: World) -> Play:
    """Until a site tells the same condition. A customer sees the states of its own time, an owner all of them."""
    world.owner = "OWND"
    world.reader("ducks")
    world.reader(SHOP, "coarse")
    world.reader("owner", "alerts", owners=("OWND",))
    world.booked(0, 5, consignee=SHOP)
    condition = world.found(1)
    found = yield "batch"
    for name in ("ducks", SHOP, "owner"):
        (record,) = found[world.customer(name)]
        alert = decoder(Alert).decode(record.value or b"")
        assert (alert.kind, alert.state, alert.raised_at, alert.revision) == ("POWER_LOST", "OPENED", "shore", 0)
        assert (alert.event_date_time, alert.evidence[0].detail) == (hours(1), "switched off")
        assert (record.key, alert.equipment_reference) == (world.box().encode(), world.box())
    world.found(6, revision=1, state="CLEARED")
    found = yield "batch"
    assert not found[world.customer("ducks")]
    (record,) = found[world.customer("owner")]
    alert = decoder(Alert).decode(record.value or b"")
    assert (alert.state, alert.revision) == ("CLEARED", 1)
    world.happened("alerts", 1, alert_id=condition)
    found = yield "batch"
    for name in ("ducks", SHOP, "owner"):
        assert [kind_of_origin(record) for record in found[world.customer(name)]] == ["alerts.tokyo", "back alerts/"]
    world.found(2, alert=7)
    world.booked(3, 5, consignee=SHOP)
    found = yield "batch"
    assert not [record for record in found[world.customer("ducks")] if kind_of_origin(record) == "alerts/"]


def an_alert_that_retention_has_deleted_stays_in_the_feed_while_its_booking_holds(world: World) -> Play:
    world.owner = "OWNE"
    world.reader("ducks")
    world.reader("owner", "alerts", owners=("OWNE",))
    world.booked(0, 5)
    world.found(1)
    yield "batch"
    world.tables["alerts_ashore"].clear()
    world.found(2, alert=7)
    found = yield "batch"
    for name in ("ducks", "owner"):
        assert [value_of(record)["alertID"] for record in found[world.customer(name)]] == [
            f"POWER_LOST.{world.box()}@7"
        ]
    assert not any((yield "everything").values())
    world.booked(1.5, 5)
    found = yield "batch"
    assert [kind_of_origin(record) for record in found[world.customer("ducks")]] == ["back alerts/"]
    assert not found[world.customer("owner")]


def what_a_ship_at_sea_says_stands_until_the_readings_reach_it(world: World) -> Play:
    world.reader("ducks")
    world.reader("toyshop")
    world.reader(SHOP, "coarse")
    world.booked(0, 10, consignee=SHOP)
    world.digest(1, {0: 0.9, 1: 0.9})
    (first,) = yield from delivered(world, "ducks")
    assert value_of(first) == {
        "kind": "digest",
        "equipmentReference": world.box(),
        "vesselIMONumber": world.ship,
        "readingDateTime": "2026-03-01T00:54:00.000Z",
        "supplyTemperature": 0.01,
        "isConnectedToPowerSource": True,
        "isPowered": True,
        "isDisturbed": False,
        "doorOpen": False,
        "immersed": False,
        "revision": 0,
    }
    assert not world.feed("toyshop")
    assert not world.feed(SHOP)
    world.digest(2, {0: 1.9})
    (second,) = yield from delivered(world, "ducks")
    assert (value_of(second)["revision"], dict(second.headers)) == (1, dict(first.headers))
    world.digest(1.5, {0: 1.4})  # one that comes late
    world.happened("readings", 1.5)
    assert [kind_of_origin(record) for record in (yield from delivered(world, "ducks"))] == ["containers.box"]
    world.happened("readings", 1.9)
    found = yield from delivered(world, "ducks")
    assert [kind_of_origin(record) for record in found] == ["containers.box", "back digests/"]
    world.digest(2.2, {0: 1.9})  # after the reading that it is about
    world.happened("readings", 2)
    assert [kind_of_origin(record) for record in (yield from delivered(world, "ducks"))] == ["containers.box"]


def a_digest_from_before_its_booking_is_delivered_with_it_and_goes_with_it(world: World) -> Play:
    world.reader("ducks")
    world.happened("readings", 0.5)
    world.digest(2, {0: 1.9})
    world.digest(3, {0: 2.9})
    assert not (yield from delivered(world, "ducks"))
    world.booked(0, 2)
    found = yield from delivered(world, "ducks")
    assert [kind_of_origin(record) for record in found] == ["containers.box", "digests/"]
    assert value_of(found[1])["readingDateTime"] == "2026-03-01T01:54:00.000Z"
    world.booked(0, 1)
    assert [kind_of_origin(record) for record in (yield from delivered(world, "ducks"))] == ["back digests/"]
    world.booked(0, None)
    assert [kind_of_origin(record) for record in (yield from delivered(world, "ducks"))] == ["digests/"]
    world.at_sea = None  # the job begins again
    world.happened("readings", 4)
    found = yield from delivered(world, "ducks")
    assert [kind_of_origin(record) for record in found] == ["containers.box", "back digests/"]


def a_digest_stays_where_its_customer_may_not_see_the_next_one(world: World) -> Play:
    for name in ("ducks", "toyshop"):
        world.reader(name)
    world.booked(0, 5)
    world.booked(5, None, "toyshop", reference="B2")
    world.digest(4, {0: 3.9})
    assert [kind_of_origin(record) for record in (yield from delivered(world, "ducks"))] == ["digests/"]
    world.digest(6, {0: 5.9})
    found = yield "batch"
    assert [kind_of_origin(record) for record in found[world.customer("toyshop")]] == ["digests/"]
    assert not found[world.customer("ducks")]
    world.digest(8, {0: 7.9})
    assert not (yield from delivered(world, "ducks"))
    world.happened("readings", 3.8)
    assert [kind_of_origin(record) for record in (yield from delivered(world, "ducks"))] == ["containers.box"]
    world.happened("readings", 4.5)
    found = yield "batch"
    assert [kind_of_origin(record) for record in found[world.customer("ducks")]] == ["containers.box", "back digests/"]
    assert not found[world.customer("toyshop")]
    world.happened("readings", 7.95)
    last = yield from delivered(world, "toyshop")
    assert [kind_of_origin(record) for record in last] == ["containers.box", "back digests/"]


def a_digest_that_came_with_its_booking_goes_though_older_readings_come_before(world: World) -> Play:
    world.reader("ducks")
    world.digest(3, {0: 2.9})
    assert not (yield from delivered(world, "ducks"))
    world.at_sea = None  # the job begins again
    world.booked(0, None)
    assert [kind_of_origin(record) for record in (yield from delivered(world, "ducks"))] == ["digests/"]
    world.happened("readings", 1)
    assert [kind_of_origin(record) for record in (yield from delivered(world, "ducks"))] == ["containers.box"]
    world.happened("readings", 3)
    found = yield from delivered(world, "ducks")
    assert [kind_of_origin(record) for record in found] == ["containers.box", "back digests/"]


def a_digest_whose_readings_retention_has_deleted_does_not_come_back(world: World) -> Play:
    world.reader("ducks")
    limit = (KEPT_SINCE - T0) // dt.timedelta(hours=1)
    for box in (0, 1):
        world.booked(limit - 9, None, box=box, reference=f"B{box}")
    world.digest(limit - 3, {0: limit - 3.1, 1: limit - 3.1})
    found = yield from delivered(world, "ducks", "before retention")
    assert [kind_of_origin(record) for record in found] == ["digests/", "digests/"]
    world.happened("readings", limit - 3)
    found = yield from delivered(world, "ducks", "before retention")
    assert [kind_of_origin(record) for record in found] == ["containers.box", "back digests/"]
    world.tables["readings"].clear()
    for box in (0, 1):
        world.booked(limit + 50, limit + 51, "stranger", box=box, reference=f"C{box}")
    assert not (yield from delivered(world, "ducks"))
    assert not (yield from delivered(world, "ducks", "everything"))
    world.reader("crows")
    world.booked(limit - 9, None, "crows", reference="D0")
    assert not (yield from delivered(world, "crows", "everything"))
    world.happened("readings", limit - 2, box=1)  # late, so retention has it still
    found = yield from delivered(world, "ducks")
    assert [kind_of_origin(record) for record in found] == ["containers.box", "back digests/"]
    world.digest(limit + 2, {0: limit + 1})
    found = yield from delivered(world, "ducks")
    assert [kind_of_origin(record) for record in found] == ["digests/"]


def kind_of_origin(record: Record) -> str:
    """Return where a record comes from, without the numbers in it; with "back" before it where it retracts."""
    named = dict(record.headers)
    origin = (named.get("origin") or named["retracts"] or b"").decode()
    kind, slash, _ = origin.partition("/")
    if not slash:
        kind = "containers.box" if origin.startswith("containers.") else origin.partition("@")[0]
    return f"{'back ' * ('retracts' in named)}{kind}{slash}"


def stands(world: World) -> list[tuple[str, str]]:
    """Return what a consumer has in the end: origins and contents, without the number of the revision."""
    found = []
    for record in followed(world.feed("shop")):
        value = value_of(record)
        value.pop("revision", None)
        found.append(((dict(record.headers)["origin"] or b"").decode(), repr(value or record.value)))
    return sorted(found)


def told_histories() -> dict[str, Scenario]:
    """Return all scenarios of this module by name."""
    plain: tuple[Scenario, ...] = (
        from_valid_from_inclusive_to_valid_to_exclusive,
        other_boxes_and_unknown_customers_give_nothing,
        the_newest_state_of_a_booking_counts,
        between_two_offices_the_change_recorded_last_counts,
        overlapping_bookings_deliver_once_and_two_customers_each_get_theirs,
        what_a_corrected_booking_gives_no_right_to_is_retracted,
        alerts_and_custody_go_by_the_time_of_the_event_and_only_grants_count,
        new_records_are_compared_by_themselves,
        an_hour_comes_with_the_first_reading_of_a_later_one,
        the_reading_before_may_be_long_ago,
        a_late_reading_makes_a_revision_of_its_hour_and_of_the_next_that_it_stands_into,
        a_corrected_booking_takes_hours_back_and_gives_them_again,
        hours_whose_readings_retention_has_deleted_stay_while_a_booking_covers_them,
        milestones_are_those_of_the_box_and_of_the_ship_while_it_is_aboard,
        an_event_of_another_box_or_ship_with_the_id_of_a_boxs_own_hides_no_milestone,
        an_event_of_another_ship_with_the_id_of_the_boxs_ship_hides_no_milestone,
        single_readings_and_custody_are_not_for_a_recipient,
        ships_and_boxes_of_all_lines_at_the_port_and_nowhere_else,
        an_event_that_comes_again_is_told_once_unless_an_earlier_copy_says_something_else,
        one_id_about_several_boxes_and_ships_is_a_movement_of_each,
        ships_and_lines_with_other_names_make_revisions,
        a_port_authority_sees_nothing_of_a_booked_containers_readings,
        an_owner_gets_the_alerts_about_its_boxes_and_nothing_else,
        an_alert_that_only_shore_finds_is_one_record_with_its_newest_state,
        an_alert_that_retention_has_deleted_stays_in_the_feed_while_its_booking_holds,
        what_a_ship_at_sea_says_stands_until_the_readings_reach_it,
        a_digest_from_before_its_booking_is_delivered_with_it_and_goes_with_it,
        a_digest_stays_where_its_customer_may_not_see_the_next_one,
        a_digest_that_came_with_its_booking_goes_though_older_readings_come_before,
        a_digest_whose_readings_retention_has_deleted_does_not_come_back,
    )
    kinds = {f"{first} then {second}": of_another_kind(first, second) for first, second in combinations(KINDS, 2)}
    return {each.__name__.replace("_", " "): each for each in plain} | kinds
