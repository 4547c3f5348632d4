"""The tables of one topology as DataFrames of a Spark session: read whole, followed as streams, appended to, merged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_
from typing import Final

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from shore.delta.diff import EXTRA
from shore.delta.lease import check_lease
from shore.paths import TablePaths
from shore.tables.model import Table

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
        return replace(self, spark=batch.sparkSession)

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

    def is_empty(self, table: str) -> bool:
        """Whether the table's newest version has no files."""
        from deltalake import DeltaTable as Reader  # a table's log is read in milliseconds by it, in a second by Spark

        return not Reader(self.paths.table(table)).file_uris()

    def append(self, table: str, rows: DataFrame) -> None:
        """Append rows in one commit."""
        location = self.paths.table(table)
        check_lease(location)
        rows.write.format("delta").mode("append").save(location)

    def merge(self, table: Table, odd: DataFrame, where: Column) -> None:
        """Make rows that differ (``shore.delta.diff.differences``) as they are expected, in one commit.

        Args:
            where: What holds for every row of the table that differs, over columns ``t.*``: Delta skips other files.
        """
        key = [F.coalesce(f"expected.{name}", f"found.{name}").alias(f"_{name}") for name in table.key]
        source = odd.select("what", *key, "expected.*")
        condition = reduce(and_, (F.col(f"t.{name}") == F.col(f"s._{name}") for name in table.key), where)
        values: dict[str, str | Column] = {name: F.col(f"s.{name}") for name in table.plain_schema.names}
        location = self.paths.table(table.name)
        check_lease(location)
        (
            DeltaTable.forPath(self.spark, location)
            .alias("t")
            .merge(source.alias("s"), condition)
            .whenMatchedDelete(F.col("s.what") == EXTRA)
            .whenMatchedUpdate(set=values)
            .whenNotMatchedInsert(condition=F.col("s.what") != EXTRA, values=values)
            .execute()
        )
