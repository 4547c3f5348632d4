"""Table ``bookings``: the history of every booking as states (SCD type 2), computed from ``booking_changes``.

A state is what one change says about one booking for one container. It holds until another change says something else.
A change that repeats the current content (sent twice) begins no state.

Within a log, changes are ordered by offset. Between the logs of two offices they are ordered by record time, then by
name of log. A record that is older than an earlier record of its own log counts with that record's time, so the order
within a log is always kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from shore.tables.model import TIME, Column, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TEXT = pa.string()

BOOKINGS = Table(
    name="bookings",
    title="Bookings and their history",
    columns=(
        Column("booking_reference", _TEXT, "Booking"),
        Column("equipment_reference", _TEXT, "ISO 6346 container number"),
        Column("recorded_from", TIME, "When this state was recorded, inclusive"),
        Column("recorded_to", TIME, "When the next state was recorded, exclusive; null while this one holds"),
        Column("is_current", pa.bool_(), "Whether this state holds now"),
        Column("customer", _TEXT, "Customer who may see the container while the booking is valid"),
        Column("status", _TEXT, "CONFIRMED, COMPLETED, CANCELLED"),
        Column("commodity", _TEXT, "What is inside"),
        Column("setpoint_temperature", pa.float64(), "Temperature agreed", "Cel"),
        Column("port_of_loading", _TEXT, "UN/LOCODE"),
        Column("port_of_discharge", _TEXT, "UN/LOCODE"),
        Column("valid_from", TIME, "The booking holds for device times from then on, inclusive"),
        Column("valid_to", TIME, "First device time after it; null while it runs"),
        Column("log", _TEXT, "Log of the change that began this state"),
        Column("log_offset", pa.int64(), "Its offset there"),
        Column("consignee", _TEXT, "Recipient of the goods, who may see it too; null: none"),
        Column("cold_treatment_temperature", pa.float64(), "Cold treatment: the warmest that cargo may be", "Cel"),
        Column("cold_treatment_days", pa.float64(), "Cold treatment: days without a break; null: none asked for", "d"),
        Column("transport_document_reference", _TEXT, "Number of the transport document (B/L); null: none yet"),
    ),
    key=("booking_reference", "equipment_reference", "log", "log_offset"),
    grain="One row per state of a booking for one container.",
    late="The states of a booking that a change is about are made again from booking_changes: a change that comes late "
    "from another office's log takes its place in the order, repeats change nothing.",
    layout="Clustered by booking: some short rows a container and journey.",
    cluster_by=("booking_reference",),
    change_feed=True,
)

STATES = """
with changes as (
    select *, nullif(consignee, '') as recipient, nullif(transport_document_reference, '') as document,
        max(record_date_time) over (
            partition by booking_reference, equipment_reference, log order by log_offset
            rows between unbounded preceding and current row
        ) as recorded
    from {booking_changes}
    where problem is null
),
told as (
    select *,
        lag(log_offset) over booking is not null
        and customer is not distinct from lag(customer) over booking
        and status is not distinct from lag(status) over booking
        and commodity is not distinct from lag(commodity) over booking
        and setpoint_temperature is not distinct from lag(setpoint_temperature) over booking
        and port_of_loading is not distinct from lag(port_of_loading) over booking
        and port_of_discharge is not distinct from lag(port_of_discharge) over booking
        and valid_from is not distinct from lag(valid_from) over booking
        and valid_to is not distinct from lag(valid_to) over booking
        and recipient is not distinct from lag(recipient) over booking
        and cold_treatment_temperature is not distinct from lag(cold_treatment_temperature) over booking
        and cold_treatment_days is not distinct from lag(cold_treatment_days) over booking
        and document is not distinct from lag(document) over booking as repeated
    from changes
    window booking as (
        partition by booking_reference, equipment_reference order by recorded nulls first, log, log_offset
    )
)
select
    booking_reference, equipment_reference, recorded as recorded_from,
    lead(recorded) over booking as recorded_to,
    lead(log_offset) over booking is null as is_current,
    customer, status, commodity, setpoint_temperature, port_of_loading, port_of_discharge, valid_from, valid_to,
    log, log_offset, recipient as consignee, cold_treatment_temperature, cold_treatment_days,
    document as transport_document_reference
from told
where not repeated
window booking as (
    partition by booking_reference, equipment_reference order by recorded nulls first, log, log_offset
)
"""


def bookings(booking_changes: DataFrame) -> DataFrame:
    """Compute the states of bookings. The input must have all changes of each of its bookings."""
    found: DataFrame = booking_changes.sparkSession.sql(STATES, booking_changes=booking_changes)
    return found
