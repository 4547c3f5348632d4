"""Keeping table ``dock_movements`` equal to what follows from all of ``events``: a part of job ``voyages``."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from shore.delta.datasets import is_in, open_dataset, select
from shore.delta.write import ReplaceScope, replace_rows
from shore.jobs.reference import stored
from shore.paths import TablePaths
from shore.tables.dock_movements import DOCK_MOVEMENTS, MOVEMENTS
from shore.tables.operations import EVENTS
from shore.tables.reference import OWNERS, SITES

_AFTER = dt.timedelta(microseconds=1)


def update(paths: TablePaths, event_ids: Collection[str]) -> pa.Table:
    """Make these events' rows again.

    Returns:
        All copies of the events, as ``events`` has them.
    """
    if not event_ids:
        return EVENTS.plain_schema.empty_table()
    copies: pa.Table = open_dataset(paths, "events").to_table(filter=is_in("event_id", event_ids))
    if not copies.num_rows:
        return copies
    # A row of before has the time of one of the copies, whichever counts now.
    times = pc.min_max(copies["event_date_time"]).as_py()
    scope = ReplaceScope("event_id", event_ids, "event_date_time", times["min"], times["max"] + _AFTER)
    replace_rows(paths.table(DOCK_MOVEMENTS.name), _rows(paths, copies), scope, key=_ORDER)
    return copies


_ORDER = ("un_location_code", "event_date_time", "event_id")


def everything(paths: TablePaths) -> pa.Table:
    """The table as it must be."""
    return _rows(paths, open_dataset(paths, "events"))


def _rows(paths: TablePaths, events: Any) -> pa.Table:
    sites, owners = stored(paths, SITES), stored(paths, OWNERS)
    return select(MOVEMENTS, DOCK_MOVEMENTS.plain_schema, events=events, sites=sites, owners=owners)
