"""The state machine of alert detection ashore: rule by rule, against detection on board, and over any batches."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.alerts.engine import AlertEngine
from edge.alerts.rules.reefer import CarbonDioxideRule, HumidityRule, OxygenRule, PowerLostRule, TemperatureRule
from edge.alerts.thresholds import default_thresholds
from edge.messages import MessageId, ReadingMessage
from fairlead.records import reading as records
from shore.alerts import rules
from shore.alerts.machine import State, advance, expire
from shore.alerts.rules import DAY_MS, FORGET_MS, HOUR_MS, AlertReading, BoxState, Bucket, pack, unpack
from shore.tables.alerts_ashore import ALERTS_ASHORE, compared, table_of
from tests.support.examples import examples
from tests.support.shore.logs import BOX, LOG, T0, T0_MS, at, every, logs, reading


def states(*readings: AlertReading) -> list[State]:
    return advance(LOG, None, readings)[1]


def shown(found: list[State]) -> list[tuple[str, str, str, int]]:
    """Return kind, state, severity and time, in minutes after T0."""
    return [(s.kind, s.state, s.severity, int((s.event_date_time - T0).total_seconds() // 60)) for s in found]


def test_a_state_is_a_row_of_the_table() -> None:
    assert list(State._fields) == ALERTS_ASHORE.plain_schema.names
    found = states(*every(10, 70, supply_temperature=8.0, return_temperature=8.5))
    (row,) = table_of(found).to_pylist()
    assert row == {
        "alert_id": f"TEMPERATURE.{BOX}@1",
        "revision": 0,
        "kind": "TEMPERATURE",
        "severity": "ALARM",
        "state": "OPENED",
        "equipment_reference": BOX,
        "log": LOG,
        "first_offset": 1,
        "worst_offset": 1,
        "log_offset": 61,
        "term": 1,
        "since_date_time": T0,
        "event_date_time": T0 + dt.timedelta(hours=1),
        "lasted_minutes": 60.0,
        "latitude": 35.5,
        "longitude": 139.75,
        "reason": "fault",
        "detail": "supply air 8.0 C, set point 4.0 C, for 60 min",
        "condition_id": f"TEMPERATURE.{BOX}.d.1.1",
    }


def test_temperature_opens_rises_and_is_over_after_its_recovery() -> None:
    found = states(
        *every(10, 80, supply_temperature=7.0),
        *every(10, 100, since=80, supply_temperature=9.5),
        *every(5, 130, since=100),
    )
    assert shown(found) == [
        ("TEMPERATURE", "OPENED", "ALARM", 60),
        ("TEMPERATURE", "UPDATED", "CRITICAL", 80),
        ("TEMPERATURE", "CLEARED", "CRITICAL", 115),
    ]
    assert [s.revision for s in found] == [0, 1, 2]
    assert {s.alert_id for s in found} == {f"TEMPERATURE.{BOX}@1"}
    assert found[-1].detail == "in order again; it lasted 100 min"
    assert found[-1].worst_offset == 81


def test_a_relapse_begins_the_recovery_anew() -> None:
    warm: dict[str, Any] = {"supply_temperature": 7.0}
    found = states(*every(10, 70, **warm), reading(70), reading(80, **warm), *every(10, 120, since=90))
    assert shown(found)[1:] == [("TEMPERATURE", "CLEARED", "ALARM", 110)]


def test_a_condition_that_is_over_before_its_dwell_is_no_alert() -> None:
    assert states(*every(10, 60, supply_temperature=9.0), *every(10, 200, since=60)) == []


def test_frozen_cargo_is_judged_by_return_air() -> None:
    frozen: dict[str, Any] = {"setpoint_temperature": -18.0, "supply_temperature": -19.0}
    assert states(*every(10, 120, **frozen, return_temperature=-18.5)) == []
    found = states(*every(10, 120, **frozen, return_temperature=-15.0))
    assert found[0].detail.startswith("return air -15.0 C, set point -18.0 C")


def test_defrost_inspection_and_the_time_after_show_nothing_of_temperatures() -> None:
    warm: dict[str, Any] = {"supply_temperature": 15.0}
    assert states(*every(10, 300, is_defrosting=True, **warm)) == []
    assert states(*every(10, 300, is_pre_trip_inspection=True, is_powered=False, **warm)) == []
    found = states(reading(0, is_defrosting=True), *every(10, 200, since=10, **warm))
    assert shown(found) == [("TEMPERATURE", "OPENED", "CRITICAL", 90)]  # 30 min after the defrost, and 60 min of dwell


@pytest.mark.parametrize("off", [{"is_powered": False}, {"is_connected_to_power_source": False}])
def test_power_that_is_lost_for_half_an_hour(off: dict[str, Any]) -> None:
    found = states(reading(0), *every(10, 60, since=10, **off), reading(60))
    assert shown(found) == [("POWER_LOST", "OPENED", "ALARM", 40), ("POWER_LOST", "CLEARED", "ALARM", 60)]


def test_a_box_without_set_point_misses_no_power() -> None:
    assert states(*every(10, 300, is_powered=False, setpoint_temperature=None)) == []


def test_humidity_only_around_the_units_own_set_point() -> None:
    dry: dict[str, Any] = {"relative_humidity": 50.0}
    found = states(*every(30, 300, **dry), *every(10, 400, since=300))
    assert shown(found) == [("HUMIDITY", "OPENED", "WARNING", 240), ("HUMIDITY", "CLEARED", "WARNING", 330)]
    assert states(*every(30, 600, **dry, setpoint_relative_humidity=None)) == []


@pytest.mark.parametrize(("gas", "kind", "word"), [("o2", "O2", "oxygen"), ("co2", "CO2", "carbon dioxide")])
def test_gases_only_around_the_units_own_set_point(gas: str, kind: str, word: str) -> None:
    off: dict[str, Any] = {gas: 9.0}
    wanted: dict[str, Any] = {f"setpoint_{gas}": 2.5}
    found = states(*every(30, 300, **off, **wanted), *every(10, 400, since=300, **wanted | {gas: 2.5}))
    assert shown(found) == [(kind, "OPENED", "ALARM", 120), (kind, "CLEARED", "ALARM", 330)]
    assert found[0].detail == f"{word} 9.0 % (set to 2.5 %), for 120 min"
    assert states(*every(30, 600, **off)) == []


def test_silence_shows_by_the_reading_after_it() -> None:
    found = states(*every(10, 60), reading(200, latitude=1.5))
    assert shown(found) == [("SILENCE", "OPENED", "WARNING", 110), ("SILENCE", "CLEARED", "WARNING", 200)]
    opened, cleared = found
    assert (opened.alert_id, opened.first_offset, opened.log_offset) == (f"SILENCE.{BOX}@51", 51, 51)
    assert (opened.detail, opened.latitude) == ("nothing for 60 min, usually every 10 min", 35.5)
    assert (cleared.reason, cleared.detail, cleared.latitude) == ("gap", "nothing for 150 min", 1.5)
    assert (cleared.log_offset, cleared.since_date_time) == (201, T0 + dt.timedelta(minutes=50))


def test_a_device_that_reports_seldom_may_be_silent_for_longer() -> None:
    assert states(*every(60, 600), reading(779)) == []
    assert [s.state for s in states(*every(60, 600), reading(781))] == ["OPENED", "CLEARED"]


def test_a_reading_that_comes_after_a_newer_one_changes_nothing() -> None:
    warm = every(10, 70, supply_temperature=9.0)
    late = reading(35, offset=1000, sequence=35)
    assert states(*warm[:-1], late, warm[-1]) == states(*warm)
    repeat = warm[2]._replace(offset=1001)
    assert states(*warm[:-1], repeat, warm[-1]) == states(*warm)
    of_another = reading(35, offset=1002, device="old", sequence=900)
    assert states(*warm[:-1], of_another, warm[-1]) == states(*warm)


def test_a_box_that_comes_back_after_half_a_year_begins_anew() -> None:
    away = reading(60 * 24 * 200, supply_temperature=9.0)
    found = states(*every(10, 70, supply_temperature=9.0), away)
    assert [(s.kind, s.state, s.reason) for s in found] == [
        ("TEMPERATURE", "OPENED", "fault"),
        ("TEMPERATURE", "CLEARED", "forgotten"),
    ], "nor is it a silence: most boxes that are away for so long have left"
    assert found[-1].event_date_time == T0 + dt.timedelta(hours=1, days=180)


def test_time_passing_opens_a_silence_that_is_the_same_as_the_next_readings() -> None:
    box, _ = advance(LOG, None, every(10, 60), now_ms=T0_MS + HOUR_MS)
    assert box is not None
    early = expire(LOG, box, T0_MS + HOUR_MS, watched=True)
    assert (early.states, early.look_again_ms) == ([], T0_MS + 2 * HOUR_MS), "counted from when it was heard"
    not_ours = expire(LOG, box, T0_MS + 2 * HOUR_MS, watched=False)
    assert (not_ours.states, not_ours.look_again_ms) == ([], T0_MS + 2 * HOUR_MS + rules.LOOK_AGAIN_MS)
    opened = expire(LOG, box, T0_MS + 2 * HOUR_MS, watched=True)
    assert opened.box is not None
    assert opened.look_again_ms == T0_MS + HOUR_MS + FORGET_MS
    _, ended = advance(LOG, again(opened.box), [reading(200)])
    assert [*opened.states, *ended] == states(*every(10, 60), reading(200))


def test_news_that_was_under_way_ends_a_silence_that_was_none() -> None:
    box, _ = advance(LOG, None, every(10, 60))
    assert box is not None
    opened = expire(LOG, box, T0_MS + 30 * HOUR_MS, watched=True)
    _, ended = advance(LOG, opened.box, every(10, 200, since=60))
    assert [(s.state, s.reason, s.revision) for s in [*opened.states, *ended]] == [
        ("OPENED", "fault", 0),
        ("CLEARED", "delayed", 1),
    ]
    assert compared(table_of([*opened.states, *ended])).num_rows == 0


def test_a_container_that_is_gone_is_forgotten() -> None:
    box, before = advance(LOG, None, every(10, 70, supply_temperature=9.0))
    assert box is not None
    silent = expire(LOG, box, T0_MS + DAY_MS, watched=True)
    assert silent.box is not None
    gone = expire(LOG, silent.box, T0_MS + FORGET_MS + HOUR_MS, watched=False)
    assert gone.box is None
    ended = [*silent.states, *gone.states]
    assert [(s.kind, s.state) for s in ended] == [
        ("SILENCE", "OPENED"),
        ("SILENCE", "CLEARED"),
        ("TEMPERATURE", "CLEARED"),
    ]
    whole = states(*every(10, 70, supply_temperature=9.0), reading(60 * 24 * 200))
    assert [*before, gone.states[-1]] == whole


def test_a_box_that_was_out_of_the_system_was_not_silent() -> None:
    aboard, back = every(10, 60), [reading(500, term=3), reading(1100, term=4)]
    found = states(*aboard, *back)
    assert [(s.reason, s.first_offset) for s in found] == [("fault", 501), ("gap", 501)]
    assert shown(states(*aboard, reading(500, term=None)))[0] == ("SILENCE", "OPENED", "WARNING", 110)
    box, _ = advance(LOG, None, aboard)
    assert box is not None
    opened = expire(LOG, box, T0_MS + 3 * HOUR_MS, watched=True)
    _, ended = advance(LOG, opened.box, back)
    assert [(s.state, s.reason) for s in ended] == [("CLEARED", "left"), ("OPENED", "fault"), ("CLEARED", "gap")]
    assert compared(table_of([*opened.states, *ended])).equals(table_of(found))


def test_what_is_remembered_of_a_container_is_small() -> None:
    box, _ = advance(LOG, None, every(5, 400, device="reefer-0123456789", is_powered=False, supply_temperature=12.0))
    assert box is not None
    assert len(box.conditions) == 2
    assert len(pack(Bucket(boxes={LOG: box}))) < 280
    box.conditions.clear()
    assert len(pack(Bucket(boxes={LOG: box}))) < 130


def again(box: BoxState | None) -> BoxState | None:
    """Return the box as the next batch finds it, packed and unpacked."""
    return unpack(pack(Bucket(boxes={LOG: box}))).boxes[LOG] if box is not None else None


def cut(log: list[AlertReading], cuts: set[int], passing: list[tuple[int, int, bool]]) -> list[State]:
    """Judge a log as the processor does, in batches that end at ``cuts``. ``passing`` lets time pass after batches. A
    box is packed between two batches."""
    found: list[State] = []
    box: BoxState | None = None
    begin = 0
    for number, end in enumerate([*sorted(c for c in cuts if 0 < c < len(log)), len(log)]):
        box, more = advance(LOG, again(box), log[begin:end], now_ms=0)
        found += more
        for after, hours, watched in passing:
            if after == number and box is not None:
                now = box.at_ms + hours * HOUR_MS
                if now - box.at_ms < FORGET_MS or _jumps(box, log[end:]):
                    expiry = expire(LOG, box, now, watched=watched)
                    found += expiry.states
                    box = expiry.box
        begin = end
    return found


def _jumps(box: BoxState, rest: list[AlertReading]) -> bool:
    """Return whether the next newer reading is more than ``FORGET_MS`` later, so that the box is forgotten anyway."""
    newer = next((r for r in rest if box.is_newer(r)), None)
    return newer is not None and newer.at_ms - box.at_ms > FORGET_MS


@settings(deadline=None)
@given(
    logs,
    st.sets(st.integers(1, 40)),
    st.lists(st.tuples(st.integers(0, 8), st.sampled_from([1, 2, 5, 30, 200 * 24]), st.booleans()), max_size=6),
)
def test_batches_and_time_passing_change_nothing(
    log: list[AlertReading], cuts: set[int], passing: list[tuple[int, int, bool]]
) -> None:
    whole = states(*log)
    parts = cut(log, cuts, passing)
    assert cut(log, cuts, []) == whole, "cuts alone change not even what is left out of the comparison"
    assert compared(table_of(parts)).to_pylist() == compared(table_of(whole)).to_pylist()
    _whole_alerts(whole)
    _whole_alerts(parts)


def _whole_alerts(found: list[State]) -> None:
    """Check that each alert is OPENED first, CLEARED last if at all, and counts its states."""
    alerts: dict[str, list[State]] = defaultdict(list)
    for state in found:
        alerts[state.alert_id].append(state)
    for alert in alerts.values():
        assert [s.revision for s in alert] == list(range(len(alert)))
        said = [s.state for s in alert]
        assert said[0] == "OPENED"
        assert "OPENED" not in said[1:]
        assert "CLEARED" not in said[:-1]


def test_the_limits_are_those_of_detection_on_board() -> None:
    board = default_thresholds().default
    assert (
        rules.FROZEN_SETPOINT,
        rules.TEMPERATURE_TOLERANCE,
        rules.TEMPERATURE_CRITICAL,
        rules.TEMPERATURE_DWELL_MS,
        rules.TEMPERATURE_RECOVERY_MS,
        rules.AFTER_DEFROST_MS,
        rules.POWER_DWELL_MS,
        rules.HUMIDITY_TOLERANCE,
        rules.HUMIDITY_DWELL_MS,
        rules.HUMIDITY_RECOVERY_MS,
        (rules.GAS_TOLERANCE, rules.GAS_DWELL_MS, rules.GAS_RECOVERY_MS),
        (rules.GAS_TOLERANCE, rules.GAS_DWELL_MS, rules.GAS_RECOVERY_MS),
        rules.SILENCE_INTERVALS,
        rules.SILENCE_AT_LEAST_MS,
        rules.SILENCE_UNKNOWN_MS,
        rules.CLOCK_AHEAD_MS,
    ) == (
        board.temperature.frozen_setpoint,
        board.temperature.tolerance,
        board.setpoint.critical,
        board.temperature.dwell,
        board.temperature.recovery,
        board.temperature.after_defrost,
        board.power.dwell,
        board.humidity.tolerance,
        board.humidity.dwell,
        board.humidity.recovery,
        (board.o2.tolerance, board.o2.dwell, board.o2.recovery),
        (board.co2.tolerance, board.co2.dwell, board.co2.recovery),
        board.silence.intervals,
        board.silence.at_least,
        board.silence.unknown,
        board.device.ahead,
    )


@settings(max_examples=examples(300), deadline=None)
@given(logs)
def test_the_same_readings_raise_the_same_alerts_as_on_board(log: list[AlertReading]) -> None:
    calm = [r for n, r in enumerate(log) if all(abs(r.at_ms - o.at_ms) < FORGET_MS for o in log[:n])]
    watch = AlertEngine(
        "tokyo", [TemperatureRule(), PowerLostRule(), HumidityRule(), OxygenRule(), CarbonDioxideRule()]
    )
    board = [alert for r in calm for alert in watch.judge_reading(message(r), LOG, r.at_ms)]
    ashore = [s for s in states(*calm) if s.kind != "SILENCE"]
    assert watch.failures == 0
    assert [(s.kind, s.condition_id, s.state, s.event_date_time) for s in ashore if s.state != "UPDATED"] == [
        (a.kind, a.alert_id, a.state, a.event_date_time) for a in board if a.state != "UPDATED"
    ]


def message(r: AlertReading) -> ReadingMessage:
    """Return the message that the bridge gives to detection on board."""
    record = records.Reading(
        equipment_reference=BOX,
        device=records.Device(device_id=r.device, boot_id=r.boot, sequence=r.sequence, device_date_time=at(r)),
        measurements=records.Measurements(
            supply_temperature=r.supply_temperature,
            return_temperature=r.return_temperature,
            relative_humidity=r.relative_humidity,
            o2=r.o2,
            co2=r.co2,
        ),
        setpoints=records.Setpoints(
            temperature=r.setpoint_temperature,
            relative_humidity=r.setpoint_relative_humidity,
            o2=r.setpoint_o2,
            co2=r.setpoint_co2,
        ),
        reefer_settings=records.ReeferSettings(
            is_defrosting=bool(r.is_defrosting), is_pre_trip_inspection=bool(r.is_pre_trip_inspection)
        ),
        is_connected_to_power_source=bool(r.is_connected_to_power_source),
        is_powered=bool(r.is_powered),
    )
    return ReadingMessage(LOG, BOX, record, MessageId(r.device, r.boot, r.sequence), r.at_ms)
