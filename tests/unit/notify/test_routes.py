"""Which alerts a route sends, what it holds back in quiet hours, and what a message says."""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.alerts.rules.bookings import Bookings
from fairlead.records.alert import SEVERITIES, Alert, Cause, Evidence
from fairlead.records.reading import GeoLocation
from notify.routes import RouteBook, entitled, example
from tests.support.examples import examples
from tests.support.notices import BOX, OTHER, T0, YELLOW, alert, booking, fleet

HOOK = {"webhook": "https://receiver.example/hook"}
NIGHT = {"from": "22:00", "until": "06:00", "zone": "Asia/Tokyo"}


def book(bookings: Bookings | None = None, **route: Any) -> RouteBook:
    topology = fleet({"r": {"to": HOOK, **route}})
    assert topology.notify is not None
    return RouteBook("r", topology.notify.routes["r"], topology, bookings or Bookings())


def told(route: RouteBook, *alerts: Alert) -> list[str | None]:
    return [route.take(each) for each in alerts]


LIFE = (
    alert("a", severity="WARNING"),
    alert("a", "UPDATED", "WARNING", acknowledged_by="jo"),
    alert("a", "UPDATED", "CRITICAL", revision=2),
    alert("a", "UPDATED", "CRITICAL", revision=3),
    alert("a", "CLEARED", "CRITICAL", revision=4),
)


def test_an_alert_is_told_when_it_opens_becomes_worse_and_ends() -> None:
    assert told(book(), *LIFE) == ["opened", None, "raised", None, "cleared"]


def test_a_route_begins_with_the_severity_that_it_asks_for() -> None:
    assert told(book(severity="ALARM"), *LIFE) == [None, None, "opened", None, "cleared"]


def test_changes_that_a_route_does_not_want_are_left_out() -> None:
    assert told(book(changes=["cleared"]), *LIFE) == [None, None, None, None, "cleared"]


def test_what_the_receiver_never_had_is_not_over_for_it() -> None:
    assert told(book(severity="CRITICAL"), alert("a"), alert("a", "CLEARED")) == [None, None]


def test_an_alert_that_is_read_twice_is_no_news() -> None:
    twice = (alert("a"), alert("a"), alert("a", "CLEARED"), alert("a"), alert("a", "CLEARED"))
    assert told(book(), *twice) == ["opened", None, "cleared", None, None]


def test_what_another_site_says_under_the_same_id_changes_nothing() -> None:
    """A stolen ship neither ends the alert of another site nor keeps it from being told."""
    before, after = alert("a", "CLEARED", raised_at="star"), alert("a", "CLEARED", "CRITICAL", raised_at="star")
    assert told(book(), before, alert("a"), after, alert("a", "CLEARED")) == [None, "opened", None, "cleared"]
    route = book()
    here, there = (route.message("opened", alert("a", raised_at=site)) for site in ("tokyo", "star"))
    assert here.id != there.id and here.events[0]["eventID"] != there.events[0]["eventID"]
    assert held(book(quiet=NIGHT), alert("a"), alert("a", raised_at="star"), after) == [("opened", "a")]


@pytest.mark.parametrize(
    ("route", "fits", "fits_not"),
    [
        ({"ports": ["tokyo"]}, {}, {"raised_at": "duck-star"}),
        ({"kinds": ["TEMPERATURE"]}, {}, {"kind": "SILENCE"}),
        ({"streams": ["yellow"]}, {"equipment_reference": YELLOW}, {}),
        ({"streams": ["yellow"]}, {"equipment_reference": YELLOW}, {"equipment_reference": ""}),
        ({"severity": "ALARM"}, {}, {"severity": "WARNING"}),
        ({"customers": ["lessor"]}, {"equipment_reference": YELLOW}, {}),
        ({"customers": ["lessor"], "kinds": ["O2"]}, {"equipment_reference": YELLOW, "kind": "O2"}, {"kind": "O2"}),
    ],
)
def test_an_alert_must_fit_every_filter(route: dict[str, Any], fits: dict[str, Any], fits_not: dict[str, Any]) -> None:
    assert told(book(**route), alert("a", **fits), alert("b", **fits_not)) == ["opened", None]


def test_a_customer_gets_what_its_feed_has() -> None:
    """By its bookings at the alert's time, as customer or consignee; a feed of movements has no alerts."""
    known, topology = Bookings(kept=None), fleet({})
    known.apply(booking("ducks", valid_to=T0 + dt.timedelta(hours=1), consignee="beans"))

    def who(**changes: Any) -> set[str]:
        return {name for name in topology.customers if entitled(topology, name, alert("a", **changes), known)}

    assert who() == {"ducks", "beans"}
    assert who(event_date_time=T0 + dt.timedelta(hours=1)) == set()
    assert who(event_date_time=T0 - dt.timedelta(seconds=1)) == set()
    assert who(equipment_reference=OTHER) == set()
    assert who(equipment_reference="") == set()
    assert who(equipment_reference=YELLOW) == {"lessor"}
    known.apply(booking("ducks", status="CANCELLED"))
    assert who() == set()


@pytest.mark.parametrize("quiet", [{}, {"quiet": NIGHT}])
def test_an_end_after_the_booking_says_no_more_than_that_it_is_over(quiet: dict[str, Any]) -> None:
    """The route had the alert, so it hears of its end; but not where the box is then, or who saw to it and how."""
    known = Bookings(kept=None)
    known.apply(booking("ducks", valid_to=T0 + dt.timedelta(hours=1)))
    then: dict[str, Any] = {
        "severity": "CRITICAL",
        "geo_location": GeoLocation(latitude=1.0, longitude=2.0),
        "vessel_imo_number": "9074729",
        "causes": (Cause(log="containers.x", offset=1, device_id="d", boot_id=1, sequence=1),),
        "acknowledged_by": "jo",
        "acknowledged_date_time": T0,
        "acknowledgement": "new plug",
    }
    for hours, whole in ((0.5, True), (1, False)):
        ended = alert("a", "CLEARED", event_date_time=T0 + dt.timedelta(hours=hours), **then)
        route = book(known, customers=["ducks"], changes=["cleared"], **quiet)
        assert told(route, alert("a"), ended) == [None, "cleared"]
        route.hold("cleared", ended)
        for made in (route.digest([("alerts.tokyo", 0, 9)]), route.message("cleared", ended)):
            assert made is not None
            [event] = made.events
            assert event["change"] == "cleared" and event["alert"]["alertID"] == "a"
            hidden = {"geoLocation", "vesselIMONumber", "evidence", "causes", "acknowledgedBy", "acknowledgement"}
            assert (hidden | {"acknowledgedDateTime"} <= event["alert"].keys()) is whole
            assert (not hidden & event["alert"].keys()) is not whole
            assert ("jo" in made.text, "-11.2 C" in made.text) == (whole, whole)


@pytest.mark.parametrize(
    ("moment", "quiet"),
    [
        ("2026-03-01T12:59:59Z", False),
        ("2026-03-01T13:00:00Z", True),  # 22:00 in Tokyo
        ("2026-03-01T20:59:59Z", True),
        ("2026-03-01T21:00:00Z", False),
    ],
)
def test_quiet_hours_go_by_the_clock_of_their_zone(moment: str, quiet: bool) -> None:
    assert book(quiet=NIGHT).is_quiet(dt.datetime.fromisoformat(moment)) == quiet


@pytest.mark.parametrize(("day", "hour"), [("2026-03-28", 21), ("2026-03-30", 20)])
def test_quiet_hours_follow_summer_time(day: str, hour: int) -> None:
    berlin = book(quiet={"from": "22:00", "until": "06:00", "zone": "Europe/Berlin"})
    begin = dt.datetime.fromisoformat(f"{day}T{hour}:00:00Z")
    assert berlin.is_quiet(begin) and not berlin.is_quiet(begin - dt.timedelta(seconds=1))


def test_critical_alerts_do_not_wait_unless_the_route_says_so() -> None:
    critical = alert("a", severity="CRITICAL")
    assert not book(quiet=NIGHT).may_wait(critical) and book(quiet=NIGHT).may_wait(alert("a"))
    assert book(quiet={**NIGHT, "critical": False}).may_wait(critical)
    assert not book().may_wait(alert("a"))


def held(route: RouteBook, *alerts: Alert) -> list[tuple[str, str]]:
    """Hold alerts back; return what the digest then says."""
    for each in alerts:
        change = route.take(each)
        if change is not None:
            route.hold(change, each)
    digest = route.digest([("alerts.tokyo", 0, 9)])
    return [(event["change"], event["alert"]["alertID"]) for event in digest.events] if digest else []


def test_the_digest_has_what_is_still_open_the_worst_first() -> None:
    night = (alert("a"), alert("b"), alert("b", "CLEARED"), alert("c", severity="CRITICAL"))
    assert held(book(quiet=NIGHT), *night) == [("opened", "c"), ("opened", "a")]


def test_the_digest_says_what_is_over_of_which_the_receiver_knew() -> None:
    route = book(quiet=NIGHT)
    assert told(route, alert("a"), alert("b", severity="WARNING")) == ["opened", "opened"]
    worse = (alert("a", "CLEARED"), alert("b", "UPDATED"), alert("c"), alert("c", "UPDATED", "CRITICAL"))
    assert held(route, *worse) == [("opened", "c"), ("cleared", "a"), ("raised", "b")]


def test_an_alert_that_ended_is_not_in_the_digest_of_a_route_without_ends() -> None:
    assert held(book(quiet=NIGHT, changes=["opened"]), alert("a"), alert("a", "CLEARED"), alert("b")) == [
        ("opened", "b")
    ]
    assert book(quiet=NIGHT).digest([]) is None


def test_an_alert_that_is_held_back_and_becomes_critical_opens_for_a_route_that_wants_no_raises() -> None:
    """The receiver has not had it, so it is not one that was raised."""
    route = book(quiet=NIGHT, changes=["opened", "cleared"])
    assert held(route, alert("a")) == [("opened", "a")]
    worse = alert("a", "UPDATED", "CRITICAL")
    assert route.take(worse) == "opened"
    assert not route.may_wait(worse)
    route.message("opened", worse)
    assert told(route, alert("a", "CLEARED", "CRITICAL")) == ["cleared"]


def test_what_the_receiver_hears_of_is_no_longer_held_back() -> None:
    route = book(quiet=NIGHT)
    assert held(route, alert("a")) == [("opened", "a")]
    worse = alert("a", "UPDATED", "CRITICAL")
    change = route.take(worse)
    assert change == "raised"
    route.message(change, worse)
    assert route.held == {}


def test_a_message_has_the_same_number_at_every_repeat_and_no_other_has_it() -> None:
    def numbers(name: str) -> list[str]:
        topology = fleet({name: {"to": HOOK}})
        assert topology.notify is not None
        made = RouteBook(name, topology.notify.routes[name], topology, Bookings())
        return [made.message("opened", each).id for each in (*LIFE, alert("b"))]

    first = numbers("one")
    assert first == numbers("one") and len({*first, *numbers("two")}) == 2 * len(first)
    route = book(quiet=NIGHT)
    route.hold("opened", alert("a"))
    spans = ([("x", 0, 3), ("y", 1, 2)], [("y", 1, 2), ("x", 0, 3)], [("x", 0, 4), ("y", 1, 2)])
    one, same, later = (made.id for span in spans if (made := route.digest(span)))
    assert one == same != later


def test_a_message_says_what_where_and_when() -> None:
    made = book(quiet=NIGHT).message("raised", alert("a", "UPDATED", "CRITICAL", acknowledged_by="jo"))
    assert made.title == f"raised to CRITICAL TEMPERATURE: {BOX}, tokyo"
    for part in ("-11.2 C for 60 min", "2026-03-01 00:00 UTC", "2026-03-01 09:00 Asia/Tokyo", "jo", made.id):
        assert part in made.text
    (event,) = made.events
    assert (event["eventType"], event["equipmentReference"]) == ("ALERT", BOX)
    assert event["alert"] == msgspec.to_builtins(alert("a", "UPDATED", "CRITICAL", acknowledged_by="jo"))


def test_text_of_others_stays_on_its_line() -> None:
    nasty = "x\r\nBcc: all@example.com\x1b[2J\u202e"
    made = book().message(
        "opened", alert(nasty, raised_at=nasty, evidence=(Evidence(name=nasty, weight=1, detail=nasty),))
    )
    assert made.title.isprintable()
    assert all(line.isprintable() and not line.startswith("Bcc") for line in made.text.split("\n"))


def test_the_example_fits_the_route_and_says_that_it_is_one() -> None:
    topology = fleet({"r": {"to": HOOK, "severity": "CRITICAL", "kinds": ["O2"]}})
    assert topology.notify is not None
    made = example("r", topology.notify.routes["r"], topology, T0)
    assert "Test of route r" in made.title and "this is a test" in made.text
    assert (made.events[0]["alert"]["kind"], made.events[0]["alert"]["severity"]) == ("O2", "CRITICAL")


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"), st.sampled_from(["OPENED", "UPDATED", "CLEARED"]), st.sampled_from(SEVERITIES)
        ),
        max_size=30,
    )
)
def test_every_route_of_states_makes_a_story(steps: list[tuple[str, Any, Any]]) -> None:
    """Opened first, then rising severities, then over, once each, in whatever order and however often states come."""
    route, seen = book(), dict[str, list[tuple[str, int]]]()
    for name, state, severity in steps:
        change = route.take(alert(name, state, severity))
        if change is not None:
            seen.setdefault(name, []).append((change, SEVERITIES.index(severity)))
    for story in seen.values():
        changes = [change for change, _ in story]
        heights = [height for change, height in story if change != "cleared"]
        assert changes[0] == "opened" and changes.count("opened") == 1
        assert "cleared" not in changes[:-1] and heights == sorted(set(heights))
