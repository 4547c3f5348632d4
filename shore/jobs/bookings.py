"""Keeping table ``bookings`` equal to the states that follow from ``booking_changes``: a part of job ``voyages``."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

from shore.duck import among, opened, select
from shore.places import Places
from shore.replace import Scope, replace_rows
from shore.tables.bookings import BOOKINGS, STATES


def update(places: Places, references: Collection[str]) -> None:
    """Make the states of these bookings again."""
    if not references:
        return
    changes = opened(places, "booking_changes").to_table(filter=among("booking_reference", references))
    fresh = select(STATES, BOOKINGS.plain_schema, booking_changes=changes)
    replace_rows(places.table(BOOKINGS.name), fresh, Scope("booking_reference", references), key=BOOKINGS.key)


def everything(places: Places) -> pa.Table:
    """The table as it must be."""
    return select(STATES, BOOKINGS.plain_schema, booking_changes=opened(places, "booking_changes"))
