"""Tables that Spark computes and that delta-rs reads and writes, so that a batch takes a quarter of the time.

For tests of what jobs compute, however their inputs are ordered and divided. ``test_commit`` and the tests that run
queries cover how Spark's Delta reads, appends and merges.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from shore.delta.diff import EXTRA
from shore.delta.lake import Lake
from shore.tables import TABLES
from shore.tables.model import Table


class ArrowLake(Lake):
    """A lake of tables that delta-rs created (``tests.support.delta_rs.create``)."""

    def read(self, table: str, version: int | None = None) -> DataFrame:
        stored = DeltaTable(self.paths.table(table), version=version).to_pyarrow_table()
        schema = TABLES[table].plain_schema
        rows = stored.select(schema.names).cast(schema).combine_chunks()
        content = rows if rows.num_rows else []  # PySpark 4.2 fails on columns without a chunk
        return self.spark.createDataFrame(content, TABLES[table].spark_schema)

    def append(self, table: str, rows: DataFrame) -> None:
        schema = TABLES[table].plain_schema
        content = rows.select(*schema.names).toArrow().cast(schema)
        write_deltalake(DeltaTable(self.paths.table(table)), content, mode="append")

    def merge(self, table: Table, odd: DataFrame, kinds: Collection[str], where: Column) -> None:
        assert kinds == {row["what"] for row in odd.select("what").toArrow().to_pylist()}

        def key(row: Mapping[str, Any]) -> tuple[Any, ...]:
            return tuple(row[name] for name in table.key)

        stored = self.read(table.name).alias("t").withColumn("reached", F.coalesce(where, F.lit(False)))
        rows = stored.toArrow().to_pylist()
        skipped = [row for row in rows if not row["reached"]]  # as Delta skips files without looking at their keys
        found = {key(row): row for row in rows if row["reached"]}
        extra = F.col("what") == EXTRA
        for row in odd.where(extra).select("found.*").toArrow().to_pylist():
            found.pop(key(row), None)
        for row in odd.where(~extra).select("expected.*").toArrow().to_pylist():
            found[key(row)] = row
        content = pa.Table.from_pylist([*skipped, *found.values()], schema=table.plain_schema)
        write_deltalake(DeltaTable(self.paths.table(table.name)), content, mode="overwrite")
