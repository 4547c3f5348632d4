"""Small parts of tables on the driver: read rows by delta-rs as Arrow tables, and run SQL over them by DuckDB."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from shore.paths import TablePaths
from shore.tables.bands import MICROS_IN_DUCKDB
from shore.tables.model import TIME, Table


def open_dataset(paths: TablePaths, table: str) -> Any:
    """Return a table's newest version as an Arrow dataset."""
    return DeltaTable(paths.table(table)).to_pyarrow_dataset()


def rows(paths: TablePaths, table: Table, found: pc.Expression | None = None) -> pa.Table:
    """Return a table's rows, all or those that match a filter, with the columns and types of its definition."""
    names = table.plain_schema.names
    return open_dataset(paths, table.name).to_table(columns=names, filter=found).cast(table.plain_schema)


def between(column: str, since: dt.datetime, until: dt.datetime) -> pc.Expression:
    """Return a filter for rows whose time in ``column`` is in [``since``, ``until``)."""
    return (pc.field(column) >= pa.scalar(since, TIME)) & (pc.field(column) < pa.scalar(until, TIME))


def is_in(column: str, values: Collection[str]) -> pc.Expression:
    """Return a filter for rows whose text in ``column`` is one of these values; no rows without values."""
    return pc.field(column).isin(pa.array(sorted(values), pa.string()))


def select(statement: str, schema: pa.Schema, **relations: Any) -> pa.Table:
    """Run a SQL statement that names its relations in braces, as Spark's ``sql`` does.

    Args:
        relations: Arrow tables or datasets by name; the statement can use no others.

    Returns:
        All rows, with the columns and types of ``schema``. Times are UTC.
    """
    with _database().cursor() as connection:
        connection.execute("set timezone = 'UTC'")
        for name, relation in relations.items():
            connection.register(name, relation)
        found: pa.Table = connection.sql(statement.format_map(_names(relations))).to_arrow_table()
    return found.select(schema.names).cast(schema)


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """Open the process's one database: that takes longer than most statements. Each cursor has its own relations."""
    found = duckdb.connect(":memory:")
    found.execute(MICROS_IN_DUCKDB)
    return found


def _names(relations: Mapping[str, Any]) -> dict[str, str]:
    return {name: name for name in relations}
