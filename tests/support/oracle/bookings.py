"""Table ``bookings`` by DuckDB, for ``fairlead shore verify``, ``backfill`` and ``rebuild``."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from shore.delta.datasets import open_dataset, select
from shore.paths import TablePaths
from shore.tables.bookings import BOOKINGS, STATES


def everything(paths: TablePaths) -> pa.Table:
    """The table as it must be."""
    return states(open_dataset(paths, "booking_changes"))


def states(changes: Any) -> pa.Table:
    """The states that follow from changes: an Arrow table or dataset, with all changes of each of its bookings."""
    return select(STATES, BOOKINGS.plain_schema, booking_changes=changes)
