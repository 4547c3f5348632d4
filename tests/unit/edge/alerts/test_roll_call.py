"""The roll call after a departure: who is missing, when it is said, and what a restart or a strange order changes."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from edge.alerts.roll_call import ALL, BoxesAboard, Departure, RollCallChange, RollCallResult, RollCallTracker
from edge.alerts.thresholds import default_thresholds
from fairlead.records.ship import pack_numbers, unpack_numbers

LIMITS = default_thresholds().default.roll_call
MINUTE = 60_000
HOUR = 60 * MINUTE
START = 1_000 * HOUR
BOXES = frozenset(f"BIGU{number:07d}" for number in range(8))
A, B, C, *_ = sorted(BOXES)
TOKYO = Departure("depa-1", "JPTYO", START)
SINGAPORE = Departure("depa-2", "SGSIN", START + 200 * HOUR)
NOBODY = BoxesAboard()


def aboard(
    listed: Set[str] = BOXES, usual_ms: int = HOUR, overboard: Set[str] = frozenset(), silent: Set[str] = frozenset()
) -> BoxesAboard:
    return BoxesAboard(listed, overboard, silent, usual_ms)


def boxes(*numbers: str) -> frozenset[str]:
    return frozenset(numbers)


def called(
    *heard: str, at: int = START + 2 * HOUR, scene: BoxesAboard | None = None
) -> tuple[RollCallTracker, RollCallChange]:
    """Return a tracker that made the call of ``TOKYO`` after these boxes were heard, and what followed."""
    tracker = RollCallTracker()
    tracker.depart(TOKYO, {}, START, NOBODY)
    for number in heard:
        tracker.hear(number, START + 10 * MINUTE)
    return tracker, tracker.check(at, LIMITS, scene or aboard())


def result_of(change: RollCallChange) -> RollCallResult:
    assert change.result is not None
    return change.result


def test_a_call_with_all_boxes_heard_is_complete_at_once() -> None:
    tracker, change = called(*BOXES)
    result = result_of(change)
    assert (result.state, result.aboard, result.heard, result.missing) == ("CALLED", 8, 8, frozenset())
    assert result.complete_ms == START + 10 * MINUTE
    assert change.opened == ()
    assert not tracker.is_due(START + 3 * HOUR, LIMITS)


def test_the_call_is_made_at_two_intervals_of_the_slowest_device_within_its_bounds() -> None:
    for usual, due in ((HOUR, 2 * HOUR), (MINUTE, LIMITS.at_least), (24 * HOUR, LIMITS.at_most), (0, LIMITS.at_most)):
        scene = aboard(usual_ms=usual)
        assert called(at=START + due - 1, scene=scene)[1].result is None
        assert called(at=START + due, scene=scene)[1].result is not None


def test_a_missing_box_is_an_alert_until_it_is_heard() -> None:
    tracker, change = called(*BOXES - {A})
    assert (result_of(change).missing, change.opened) == (boxes(A), (A,))
    assert tracker.check(START + 3 * HOUR, LIMITS, aboard()) == RollCallChange()
    tracker.hear(A, START + 3 * HOUR + 5, 0)
    change = tracker.check(START + 4 * HOUR, LIMITS, aboard())
    assert change.ended == ((A, "heard"),)
    result = result_of(change)
    assert (result.state, result.heard, result.complete_ms) == ("COMPLETE", 8, START + 3 * HOUR + 5)
    assert not tracker.is_due(START + 5 * HOUR, LIMITS)


def test_a_reading_from_before_the_departure_does_not_count_unless_it_came_after_it() -> None:
    """A device whose clock is behind is heard by the ship's clock; a reading that waited is not."""
    tracker, _ = called(*BOXES - {A, B})
    tracker.hear(A, START - HOUR, 0)
    tracker.hear(B, START - HOUR, START + 2 * HOUR)
    assert tracker.check(START + 3 * HOUR, LIMITS, aboard()).ended == ((B, "heard"),)


def test_a_box_that_leaves_or_falls_overboard_is_no_longer_missing() -> None:
    tracker, change = called(*BOXES - {A, B})
    assert change.opened == (A, B)
    change = tracker.check(START + 3 * HOUR, LIMITS, aboard(BOXES - {A}, overboard={B}))
    assert sorted(change.ended) == [(A, "left"), (B, "overboard")]
    result = result_of(change)
    assert (result.state, result.aboard, result.heard, result.overboard) == ("COMPLETE", 7, 6, 1)


def test_a_box_overboard_before_the_call_is_not_missing() -> None:
    _, change = called(*BOXES - {A}, scene=aboard(overboard={A}))
    assert (result_of(change).missing, result_of(change).overboard, change.opened) == (frozenset(), 1, ())


def test_a_box_that_was_silent_before_the_departure_is_named_and_gets_no_second_alert() -> None:
    _, change = called(*BOXES - {A}, scene=aboard(silent={A}))
    assert (result_of(change).missing, change.opened) == (boxes(A), ())


def test_the_roll_call_speaks_until_a_box_is_heard_and_the_silence_rule_afterwards() -> None:
    tracker = RollCallTracker()
    assert not tracker.speaks_for(A, START - HOUR)
    tracker.depart(TOKYO, {}, START, NOBODY)
    assert tracker.speaks_for(A, START - HOUR)
    assert not tracker.speaks_for(A, START)
    tracker.hear(B, START + MINUTE, 0)
    assert not tracker.speaks_for(B, START - HOUR)
    tracker.check(START + 6 * HOUR, LIMITS, aboard({A, B}))
    assert tracker.speaks_for(A, START - HOUR)
    tracker.hear(A, START + 7 * HOUR, 0)
    tracker.check(START + 7 * HOUR, LIMITS, aboard({A, B}))
    assert not tracker.speaks_for(A, START + 7 * HOUR)


def test_when_most_boxes_are_missing_one_alert_stands_for_all_until_most_are_heard() -> None:
    tracker, change = called(A, B)
    assert change.opened == (ALL,)
    assert len(result_of(change).missing) == 6
    assert tracker.speaks_for(C, START - HOUR)
    for number in BOXES - {A, B, C}:
        tracker.hear(number, START + 3 * HOUR, 0)
    change = tracker.check(START + 4 * HOUR, LIMITS, aboard())
    assert (change.ended, change.opened) == (((ALL, "heard"),), (C,))


def test_a_gateway_that_is_known_to_be_silent_is_not_alerted_again() -> None:
    _, change = called(A, scene=aboard(silent={ALL}))
    assert (len(result_of(change).missing), change.opened) == (7, ())


def test_boxes_heard_without_custody_are_named() -> None:
    _, change = called(*BOXES, scene=aboard(BOXES - {A}))
    assert (result_of(change).unlisted, result_of(change).aboard) == (boxes(A), 7)


def test_custody_that_arrives_after_the_departure_counts() -> None:
    """The ledger's entry about a box loaded last may come late; the call asks for custody when it is made."""
    tracker = RollCallTracker()
    tracker.depart(TOKYO, {}, START, aboard(BOXES - {A}))
    for number in BOXES - {A}:
        tracker.hear(number, START + MINUTE, 0)
    assert tracker.check(START + 2 * HOUR, LIMITS, aboard()).opened == (A,)


def test_a_reading_may_overtake_its_departure() -> None:
    tracker = RollCallTracker()
    tracker.depart(TOKYO, {A: START + 1, B: START - 1}, START, NOBODY)
    assert tracker.check(START + 2 * HOUR, LIMITS, aboard({A, B})).opened == (B,)


def test_an_arrival_before_the_set_time_cuts_the_call_short_without_alerts() -> None:
    tracker = RollCallTracker()
    tracker.depart(TOKYO, {}, START, NOBODY)
    tracker.hear(A, START + MINUTE, 0)
    result = tracker.arrive(START + 20 * MINUTE, START + 20 * MINUTE, aboard({A, B}))
    assert result is not None
    assert (result.state, result.heard, result.missing) == ("CUT_SHORT", 1, boxes(B))
    assert tracker.check(START + 9 * HOUR, LIMITS, aboard({A, B})) == RollCallChange()
    assert not tracker.speaks_for(B, START - HOUR)


def test_an_alert_outlives_the_arrival_and_the_next_departure() -> None:
    tracker, _ = called(*BOXES - {A})
    assert tracker.arrive(START + 100 * HOUR, START + 100 * HOUR, aboard()) is None
    assert tracker.check(START + 101 * HOUR, LIMITS, aboard()) == RollCallChange()
    tracker.depart(SINGAPORE, {}, SINGAPORE.at_ms, aboard())
    for number in BOXES - {A}:
        tracker.hear(number, SINGAPORE.at_ms + MINUTE, 0)
    change = tracker.check(SINGAPORE.at_ms + 2 * HOUR, LIMITS, aboard())
    assert (result_of(change).missing, change.opened) == (boxes(A), ())
    assert tracker.unheard == {A: START}


def test_a_box_heard_just_before_the_next_departure_ends_its_alert() -> None:
    tracker, _ = called(*BOXES - {A})
    tracker.hear(A, SINGAPORE.at_ms - MINUTE, 0)
    tracker.depart(SINGAPORE, {}, SINGAPORE.at_ms, aboard())
    assert tracker.check(SINGAPORE.at_ms, LIMITS, aboard()).ended == ((A, "heard"),)


def test_a_repeated_or_corrected_departure_begins_no_second_call() -> None:
    tracker = RollCallTracker()
    tracker.depart(TOKYO, {}, START, NOBODY)
    tracker.hear(A, START + MINUTE, 0)
    for again in (TOKYO, TOKYO._replace(at_ms=START + HOUR), Departure("depa-x", "JPTYO", START + MINUTE)):
        assert tracker.depart(again, {}, START + HOUR, aboard()) is None
    assert tracker.depart(Departure("old", "AUSYD", START - HOUR), {}, START + HOUR, aboard()) is None
    assert tracker.departure == TOKYO
    assert result_of(tracker.check(START + 2 * HOUR, LIMITS, aboard({A}))).heard == 1


def test_without_a_departure_an_arrival_ends_nothing_and_the_next_departure_has_its_call() -> None:
    tracker = RollCallTracker()
    assert tracker.arrive(START, START, aboard()) is None
    assert tracker.check(START + 9 * HOUR, LIMITS, aboard()) == RollCallChange()
    tracker.depart(SINGAPORE, {}, SINGAPORE.at_ms, NOBODY)
    assert tracker.arrive(START, SINGAPORE.at_ms, aboard()) is None  # an old one
    assert tracker.check(SINGAPORE.at_ms + 2 * HOUR, LIMITS, aboard()).result is not None


def test_a_forgotten_arrival_the_next_departure_cuts_the_call_short() -> None:
    tracker = RollCallTracker()
    tracker.depart(TOKYO, {}, START, NOBODY)
    later = Departure("depa-2", "SGSIN", START + 10 * MINUTE)
    cut = tracker.depart(later, {}, later.at_ms, aboard())
    assert cut is not None
    assert (cut.departure, cut.state) == (TOKYO, "CUT_SHORT")
    assert tracker.departure == later


def test_an_alert_that_a_person_ended_is_not_raised_again_for_the_same_departure() -> None:
    tracker, _ = called(*BOXES - {A})
    tracker.end_alert(A, START)
    assert tracker.check(START + 3 * HOUR, LIMITS, aboard()).opened == ()
    tracker.arrive(START + 99 * HOUR, START + 99 * HOUR, aboard())
    tracker.depart(SINGAPORE, dict.fromkeys(BOXES - {A}, SINGAPORE.at_ms), SINGAPORE.at_ms, aboard())
    assert tracker.check(SINGAPORE.at_ms + 2 * HOUR, LIMITS, aboard()).opened == (A,)


@given(st.frozensets(st.from_regex(r"[A-Z]{4}[0-9]{7}", fullmatch=True)))
def test_packed_numbers_can_be_unpacked(numbers: frozenset[str]) -> None:
    assert unpack_numbers(pack_numbers(numbers)) == numbers


# -- any order, with restarts


@dataclass
class Ship:
    """A tracker whose bridge may restart at any time, and the logs that it is filled from then."""

    tracker: RollCallTracker = field(default_factory=RollCallTracker)
    now: int = START - HOUR
    scene: BoxesAboard = field(default_factory=aboard)
    events: list[Departure | int] = field(default_factory=list)  # a departure, or the time of an arrival
    readings: list[tuple[str, int]] = field(default_factory=list)
    results: list[RollCallResult] = field(default_factory=list)
    alerts: list[tuple[str, int, bool]] = field(default_factory=list)

    def apply(self, event: Departure | int) -> None:
        self.events.append(event)
        seen: dict[str, int] = {}
        for number, at in self.readings:
            seen[number] = max(at, seen.get(number, at))
        if isinstance(event, int):
            result = self.tracker.arrive(event, self.now, self.scene)
        else:
            result = self.tracker.depart(event, seen, self.now, self.scene)
        self._store(result)

    def hear(self, number: str) -> None:
        self.readings.append((number, self.now))
        self.tracker.hear(number, self.now, 0)

    def check(self) -> None:
        before = dict(self.tracker.unheard)
        change = self.tracker.check(self.now, LIMITS, self.scene)
        self.alerts += [(number, before[number], False) for number, _ in change.ended]
        self.alerts += [(number, self.tracker.unheard[number], True) for number in change.opened]
        self._store(change.result)

    def _store(self, result: RollCallResult | None) -> None:
        known = {(each.departure.event_id, each.state) for each in self.results}
        if result is not None and (result.departure.event_id, result.state) not in known:
            self.results.append(result)

    def restart(self) -> None:
        self.tracker = RollCallTracker()
        for event in self.events:
            if isinstance(event, int):
                self.tracker.arrive(event, self.now, NOBODY)
            else:
                self.tracker.depart(event, {}, self.now, NOBODY)
        for result in self.results:
            self.tracker.restore_result(result.departure.event_id, result.state)
        for number, since, is_open in self.alerts:
            self.tracker.restore_alert(number, since, is_open=is_open)
        for number, at in self.readings:
            self.tracker.hear(number, at, 0)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("depart"), st.sampled_from(["JPTYO", "SGSIN"])),
        st.tuples(st.just("again"), st.just("")),
        st.tuples(st.just("arrive"), st.just("")),
        st.tuples(st.just("hear"), st.sampled_from(sorted(BOXES))),
        st.tuples(st.just("hear"), st.sampled_from(sorted(BOXES))),
        st.tuples(st.just("move"), st.sampled_from(sorted(BOXES))),
        st.tuples(st.just("fall"), st.sampled_from(sorted(BOXES))),
        st.tuples(st.just("pass"), st.sampled_from(["", "", "h"])),
        st.tuples(st.just("check"), st.just("")),
    ),
    max_size=60,
)


def sail(ship: Ship, step: tuple[str, str], nth: int) -> None:
    what, of = step
    ship.now += MINUTE
    match what:
        case "depart":
            ship.apply(Departure(f"depa-{nth}", of, ship.now))
        case "again":
            for event in [each for each in ship.events if isinstance(each, Departure)][-1:]:
                ship.apply(event)
        case "arrive":
            ship.apply(ship.now)
        case "hear":
            ship.hear(of)
        case "move":
            ship.scene = replace(ship.scene, listed=ship.scene.listed ^ {of})
        case "fall":
            ship.scene = replace(ship.scene, overboard=ship.scene.overboard ^ {of})
        case "pass":
            ship.now += 3 * HOUR if of else 20 * MINUTE
        case _:
            ship.check()


@given(STEPS, st.sets(st.integers(0, 59)))
def test_restarts_change_nothing_and_every_alert_is_of_a_box_that_was_not_heard(
    steps: list[tuple[str, str]], restarts: set[int]
) -> None:
    steady, restarted = Ship(), Ship()
    for nth, step in enumerate(steps):
        sail(steady, step, nth)
        sail(restarted, step, nth)
        if nth in restarts:
            restarted.restart()
    for ship in (steady, restarted):
        ship.now += HOUR
        ship.check()
    assert (restarted.results, restarted.alerts) == (steady.results, steady.alerts)

    unheard = steady.tracker.unheard
    assert unheard.keys() - {ALL} <= steady.scene.listed - steady.scene.overboard
    for number, since in unheard.items():
        assert not any(at >= since for box, at in steady.readings if box == number)
    counted = [(each.departure.event_id, each.state) for each in steady.results]
    assert len(counted) == len(set(counted))
    for result in steady.results:
        assert result.aboard == result.heard + result.overboard + len(result.missing)
        assert (result.complete_ms is None) == bool(result.missing)
        heard = {box for box, at in steady.readings if result.departure.at_ms <= at <= result.at_ms}
        assert not heard & result.missing
    opened = [(number, since) for number, since, is_open in steady.alerts if is_open]
    assert len(opened) == len(set(opened))  # none twice for one departure
