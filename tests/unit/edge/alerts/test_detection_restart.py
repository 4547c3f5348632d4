"""An alert engine that is killed between any two steps raises the same alerts as one that never stops: none lost, none
twice.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.alerts.engine import AlertEngine
from edge.messages import ReadingMessage
from fairlead.records.alert import Alert
from tests.support.edge.detecting import HOUR, MINUTE, NEIGHBOURS, booking, message, ms, position
from tests.support.edge.samples import BOX
from tests.unit.edge.alerts.restarting import BOXES, CRASHES, KINDS, STEP, Ship, said


def sailed(readings: list[ReadingMessage], crashes: list[str]) -> list[Alert]:
    ship = Ship()
    for number in BOXES:
        ship.engine.booked(booking(number, commodity="pharmaceuticals"))
    for seen, crash in zip(readings, crashes, strict=True):
        ship.take(seen, crash)
    return ship.alerts


runs = st.tuples(  # conditions last for several readings, or no alert would open
    st.sampled_from(sorted(KINDS)),
    st.lists(st.tuples(st.sampled_from(BOXES), st.sampled_from(("none", "none", *CRASHES))), min_size=1, max_size=8),
)


@given(st.lists(runs, min_size=1, max_size=8))
def test_an_alert_engine_that_crashes_says_what_one_says_that_does_not(
    story: list[tuple[str, list[tuple[str, str]]]],
) -> None:
    """With crashes anywhere, the stored alerts are the same as without."""
    steps = [(number, kind, crash) for kind, run in story for number, crash in run]
    readings = [message(n, n * STEP, number=number, **KINDS[kind]) for n, (number, kind, _) in enumerate(steps)]
    without = sailed(readings, ["none"] * len(steps))
    assert said(sailed(readings, [crash for _, _, crash in steps])) == said(without)


@pytest.mark.parametrize("crash", CRASHES[1:])
def test_a_crash_in_the_middle_of_an_excursion_neither_loses_nor_repeats_its_alert(crash: str) -> None:
    """A crash during a period out of band neither loses nor repeats its alert."""
    readings = [message(n, n * STEP, **KINDS["hot"]) for n in range(12)]
    for at in range(12):
        crashes = ["none"] * 12
        crashes[at] = crash
        states = said(sailed(readings, crashes))[f"TEMPERATURE {BOX}"]
        assert states == [(f"TEMPERATURE.{BOX}.d1.1.0", "OPENED", "CRITICAL", 0, (0, 4))]


def test_evidence_of_acknowledged_readings_survives_a_restart() -> None:
    """Weak signs in readings acknowledged before a restart still count after it."""
    ship = Ship()
    ship.take(message(0, 0, motion={"freeFallSeconds": 1.0}), "all stored")
    ship.take(message(1, 5 * MINUTE, motion={"immersed": True}), "none")
    [alert] = ship.alerts
    assert (alert.kind, [cause.sequence for cause in alert.causes]) == ("OVERBOARD", [0, 1])


def test_a_box_that_is_not_aboard_any_more_has_nothing_open_after_a_restart() -> None:
    """After a restart, the alerts of a box that has left the ship are cleared."""
    ship = Ship()
    for n in range(3):
        ship.take(message(n, n * STEP, **KINDS["off"]), "none")
    [opened] = ship.alerts
    engine = AlertEngine("star")
    engine.restore(opened)
    [cleared] = engine.settle(set(), ms(HOUR))
    assert (cleared.alert_id, cleared.state) == (opened.alert_id, "CLEARED")
    again = AlertEngine("star")
    for alert in (opened, cleared):
        again.restore(alert)
    assert again.settle(set(), ms(HOUR)) == []


def test_a_silence_is_not_raised_again_after_a_restart_and_ends_with_the_next_reading() -> None:
    """After a restart, an open silence alert is not raised again, and clears with the next reading."""
    ship = Ship()
    others = [number for number in NEIGHBOURS if number not in BOXES]
    for n in range(8):
        for number in (BOX, *others):
            ship.take(message(n, n * STEP, number=number), "none")
    for n in range(8, 20):
        for number in others:
            ship.take(message(n, n * STEP, number=number), "none")
        ship.append(ship.engine.ship_reported(position(), ms(n * STEP), ms(n * STEP)))
    [opened] = ship.alerts
    assert (opened.kind, opened.state) == ("SILENCE", "OPENED")
    ship.restart()
    ship.append(ship.engine.ship_reported(position(), ms(21 * STEP), ms(21 * STEP)))
    assert ship.alerts == [opened]
    ship.take(message(8, 22 * STEP), "none")
    assert [(alert.alert_id, alert.state) for alert in ship.alerts] == [
        (opened.alert_id, "OPENED"),
        (opened.alert_id, "CLEARED"),
    ]


def test_another_site_that_sees_the_same_readings_gives_the_same_id() -> None:
    """Two sites that judge the same readings give an alert the same id."""
    ids = set()
    for site in ("star", "tokyo"):
        engine = AlertEngine(site)
        for n in range(6):
            for alert in engine.judge_reading(message(n, n * STEP, **KINDS["warm"]), "containers.x", ms(n * STEP)):
                ids.add(alert.alert_id)
    assert len(ids) == 1


def again(readings: list[ReadingMessage], alerts: list[Alert], *, tail: int) -> tuple[AlertEngine, list[Alert]]:
    """Start an alert engine from the stored alerts and the last ``tail`` readings, half of which it cannot judge
    yet."""
    engine = AlertEngine("star")
    for alert in alerts:
        engine.restore(alert)
    known = readings[-tail:]
    raised = [
        alert
        for n, seen in enumerate(known)
        for alert in engine.recall(seen, seen.log, ms(0), received_ms=seen.device_ms, sure=n >= tail // 2)
    ]
    return engine, raised + engine.settle({BOX}, ms(0))


def test_an_alert_that_was_opened_before_the_tail_is_not_raised_again_and_ends_under_its_id() -> None:
    """After a restart, an open alert whose first reading was not read back is not raised again, and clears under its
    id.
    """
    readings = [message(n, n * STEP, **KINDS["warm"]) for n in range(60)]
    first = AlertEngine("star")
    [opened] = [alert for seen in readings for alert in first.judge_reading(seen, seen.log, seen.device_ms)]
    engine, raised = again(readings, [opened], tail=24)
    assert raised == []
    ended = [
        alert
        for n in range(60, 63)
        for alert in engine.judge_reading(message(n, n * STEP, **KINDS["good"]), "containers.x", ms(n * STEP))
    ]
    assert [(alert.alert_id, alert.state) for alert in ended] == [(opened.alert_id, "CLEARED")]


def test_what_a_tail_begins_with_is_not_judged_without_what_came_before() -> None:
    """The first readings that are read back are not judged: what came before them (here a defrost) is unknown."""
    kinds = ["defrost", *["warm"] * 6, *["good"] * 10]  # the readings read back begin after the defrost
    readings = [message(n, n * 13 * MINUTE, **KINDS[kind]) for n, kind in enumerate(kinds)]
    first = AlertEngine("star")
    assert [alert for seen in readings for alert in first.judge_reading(seen, seen.log, seen.device_ms)] == []
    assert again(readings, [], tail=16)[1] == []
    assert again(readings, [], tail=2)[1] == []


def test_the_ship_s_position_of_before_the_restart_ends_nothing_unheard() -> None:
    """A ship's position read back at the start does not clear an alert unnoticed.

    Alerts found while the engine reads the past are not written, so an open alert about the silence of all boxes would
    stay open in the log.
    """
    engine = AlertEngine("star")
    boxes = (BOX, *NEIGHBOURS)
    alerts: list[Alert] = []
    for n in range(8):
        for number in boxes:
            alerts += engine.judge_reading(message(n, n * STEP, number=number), f"containers.{number}", ms(n * STEP))
    alerts += engine.ship_reported(position(), ms(20 * STEP), ms(20 * STEP))
    [opened] = alerts
    assert (opened.kind, opened.equipment_reference) == ("SILENCE", "")
    again_ = AlertEngine("star")
    again_.restore(opened)
    again_.recall_ship(position(), ms(20 * STEP))
    assert again_.settle(set(), ms(0)) == []
    ended = again_.ship_reported(position(), ms(21 * STEP), ms(21 * STEP))
    assert [(alert.alert_id, alert.state) for alert in ended] == [(opened.alert_id, "CLEARED")]
