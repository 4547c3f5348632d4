"""Rows that retention has deleted, without a day's wait for it."""

from __future__ import annotations

import datetime as dt

from deltalake import DeltaTable

from shore.maintenance import TIMES, ExpiryStep, _note_kept_since
from shore.paths import TablePaths


def expire_before(paths: TablePaths, table: str, limit: dt.datetime) -> None:
    """Delete the rows of a table whose times are before the limit, and note the limit as retention does."""
    _note_kept_since(paths, ExpiryStep(table, limit, 1))
    DeltaTable(paths.table(table)).delete(f"{TIMES[table][0]} < '{limit.isoformat()}'")
