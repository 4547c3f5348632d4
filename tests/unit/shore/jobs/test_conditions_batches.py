"""Tables kept batch by batch equal those made at once, however readings are divided, ordered and repeated.

As job ``conditions`` does it, but with DuckDB in Spark's place for the hours.
"""

from __future__ import annotations

import datetime as dt
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from shore.jobs import whole
from shore.jobs.conditions import slices, spans
from shore.jobs.hourly import chunks
from shore.tables.model import TIME
from tests.support.examples import examples
from tests.unit.shore.hours import DERIVED, T0, Row, Shore, reading

HOUR = dt.timedelta(hours=1)


@pytest.fixture
def shore(tmp_path: Path) -> Shore:
    return Shore(str(tmp_path))


# Clusters of minutes, so that readings are close enough to be of one session; and hours and days between.
minutes = st.builds(
    lambda far, near: far + near,
    st.sampled_from([0, 0, 0, 60, 6 * 60, 24 * 60, 31 * 24 * 60]),
    st.integers(0, 150),
)
values = st.sampled_from(
    [
        {"supply_temperature": 4.0},
        {"supply_temperature": 4.5, "cargo_probe1_temperature": 5.0},
        {"supply_temperature": 9.0},
        {"supply_temperature": -3.0, "is_powered": False},
        {"supply_temperature": 30.0, "is_defrosting": True},
        {"supply_temperature": None},
        {"setpoint_temperature": None},
        {"relative_humidity": 90.0, "setpoint_relative_humidity": 60.0},
        {"setpoint_temperature": -18.0, "return_temperature": -17.0},
    ]
)
histories = st.lists(
    st.builds(lambda box, minute, value: reading(box, minute) | value, st.sampled_from("AB"), minutes, values),
    min_size=1,
    max_size=40,
    unique_by=lambda row: (row["log"], row["log_offset"]),
)


@st.composite
def batched(draw: st.DrawFn) -> list[list[Row]]:
    """Readings in any order, some twice (another offset), in up to four batches."""
    rows = draw(histories)
    again = draw(st.lists(st.sampled_from(rows), max_size=5, unique_by=lambda row: (row["log"], row["log_offset"])))
    rows = draw(st.permutations(rows + [row | {"log_offset": row["log_offset"] + 10**6} for row in again]))
    cuts = sorted(draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    return [rows[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(rows)], strict=True) if begin < end]


@settings(deadline=None, max_examples=examples(5))
@given(batched(), st.integers(0, 3))
def test_any_division_any_order_and_any_repeat_give_the_same_tables(batches: list[list[Row]], again: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        shore = Shore(folder)
        for number, batch in enumerate(batches):
            shore.take(batch)
            if number == again:
                shore.take(batch, stored=True)
        shore.check()


def test_late_readings_join_and_split_sessions(shore: Shore) -> None:
    def sessions() -> Iterator[tuple[float, float, int]]:
        for row in shore.rows("excursions"):
            yield (row["start_date_time"] - T0) / HOUR * 60, row["minutes"], row["readings"]

    shore.take([reading("A", 0, 9.0), reading("A", 10, 4.0), reading("A", 60, 9.0), reading("A", 65, 4.0)])
    assert list(sessions()) == [(0, 10, 1), (60, 5, 1)]
    before = shore.rows("excursions")
    shore.take([reading("A", 35, 9.0)])
    assert list(sessions()) == [(0, 65, 3)]
    shore.take([reading("A", 5, 4.0)])
    assert list(sessions()) == [(0, 5, 1), (35, 30, 2)]
    assert shore.rows("excursions")[0]["excursion_id"] == before[0]["excursion_id"] == f"A/TEMPERATURE/{T0:%FT%T.%fZ}"
    shore.check()


def test_a_session_that_began_hours_before_a_batch_stays_whole(shore: Shore) -> None:
    shore.take([reading("A", minute, 9.0) for minute in range(0, 301, 20)])
    shore.take([reading("A", 310, 9.0)])
    (row,) = shore.rows("excursions")
    assert (row["start_date_time"], row["readings"], row["minutes"]) == (T0, 17, 340)
    shore.take([reading("A", 1, 4.0), reading("A", 45, 4.0), reading("A", 75, 4.0)])  # never for half an hour
    (row,) = shore.rows("excursions")
    assert (row["readings"], row["minutes"]) == (17, 340)
    shore.check()


def test_a_late_reading_leaves_other_sessions_and_hours_alone(shore: Shore) -> None:
    year = 365 * 24 * 60
    shore.take([reading(box, day * 1440 + m, 9.0) for box in "AB" for day in range(3) for m in (0, 10)])

    def files() -> dict[str, set[str]]:
        return {name: set(DeltaTable(shore.paths.table(name)).file_uris()) for name in DERIVED}

    before = files()
    shore.take([reading("A", -year, 9.0)])
    assert all(before[name] < found for name, found in files().items())  # files were added, none was written again
    shore.check()


def test_a_container_that_recovers_after_hours_of_silence(shore: Shore) -> None:
    shore.take([reading("A", 0, 9.0), reading("B", 0, 9.0), reading("C", 0, 4.0)])
    assert {row["recovered_date_time"] for row in shore.rows("excursions")} == {None}
    shore.take([reading("A", 5.5 * 60), reading("B", 6 * 60 + 1), reading("C", 330, 9.0)])
    recovered = {row["equipment_reference"]: row["recovered_date_time"] for row in shore.rows("excursions")}
    assert recovered == {"A": T0 + 5.5 * HOUR, "B": None, "C": None}  # nobody knows what B did for six hours
    shore.check()


def test_hours_that_many_share_are_stored_apart_from_late_ones() -> None:
    hours = [(f"B{i}", T0) for i in range(600)] + [
        ("B1", T0 - HOUR),
        ("B2", T0 - 3 * HOUR),
        ("B1", T0 - 30 * 24 * HOUR),
    ]
    table = pa.table(
        {"equipment_reference": [b for b, _ in hours], "window_start": pa.array([t for _, t in hours], TIME)}
    )
    found = [(len(chunk.boxes), chunk.low, chunk.high) for chunk in chunks(table)]
    assert found == [
        (1, T0 - 30 * 24 * HOUR, T0 - 30 * 24 * HOUR),
        (2, T0 - 3 * HOUR, T0 - HOUR),
        (600, T0, T0),
    ]


def test_only_the_times_of_touched_hours_are_read() -> None:
    year = 365 * 24 * HOUR
    assert spans([T0 - year, T0, T0 + HOUR, T0 + 3 * HOUR]) == [
        (T0 - year - HOUR / 2, T0 - year + HOUR),
        (T0 - HOUR / 2, T0 + 2 * HOUR),
        (T0 + 2.5 * HOUR, T0 + 4 * HOUR),
    ]
    assert spans([T0, T0 + HOUR, T0 + 2 * HOUR]) == [(T0 - HOUR / 2, T0 + 3 * HOUR)]


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 200_000)), max_size=120))
def test_slices_hold_every_hour_once_and_are_bounded(given_hours: list[tuple[int, int]]) -> None:
    counts = {T0 + hour * HOUR: count for hour, count in given_hours}
    found = list(slices(counts))
    assert [hour for part in found for hour in part] == sorted(counts)
    for part in found:
        assert len(part) == 1 or sum(counts[hour] for hour in part) <= 250_000
        assert len(spans(part)) <= 50


def test_tables_made_part_by_part_are_those_made_at_once(shore: Shore, monkeypatch: pytest.MonkeyPatch) -> None:
    shore.take([reading(box, m, 9.0 if m % 7 else 4.0) for box in "AB" for m in (*range(0, 400, 9), 3000)])
    monkeypatch.setattr(whole, "_AT_ONCE", 30)
    shore.check()
