"""Tables of a fleet that one job keeps up to date, on an ``ArrowLake``."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession

from shore.jobs import reference
from shore.paths import TablePaths
from shore.tables import TABLES
from shore.tables.graph import DERIVED, Settings
from shore.verify.catalogue import REFERENCE
from tests.integration.shore.arrow_lake import ArrowLake
from tests.support.delta_rs import create, refresh
from tests.support.shore.fleet import Rows, topology
from topologies.model import Topology

FOLLOWS_FROM = {each.table.name: each for each in DERIVED}


def create_lake(folder: Path, tables: Sequence[str]) -> None:
    """Create these tables without rows, and those of the fleet's topology."""
    paths = TablePaths.of(folder)
    for name in (*tables, *REFERENCE):
        create(TABLES[name], paths.table(name))
    refresh(paths, topology())


class FleetLake:
    """Tables in a folder that one job keeps up to date. ``add`` appends rows and runs the job on them as one batch.

    Args:
        job: The job's module, with ``INPUTS``, ``changes`` and ``update``.
        empty: The folder that ``create_lake`` filled.
    """

    def __init__(self, spark: SparkSession, job: ModuleType, folder: Path, empty: Path) -> None:
        shutil.copytree(empty / "delta", folder / "delta", dirs_exist_ok=True)
        self.spark = spark
        self.job = job
        self.paths = TablePaths.of(folder)
        self.lake = ArrowLake(spark, self.paths)

    def append(self, rows: Rows) -> None:
        """Append rows as job ``operations`` does."""
        for name, found in rows.items():
            write_deltalake(self.paths.table(name), _arrow(name, found), mode="append")

    def update(self, rows: Rows) -> None:
        """Run the job on rows that are in the tables already."""
        self.job.update(self.lake, self.job.changes(*(self._frame(name, rows.get(name, ())) for name in self._inputs)))

    def add(self, **rows: Sequence[Mapping[str, Any]]) -> None:
        self.append(rows)
        self.update(rows)

    def follow(self, changed: Topology) -> None:
        """Change the topology as a run does that begins with another one."""
        reference.write(self.lake, changed)
        self.update({name: self.rows(name) for name in REFERENCE if name in self._inputs})

    def rows(self, table: str, *columns: str) -> list[Any]:
        """Return rows by key: values of one column, tuples of several, or whole rows as dictionaries."""
        stored = DeltaTable(self.paths.table(table)).to_pyarrow_dataset().to_table()
        found: list[Any] = TABLES[table].sorted(stored).to_pylist()
        if not columns:
            return found
        return [row[columns[0]] if len(columns) == 1 else tuple(row[name] for name in columns) for row in found]

    def computed(self, table: str) -> pa.Table:
        """Return the table as its function computes it from all rows of its inputs."""
        entry = FOLLOWS_FROM[table]
        made = entry.compute(self.lake.inputs(entry.inputs), Settings()).toArrow()
        return same_shape(table, made)

    def stored(self, table: str) -> pa.Table:
        return same_shape(table, DeltaTable(self.paths.table(table)).to_pyarrow_dataset().to_table())

    def version(self, table: str) -> int:
        return DeltaTable(self.paths.table(table)).version()

    @property
    def _inputs(self) -> tuple[str, ...]:
        found: tuple[str, ...] = self.job.INPUTS
        return found

    def _frame(self, name: str, rows: Sequence[Mapping[str, Any]]) -> DataFrame:
        return self.spark.createDataFrame(_arrow(name, rows), TABLES[name].spark_schema)


def same_shape(table: str, rows: pa.Table) -> pa.Table:
    """Return the rows with the table's columns and types, sorted by key."""
    schema = TABLES[table].plain_schema
    return TABLES[table].sorted(rows.select(schema.names).cast(schema)).combine_chunks()


def _arrow(name: str, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist([dict(row) for row in rows], schema=TABLES[name].plain_schema)
