"""Tables ``conditions``, ``mkt``, ``excursion_parts`` and ``excursions``, computed by Spark, updated by the job."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from shore import kept
from shore.delta import lake as of_tables
from shore.delta.lake import Lake
from shore.jobs import conditions as job
from shore.jobs.conditions import renew_mkt
from shore.kept import Kept
from shore.maintenance import ExpiryStep, expire, maintenance_session
from shore.paths import TablePaths
from shore.tables import TABLES
from shore.tables.hours import ACTIVATION_ENERGY
from tests.integration.shore.hourly import KEPT, Shore, computed, in_spark, rows_of
from tests.support.delta_rs import create
from tests.support.shore import hours
from tests.support.shore.hours import T0, Row, reading

pytestmark = [pytest.mark.integration, pytest.mark.spark]
HOUR = dt.timedelta(hours=1)

VALUES = (
    {"supply_temperature": 4.0, "relative_humidity": 70.0},
    {"supply_temperature": 4.5, "cargo_probe1_temperature": 5.0, "door_open": True},
    {"supply_temperature": 9.0},
    {"supply_temperature": 6.0000001},
    {"supply_temperature": -3.0, "is_powered": False},
    {"supply_temperature": 30.0, "is_defrosting": True},
    {"supply_temperature": 30.0, "is_pre_trip_inspection": True, "is_connected_to_power_source": False},
    {"supply_temperature": None, "latitude": None},
    {"supply_temperature": 3276.7, "cargo_probe1_temperature": -3276.8},
    {"setpoint_temperature": None, "is_powered": False},
    {"relative_humidity": 90.0, "setpoint_relative_humidity": 60.0},
    {"setpoint_temperature": -18.0, "return_temperature": -15.0, "ambient_temperature": 31.0},
)


def versions(shore: Shore) -> dict[str, int]:
    return {name: DeltaTable(shore.lake.paths.table(name)).version() for name in KEPT}


def history(seed: int, boxes: int, readings: int) -> list[Row]:
    """Return readings of boxes in clusters of minutes, hours and days, in no order; one in ten is in its log twice."""
    chance = random.Random(seed)  # noqa: S311  # the same readings in every run
    found: dict[tuple[str, int], Row] = {}
    for box in range(boxes):
        begin = chance.choice((0, 0, 0, 40 * 24 * 60))
        for _ in range(readings):
            far = chance.choice((0, 0, 0, 60, 6 * 60, 24 * 60, 25 * 60, 29 * 24 * 60, 31 * 24 * 60))
            minute = begin + far + chance.randrange(150)
            found[f"BOX{box}", minute] = reading(f"BOX{box}", minute) | chance.choice(VALUES)
    rows = list(found.values())
    rows += [row | {"log_offset": row["log_offset"] + 10**6} for row in chance.sample(rows, len(rows) // 10)]
    chance.shuffle(rows)
    return rows


@pytest.mark.long
def test_spark_makes_what_duckdb_makes(spark: SparkSession, tmp_path: Path) -> None:
    paths = TablePaths(str(tmp_path))
    for name in ("readings", "mkt"):
        create(TABLES[name], paths.table(name))
    rows = history(1, 60, 40)
    no_time = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    rows += [reading("NEVER", 0) | {"device_date_time": time} for time in (None, no_time)]
    write_deltalake(
        paths.table("readings"), in_spark(spark, rows).toArrow().cast(TABLES["readings"].plain_schema), mode="append"
    )
    made = computed(spark.read.format("delta").load(paths.table("readings")))
    for name, everything in hours.DERIVED.items():
        found, expected = rows_of(made[name], name), hours.by_key(name, everything(paths))
        assert len(found) == len(expected) > 50
        for row, right in zip(found, expected, strict=True):
            assert row == {column: hours.close(value) for column, value in right.items()}, name
            assert not any(isinstance(value, float) and math.isnan(value) for value in row.values())


@pytest.mark.chaos
@pytest.mark.parametrize(("seed", "batches"), [(3, 3), (4, 5)])
def test_any_division_any_order_and_any_repeat_give_the_same_tables(
    spark: SparkSession, tmp_path: Path, seed: int, batches: int
) -> None:
    shore = Shore(spark, str(tmp_path))
    rows = history(seed, 8, 30)
    size = math.ceil(len(rows) / batches)
    parts = [rows[begin : begin + size] for begin in range(0, len(rows), size)]
    for part in parts:
        shore.take(part)
    before = versions(shore)
    shore.take(parts[0], stored=True)
    assert versions(shore) == before  # a repeated batch commits nothing
    shore.check()


@pytest.mark.long
def test_late_readings_join_and_split_sessions(spark: SparkSession, tmp_path: Path) -> None:
    shore = Shore(spark, str(tmp_path))

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


@pytest.mark.chaos
def test_a_session_that_began_hours_before_a_batch_stays_whole(spark: SparkSession, tmp_path: Path) -> None:
    shore = Shore(spark, str(tmp_path))
    shore.take([reading("A", minute, 9.0) for minute in range(0, 901, 20)])
    shore.take([reading("A", 910, 9.0)])
    (row,) = shore.rows("excursions")
    assert (row["start_date_time"], row["readings"], row["minutes"]) == (T0, 47, 940)
    shore.take([reading("A", 1, 4.0), reading("A", 45, 4.0), reading("A", 75, 4.0)])  # in band, never for half an hour
    (row,) = shore.rows("excursions")
    assert (row["readings"], row["minutes"]) == (47, 940)
    shore.check()


@pytest.mark.long
def test_a_container_that_recovers_after_hours_of_silence(spark: SparkSession, tmp_path: Path) -> None:
    shore = Shore(spark, str(tmp_path))
    shore.take([reading("A", 0, 9.0), reading("B", 0, 9.0), reading("C", 0, 4.0)])
    assert {row["recovered_date_time"] for row in shore.rows("excursions")} == {None}
    shore.take([reading("A", 5.5 * 60), reading("B", 6 * 60 + 1), reading("C", 330, 9.0)])
    recovered = {row["equipment_reference"]: row["recovered_date_time"] for row in shore.rows("excursions")}
    assert recovered == {"A": T0 + 5.5 * HOUR, "B": None, "C": None}  # B was silent for more than six hours
    shore.check()


@pytest.mark.long
def test_a_late_reading_leaves_other_sessions_and_hours_alone(spark: SparkSession, tmp_path: Path) -> None:
    shore = Shore(spark, str(tmp_path))
    shore.take([reading(box, day * 1440 + m, 9.0) for box in "AB" for day in range(3) for m in (0, 10)])

    def files() -> dict[str, set[str]]:
        return {name: set(DeltaTable(shore.lake.paths.table(name)).file_uris()) for name in KEPT}

    before = files()
    shore.take([reading("A", -365 * 24 * 60, 9.0)])
    after = files()
    assert before.pop("outlook") == after["outlook"]  # it covers only the newest hours
    assert all(found < after[name] for name, found in before.items())  # files were added, none was rewritten
    shore.check()


@pytest.mark.long
@pytest.mark.chaos
def test_another_activation_energy_makes_mkt_anew(spark: SparkSession, tmp_path: Path) -> None:
    shore = Shore(spark, str(tmp_path))
    shore.take([reading("A", m, 5.0 + m / 100) for m in range(0, 3000, 25)])
    assert not renew_mkt(shore.lake, 83.144)
    before = shore.rows("mkt")
    assert renew_mkt(shore.lake, 200.0)
    after = shore.rows("mkt")
    assert {row["activation_energy"] for row in after} == {200.0}
    assert [row["window_end"] for row in before] == [row["window_end"] for row in after]
    assert after[-1]["air_mean_kinetic_temperature"] > before[-1]["air_mean_kinetic_temperature"] + 0.5
    shore.check(200.0)


@pytest.mark.long
@pytest.mark.chaos
def test_windows_whose_readings_are_past_their_retention_keep_their_activation_energy(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The last deleted reading stands for a part of the hour that begins at the limit."""
    shore = Shore(spark, str(tmp_path))
    shore.take([reading("A", m, 5.0 + m / 100) for m in range(0, 3000, 25)])
    limit = T0 + 26 * HOUR
    before = {key(row): row for row in shore.rows("mkt")}
    assert expire(maintenance_session(spark), shore.lake.paths, ExpiryStep("readings", limit, 1)) == 63
    assert renew_mkt(shore.lake, 200.0)
    after = shore.rows("mkt")
    assert {row["window_start"] <= limit: row["activation_energy"] for row in after} == {True: 83.144, False: 200.0}
    for row in after:
        assert row["window_start"] > limit or row == before[key(row)]
    assert not renew_mkt(shore.lake, 200.0)

    late = in_spark(spark, [reading("A", 30 * 60 + 7, 20.0)])
    shore.lake.append("readings", late)
    job.update(late, shore.lake, 200.0)
    assert [row for row in shore.rows("mkt") if row["window_start"] <= limit] == [
        row for row in after if row["window_start"] <= limit
    ], "no window has two energies"
    assert sum(row not in after for row in shore.rows("mkt")) == 1, "the hour itself"


@pytest.mark.long
def test_a_late_reading_leaves_what_was_made_of_deleted_readings(spark: SparkSession, tmp_path: Path) -> None:
    """Hours of which all readings are there, such as those of a box that was silent for long, are made nevertheless."""
    shore = Shore(spark, str(tmp_path))
    shore.take([reading("A", m, 9.0 + m / 1000) for m in range(0, 1700, 25)])
    limit = T0 + 26 * HOUR
    before = {name: shore.rows(name) for name in KEPT}
    assert expire(maintenance_session(spark), shore.lake.paths, ExpiryStep("readings", limit, 1)) == 63
    shore.take([reading("A", 607, 4.0), reading("A", 1567, 20.0)])  # of deleted hours, and of the hour at the limit
    after = {name: shore.rows(name) for name in KEPT}
    for name in KEPT:
        assert after[name] == before[name], name

    late = [reading("B", m, 9.0) for m in range(0, 200, 20)]
    shore.take(late[:5])
    shore.take(late[5:])
    one = [row for row in shore.rows("conditions") if (row["equipment_reference"], row["window_hours"]) == ("B", 1)]
    assert [row["readings"] for row in one] == [3, 3, 3, 1]
    (session,) = (row for row in shore.rows("excursions") if row["equipment_reference"] == "B")
    assert session["readings"] == 10


@pytest.mark.long
def test_readings_that_retention_deletes_during_a_batch_count_in_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kept_of(paths: TablePaths, tables: Iterable[str]) -> Kept:
        known = kept.kept_of(paths, tables)
        assert expire(maintenance_session(spark), paths, ExpiryStep("readings", T0 + 26 * HOUR, 1)) > 0
        return known

    monkeypatch.setattr(of_tables, "SMALL_BYTES", -1)  # Spark reads the tables
    monkeypatch.setattr(job, "kept_of", kept_of)
    shore = Shore(spark, str(tmp_path))
    early, late = [reading("A", m, 9.0) for m in range(0, 600, 25)], [reading("A", 607, 9.0)]
    shore.lake.append("readings", in_spark(spark, [*early, *late]))
    job.update(in_spark(spark, [*early, *late]), Lake(spark, shore.lake.paths), ACTIVATION_ENERGY)
    for name in ("conditions", "mkt"):
        hourly = [row for row in shore.rows(name) if row["window_hours"] == 1]
        assert sum(row["readings" if name == "conditions" else "air_readings"] for row in hourly) == 25
    assert sum(row["readings"] for row in shore.rows("excursions")) == 25
    assert len(shore.rows("outlook")) == 1


def key(row: Row) -> tuple[object, ...]:
    return row["equipment_reference"], row["window_hours"], row["window_start"]
