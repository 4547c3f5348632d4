"""What events and positions tell of ships' voyages."""

from __future__ import annotations

from itertools import permutations
from typing import Any

from board.itinerary import Itineraries, ShipCall
from fairlead.records.event import Event, EventMetadata, EventPayload
from tests.support.board import STAR, at, position

STRANGER = "9999999"


def event(code: str, hour: float, port: str | None = "JPTYO", *, told: float = 0, **changes: Any) -> Event:
    """An ARRI or DEPA of the ship, or a LOAD or DISC of a box."""
    of_ship = code in ("ARRI", "DEPA")
    fields: dict[str, Any] = {
        "event_date_time": at(hour),
        "un_location_code": port,
        "vessel_imo_number": STAR,
        "voyage_reference": "001",
        "transport_event_type_code" if of_ship else "equipment_event_type_code": code,
    }
    return Event(
        metadata=EventMetadata(
            event_id=f"{code}-{hour}-{port}",
            event_created_date_time=at(told),
            event_type="TRANSPORT" if of_ship else "EQUIPMENT",
            publisher="tokyo",
        ),
        payload=EventPayload(**(fields | changes)),
    )


def calls_after(*events: Event) -> tuple[ShipCall, ...]:
    ships = Itineraries([STAR])
    for each in events:
        ships.apply(each)
    found = ships.of(STAR)
    assert found is not None
    return found.calls


def test_a_call_has_its_first_plan_its_newest_estimate_and_what_happened_in_any_order() -> None:
    planned = event("ARRI", 10, told=1, event_classifier_code="PLN")
    estimated = event("ARRI", 13, told=5, event_classifier_code="EST")
    for order in permutations([planned, estimated, event("ARRI", 12), event("DEPA", 20)]):
        (call,) = calls_after(*order)
        assert (call.arrival.planned, call.arrival.expected, call.arrival.actual) == (at(10), at(13), at(12))
        assert (call.departure.planned, call.departure.actual, call.state) == (None, at(20), "left")
        assert call.arrival.minutes_late == 120
    (waiting,) = calls_after(planned, estimated)
    assert (waiting.state, waiting.arrival.best, waiting.arrival.minutes_late) == ("planned", at(13), 180)


def test_an_event_that_ship_and_port_both_publish_counts_once() -> None:
    one, other = (
        event("LOAD", 3, equipment_reference="BIGU1000010"),
        event("LOAD", 4, equipment_reference="BIGU1000026"),
    )
    (call,) = calls_after(
        event("ARRI", 1), event("ARRI", 1), one, one, other, event("DISC", 2, equipment_reference="X")
    )
    assert (call.loaded, call.discharged, call.state) == (2, 1, "in port")


def test_calls_stand_in_order_and_a_second_one_at_a_port_is_another() -> None:
    there = [event("ARRI", 30, "SGSIN", voyage_reference="002"), event("DEPA", 40, "SGSIN", voyage_reference="002")]
    back = [event("ARRI", 60), event("DEPA", 70)]
    calls = calls_after(event("ARRI", 1), event("DEPA", 9), *there, *back)
    assert [(call.port, call.arrival.actual) for call in calls] == [
        ("JPTYO", at(1)), ("SGSIN", at(30)), ("JPTYO", at(60)),
    ]  # fmt: skip


def test_a_ship_that_arrives_under_one_voyage_and_leaves_under_the_next_calls_once() -> None:
    out = event("DEPA", 9, voyage_reference="002")
    moved = [
        event("DISC", 3, equipment_reference="BIGU1000010"),
        event("LOAD", 4, equipment_reference="BIGU1000026", voyage_reference="002"),
    ]
    (call,) = calls_after(event("ARRI", 1), *moved[:1], out, *moved[1:])
    assert (call.arrival.actual, call.departure.actual, call.loaded, call.discharged) == (at(1), at(9), 1, 1)


def test_events_without_a_voyage_belong_to_the_call_of_their_time() -> None:
    bare: dict[str, Any] = {"voyage_reference": None}
    calls = calls_after(
        event("ARRI", 1, **bare),
        event("DEPA", 9, **bare),
        event("ARRI", 50, **bare),
        event("LOAD", 51, equipment_reference="BIGU1000010", **bare),
        event("LOAD", 3, equipment_reference="BIGU1000026", **bare),
    )
    assert [call.loaded for call in calls] == [1, 1]


def test_strangers_and_events_at_sea_are_left_out() -> None:
    ships = Itineraries([STAR])
    assert not ships.apply(event("ARRI", 1, vessel_imo_number=STRANGER))
    assert not ships.apply(event("ARRI", 1, None))
    ships.locate(position(1, imo=STRANGER))
    assert ships.of(STRANGER) is None
    assert ships.all() == []
    assert ships.apply(event("ARRI", 1))
    assert not ships.apply(event("GTIN", 1, equipment_reference="BIGU1000010"))


def test_a_long_track_grows_coarser_and_keeps_its_ends() -> None:
    ships = Itineraries([STAR])
    for hour in range(5000):
        ships.locate(position(hour, latitude=hour / 100))
    found = ships.of(STAR)
    assert found is not None
    assert 200 < len(found.track) <= 800
    assert found.track[0] == (0.0, 139.0)
    assert found.track[-1][0] > 49
    assert (found.oldest, found.newest) == (at(0), at(4999))
    steps = [later[0] - earlier[0] for earlier, later in zip(found.track, found.track[1:], strict=False)]
    assert max(steps) < 0.5  # evenly: no part of the way is lost
