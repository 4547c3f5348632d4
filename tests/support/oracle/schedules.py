"""Compute table ``schedules`` by DuckDB."""

from __future__ import annotations

import pyarrow as pa

from shore.delta.datasets import open_dataset, select
from shore.jobs.reference import stored
from shore.paths import TablePaths
from shore.tables.reference import SITES
from shore.tables.schedules import SCHEDULES, STATEMENT


def everything(paths: TablePaths) -> pa.Table:
    """Return the table as it must be."""
    return select(STATEMENT, SCHEDULES.plain_schema, events=open_dataset(paths, "events"), sites=stored(paths, SITES))
