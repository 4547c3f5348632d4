"""The Delta tables: their columns with units and comments, keys, grain, late-data rules and layout.

In: nothing; these modules are definitions, and the SQL or parsing that fills a table from records. Out: empty tables in
a folder or at a storage URL (``shore.tables.model.Table.create``), and ``TABLES``, by which jobs, readers and
``docs/tables.md`` know them.
"""

from __future__ import annotations

from shore.tables.alerts_ashore import ALERTS_ASHORE
from shore.tables.alerts_now import ALERTS_NOW
from shore.tables.conditions import CONDITIONS
from shore.tables.custody import CUSTODY
from shore.tables.feeds import FEEDS
from shore.tables.model import Column, Table
from shore.tables.operations import ALERTS, BOOKINGS, CUSTODY_ENTRIES, EVENTS, POSITIONS
from shore.tables.readings import READINGS, READINGS_REJECTED

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        READINGS,
        READINGS_REJECTED,
        CONDITIONS,
        ALERTS,
        ALERTS_ASHORE,
        ALERTS_NOW,
        EVENTS,
        POSITIONS,
        BOOKINGS,
        CUSTODY,
        CUSTODY_ENTRIES,
        FEEDS,
    )
}

__all__ = ["TABLES", "Column", "Table"]
