"""Table ``shipments``: how far each booking of each container is. Computed from ``milestones`` and ``bookings``.

The states, of which the first that applies counts:

- CANCELLED: the booking's newest state says so.
- COMPLETED: the booking says so, or the container left by the gate of the port of discharge after its last LOAD. If the
  booking names no such port, any gate counts once the container has been aboard.
- IN_TRANSIT: it was loaded or discharged.
- SCHEDULED: neither, though it may wait in the yard.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from shore.tables.model import TIME, Column, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TEXT = pa.string()

SHIPMENTS = Table(
    name="shipments",
    title="How far each booking of each container is",
    columns=(
        Column("booking_reference", _TEXT, "Booking"),
        Column("equipment_reference", _TEXT, "ISO 6346 container number"),
        Column("transport_document_reference", _TEXT, "Transport document (B/L); null: none"),
        Column("customer", _TEXT, "Customer"),
        Column("consignee", _TEXT, "Recipient of the goods; null: none"),
        Column("state", _TEXT, "SCHEDULED, IN_TRANSIT, COMPLETED, CANCELLED"),
        Column("port_of_loading", _TEXT, "UN/LOCODE"),
        Column("port_of_discharge", _TEXT, "UN/LOCODE"),
        Column("milestone", _TEXT, "The newest of GTIN, LOAD, DISC, GTOT; null: none yet"),
        Column("milestone_date_time", TIME, "When that was"),
        Column("un_location_code", _TEXT, "Where that was"),
        Column("vessel_imo_number", _TEXT, "Ship that it is aboard now, by its milestones; null ashore"),
        Column("vessel", _TEXT, "Its name in the topology; null for a stranger"),
        Column("loaded_date_time", TIME, "Its first LOAD; null: none yet"),
        Column("discharged_date_time", TIME, "Its last DISC; null: none yet"),
        Column("transhipments", pa.int64(), "How often it was loaded again after a DISC"),
    ),
    key=("booking_reference", "equipment_reference"),
    grain="One row per booking and container, as it is now.",
    late="The rows of the containers that new events and changes of bookings are about are made again.",
    layout="Clustered by booking and container.",
    cluster_by=("booking_reference", "equipment_reference"),
)

STATEMENT = """
with ranked as (
    select *, row_number() over (
        partition by equipment_reference, booking_reference, milestone in ('TRANSHIPMENT', 'CHANGE_OF_VESSEL')
        order by event_date_time desc, event_id desc
    ) as age
    from {milestones}
),
newest as (select * from ranked where age = 1 and milestone not in ('TRANSHIPMENT', 'CHANGE_OF_VESSEL')),
totals as (
    select equipment_reference, booking_reference,
        min(case when milestone = 'LOAD' then event_date_time end) as first_load,
        max(case when milestone = 'LOAD' then event_date_time end) as last_load,
        max(case when milestone = 'DISC' then event_date_time end) as last_discharge,
        count(case when milestone = 'TRANSHIPMENT' then 1 end) as transhipments
    from {milestones}
    group by equipment_reference, booking_reference
),
gone as (
    select b.equipment_reference, b.booking_reference, max(m.event_date_time) as last_gate_out
    from {bookings} b
    join {milestones} m on m.equipment_reference = b.equipment_reference
        and m.booking_reference = b.booking_reference and m.milestone = 'GTOT'
        and (m.un_location_code = b.port_of_discharge or nullif(b.port_of_discharge, '') is null)
    where b.is_current
    group by b.equipment_reference, b.booking_reference
)
select
    b.booking_reference,
    b.equipment_reference,
    b.transport_document_reference,
    b.customer,
    b.consignee,
    case
        when b.status = 'CANCELLED' then 'CANCELLED'
        when b.status = 'COMPLETED' then 'COMPLETED'
        when g.last_gate_out > coalesce(t.last_load, t.last_discharge) then 'COMPLETED'
        when coalesce(t.last_load, t.last_discharge) is not null then 'IN_TRANSIT'
        else 'SCHEDULED'
    end as state,
    b.port_of_loading,
    b.port_of_discharge,
    n.milestone,
    n.event_date_time as milestone_date_time,
    n.un_location_code,
    case when n.milestone = 'LOAD' then n.vessel_imo_number end as vessel_imo_number,
    case when n.milestone = 'LOAD' then n.vessel end as vessel,
    t.first_load as loaded_date_time,
    t.last_discharge as discharged_date_time,
    coalesce(t.transhipments, 0) as transhipments
from {bookings} b
left join newest n on n.equipment_reference = b.equipment_reference and n.booking_reference = b.booking_reference
left join totals t on t.equipment_reference = b.equipment_reference and t.booking_reference = b.booking_reference
left join gone g on g.equipment_reference = b.equipment_reference and g.booking_reference = b.booking_reference
where b.is_current
"""


def shipments(milestones: DataFrame, bookings: DataFrame) -> DataFrame:
    """Return how far bookings are. The inputs must have all rows of each of their containers."""
    found: DataFrame = bookings.sparkSession.sql(STATEMENT, milestones=milestones, bookings=bookings)
    return found
