from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from edge.alerts.box import NOT_YET_STORED
from edge.alerts.engine import AlertEngine
from edge.ingest.classifier import Classifier
from edge.messages import ReadingMessage
from fairlead.records.alert import Alert
from fairlead.records.reading import Device, GeoLocation, distance_m, known
from fairlead.records.ship import Position
from tests.support.edge.samples import BOX, BOX_LOG, IMO, NOW, NOW_MS, reading, readings_topic, topology

SHIP = Classifier(topology(), "star")
MINUTE = 60
AT_SEA = GeoLocation(latitude=-30.0, longitude=155.0)


class Voyage:
    """Feed readings of one box, one after another, to an alert engine."""

    def __init__(self) -> None:
        self.engine = AlertEngine("star")
        self.sequence = 0

    def ship(self, *, after_s: int = 0, speed: float = 18.0, place: GeoLocation = AT_SEA, status: int = 0) -> None:
        device = Device(device_id="gps", boot_id=1, sequence=0, device_date_time=NOW)
        position = Position(
            vessel_imo_number=IMO,
            device=device,
            geo_location=place,
            speed_over_ground=speed,
            navigation_status=status,
        )
        self.engine.ship_reported(position, NOW_MS + 1000 * after_s)

    def see(self, after_s: int = 0, **fields: Any) -> list[Alert]:
        self.sequence += 1
        payload = reading(self.sequence, at=NOW + dt.timedelta(seconds=after_s), **fields)
        message = SHIP.classify(readings_topic(), payload, NOW_MS + 1000 * after_s)
        assert isinstance(message, ReadingMessage)
        return self.engine.judge_reading(message, BOX_LOG, NOW_MS + 1000 * after_s)


FALL: dict[str, Any] = {"motion": {"freeFallSeconds": 1.9, "peakG": 12.0, "tiltDegrees": 70.0}}
WATER: dict[str, Any] = {"motion": {"immersed": True, "tiltDegrees": 60.0}}
AWAY: dict[str, Any] = {"geoLocation": {"latitude": -30.1, "longitude": 155.0}}


def test_a_fall_is_overboard_and_raised_once() -> None:
    """A free fall raises one overboard alert, and no second one."""
    voyage = Voyage()
    voyage.ship()
    [alert] = voyage.see(**FALL)
    assert (alert.kind, alert.severity, alert.state) == ("OVERBOARD", "CRITICAL", "OPENED")
    assert alert.equipment_reference == BOX
    assert alert.vessel_imo_number == IMO
    assert {evidence.name for evidence in alert.evidence} == {"free-fall", "impact", "tilt"}
    assert [(cause.log, cause.offset, cause.sequence) for cause in alert.causes] == [(BOX_LOG, NOT_YET_STORED, 1)]
    assert voyage.see(60, **WATER) == []


def test_evidence_of_two_readings_adds_up() -> None:
    """Two weak signs in two readings close together raise the overboard alert."""
    voyage = Voyage()
    voyage.ship()
    assert voyage.see(motion={"freeFallSeconds": 1.0}) == []
    [alert] = voyage.see(5 * MINUTE, motion={"immersed": True})
    assert {evidence.name for evidence in alert.evidence} == {"free-fall", "immersion"}


def test_evidence_far_apart_does_not_add_up() -> None:
    """Two weak signs far apart in time raise no alert."""
    voyage = Voyage()
    voyage.ship()
    assert voyage.see(motion={"freeFallSeconds": 1.0}) == []
    assert voyage.see(20 * MINUTE, motion={"immersed": True}) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"motion": {"freeFallSeconds": 3.0}},
        {"motion": {"peakG": 40.0}},
        {"motion": {"tiltDegrees": 90.0}},
        {"motion": {"immersed": True}},
        AWAY,
        {},
    ],
)
def test_one_sign_alone_is_not_enough(fields: dict[str, Any]) -> None:
    """One weak sign alone raises no overboard alert."""
    voyage = Voyage()
    voyage.ship()
    assert voyage.see(**fields) == []


def test_silence_is_no_sign() -> None:
    """Silence does not count as a sign of a box lost overboard."""
    voyage = Voyage()
    voyage.ship()
    assert voyage.see() == []
    assert voyage.see(10 * 3600) == []


def test_a_box_that_stays_behind_in_the_water_is_overboard() -> None:
    """A box in the water whose position falls behind the ship raises the overboard alert."""
    voyage = Voyage()
    voyage.ship()
    [alert] = voyage.see(**AWAY, motion={"tiltDegrees": 80.0})
    assert {evidence.name for evidence in alert.evidence} == {"away", "tilt"}


def test_the_distance_allows_for_how_far_the_ship_went_since_its_report() -> None:
    """The distance between box and ship allows for the way the ship has made since its last report."""
    voyage = Voyage()
    voyage.ship(speed=20)
    # 15 minutes at 20 knots are 9.3 km: the ship may well be at the box's position (11 km with the tolerance).
    assert voyage.see(15 * MINUTE, **AWAY, motion={"tiltDegrees": 80.0}) == []


def test_a_box_lifted_off_in_port_is_not_overboard() -> None:
    voyage = Voyage()
    voyage.ship(speed=0.0, status=5)
    assert voyage.see(**AWAY, motion={"peakG": 6.0}) == []
    assert len(voyage.see(**AWAY, **FALL)) == 1


def test_a_restarted_alert_engine_raises_nothing_twice() -> None:
    """A restarted alert engine does not raise an alert again."""
    voyage = Voyage()
    voyage.ship()
    [alert] = voyage.see(**FALL)
    voyage.engine = AlertEngine("star")
    voyage.engine.restore(alert)
    voyage.ship()
    assert voyage.see(60, **FALL) == []


def test_the_same_reading_gives_the_same_alert_id() -> None:
    ids = set()
    for _ in range(2):
        voyage = Voyage()
        voyage.ship()
        ids.add(voyage.see(**FALL)[0].alert_id)
    assert len(ids) == 1


def test_a_box_that_left_the_ship_may_fall_another_time() -> None:
    """A box that came aboard again can raise a new overboard alert."""
    voyage = Voyage()
    voyage.ship()
    [first] = voyage.see(**FALL)
    voyage.engine.forget(BOX)
    [second] = voyage.see(3600, **FALL)
    assert first.alert_id != second.alert_id


REEFER: dict[str, Any] = {"setpoints": {"temperature": 4.0}}


def test_power_is_lost_after_the_dwell_and_comes_back() -> None:
    """A power alert opens after the dwell time without power, and clears when power is back."""
    voyage = Voyage()
    off: dict[str, Any] = {**REEFER, "isPowered": False}
    assert voyage.see(0, **off) == []
    assert voyage.see(29 * MINUTE, **off) == []
    [opened] = voyage.see(30 * MINUTE, **off)
    assert (opened.kind, opened.severity, opened.state) == ("POWER_LOST", "ALARM", "OPENED")
    assert voyage.see(60 * MINUTE, **off) == []
    [cleared] = voyage.see(70 * MINUTE, **REEFER)
    assert (cleared.state, cleared.alert_id) == ("CLEARED", opened.alert_id)


@pytest.mark.parametrize(
    ("power", "told"),
    [
        ({"isPowered": False}, "plugged in, without power"),
        ({"isPowered": False, "isConnectedToPowerSource": False}, "not plugged in"),
        ({"isPowered": None, "isConnectedToPowerSource": False}, "not plugged in"),
        ({"isPowered": False, "isConnectedToPowerSource": None}, "plugged in, without power"),
    ],
)
def test_an_alert_tells_a_box_without_a_plug_from_one_without_power(power: dict[str, Any], told: str) -> None:
    voyage = Voyage()
    assert voyage.see(0, **REEFER, **power) == []
    [opened] = voyage.see(30 * MINUTE, **REEFER, **power)
    assert opened.evidence[0].detail.startswith(told)


def test_a_unit_that_does_not_know_its_power_raises_nothing() -> None:
    voyage = Voyage()
    for minute in (0, 30, 60, 120):
        assert voyage.see(minute * MINUTE, **REEFER, isPowered=None, isConnectedToPowerSource=None) == []


def test_a_short_loss_and_a_dry_box_raise_nothing() -> None:
    """A short loss of power, and a dry box without power, raise no alert."""
    voyage = Voyage()
    assert voyage.see(0, **REEFER, isPowered=False) == []
    assert voyage.see(20 * MINUTE, **REEFER) == []
    assert voyage.see(45 * MINUTE, **REEFER, isPowered=False) == []
    assert voyage.see(300 * MINUTE, isPowered=False) == []


def air(
    supply: float, *, returned: float | None = None, defrost: bool = False, setpoint: float = 4.0
) -> dict[str, Any]:
    measured = {"supplyTemperature": supply, "returnTemperature": supply if returned is None else returned}
    return {
        "setpoints": {"temperature": setpoint},
        "measurements": measured,
        "reeferSettings": {"isDefrosting": defrost},
    }


def test_temperature_out_of_band_is_raised_after_its_dwell_and_cleared_after_recovery() -> None:
    voyage = Voyage()
    assert voyage.see(0, **air(7.0)) == []
    assert voyage.see(59 * MINUTE, **air(7.0)) == []
    [opened] = voyage.see(60 * MINUTE, **air(7.0))
    assert (opened.kind, opened.state) == ("TEMPERATURE", "OPENED")
    assert voyage.see(70 * MINUTE, **air(4.5)) == []
    [cleared] = voyage.see(85 * MINUTE, **air(4.5))
    assert (cleared.state, cleared.alert_id) == ("CLEARED", opened.alert_id)


def test_a_frozen_box_is_judged_by_its_return_air() -> None:
    """For frozen cargo the temperature of the return air counts, not of the supply air."""
    voyage = Voyage()
    for minutes in (0, 60, 120):
        assert voyage.see(minutes * MINUTE, **air(-25.0, returned=-18.5, setpoint=-18.0)) == []
    assert voyage.see(130 * MINUTE, **air(-18.0, returned=-12.0, setpoint=-18.0)) == []
    assert len(voyage.see(190 * MINUTE, **air(-18.0, returned=-12.0, setpoint=-18.0))) == 1


def test_a_defrost_neither_begins_nor_counts() -> None:
    """Readings during a defrost neither open a temperature alert nor count towards its dwell time."""
    voyage = Voyage()
    for minutes in range(0, 300, 10):
        assert voyage.see(minutes * MINUTE, **air(12.0, defrost=minutes % 30 == 0)) == []


@pytest.mark.parametrize(
    "place",
    [(0.0, 0.0), (91.0, 181.0), (91.0, 10.0), (10.0, 181.0)],
)
def test_places_that_mean_not_available_are_none(place: tuple[float, float]) -> None:
    """Positions that mean "not available" are read as no position."""
    assert known(GeoLocation(latitude=place[0], longitude=place[1])) is None


def test_distance_agrees_with_a_degree_of_latitude() -> None:
    north = GeoLocation(latitude=1.0, longitude=10.0)
    assert distance_m(GeoLocation(latitude=0.0, longitude=10.0), north) == pytest.approx(111_195, rel=1e-4)
    across = distance_m(GeoLocation(latitude=0.0, longitude=179.5), GeoLocation(latitude=0.0, longitude=-179.5))
    assert across == pytest.approx(111_195, rel=1e-4)
