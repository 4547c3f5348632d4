"""When bookings entitle: device times by customer and container, as SQL over the states of bookings.

A booking (its reference and container together) entitles by its newest state that is not cancelled, from ``valid_from``
until ``valid_to``, its customer and its consignee alike, less the times that later cancellations name: a cancellation
takes away its own ``valid_from`` to ``valid_to``. So one that repeats the booking's times undoes all of it, one from
now on leaves what was before.
"""

from __future__ import annotations

from typing import Final

from shore.tables.bookings import STATES

NUMBERED: Final = f"""
select *,
    row_number() over (
        partition by booking_reference, equipment_reference order by recorded_from nulls first, log, log_offset
    ) as number
from ({STATES.format(booking_changes="booking_changes")})
"""  # noqa: S608  # constants of this package
"""The states of bookings with their place in each booking's history, which relation ``states`` is made of."""

PERIODS: Final = """
with confirmed as (
    select * from states
    where status <> 'CANCELLED'
    qualify number = max(number) over (partition by booking_reference, equipment_reference)
),
cancelled as (
    select s.booking_reference, s.equipment_reference, s.valid_from, s.valid_to
    from states s
    join confirmed c using (booking_reference, equipment_reference)
    where s.number > c.number and (s.valid_to is null or s.valid_to > s.valid_from)
),
beginnings as (
    select booking_reference, equipment_reference, valid_from as begins from confirmed
    union
    select booking_reference, equipment_reference, valid_to from cancelled where valid_to is not null
),
slices as (
    select
        c.customer, c.consignee,
        b.equipment_reference,
        b.begins as valid_from,
        least(
            c.valid_to,
            (
                select min(x.valid_from) from cancelled x
                where x.booking_reference = b.booking_reference and x.equipment_reference = b.equipment_reference
                    and x.valid_from > b.begins
            )
        ) as valid_to
    from beginnings b
    join confirmed c using (booking_reference, equipment_reference)
    where b.begins >= c.valid_from and (c.valid_to is null or b.begins < c.valid_to)
        and not exists (
            select 1 from cancelled x
            where x.booking_reference = b.booking_reference and x.equipment_reference = b.equipment_reference
                and b.begins >= x.valid_from and (x.valid_to is null or b.begins < x.valid_to)
        )
)
select customer, equipment_reference, valid_from, valid_to from slices
union
select consignee, equipment_reference, valid_from, valid_to from slices where consignee <> ''
"""
"""customer, equipment_reference, valid_from, valid_to (exclusive; null: open), from relation ``states``."""


def covers(period: str, time: str) -> str:
    """The condition that a time lies in a period."""
    return f"{time} >= {period}.valid_from and ({period}.valid_to is null or {time} < {period}.valid_to)"
