"""The oracles of this package by table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import pyarrow as pa

from shore.paths import TablePaths
from tests.support.oracle import bookings, conditions, custody, dock_movements, milestones, now, schedules, ships

ORACLES: Final[Mapping[str, Callable[[TablePaths], pa.Table]]] = {
    "bookings": bookings.everything,
    "custody": custody.everything,
    "milestones": milestones.everything,
    "shipments": milestones.shipments,
    "schedules": schedules.everything,
    "dock_movements": dock_movements.everything,
    "port_calls": ships.port_calls,
    "voyages": ships.voyages,
    "geofence_visits": ships.geofence_visits,
    "ships_now": ships.ships_now,
    "conditions": conditions.conditions,
    "mkt": conditions.mkt,
    "excursion_parts": conditions.excursion_parts,
    "excursions": conditions.excursions,
    "containers_now": now.containers_now,
    "alerts_now": now.alerts_now,
    "quality": now.quality,
}
