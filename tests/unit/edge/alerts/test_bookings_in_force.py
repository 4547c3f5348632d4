"""Find the booking that holds for a box at a time: a cancellation removes the period that it names, and no other."""

from __future__ import annotations

import datetime as dt
from typing import Any, Literal

import msgspec
import pytest

from edge.alerts.rules.bookings import Bookings
from edge.site_logs import booking_logs
from fairlead.names import parse_log
from fairlead.records.booking import Booking
from tests.support.edge.detecting import HOUR as HOURS
from tests.support.edge.detecting import MINUTE, Voyage, message, ms
from tests.support.edge.detecting import booking as engine_booking
from tests.support.edge.samples import NOW
from topologies.loader.load import load
from topologies.model import Link, SiteKind, Topology

BOX = "BIGU1000010"
T0 = dt.datetime(2026, 9, 1, tzinfo=dt.UTC)
HOUR = dt.timedelta(hours=1)


def booking(
    reference: str,
    begins: int,
    ends: int | None = None,
    status: Literal["CONFIRMED", "COMPLETED", "CANCELLED"] = "CONFIRMED",
) -> Booking:
    return Booking(
        booking_reference=reference,
        customer="ducks",
        equipment_reference=BOX,
        status=status,
        valid_from=T0 + begins * HOUR,
        valid_to=None if ends is None else T0 + ends * HOUR,
    )


def at(bookings: Bookings, hour: float) -> str | None:
    found = bookings.of(BOX, int((T0 + hour * HOUR).timestamp() * 1000))
    return found.booking_reference if found else None


def told(*changes: Booking) -> Bookings:
    bookings = Bookings()
    for change in changes:
        bookings.apply(change)
    return bookings


def test_a_booking_that_is_cancelled_from_a_time_on_held_before() -> None:
    """A booking cancelled from a time on holds before that time."""
    bookings = told(booking("B1", 0), booking("B1", 10, status="CANCELLED"))
    assert [at(bookings, hour) for hour in (0, 9.9, 10, 50)] == ["B1", "B1", None, None]


def test_one_that_is_cancelled_whole_never_held() -> None:
    """A booking cancelled as a whole never holds."""
    bookings = told(booking("B1", 5), booking("B1", 5, status="CANCELLED"))
    assert [at(bookings, hour) for hour in (0, 5, 9)] == [None, None, None]


def test_one_that_is_cancelled_for_a_while_holds_again() -> None:
    """A booking cancelled for a period holds again after it."""
    bookings = told(booking("B1", 0, 20), booking("B1", 5, 8, status="CANCELLED"))
    assert [at(bookings, hour) for hour in (4, 5, 7.9, 8, 20)] == ["B1", None, None, "B1", None]


def test_one_that_is_confirmed_again_holds_as_it_says_now() -> None:
    """A booking confirmed after a cancellation holds as last published."""
    bookings = told(booking("B1", 0), booking("B1", 0, status="CANCELLED"), booking("B1", 3))
    assert [at(bookings, hour) for hour in (3, 30)] == ["B1", "B1"]


def test_another_booking_is_used_where_the_newest_is_cancelled() -> None:
    """Where the newest booking is cancelled, an older one holds."""
    bookings = told(booking("B1", 0), booking("B2", 5), booking("B2", 5, status="CANCELLED"))
    assert at(bookings, 6) == "B1"


def test_a_confirmed_one_that_has_not_begun_counts_unless_it_is_cancelled() -> None:
    """A confirmed booking whose period has not begun yet is used, unless it is cancelled."""
    assert at(told(booking("B1", 5)), 0) == "B1"
    assert at(told(booking("B1", 5, 9)), 0) is None
    assert at(told(booking("B1", 5), booking("B1", 5, status="CANCELLED")), 0) is None


def test_a_cancellation_of_an_unknown_booking_is_nothing() -> None:
    """A cancellation of an unknown booking has no effect."""
    assert at(told(booking("B1", 0, status="CANCELLED")), 1) is None


def test_at_sea_a_ship_learns_of_bookings_by_satellite() -> None:
    """In the shipped fleets, a link that is open at sea brings the bookings of every office to each ship."""
    for topology in (load(name, env={}) for name in ("minimal", "big-blue", "pacific-loop")):
        ships = [name for name, site in topology.sites.items() if site.kind is SiteKind.SHIP]
        assert ships
        for ship in ships:
            at_sea = [link for link in topology.links_to(ship) if link.when == "always"]
            carried = {log for log in booking_logs(topology, ship) if _takes(topology, at_sea, log)}
            assert carried == set(booking_logs(topology, ship)) != set()


def _takes(topology: Topology, links: list[Link], topic: str) -> bool:
    log = parse_log(topic)
    assert log is not None
    return any(topology.takes(link, log) for link in links)


def test_a_set_point_that_is_changed_ashore_is_what_the_ship_then_checks() -> None:
    star = Voyage()
    star.engine.booked(engine_booking(setpoint_temperature=4.0))
    assert star.every(15 * MINUTE, 2 * HOURS, **set_to(4.0)) == []
    star.engine.booked(engine_booking(setpoint_temperature=-18.0))
    alerts = star.every(15 * MINUTE, 5 * HOURS, start_s=2 * HOURS + 60, **set_to(4.0))
    assert [(alert.kind, alert.state) for alert in alerts] == [("SETPOINT", "OPENED")]
    assert "booked -18.0" in alerts[0].evidence[0].detail
    ended = star.every(15 * MINUTE, 8 * HOURS, start_s=5 * HOURS + 60, **set_to(-18.0))
    assert ("SETPOINT", "CLEARED") in [(alert.kind, alert.state) for alert in ended]


def set_to(celsius: float) -> dict[str, Any]:
    return {
        "setpoints": {"temperature": celsius},
        "measurements": {"supplyTemperature": celsius, "returnTemperature": celsius},
    }


def named(reference: str, begins_s: int, ends_s: int | None = None, **fields: Any) -> Booking:
    given = engine_booking(valid_from=NOW + dt.timedelta(seconds=begins_s), **fields)
    ends = None if ends_s is None else NOW + dt.timedelta(seconds=ends_s)
    return msgspec.structs.replace(given, booking_reference=reference, valid_to=ends)


def test_a_booking_ends_at_its_time_also_if_the_news_comes_before_the_readings_of_that_time() -> None:
    """The newest reading is older than the end of the first booking when the news of that end arrives."""
    star = Voyage()
    star.engine.booked(named("A", -24 * HOURS, setpoint_temperature=-20.0))
    star.engine.booked(named("B", 100 * MINUTE, setpoint_temperature=5.0))
    assert star.every(15 * MINUTE, 90 * MINUTE, **set_to(-20.0)) == []
    star.engine.booked(named("A", -24 * HOURS, 100 * MINUTE, setpoint_temperature=-20.0, status="COMPLETED"))
    assert star.every(15 * MINUTE, 5 * HOURS, start_s=105 * MINUTE, **set_to(5.0)) == []
    late = star.every(15 * MINUTE, 7 * HOURS, start_s=5 * HOURS + 60, **set_to(-20.0))
    assert [alert.evidence[0].detail.partition(",")[2] for alert in late if alert.kind == "SETPOINT"] == [
        " booked 5.0 C (booking B), for 30 min"
    ]


def test_after_a_restart_the_booking_of_the_newest_readings_holds() -> None:
    """The booking of the oldest reading that is read again ended since."""
    star = Voyage()
    star.engine.booked(named("A", -24 * HOURS, 40 * MINUTE, setpoint_temperature=-20.0, commodity="frozen-fish"))
    star.engine.booked(named("B", 50 * MINUTE, setpoint_temperature=5.0))
    for n, after_s in enumerate(range(0, 3 * HOURS, 20 * MINUTE)):
        seen = message(n, after_s, **set_to(-20.0 if after_s < 40 * MINUTE else 5.0))
        assert star.engine.recall(seen, seen.log, ms(3 * HOURS)) == []
    assert star.every(20 * MINUTE, 6 * HOURS, start_s=3 * HOURS, boot=2, **set_to(5.0)) == []


def test_a_clock_that_is_set_back_brings_the_booking_of_that_time_back() -> None:
    star = Voyage()
    star.engine.booked(named("A", -24 * HOURS, 24 * HOURS, setpoint_temperature=-20.0))
    star.engine.booked(named("B", 24 * HOURS, setpoint_temperature=5.0))
    star.see(48 * HOURS, **set_to(-20.0))
    assert star.every(15 * MINUTE, 3 * HOURS, **set_to(-20.0)) == []


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("SETPOINT", {"setpoints": {"temperature": 9.0}, "measurements": {"supplyTemperature": 9.0}}),
        (
            "INSPECTION",
            {
                "inspection": [
                    {
                        "inspectionType": "REMOTE",
                        "inspectionDate": "2026-02-20T00:00:00Z",
                        "inspectionResult": "FAILED",
                    }
                ]
            },
        ),
    ],
)
def test_what_was_held_against_a_booking_ends_with_it(kind: str, fields: dict[str, Any]) -> None:
    star = Voyage()
    star.engine.booked(engine_booking())
    assert [(each.kind, each.state) for each in star.every(15 * MINUTE, HOURS, **fields)] == [(kind, "OPENED")]
    star.engine.booked(engine_booking(status="CANCELLED"))
    [cleared] = star.see(75 * MINUTE, **fields)
    assert (cleared.kind, cleared.state) == (kind, "CLEARED")
