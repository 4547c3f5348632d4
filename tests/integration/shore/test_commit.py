"""Comparing rows, committing them to Delta tables by Spark, and following what was committed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession

from shore.delta.commit import Between, Bound, OneOf, append_once, create_tables, exchange_rows, replace_rows
from shore.delta.diff import CHANGED, EXTRA, KINDS, MISSING, differences
from shore.delta.lake import Lake
from shore.paths import TablePaths
from shore.tables.model import TIME, Column, Table
from shore.verify.compare import compare

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(900)]

T0: Final = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
HOUR: Final = dt.timedelta(hours=1)
HOURS: Final = Table(
    name="hours",
    title="Hours of boxes",
    columns=(
        Column("box", pa.string(), "Container"),
        Column("hour", TIME, "Begin"),
        Column("mean", pa.float64(), "Mean", "Cel"),
        Column("note", pa.string(), "It's what was noted"),
    ),
    key=("box", "hour"),
    grain="One row per box and hour.",
    late="Made again.",
    layout="Clustered.",
    cluster_by=("box", "hour"),
    change_feed=True,
)
Row = tuple[str, int, float | None, str | None]
"""Box, number of the hour, mean, note."""


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    made = Lake(spark, TablePaths.of(tmp_path))
    create_tables(spark, {made.paths.table(HOURS.name): HOURS})
    return made


def frame(spark: SparkSession, rows: Iterable[Row]) -> DataFrame:
    made = [{"box": box, "hour": T0 + hour * HOUR, "mean": mean, "note": note} for box, hour, mean, note in rows]
    return spark.createDataFrame(pa.Table.from_pylist(made, schema=HOURS.plain_schema))


def stored(lake: Lake) -> list[Row]:
    rows = DeltaTable(lake.paths.table(HOURS.name)).to_pyarrow_dataset().to_table().to_pylist()
    return sorted((row["box"], (row["hour"] - T0) // HOUR, row["mean"], row["note"]) for row in rows)


def history(lake: Lake) -> list[str]:
    """Return the operations of all commits, the oldest first."""
    return [each["operation"] for each in reversed(DeltaTable(lake.paths.table(HOURS.name)).history())]


def test_differences_name_rows_and_columns(spark: SparkSession) -> None:
    there = [
        ("a", 1, 1.0 + 1e-12, None),
        ("a", 2, None, "x"),
        ("b", 1, 2.5, "x"),
        ("c", 1, 1.0, "x"),
        ("d", 1, 1.0, "x"),
    ]
    must = [("a", 1, 1.0, None), ("a", 2, 1.0, "x"), ("b", 1, 2.6, "y"), ("e", 1, 1.0, "x"), ("d", 1, 1.0 + 1e-11, "x")]
    one, other = frame(spark, [*there, there[-1]]), frame(spark, must)
    found = compare(one, other, HOURS.key)
    assert (found.rows, found.expected, found.differing) == (6, 5, 5)
    told = [(each.what, each.key["box"], each.columns) for each in found.differences("hours")]
    assert told == [
        ("changed", "a", ("mean",)),
        ("changed", "b", ("mean", "note")),
        ("extra", "c", ()),
        ("doubled", "d", ()),
        ("missing", "e", ()),
    ]
    changed = found.differences("hours")[1]
    assert changed.key == {"box": "b", "hour": T0 + HOUR}
    assert (changed.found, changed.expected) == ({"mean": 2.5, "note": "x"}, {"mean": 2.6, "note": "y"})
    exact = compare(one, other, HOURS.key, tolerance=0.0)
    assert [each.key["hour"] for each in exact.differences("hours") if each.columns == ("mean",)] == [
        T0 + HOUR, T0 + 2 * HOUR, T0 + HOUR, T0 + HOUR,
    ]  # fmt: skip
    nothing = frame(spark, [])
    assert compare(nothing, nothing, HOURS.key)[:3] == (0, 0, 0)
    assert compare(nothing, other, HOURS.key)[:3] == (0, 5, 5)
    assert compare(other, nothing, HOURS.key)[:3] == (5, 0, 5)


def test_a_table_that_is_all_key_is_compared_too(spark: SparkSession) -> None:
    one = spark.createDataFrame([(1,), (2,)], "n int")
    other = spark.createDataFrame([(2,), (3,)], "n int")
    found = {(row["what"], (row["found"] or row["expected"])["n"]) for row in differences(one, other, ["n"]).collect()}
    assert found == {("extra", 1), ("missing", 3)}


def test_readers_skip_the_parts_of_a_file_that_are_of_other_hours(lake: Lake) -> None:
    lake.append(HOURS.name, frame(lake.spark, [("a", hour, 1.0, None) for hour in range(3)]).coalesce(1))
    (file,) = DeltaTable(lake.paths.table(HOURS.name)).file_uris()
    columns = pq.ParquetFile(file).metadata.row_group(0)
    (times,) = [each for i in range(columns.num_columns) if (each := columns.column(i)).path_in_schema == "hour"]
    assert (times.statistics.min, times.statistics.max) == (T0, T0 + 2 * HOUR)


@pytest.mark.long
def test_replacing_writes_only_what_differs(lake: Lake) -> None:
    day: list[Row] = [(box, hour, float(hour), None) for box in "ab" for hour in range(3)]

    def replace_box(box: str, rows: list[Row], low: int, high: int) -> int:
        bounds: list[Bound] = [OneOf("box", [box]), Between("hour", T0 + low * HOUR, T0 + high * HOUR)]
        return replace_rows(lake, HOURS, frame(lake.spark, rows), bounds=bounds)

    assert replace_rows(lake, HOURS, frame(lake.spark, [])) == 0
    assert replace_rows(lake, HOURS, frame(lake.spark, day)) == 6  # the first rows
    assert replace_box("a", day[:3], 0, 2) == 0  # nothing differs
    assert replace_box("c", [("c", 1, 1.0, None)], 0, 9) == 1  # all of it new
    assert history(lake)[1:] == ["WRITE", "WRITE"]
    fresh: list[Row] = [("a", 1, 5.0, "changed"), ("a", 9, 9.0, "new")]
    assert replace_box("a", fresh, 1, 9) == 3  # one changed, one new, hour 2 deleted, hour 0 is out of bounds
    assert history(lake)[3:] == ["MERGE"]
    left = {row for row in stored(lake) if row[0] == "a"}
    assert left == {("a", 0, 0.0, None), *fresh}
    even = frame(lake.spark, [("b", 0, 0.5, None)])
    assert replace_rows(lake, HOURS, even, within=lambda rows: rows.where("box = 'b' and mean < 1")) == 1
    assert [row for row in stored(lake) if row[0] == "b"] == [("b", 0, 0.5, None), *day[4:]]


@pytest.mark.parametrize("kinds", [kinds for n in (1, 2, 3) for kinds in combinations(KINDS, n)])
def test_rows_that_are_missing_extra_or_changed_are_made_right_in_one_commit(lake: Lake, kinds: set[str]) -> None:
    there: list[Row] = [("a", 0, 1.0, "stays"), ("b", 0, 1.0, None), ("c", 0, 1.0, None)]
    replace_rows(lake, HOURS, frame(lake.spark, there))
    must: list[Row] = [
        ("a", 0, 1.0, "stays"),
        ("b", 0, 2.0 if CHANGED in kinds else 1.0, None),
        *([] if EXTRA in kinds else [there[2]]),
        *([("d", 0, 1.0, None)] if MISSING in kinds else []),
    ]
    assert replace_rows(lake, HOURS, frame(lake.spark, must)) == len(kinds)
    assert stored(lake) == must
    assert len(history(lake)) == 3


def test_an_append_is_made_once_and_rows_that_are_there_twice_are_exchanged_in_one_commit(lake: Lake) -> None:
    rows: list[Row] = [("a", 0, 1.0, None), ("a", 0, 1.0, None), ("a", 1, 2.0, None), ("b", 0, 3.0, None)]
    location = lake.paths.table(HOURS.name)
    assert lake.is_empty(HOURS.name)
    for app, version, some in (("q", 0, rows[:3]), ("q", 0, rows[:3]), ("q", 1, rows[3:]), ("another", 0, rows[3:])):
        append_once(frame(lake.spark, some), location, app=app, version=version)
    assert stored(lake) == [*rows, rows[3]]
    assert not lake.is_empty(HOURS.name)
    keys = frame(lake.spark, [("a", 0, None, None), ("b", 0, None, None), ("z", 0, None, None)])
    fresh: list[Row] = [("a", 0, 1.5, "one"), ("c", 0, 4.0, None)]
    assert exchange_rows(lake, HOURS, keys, frame(lake.spark, fresh)) == 4 + 2
    assert stored(lake) == [fresh[0], rows[2], fresh[1]]
    assert history(lake)[4:] == ["MERGE"]


def test_tables_gain_columns_and_keep_their_rows(lake: Lake, tmp_path: Path) -> None:
    location = lake.paths.table(HOURS.name)
    append_once(frame(lake.spark, [("a", 0, 1.0, "x")]), location, app="q", version=0)
    wider = replace(HOURS, columns=(*HOURS.columns, Column("lowest", pa.float64(), "It's the lowest", "Cel")))
    other = str(tmp_path / "delta" / "other")
    create_tables(lake.spark, {location: wider, other: wider})
    create_tables(lake.spark, {location: wider})
    for where in (location, other):
        fields = {field.name: field for field in DeltaTable(where).schema().fields}
        assert list(fields) == wider.plain_schema.names
        assert fields["lowest"].metadata["comment"] == "It's the lowest [Cel]"
    assert history(lake) == ["CREATE TABLE", "WRITE", "ADD COLUMNS"]
    row: dict[str, Any] = DeltaTable(location).to_pyarrow_dataset().to_table().to_pylist()[0]
    assert (row["mean"], row["lowest"]) == (1.0, None)
    description = lake.spark.sql(f"describe detail delta.`{other}`").first()
    assert description is not None
    assert (description["clusteringColumns"], description["properties"]["delta.enableChangeDataFeed"]) == (
        ["box", "hour"],
        "true",
    )


def test_a_table_of_an_earlier_release_keeps_its_partitions(lake: Lake, tmp_path: Path) -> None:
    """By a part of the key, and by another column. Rows are replaced there as elsewhere."""
    location = str(tmp_path / "delta" / "older")
    write_deltalake(location, HOURS.plain_schema.empty_table(), partition_by=["box", "note"])
    create_tables(lake.spark, {location: HOURS})
    told = DeltaTable(location).metadata()
    assert told.partition_columns == ["box", "note"]
    assert told.configuration["delta.dataSkippingStatsColumns"] == "hour"
    append_once(frame(lake.spark, [("a", 0, 1.0, "x"), ("b", 0, 1.0, "x")]), location, app="q", version=0)
    here = replace(HOURS, name="older")
    replace_rows(lake, here, frame(lake.spark, [("a", 0, 2.0, "x"), ("b", 0, 1.0, "x"), ("b", 1, 3.0, None)]))
    rows = DeltaTable(location).to_pyarrow_dataset().to_table().to_pylist()
    assert sorted((row["box"], row["mean"]) for row in rows) == [("a", 2.0), ("b", 1.0), ("b", 3.0)]


@pytest.mark.long
def test_new_and_changed_rows_are_followed(lake: Lake, tmp_path: Path) -> None:
    """``new_rows`` follows appended rows; ``changed_rows`` also follows updates and deletions."""
    seen: dict[str, list[tuple[Any, ...]]] = {"new": [], "changed": []}

    def follow() -> None:
        streams = {"new": lake.new_rows(HOURS.name), "changed": lake.changed_rows(HOURS.name)}
        for name, rows in streams.items():
            columns = ["box", "mean", *(["_change_type"] if name == "changed" else [])]
            found: list[tuple[Any, ...]] = []
            writer = rows.writeStream.option("checkpointLocation", str(tmp_path / name)).trigger(availableNow=True)

            def collect(
                batch: DataFrame, _: int, columns: list[str] = columns, found: list[tuple[Any, ...]] = found
            ) -> None:
                found.extend(map(tuple, batch.select(*columns).collect()))

            writer.foreachBatch(collect).start().awaitTermination()
            seen[name] = sorted(found)

    replace_rows(lake, HOURS, frame(lake.spark, [("a", 0, 1.0, None), ("b", 0, 1.0, None)]))
    follow()
    assert seen == {"new": [("a", 1.0), ("b", 1.0)], "changed": [("a", 1.0, "insert"), ("b", 1.0, "insert")]}
    replace_rows(lake, HOURS, frame(lake.spark, [("a", 0, 2.0, None)]))  # a is changed, b deleted
    append_once(frame(lake.spark, [("c", 0, 3.0, None)]), lake.paths.table(HOURS.name), app="q", version=0)
    follow()
    assert seen == {
        "new": [("c", 3.0)],
        "changed": [
            ("a", 1.0, "update_preimage"),
            ("a", 2.0, "update_postimage"),
            ("b", 1.0, "delete"),
            ("c", 3.0, "insert"),
        ],
    }
    assert lake.read(HOURS.name, 1).count() == 2
