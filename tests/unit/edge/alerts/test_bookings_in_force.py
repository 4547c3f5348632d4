"""Find the booking that holds for a box at a time: a cancellation removes the period that it names, and no other."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any, Literal

import simulators
from edge.alerts.rules.bookings import Bookings
from edge.site_logs import booking_logs
from fairlead.names import parse_log
from fairlead.records.booking import Booking
from tests.unit.edge.alerts.detecting import HOUR as HOURS
from tests.unit.edge.alerts.detecting import MINUTE, Voyage
from tests.unit.edge.alerts.detecting import booking as engine_booking
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
    pacific = load(Path(simulators.__file__).parent / "topologies" / "pacific-loop.yaml", env={})
    for topology in (load("minimal", env={}), load("big-blue", env={}), pacific):
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
