"""All tables by name."""

from __future__ import annotations

from shore.tables.alerts_ashore import ALERTS_ASHORE
from shore.tables.alerts_now import ALERTS_NOW
from shore.tables.bookings import BOOKINGS
from shore.tables.conditions import CONDITIONS
from shore.tables.containers_now import CONTAINERS_NOW
from shore.tables.custody import CUSTODY
from shore.tables.dock_movements import DOCK_MOVEMENTS
from shore.tables.excursions import EXCURSION_PARTS, EXCURSIONS
from shore.tables.feeds import FEEDS
from shore.tables.mkt import MKT
from shore.tables.model import Table
from shore.tables.operations import ALERTS, BOOKING_CHANGES, CUSTODY_ENTRIES, ENVIRONMENT, EVENTS, POSITIONS
from shore.tables.port_calls import PORT_CALLS
from shore.tables.quality import QUALITY
from shore.tables.readings import READINGS, READINGS_REJECTED
from shore.tables.reference import OWNERS, SITES
from shore.tables.voyages import VOYAGES

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        READINGS,
        READINGS_REJECTED,
        CONDITIONS,
        EXCURSIONS,
        EXCURSION_PARTS,
        MKT,
        ALERTS,
        ALERTS_ASHORE,
        ALERTS_NOW,
        EVENTS,
        POSITIONS,
        ENVIRONMENT,
        BOOKING_CHANGES,
        BOOKINGS,
        CUSTODY,
        CUSTODY_ENTRIES,
        CONTAINERS_NOW,
        PORT_CALLS,
        VOYAGES,
        DOCK_MOVEMENTS,
        QUALITY,
        FEEDS,
        SITES,
        OWNERS,
    )
}
