"""The device times for which bookings entitle customers to containers.

A booking entitles its customer and its consignee alike, for the times for which it holds
(``shore.tables.valid_bookings``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shore.tables.valid_bookings import VALID_BOOKINGS, covers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PERIODS: Final = f"""
with held as ({VALID_BOOKINGS})
select customer, equipment_reference, valid_from, valid_to from held
union
select consignee, equipment_reference, valid_from, valid_to from held where consignee <> ''
"""  # noqa: S608  # our own text
"""customer, equipment_reference, valid_from, valid_to (exclusive; null: open), from relation ``bookings``."""

_OF_CUSTOMERS: Final = f"""
select c.customer, c.grain, p.equipment_reference, collect_set(struct(p.valid_from, p.valid_to)) as spans
from (
    select explode(array(customer, consignee)) as customer, equipment_reference, valid_from, valid_to
    from ({VALID_BOOKINGS})
) p
join {{customers}} c on c.customer = p.customer
where c.grain not in ('movements', 'alerts')
group by all
"""  # noqa: S608


def periods(bookings: DataFrame, customers: DataFrame) -> DataFrame:
    """Return the times for which customers may see containers, one row per customer and container.

    Args:
        bookings: All states of each of the bookings.
        customers: ``customer`` and ``grain``. Customers with a feed of movements or alerts need no booking
            and have no times.

    Returns:
        ``customer``, ``grain``, ``equipment_reference``, ``spans`` (an array of ``valid_from``, ``valid_to``), already
        computed and held by the executors, since all later steps use them.
    """
    return bookings.sparkSession.sql(_OF_CUSTOMERS, bookings=bookings, customers=customers).localCheckpoint()


def covered(time: str) -> str:
    """Return the SQL condition that a time lies in one of the spans of ``p``, a row of ``periods``."""
    return f"exists(p.spans, span -> {covers('span', time)})"
