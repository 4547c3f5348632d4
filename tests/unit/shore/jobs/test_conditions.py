"""The hours of table ``conditions``, made by DuckDB against a plain Python reference, and their rules one by one."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shore.tables.hours import ACTIVATION_ENERGY, hours_sql
from shore.tables.readings import READINGS
from tests.support.examples import examples
from tests.support.oracle.conditions import HOUR_SCHEMA, as_conditions
from tests.support.oracle.sql import select

T0 = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
BOX = "BIGU0000016"


def conditions(readings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the hourly rows of these readings."""
    table = pa.Table.from_pylist(readings, schema=READINGS.plain_schema)
    hours = select(hours_sql(ACTIVATION_ENERGY, touched=False), HOUR_SCHEMA, readings=table)
    found: list[dict[str, Any]] = as_conditions(hours).to_pylist()
    return sorted(found, key=lambda row: (row["equipment_reference"], row["window_start"]))


def reading(minute: float, supply: float | None = 4.0, **more: Any) -> dict[str, Any]:
    sequence = more.pop("sequence", int(minute * 60))
    return {
        "log": f"containers.{BOX}",
        "log_offset": sequence,
        "equipment_reference": BOX,
        "device_id": "d",
        "boot_id": 1,
        "sequence": sequence,
        "device_date_time": T0 + dt.timedelta(minutes=minute),
        "supply_temperature": supply,
        "setpoint_temperature": 4.0,
        "is_powered": True,
        "is_connected_to_power_source": True,
        "is_defrosting": False,
    } | more


def test_an_hour_of_device_time() -> None:
    rows = conditions([reading(0, 3.0), reading(10, 5.0), reading(59.9, 4.0), reading(60, 9.0)])
    assert [r["window_start"] for r in rows] == [T0, T0 + dt.timedelta(hours=1)]
    first = rows[0]
    assert first["window_end"] == T0 + dt.timedelta(hours=1)
    assert (first["readings"], first["supply_temperature_min"], first["supply_temperature_max"]) == (3, 3.0, 5.0)
    assert first["supply_temperature_mean"] == pytest.approx(4.0)
    assert first["last_device_date_time"] == T0 + dt.timedelta(minutes=59.9)


def test_minutes_out_of_band_run_to_the_next_reading_and_no_further_than_half_an_hour() -> None:
    (row,) = conditions([reading(0, 4.0), reading(5, 6.1), reading(15, 4.0), reading(20, 1.9)])
    assert row["readings_out_of_band"] == 2
    assert row["minutes_out_of_band"] == pytest.approx(10 + 30)
    assert row["minutes_observed"] == pytest.approx(5 + 10 + 5 + 30)


def test_exactly_two_kelvin_is_in_band() -> None:
    (row,) = conditions([reading(0, 6.0), reading(5, 2.0)])
    assert (row["readings_out_of_band"], row["minutes_out_of_band"]) == (0, 0.0)


def test_binary_fractions_do_not_pass_a_limit() -> None:
    assert 4.4 - 2.4 > 2  # in binary fractions
    (row,) = conditions([reading(0, 4.4, setpoint_temperature=2.4)])
    assert row["readings_out_of_band"] == 0


def test_a_reading_stands_beyond_its_hour() -> None:
    first, second = conditions([reading(55, 9.0), reading(70, 4.0)])
    assert (first["minutes_out_of_band"], first["minutes_observed"]) == (5, 5)
    assert (second["readings_out_of_band"], second["minutes_out_of_band"]) == (0, 10)
    assert second["minutes_observed"] == 10 + 30
    (alone,) = conditions([reading(55, 9.0)])  # an hour without a reading of its own has no row
    assert alone["minutes_out_of_band"] == 5


@pytest.mark.parametrize(
    ("set_point", "supply", "back", "out"),
    [(-10.0, -18.0, -10.5, 0), (-18.0, -18.0, -12.0, 1), (-9.9, -9.0, 5.0, 0), (-9.9, -5.0, -9.9, 1)],
)
def test_frozen_cargo_is_judged_by_return_air(set_point: float, supply: float, back: float, out: int) -> None:
    (row,) = conditions([reading(0, supply, return_temperature=back, setpoint_temperature=set_point)])
    assert row["readings_out_of_band"] == out


def test_defrosting_and_missing_values_are_not_out_of_band() -> None:
    rows = [reading(0, 30.0, is_defrosting=True), reading(5, None), reading(6, 30.0, setpoint_temperature=None)]
    (row,) = conditions(rows)
    assert (row["readings"], row["readings_out_of_band"], row["minutes_out_of_band"]) == (3, 0, 0.0)


def test_half_an_hour_after_a_defrost_is_not_judged_also_over_the_hour() -> None:
    rows = [reading(50, 30.0, is_defrosting=True), reading(55, 9.0), reading(80, 9.0), reading(81, 9.0)]
    first, second = conditions(rows)
    assert (first["readings_out_of_band"], second["readings_out_of_band"]) == (0, 1)
    assert second["minutes_out_of_band"] == 30


def test_an_inspection_before_a_trip_is_as_a_defrost() -> None:
    assert conditions([reading(0, 30.0, is_pre_trip_inspection=True)])[0]["readings_out_of_band"] == 0


def test_humidity_is_judged_by_its_own_set_point() -> None:
    dried = {"setpoint_relative_humidity": 60.0}
    (row,) = conditions(
        [
            reading(0, relative_humidity=75.0, **dried),
            reading(5, relative_humidity=80.0, **dried),
            reading(15, relative_humidity=90.0, is_powered=False, **dried),
            reading(20, relative_humidity=40.0, **dried),
            reading(25, relative_humidity=99.0),
        ]
    )
    assert row["minutes_out_of_humidity_band"] == 10 + 5
    assert (row["relative_humidity_min"], row["relative_humidity_max"]) == (40.0, 99.0)
    assert (row["setpoint_relative_humidity_min"], row["setpoint_relative_humidity_max"]) == (60.0, 60.0)
    assert conditions([reading(0, relative_humidity=99.0)])[0]["minutes_out_of_humidity_band"] is None


def test_minutes_without_power_and_with_the_door_open() -> None:
    rows = [reading(0, is_powered=False), reading(10, is_connected_to_power_source=False), reading(15, door_open=True)]
    (row,) = conditions(rows)
    assert (row["minutes_without_power"], row["minutes_door_open"]) == (15, 30)


def test_a_clock_that_shows_no_possible_time_is_in_no_window() -> None:
    times = [dt.datetime(1970, 1, 1, tzinfo=dt.UTC), dt.datetime(9999, 12, 31, 23, 59, tzinfo=dt.UTC)]
    assert conditions([reading(0) | {"device_date_time": time} for time in times]) == []


def test_repeats_count_once_and_do_not_shorten_a_reading() -> None:
    once = [reading(0, 9.0), reading(10, 4.0)]
    repeats = [reading(0, 9.0) | {"log_offset": 900}, reading(10, 4.0) | {"log_offset": 901}]
    assert conditions(once + repeats) == conditions(once)


def test_power_shares() -> None:
    off = {"is_powered": False, "is_connected_to_power_source": True}
    (row,) = conditions([reading(0), reading(1, **off), reading(2, **off), reading(3, **off)])
    assert (row["share_powered"], row["share_plugged"]) == (0.25, 1.0)


def test_unreadable_records_are_in_no_hour() -> None:
    assert conditions([reading(0) | {"device_date_time": None, "problem": "no JSON"}]) == []


sequences = st.lists(
    st.tuples(st.integers(0, 400), st.sampled_from([1.0, 4.0, 9.0])),
    min_size=1,
    max_size=30,
    unique_by=lambda item: item[0],
)


@settings(deadline=None, max_examples=examples(40))
@given(sequences)
def test_against_a_plain_reference(given_readings: list[tuple[int, float]]) -> None:
    rows = conditions([reading(minute, supply) for minute, supply in given_readings])
    hours: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for minute, supply in sorted(given_readings):
        hours[minute // 60].append((minute, supply))
    assert len(rows) == len(hours)
    everything = sorted(given_readings)
    ends = [minute for minute, _ in everything[1:]] + [10_000]
    for row, (hour, items) in zip(rows, sorted(hours.items()), strict=True):
        held = [
            (max(0, min(end, minute + 30, hour * 60 + 60) - max(minute, hour * 60)), abs(supply - 4.0) > 2)
            for (minute, supply), end in zip(everything, ends, strict=True)
            if minute // 60 <= hour
        ]
        assert row["readings"] == len(items)
        assert row["minutes_observed"] == pytest.approx(sum(minutes for minutes, _ in held))
        assert row["minutes_out_of_band"] == pytest.approx(sum(minutes for minutes, out in held if out))
        assert row["readings_out_of_band"] == sum(abs(supply - 4.0) > 2 for _, supply in items)
