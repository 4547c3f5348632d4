"""Readings in Spark, and the hourly tables that job ``conditions`` updates batch by batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from shore.delta.diff import differences
from shore.jobs.conditions import update
from shore.paths import TablePaths
from shore.tables import TABLES
from shore.tables.graph import DERIVED, Settings
from shore.tables.hours import ACTIVATION_ENERGY
from shore.tables.readings import READINGS
from tests.integration.shore.arrow_lake import ArrowLake
from tests.support.delta_rs import create
from tests.support.shore import hours
from tests.support.shore.hours import Row

KEPT = ("conditions", "mkt", "excursion_parts", "excursions", "outlook")


def in_spark(spark: SparkSession, rows: Sequence[Row]) -> DataFrame:
    """Return rows of ``readings`` as a data frame."""
    return spark.createDataFrame(pa.Table.from_pylist(list(rows), schema=READINGS.plain_schema))


def computed(readings: DataFrame, energy: float = ACTIVATION_ENERGY) -> Mapping[str, DataFrame]:
    """Return the tables as ``shore.tables.graph`` computes them from all readings."""
    made = {"readings": readings}
    for entry in DERIVED:
        if entry.table.name in KEPT:
            made[entry.table.name] = entry.compute(made, Settings(energy))
    return made


def rows_of(frame: DataFrame, table: str) -> list[Row]:
    """Return rows in the order of the table's key; times are UTC."""
    return hours.by_key(table, frame.toArrow().select(TABLES[table].plain_schema.names))


class Shore:
    """Tables in a folder, and job ``conditions`` that updates them."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self.lake = ArrowLake(spark, TablePaths(folder))
        for name in ("readings", *KEPT):
            create(TABLES[name], self.lake.paths.table(name))

    def take(self, rows: Sequence[Row], *, stored: bool = False) -> None:
        """Run the job on a batch. ``stored``: the rows are in the table already, as in a repeated batch."""
        batch = in_spark(self.lake.spark, rows)
        if not stored:
            self.lake.append("readings", batch)
        update(batch, self.lake, ACTIVATION_ENERGY)

    def rows(self, name: str) -> list[Row]:
        return hours.stored_rows(self.lake.paths, name)

    def check(self, energy: float = ACTIVATION_ENERGY) -> None:
        """Check every table against all readings, by the functions of the graph and by DuckDB."""
        for name, expected in computed(self.lake.read("readings"), energy).items():
            if name in KEPT:
                stored = self.lake.read(name)
                odd = differences(stored, expected.select(stored.columns), TABLES[name].key)
                assert [row.asDict(recursive=True) for row in odd.limit(3).collect()] == [], name
        hours.check(self.lake.paths)
