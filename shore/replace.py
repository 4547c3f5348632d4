"""Replacing rows of a table by what was made again from other tables, in one commit and without Spark.

Derived tables are kept so: whatever new rows touch (the hours of a box, the intervals of a log) is computed again as a
whole from the tables it follows from, and replaces what was there. Doing it twice gives the same table, so a repeated
batch, a crash between two writes and late data are no special cases.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection
from dataclasses import dataclass

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

_RFC3339 = "%Y-%m-%dT%H:%M:%S.%fZ"


@dataclass(frozen=True, slots=True)
class Scope:
    """Which rows are made again: those whose ``column`` has one of ``values``, and, where ``time`` names a column,
    whose time there is in [``since``, ``until``). A bound that is None is open."""

    column: str
    values: Collection[str]
    time: str | None = None
    since: dt.datetime | None = None
    until: dt.datetime | None = None

    @property
    def predicate(self) -> str:
        """The scope as Delta's SQL."""
        quoted = ", ".join("'" + value.replace("'", "''") + "'" for value in sorted(self.values))
        parts = [f"{self.column} in ({quoted})"]
        if self.time is not None and self.since is not None:
            parts.append(f"{self.time} >= '{self.since:{_RFC3339}}'")
        if self.time is not None and self.until is not None:
            parts.append(f"{self.time} < '{self.until:{_RFC3339}}'")
        return " and ".join(parts)


def replace_rows(location: str, fresh: pa.Table, scope: Scope, *, key: Collection[str]) -> None:
    """Make the table's rows within ``scope`` equal to ``fresh``, in one commit; other rows stay as they are.

    Args:
        fresh: All rows that the scope is to have, none outside it (delta-rs refuses the commit otherwise).
        key: Columns to sort by, so that files prune well.
    """
    if not scope.values:
        return
    rows = fresh.sort_by([(name, "ascending") for name in key])
    write_deltalake(DeltaTable(location), rows, mode="overwrite", predicate=scope.predicate)
