"""Read the tables without a JVM: delta-rs opens them, DuckDB runs SQL over their files.

Every call reads the newest committed version of each table, so it works while Spark writes. Queries can read the
tables and nothing else: DuckDB opens no other files, and no network.

In Python, ``table(folder, "readings")`` returns an Arrow dataset (``.to_table(columns=[...], filter=...)``), which
pandas, Polars and DuckDB can read.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
from deltalake import DeltaTable

from fairlead.errors import FairleadError, UnknownNameError
from shore.delta.datasets import duckdb_files, of_files
from shore.delta.table_errors import (
    check_tables,
    missing_table_error,
    no_tables_error,
    open_table,
    unreadable_table_error,
)
from shore.errors import QueryError
from shore.joins import VIEWS
from shore.paths import TablePaths
from shore.tables import TABLES
from shore.tables.bands import MICROS_IN_DUCKDB

_FORMULA = r"^([=+\-@\t\r])"
_NO_TABLE = re.compile(r"Table with name (\S+) does not exist")
_WRITING = frozenset(
    getattr(duckdb.StatementType, name)
    for name in ("DELETE", "INSERT", "UPDATE", "MERGE_INTO", "CREATE", "DROP", "ALTER")
)
_READING = re.compile(
    r"^IO Error|^Invalid (Input )?Error: .*(\.parquet'|ZSTD|Snappy|TProtocol)|reading the stream registered as"
)


@dataclass(frozen=True, slots=True)
class ColumnInfo:
    """One column as stored. ``comment`` describes it, with its unit."""

    name: str
    type: str
    comment: str


@dataclass(frozen=True, slots=True)
class TableInfo:
    """One table in its newest version. ``version`` counts its commits."""

    name: str
    location: str
    version: int
    rows: int
    files: int
    bytes: int
    description: str
    columns: tuple[ColumnInfo, ...]


def tables(folder: Path, names: Iterable[str] = TABLES, *, storage: str | None = None) -> list[TableInfo]:
    """Return those of the named tables that exist; none when shore never ran. A customer's own table has the name
    ``customers/<customer>``.

    Raises:
        UnavailableError: a table cannot be opened.
    """
    return [_info(name, delta) for name, delta in _open_all(TablePaths.of(folder, storage), names)]


def view_columns(name: str) -> tuple[ColumnInfo, ...]:
    """Return the columns of a view. A column that an input table has too gets that column's description."""
    view = VIEWS[name]
    known = {column.name: column for table in reversed(view.inputs) for column in TABLES[table].columns}
    with duckdb.connect(":memory:") as connection:
        for table in view.inputs:
            connection.register(table, TABLES[table].plain_schema.empty_table())
        _create_views(connection, name, view.inputs)
        described = connection.sql(f"describe {name}").fetchall()
    return tuple(
        ColumnInfo(column, kind.lower(), known[column].description if column in known else "")
        for column, kind, *_ in described
    )


def table(folder: Path, name: str, *, storage: str | None = None) -> pads.Dataset:
    """Return one table as an Arrow dataset, which pushes filters and columns down to the files.

    Raises:
        UnknownNameError: there is no such table; the error names the nearest.
        ConfigurationError: the name is a view's; ``sql`` reads views.
        UnavailableError: the table does not exist yet, or cannot be opened.
    """
    check_tables([name])
    paths = TablePaths.of(folder, storage)
    delta = open_table(paths, name)
    if delta is None:
        raise missing_table_error(name)
    return delta.to_pyarrow_dataset()


def sql(folder: Path, query: str, *, storage: str | None = None, known: Collection[str] = TABLES) -> pa.Table:
    """Run one SQL query (DuckDB's dialect) over the tables and views (``shore.joins``). Return all rows, times in UTC.

    A column whose name is there already gets a number: ``log``, ``log_1``.

    Args:
        known: All known tables. ``shore.feeds.readers.kept_tables`` adds those of customers, whose names need double
            quotes in a query.

    Raises:
        UnknownNameError: the query names something that is no table or view; the error names the nearest.
        QueryError: DuckDB cannot run the query.
        UnavailableError: a table that the query or its view needs does not exist yet, or cannot be opened.
    """
    paths = TablePaths.of(folder, storage)
    opened = dict(_open_all(paths, _mentioned(query, known))) or dict(_open_all(paths, known))
    if not opened:
        raise no_tables_error(paths)
    with duckdb.connect(":memory:") as connection:
        connection.execute("set timezone = 'UTC'")
        try:
            files = [file for name, delta in opened.items() for file in _register(connection, name, delta, paths)]
            _create_views(connection, query, opened)
            # From here on, queries can read only the registered tables.
            connection.execute("set allowed_paths = $files", {"files": files})
            connection.execute("set python_enable_replacements = false")
            connection.execute("set enable_external_access = false")
            connection.execute("set lock_configuration = true")
            statements = connection.extract_statements(query)
            if len(statements) != 1:
                raise QueryError(
                    f"these are {len(statements)} queries" if statements else "the query is empty",
                    hint="give one select, such as: select * from readings limit 5",
                )
            found = None if statements[0].type in _WRITING else _result(connection, query)
            if found is None:
                raise QueryError(
                    "the statement gives no rows", hint="tables are only written by shore's jobs: use select"
                )
        except duckdb.Error as error:
            raise _explained(str(error), known, opened) from None
    return found.rename_columns(_distinct(found.schema.names))


def rows(result: pa.Table) -> list[dict[str, Any]]:
    """Return the rows of a result as plain Python values."""
    found: list[dict[str, Any]] = result.to_pylist()
    return found


def csv_cell(cell: str) -> str:
    """Return text that a spreadsheet does not run as a formula. Text that begins with ``=``, ``+``, ``-``, ``@``, a tab
    or a carriage return gets a ``'`` before it, because cells hold what devices and terminals have sent."""
    return re.sub(_FORMULA, r"'\1", cell)


def csv_cells(column: pa.Array) -> pa.Array:
    """Return a column of text with ``csv_cell`` applied to each cell."""
    return pc.replace_substring_regex(column, pattern=_FORMULA, replacement=r"'\1")


def _register(connection: duckdb.DuckDBPyConnection, name: str, delta: DeltaTable, paths: TablePaths) -> list[str]:
    """Let queries read a table, and return the files that DuckDB opens for it. Arrow reads a table with partitions,
    whose columns are not in its files."""
    data = delta.to_pyarrow_dataset()
    files = [] if delta.metadata().partition_columns else duckdb_files(paths, name, data)
    if not files:
        connection.register(name, data)
        return []
    connection.execute("create schema if not exists columns")  # the columns of each table: files may lack some
    connection.register("found", data.schema.empty_table())
    connection.execute(f'create table columns."{name}" as select * from found')  # noqa: S608  # our own name
    connection.unregister("found")
    names, relation = ", ".join(f'"{column}"' for column in data.schema.names), of_files(f'columns."{name}"', files)
    connection.execute(f'create temp view "{name}" as select {names} from {relation}')  # noqa: S608
    return files


def _create_views(connection: duckdb.DuckDBPyConnection, query: str, opened: Collection[str]) -> None:
    """Create the views that a query may name, if all their input tables are open."""
    connection.execute(MICROS_IN_DUCKDB)
    for name, view in VIEWS.items():
        if name in query.lower() and set(view.inputs) <= set(opened):
            statement = view.statement.format_map({table: table for table in view.inputs})
            connection.execute(f"create temp view {name} as {statement}")


def _result(connection: duckdb.DuckDBPyConnection, query: str) -> pa.Table | None:
    """Run a query in a thread, so that Ctrl-C ends it. In the main thread DuckDB 2.0.0 notices Ctrl-C itself, and then
    waits for its own threads, which run the query to its end."""

    def to_arrow() -> pa.Table | None:
        relation = connection.sql(query)
        return None if relation is None else relation.to_arrow_table()

    with ThreadPoolExecutor(max_workers=1) as executor:
        running = executor.submit(to_arrow)
        try:
            return running.result()
        except KeyboardInterrupt:
            while not wait([running], timeout=0.1).done:  # a query that has not begun yet is not interrupted
                connection.interrupt()
            raise


def _mentioned(query: str, known: Collection[str]) -> list[str]:
    """Return the tables that a query may read, by their names and those of views on them, because opening all tables
    takes longer than most queries. A query that names none (``show tables``) gets all."""
    text = query.lower()
    of_views = {table for name, view in VIEWS.items() if name in text for table in view.inputs}
    found = [name for name in known if name.lower() in text or name in of_views]
    return found or list(known)


def _open_all(paths: TablePaths, names: Iterable[str]) -> Iterator[tuple[str, DeltaTable]]:
    for name in names:
        delta = open_table(paths, name)
        if delta is not None:
            yield name, delta


def _info(name: str, delta: DeltaTable) -> TableInfo:
    actions = pa.table(delta.get_add_actions(flatten=True))
    sizes = actions["size_bytes"].to_pylist()
    columns = tuple(
        ColumnInfo(f.name, getattr(f.type, "type", str(f.type)), str(f.metadata.get("comment", "")))
        for f in delta.schema().fields
    )
    return TableInfo(
        name=name,
        location=delta.table_uri,
        version=delta.version(),
        rows=sum(actions["num_records"].to_pylist()),
        files=len(sizes),
        bytes=sum(sizes),
        description=delta.metadata().description or "",
        columns=columns,
    )


def _distinct(names: Iterable[str]) -> list[str]:
    """Return the names with ``_1``, ``_2`` behind those that repeat, as DuckDB's data frames have them: a join has the
    columns of both tables, and a row by names would lose one."""
    found: dict[str, None] = {}
    for name in names:
        numbered = (f"{name}_{number}" for number in itertools.count(1))
        found[name if name not in found else next(each for each in numbered if each not in found)] = None
    return list(found)


def _explained(message: str, known: Collection[str], opened: Collection[str]) -> FairleadError:
    """Return the error for a message of DuckDB."""
    if missing := _NO_TABLE.search(message):
        name = missing[1].strip('"').lower()
        if name in known:
            return missing_table_error(name)
        if name in VIEWS:
            return missing_table_error(next(each for each in VIEWS[name].inputs if each not in opened), view=name)
        return UnknownNameError("table", missing[1].strip('"'), [*known, *VIEWS])
    first, _, rest = message.partition("\n")
    if _READING.search(first):
        return unreadable_table_error(first)
    hint = "DuckDB's SQL; 'fairlead tables' lists tables and columns"
    candidates = re.search(r"Candidate bindings: (.+)", rest)
    return QueryError(
        f"the query cannot be run: {first}", hint=f"did you mean {candidates[1]}? {hint}" if candidates else hint
    )
