"""Compute tables ``milestones`` and ``shipments`` by DuckDB."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from shore.delta.datasets import open_dataset
from shore.jobs.histories import LIMITS
from shore.jobs.reference import stored
from shore.paths import TablePaths
from shore.tables import shipments as of_shipments
from shore.tables.milestones import MILESTONES, milestones_sql
from shore.tables.reference import SITES
from shore.tables.shipments import SHIPMENTS
from tests.support.oracle import bookings
from tests.support.oracle.sql import select
from topologies.model import Exceptions


def everything(paths: TablePaths, limits: Exceptions = LIMITS) -> pa.Table:
    """Return table ``milestones`` as it must be."""
    return milestones(open_dataset(paths, "events"), bookings.everything(paths), stored(paths, SITES), limits)


def shipments(paths: TablePaths) -> pa.Table:
    """Return table ``shipments`` as it must be."""
    return shipments_of(everything(paths), bookings.everything(paths))


def milestones(events: Any, states: Any, sites: Any, limits: Exceptions = LIMITS) -> pa.Table:
    """Return the milestones in events, under bookings with all of their states."""
    statement = milestones_sql(limits.dwell_hours)
    return select(statement, MILESTONES.plain_schema, events=events, bookings=states, sites=sites)


def shipments_of(told: Any, states: Any) -> pa.Table:
    """Return how far bookings are, from their milestones and states."""
    return select(of_shipments.STATEMENT, SHIPMENTS.plain_schema, milestones=told, bookings=states)
