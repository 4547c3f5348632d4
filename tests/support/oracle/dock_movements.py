"""Compute table ``dock_movements`` by DuckDB."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from shore.delta.datasets import open_dataset
from shore.jobs.reference import stored
from shore.paths import TablePaths
from shore.tables.dock_movements import DOCK_MOVEMENTS, MOVEMENTS
from shore.tables.reference import OWNERS, SITES
from tests.support.oracle.sql import select


def everything(paths: TablePaths) -> pa.Table:
    """Return the table as it must be."""
    return _rows(paths, open_dataset(paths, "events"))


def _rows(paths: TablePaths, events: Any) -> pa.Table:
    sites, owners = stored(paths, SITES), stored(paths, OWNERS)
    return select(MOVEMENTS, DOCK_MOVEMENTS.plain_schema, events=events, sites=sites, owners=owners)
