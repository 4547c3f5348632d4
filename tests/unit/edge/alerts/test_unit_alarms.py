"""The reefer unit's own alarms: each is told once, with its severity, until the unit reports it no more."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.alerts.engine import AlertEngine
from edge.alerts.operator import order_for
from edge.messages import ReadingMessage
from fairlead.records.reading import UnitAlarm, unit_alarms
from tests.support.edge.detecting import MINUTE, SHIP, Voyage, message, ms
from tests.support.edge.samples import BOX, NOW, reading, readings_topic

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def alarm(number: int | str, severity: str = "ALARM", **more: Any) -> dict[str, Any]:
    return {"alarmNumber": number, "alarmSeverity": severity, **more}


def told(voyage: Voyage, after_s: int, *alarms: Any) -> list[tuple[str, str, list[str]]]:
    found = voyage.see(after_s, alarms=list(alarms))
    assert {alert.kind for alert in found} <= {"UNIT_ALARM"}
    return [(alert.state, alert.severity, [each.name for each in alert.evidence]) for alert in found]


@pytest.mark.parametrize("severity", ["CRITICAL", "ALARM", "WARNING"])
def test_an_alarm_of_the_unit_is_told_with_its_severity_until_it_is_gone(severity: str) -> None:
    voyage = Voyage()
    assert told(voyage, 0) == []
    date = "2026-03-01T11:00:00Z"
    [opened] = voyage.see(MINUTE, alarms=[alarm(17, severity, alarmDate=date)])
    assert (opened.state, opened.severity, opened.alert_id) == ("OPENED", severity, f"UNIT_ALARM.{BOX}.d1.1.1")
    assert [(each.name, each.detail) for each in opened.evidence] == [("alarm-17", f"{severity} since {date}")]
    assert told(voyage, 2 * MINUTE, alarm(17, severity)) == []
    assert voyage.see(3 * MINUTE) == []  # a reading that does not mention alarms
    assert [(state, severity) for state, severity, _ in told(voyage, 4 * MINUTE)] == [("CLEARED", severity)]


def test_alarms_in_the_form_of_rmo_are_the_same() -> None:
    voyage = Voyage()
    [opened] = voyage.see(0, alarms={"activeAlarmCount": 1, "activeAlarms": [alarm("N999", "CRITICAL")]})
    assert (opened.severity, [each.name for each in opened.evidence]) == ("CRITICAL", ["alarm-N999"])
    [cleared] = voyage.see(MINUTE, alarms={"activeAlarmCount": 0, "activeAlarms": []})
    assert cleared.state == "CLEARED"
    assert voyage.see(2 * MINUTE, alarms={"activeAlarmCount": 0}) == []


def test_an_entry_of_the_units_log_raises_nothing_and_ends_an_alert() -> None:
    """LOG is the fourth severity of RMO; it is no alarm that anybody must look at."""
    voyage = Voyage()
    assert told(voyage, 0, alarm(1, "LOG")) == []
    assert told(voyage, 1, alarm(1, "LOG"), alarm(2, "warning"))[0][:2] == ("OPENED", "WARNING")
    assert told(voyage, 2, alarm(1, "LOG"))[0][0] == "CLEARED"


def test_further_alarms_and_a_rising_severity_are_updates_of_one_alert() -> None:
    """An alarm that comes and goes is named once; one with a severity that RMO does not have is a WARNING."""
    voyage = Voyage()
    assert told(voyage, 0, alarm("E53", "odd")) == [("OPENED", "WARNING", ["alarm-E53"])]
    assert told(voyage, 1, alarm("E53", "CRITICAL")) == [("UPDATED", "CRITICAL", ["alarm-E53"])]
    assert told(voyage, 2, alarm(6, "WARNING")) == [("UPDATED", "CRITICAL", ["alarm-E53", "alarm-6"])]
    for turn in range(3, 9):
        assert told(voyage, turn, alarm("E53" if turn % 2 else 6, "CRITICAL")) == []
    assert told(voyage, 9) == [("CLEARED", "CRITICAL", ["unit-alarm"])]


def test_a_unit_that_invents_alarms_makes_few_states() -> None:
    voyage = Voyage()
    states = [each for turn in range(100) for each in told(voyage, turn, alarm(turn))]
    assert len(states) == 17


def test_an_alert_says_how_many_alarms_it_does_not_name() -> None:
    voyage = Voyage()
    [opened] = voyage.see(0, alarms=[alarm(n) for n in range(16)])
    assert [each.name for each in opened.evidence] == [f"alarm-{n}" for n in range(16)]
    [updated] = voyage.see(1, alarms=[alarm(n) for n in range(18)])
    assert updated.evidence[:-1] == opened.evidence
    assert (updated.state, updated.evidence[-1].name, updated.evidence[-1].detail) == (
        "UPDATED",
        "more-alarms",
        "and 2 more",
    )
    assert told(voyage, 2, *(alarm(n) for n in range(19))) == []
    [risen] = voyage.see(3, alarms=[alarm(n, "CRITICAL") for n in range(19)])
    assert len(risen.evidence) == 17 and risen.evidence[-1].detail == "and 3 more"
    assert [(state, names) for state, _, names in told(voyage, 4)] == [("CLEARED", ["unit-alarm"])]
    [again] = voyage.see(5, alarms=[alarm(n) for n in range(17)])
    assert (again.state, again.evidence[-1].detail) == ("OPENED", "and 1 more")


def test_an_alert_that_a_person_clears_is_not_raised_again_by_the_same_alarms() -> None:
    voyage = Voyage()
    [opened] = voyage.see(0, alarms=[alarm(17)])
    [_] = voyage.engine.dismiss(order_for(opened, "known", NOW), ms(1))
    assert told(voyage, MINUTE, alarm(17)) == []
    assert told(voyage, 2 * MINUTE, alarm(17), alarm(18))[0][0] == "OPENED"
    assert told(voyage, 3 * MINUTE)[0][0] == "CLEARED"
    assert told(voyage, 4 * MINUTE, alarm(17))[0][0] == "OPENED"


def test_after_a_restart_the_same_alarm_is_not_told_again() -> None:
    first, second = AlertEngine("star"), AlertEngine("star")
    seen = [message(n, n * MINUTE, alarms=[alarm(17)]) for n in range(3)]
    [opened] = [alert for each in seen[:2] for alert in first.judge_reading(each, each.log, each.device_ms)]
    second.restore(opened)
    assert [alert for each in seen[:2] for alert in second.recall(each, each.log, ms(0))] == []
    assert second.judge_reading(seen[2], seen[2].log, ms(0)) == []


@given(alarms=JSON)
def test_a_reading_is_kept_whatever_form_its_alarms_have(alarms: Any) -> None:
    """Alarms of another form than RMO's neither refuse the reading nor break the rule."""
    found = SHIP.classify(readings_topic(), reading(0, alarms=alarms), ms(0))
    assert isinstance(found, ReadingMessage)
    engine = AlertEngine("star")
    engine.judge_reading(found, found.log, ms(0))
    assert engine.failures == 0
    assert (unit_alarms(found.reading) is None) == (not isinstance(alarms, list))


def test_alarms_of_another_form_are_left_out() -> None:
    found = message(0, alarms=[alarm(17, alarmDate=None), 5, {"alarmNumber": 3, "isNew": True}]).reading
    assert unit_alarms(found) == (UnitAlarm(alarm_number=3),)
