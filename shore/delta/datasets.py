"""Tables without a JVM: delta-rs opens them as Arrow datasets, and DuckDB reads files of this machine itself.

Arrow decodes whole row groups to find rows. DuckDB needs a tenth of the CPU.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
from deltalake import DeltaTable

from shore.paths import TablePaths
from shore.tables.model import Table

_PATTERN: Final = re.compile(r"[*?\[]")  # DuckDB takes a path with one of these for a pattern


def open_dataset(paths: TablePaths, table: str) -> Any:
    """Return a table's newest version as an Arrow dataset."""
    return DeltaTable(paths.table(table)).to_pyarrow_dataset()


def rows(paths: TablePaths, table: Table) -> pa.Table:
    """Return a table's rows, with the columns and types of its definition."""
    return open_dataset(paths, table.name).to_table(columns=table.plain_schema.names).cast(table.plain_schema)


def duckdb_files(paths: TablePaths, name: str, data: pads.Dataset, found: pc.Expression | None = None) -> list[str]:
    """Return the files of a table that may have rows for a filter, if DuckDB can open them by their paths. Return none
    for tables that are elsewhere, or whose paths are patterns to DuckDB."""
    location = paths.table(name)
    if not paths.is_local or _PATTERN.search(location):
        return []
    return [f"{location}/{each.path}" for each in data.get_fragments(found)]


def of_files(columns: str, files: Iterable[str]) -> str:
    """Return the relation of all rows of Parquet files, in DuckDB's SQL.

    Args:
        columns: A relation without rows. It has the columns that files may lack, and their types.
    """
    listed = ", ".join("'" + file.replace("'", "''") + "'" for file in files)
    return f"(from {columns} union all by name from read_parquet([{listed}], union_by_name = true))"


def is_in(column: str, values: Collection[str]) -> pc.Expression:
    """Return a filter for rows whose text in ``column`` is one of these values; no rows without values."""
    return pc.field(column).isin(pa.array(sorted(values), pa.string()))
