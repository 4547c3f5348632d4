"""Compute table ``bookings`` by DuckDB."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from shore.delta.datasets import open_dataset
from shore.paths import TablePaths
from shore.tables.bookings import BOOKINGS, STATES
from tests.support.oracle.sql import select


def everything(paths: TablePaths) -> pa.Table:
    """Return the table as it must be."""
    return states(open_dataset(paths, "booking_changes"))


def states(changes: Any) -> pa.Table:
    """Return the states of bookings, from an Arrow table or dataset with all changes of each of them."""
    return select(STATES, BOOKINGS.plain_schema, booking_changes=changes)
