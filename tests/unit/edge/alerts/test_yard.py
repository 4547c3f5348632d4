"""The alert engine of a port: the same rules in a yard, which lies still and whose clock is that of its readings."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.alerts.engine import AlertEngine
from edge.alerts.ship import YardState
from fairlead.records.alert import Alert, Cause
from tests.support.edge.detecting import FALL, HOUR, MINUTE, NEIGHBOURS, REEFER, Voyage, booking, message, ms
from tests.support.edge.samples import BOX

QUARTER = 15 * MINUTE
OFF: dict[str, Any] = {**REEFER, "isPowered": False, "isConnectedToPowerSource": False}
WARM: dict[str, Any] = {**REEFER, "measurements": {"supplyTemperature": 9.0}}
NO_OXYGEN: dict[str, Any] = {"setpoints": {"o2": 5.0}, "measurements": {"o2": 1.0}}
SLIPS: dict[str, Any] = {"motion": {"freeFallSeconds": 1.2, "peakG": 6.0, "tiltDegrees": 70.0, "immersed": True}}
SET_DOWN: dict[str, Any] = {"motion": {"freeFallSeconds": 0.6, "peakG": 7.0, "tiltDegrees": 50.0}}


class Yard(Voyage):
    """Readings of boxes in the yard of Tokyo."""

    def __init__(self) -> None:
        super().__init__()
        self.engine = AlertEngine("tokyo", ashore=True)

    def hours(self, hours: float, *numbers: str, start_s: int = 0) -> list[Alert]:
        """Let these boxes report every quarter of an hour, one after another."""
        steps = range(start_s, start_s + int(hours * HOUR) + 1, QUARTER)
        return [alert for at in steps for n, number in enumerate(numbers) for alert in self.see(at + n, number=number)]


@pytest.mark.parametrize(
    ("kind", "fields", "dwell_s"),
    [("POWER_LOST", OFF, HOUR), ("TEMPERATURE", WARM, HOUR), ("O2", NO_OXYGEN, 2 * HOUR)],
)
def test_a_yard_has_the_rules_and_dwells_of_a_ship(kind: str, fields: dict[str, Any], dwell_s: int) -> None:
    """Power, temperature and gases are watched in the yard, and the alert ends with the condition."""
    yard = Yard()
    assert yard.every(QUARTER, dwell_s - QUARTER, **fields) == []
    [opened] = yard.see(dwell_s, **fields)
    assert (opened.kind, opened.state, opened.raised_at) == (kind, "OPENED", "tokyo")
    good = {"setpoints": {"o2": 5.0}, "measurements": {"o2": 5.0}} if kind == "O2" else REEFER
    good = {**good, "measurements": {"supplyTemperature": 4.0, **good.get("measurements", {})}}
    ended = yard.every(QUARTER, dwell_s + HOUR, start_s=dwell_s + QUARTER, **good)
    assert [(alert.alert_id, alert.state) for alert in ended] == [(opened.alert_id, "CLEARED")]


def test_a_plug_that_is_changed_at_the_gate_is_no_alert() -> None:
    """A reefer without power for less than the yard's dwell raises nothing."""
    yard = Yard()
    assert yard.every(5 * MINUTE, 55 * MINUTE, **OFF) == []
    assert yard.every(5 * MINUTE, 2 * HOUR, start_s=HOUR, **REEFER) == []


def test_a_wrong_set_point_is_found_in_the_yard_by_the_booking() -> None:
    yard = Yard()
    yard.engine.booked(booking(setpoint_temperature=-20.0))
    [alert] = yard.every(QUARTER, 30 * MINUTE, **REEFER)
    assert (alert.kind, alert.severity) == ("SETPOINT", "CRITICAL")


def test_doors_are_opened_in_port() -> None:
    yard = Yard()
    assert yard.every(QUARTER, 3 * HOUR, motion={"doorOpen": True}) == []


def test_a_box_that_slips_into_the_water_is_told_and_one_that_is_set_down_hard_is_not() -> None:
    """In a yard the overboard score is always that of a ship in port."""
    yard = Yard()
    assert yard.see(0, **SET_DOWN) == []
    assert yard.see(0, number=NEIGHBOURS[0], **FALL) == []
    [alert] = yard.see(0, number=NEIGHBOURS[1], **SLIPS)
    assert (alert.kind, alert.severity, alert.equipment_reference) == ("OVERBOARD", "CRITICAL", NEIGHBOURS[1])
    assert {each.name for each in alert.evidence} == {"free-fall", "impact", "tilt", "immersion"}


# -- silence and the yard's clock


def test_a_box_that_falls_silent_is_told_by_the_readings_of_the_others() -> None:
    """A box is silent when the others have reported for four of its intervals since; its next reading ends that."""
    yard = Yard()
    assert yard.hours(2, BOX, *NEIGHBOURS) == []
    found = yard.hours(2, *NEIGHBOURS, start_s=2 * HOUR + QUARTER)
    assert [(alert.kind, alert.severity, alert.equipment_reference) for alert in found] == [("SILENCE", "WARNING", BOX)]
    [ended] = yard.see(5 * HOUR)
    assert (ended.kind, ended.state) == ("SILENCE", "CLEARED")


def test_when_most_boxes_fall_silent_the_gateway_is_told_once() -> None:
    yard = Yard()
    yard.hours(2, BOX, *NEIGHBOURS)
    found = yard.hours(3, *NEIGHBOURS[:2], start_s=2 * HOUR + QUARTER)
    assert [(alert.kind, alert.severity, alert.equipment_reference) for alert in found] == [("SILENCE", "ALARM", "")]


def test_readings_after_an_outage_of_the_bridge_make_no_box_silent() -> None:
    """What the MQTT broker kept for twelve hours is judged by when it was measured, not by when it comes."""
    yard = Yard()
    yard.hours(2, BOX, *NEIGHBOURS)
    later = yard.engine.judge_reading
    yard.engine.judge_reading = lambda message, log, now_ms: later(message, log, ms(15 * HOUR))  # type: ignore[method-assign]
    assert yard.hours(12, BOX, *NEIGHBOURS, start_s=2 * HOUR + QUARTER) == []


def test_one_device_with_a_wrong_clock_makes_nobody_silent() -> None:
    """The yard's clock follows two boxes, so one device that is two hours ahead of the others does not move it."""
    yard = Yard()
    late = ms(20 * HOUR)  # by the site's clock, all are late
    for step in range(0, 3 * HOUR, QUARTER):
        for n, number in enumerate((BOX, *NEIGHBOURS)):
            yard.sequences[number] = yard.sequences.get(number, -1) + 1
            ahead = 2 * HOUR if number == BOX else 0
            from_box = message(yard.sequences[number], step + n + ahead, number=number)
            assert yard.engine.judge_reading(from_box, from_box.log, late) == []


@given(heard=st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 1000)), max_size=40), now=st.integers(1, 1000))
def test_the_clock_is_at_the_second_newest_box(heard: list[tuple[str, int]], now: int) -> None:
    """Whatever comes in whatever order, the clock is where two boxes have been, and never ahead of the site's."""
    yard, newest = YardState(), dict[str, int]()
    for number, at in heard:
        yard.hear(number, at, now)
        if at <= now:
            newest[number] = max(newest.get(number, 0), at)
        assert yard.at_ms == (sorted(newest.values(), reverse=True)[1] if len(newest) > 1 else 0)


# -- custody


def test_a_box_that_is_loaded_takes_no_alert_with_it() -> None:
    """The port ends the alerts of a box that it gives away; the ship opens its own when its dwell has passed."""
    yard, ship = Yard(), Voyage()
    [opened] = yard.every(QUARTER, HOUR, **OFF)
    [ended] = yard.engine.forget(BOX, ms(70 * MINUTE))
    assert (ended.alert_id, ended.state, ended.evidence[0].name) == (opened.alert_id, "CLEARED", "left")
    assert not yard.engine.ship.aboard
    ship.sequences[BOX] = 10
    [aboard] = ship.every(QUARTER, 105 * MINUTE, start_s=75 * MINUTE, **OFF)
    assert (aboard.kind, aboard.state) == ("POWER_LOST", "OPENED") and aboard.alert_id != opened.alert_id


def test_a_refused_clock_is_told_of_boxes_in_the_yard_only() -> None:
    yard = Yard()
    cause = Cause(log="deadletters.tokyo", offset=-1, device_id="d1", boot_id=1, sequence=7)
    assert yard.engine.refused(BOX, cause, "of 1970", ms(0)) == []
    yard.see(0)
    [alert] = yard.engine.refused(BOX, cause, "of 1970", ms(1))
    assert (alert.kind, alert.state) == ("CLOCK", "OPENED")
