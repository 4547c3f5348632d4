"""The tables of one topology in a Spark session: read them, follow them as streams, append to them, merge into them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import and_
from typing import Any, Final

import pyarrow as pa
from delta.tables import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.util import inheritable_thread_target

from shore.delta.diff import CHANGED, EXTRA, MISSING
from shore.delta.lease import check_lease
from shore.paths import TablePaths
from shore.tables.graph import Derived, Settings
from shore.tables.model import Table
from topologies.model import Topology

AS_THEY_STAND: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
"""Settings that run plans as they stand: Spark generates no code for them and does not plan again between stages.

A batch of a derived table has a few thousand rows, and Delta reads the table's log before and after it. Every task
would generate the text of each class again, which costs more than the rows do (Spark 4.2.0: ``CodeFormatter`` is 70 %
of the executors' work in a batch with one new row; appending to a table and reading it takes 1.3 instead of 1.9 CPU-s).
"""

_GENERATED: Final = {
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
}
"""Settings for batches that read many rows: Spark generates code, which it keeps for the next batch, and still does not
plan again between stages.

Half a million rows of ``readings`` joined with the spans of a batch take 0.8 instead of 1.8 CPU-s.
"""


_ONE_TASK: Final = {"spark.sql.shuffle.partitions": "1", "spark.sql.leafNodeDefaultParallelism": "1"}
"""Settings for tables whose rows are too few to be shared among tasks."""

SMALL_BYTES: Final = 1 << 20
"""The most that the files of a table have where it is read by ``SmallTables``, and those of all tables of a computation
where one task does it (``Lake.of_small_tables``): some 30,000 readings.

Beyond, generated code pays: 190,000 readings take 26 instead of 83 CPU-s (Spark 4.2.0).
"""
SMALL_ROWS: Final = 30_000
"""The most rows of a table that is read by ``SmallTables``. A ship's positions may take less than a byte each, and
290,000 of them in the plan of a batch cost 3 CPU-s."""


def _configure(session: SparkSession, settings: Mapping[str, str]) -> None:
    for name, value in settings.items():
        session.conf.set(name, value)


def computed(rows: DataFrame) -> DataFrame:
    """Compute rows now and return them as a DataFrame whose plan begins with the result, kept by the executors.

    A DataFrame that is only cached keeps the plan that leads to it. Where ten follow from each other, as in a batch of
    ``conditions``, Spark's optimizer then takes three times as long as all tasks (measured: 125 CPU-s instead of 45).
    When an executor dies, its rows are lost: the batch fails and is repeated.
    """
    return rows.localCheckpoint()


def computed_and_counted(rows: DataFrame, /, **counts: Column) -> tuple[DataFrame, dict[str, int]]:
    """Compute rows as ``computed`` does, and these counts of them in the same pass.

    A job of its own for the counts takes 0.1 CPU-s.
    """
    counted = Observation()
    found = computed(rows.observe(counted, *(count.alias(name) for name, count in counts.items())))
    return found, {name: observed(counted, name) for name in counts}


def observed(observation: Observation, name: str) -> int:
    """Return a count of rows that have been computed.

    Raises:
        Py4JJavaError: the query of this batch is being stopped, so the count is not known.
    """
    try:
        return int(observation.get[name])
    except Py4JJavaError as error:
        if error.java_exception.getClass().getName() != "java.lang.AssertionError":
            raise
        return 0  # Spark drops rows that it knows to be none, and the observation with them


@dataclass(frozen=True, slots=True)
class Lake:
    """The locations of tables, and the session that reads and writes them."""

    spark: SparkSession
    paths: TablePaths
    _fixed: Mapping[str, DataFrame] = field(default_factory=dict, repr=False, compare=False)
    _small: SmallTables = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_small", SmallTables(self.spark, self.paths))

    def in_batch(self, batch: DataFrame) -> Lake:
        """Return the same tables in the session of a ``foreachBatch`` batch, with ``AS_THEY_STAND`` set."""
        return self._as_they_stand(batch.sparkSession)

    def in_own_session(self) -> Lake:
        """Return the same tables in a session of their own with ``AS_THEY_STAND`` set. It has what is registered in
        this one, such as data sources, which a new session would not."""
        copied = self.spark._jsparkSession.cloneSession()  # noqa: SLF001  # PySpark has no way of its own
        return self._as_they_stand(SparkSession(self.spark.sparkContext, copied))

    def of_small_tables(self) -> Lake:
        """Return the same tables in a session of their own (``in_own_session``) where one task does the work."""
        lake = self.in_own_session()
        _configure(lake.spark, _ONE_TASK)
        return lake

    def _as_they_stand(self, session: SparkSession) -> Lake:
        _configure(session, AS_THEY_STAND)
        return replace(self, spark=session)

    def generate_code(self) -> None:
        """Let Spark generate code in this session, of a batch or the caller's own, from now on."""
        _configure(self.spark, _GENERATED)

    def fixed(self, tables: Iterable[str]) -> Lake:
        """Return the same tables. Of these, ``read`` returns the version that is the newest now.

        Else Spark reads a table that is not small in the version that is the newest when it computes rows.
        """
        found = {}
        for name in tables:
            version, small = self._small.read(name)
            found[name] = self._by_spark(name, version) if small is None else small
        return replace(self, _fixed=found)

    def read(self, table: str, version: int | None = None) -> DataFrame:
        """Return a table's rows in its newest version, or in ``version``."""
        if version is None and table in self._fixed:
            return self._fixed[table]
        _, small = self._small.read(table, version)
        return self._by_spark(table, version) if small is None else small

    def _by_spark(self, table: str, version: int | None) -> DataFrame:
        reader = self.spark.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        return reader.load(self.paths.table(table))

    def inputs(self, tables: Iterable[str], versions: Mapping[str, int] = {}) -> dict[str, DataFrame]:
        """Return several tables by name, in their newest or the given versions, as arguments of a table's function."""
        return {name: self.read(name, versions.get(name)) for name in tables}

    def expected_rows(self, derived: Derived, topology: Topology, versions: Mapping[str, int] = {}) -> DataFrame:
        """Compute the rows that a derived table must hold, from its inputs in these versions, else in their newest."""
        return derived.compute(self.inputs(derived.inputs, versions), Settings.of(topology))

    def new_rows(self, table: str, **options: str) -> DataFrame:
        """Return the rows appended to a table as a stream. Commits that move, change or delete rows are skipped."""
        reader = self.spark.readStream.format("delta").option("skipChangeCommits", "true").options(**options)
        found: DataFrame = reader.load(self.paths.table(table))
        return found

    def changed_rows(self, table: str, **options: str) -> DataFrame:
        """Return the inserted, updated and deleted rows of a table as a stream: Delta's change data feed. The table
        needs ``Table.change_feed``. An update gives two rows: the old one and the new one."""
        reader = self.spark.readStream.format("delta").option("readChangeFeed", "true").options(**options)
        found: DataFrame = reader.load(self.paths.table(table))
        return found

    def side_by_side(self, *updates: Callable[[], None]) -> None:
        """Run updates of different tables, two at a time: most of a small update is planning, which uses one core.

        They belong to the batch that calls this: its query stops them. Raises the first error when all have ended.
        """
        of_this_batch = inheritable_thread_target(self.spark)
        with ThreadPoolExecutor(2, "update") as pool:
            for done in [pool.submit(of_this_batch(update)) for update in updates]:
                done.result()

    def is_empty(self, table: str) -> bool:
        """Return whether the table's newest version has no files."""
        from deltalake import DeltaTable as Reader  # reads a table's log in milliseconds; Spark takes a second

        return not Reader(self.paths.table(table)).file_uris()

    def bytes_of(self, table: str, version: int | None = None) -> int:
        """Return the size of the files of a table in its newest version, or in ``version``."""
        from deltalake import DeltaTable as Reader  # as in ``is_empty``

        return _bytes_of(Reader(self.paths.table(table), version=version))

    def are_small(self, versions: Mapping[str, int]) -> bool:
        """Return whether the files of these tables' versions have at most ``SMALL_BYTES`` together."""
        return sum(self.bytes_of(*each) for each in versions.items()) <= SMALL_BYTES

    def append(self, table: str, rows: DataFrame) -> None:
        """Append rows in one commit."""
        location = self.paths.table(table)
        check_lease(location)
        rows.write.format("delta").mode("append").save(location)

    def merge(self, table: Table, odd: DataFrame, kinds: Collection[str], where: Column) -> None:
        """Change the rows that differ (``shore.delta.diff.differences``) to what is expected, in one commit.

        Args:
            kinds: What ``odd`` has: MISSING, EXTRA, CHANGED. Each kind that is left out makes Delta's plan smaller.
            where: What holds for every stored row that differs, over columns ``t.*``, so that Delta skips files.
        """
        key = [F.coalesce(f"expected.{name}", f"found.{name}").alias(f"_{name}") for name in table.key]
        source = odd.select("what", *key, "expected.*")
        condition = reduce(and_, (F.col(f"t.{name}") == F.col(f"s._{name}") for name in table.key), where)
        values: dict[str, str | Column] = {name: f"s.`{name}`" for name in table.plain_schema.names}
        location = self.paths.table(table.name)
        check_lease(location)
        merge = DeltaTable.forPath(self.spark, location).alias("t").merge(source.alias("s"), condition)
        if EXTRA in kinds:
            merge = merge.whenMatchedDelete(F.col("s.what") == EXTRA)
        if CHANGED in kinds:
            merge = merge.whenMatchedUpdate(set=values)
        if MISSING in kinds:
            merge = merge.whenNotMatchedInsert(condition=F.col("s.what") == MISSING, values=values)
        merge.execute()


def _bytes_of(there: Any) -> int:
    """Return the size of the files of a table that delta-rs has opened."""
    return sum(pa.table(there.get_add_actions(flatten=True))["size_bytes"].to_pylist())


def _is_small(there: Any) -> bool:
    """Return whether a table that delta-rs has opened is small. Files that do not tell their rows count by bytes."""
    if _bytes_of(there) > SMALL_BYTES:
        return False
    files = pa.table(there.get_add_actions(flatten=True))
    rows: list[int | None] = files["num_records"].to_pylist() if "num_records" in files.schema.names else []
    return sum(filter(None, rows)) <= SMALL_ROWS


class SmallTables:
    """Reads tables of at most ``SMALL_BYTES`` and ``SMALL_ROWS``: by delta-rs, each version once, and gives Spark the
    rows in the plan.

    For each query that reads a Delta table, Spark runs two or three more, which read the table's log: 167 of the 296 of
    a verification of a voyage of ten boxes. It now runs 80, with 35 to 40 instead of 100 to 108 CPU-s in the JVM (Spark
    4.2.0, Delta 4.4.0). Threads may share the object.
    """

    def __init__(self, spark: SparkSession, paths: TablePaths) -> None:
        self._spark, self._paths = spark, paths
        self._read = dict[tuple[str, int], DataFrame | None]()
        self._reading = threading.Lock()

    def read(self, table: str, version: int | None = None) -> tuple[int, DataFrame | None]:
        """Return a table's newest version, or ``version``, and its rows; None where the table is larger."""
        from deltalake import DeltaTable as Reader  # as in ``Lake.is_empty``

        there = Reader(self._paths.table(table), version=version)
        key = table, there.version()
        with self._reading:
            if key not in self._read:
                self._read[key] = self._frame(there.to_pyarrow_table()) if _is_small(there) else None
            return key[1], self._read[key]

    def _frame(self, rows: pa.Table) -> DataFrame:
        whole = rows.combine_chunks() if rows.num_rows else _without_rows(rows.schema)
        return self._spark.createDataFrame(whole)


def _without_rows(schema: pa.Schema) -> pa.Table:
    """Return an empty table of one batch; PySpark cannot take one of none."""
    return pa.Table.from_batches([pa.RecordBatch.from_pylist([], schema=schema)])
