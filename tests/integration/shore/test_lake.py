"""Tables in a Spark session: those that are small are read without Spark's reader of Delta, and give the same rows."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from shore.delta import lake as of_tables
from shore.delta.lake import Lake
from shore.paths import TablePaths
from shore.tables import TABLES
from tests.support.tables import fill

pytestmark = [pytest.mark.integration, pytest.mark.spark]

AT = dt.datetime(2026, 9, 1, 6, 30, 0, 123456, dt.UTC)


def value(kind: pa.DataType) -> Any:
    """Return a value of an Arrow type."""
    if pa.types.is_struct(kind):
        return {field.name: value(field.type) for field in kind}
    if pa.types.is_list(kind):
        return [value(kind.value_type), None]
    of = {"string": "Ä", "binary": b"\xff", "bool": True, "double": 0.1, "float": 0.5, "date32[day]": AT.date()}
    return of.get(str(kind), AT if pa.types.is_timestamp(kind) else 7)


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    """Every table, with a row that has a value in each column and one that has none but its key."""
    whole = {name: {each.name: value(each.type) for each in TABLES[name].plain_schema} for name in TABLES}
    bare = {name: {column: whole[name][column] for column in TABLES[name].key} for name in TABLES}
    fill(tmp_path, {name: [whole[name], bare[name]] for name in TABLES})
    return Lake(spark, TablePaths.of(tmp_path))


def of_every_type() -> list[str]:
    """Return a few tables that have columns of every type between them."""
    types = {name: {str(each.type) for each in TABLES[name].plain_schema} for name in TABLES}
    missing, found = set[str]().union(*types.values()), list[str]()
    while missing:
        found.append(max(types, key=lambda name: len(types[name] & missing)))
        missing -= types[found[-1]]
    return found


@pytest.mark.parametrize(
    "tables",
    [pytest.param(of_every_type(), id="of-every-type"), pytest.param([*TABLES], marks=pytest.mark.long, id="all")],
)
def test_small_tables_have_the_rows_and_types_that_spark_reads(lake: Lake, tables: list[str]) -> None:
    for name in tables:
        read, wanted = lake.read(name), lake.spark.read.format("delta").load(lake.paths.table(name))
        types = [[(field.name, field.dataType) for field in each.schema.fields] for each in (read, wanted)]
        assert types[0] == types[1], name
        rows = [sorted(each.toArrow().to_pylist(), key=str) for each in (read, wanted)]
        assert rows[0] == rows[1], name
        assert len(rows[0]) == 2
        assert lake.read(name, 0).collect() == [], name


def test_a_version_is_read_once_and_a_newer_one_anew(lake: Lake, tmp_path: Path) -> None:
    before = lake.read("sites")
    assert lake.read("sites") is before
    fill(tmp_path, {"sites": [{"site": "alpha"}]})
    assert (before.count(), lake.read("sites").count(), lake.read("sites", 1) is before) == (2, 3, True)


@pytest.mark.parametrize("limit", ["SMALL_BYTES", "SMALL_ROWS"])
def test_a_larger_table_is_read_by_spark(lake: Lake, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    small = sorted(lake.read("sites").collect(), key=str)
    monkeypatch.setattr(of_tables, limit, {"SMALL_BYTES": lake.bytes_of("sites"), "SMALL_ROWS": len(small)}[limit] - 1)
    larger = Lake(lake.spark, lake.paths)
    assert [len(each.read("sites").inputFiles()) for each in (lake, larger)] == [0, 1]
    assert sorted(larger.read("sites").collect(), key=str) == small
    assert larger.read("sites", 0).collect() == []


def test_tables_are_small_together(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = lake.bytes_of("sites", 1), lake.bytes_of("owners")
    monkeypatch.setattr(of_tables, "SMALL_BYTES", one + other - 1)
    assert not lake.are_small({"sites": 1, "owners": 1})
    assert lake.are_small({"sites": 1, "owners": 0}), "that version has no files"


def test_fixed_tables_stay_as_they_are(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_tables, "SMALL_BYTES", -1)
    fixed = lake.fixed(["sites"])
    read = fixed.read("sites").where("true"), lake.read("sites").where("true")
    fill(tmp_path, {"sites": [{"site": "alpha"}], "owners": [{"owner_code": "BIGU"}]})
    assert [each.count() for each in read] == [2, 3], "Delta reads the version that is the newest by then"
    assert (fixed.read("sites").count(), fixed.read("owners").count(), lake.read("sites").count()) == (2, 3, 3)
