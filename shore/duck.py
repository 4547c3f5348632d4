"""One SQL statement over Arrow relations, by DuckDB on the driver: how small scopes of tables are computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import duckdb
import pyarrow as pa


def select(statement: str, schema: pa.Schema, **relations: Any) -> pa.Table:
    """Run a statement that names its relations in braces, as Spark's ``sql`` wants them too, and no others.

    Args:
        relations: Arrow tables or datasets by name.

    Returns:
        All rows, with the columns and types of ``schema``. Times are UTC.
    """
    with duckdb.connect(":memory:") as connection:
        connection.execute("set timezone = 'UTC'")
        connection.execute("create macro unix_micros(t) as epoch_us(t)")  # Spark's name for it
        for name, relation in relations.items():
            connection.register(name, relation)
        found: pa.Table = connection.sql(statement.format_map(_names(relations))).to_arrow_table()
    return found.select(schema.names).cast(schema)


def _names(relations: Mapping[str, Any]) -> dict[str, str]:
    return {name: name for name in relations}
