"""When bookings hold: the one rule for cancelled bookings, as SQL over the states of bookings, for Spark and DuckDB.

A booking (its reference and container together) holds as its newest state that is not cancelled says: from
``valid_from`` until ``valid_to``, minus the times of later cancellations. A cancellation removes its own ``valid_from``
to ``valid_to``. One that repeats the booking's times undoes all of it; one that begins now keeps the time before.
"""

from __future__ import annotations

from typing import Final

from shore.tables.bookings import BOOKINGS

_BOOKING: Final = "booking_reference, equipment_reference"
_OF_THE_CUT: Final = ("recorded_to", "is_current", "valid_from", "valid_to")  # of the state alone, or recomputed here

COLUMNS: Final = tuple(column.name for column in BOOKINGS.columns if column.name not in _OF_THE_CUT)
"""The columns of ``bookings`` that each period of a booking takes from its state."""

VALID_BOOKINGS: Final = f"""
with numbered as (
    select *, row_number() over (
        partition by {_BOOKING} order by recorded_from nulls first, log, log_offset
    ) as number
    from {{bookings}}
),
placed as (
    select *, max(case when status <> 'CANCELLED' then number end) over (partition by {_BOOKING}) as newest
    from numbered
),
cuts as (
    select {_BOOKING}, valid_from as stops, valid_to as resumes
    from placed
    where number > newest and (valid_to is null or valid_to > valid_from)
    union all
    select {_BOOKING}, valid_to, null from placed where number = newest
),
pieces as (
    select {_BOOKING}, stops,
        max(resumes) over earlier as resumed,
        max(case when resumes is null then 1 else 0 end) over earlier as ended
    from cuts
    window earlier as (
        partition by {_BOOKING} order by stops nulls last, resumes
        rows between unbounded preceding and 1 preceding
    )
)
select {", ".join(f"b.{name}" for name in COLUMNS)},
    greatest(b.valid_from, p.resumed) as valid_from, p.stops as valid_to
from placed b
join pieces p on p.booking_reference = b.booking_reference and p.equipment_reference = b.equipment_reference
where b.number = b.newest and coalesce(p.ended, 0) = 0
    and (p.stops is null or p.stops > greatest(b.valid_from, p.resumed))
"""  # noqa: S608  # constants of this package
"""One row per period for which a booking holds: ``COLUMNS``, ``valid_from``, ``valid_to`` (exclusive; null: open).
Relation ``bookings`` must have all states of each of its bookings. The periods of one booking do not overlap."""


def covers(period: str, time: str) -> str:
    """Return the SQL condition that a time lies in such a period."""
    return f"{time} >= {period}.valid_from and ({period}.valid_to is null or {time} < {period}.valid_to)"
