"""Which berth links are open, according to transport events."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.records.event import Event, EventMetadata, EventPayload, TransportEventType
from replication.custody.ledger import Berths, needs_berths
from topologies.loader.load import load

WHEN = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
BIG_BLUE = load("big-blue")
SHIPS = {"duck-star": "9074729", "blue-marlin": "9321483"}
PORTS = {"tokyo": "JPTYO", "singapore": "SGSIN", "sydney": "AUSYD"}


def event(what: TransportEventType | None, ship: str = "duck-star", port: str = "tokyo") -> Event:
    return Event(
        metadata=EventMetadata(event_id="e", event_created_date_time=WHEN, event_type="TRANSPORT", publisher="p"),
        payload=EventPayload(
            event_date_time=WHEN,
            transport_event_type_code=what,
            vessel_imo_number=SHIPS.get(ship, ship),
            un_location_code=PORTS.get(port, port),
        ),
    )


def open_links(berths: Berths) -> set[tuple[str, str]]:
    return {
        (link.from_, link.to) for link in BIG_BLUE.directed_links() if link.when == "berthed" and berths.is_open(link)
    }


def test_links_that_are_always_open_need_no_event() -> None:
    berths = Berths(BIG_BLUE)
    assert all(berths.is_open(link) for link in BIG_BLUE.directed_links() if link.when == "always")
    assert open_links(berths) == set()


def test_arrival_opens_both_directions_and_departure_closes_them() -> None:
    """A ship's arrival opens the link in both directions, and its departure closes it."""
    berths = Berths(BIG_BLUE)
    assert berths.apply(event("ARRI"))
    assert open_links(berths) == {("duck-star", "tokyo"), ("tokyo", "duck-star")}
    assert not berths.apply(event("ARRI"))
    assert berths.apply(event("DEPA"))
    assert open_links(berths) == set()


def test_a_late_departure_of_the_last_port_changes_nothing() -> None:
    """A departure from the previous port that arrives late changes nothing."""
    berths = Berths(BIG_BLUE)
    berths.apply(event("ARRI", port="singapore"))
    assert not berths.apply(event("DEPA", port="tokyo"))
    assert berths.are_together("duck-star", "singapore")


@pytest.mark.parametrize("strange", [event(None), event("ARRI", ship="1234567"), event("ARRI", port="XXXXX")])
def test_other_events_and_strangers_change_nothing(strange: Event) -> None:
    """Other events, and events of unknown ships, change nothing."""
    berths = Berths(BIG_BLUE)
    assert not berths.apply(strange)
    assert open_links(berths) == set()


CALLS = st.lists(
    st.tuples(st.sampled_from(["ARRI", "DEPA"]), st.sampled_from(sorted(SHIPS)), st.sampled_from(sorted(PORTS)))
)


@given(calls=CALLS)
def test_a_ship_is_at_one_port_at_most_and_where_it_last_arrived(
    calls: list[tuple[TransportEventType, str, str]],
) -> None:
    """A ship is at no more than one port, the one where it last arrived."""
    berths = Berths(BIG_BLUE)
    at: dict[str, str | None] = {}
    for what, ship, port in calls:
        berths.apply(event(what, ship, port))
        if what == "ARRI":
            at[ship] = port
        elif at.get(ship) == port:
            at[ship] = None
    together = {(ship, port) for ship in SHIPS for port in PORTS if berths.are_together(ship, port)}
    assert together == {(ship, port) for ship, port in at.items() if port}


def test_who_needs_to_know() -> None:
    """Each event is passed to the links that it concerns."""
    assert needs_berths(BIG_BLUE, "tokyo")
    assert needs_berths(BIG_BLUE, "duck-star")
    assert not needs_berths(BIG_BLUE, "ducks-hq")
