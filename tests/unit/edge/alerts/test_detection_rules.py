"""Each alert rule by itself: when an alert opens, becomes worse and clears, and what raises none."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from edge.alerts.box import ContainerState
from edge.alerts.engine import AlertEngine, default_rules
from edge.alerts.rules.base import AlertRule, RuleFinding
from edge.alerts.ship import ShipState
from edge.messages import ReadingMessage
from fairlead.records.alert import Alert
from fairlead.records.reading import GeoLocation
from tests.support.edge.detecting import (
    AT_SEA,
    FALL,
    HOUR,
    MINUTE,
    NEIGHBOURS,
    REEFER,
    TILT,
    Voyage,
    booking,
)
from tests.support.edge.samples import BOX, BOX_LOG


def said(alerts: list[Alert]) -> list[tuple[str, str, str]]:
    return [(alert.kind, alert.severity, alert.state) for alert in alerts]


def air(supply: float, *, setpoint: float = 4.0, **settings: bool) -> dict[str, Any]:
    return {
        "setpoints": {"temperature": setpoint},
        "measurements": {"supplyTemperature": supply, "returnTemperature": supply},
        "reeferSettings": settings,
    }


# -- inspection before a trip


def inspected(result: str, date: str = "2026-02-20T00:00:00Z", **more: str) -> dict[str, str]:
    return {"inspectionType": "REMOTE", "inspectionDate": date, "inspectionResult": result, **more}


@pytest.mark.parametrize(
    ("newest", "severity", "detail"),
    [
        (inspected("FAILED"), "ALARM", "was not passed"),
        (inspected("CHECK"), "WARNING", "asks for a check"),
        (inspected("PASSED", expiryDate="2026-02-28T23:59:00Z"), "WARNING", "has expired"),
    ],
)
def test_an_inspection_that_was_not_passed_is_told_of_booked_cargo_until_one_is(
    newest: dict[str, str], severity: str, detail: str
) -> None:
    voyage = Voyage()
    older = inspected("PASSED", "2026-02-01T00:00:00Z")
    assert voyage.see(0, inspection=[newest, older]) == [], "nobody has booked it"
    voyage.engine.booked(booking())
    [opened] = voyage.see(MINUTE, inspection=[newest, older])
    assert said([opened]) == [("INSPECTION", severity, "OPENED")]
    assert opened.evidence[0].detail == f"the inspection before the trip (remote, 2026-02-20 00:00+00:00) {detail}"
    assert voyage.see(2 * MINUTE) == [], "a reading that does not mention inspections"
    good = inspected("PASSED", "2026-03-01T00:00:00Z", expiryDate="2026-04-01T00:00:00Z")
    assert said(voyage.see(3 * MINUTE, inspection=[newest, good])) == [("INSPECTION", severity, "CLEARED")]


@pytest.mark.parametrize(
    "odd", [None, 7, "FAILED", {"inspectionResult": "FAILED"}, [], [{"inspectionResult": "FAILED"}]]
)
def test_an_inspection_of_another_form_says_nothing(odd: Any) -> None:
    voyage = Voyage()
    voyage.engine.booked(booking())
    assert voyage.see(0, inspection=odd) == []


# -- set point


def test_a_set_point_that_differs_from_the_booking_is_raised_and_cleared_when_it_is_set() -> None:
    voyage = Voyage()
    voyage.engine.booked(booking(setpoint_temperature=2.0))
    alerts = voyage.every(10 * MINUTE, 40 * MINUTE, **REEFER)
    assert said(alerts) == [("SETPOINT", "ALARM", "OPENED")]
    assert "set point 4.0 C, booked 2.0 C (booking B1)" in alerts[0].evidence[0].detail
    assert said(voyage.see(50 * MINUTE, setpoints={"temperature": 2.1})) == [("SETPOINT", "ALARM", "CLEARED")]


def test_a_set_point_far_off_is_critical() -> None:
    voyage = Voyage()
    voyage.engine.booked(booking(setpoint_temperature=-20.0))
    assert ("SETPOINT", "CRITICAL", "OPENED") in said(voyage.every(10 * MINUTE, 40 * MINUTE, **REEFER))


def test_no_booking_no_set_point_to_compare() -> None:
    """Without a booking, no set point alert is raised."""
    assert Voyage().every(10 * MINUTE, 4 * HOUR, **REEFER) == []


def test_a_booking_that_comes_after_the_box_is_used_from_then_on() -> None:
    """A booking that arrives after the box came aboard is used from then on."""
    voyage = Voyage()
    assert voyage.every(10 * MINUTE, 60 * MINUTE, **REEFER) == []
    voyage.engine.booked(booking(setpoint_temperature=2.0))
    assert said(voyage.every(10 * MINUTE, 120 * MINUTE, start_s=70 * MINUTE, **REEFER)) == [
        ("SETPOINT", "ALARM", "OPENED")
    ]


def test_a_cancelled_booking_counts_no_more() -> None:
    """A cancelled booking is not used any more."""
    voyage = Voyage()
    voyage.engine.booked(booking(setpoint_temperature=2.0))
    voyage.engine.booked(booking(setpoint_temperature=2.0, status="CANCELLED"))
    assert voyage.every(10 * MINUTE, 4 * HOUR, **REEFER) == []


# -- temperature by commodity


def test_beyond_what_the_commodity_stands_is_critical_and_says_so_as_an_update() -> None:
    """A temperature that the commodity cannot stand turns the open alert critical, as an update."""
    voyage = Voyage()
    voyage.engine.booked(booking(commodity="Pharmaceuticals", setpoint_temperature=5.0))
    warm, hot = air(7.5, setpoint=5.0), air(9.0, setpoint=5.0)
    [opened] = voyage.every(15 * MINUTE, 60 * MINUTE, **warm)
    [updated] = voyage.see(75 * MINUTE, **hot)
    assert said([opened, updated]) == [("TEMPERATURE", "ALARM", "OPENED"), ("TEMPERATURE", "CRITICAL", "UPDATED")]
    assert (updated.alert_id, updated.revision) == (opened.alert_id, 1)
    assert voyage.see(90 * MINUTE, **hot) == []
    assert "the cargo stands at least 2.0 C and at most 8.0 C" in updated.evidence[0].detail


def test_a_good_set_point_does_not_excuse_what_the_commodity_cannot_stand() -> None:
    """A temperature that the commodity cannot stand raises an alert even if it is near the set point."""
    voyage = Voyage()
    voyage.engine.booked(booking(commodity="ice-cream", setpoint_temperature=-15.0))
    frozen = air(-15.0, setpoint=-15.0)
    assert said(voyage.every(15 * MINUTE, 60 * MINUTE, **frozen)) == [("TEMPERATURE", "CRITICAL", "OPENED")]


def test_causes_are_the_first_the_worst_and_the_deciding_reading() -> None:
    """An alert names three readings as its causes: the first, the worst, and the one that opened it."""
    voyage = Voyage()
    voyage.see(0, **air(4.0))
    for minutes, supply in ((15, 7.0), (30, 12.0), (45, 9.0), (60, 8.0)):
        assert voyage.see(minutes * MINUTE, **air(supply)) == []
    [alert] = voyage.see(75 * MINUTE, **air(8.0))
    assert [(cause.log, cause.sequence) for cause in alert.causes] == [(BOX_LOG, 1), (BOX_LOG, 2), (BOX_LOG, 5)]
    assert alert.alert_id == f"TEMPERATURE.{BOX}.d1.1.1"


def test_one_reading_in_band_starts_the_dwell_anew() -> None:
    """One reading in band restarts the dwell time."""
    voyage = Voyage()
    assert voyage.every(15 * MINUTE, 45 * MINUTE, **air(9.0)) == []
    assert voyage.see(60 * MINUTE, **air(4.0)) == []
    assert voyage.every(15 * MINUTE, 120 * MINUTE, start_s=75 * MINUTE, **air(9.0)) == []


def test_a_relapse_within_the_recovery_is_the_same_alert() -> None:
    """Going out of band again before recovery is complete belongs to the same alert."""
    voyage = Voyage()
    assert len(voyage.every(15 * MINUTE, 60 * MINUTE, **air(9.0))) == 1
    assert voyage.see(65 * MINUTE, **air(4.0)) == []
    assert voyage.see(75 * MINUTE, **air(9.0)) == []
    assert voyage.see(85 * MINUTE, **air(4.0)) == []
    assert said(voyage.see(100 * MINUTE, **air(4.0))) == [("TEMPERATURE", "ALARM", "CLEARED")]


@pytest.mark.parametrize("setting", ["isDefrosting", "isPreTripInspection"])
def test_defrost_and_pre_trip_inspection_are_left_out_and_so_is_the_time_after(setting: str) -> None:
    """Readings during defrost and pre-trip inspection, and for a while after them, raise no temperature alert."""
    voyage = Voyage()
    assert voyage.every(10 * MINUTE, 4 * HOUR, **air(20.0, **{setting: True})) == []
    assert voyage.every(10 * MINUTE, 4 * HOUR + 25 * MINUTE, start_s=4 * HOUR + 5 * MINUTE, **air(20.0)) == []
    later = 4 * HOUR + 40 * MINUTE
    assert len(voyage.every(10 * MINUTE, later + HOUR, start_s=later, **air(20.0))) == 1


def test_a_unit_without_power_under_inspection_has_lost_none() -> None:
    """A unit without power during a pre-trip inspection raises no power alert."""
    voyage = Voyage()
    off = {**REEFER, "isPowered": False, "reeferSettings": {"isPreTripInspection": True}}
    assert voyage.every(10 * MINUTE, 3 * HOUR, **off) == []


# -- humidity and gases


@pytest.mark.parametrize(
    ("kind", "severity", "measured", "setpoints"),
    [
        ("HUMIDITY", "WARNING", {"relativeHumidity": 60.0}, {"temperature": 4.0, "relativeHumidity": 85.0}),
        ("O2", "ALARM", {"o2": 9.0}, {"temperature": 4.0, "o2": 3.0}),
        ("CO2", "ALARM", {"co2": 12.0}, {"temperature": 4.0, "co2": 5.0}),
    ],
)
def test_the_atmosphere_is_held_against_the_units_own_set_points(
    kind: str, severity: str, measured: dict[str, float], setpoints: dict[str, float]
) -> None:
    """Gases and humidity are compared with the unit's own set points."""
    voyage = Voyage()
    [alert] = voyage.every(30 * MINUTE, 5 * HOUR, measurements=measured, setpoints=setpoints)
    assert (alert.kind, alert.severity, alert.state) == (kind, severity, "OPENED")
    name = next(iter(measured))
    good = {name: setpoints[name]}
    [cleared] = voyage.every(
        30 * MINUTE, 6 * HOUR, start_s=5 * HOUR + 30 * MINUTE, measurements=good, setpoints=setpoints
    )
    assert (cleared.state, cleared.alert_id) == ("CLEARED", alert.alert_id)


def test_the_atmosphere_is_held_against_the_commoditys_bounds() -> None:
    """Gases and humidity are compared with the commodity's limits."""
    voyage = Voyage()
    voyage.engine.booked(booking(commodity="bananas"))
    [alert] = voyage.every(30 * MINUTE, 3 * HOUR, measurements={"co2": 9.5})
    assert alert.kind == "CO2"
    assert "9.5 % (at most 7.0 %)" in alert.evidence[0].detail


@pytest.mark.parametrize(
    "fields",
    [
        {"measurements": {"relativeHumidity": 10.0, "o2": 0.1, "co2": 40.0}},  # no set point or limit is known
        {"measurements": {"o2": 9.0}, "setpoints": {"o2": 3.0}, "reeferSettings": {"isDefrosting": True}},
        {"measurements": {"o2": 9.0}, "setpoints": {"o2": 3.0}, "isPowered": False},
        {"setpoints": {"o2": 3.0}},
    ],
)
def test_the_atmosphere_is_not_judged_without_grounds(fields: dict[str, Any]) -> None:
    """Without set points and limits, gases and humidity raise no alert."""
    assert Voyage().every(30 * MINUTE, 8 * HOUR, **fields) == []


# -- door

OPEN: dict[str, Any] = {"motion": {"doorOpen": True}}


def test_a_door_open_at_sea_is_raised_at_once_and_cleared_when_it_is_shut() -> None:
    voyage = Voyage()
    voyage.ship()
    assert said(voyage.see(0, **OPEN)) == [("DOOR_OPEN", "ALARM", "OPENED")]
    assert voyage.see(600, **OPEN) == []
    assert said(voyage.see(1200, motion={})) == [("DOOR_OPEN", "ALARM", "CLEARED")]


@pytest.mark.parametrize("ship", [{"speed": 0.0, "status": 5}, {"speed": 0.4, "status": 1}, None])
def test_a_door_may_be_open_in_port_or_where_nobody_knows_that_the_ship_sails(ship: dict[str, Any] | None) -> None:
    """An open door raises no alert in port, or where it is not known that the ship sails."""
    voyage = Voyage()
    if ship is not None:
        voyage.ship(**ship)
    assert voyage.see(0, **OPEN) == []


# -- silence


def quiet_ship(
    voyage: Voyage, hours: int, *, silent: tuple[str, ...] = (), others: tuple[str, ...] = ()
) -> list[Alert]:
    """All boxes report every 15 minutes for two hours, then the ``silent`` ones stop; the ship reports all the time."""
    alerts: list[Alert] = []
    for at in range(0, hours * HOUR + 1, 15 * MINUTE):
        alerts += voyage.ship(at)
        for number in (*others, *(silent if at <= 2 * HOUR else ())):
            alerts += voyage.see(at, number=number)
    return alerts


def test_a_box_that_has_fallen_silent_is_raised_and_cleared_when_it_speaks() -> None:
    voyage = Voyage()
    [alert] = quiet_ship(voyage, 6, silent=(BOX,), others=NEIGHBOURS)
    assert (alert.kind, alert.severity, alert.state, alert.equipment_reference) == ("SILENCE", "WARNING", "OPENED", BOX)
    assert [cause.sequence for cause in alert.causes] == [8]
    assert "usually one every 15 min" in alert.evidence[0].detail
    assert said(voyage.see(6 * HOUR + 60)) == [("SILENCE", "WARNING", "CLEARED")]


@pytest.mark.parametrize("readings", range(3, 12))
def test_a_device_that_keeps_its_interval_exactly_is_missed_after_four_of_them(readings: int) -> None:
    """A device that keeps its interval exactly counts as silent after four intervals without a reading."""
    voyage = Voyage()
    last = (readings - 1) * 20 * MINUTE
    for at in range(0, last + 1, 20 * MINUTE):
        voyage.ship(at)
        voyage.see(at)
    assert [voyage.ship(last + minutes * MINUTE) for minutes in range(1, 80)] == [[]] * 79
    assert said(voyage.ship(last + 80 * MINUTE)) == [("SILENCE", "WARNING", "OPENED")]


def test_when_the_gateway_fails_one_alert_is_raised_about_all_boxes() -> None:
    """When the gateway fails, one alert about all boxes opens instead of one for each."""
    voyage = Voyage()
    [alert] = quiet_ship(voyage, 12, silent=(BOX, *NEIGHBOURS))
    assert (alert.equipment_reference, alert.kind, alert.severity) == ("", "SILENCE", "ALARM")
    assert alert.evidence[0].detail == "5 of 5 containers are silent: look at the gateway"
    assert len(alert.causes) == 5
    for number in (BOX, *NEIGHBOURS):
        assert voyage.see(12 * HOUR + 60, number=number) == []
    [cleared] = voyage.ship(12 * HOUR + 120)
    assert (cleared.alert_id, cleared.state) == (alert.alert_id, "CLEARED")
    assert voyage.ship(12 * HOUR + 180) == []


def test_a_gateway_that_fails_again_has_another_alert_although_a_device_stayed_silent_between() -> None:
    voyage = Voyage()
    [first] = quiet_ship(voyage, 12, silent=(BOX, *NEIGHBOURS))
    for at in range(12 * HOUR, 14 * HOUR, 15 * MINUTE):
        voyage.ship(at)
        for number in NEIGHBOURS:
            voyage.see(at, number=number)
    again: list[Alert] = []
    for at in range(14 * HOUR, 24 * HOUR, 15 * MINUTE):
        again += [each for each in voyage.ship(at) if each.equipment_reference == ""]
    [second] = again
    assert (first.state, second.state) == ("OPENED", "OPENED")
    assert first.alert_id != second.alert_id


def test_boxes_that_report_at_different_moments_are_not_named_one_by_one_when_the_gateway_fails() -> None:
    """When the gateway fails, boxes that report at different moments get no alerts of their own."""
    voyage = Voyage()
    alerts: list[Alert] = []
    for minute in range(0, 8 * 60):
        alerts += voyage.ship(minute * MINUTE)
        if minute < 120:
            for n, number in enumerate((BOX, *NEIGHBOURS)):
                if minute % 15 == 3 * n:
                    alerts += voyage.see(minute * MINUTE, number=number)
    assert [(alert.equipment_reference, alert.state) for alert in alerts] == [("", "OPENED")]


def test_an_alert_about_all_boxes_outlives_a_restart() -> None:
    voyage = Voyage()
    [alert] = quiet_ship(voyage, 12, silent=(BOX, *NEIGHBOURS))
    voyage.engine = AlertEngine("star")
    voyage.engine.restore(alert)
    assert voyage.engine.settle({BOX, *NEIGHBOURS}, 1) == []
    for number in (BOX, *NEIGHBOURS):
        voyage.see(12 * HOUR + 60, number=number)
    [cleared] = voyage.ship(12 * HOUR + 120)
    assert (cleared.alert_id, cleared.state) == (alert.alert_id, "CLEARED")


def test_nobody_is_silent_while_the_ship_itself_does_not_report() -> None:
    """While the ship itself does not report, no box counts as silent."""
    voyage = Voyage()
    voyage.ship()
    voyage.every(15 * MINUTE, HOUR)
    assert voyage.see(48 * HOUR, number=NEIGHBOURS[0]) == []


def test_a_box_whose_log_is_not_held_is_not_expected_to_report() -> None:
    """A box whose log another site holds is not expected to report here."""
    voyage = Voyage()
    voyage.ship()
    for at in range(0, HOUR, 15 * MINUTE):
        voyage.see(at, strays=True)
    assert [alert for hours in range(1, 48) for alert in voyage.ship(hours * HOUR)] == []


@pytest.mark.parametrize("hours", [0, 24])
def test_a_box_whose_log_comes_after_its_last_reading_is_expected_to_report(hours: int) -> None:
    """The first readings aboard are strays, custody comes later, and the device says nothing more."""
    voyage = Voyage()
    voyage.ship()
    for at in range(0, HOUR, 15 * MINUTE):
        voyage.see(at, strays=True)
    assert [alert for hour in range(1, hours + 1) for alert in voyage.ship(hour * HOUR)] == []
    voyage.engine.taken_over(BOX_LOG)
    [alert] = [alert for hour in range(hours + 1, hours + 24) for alert in voyage.ship(hour * HOUR)]
    assert said([alert]) == [("SILENCE", "WARNING", "OPENED")]
    assert alert.causes[0].log == BOX_LOG


def test_a_box_that_left_the_ship_is_not_missed() -> None:
    """A box that has left the ship raises no silence alert."""
    voyage = Voyage()
    for at in range(0, HOUR, 15 * MINUTE):
        voyage.ship(at)
        voyage.see(at)
    assert voyage.engine.forget(BOX) == []
    assert [alert for hours in range(1, 48) for alert in voyage.ship(hours * HOUR)] == []


def test_a_box_that_left_and_came_back_is_judged_once() -> None:
    """A box that left and came back has its silence judged once."""
    voyage = Voyage()
    for number in (BOX, *NEIGHBOURS):
        voyage.see(0, number=number)
    voyage.engine.forget(BOX)
    voyage.see(0)
    alerts: list[Alert] = []
    for hours in range(1, 30):
        alerts += voyage.ship(hours * HOUR)
        for number in NEIGHBOURS:
            alerts += voyage.see(hours * HOUR, number=number)
    assert said(alerts) == [("SILENCE", "WARNING", "OPENED")]


def test_a_burst_of_events_does_not_make_a_device_seem_quicker_than_it_is() -> None:
    """A burst of event readings does not shorten the interval that is expected of a device."""
    voyage = Voyage()
    for at in range(0, 24 * HOUR, 6 * HOUR):
        voyage.ship(at)
        voyage.see(at)
    for seconds in range(0, 50, 10):  # something shakes the box
        voyage.see(18 * HOUR + 600 + seconds)
    assert [alert for hours in range(19, 30) for alert in voyage.ship(hours * HOUR)] == []


# -- overboard


def test_a_box_that_tilts_and_falls_silent_with_its_neighbours_is_overboard() -> None:
    """A box that tilts and falls silent together with its neighbours raises the overboard alert."""
    voyage = Voyage()
    stack = NEIGHBOURS[:2]
    others = tuple(f"{prefix}" for prefix in ("BIGU1000052", "BIGU1000068", "BIGU1000073", "BIGU1000089"))
    stowed: dict[str, Any] = {"stowagePosition": "0340782"}
    for at in range(0, 2 * HOUR, 15 * MINUTE):
        voyage.ship(at)
        for number in (BOX, *stack):
            voyage.see(at, number=number, **stowed)
        for number in others:
            voyage.see(at, number=number)
    voyage.see(2 * HOUR - 60, **stowed, **TILT)
    alerts: list[Alert] = []
    for at in range(2 * HOUR, 6 * HOUR, 15 * MINUTE):
        for number in others:
            alerts += voyage.see(at, number=number)
        alerts += voyage.ship(at)
    [overboard] = [alert for alert in alerts if alert.kind == "OVERBOARD"]
    assert overboard.equipment_reference == BOX
    assert {evidence.name for evidence in overboard.evidence} == {"tilt", "silence", "neighbours"}
    assert {alert.equipment_reference for alert in alerts if alert.kind == "SILENCE"} >= set(stack)


def test_silence_and_silent_neighbours_alone_are_never_overboard() -> None:
    """Silence alone, also of neighbours, never raises an overboard alert."""
    voyage = Voyage()
    stowed: dict[str, Any] = {"stowagePosition": "340782"}
    everybody = (BOX, *NEIGHBOURS, "BIGU1000052", "BIGU1000068", "BIGU1000073", "BIGU1000089", "BIGU1000094")
    for at in range(0, 2 * HOUR, 15 * MINUTE):
        voyage.ship(at)
        for number in everybody:
            voyage.see(at, number=number, **stowed)
    alerts: list[Alert] = []
    for at in range(2 * HOUR, 24 * HOUR, 15 * MINUTE):
        for number in everybody[4:]:
            alerts += voyage.see(at, number=number, **stowed)
        alerts += voyage.ship(at)
    assert {alert.kind for alert in alerts} == {"SILENCE"}
    assert len(alerts) == 4


def test_new_evidence_and_drift_are_told_but_not_at_every_reading() -> None:
    """New evidence and drift update an overboard alert, but not with every reading."""
    voyage = Voyage()
    voyage.ship()
    [opened] = voyage.see(0, **FALL, geoLocation={"latitude": -30.0, "longitude": 155.0})
    drift = {"latitude": -30.03, "longitude": 155.0}
    assert voyage.see(60, motion={"immersed": True}) == []
    [updated] = voyage.see(11 * MINUTE, motion={"immersed": True})
    assert (updated.alert_id, updated.state, updated.revision) == (opened.alert_id, "UPDATED", 1)
    assert {evidence.name for evidence in updated.evidence} == {"free-fall", "impact", "tilt", "immersion"}
    voyage.ship(29 * MINUTE, place=GeoLocation(latitude=-30.3, longitude=155.0))
    [drifted] = voyage.see(30 * MINUTE, motion={"immersed": True}, geoLocation=drift)
    assert drifted.geo_location == GeoLocation(**drift)
    assert voyage.see(31 * MINUTE, motion={"immersed": True}, geoLocation=drift) == []
    assert voyage.ship(12 * HOUR) == []


def test_what_could_not_be_told_at_once_is_told_when_the_box_is_silent() -> None:
    """An update held back for a while is written when the box falls silent."""
    voyage = Voyage()
    voyage.ship()
    [opened] = voyage.see(0, **FALL)
    assert voyage.see(60, motion={"immersed": True}) == []
    assert voyage.ship(5 * MINUTE) == []
    [updated] = voyage.ship(15 * MINUTE)
    assert (updated.alert_id, updated.state) == (opened.alert_id, "UPDATED")
    assert [cause.sequence for cause in updated.causes] == [1]
    assert voyage.ship(30 * MINUTE) == []


def test_a_false_alarm_does_not_report_every_mile_of_the_ship() -> None:
    """A false overboard alarm is not updated for every mile that the ship sails."""
    voyage = Voyage()
    voyage.ship()
    here = {"latitude": AT_SEA.latitude, "longitude": AT_SEA.longitude}
    assert len(voyage.see(0, **FALL, geoLocation=here)) == 1
    for hours in range(1, 24):
        place = GeoLocation(latitude=-30.0 - 0.3 * hours, longitude=155.0)
        voyage.ship(hours * HOUR, place=place)
        moved = {"latitude": place.latitude, "longitude": place.longitude}
        assert voyage.see(hours * HOUR + 60, motion={"tiltDegrees": 5.0}, geoLocation=moved) == []


def test_a_late_reading_still_counts_as_evidence() -> None:
    """A reading that arrives late still counts as evidence."""
    voyage = Voyage()
    voyage.ship()
    voyage.sequences[BOX] = 0
    voyage.see(60, **TILT)
    voyage.sequences[BOX] = -1  # the earlier reading arrives after it
    alerts = voyage.see(0, motion={"freeFallSeconds": 1.5, "peakG": 9.0})
    assert said(alerts) == [("OVERBOARD", "CRITICAL", "OPENED")]


@pytest.mark.parametrize("late", [{}, {"motion": {"freeFallSeconds": 0.9}}])
def test_a_late_reading_takes_no_sign_away(late: dict[str, Any]) -> None:
    """A reading from long before the first sign, from a backlog or a second device, leaves that sign as it is."""
    voyage = Voyage()
    voyage.ship(0)
    assert voyage.see(HOUR, motion={"freeFallSeconds": 1.0}) == []
    assert voyage.see(30 * MINUTE, name="d2", **late) == []
    [alert] = voyage.see(HOUR + MINUTE, motion={"immersed": True})
    assert said([alert]) == [("OVERBOARD", "CRITICAL", "OPENED")]
    assert [each.detail for each in alert.evidence] == ["weightless for 1.0 s", "in water"]


def test_a_late_reading_does_not_move_a_box_back() -> None:
    voyage = Voyage()
    voyage.ship(HOUR)
    now, before = {"latitude": -30.0, "longitude": 155.0}, {"latitude": -30.002, "longitude": 155.0}
    assert voyage.see(HOUR, motion={"freeFallSeconds": 1.0}, geoLocation=now) == []
    assert voyage.see(HOUR - 5 * MINUTE, name="d2", geoLocation=before) == []
    [alert] = voyage.see(HOUR + MINUTE, motion={"immersed": True})
    assert alert.geo_location is not None and alert.geo_location.latitude == -30.0


def test_signs_of_late_readings_count_together_and_not_with_those_of_now() -> None:
    voyage = Voyage()
    voyage.ship(0)
    assert voyage.see(2 * HOUR, motion={"tiltDegrees": 70.0}) == []
    assert voyage.see(HOUR, name="d2", motion={"immersed": True}) == []
    assert voyage.see(2 * HOUR + MINUTE, motion={"tiltDegrees": 70.0}) == [], "the water was an hour before"
    assert voyage.see(HOUR + MINUTE, name="d2", motion={"immersed": True}) == []
    [alert] = voyage.see(HOUR + 2 * MINUTE, name="d2", motion={"freeFallSeconds": 1.0})
    assert {each.name for each in alert.evidence} == {"immersion", "free-fall"}


@pytest.mark.parametrize(
    "place",
    [{"latitude": 0.0, "longitude": 0.0}, {"latitude": 91.0, "longitude": 181.0}],
    ids=["no fix", "not available"],
)
def test_a_box_that_does_not_know_its_place_is_not_away(place: dict[str, float]) -> None:
    """A box without a position of its own does not count as away from the ship."""
    voyage = Voyage()
    voyage.ship()
    assert voyage.see(60, motion={"immersed": True}, geoLocation=place) == []
    assert [alert.kind for alert in voyage.see(120, motion={"peakG": 9.0}, geoLocation=place)] == []
    assert voyage.engine.failures == 0


def test_a_ship_whose_last_report_is_too_old_says_nothing_about_where_a_box_is() -> None:
    """A ship's report that is too old says nothing about the distance of a box."""
    voyage = Voyage()
    voyage.ship()
    far = {"latitude": AT_SEA.latitude - 20, "longitude": AT_SEA.longitude}
    assert voyage.see(2 * HOUR, motion={"immersed": True}, geoLocation=far) == []
    assert voyage.engine.failures == 0
    voyage.ship(2 * HOUR + 60)
    assert said(voyage.see(2 * HOUR + 60, geoLocation=far)) == [("OVERBOARD", "CRITICAL", "OPENED")]


# -- readings out of order


def test_a_repeat_or_a_late_reading_neither_ends_nor_begins_a_condition() -> None:
    """A repeated or late reading neither opens nor clears an alert."""
    voyage = Voyage()
    assert voyage.every(15 * MINUTE, 45 * MINUTE, **air(9.0)) == []
    voyage.sequences[BOX] = -1
    assert voyage.see(5 * MINUTE, **air(4.0)) == []  # sequence 0 again
    voyage.sequences[BOX] = 3
    assert len(voyage.see(60 * MINUTE, **air(9.0))) == 1


def test_a_device_whose_clock_was_set_back_is_judged_on() -> None:
    """A device whose clock was set back is still judged."""
    voyage = Voyage()
    assert voyage.every(15 * MINUTE, 30 * MINUTE, start_s=15 * MINUTE, **air(9.0)) == []
    alerts = voyage.every(15 * MINUTE, -22 * HOUR, start_s=-24 * HOUR, **air(9.0))
    assert said(alerts) == [("TEMPERATURE", "ALARM", "OPENED")]


def test_a_new_boot_counts_from_zero_again() -> None:
    """After a restart of the device, its sequence counts from zero again, and its readings are judged."""
    voyage = Voyage()
    assert voyage.every(15 * MINUTE, 45 * MINUTE, **air(9.0)) == []
    voyage.sequences[BOX] = -1
    assert len(voyage.see(60 * MINUTE, boot=2, **air(9.0))) == 1


# -- rules that fail


class Broken(AlertRule):
    kind = "BROKEN"

    def judge_reading(self, box: ContainerState, message: ReadingMessage, ship: ShipState) -> RuleFinding | None:
        raise ZeroDivisionError

    def tick(self, ship: ShipState) -> Iterable[tuple[ContainerState, RuleFinding]]:
        raise ZeroDivisionError


def test_a_rule_that_fails_stops_no_other_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A rule that raises an error is logged and does not stop the others."""
    voyage = Voyage()
    voyage.engine = AlertEngine("star", [Broken(), *default_rules()])
    voyage.ship()
    assert said(voyage.see(0, **FALL)) == [("OVERBOARD", "CRITICAL", "OPENED")]
    assert voyage.engine.failures == 2
    assert "rule BROKEN failed on" in caplog.text


# -- leaving


def test_what_was_open_ends_when_the_box_leaves_the_ship() -> None:
    """Open alerts clear when the box leaves the ship."""
    voyage = Voyage()
    [opened] = voyage.every(10 * MINUTE, 30 * MINUTE, **REEFER, isPowered=False)
    [left] = voyage.engine.forget(BOX, 1)
    assert (left.alert_id, left.kind, left.state) == (opened.alert_id, "POWER_LOST", "CLEARED")
    assert [evidence.name for evidence in left.evidence] == ["left"]
    assert voyage.engine.forget(BOX, 1) == []
