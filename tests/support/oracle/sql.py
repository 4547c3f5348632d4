"""Run the tables' SQL over Arrow tables and datasets by DuckDB."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from shore.tables.bands import MICROS_IN_DUCKDB
from shore.tables.model import TIME


def between(column: str, since: dt.datetime, until: dt.datetime) -> pc.Expression:
    """Return a filter for rows whose time in ``column`` is in [``since``, ``until``)."""
    return (pc.field(column) >= pa.scalar(since, TIME)) & (pc.field(column) < pa.scalar(until, TIME))


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
