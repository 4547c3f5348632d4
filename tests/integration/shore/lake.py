"""Tables of one test in a folder, kept up to date by the queries of jobs that read tables, without a broker."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession

from shore.delta.commit import replace_rows
from shore.delta.diff import differences
from shore.jobs.model import JobContext
from shore.jobs.reference import rows_of_topology
from shore.jobs.runner import JOBS
from shore.paths import TablePaths
from shore.tables import TABLES
from shore.tables.custody import rows_of_entries
from shore.tables.graph import DERIVED, Settings
from shore.tables.ships_now import ships_now
from shore.verify.catalogue import REFERENCE
from tests.integration.shore.arrow_lake import ArrowLake
from tests.support.delta_rs import create
from tests.support.oracle import bookings
from tests.support.shore.fleet import topology
from topologies.ledger_trust import history_rules
from topologies.model import Topology

Rows = Mapping[str, Sequence[Mapping[str, Any]]]
LOGS = (
    "readings",
    "readings_rejected",
    "alerts",
    "alerts_ashore",
    "positions",
    "digests",
    "booking_changes",
    "custody_entries",
)
"""Tables that ``Tables.append`` fills. It also updates what the jobs ``histories`` and ``ships`` derive from them."""
FOLLOWING = ("bookings", "custody", "ships_now", *REFERENCE)


class Context(JobContext):
    """A job context whose batches use an ``ArrowLake``."""

    @property
    def lake(self) -> ArrowLake:
        return ArrowLake(self.spark, self.paths)


class Tables:
    """One folder of tables.

    Args:
        empty: The folder that ``empty_tables`` filled.
        names: The tables that the queries of the test keep up to date.
    """

    def __init__(self, spark: SparkSession, folder: Path, empty: Path, names: Sequence[str]) -> None:
        self.spark, self.folder, self.names = spark, folder, tuple(names)
        shutil.copytree(empty / "delta", folder / "delta")
        self.paths = TablePaths.of(folder)
        self.lake = ArrowLake(spark, self.paths)
        self._jobs: tuple[str, ...] = ()
        self.follow(topology())

    # -- inputs

    def follow(self, topology: Topology) -> None:
        """Bring the tables made from the topology in line with one."""
        self._topology = topology
        for name, rows in rows_of_topology(topology).items():
            self._replace(name, rows)

    def append(self, rows: Rows) -> None:
        """Append to log tables and update the tables that other jobs derive from them."""
        for name, found in rows.items():
            if name in LOGS:
                write_deltalake(DeltaTable(self.paths.table(name)), self._content(name, found), mode="append")
        if "booking_changes" in rows:
            self._replace("bookings", bookings.states(self.arrow("booking_changes")))
        if "custody_entries" in rows:
            self._replace("custody", rows_of_entries(self.arrow("custody_entries"), self._rules()))
        if "positions" in rows:
            fresh = ships_now(self.lake.read("positions"), self.lake.read("sites"))
            replace_rows(self.lake, TABLES["ships_now"], fresh)

    # -- queries

    def start(self, *jobs: str) -> None:
        """Choose the jobs whose queries ``settle`` runs; each resumes from its checkpoint."""
        self._jobs = jobs

    def add(self, **rows: Sequence[Mapping[str, Any]]) -> None:
        """Append rows and run the queries on them."""
        self.append(rows)
        self.settle()

    def settle(self) -> None:
        """Run the queries on everything new, in one batch; a continuous query makes one for each commit."""
        context = Context(self._topology, cast(Any, None), self.paths, self.spark, 1000)
        queries = []
        for job in self._jobs:
            writer = JOBS[job].query(context).option("checkpointLocation", self.paths.checkpoint(job))
            queries.append(writer.trigger(availableNow=True).start())
        for query in queries:
            query.awaitTermination()

    # -- contents

    def arrow(self, table: str) -> pa.Table:
        stored = DeltaTable(self.paths.table(table)).to_pyarrow_table()
        return stored.select(TABLES[table].plain_schema.names).cast(TABLES[table].plain_schema)

    def rows(self, table: str, *columns: str) -> list[Any]:
        """Return rows by key: values of one column, tuples of several, or whole rows as dictionaries."""
        found: list[Any] = TABLES[table].sorted(self.arrow(table)).to_pylist()
        if not columns:
            return found
        return [row[columns[0]] if len(columns) == 1 else tuple(row[name] for name in columns) for row in found]

    def versions(self) -> dict[str, int]:
        """Return the newest versions of the tables that the queries keep."""
        return {name: DeltaTable(self.paths.table(name)).version() for name in self.names}

    def computed(self, table: str) -> DataFrame:
        """Return the table as its function computes it from all of its inputs."""
        derived = next(each for each in DERIVED if each.table.name == table)
        return derived.compute(self.lake.inputs(derived.inputs), Settings())

    def differing(self, oracles: Mapping[str, Callable[[TablePaths], pa.Table]] | None = None) -> dict[str, list[Any]]:
        """Return by table the rows that differ between the stored table and its function over all inputs, or between
        that function and the oracle."""
        found = {}
        for name in self.names:
            stored, computed = self.lake.read(name), self.computed(name).select(*TABLES[name].plain_schema.names)
            odd = differences(stored, computed, TABLES[name].key).collect()
            if oracles and name in oracles:
                wanted = self.spark.createDataFrame(oracles[name](self.paths), TABLES[name].spark_schema)
                odd += differences(computed, wanted, TABLES[name].key).collect()
            if odd:
                found[name] = odd
        return found

    # -- helpers

    @staticmethod
    def _content(table: str, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        return pa.Table.from_pylist([dict(row) for row in rows], schema=TABLES[table].plain_schema)

    def _replace(self, name: str, rows: pa.Table) -> None:
        replace_rows(self.lake, TABLES[name], self.spark.createDataFrame(rows, TABLES[name].spark_schema))

    def _rules(self) -> Any:
        kinds = {row["site"]: row["kind"] for row in self.rows("sites")}
        return history_rules(kinds, {row["owner_code"]: row["stream"] for row in self.rows("owners")})


def empty_tables(folder: Path, names: Sequence[str]) -> Path:
    """Create the empty inputs and these tables in a folder and return it."""
    paths = TablePaths.of(folder)
    for name in (*LOGS, *FOLLOWING, *names):
        create(TABLES[name], paths.table(name))
    return folder
