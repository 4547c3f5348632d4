"""Which berthed links are open, by port calls, positions and the clock."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import ConfigurationError
from fairlead.records.event import Event, EventClassifier, EventMetadata, EventPayload, TransportEventType
from fairlead.records.reading import Device, GeoLocation
from fairlead.records.ship import AT_ANCHOR, MOORED, PORT_NMI, Position
from replication.berths import FRESH_MS, LEAVE_NMI, Berths, ShipFix, fix_of, needs_berths, port_places, position_logs
from topologies.loader.load import load
from topologies.model import Place, Topology

WHEN = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
T0 = int(WHEN.timestamp() * 1000)
NOW = 1_800_000_000_000  # wall time; a simulated voyage has another calendar than the sites that receive it
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
BIG_BLUE = load("big-blue")
SHIPS = {"duck-star": "9074729", "blue-marlin": "9321483"}
PORTS = {"tokyo": "JPTYO", "singapore": "SGSIN", "sydney": "AUSYD"}
PLACES = port_places(BIG_BLUE)
UNDER_WAY = 0


def event(
    what: TransportEventType | None,
    ship: str = "duck-star",
    port: str = "tokyo",
    at_ms: int = T0,
    classifier: EventClassifier = "ACT",
) -> Event:
    when = dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC)
    return Event(
        metadata=EventMetadata(event_id="e", event_created_date_time=when, event_type="TRANSPORT", publisher="p"),
        payload=EventPayload(
            event_classifier_code=classifier,
            event_date_time=when,
            transport_event_type_code=what,
            vessel_imo_number=SHIPS.get(ship, ship),
            un_location_code=PORTS.get(port, port),
        ),
    )


def off(port: str, nmi: float) -> GeoLocation:
    """Return the place so many nautical miles north of a port."""
    at = PLACES[port]
    return GeoLocation(latitude=at.latitude + nmi / 60.04, longitude=at.longitude)


def fix(
    port: str = "tokyo",
    nmi: float = 0.5,
    *,
    at_ms: int = T0,
    received_ms: int = NOW,
    speed: float | None = 0.0,
    status: int = MOORED,
) -> ShipFix:
    return ShipFix(off(port, nmi), at_ms, received_ms, speed, status)


def open_links(berths: Berths, now_ms: int = NOW) -> set[tuple[str, str]]:
    links = (link for link in BIG_BLUE.directed_links() if link.when == "berthed")
    return {(link.from_, link.to) for link in links if berths.is_open(link, now_ms)}


def open_ports(berths: Berths, ship: str = "duck-star", now_ms: int = NOW) -> list[str]:
    """Return the ports whose links with a ship are open, in both directions."""
    found = open_links(berths, now_ms)
    assert {(a, b) for b, a in found} == found
    return sorted(to for from_, to in found if from_ == ship)


def why(berths: Berths, port: str = "tokyo", ship: str = "duck-star", now_ms: int = NOW) -> str:
    link = next(
        each for each in BIG_BLUE.directed_links() if each.when == "berthed" and (each.from_, each.to) == (ship, port)
    )
    return berths.verdict(link, now_ms).why


def state(events: Sequence[Event] = (), fixes: Sequence[ShipFix] = (), ship: str = "duck-star") -> Berths:
    berths = Berths(BIG_BLUE)
    for each in events:
        berths.apply(each)
    for one in fixes:
        berths.locate(SHIPS[ship], one)
    return berths


# ---- events


def test_links_that_are_always_open_need_no_event() -> None:
    berths = Berths(BIG_BLUE)
    assert all(berths.is_open(link, NOW) for link in BIG_BLUE.directed_links() if link.when == "always")
    assert open_links(berths) == set()


def test_arrival_opens_both_directions_and_departure_closes_them() -> None:
    """A ship's arrival opens the link in both directions, and its departure closes it."""
    berths = Berths(BIG_BLUE)
    assert not berths.has_changed(NOW)
    berths.apply(event("ARRI"))
    assert open_links(berths) == {("duck-star", "tokyo"), ("tokyo", "duck-star")}
    assert berths.has_changed(NOW)
    berths.apply(event("ARRI"))
    assert not berths.has_changed(NOW)
    assert why(berths) == "ARRI 01 Mar 00:00"
    berths.apply(event("DEPA"))
    assert open_links(berths) == set()
    assert berths.has_changed(NOW)


def test_a_late_departure_of_the_last_port_changes_nothing() -> None:
    """A departure from the previous port that arrives late changes nothing."""
    assert open_ports(state([event("ARRI", port="singapore"), event("DEPA", port="tokyo")])) == ["singapore"]


@pytest.mark.parametrize("strange", [event(None), event("ARRI", ship="1234567"), event("ARRI", port="XXXXX")])
def test_other_events_and_strangers_change_nothing(strange: Event) -> None:
    """Other events, and events of unknown ships, change nothing."""
    berths = state([strange])
    berths.locate("1234567", fix())
    assert open_links(berths) == set()


CALLS = st.lists(
    st.tuples(st.sampled_from(["ARRI", "DEPA"]), st.sampled_from(sorted(SHIPS)), st.sampled_from(sorted(PORTS)))
)


@given(calls=CALLS)
def test_a_ship_is_at_one_port_at_most_and_where_it_last_arrived(
    calls: list[tuple[TransportEventType, str, str]],
) -> None:
    """A ship is at no more than one port, the one where it last arrived. Reading the log again changes nothing."""
    berths = Berths(BIG_BLUE)
    for _ in range(2):
        at: dict[str, str | None] = {}
        for what, ship, port in calls:
            berths.apply(event(what, ship, port))
            if what == "ARRI":
                at[ship] = port
            elif at.get(ship) == port:
                at[ship] = None
        for ship in SHIPS:
            assert open_ports(berths, ship) == [port for port in (at.get(ship),) if port]


@pytest.mark.parametrize("classifier", ["PLN", "EST"])
def test_a_schedule_opens_and_closes_nothing(classifier: EventClassifier) -> None:
    assert open_ports(state([event("ARRI", classifier=classifier)])) == []
    berthed = [
        event("ARRI"),
        event("DEPA", classifier=classifier),
        event("ARRI", port="singapore", classifier=classifier),
    ]
    berths = state(berthed)
    assert open_ports(berths) == ["tokyo"]
    assert berths.needed_from == 0


# ---- positions


def test_a_forgotten_arrival_opens_by_position_and_leaving_closes() -> None:
    berths = state(fixes=[fix(nmi=40, at_ms=T0 - 4 * HOUR, speed=14.0, status=UNDER_WAY)])
    assert open_ports(berths) == []
    assert why(berths).startswith("no ARRI, position 74.") and why(berths).endswith("km from Port of Tokyo")
    berths.locate(SHIPS["duck-star"], fix())
    assert open_ports(berths) == ["tokyo"]
    assert why(berths) == "position 0.9 km from Port of Tokyo"
    berths.locate(SHIPS["duck-star"], fix(nmi=1.5, at_ms=T0 + HOUR, speed=1.0))  # shifts its berth
    assert open_ports(berths) == ["tokyo"]
    berths.locate(SHIPS["duck-star"], fix(nmi=3, at_ms=T0 + 2 * HOUR, speed=9.0))  # the crew forgot its status
    assert open_ports(berths) == []


@pytest.mark.parametrize(
    "passing",
    [
        fix(nmi=2, speed=14.0, status=UNDER_WAY),  # through the strait
        fix(nmi=6, speed=0.1, status=AT_ANCHOR),  # waits for a berth
        fix(nmi=2, speed=14.0),  # a status from the last port
        fix(nmi=2, speed=None, status=15),
        fix(nmi=PORT_NMI + 0.1),
        fix(nmi=0.5, received_ms=NOW - FRESH_MS - 1),
        fix(nmi=0.5, received_ms=NOW + FRESH_MS + 1),  # the ship's clock is wrong
    ],
)
def test_a_ship_that_passes_anchors_or_is_not_heard_opens_nothing(passing: ShipFix) -> None:
    assert open_ports(state(fixes=[passing])) == []


def test_a_position_closes_by_its_age() -> None:
    """Time alone closes a link that is open by position; the change is noticed once."""
    berths = state(fixes=[fix()])
    assert berths.has_changed(NOW + FRESH_MS)
    assert open_ports(berths, now_ms=NOW + FRESH_MS) == ["tokyo"]
    assert berths.has_changed(NOW + FRESH_MS + 1)
    assert open_ports(berths, now_ms=NOW + FRESH_MS + 1) == []
    assert not berths.has_changed(NOW + FRESH_MS + 2)
    assert why(berths, now_ms=NOW + FRESH_MS + 1) == "no ARRI, no position in the last 15 min"


def test_a_berth_between_the_two_distances_keeps_what_it_has() -> None:
    between = (PORT_NMI + LEAVE_NMI) / 2
    assert open_ports(state(fixes=[fix(nmi=between)])) == []
    assert open_ports(state(fixes=[fix(nmi=1), fix(nmi=between, at_ms=T0 + HOUR)])) == ["tokyo"]
    assert open_ports(state(fixes=[fix(nmi=1), fix(nmi=LEAVE_NMI + 0.1, at_ms=T0 + HOUR)])) == []


# ---- events and positions


def test_a_forgotten_departure_closes_at_sea() -> None:
    """A position away from the port, after the arrival, ends it for good: also when positions stop."""
    at_sea = fix(nmi=30, at_ms=T0 + 10 * HOUR, speed=15.0, status=UNDER_WAY)
    berths = state([event("ARRI")], [fix(at_ms=T0 + HOUR), at_sea])
    assert open_ports(berths) == []
    assert open_ports(berths, now_ms=NOW + 30 * DAY) == []
    assert why(berths) == "ARRI 01 Mar 00:00, position 55.6 km from Port of Tokyo"
    berths.apply(event("ARRI", at_ms=T0 + 20 * HOUR))
    assert open_ports(berths) == ["tokyo"]


def test_an_arrival_is_not_contradicted_by_a_position_from_before_it() -> None:
    """The ship's positions come by satellite, and may come after the event."""
    approaching = fix(nmi=14, at_ms=T0 - MINUTE, speed=10.0, status=UNDER_WAY)
    assert open_ports(state([event("ARRI")], [approaching])) == ["tokyo"]


def test_a_terminal_far_from_its_port_keeps_its_arrival() -> None:
    assert open_ports(state([event("ARRI")], [fix(nmi=50, at_ms=T0 + HOUR)])) == ["tokyo"]


def test_a_departure_ends_the_stay_by_position_too() -> None:
    """A ship that still lies at its berth when its departure is published does not open the link again."""
    berths = state([event("ARRI"), event("DEPA", at_ms=T0 + DAY)], [fix(at_ms=T0 + HOUR), fix(at_ms=T0 + DAY)])
    berths.locate(SHIPS["duck-star"], fix(at_ms=T0 + DAY + 3 * MINUTE))
    assert open_ports(berths) == []
    assert why(berths) == "DEPA 02 Mar 00:00"
    for each in (
        fix(nmi=20, at_ms=T0 + 2 * DAY, speed=15.0, status=UNDER_WAY),
        fix(at_ms=T0 + 9 * DAY),  # back again, and nobody publishes it
    ):
        berths.locate(SHIPS["duck-star"], each)
    assert open_ports(berths) == ["tokyo"]


def test_a_claim_that_positions_contradict_opens_the_port_where_the_ship_is() -> None:
    """Somebody publishes an arrival at Singapore while the ship reports from its berth in Tokyo."""
    berths = state([event("ARRI", port="singapore")], [fix(at_ms=T0 + HOUR)])
    assert open_ports(berths) == ["tokyo"]
    assert why(berths, "singapore").startswith("ARRI 01 Mar 00:00, position 5")


def test_a_position_that_the_ship_cannot_have_reached_opens_nothing() -> None:
    """A spoofed receiver, or another ship under the same IMO number, claims a berth in the next minute."""
    at_sea = fix(nmi=300, at_ms=T0, speed=15.0, status=UNDER_WAY)
    claimed = fix(at_ms=T0 + MINUTE)
    berths = state(fixes=[at_sea, claimed, claimed])
    assert open_ports(berths) == []
    assert "is not believed: 0.9 km from Port of Tokyo" in why(berths)
    berths.locate(SHIPS["duck-star"], fix(nmi=299, at_ms=T0 + 4 * MINUTE, speed=15.0, status=UNDER_WAY))
    assert "55" in why(berths) and "believed" not in why(berths)
    berths.locate(SHIPS["duck-star"], fix(at_ms=T0 + DAY))
    assert open_ports(berths) == ["tokyo"]


def test_two_ships_at_one_port_have_both_their_links() -> None:
    """A port has many berths: ships that claim the same one do not take it from each other."""
    berths = state([event("ARRI", "blue-marlin")], [fix()])
    assert open_ports(berths, "duck-star") == ["tokyo"] == open_ports(berths, "blue-marlin")
    berths.locate(SHIPS["blue-marlin"], fix())
    assert open_ports(berths, "duck-star") == ["tokyo"] == open_ports(berths, "blue-marlin")


def test_two_ships_with_one_imo_number_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "t.yaml"
    ships = "".join(f'  {name}: {{kind: ship, imo: "9074729"}}\n' for name in ("one", "two"))
    file.write_text(f"name: t\nsites:\n  tokyo: {{kind: port, unlocode: JPTYO}}\n{ships}")
    with pytest.raises(ConfigurationError, match="one has the same imo"):
        load(file)


# ---- any events and positions

TIMES = st.integers(0, 60 * DAY).map(lambda after: T0 + after)
EVENTS = st.lists(
    st.builds(
        event,
        st.sampled_from(["ARRI", "DEPA"]),
        st.just("duck-star"),
        st.sampled_from(sorted(PORTS)),
        TIMES,
    ),
    max_size=6,
)
FIXES = st.lists(
    st.builds(
        fix,
        st.sampled_from(sorted(PORTS)),
        st.sampled_from([0.0, 3.0, PORT_NMI + 1, LEAVE_NMI + 1, 300.0]),
        at_ms=TIMES,
        received_ms=st.sampled_from([NOW - 2 * FRESH_MS, NOW - FRESH_MS, NOW]),
        speed=st.sampled_from([None, 0.0, 0.4, 2.0, 3.0, 15.0]),
        status=st.sampled_from([UNDER_WAY, AT_ANCHOR, MOORED, 15]),
    ),
    max_size=8,
)


@given(events=EVENTS, fixes=FIXES, order=st.randoms(use_true_random=False))
def test_it_makes_no_difference_which_log_is_read_first(
    events: list[Event], fixes: list[ShipFix], order: random.Random
) -> None:
    """Port and ship read the same events and positions from different logs, and decide the same."""
    one, mixed, queues = state(events, fixes), Berths(BIG_BLUE), (list(events), list(fixes))
    while any(queues):
        if queues[0] and (not queues[1] or order.random() < 0.5):
            mixed.apply(queues[0].pop(0))
        else:
            mixed.locate(SHIPS["duck-star"], queues[1].pop(0))
    links = [link for link in BIG_BLUE.directed_links() if link.when == "berthed"]
    assert [one.verdict(link, NOW) for link in links] == [mixed.verdict(link, NOW) for link in links]


@given(events=EVENTS, fixes=FIXES)
def test_at_most_one_port_is_open_and_every_verdict_says_why(events: list[Event], fixes: list[ShipFix]) -> None:
    berths = state(events, fixes)
    assert len(open_ports(berths)) <= 1
    assert all(why(berths, port) for port in PORTS)


@given(fixes=FIXES)
def test_stale_positions_open_nothing(fixes: list[ShipFix]) -> None:
    assert open_ports(state(fixes=fixes), now_ms=NOW + FRESH_MS + 1) == []


@given(events=EVENTS, fixes=FIXES)
def test_at_sea_nothing_is_open_whatever_was_forgotten(events: list[Event], fixes: list[ShipFix]) -> None:
    """After a position at sea that is newer than every event, no link is open, however long nothing more is heard."""
    at_sea = fix("sydney", 300, at_ms=T0 + 300 * DAY, speed=15.0, status=UNDER_WAY)
    berths = state(events, [*fixes, at_sea])
    assert open_ports(berths) == [] == open_ports(berths, now_ms=NOW + 90 * DAY)


@given(events=EVENTS, fixes=FIXES, port=st.sampled_from(sorted(PORTS)))
def test_in_port_the_link_is_open_whatever_was_forgotten(events: list[Event], fixes: list[ShipFix], port: str) -> None:
    """A ship that came from sea and lies in a port, after every event, has its link."""
    at_sea = fix("sydney", 300, at_ms=T0 + 300 * DAY, speed=15.0, status=UNDER_WAY)
    moored = fix(port, 3.0, at_ms=T0 + 330 * DAY)
    assert open_ports(state(events, [*fixes, at_sea, moored])) == [port]


# ---- what is read from records and topologies


def test_a_position_record_without_a_place_or_speed_is_no_fix() -> None:
    def position(latitude: float, speed: float | None = 0.0) -> Position:
        return Position(
            vessel_imo_number="9074729",
            device=Device(device_id="d", boot_id=1, sequence=1, device_date_time=WHEN),
            geo_location=GeoLocation(latitude=latitude, longitude=139.8),
            speed_over_ground=speed,
            navigation_status=MOORED,
        )

    assert fix_of(position(91.0), NOW) is None
    found = fix_of(position(35.6, 102.3), NOW)
    assert found is not None and (found.at_ms, found.received_ms, found.speed) == (T0, NOW, None)


def test_a_site_may_lie_elsewhere_than_its_code_says() -> None:
    """Yangshan belongs to Shanghai's code, and lies 55 nautical miles away from its coordinates."""
    raw = {
        "name": "t",
        "sites": {
            "shanghai": {"kind": "port", "unlocode": "CNSHA"},
            "unknown": {"kind": "port", "unlocode": "XXAAA"},
            "ship": {"kind": "ship", "imo": "9074729"},
        },
        "links": [{"from": "ship", "to": port, "when": "berthed", "streams": {}} for port in ("shanghai", "unknown")],
    }
    topology = Topology.model_validate(raw)
    assert set(port_places(topology)) == {"shanghai"}
    yangshan = Place(latitude=30.63, longitude=122.06)
    sites = {name: site.model_copy(update={"position": yangshan}) for name, site in topology.sites.items()}
    moved = topology.model_copy(update={"sites": sites})
    assert port_places(moved) == dict.fromkeys(("shanghai", "unknown"), GeoLocation(latitude=30.63, longitude=122.06))
    berths, (link, other) = Berths(topology), topology.links
    berths.locate("9074729", ShipFix(GeoLocation(latitude=30.63, longitude=122.06), T0, NOW, 0.0, MOORED))
    assert berths.verdict(link, NOW).why.startswith("no ARRI, position 101")
    assert berths.verdict(other, NOW).why.endswith("set sites.unknown.position")


def test_who_needs_to_know() -> None:
    """Each event is passed to the links that it concerns."""
    assert needs_berths(BIG_BLUE, "tokyo")
    assert needs_berths(BIG_BLUE, "duck-star")
    assert not needs_berths(BIG_BLUE, "ducks-hq")
    assert position_logs(BIG_BLUE, "tokyo") == {f"ships.{imo}.location": imo for imo in SHIPS.values()}
    assert position_logs(BIG_BLUE, "duck-star") == {"ships.9074729.location": "9074729"}
    assert position_logs(BIG_BLUE, "los-angeles") == {}


def test_the_arrivals_that_still_count_are_known_by_their_offsets() -> None:
    """Retention does not delete them, however old they are."""
    berths = Berths(BIG_BLUE)
    assert berths.needed_from is None
    berths.apply(event("ARRI"), 3)
    berths.apply(event("ARRI", "blue-marlin"), 5)
    assert berths.needed_from == 3
    berths.apply(event("DEPA"), 8)
    assert berths.needed_from == 5
    berths.apply(event("DEPA", "blue-marlin"), 9)
    assert berths.needed_from is None
