"""Tables of one test in a folder, kept by the queries of jobs that follow tables: no broker."""

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
from tests.integration.shore.arrow_lake import ArrowLake
from tests.support.deltars import create
from tests.support.oracle import bookings
from tests.unit.shore.fleet import topology
from topologies.ledger_trust import history_rules
from topologies.model import Topology

Rows = Mapping[str, Sequence[Mapping[str, Any]]]
LOGS = ("readings", "readings_rejected", "alerts", "alerts_ashore", "positions", "booking_changes", "custody_entries")
"""Tables that ``Tables.append`` fills. What the jobs ``histories`` and ``ships`` make of them follows at once."""
FOLLOWING = ("bookings", "custody", "ships_now", "sites", "owners")


class Context(JobContext):
    """What jobs run with here: their batches use an ``ArrowLake``."""

    @property
    def lake(self) -> ArrowLake:
        return ArrowLake(self.spark, self.paths)


class Tables:
    """One folder of tables.

    Args:
        empty: What ``empty_tables`` made.
        names: The tables that the queries of the test keep.
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
        """Bring ``sites`` and ``owners`` in line with a topology."""
        self._topology = topology
        for name, rows in rows_of_topology(topology).items():
            self._replace(name, rows)

    def append(self, rows: Rows) -> None:
        """Append to log tables; the tables that other jobs make of them follow."""
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
        """From now on ``settle`` runs the queries of these jobs; they go on from where they were."""
        self._jobs = jobs

    def add(self, **rows: Sequence[Mapping[str, Any]]) -> None:
        """Append, and wait until the queries have followed."""
        self.append(rows)
        self.settle()

    def settle(self) -> None:
        """Run the queries until they have all that is there: one batch for all inputs, where a query that runs on makes
        one for each commit."""
        context = Context(self._topology, cast(Any, None), self.paths, self.spark, 1000)
        queries = []
        for job in self._jobs:
            writer = JOBS[job].query(context).option("checkpointLocation", self.paths.checkpoint(job))
            queries.append(writer.trigger(availableNow=True).start())
        for query in queries:
            query.awaitTermination()

    # -- what is there

    def arrow(self, table: str) -> pa.Table:
        stored = DeltaTable(self.paths.table(table)).to_pyarrow_table()
        return stored.select(TABLES[table].plain_schema.names).cast(TABLES[table].plain_schema)

    def rows(self, table: str, *columns: str) -> list[Any]:
        """Rows by key: of one column its values, of several tuples, of none all as dictionaries."""
        found: list[Any] = TABLES[table].sorted(self.arrow(table)).to_pylist()
        if not columns:
            return found
        return [row[columns[0]] if len(columns) == 1 else tuple(row[name] for name in columns) for row in found]

    def versions(self) -> dict[str, int]:
        """The newest versions of the tables that are kept."""
        return {name: DeltaTable(self.paths.table(name)).version() for name in self.names}

    def computed(self, table: str) -> DataFrame:
        """The table as its function makes it of all of its inputs."""
        derived = next(each for each in DERIVED if each.table.name == table)
        return derived.compute(self.lake.inputs(derived.inputs), Settings())

    def differing(self, oracles: Mapping[str, Callable[[TablePaths], pa.Table]] | None = None) -> dict[str, list[Any]]:
        """What differs between the tables that are kept and their functions over everything, and between these and
        other ways to make them."""
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

    # -- inside

    @staticmethod
    def _content(table: str, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        return pa.Table.from_pylist([dict(row) for row in rows], schema=TABLES[table].plain_schema)

    def _replace(self, name: str, rows: pa.Table) -> None:
        replace_rows(self.lake, TABLES[name], self.spark.createDataFrame(rows, TABLES[name].spark_schema))

    def _rules(self) -> Any:
        kinds = {row["site"]: row["kind"] for row in self.rows("sites")}
        return history_rules(kinds, {row["owner_code"]: row["stream"] for row in self.rows("owners")})


def empty_tables(folder: Path, names: Sequence[str]) -> Path:
    """A folder with the empty inputs and these tables."""
    paths = TablePaths.of(folder)
    for name in (*LOGS, *FOLLOWING, *names):
        create(TABLES[name], paths.table(name))
    return folder
