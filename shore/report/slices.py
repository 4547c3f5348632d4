"""The part of the tables that a report is about, as tables of one DuckDB connection.

All reports of a process share one database, with its threads and its memory. Each table is opened once, at one version.
Arrow applies the report's condition to whole files (by Delta's statistics) and row groups first, so a report about one
box reads only the files that may have rows of it. A table that does not exist yet is empty here and named in
``missing``; a column that an older table lacks is null.

``table_warnings`` says what a report may lack because a job has not begun or is in trouble: an empty table does not
prove that nothing happened.
"""

from __future__ import annotations

import atexit
import contextlib
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from shore.delta.datasets import duckdb_files, of_files
from shore.delta.table_errors import no_tables_error, open_table, unreadable_table_error
from shore.jobs.checkpoint import has_begun
from shore.jobs.status import IN_TROUBLE, JobStatus, read_status
from shore.paths import TablePaths
from shore.tables import TABLES
from shore.tables.bands import MICROS_IN_DUCKDB
from shore.tables.catalogue import KEPT_BY
from shore.tables.model import TIME, time_of

Row: TypeAlias = dict[str, Any]

MEMORY: Final = "1GB"


class Slices:
    """Tables of a report in one connection: those that were added, and those that a report makes from them."""

    def __init__(self, paths: TablePaths, connection: duckdb.DuckDBPyConnection) -> None:
        self._paths = paths
        self._connection = connection
        self.versions: dict[str, int] = {}  # of the Delta tables that are read here
        self.missing: list[str] = []  # tables that do not exist yet: they have no rows here
        self._opened: dict[str, pads.Dataset] = {}

    def add(self, name: str, condition: pc.Expression | None = None, *, as_: str = "") -> None:
        """Open a table, narrowed to the rows for which the condition is true; all of it without one.

        Args:
            as_: Its name in queries; the table's own name when empty.

        Raises:
            UnavailableError: it exists and cannot be opened.
        """
        if name not in self._opened and name not in self.missing:
            self._open(name)
        data = self._opened.get(name)
        if data is None:
            self._connection.register(as_ or name, TABLES[name].plain_schema.empty_table())
        else:
            self._connection.register(as_ or name, data if condition is None else data.filter(condition))

    def load(self, name: str, column: str, value: str, *, as_: str, without: Collection[str] = ()) -> None:
        """Read the rows of a table with this value in a column, once for all queries that follow.

        Args:
            as_: Its name in queries.
            without: Columns that are not read; null.

        Raises:
            UnavailableError: the table exists and cannot be read.
        """
        condition = pc.field(column) == value
        self.add(name, condition, as_="found")
        columns = ", ".join(
            f"case when false then {each} end as {each}" if each in without else each
            for each in TABLES[name].plain_schema.names
        )
        rows, values = "found", {}
        data = self._opened.get(name)
        if data is not None and (files := duckdb_files(self._paths, name, data, condition)):
            self._connection.register("found", TABLES[name].plain_schema.empty_table())
            rows, values = f"{of_files('found', files)} where {column} = $value", {"value": value}
        self.run(f"create temp table {as_} as select {columns} from {rows}", **values)  # noqa: S608
        self._connection.unregister("found")

    def check_any(self) -> None:
        """Check that at least one of the added tables exists.

        Raises:
            UnavailableError: none does.
        """
        if not self.versions:
            raise no_tables_error(self._paths)

    def put(self, name: str, rows: pa.Table | pads.Dataset) -> None:
        """Register rows that are in none of the tables at ``paths``, for the queries that follow."""
        self._connection.register(name, rows)

    def rows(self, query: str, **values: Any) -> list[Row]:
        """Return all rows of a query, times in UTC. ``$name`` in the query is the value of that name.

        Raises:
            UnavailableError: a file of a table cannot be read.
        """
        with _readable():
            found = self._relation(query, values).to_arrow_table()
        return rows_of(found)

    def row(self, query: str, **values: Any) -> Row:
        """Return the first row of a query that has at least one, such as a count."""
        return self.rows(query, **values)[0]

    def batches(self, query: str, rows: int = 50_000, **values: Any) -> pa.RecordBatchReader:
        """Return the rows of a query in batches, for large results."""
        with _readable():
            reader: pa.RecordBatchReader = self._relation(query, values).to_arrow_reader(rows)
        return reader

    def run(self, statement: str, **values: Any) -> None:
        """Run a statement, such as one that makes a table or view for the queries that follow."""
        with _readable():
            self._connection.execute(statement, values or None)

    def _open(self, name: str) -> None:
        delta = open_table(self._paths, name)
        if delta is None:
            self.missing.append(name)
            return
        self.versions[name] = delta.version()
        self._opened[name] = delta.to_pyarrow_dataset(schema=TABLES[name].plain_schema)

    def _relation(self, query: str, values: Mapping[str, Any]) -> duckdb.DuckDBPyRelation:
        return self._connection.sql(query, params=dict(values) or None)


def rows_of(table: pa.Table) -> list[Row]:
    """Return the rows of a table as ``pa.Table.to_pylist`` does. Times, which that makes by way of strings of time
    zones, take a tenth of its time: half of a port's report was spent there."""
    names, columns = table.column_names, [_values(column) for column in table.columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _values(column: pa.ChunkedArray) -> list[Any]:
    if column.type == TIME:
        return [None if micros is None else time_of(micros) for micros in column.cast(pa.int64()).to_pylist()]
    values: list[Any] = column.to_pylist()
    return values


@contextlib.contextmanager
def _readable() -> Iterator[None]:
    """Files of a table may be gone (vacuumed while they are read, or removed by hand) or damaged."""
    try:
        yield
    except (duckdb.IOException, duckdb.InvalidInputException) as error:
        raise unreadable_table_error(str(error)) from error


@contextlib.contextmanager
def open_slices(paths: TablePaths, *, memory: str = MEMORY, threads: int | None = None) -> Iterator[Slices]:
    """Open a connection without tables. Times are in UTC, and what does not fit into the memory is sorted on disk.

    SQL that Spark and DuckDB share finds Spark's name ``unix_micros``.

    Args:
        memory: What all connections with the same two values use at most.
        threads: How many they have; by default as many as the machine.
    """
    with _database(memory, threads).cursor() as connection:
        connection.execute("set timezone = 'UTC'")
        yield Slices(paths, connection)


@cache
def _database(memory: str, threads: int | None) -> duckdb.DuckDBPyConnection:
    """Open a database of this process: that takes longer than most queries. Each cursor has its own tables."""
    scratch = tempfile.mkdtemp(prefix="fairlead-report-")
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    found = duckdb.connect(":memory:")
    found.execute(f"set memory_limit = '{memory}'")
    if threads is not None:
        found.execute(f"set threads = {threads}")
    found.execute("set temp_directory = $folder", {"folder": scratch})
    found.execute(MICROS_IN_DUCKDB)
    return found


def stamps(paths: TablePaths, names: Iterable[str]) -> dict[str, tuple[str, int]]:
    """Return the id and the version of those tables that exist. While they stay the same, so does every report of them.

    Raises:
        UnavailableError: a table exists and cannot be opened.
    """
    opened = ((name, open_table(paths, name)) for name in names)
    return {name: (str(delta.metadata().id), delta.version()) for name, delta in opened if delta is not None}


def of_container(number: str) -> pc.Expression:
    """Return the condition that a row is about a container."""
    return pc.field("equipment_reference") == number


def table_warnings(folder: Path, paths: TablePaths, tables: Collection[str]) -> tuple[str, ...]:
    """Return a sentence for each job of the last run that keeps some of these tables and has not begun or has trouble.

    Args:
        folder: The topology's state folder. Where shore has never run (tables from elsewhere), the result is empty.
    """
    status = read_status(folder)
    if status is None:
        return ()
    found = []
    for name, job in status.jobs.items():
        read = sorted(set(KEPT_BY.get(name, ())).intersection(tables))
        trouble = _trouble(name, job, paths)
        if read and trouble:
            found.append(f"{trouble}: table{'s' if read[1:] else ''} {', '.join(read)} may lack rows")
    return tuple(found)


def _trouble(name: str, job: JobStatus, paths: TablePaths) -> str:
    if not has_begun(paths, name):
        return f"job {name} has not run yet"
    if job.state in IN_TROUBLE:
        why = f" ({job.error.splitlines()[0]})" if job.error else ""
        return f"job {name} is {job.state}{why}"
    return ""
