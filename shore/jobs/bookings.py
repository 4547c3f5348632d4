"""Keeping table ``bookings`` equal to the states that follow from ``booking_changes``: a part of job ``voyages``."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pyarrow as pa

from shore.delta.datasets import is_in, open_dataset, select
from shore.delta.write import ReplaceScope, replace_rows
from shore.paths import TablePaths
from shore.tables.bookings import BOOKINGS, STATES


def update(paths: TablePaths, references: Collection[str]) -> None:
    """Make the states of these bookings again."""
    if not references:
        return
    changes = open_dataset(paths, "booking_changes").to_table(filter=is_in("booking_reference", references))
    replace_rows(
        paths.table(BOOKINGS.name), states(changes), ReplaceScope("booking_reference", references), key=BOOKINGS.key
    )


def everything(paths: TablePaths) -> pa.Table:
    """The table as it must be."""
    return states(open_dataset(paths, "booking_changes"))


def states(changes: Any) -> pa.Table:
    """The states that follow from changes: an Arrow table or dataset, with all changes of each of its bookings."""
    return select(STATES, BOOKINGS.plain_schema, booking_changes=changes)
