"""Excursions, the sessions out of band, against a plain Python reference, and rule by rule."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shore.tables.readings import READINGS
from tests.support.examples import examples
from tests.support.oracle.conditions import parts_of, sessions_of
from tests.support.shore.hours import T0, Row, reading

DAY = dt.timedelta(days=1)
MINUTE = dt.timedelta(minutes=1)


def excursions(rows: list[Row]) -> list[Row]:
    table = pa.Table.from_pylist(rows, schema=READINGS.plain_schema)
    found = sessions_of(parts_of(table, T0 - 10 * DAY, T0 + 10 * DAY))
    ordered: list[Row] = found.sort_by([("quantity", "ascending"), ("start_date_time", "ascending")]).to_pylist()
    return ordered


def minute(time: dt.datetime | None) -> float | None:
    return None if time is None else (time - T0) / MINUTE


def test_one_row_says_what_happened() -> None:
    rows = [
        reading("A", 0, 4.0),
        reading("A", 10, 6.5, latitude=1.0, longitude=2.0),
        reading("A", 20, 9.0),
        reading("A", 25, 5.0),
        reading("A", 40, 1.5),
        reading("A", 50, 4.0),
    ]
    (row,) = excursions(rows)
    assert {name: minute(row[f"{name}_date_time"]) for name in ("start", "last", "end", "recovered")} == {
        "start": 10,
        "last": 40,
        "end": 50,
        "recovered": 50,
    }
    assert (row["minutes"], row["minutes_out_of_band"], row["readings"]) == (40, 10 + 5 + 10, 3)
    assert (row["worst_value"], row["worst_deviation"], row["direction"], row["setpoint"]) == (9.0, 5.0, "HIGH", 4.0)
    assert row["deviation_minutes"] == 10 * 2.5 + 5 * 5 + 10 * 2.5
    assert (row["latitude"], row["longitude"]) == (1.0, 2.0)
    assert row["excursion_id"] == f"A/TEMPERATURE/{T0 + 10 * MINUTE:%FT%T.%fZ}"


def test_thirty_minutes_in_band_end_a_session_and_less_do_not() -> None:
    def count(back: float, again: float) -> int:
        return len(excursions([reading("A", 0, 9.0), reading("A", back), reading("A", again, 9.0)]))

    assert count(25, 54.9) == 1
    assert count(25, 55) == 2
    assert count(300, 329) == 1
    assert count(300, 330) == 2


def test_six_hours_of_silence_end_a_session() -> None:
    (one,) = excursions([reading("A", 0, 9.0), reading("A", 360, 9.0)])
    assert (one["minutes"], one["minutes_out_of_band"]) == (390, 60)
    assert len(excursions([reading("A", 0, 9.0), reading("A", 360.1, 9.0)])) == 2
    (open_end,) = excursions([reading("A", 0, 9.0), reading("A", 361)])
    assert open_end["recovered_date_time"] is None


def test_a_defrost_neither_begins_nor_ends_one() -> None:
    melting = {"is_defrosting": True}
    assert excursions([reading("A", 0, 30.0, **melting), reading("A", 25, 9.0)]) == []
    rows = [reading("A", 0, 9.0), reading("A", 10, 4.0, **melting), reading("A", 50, 9.0), reading("A", 55)]
    (row,) = excursions(rows)
    assert (minute(row["end_date_time"]), row["readings"], row["minutes_out_of_band"]) == (55, 2, 10 + 5)


def test_cold_is_low_and_frozen_cargo_goes_by_return_air() -> None:
    (row,) = excursions([reading("A", 0, -30.0, return_temperature=-21.0, setpoint_temperature=-18.0)])
    assert (row["worst_value"], row["worst_deviation"], row["direction"]) == (-21.0, 3.0, "LOW")


def test_humidity_and_power_have_sessions_of_their_own() -> None:
    off: dict[str, Any] = {"is_powered": False, "relative_humidity": 90.0, "setpoint_relative_humidity": 60.0}
    wet = off | {"is_powered": True}
    found = excursions([reading("A", 0, **wet), reading("A", 5, **off), reading("A", 10)])
    assert [(row["quantity"], minute(row["start_date_time"]), row["minutes"]) for row in found] == [
        ("HUMIDITY", 0, 5),
        ("POWER", 5, 5),
    ]
    humidity, power = found
    assert (humidity["worst_value"], humidity["deviation_minutes"]) == (90.0, 150.0)
    assert [power[name] for name in ("worst_value", "worst_deviation", "direction", "deviation_minutes")] == [None] * 4


def test_a_box_that_cools_nothing_misses_no_power() -> None:
    assert excursions([reading("A", 0, is_powered=False, setpoint_temperature=None)]) == []


histories = st.lists(
    st.tuples(st.integers(0, 1500), st.sampled_from(["in", "in", "out", "out", "blind"])),
    min_size=1,
    max_size=40,
    unique_by=lambda item: item[0],
)


@settings(deadline=None, max_examples=examples(60))
@given(histories)
def test_against_a_plain_reference(history: list[tuple[int, str]]) -> None:
    value = {"in": 4.0, "out": 9.0, "blind": None}
    found = excursions([reading("A", at, value[kind]) for at, kind in history])
    ordered = sorted(history)
    ends = [at for at, _ in ordered[1:]] + [10**6]
    stands = {at: min(end, at + 30) for (at, _), end in zip(ordered, ends, strict=True)}
    out = [at for at, kind in ordered if kind == "out"]
    back = [at for at, kind in ordered if kind == "in"]
    sessions: list[list[int]] = []
    for at in out:
        before = sessions[-1][-1] if sessions else None
        between = [b for b in back if before is not None and before < b < at]
        if before is None or at - before > 360 or (between and at - between[0] >= 30):
            sessions.append([])
        sessions[-1].append(at)
    assert len(found) == len(sessions)
    for row, session in zip(found, sessions, strict=True):
        first, last = session[0], session[-1]
        recovered = next((b for b in back if last < b <= last + 360), None)
        assert minute(row["start_date_time"]) == first
        assert minute(row["last_date_time"]) == last
        assert minute(row["end_date_time"]) == stands[last]
        assert minute(row["recovered_date_time"]) == recovered
        assert row["readings"] == len(session)
        assert row["minutes_out_of_band"] == pytest.approx(sum(stands[at] - at for at in session))
