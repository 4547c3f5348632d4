"""Compute table ``schedules`` by DuckDB."""

from __future__ import annotations

import pyarrow as pa

from shore.delta.datasets import open_dataset
from shore.jobs.histories import LIMITS
from shore.jobs.reference import stored
from shore.paths import TablePaths
from shore.tables.reference import SITES
from shore.tables.schedules import SCHEDULES, schedules_sql
from tests.support.oracle.sql import select
from topologies.model import Exceptions


def everything(paths: TablePaths, limits: Exceptions = LIMITS) -> pa.Table:
    """Return the table as it must be."""
    statement, events = schedules_sql(limits.eta_hours), open_dataset(paths, "events")
    return select(statement, SCHEDULES.plain_schema, events=events, sites=stored(paths, SITES))
