"""The tables of one topology as DataFrames of a Spark session: read whole, or followed as streams."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from shore.paths import TablePaths

AS_THEY_STAND: Final = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Settings by which Spark runs plans without making Java classes of them.

A batch of a derived table has a few thousand rows, and Delta reads the table's log before and behind it. Spark would
write the text of each class anew in every task, which costs more than the rows do (Spark 4.2.0: 70 % of what executors
do in a batch with one new row is ``CodeFormatter``).
"""


def computed(rows: DataFrame) -> DataFrame:
    """The same rows, computed now and kept by the executors while the result is in use.

    What follows reads them, and its plan begins with them. A frame that is only cached keeps the plan that leads to it:
    where one follows from another ten times over, as in a batch of ``conditions``, Spark's optimizer then takes three
    times as long as all tasks (measured: 125 CPU-s instead of 45). An executor that dies takes its rows with it; the
    batch fails then, and is done again.
    """
    return rows.localCheckpoint()


@dataclass(frozen=True, slots=True)
class Lake:
    """Where tables are, and the session that reads and writes them."""

    spark: SparkSession
    paths: TablePaths

    def in_batch(self, batch: DataFrame) -> Lake:
        """The same tables in the session of a batch of ``foreachBatch``. Spark has switched adaptive execution off
        there: to plan every stage again is most of what a small batch costs. Plans run as they stand
        (``AS_THEY_STAND``)."""
        for name, value in AS_THEY_STAND.items():
            batch.sparkSession.conf.set(name, value)
        return Lake(batch.sparkSession, self.paths)

    def read(self, table: str, version: int | None = None) -> DataFrame:
        """A table's newest version, or another one."""
        reader = self.spark.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        return reader.load(self.paths.table(table))

    def inputs(self, tables: Iterable[str], versions: Mapping[str, int] = {}) -> dict[str, DataFrame]:
        """Several tables by name, in their newest versions or in these: the arguments of a table's function."""
        return {name: self.read(name, versions.get(name)) for name in tables}

    def new_rows(self, table: str, **options: str) -> DataFrame:
        """The rows that are appended to a table, as a stream. Rows that a compaction moves, or that somebody changes or
        deletes, are not new."""
        reader = self.spark.readStream.format("delta").option("skipChangeCommits", "true").options(**options)
        found: DataFrame = reader.load(self.paths.table(table))
        return found

    def changed_rows(self, table: str, **options: str) -> DataFrame:
        """The rows that are inserted into, updated in or deleted from a table, as a stream: Delta's change data feed.
        The table needs ``Table.change_feed``. An update comes as the row before and the row after it."""
        reader = self.spark.readStream.format("delta").option("readChangeFeed", "true").options(**options)
        found: DataFrame = reader.load(self.paths.table(table))
        return found
