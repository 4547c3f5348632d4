"""The SQL of table ``conditions``, run by DuckDB against a plain Python reference, and its rules one by one."""

from __future__ import annotations

import datetime as dt
import tempfile
from collections import defaultdict
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from shore.jobs.conditions import merge
from shore.tables.conditions import CONDITIONS, WINDOWS
from shore.tables.readings import READINGS

T0 = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
BOX = "BIGU0000013"


def conditions(readings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    table = pa.Table.from_pylist(readings, schema=READINGS.plain_schema)
    with duckdb.connect(":memory:") as connection:
        connection.execute("set timezone = 'UTC'")
        connection.execute("create macro unix_micros(t) as epoch_us(t)")  # Spark's name for it
        connection.register("r", table)
        found: Any = connection.sql(WINDOWS.format(readings="r"))
        found = found.to_arrow_table()
    rows: list[dict[str, Any]] = sorted(found.to_pylist(), key=lambda r: (r["equipment_reference"], r["window_start"]))
    return rows


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


def test_columns_are_those_of_the_table() -> None:
    (row,) = conditions([reading(0)])
    assert list(row) == CONDITIONS.plain_schema.names


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


@settings(deadline=None, max_examples=40)
@given(sequences)
def test_against_a_plain_reference(given_readings: list[tuple[int, float]]) -> None:
    rows = conditions([reading(minute, supply) for minute, supply in given_readings])
    hours: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for minute, supply in sorted(given_readings):
        hours[minute // 60].append((minute, supply))
    assert len(rows) == len(hours)
    for row, (hour, items) in zip(rows, sorted(hours.items()), strict=True):
        ends = [minute for minute, _ in items[1:]] + [(hour + 1) * 60]
        held = [min(end - minute, 30) for (minute, _), end in zip(items, ends, strict=True)]
        out = [minutes for minutes, (_, supply) in zip(held, items, strict=True) if abs(supply - 4.0) > 2]
        assert row["readings"] == len(items)
        assert row["minutes_observed"] == pytest.approx(sum(held))
        assert row["minutes_out_of_band"] == pytest.approx(sum(out))
        assert row["readings_out_of_band"] == len(out)


hours = st.lists(
    st.tuples(st.sampled_from(["A", "B", "C"]), st.integers(-30, 60), st.integers(0, 9)),
    min_size=1,
    max_size=12,
    unique_by=lambda item: item[:2],
)


@settings(deadline=None, max_examples=15)
@given(st.lists(hours, min_size=1, max_size=4))
def test_merging_replaces_what_is_there_and_adds_what_is_new(batches: list[list[tuple[str, int, int]]]) -> None:
    expected: dict[tuple[str, int], int] = {}
    with tempfile.TemporaryDirectory() as folder:
        CONDITIONS.create(folder)
        for batch in batches:
            rows = [
                {"equipment_reference": box, "window_start": T0 + dt.timedelta(hours=hour), "readings": value}
                for box, hour, value in batch
            ]
            fresh = pa.Table.from_pylist(rows, schema=CONDITIONS.plain_schema)
            for _ in range(2):  # a repeated batch changes nothing
                merge(folder, fresh)
            expected |= {(box, hour): value for box, hour, value in batch}
        found = DeltaTable(folder).to_pyarrow_dataset()
        content = {
            (row["equipment_reference"], round((row["window_start"] - T0) / dt.timedelta(hours=1))): row["readings"]
            for row in found.to_table().to_pylist()
        }
        assert content == expected
        assert found.count_rows() == len(expected)
        with duckdb.connect() as connection:  # filters on text must work: see merge()
            connection.register("c", found)
            answer: Any = connection.sql("select count(*) from c where equipment_reference = 'B'")
            assert answer.fetchall() == [(sum(box == "B" for box, _ in expected),)]
