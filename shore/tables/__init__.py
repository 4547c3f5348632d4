"""The Delta tables: their columns with units and comments, keys, grain, late-data rules and layout.

In: nothing; these modules are definitions, and the SQL or parsing that fills a table from records. Out: empty tables in
a folder or at a storage URL (``shore.tables.model.Table.create``), and ``TABLES``, by which jobs, readers and
``docs/tables/`` know them.

Every Python process that Spark starts imports a part of this package. The tables' own modules (with DuckDB, and the
model of topologies) come with ``TABLES`` only, when somebody wants them: they are half of what such a process imports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shore.tables.catalogue import TABLES
    from shore.tables.model import Column, Table

__all__ = ["TABLES", "Column", "Table"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from shore.tables import catalogue, model

    return getattr(catalogue if name == "TABLES" else model, name)
