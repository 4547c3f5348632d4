"""Small parts of tables on the driver: read rows by delta-rs as Arrow tables."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from shore.paths import TablePaths
from shore.tables.model import Table


def open_dataset(paths: TablePaths, table: str) -> Any:
    """Return a table's newest version as an Arrow dataset."""
    return DeltaTable(paths.table(table)).to_pyarrow_dataset()


def rows(paths: TablePaths, table: Table, found: pc.Expression | None = None) -> pa.Table:
    """Return a table's rows, all or those that match a filter, with the columns and types of its definition."""
    names = table.plain_schema.names
    return open_dataset(paths, table.name).to_table(columns=names, filter=found).cast(table.plain_schema)


def is_in(column: str, values: Collection[str]) -> pc.Expression:
    """Return a filter for rows whose text in ``column`` is one of these values; no rows without values."""
    return pc.field(column).isin(pa.array(sorted(values), pa.string()))
