"""Define the Delta tables: columns with units and comments, keys, grain, late-data rules and layout.

The modules hold definitions, and the SQL or the parser that fills a table from records.
``shore.delta.commit.create_tables`` creates empty tables from them. Jobs, readers and ``docs/tables/`` find them
through ``TABLES``.

Every Python process that Spark starts imports a part of this package. ``TABLES`` is therefore lazy: the tables' own
modules (with the model of topologies) are half of what such a process would import.
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
