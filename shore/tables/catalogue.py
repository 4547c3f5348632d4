"""List all tables by name, and the job that keeps each."""

from __future__ import annotations

from shore.tables.alerts_ashore import ALERTS_ASHORE
from shore.tables.alerts_now import ALERTS_NOW
from shore.tables.bookings import BOOKINGS
from shore.tables.cold_treatments import COLD_TREATMENTS
from shore.tables.conditions import CONDITIONS
from shore.tables.containers_now import CONTAINERS_NOW
from shore.tables.custody import CUSTODY
from shore.tables.dock_movements import DOCK_MOVEMENTS
from shore.tables.excursions import EXCURSION_PARTS, EXCURSIONS
from shore.tables.feeds import FEEDS
from shore.tables.geofence_visits import GEOFENCE_VISITS
from shore.tables.itineraries import PORT_CALLS, VOYAGES
from shore.tables.milestones import MILESTONES
from shore.tables.mkt import MKT
from shore.tables.model import Table
from shore.tables.operations import ALERTS, BOOKING_CHANGES, CUSTODY_ENTRIES, DIGESTS, ENVIRONMENT, EVENTS, POSITIONS
from shore.tables.outlook import OUTLOOK
from shore.tables.quality import QUALITY
from shore.tables.readings import READINGS, READINGS_REJECTED
from shore.tables.reference import GEOFENCES, OWNERS, SITES
from shore.tables.schedules import SCHEDULES
from shore.tables.shipments import SHIPMENTS
from shore.tables.ships_now import SHIPS_NOW

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        READINGS,
        READINGS_REJECTED,
        CONDITIONS,
        EXCURSIONS,
        EXCURSION_PARTS,
        MKT,
        OUTLOOK,
        COLD_TREATMENTS,
        ALERTS,
        ALERTS_ASHORE,
        ALERTS_NOW,
        EVENTS,
        POSITIONS,
        ENVIRONMENT,
        DIGESTS,
        BOOKING_CHANGES,
        BOOKINGS,
        MILESTONES,
        SHIPMENTS,
        CUSTODY,
        CUSTODY_ENTRIES,
        CONTAINERS_NOW,
        PORT_CALLS,
        VOYAGES,
        GEOFENCE_VISITS,
        SCHEDULES,
        SHIPS_NOW,
        DOCK_MOVEMENTS,
        QUALITY,
        FEEDS,
        SITES,
        OWNERS,
        GEOFENCES,
    )
}

KEPT_BY: dict[str, tuple[str, ...]] = {
    "readings": ("readings", "readings_rejected"),
    "operations": (
        "alerts",
        "events",
        "positions",
        "environment",
        "digests",
        "booking_changes",
        "custody_entries",
    ),
    "histories": ("bookings", "custody", "milestones", "shipments", "schedules"),
    "ships": ("dock_movements", "port_calls", "voyages", "geofence_visits", "ships_now"),
    "conditions": ("conditions", "excursions", "excursion_parts", "mkt", "outlook"),
    "alerts": ("alerts_ashore",),
    "alerts_now": ("alerts_now",),
    "feeds": ("feeds",),
    "containers_now": ("containers_now", "cold_treatments"),
    "quality": ("quality",),
}
"""The tables that each job keeps. ``sites``, ``owners`` and ``geofences`` are not here: every run writes them from the
topology."""
_JOBS = {table: job for job, tables in KEPT_BY.items() for table in tables} | dict.fromkeys(
    ("sites", "owners", "geofences"), "ships"
)


def job_of(table: str) -> str:
    """Return the job that keeps a table."""
    return _JOBS[table]
