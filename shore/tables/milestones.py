"""Table ``milestones``: what happened to each container under each booking. Computed from ``events`` and ``bookings``.

An event belongs to the booking that it names. One that names none belongs to every booking of the container that holds
at its time (``shore.tables.valid_bookings``). Events under no booking are no milestones; ``dock_movements`` has them.

Two milestones are derived, both from a LOAD and what happened to the container under the same booking before it:
TRANSHIPMENT where the last thing was a DISC, CHANGE_OF_VESSEL where the ship before was another one. A container that
is put ashore and back onto the same ship has the first only; one whose DISC was never told has the second only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from shore.tables.model import TIME, Column, Table
from shore.tables.operations import COPIES, HAPPENED
from shore.tables.valid_bookings import VALID_BOOKINGS, covers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TEXT = pa.string()

MILESTONES = Table(
    name="milestones",
    title="Milestones of containers under their bookings",
    columns=(
        Column("equipment_reference", _TEXT, "ISO 6346 container number"),
        Column("booking_reference", _TEXT, "Booking"),
        Column("transport_document_reference", _TEXT, "Its transport document (B/L), as known now; null: none"),
        Column(
            "milestone",
            _TEXT,
            "DCSA code GTIN, LOAD, DISC, GTOT; TRANSHIPMENT (loaded again after a DISC) and CHANGE_OF_VESSEL (loaded "
            "onto another ship than before)",
        ),
        Column("event_date_time", TIME, "When it happened; of a derived milestone, the time of its LOAD"),
        Column("un_location_code", _TEXT, "UN/LOCODE of the event, else of the site that published it; null at sea"),
        Column("vessel_imo_number", _TEXT, "Ship involved; null at a gate"),
        Column("vessel", _TEXT, "Its name in the topology; null for a stranger"),
        Column("from_vessel_imo_number", _TEXT, "Derived milestones: the ship before"),
        Column("from_vessel", _TEXT, "Its name in the topology; null for a stranger"),
        Column("voyage_reference", _TEXT, "Voyage"),
        Column("publisher", _TEXT, "Who says it"),
        Column("event_id", _TEXT, "DCSA eventID; of a derived milestone, that of its LOAD"),
        Column(
            "dwell_hours",
            pa.float64(),
            "LOAD and GTOT: since the GTIN or DISC in the same port, if nothing was told between; else null",
            "h",
        ),
        Column(
            "long_dwell",
            pa.bool_(),
            "Whether `dwell_hours` is more than the topology's `shore.exceptions.dwell_hours`. False while the "
            "container is still in the port: no event tells how long it has been there",
        ),
    ),
    key=("equipment_reference", "booking_reference", "event_id", "milestone"),
    grain="One row per container, booking and milestone.",
    late="All milestones of the containers that new events and changes of bookings are about are made again, however "
    "late those come.",
    layout="Clustered by container and booking: some rows a journey.",
    cluster_by=("equipment_reference", "booking_reference"),
)

# SQL window: what happened to a container under one booking, in order.
_JOURNEY: Final = """partition by equipment_reference, booking_reference
    order by event_date_time, event_created_date_time, event_id"""


def long_dwell(dwell_hours: int) -> str:
    """Return the SQL condition that the container of a row stayed longer than so many hours."""
    return f"coalesce(dwell_hours > {dwell_hours}, false)"


def milestones_sql(dwell_hours: int) -> str:
    """Return the statement over ``{events}``, ``{bookings}`` and ``{sites}``, for Spark and DuckDB."""
    return f"""
with periods as ({VALID_BOOKINGS}),
copies as (
    select *, row_number() over (partition by equipment_reference, event_id order by {COPIES}) as copy
    from {{events}}
    where problem is null and {HAPPENED}
        and equipment_event_type_code is not null and equipment_reference is not null
),
moves as (
    select
        e.equipment_reference,
        coalesce(nullif(e.booking_reference, ''), p.booking_reference) as booking_reference,
        e.equipment_event_type_code as movement,
        e.event_date_time,
        e.event_created_date_time,
        coalesce(e.un_location_code, s.un_location_code) as un_location_code,
        e.vessel_imo_number,
        e.voyage_reference,
        e.publisher,
        e.event_id
    from copies e
    left join periods p on nullif(e.booking_reference, '') is null
        and p.equipment_reference = e.equipment_reference and {covers("p", "e.event_date_time")}
    left join {{sites}} s on e.log = 'events.' || s.site
    where e.copy = 1 and coalesce(nullif(e.booking_reference, ''), p.booking_reference) is not null
),
stays as (
    select *, case
        when movement in ('LOAD', 'GTOT') and lag(movement) over journey in ('GTIN', 'DISC')
            and lag(un_location_code) over journey = un_location_code
        then (unix_micros(event_date_time) - unix_micros(lag(event_date_time) over journey)) / 3.6e9
    end as dwell_hours
    from moves
    window journey as ({_JOURNEY})
),
handled as (
    select *, count(vessel_imo_number) over (
        {_JOURNEY} rows between unbounded preceding and current row
    ) as ships
    from moves
    where movement in ('LOAD', 'DISC')
),
carried as (
    select *, max(vessel_imo_number) over (partition by equipment_reference, booking_reference, ships) as carrier
    from handled
),
followed as (
    select equipment_reference, booking_reference, event_id,
        lag(movement) over journey as before,
        lag(carrier) over journey as from_vessel_imo_number
    from carried
    window journey as ({_JOURNEY})
),
told as (
    select s.*, movement as milestone, cast(null as string) as from_vessel_imo_number from stays s
    union all
    select m.*, cast(null as double), d.milestone, f.from_vessel_imo_number
    from moves m
    join followed f on f.equipment_reference = m.equipment_reference and f.booking_reference = m.booking_reference
        and f.event_id = m.event_id
    cross join (values ('TRANSHIPMENT'), ('CHANGE_OF_VESSEL')) as d(milestone)
    where m.movement = 'LOAD' and case d.milestone
        when 'TRANSHIPMENT' then f.before = 'DISC'
        else m.vessel_imo_number <> f.from_vessel_imo_number end
)
select
    t.equipment_reference,
    t.booking_reference,
    b.transport_document_reference,
    t.milestone,
    t.event_date_time,
    t.un_location_code,
    t.vessel_imo_number,
    v.title as vessel,
    t.from_vessel_imo_number,
    w.title as from_vessel,
    t.voyage_reference,
    t.publisher,
    t.event_id,
    t.dwell_hours,
    {long_dwell(dwell_hours)} as long_dwell
from told t
left join {{bookings}} b on b.is_current and b.booking_reference = t.booking_reference
    and b.equipment_reference = t.equipment_reference
left join {{sites}} v on v.kind = 'ship' and v.vessel_imo_number = t.vessel_imo_number
left join {{sites}} w on w.kind = 'ship' and w.vessel_imo_number = t.from_vessel_imo_number
"""  # noqa: S608  # constants of this package


def milestones(events: DataFrame, bookings: DataFrame, sites: DataFrame, dwell_hours: int) -> DataFrame:
    """Return the milestones of containers.

    Args:
        events: All events of each of its containers.
        bookings: All states of all bookings of these containers.
        sites: All sites of the topology: the names of ships, and the ports of events that name none.
        dwell_hours: A stay in a port is long from so many hours on.
    """
    statement = milestones_sql(dwell_hours)
    found: DataFrame = events.sparkSession.sql(statement, events=events, bookings=bookings, sites=sites)
    return found
