"""When bookings entitle: device times by customer and container, as SQL over the states of bookings.

A booking entitles its customer and its consignee alike, for the times for which it holds
(``shore.tables.valid_bookings``).
"""

from __future__ import annotations

from typing import Final

from shore.tables.valid_bookings import VALID_BOOKINGS

PERIODS: Final = f"""
with held as ({VALID_BOOKINGS})
select customer, equipment_reference, valid_from, valid_to from held
union
select consignee, equipment_reference, valid_from, valid_to from held where consignee <> ''
"""  # noqa: S608  # our own text
"""customer, equipment_reference, valid_from, valid_to (exclusive; null: open), from relation ``bookings``."""
