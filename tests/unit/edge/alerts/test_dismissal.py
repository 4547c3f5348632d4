"""Alerts cleared by a person: cleared once, with name and reason. The same condition raises none again; a new condition
does.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.alerts.engine import AlertEngine
from edge.alerts.operator import answer_body, chosen, newest_states, order_for
from edge.alerts.state import is_by_hand, order_of
from fairlead.errors import ConfigurationError, RefusedError
from fairlead.records import decoder, encode
from fairlead.records.alert import Alert, AlertOrder
from tests.support.edge.detecting import FALL, HOUR, MINUTE, NEIGHBOURS, Voyage, booking, message, ms, position
from tests.support.edge.samples import BOX, NOW
from tests.unit.edge.alerts.restarting import BOXES, CRASHES, KINDS, STEP, Ship, said

WATER: dict[str, Any] = {"motion": {"immersed": True, "tiltDegrees": 70.0}}


def dismissed(engine: AlertEngine, alert: Alert, reason: str = "the sensor is wet") -> list[Alert]:
    order = order_for(alert, reason, NOW)
    assert decoder(AlertOrder).decode(encode(order)) == order
    ended = engine.dismiss(order, ms(0))
    assert engine.dismiss(order, ms(0)) == []  # the order is read again at every start
    assert [order_of(each) for each in ended] == [order.order_id] * len(ended)
    return ended


def test_an_overboard_alert_is_cleared_with_who_and_why_and_what_had_been_seen() -> None:
    """A cleared overboard alert records who cleared it, why, and the evidence seen by then."""
    voyage = Voyage()
    voyage.ship()
    [opened] = voyage.see(0, **WATER)
    [ended] = dismissed(voyage.engine, opened)
    assert (ended.alert_id, ended.state, ended.revision) == (opened.alert_id, "CLEARED", 1)
    assert is_by_hand(ended) and not is_by_hand(opened)
    assert ended.evidence[0].detail.endswith(": the sensor is wet")
    assert {"immersion", "tilt"} <= {each.name for each in ended.evidence}
    assert ended.causes == opened.causes


def test_what_goes_on_raises_it_no_more_and_new_evidence_does_under_an_id_of_its_own() -> None:
    """A condition that continues raises no alert after its dismissal; new evidence does, under a new id."""
    voyage = Voyage()
    voyage.ship()
    [opened] = voyage.see(0, **WATER)
    dismissed(voyage.engine, opened)
    assert voyage.every(5 * MINUTE, 60 * MINUTE, start_s=5 * MINUTE, **WATER) == []
    [again] = voyage.see(65 * MINUTE, motion={"immersed": True, "tiltDegrees": 70.0, "freeFallSeconds": 2.0})
    assert (again.state, again.revision) == ("OPENED", 0)
    assert again.alert_id != opened.alert_id


def test_it_is_raised_again_when_it_was_over_and_comes_back() -> None:
    """A condition that ended after the dismissal and comes back raises an alert again."""
    voyage = Voyage()
    voyage.ship()
    [opened] = voyage.see(0, **WATER)
    dismissed(voyage.engine, opened)
    assert voyage.every(10 * MINUTE, 40 * MINUTE, start_s=10 * MINUTE, motion={}) == []
    [again] = voyage.see(50 * MINUTE, **WATER)
    assert again.alert_id != opened.alert_id


def test_a_second_inspection_that_fails_is_another_condition() -> None:
    """A failed inspection that was dismissed is told of no more; a later one that fails too is, on the same day too."""

    def failed(hour: int) -> dict[str, str]:
        at = f"2026-02-20T{hour:02}:00:00Z"
        return {"inspectionType": "REMOTE", "inspectionDate": at, "inspectionResult": "FAILED"}

    voyage = Voyage()
    voyage.engine.booked(booking())
    [opened] = voyage.see(0, inspection=[failed(9)])
    dismissed(voyage.engine, opened)
    assert voyage.every(MINUTE, HOUR, start_s=MINUTE, inspection=[failed(9)]) == []
    [again] = voyage.see(2 * HOUR, inspection=[failed(15), failed(9)])
    assert (again.kind, again.state, again.alert_id != opened.alert_id) == ("INSPECTION", "OPENED", True)
    dismissed(voyage.engine, again)
    assert voyage.see(3 * HOUR, inspection=[failed(15), failed(9)]) == []


def test_a_temperature_alert_that_was_cleared_stays_so_until_the_condition_is_a_new_one() -> None:
    """A dismissed temperature alert stays cleared until the condition ends and begins again."""
    voyage = Voyage()
    warm = voyage.every(STEP, 5 * STEP, **KINDS["warm"])
    [opened] = warm
    dismissed(voyage.engine, opened)
    assert voyage.every(STEP, 20 * STEP, start_s=6 * STEP, **KINDS["warm"]) == []
    assert voyage.every(STEP, 22 * STEP, start_s=21 * STEP, **KINDS["good"]) == []
    [again] = voyage.every(STEP, 28 * STEP, start_s=23 * STEP, **KINDS["warm"])
    assert again.alert_id != opened.alert_id


ALARM: dict[str, Any] = {"alarms": [{"alarmNumber": 7, "alarmSeverity": "ALARM"}]}


@pytest.mark.parametrize(("over", "whole"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("fields", [KINDS["hot"], KINDS["off"], KINDS["wrong"], WATER, ALARM])
def test_a_condition_that_goes_on_raises_none_after_a_restart_either(
    fields: dict[str, Any], over: bool, whole: bool
) -> None:
    """The dismissal holds although the condition began before the oldest reading that is read again.

    It does not hold if readings in order are among these, nor if they are all since the container came to the site.
    """
    ship = Ship()
    ship.restart()
    for n in range(60):
        ship.take(message(n, n * STEP, **fields), "none")
        if n == 20:
            for alert in newest_states(ship.alerts).values():
                ship.append(ship.engine.dismiss(order_for(alert, "known", NOW), ms(0)))
    kinds, before = {each.kind for each in ship.alerts}, len(ship.alerts)
    engine = AlertEngine("star")
    for alert in ship.alerts:
        engine.restore(alert)
    engine.ship_reported(position(), ms(0), ms(0))
    engine.booked(booking(commodity="pharmaceuticals"))
    for n, (seen, came_ms) in enumerate(ship.stored[-28:]):
        again = (
            message(seen.identity.sequence, (32 + n) * STEP, **{**KINDS["good"], "alarms": []})
            if over and n in (9, 10)
            else seen
        )
        ship.append(engine.recall(again, again.log, ms(0), received_ms=came_ms, sure=whole or n >= 14))
    ship.append(engine.settle(set(BOXES), ms(0)))
    for n in range(60, 64):
        seen = message(n, n * STEP, **fields)
        ship.append(engine.judge_reading(seen, seen.log, ms(n * STEP)))
    assert kinds and {each.kind for each in ship.alerts[before:]} == (kinds if over or whole else set())


class Cared(Ship):
    """A ship whose operator clears whatever is open; orders are read again from their beginning at every start."""

    def __init__(self) -> None:
        self.orders: list[AlertOrder] = []
        super().__init__()

    def restart(self) -> None:
        super().restart()
        for order in self.orders:
            self.append(self.engine.dismiss(order, ms(0)))

    def clear(self, crash: str) -> None:
        for n, alert in enumerate([each for each in newest_states(self.alerts).values() if each.state != "CLEARED"]):
            order = order_for(alert, "seen to", NOW)
            self.orders.append(order)
            if crash == "none" or n > 0:
                self.append(self.engine.dismiss(order, ms(0)))
            else:  # the order is written and the bridge dies before it has carried it out
                self.restart()


runs = st.lists(
    st.tuples(
        st.sampled_from(sorted(KINDS)),
        st.lists(
            st.tuples(
                st.sampled_from(BOXES), st.sampled_from(("none", "none", *CRASHES)), st.sampled_from((0, 0, 0, 1))
            ),
            min_size=1,
            max_size=8,
        ),
    ),
    max_size=8,
)


def sailed(story: list[tuple[str, str, str, int]], *, crashing: bool) -> list[Alert]:
    ship = Cared()
    ship.restart()
    for n, (kind, number, crash, clears) in enumerate(story):
        ship.take(message(n, n * STEP, number=number, **KINDS[kind]), crash if crashing else "none")
        if clears:
            ship.clear(crash if crashing else "none")
    return ship.alerts


@given(runs)
def test_an_alert_engine_that_crashes_while_alerts_are_cleared_says_what_one_says_that_does_not(
    runs_: list[tuple[str, list[tuple[str, str, int]]]],
) -> None:
    """With crashes while alerts are dismissed, the stored alerts are the same as without."""
    story = [(kind, number, crash, clears) for kind, run in runs_ for number, crash, clears in run]
    calm = sailed(story, crashing=False)
    assert said(sailed(story, crashing=True)) == said(calm)
    states: dict[str, list[str]] = {}
    for alert in calm:
        states.setdefault(alert.alert_id, []).append(alert.state)
    for each in states.values():
        assert each[0] == "OPENED" and "OPENED" not in each[1:] and "CLEARED" not in each[:-1]


def raised() -> list[Alert]:
    voyage = Voyage()
    voyage.ship()
    voyage.see(0, **FALL)
    voyage.see(0, number=NEIGHBOURS[0], **FALL)
    voyage.said += voyage.engine.forget(NEIGHBOURS[0], 1)
    return voyage.said


def test_an_alert_is_meant_by_its_id_by_its_container_or_by_its_log() -> None:
    """A dismissal can name an alert by its id, its container or the container's log."""
    alerts = raised()
    for wanted in (alerts[0].alert_id, BOX, f"containers.{BOX}"):
        assert chosen(alerts, wanted, "star") == alerts[0]


def test_what_cannot_be_cleared_is_refused_with_its_reason() -> None:
    """An alert that cannot be dismissed is refused with the reason."""
    alerts = raised()
    with pytest.raises(ConfigurationError, match="no open alert 'BIGU9999999' here"):
        chosen(alerts, "BIGU9999999", "star")
    with pytest.raises(RefusedError, match="was cleared already: the container is no longer in the care of star"):
        chosen(alerts, alerts[1].alert_id, "star")
    with pytest.raises(RefusedError, match="raised at star"):
        chosen(alerts, BOX, "marlin")
    with pytest.raises(RefusedError, match="a reason is needed"):
        order_for(alerts[0], "  ", NOW)


def test_with_two_open_alerts_of_a_container_the_id_is_asked_for() -> None:
    """With two open alerts of a container, the command asks for the id."""
    voyage = Voyage()
    voyage.ship()
    voyage.see(0, motion={"doorOpen": True, "immersed": True, "tiltDegrees": 70.0})
    assert len(voyage.said) == 2
    with pytest.raises(ConfigurationError, match="2 open alerts") as caught:
        chosen(voyage.said, BOX, "star")
    assert voyage.said[0].alert_id in (caught.value.hint or "")


def test_the_answer_for_programs_tells_whether_it_was_this_order() -> None:
    """The JSON answer tells whether this order cleared the alert."""
    voyage = Voyage()
    voyage.ship()
    [opened] = voyage.see(0, **FALL)
    mine, other = (order_for(opened, why, dt.datetime.now(dt.UTC)) for why in ("mine", "another's"))
    [ended] = voyage.engine.dismiss(mine, ms(0))
    assert answer_body(opened, mine, ended)["outcome"] == "cleared"
    assert answer_body(opened, other, ended)["outcome"] == "over"
    assert answer_body(opened, mine, None)["outcome"] == "not done"
