"""The rows that can still be compared where retention has deleted rows (``shore.maintenance.kept_since``).

The same rows are left out on both sides: of the table and of what the logs or its inputs give. A row of a derived table
stays for longer than the rows that it follows from, where the retention of its table is longer. It can be compared
where all that it follows from is still there (``Derived.reach``).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from shore.maintenance import TIMES, kept_since, wholly_before
from shore.paths import TablePaths
from shore.tables.graph import Derived

Kept = Mapping[str, dt.datetime]
"""``kept_since`` of the tables of which retention has deleted rows."""


def kept_of(paths: TablePaths, tables: Iterable[str]) -> dict[str, dt.datetime]:
    """Return ``Kept`` of these tables. What it says holds for versions that were fixed before (``Lake.fixed``).

    Raises:
        UnavailableError: the storage does not answer.
    """
    found = {name: kept_since(paths, name) for name in tables if name in TIMES}
    return {name: since for name, since in found.items() if since is not None}


def is_gone(table: str, since: dt.datetime) -> Column:
    """Return the condition (true or false) that retention may have deleted a row of a table."""
    return F.coalesce(wholly_before(table, since), F.lit(False))


def kept_rows(table: str, rows: DataFrame, kept: Kept) -> DataFrame:
    """Return the rows of a table that its own retention has not deleted."""
    return rows.where(~is_gone(table, kept[table])) if table in kept else rows


def whole_since(derived: Derived, kept: Kept) -> dt.datetime | None:
    """Return the time from which on all that the rows of a table follow from is still there, by the column of
    ``Derived.reach``; None where nothing was deleted, or where ``forgotten`` names inputs.

    Where longer windows follow from shorter ones in the same table, its own limit counts, too.
    """
    if derived.reach is None:
        return None
    limits = [kept[name] + derived.reach[1] for name in derived.inputs if name in kept]
    if derived.of_itself and derived.table.name in kept:
        limits.append(kept[derived.table.name])
    return max(limits, default=None)


def comparable(derived: Derived, rows: DataFrame, kept: Kept) -> DataFrame:
    """Return those of a table's rows, stored or computed, that can be compared."""
    rows = kept_rows(derived.table.name, rows, kept)
    since = whole_since(derived, kept)
    return rows.where(F.col(derived.reach[0]) >= F.lit(since)) if since is not None and derived.reach else rows


def forgotten(derived: Derived, kept: Kept) -> str:
    """Return why a table can no longer be compared with its inputs, or made again from them; empty where it can."""
    gone = [name for name in derived.inputs if name in kept] if derived.reach is None else []
    return f"retention has deleted rows of {' and '.join(gone)} from which it follows" if gone else ""
