"""Mean kinetic temperature: golden numbers, windows, what is left out, and another activation energy."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shore.tables.hours import ACTIVATION_ENERGY, GAS_CONSTANT, hours_sql
from shore.tables.mkt import MKT
from shore.tables.readings import READINGS
from tests.support.examples import examples
from tests.support.oracle import conditions as whole
from tests.support.oracle.conditions import DAYS_OF_MKT, HOUR_SCHEMA, MONTHS_OF_MKT
from tests.support.oracle.sql import select
from tests.support.shore.hours import Row, reading
from topologies.loader.load import load

T0 = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)  # a midnight
FIRST, LAST = dt.datetime(2000, 1, 1, tzinfo=dt.UTC), dt.datetime(2100, 1, 1, tzinfo=dt.UTC)


def at(minute: float, supply: float | None = None, **more: Any) -> Row:
    return (
        reading("A", minute)
        | {"device_date_time": T0 + dt.timedelta(minutes=minute), "supply_temperature": supply}
        | more
    )


def hours(rows: list[Row], energy: float = ACTIVATION_ENERGY) -> pa.Table:
    table = pa.Table.from_pylist(rows, schema=READINGS.plain_schema)
    return whole.as_mkt(select(hours_sql(energy, touched=False), HOUR_SCHEMA, readings=table), energy)


def days(rows: list[Row]) -> pa.Table:
    return whole.windows(MKT, DAYS_OF_MKT, hours(rows), FIRST, LAST, hours=24)


def plain(weighted: Sequence[tuple[float, float]], energy: float = ACTIVATION_ENERGY) -> float:
    """Return the mean kinetic temperature of (weight, degrees Celsius) by its definition."""
    total = sum(weight for weight, _ in weighted)
    harm = sum(weight * math.exp(-energy / GAS_CONSTANT / (value + 273.15)) for weight, value in weighted) / total
    return energy / GAS_CONSTANT / -math.log(harm) - 273.15


@pytest.mark.parametrize(
    ("temperatures", "expected"),
    [([5.0] * 24, 5.000), ([5.0] * 18 + [14.0] * 6, 8.285), ([20.0] * 23 + [40.0], 22.448), ([2.0, 8.0] * 12, 5.536)],
)
def test_a_day_of_hours_as_others_computed_it(temperatures: list[float], expected: float) -> None:
    rows = [at(60 * hour + half, value) for hour, value in enumerate(temperatures) for half in (0, 30)]
    (day,) = [row for row in days(rows).to_pylist() if row["whole_day"]]
    assert round(day["air_mean_kinetic_temperature"], 3) == expected
    assert day["air_minutes_observed"] == 24 * 60
    assert (day["air_temperature_min"], day["air_temperature_max"]) == (min(temperatures), max(temperatures))
    assert day["air_temperature_mean"] == pytest.approx(sum(temperatures) / 24)
    assert day["cargo_mean_kinetic_temperature"] is None


@settings(deadline=None, max_examples=examples(25))
@given(
    st.lists(
        st.tuples(st.integers(0, 26 * 60 - 1), st.floats(-30, 50)), min_size=1, max_size=30, unique_by=lambda r: r[0]
    ),
    st.sampled_from([50.0, ACTIVATION_ENERGY, 200.0]),
)
def test_every_window_is_the_weighted_mean_of_its_readings(
    given_readings: list[tuple[int, float]], energy: float
) -> None:
    ordered = sorted(given_readings)
    ends = [minute for minute, _ in ordered[1:]] + [10**6]
    held = [(begin, min(end, begin + 30), value) for (begin, value), end in zip(ordered, ends, strict=True)]
    units = hours([at(minute, value) for minute, value in ordered], energy)
    reported = {minute // 60 for minute, _ in ordered}
    for row in [*units.to_pylist(), *whole.windows(MKT, DAYS_OF_MKT, units, FIRST, LAST, hours=24).to_pylist()]:
        since, until = ((row[name] - T0) / dt.timedelta(minutes=1) for name in ("window_start", "window_end"))
        # A reading counts for up to half an hour, but not within an hour that has no reading of its own.
        parts = [
            (min(end, hour * 60 + 60) - max(begin, hour * 60), value)
            for begin, end, value in held
            for hour in (begin // 60, begin // 60 + 1)
            if hour in reported and since <= hour * 60 < until and max(begin, hour * 60) < end
        ]
        assert row["air_minutes_observed"] == pytest.approx(sum(minutes for minutes, _ in parts))
        assert row["air_mean_kinetic_temperature"] == pytest.approx(plain(parts, energy), rel=1e-9, abs=1e-9)
        assert row["air_temperature_min"] == min(value for _, value in parts)


def test_windows_end_with_an_hour_or_day_that_has_a_reading() -> None:
    rows = [at(0, 5.0), at(25 * 60, 6.0)]
    found = [(row["window_start"] - T0, row["window_end"] - T0, row["whole_day"]) for row in days(rows).to_pylist()]
    hour = dt.timedelta(hours=1)
    assert sorted(found) == [
        (-23 * hour, 1 * hour, False),
        (0 * hour, 24 * hour, True),
        (2 * hour, 26 * hour, False),
        (24 * hour, 48 * hour, True),
    ]


def test_thirty_days_and_no_more() -> None:
    rows = [at(day * 1440, 20.0 if day else 40.0) for day in range(31)]
    found = days(rows)
    whole_days = found.filter(found["whole_day"])
    months = whole.windows(MKT, MONTHS_OF_MKT, whole_days, FIRST, LAST, hours=720).sort_by("window_end").to_pylist()
    assert [row["air_readings"] for row in months] == [*range(1, 31), 30]
    assert [row["air_temperature_max"] for row in months] == [40.0] * 30 + [20.0]
    assert months[29]["air_mean_kinetic_temperature"] == pytest.approx(plain([(1, 40.0), (29, 20.0)]))


def test_what_is_no_temperature_of_a_container_is_left_out() -> None:
    rows = [at(i, value) for i, value in enumerate([math.nan, math.inf, -math.inf, -272.0, 3276.7, None, 5.0])]
    (row,) = hours(rows).to_pylist()
    assert row["air_readings"] == 1
    assert row["air_mean_kinetic_temperature"] == pytest.approx(5.0)
    assert hours(rows[:-1]).to_pylist()[0]["air_mean_kinetic_temperature"] is None


def test_a_defrost_is_left_out_of_the_air_and_not_of_the_cargo() -> None:
    rows = [at(0, 5.0, cargo_probe1_temperature=5.0), at(10, 25.0, cargo_probe1_temperature=6.0, is_defrosting=True)]
    (row,) = hours(rows).to_pylist()
    assert (row["air_readings"], row["air_minutes_observed"], row["air_temperature_max"]) == (1, 10, 5.0)
    assert (row["cargo_readings"], row["cargo_minutes_observed"], row["cargo_temperature_max"]) == (2, 40, 6.0)
    assert row["cargo_mean_kinetic_temperature"] == pytest.approx(plain([(10, 5.0), (30, 6.0)]))


def test_the_air_is_the_one_that_controls() -> None:
    (row,) = hours([at(0, -25.0, return_temperature=-17.0, setpoint_temperature=-18.0)]).to_pylist()
    assert row["air_temperature_min"] == -17.0


def test_a_topology_says_the_activation_energy() -> None:
    shore = load("big-blue").shore
    assert shore is not None
    assert shore.activation_energy == ACTIVATION_ENERGY
