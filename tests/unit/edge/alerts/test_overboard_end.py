"""How an overboard alert ends: when its container leaves the site or a person clears it, and by no reading."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import pytest

from edge.alerts.engine import AlertEngine
from edge.alerts.operator import order_for
from edge.alerts.state import is_by_hand
from fairlead.records.alert import OVERBOARD, Alert
from fairlead.records.reading import GeoLocation
from tests.support.edge.detecting import AT_SEA, FALL, HOUR, MINUTE, NEIGHBOURS, Voyage, message, ms
from tests.support.edge.samples import BOX, NOW
from tests.unit.edge.alerts.restarting import BOXES, KINDS, STEP, Ship

HERE = {"latitude": AT_SEA.latitude, "longitude": AT_SEA.longitude}


def leave(engine: AlertEngine, _opened: Alert) -> list[Alert]:
    return engine.forget(BOX, ms(0))


def clear(engine: AlertEngine, opened: Alert) -> list[Alert]:
    return engine.dismiss(order_for(opened, "seen on deck", NOW), ms(0))


ENDS = pytest.mark.parametrize("end", [leave, clear], ids=["left", "by hand"])
End = Callable[[AlertEngine, Alert], list[Alert]]


def states(alerts: list[Alert]) -> list[str]:
    return [alert.state for alert in alerts if alert.kind == OVERBOARD]


@ENDS
def test_readings_in_order_never_end_it(end: End) -> None:
    """A container that stands on deck again for two days, upright and dry beside the ship, is overboard until then."""
    voyage = Voyage()
    voyage.ship()
    [opened] = voyage.see(0, **FALL, geoLocation=HERE)
    for hours in range(1, 48):
        voyage.ship(hours * HOUR)
        voyage.see(hours * HOUR, motion={}, geoLocation=HERE)
    assert states(voyage.said) == ["OPENED"]
    [ended] = end(voyage.engine, opened)
    assert (ended.state, ended.alert_id, ended.severity) == ("CLEARED", opened.alert_id, "CRITICAL")
    assert ended.causes == opened.causes
    assert ended.event_date_time == NOW + dt.timedelta(hours=47)  # of its newest reading
    assert end(voyage.engine, opened) == []
    assert voyage.see(48 * HOUR, motion={}, geoLocation=HERE) == []


@ENDS
def test_it_ends_after_silence_too(end: End) -> None:
    """A container that sank sends nothing: neither the silence nor the ship's voyage ends its alert."""
    voyage = Voyage()
    voyage.ship()
    [opened] = voyage.see(0, **FALL, geoLocation=HERE)
    for hours in range(1, 48):
        voyage.ship(hours * HOUR, place=GeoLocation(latitude=-30.0 - 0.3 * hours, longitude=155.0))
    assert states(voyage.said) == ["OPENED"]
    ended = end(voyage.engine, opened)
    assert [each.alert_id for each in ended if each.kind == OVERBOARD] == [opened.alert_id]
    assert states(ended) == ["CLEARED"]


@ENDS
def test_it_has_all_revisions_and_ends_one_container_only(end: End) -> None:
    """The end follows the newest update, and other containers' alerts stay open."""
    voyage = Voyage()
    voyage.ship()
    [opened] = voyage.see(0, **FALL)
    [other] = voyage.see(0, number=NEIGHBOURS[0], **FALL)
    [updated] = voyage.see(11 * MINUTE, motion={"immersed": True})
    [ended] = end(voyage.engine, updated)
    assert (ended.state, ended.alert_id, ended.revision) == ("CLEARED", opened.alert_id, 2)
    assert [box.number for box in voyage.engine.ship.aboard.values() if OVERBOARD in box.open] == [NEIGHBOURS[0]]
    assert voyage.see(HOUR, motion={}) == []
    [again] = voyage.see(2 * HOUR, **FALL)
    assert (again.state, again.alert_id != opened.alert_id, again.revision) == ("OPENED", True, 0)
    assert states(voyage.engine.forget(other.equipment_reference, ms(0))) == ["CLEARED"]


@ENDS
@pytest.mark.parametrize("readings", [4, 400], ids=["soon", "long after"])
def test_a_restart_neither_ends_it_nor_keeps_it_from_ending(end: End, readings: int) -> None:
    """After a restart the alert is open, even if the readings that opened it are too old to be read; then it ends."""
    ship = Ship()
    for n in range(readings):
        ship.take(message(n, n * STEP, **KINDS["fall" if n == 0 else "good"]), "none")
    assert states(ship.alerts) == ["OPENED"]
    del ship.stored[:-28]
    ship.restart()
    assert states(ship.alerts) == ["OPENED"]
    ship.append(end(ship.engine, ship.alerts[0]))
    assert states(ship.alerts) == ["OPENED", "CLEARED"]
    ship.restart()
    ship.take(message(readings, readings * STEP, **KINDS["good"]), "none")
    assert states(ship.alerts) == ["OPENED", "CLEARED"]
    ship.take(message(readings + 1, (readings + 1) * STEP, **KINDS["fall"]), "none")
    assert states(ship.alerts) == ["OPENED", "CLEARED", "OPENED"]
    assert len({each.alert_id for each in ship.alerts if each.kind == OVERBOARD}) == 2


def test_it_ends_at_a_restart_if_the_container_left_while_the_bridge_was_down() -> None:
    ship = Ship()
    ship.take(message(0, 0, **FALL), "none")
    engine = AlertEngine("star")
    for alert in ship.alerts:
        engine.restore(alert)
    [ended] = engine.settle(set(BOXES) - {BOX}, ms(60))
    assert (ended.alert_id, ended.state, is_by_hand(ended)) == (ship.alerts[0].alert_id, "CLEARED", False)
    assert [each.name for each in ended.evidence] == ["left"]


def test_a_container_that_is_silent_is_told_when_its_overboard_alert_was_a_mistake() -> None:
    """While the alert is open it speaks for a silent container; once a person has cleared it, the silence is told."""
    voyage = Voyage()
    voyage.ship()
    voyage.every(15 * MINUTE, 2 * HOUR)
    [opened] = voyage.see(2 * HOUR + MINUTE, **FALL)
    for hours in range(3, 10):
        assert voyage.ship(hours * HOUR) == []
    clear(voyage.engine, opened)
    [silent] = voyage.ship(10 * HOUR)
    assert (silent.kind, silent.state, silent.equipment_reference) == ("SILENCE", "OPENED", BOX)
    assert voyage.ship(11 * HOUR) == []
