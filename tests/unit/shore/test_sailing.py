"""Port calls and legs of a ship, from events and from its positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shore.sailing import Call, Leg, Port, ShipEvent, Track, nautical_miles, port_events, sail, window

HOUR = 3_600_000_000
A, B = Port("JPTYO", 35.0, 139.0), Port("SGSIN", 1.0, 104.0)
PORTS = (A, B)
SEA = (20.0, 120.0)

Fix = tuple[float, tuple[float, float], float, int]  # hour, place, knots, AIS status


def track(*fixes: Fix) -> Track:
    ordered = sorted(fixes)
    return Track(
        np.array([int(hour * HOUR) for hour, *_ in ordered], np.int64),
        np.array([place[0] for _, place, *_ in ordered]),
        np.array([place[1] for _, place, *_ in ordered]),
        np.array([speed for _, _, speed, _ in ordered]),
        np.array([status for *_, status in ordered], np.int64),
    )


def moored(port: Port, *hours: float) -> list[Fix]:
    return [(hour, (port.latitude + 0.01, port.longitude), 0.0, 5) for hour in hours]


def sailing(*hours: float, place: tuple[float, float] = SEA) -> list[Fix]:
    return [(hour, place, 14.0, 0) for hour in hours]


def said(hour: float, kind: str, port: Port, voyage: str | None = None, event_id: str = "") -> ShipEvent:
    return ShipEvent(int(hour * HOUR), kind, port.code, event_id or f"{kind}{hour}", voyage)  # type: ignore[arg-type]


def stays(calls: Sequence[Call]) -> list[tuple[object, ...]]:
    """Return port, hours of arrival and departure, and the source of each."""

    def hour(time: int | None) -> float | None:
        return None if time is None else time / HOUR

    return [
        (c.port, hour(c.arrival), hour(c.departure), (c.arrival_source or "-")[0], (c.departure_source or "-")[0])
        for c in calls
    ]


def passages(legs: Sequence[Leg]) -> list[tuple[object, ...]]:
    return [
        (leg.from_port, leg.to_port, None if leg.departure is None else leg.departure / HOUR,
         None if leg.arrival is None else leg.arrival / HOUR, leg.positions)
        for leg in legs
    ]  # fmt: skip


VOYAGE = (said(0, "ARRI", A, "V0"), said(10, "DEPA", A, "V1"), said(100, "ARRI", B, "V1"), said(120, "DEPA", B, "V2"))
SAILED = track(*moored(A, 0.5, 5, 9.9), *sailing(*range(11, 100)), *moored(B, 101, 110, 119), *sailing(121, 122))


def test_events_make_calls_and_legs() -> None:
    calls, legs = sail(VOYAGE, SAILED, PORTS)
    assert stays(calls) == [("JPTYO", 0, 10, "E", "E"), ("SGSIN", 100, 120, "E", "E")]
    assert [(c.inbound, c.outbound, c.left) for c in calls] == [("V0", "V1", True), ("V1", "V2", True)]
    assert passages(legs) == [("JPTYO", "SGSIN", 10, 100, 89), ("SGSIN", None, 120, None, 2)]
    assert [leg.voyage for leg in legs] == ["V1", "V2"]


def test_the_same_from_positions_alone() -> None:
    calls, legs = sail((), SAILED, PORTS)
    assert stays(calls) == [("JPTYO", 0.5, 9.9, "P", "P"), ("SGSIN", 101, 119, "P", "P")]
    assert passages(legs) == [("JPTYO", "SGSIN", 9.9, 101, 91), ("SGSIN", None, 119, None, 3)]


@pytest.mark.parametrize(
    ("missing", "wanted"),
    [
        (0, [("JPTYO", 0.5, 10, "P", "E"), ("SGSIN", 100, 120, "E", "E")]),
        (1, [("JPTYO", 0, 9.9, "E", "P"), ("SGSIN", 100, 120, "E", "E")]),
        (2, [("JPTYO", 0, 10, "E", "E"), ("SGSIN", 101, 120, "P", "E")]),
        (3, [("JPTYO", 0, 10, "E", "E"), ("SGSIN", 100, 119, "E", "P")]),
    ],
)
def test_positions_stand_in_for_a_missing_event(missing: int, wanted: list[object]) -> None:
    calls, legs = sail([e for i, e in enumerate(VOYAGE) if i != missing], SAILED, PORTS)
    assert stays(calls) == wanted
    assert [(leg.from_port, leg.to_port) for leg in legs] == [("JPTYO", "SGSIN"), ("SGSIN", None)]


def test_what_nothing_says_stays_unknown() -> None:
    calls, legs = sail((VOYAGE[0], VOYAGE[2]), track(), PORTS)
    assert stays(calls) == [("JPTYO", 0, None, "E", "-"), ("SGSIN", 100, None, "E", "-")]
    assert [call.left for call in calls] == [True, False]
    assert passages(legs) == [("JPTYO", "SGSIN", None, 100, 0)]
    assert legs[0].distance is None


def test_a_ship_in_port_has_no_departure_and_no_leg() -> None:
    calls, legs = sail((VOYAGE[0],), track(*moored(A, 1, 2)), PORTS)
    assert stays(calls) == [("JPTYO", 0, None, "E", "-")]
    assert not calls[0].left
    assert legs == []


def test_said_twice_is_once_the_first_arrival_and_the_last_departure() -> None:
    twice = (*VOYAGE, said(0.2, "ARRI", A), said(10.2, "DEPA", A), said(99.5, "ARRI", B))
    calls, _ = sail(twice, SAILED, PORTS)
    assert stays(calls) == [("JPTYO", 0, 10.2, "E", "E"), ("SGSIN", 99.5, 120, "E", "E")]
    assert [call.inbound for call in calls] == ["V0", "V1"]


def test_anchorage_and_passing_by_are_no_calls() -> None:
    outside = [(hour, (A.latitude + 0.1, A.longitude), 0.0, 1) for hour in (1.0, 2.0)]  # at anchor
    passing = [(hour, (B.latitude, B.longitude), 14.0, 0) for hour in (50.0, 51.0)]
    calls, legs = sail((), track(*outside, *sailing(20, 60), *passing), PORTS)
    assert calls == []
    assert passages(legs) == [(None, None, None, None, 6)]


def test_a_ship_that_was_said_to_leave_and_still_lies_there_makes_no_second_call() -> None:
    still = track(*moored(A, 9, 10.5, 11), *sailing(12, 13), *moored(B, 99, 101))
    calls, _ = sail(VOYAGE[:3], still, PORTS)
    assert stays(calls) == [("JPTYO", 0, 10, "E", "E"), ("SGSIN", 100, None, "E", "-")]


def test_distance_speed_and_gaps() -> None:
    north = [(float(hour), (hour / 10.0, 0.0), 6.0, 0) for hour in (11, 12, 13, 18, 19)]
    calls, (leg, *_) = sail((said(10, "DEPA", A), said(20.5, "ARRI", B)), track(*north), PORTS)
    assert leg.distance == pytest.approx(0.8 * 60.04, rel=1e-3)  # a degree of latitude is some 60 nautical miles
    assert leg.speed == pytest.approx(0.8 * 60.04 / 8, rel=1e-3)
    assert (leg.gaps, leg.gap_micros / HOUR, leg.longest_gap_micros / HOUR) == (2, 6.5, 5)
    assert [call.port for call in calls] == ["JPTYO", "SGSIN"]


def test_great_circles() -> None:
    # Tokyo to Singapore as the crow flies: 2,867 to 2,880 nautical miles by the usual tables
    assert nautical_miles(35.6492, 139.7916, 1.2392, 103.8325) == pytest.approx(2872, abs=15)
    assert nautical_miles(0.0, 179.5, 0.0, -179.5) == pytest.approx(60.04, abs=0.01)


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[ShipEvent], list[Fix]]:
    times = draw(st.lists(st.integers(0, 200), min_size=1, max_size=14, unique=True))
    kinds = st.sampled_from(("ARRI", "DEPA", "fix", "fix"))
    events, fixes = [], []
    for time in times:
        port = draw(st.sampled_from(PORTS))
        match draw(kinds):
            case "fix":
                kind = draw(st.sampled_from(("moored", "sea", "passing")))
                fixes += {
                    "moored": moored(port, time),
                    "sea": sailing(time),
                    "passing": sailing(time, place=(port.latitude, port.longitude)),
                }[kind]
            case kind:
                events.append(said(time * draw(st.sampled_from((1.0, 3.0))), kind, port))
    return events, fixes


def rows(calls: Sequence[Call], legs: Sequence[Leg]) -> set[tuple[object, ...]]:
    return {("call", *astuple(call)) for call in calls} | {("leg", *astuple(leg)) for leg in legs}


@given(histories(), st.data())
def test_what_is_new_changes_only_rows_within_its_window(
    history: tuple[list[ShipEvent], list[Fix]], data: st.DataObject
) -> None:
    events, fixes = history
    count = data.draw(st.integers(0, len(events)))
    kept = data.draw(st.integers(0, len(fixes)))
    before = rows(*sail(events[:count], track(*fixes[:kept]), PORTS))
    wanted = rows(*sail(events, track(*fixes), PORTS))
    times = [e.time for e in events[count:]] + [int(hour * HOUR) for hour, *_ in fixes[kept:]]
    if not times:
        return
    bounds = window(events, min(times), max(times))
    assert bounds is not None
    fresh = rows(*sail(events, track(*fixes), PORTS, bounds))

    def begins(row: tuple[object, ...]) -> int:
        time = row[1] if row[0] == "leg" else (row[2] if row[2] is not None else row[3])
        assert isinstance(time, int)
        return time

    def inside(row: tuple[object, ...]) -> bool:
        low, high = bounds.since, bounds.until
        return (low is None or begins(row) >= low) and (high is None or begins(row) < high)

    assert fresh | {row for row in before if not inside(row)} == wanted


def test_a_window_is_found_without_the_oldest_events_or_not_at_all() -> None:
    told = [(kind, port) for port in PORTS * 3 for kind in ("ARRI", "ARRI", "DEPA", "DEPA")]
    events = [said(30 * n, kind, port) for n, (kind, port) in enumerate(told)]  # 30 h apart: no repetitions
    found = 0
    for first in range(0, 30 * len(events), 15):
        for cut in range(len(events)):
            whole, part = (
                window(each, first * HOUR, first * HOUR, **more)
                for each, more in ((events, {}), (events[cut:], {"cut": True}))
            )
            assert part in (None, whole), (first, cut)
            found += part is not None
    assert found > len(events) ** 2 // 4


@given(histories())
def test_port_events_do_not_depend_on_the_order_of_events(history: tuple[list[ShipEvent], list[Fix]]) -> None:
    events, _ = history
    assert port_events(events) == port_events(events[::-1])
    assert [event.time for event in port_events(events)] == sorted(event.time for event in port_events(events))


@given(histories())
def test_no_two_calls_or_legs_have_one_key(history: tuple[list[ShipEvent], list[Fix]]) -> None:
    """This holds for contradictory events, too: the Delta tables are updated by these keys."""
    events, fixes = history
    calls, legs = sail(events, track(*fixes), PORTS)
    assert len({(call.time, call.port) for call in calls}) == len(calls)
    assert len({leg.time for leg in legs}) == len(legs)


def test_a_departure_from_a_port_where_the_ship_is_not_makes_no_second_leg_of_that_time() -> None:
    _, legs = sail([said(0, "ARRI", A), said(1, "ARRI", B), said(2, "DEPA", A)], track(), PORTS)
    assert passages(legs) == [("JPTYO", "SGSIN", None, 1.0, 0), ("JPTYO", None, 2.0, None, 0)]
