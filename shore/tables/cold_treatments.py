"""Table ``cold_treatments``: how far the cold treatment of a container's cargo has come, for bookings that ask for one.

Fruit that may carry larvae is let in after it was at or below a temperature for some days without a break: a quarantine
treatment, such as 1.1 degrees Celsius for 14 days. The booking says which. DCSA RMO has cargo probes 1 to 3 for it.

A reading is cold when every probe of the box is at or below the limit. A box has the probes that show a value in any of
its readings within the booking. A probe that shows none, or one that no container can have, is missing, and the reading
is not cold.

Two cold readings follow each other without a break when at most ``LONGEST_GAP`` lies between them: the longest interval
at which reefers' own recorders log (Carrier DataCORDER: 15, 30, 60 or 120 minutes). Anything else breaks the treatment,
and the next cold reading begins it anew, from the first day. That is our reading of "continuous"; an authority may have
another one. Days are counted from the first cold reading to the last one, by the device's clock. Once the days of the
booking are reached, the treatment is completed, and no later break undoes it.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from shore.tables.bands import IN_TIME, MICROS
from shore.tables.model import TIME, Column, Table
from shore.tables.valid_bookings import VALID_BOOKINGS, covers

if TYPE_CHECKING:  # code that only reads tables needs no Spark
    from pyspark.sql import DataFrame

LONGEST_GAP: Final = dt.timedelta(hours=2)
_GAP: Final = int(LONGEST_GAP.total_seconds()) * 1_000_000
_TEXT, _DOUBLE, _LONG = pa.string(), pa.float64(), pa.int64()

COLD_TREATMENTS = Table(
    name="cold_treatments",
    title="Cold treatments of cargo",
    columns=(
        Column("equipment_reference", _TEXT, "ISO 6346 container number"),
        Column("booking_reference", _TEXT, "Booking that asks for the treatment"),
        Column("limit_temperature", _DOUBLE, "The warmest that a probe may be", "Cel"),
        Column("required_days", _DOUBLE, "Days without a break that the booking asks for", "d"),
        Column("state", _TEXT, "RUNNING, BROKEN or COMPLETED; null before the first cold reading"),
        Column("since_date_time", TIME, "First reading of the newest days without a break, or of the completed ones"),
        Column("until_date_time", TIME, "Last reading of these days"),
        Column("days", _DOUBLE, "From one to the other", "d"),
        Column("completed_date_time", TIME, "When the days were reached; null before"),
        Column("breaks", _LONG, "How often it was broken, before it was completed"),
        Column("broken_date_time", TIME, "First reading after the newest break; null: never broken"),
        Column("broken_by", _TEXT, "WARM, PROBE_MISSING or GAP: what the newest break was"),
        Column("probes", _LONG, "Cargo probes of the box, 0 to 3"),
        Column("warmest_temperature", _DOUBLE, "Warmest probe in these days", "Cel"),
        Column("as_of_date_time", TIME, "Newest reading of the box within the booking"),
    ),
    key=("equipment_reference", "booking_reference"),
    grain="One row per container and booking that asks for a cold treatment, once the box has a reading within it.",
    late="All rows of a container are made again when it has new readings or its bookings change, however late.",
    layout="Clustered by container; only bookings with a cold treatment have rows.",
    cluster_by=("equipment_reference",),
)

_PROBES: Final = tuple(f"cargo_probe{number}_temperature" for number in (1, 2, 3))
USED_BY_COLD_TREATMENTS: Final = ("equipment_reference", "device_date_time", *_PROBES)
"""The columns of ``readings`` that the table is made from."""
_BOX: Final = "equipment_reference, booking_reference"


def _each(form: str, between: str = ", ") -> str:
    return between.join(form.format(p=f"p{number}", probe=probe) for number, probe in enumerate(_PROBES, 1))


# A repeat has the time and the values of the first one.
_TREATMENTS: Final = f"""
with asked as (
    select {_BOX}, valid_from, valid_to, cold_treatment_temperature as limit_temperature,
        cold_treatment_days as required_days
    from ({VALID_BOOKINGS}) as valid
    where cold_treatment_temperature is not null and cold_treatment_days > 0
),
seen as (
    select a.equipment_reference, a.booking_reference, r.device_date_time,
        max(limit_temperature) as limit_temperature, max(required_days) as required_days,
        {_each("max(case when r.{probe} between -100.0 and 150.0 then r.{probe} end) as {p}")}
    from {{readings}} as r
    join asked as a on a.equipment_reference = r.equipment_reference and {covers("a", "r.device_date_time")}
    where {IN_TIME}
    group by a.equipment_reference, a.booking_reference, r.device_date_time
),
fitted as (
    select *, {MICROS}(device_date_time) as at_micros, greatest(p1, p2, p3) as warmest,
        {_each("if({p} is null, 0, 1)", " + ")} as shown,
        {_each("max(if({p} is null, 0, 1)) over box", " + ")} as probes
    from seen
    window box as (partition by {_BOX})
),
judged as (
    select *, probes > 0 and shown = probes and warmest <= limit_temperature as cold from fitted
),
followed as (
    select *,
        coalesce(lag(cold) over course, false) as cold_before,
        coalesce(at_micros - lag(at_micros) over course > {_GAP}, false) as after_gap
    from judged
    window course as (partition by {_BOX} order by device_date_time)
),
numbered as (
    select *,
        case when cold_before then
            case when after_gap then 'GAP' when shown < probes then 'PROBE_MISSING' when not cold then 'WARM' end
        end as broken,
        sum(if(cold and (after_gap or not cold_before), 1, 0)) over course as run
    from followed
    window course as (partition by {_BOX} order by device_date_time)
),
lasting as (
    select *,
        if(cold, at_micros - min(if(cold, at_micros, null)) over (partition by {_BOX}, run), null) as lasted
    from numbered
),
reached as (
    select *, min(if(lasted >= required_days * 8.64e10, run, null)) over (partition by {_BOX}) as completed_run,
        max(run) over (partition by {_BOX}) as last_run,
        max(device_date_time) over (partition by {_BOX}) as newest
    from lasting
),
told as (
    select *, cold and run = coalesce(completed_run, last_run) as counts,
        broken is not null and (completed_run is null or run < completed_run or run = completed_run and cold) as breaks
    from reached
)
select equipment_reference, booking_reference,
    max(limit_temperature) as limit_temperature,
    max(required_days) as required_days,
    case when max(completed_run) is not null then 'COMPLETED'
        when max(if(counts, device_date_time, null)) = max(newest) then 'RUNNING'
        when max(last_run) > 0 then 'BROKEN' end as state,
    min(if(counts, device_date_time, null)) as since_date_time,
    max(if(counts, device_date_time, null)) as until_date_time,
    max(if(counts, lasted, null)) / 8.64e10 as days,
    min(if(counts and run = completed_run and lasted >= required_days * 8.64e10, device_date_time, null))
        as completed_date_time,
    count(if(breaks, 1, null)) as breaks,
    max(if(breaks, device_date_time, null)) as broken_date_time,
    max_by(broken, if(breaks, device_date_time, null)) as broken_by,
    cast(max(probes) as bigint) as probes,
    max(if(counts, warmest, null)) as warmest_temperature,
    max(newest) as as_of_date_time
from told
group by equipment_reference, booking_reference
"""  # noqa: S608  # constants of this package


def cold_treatments(readings: DataFrame, bookings: DataFrame) -> DataFrame:
    """Compute all rows from ``readings`` (at least ``USED_BY_COLD_TREATMENTS``) and ``bookings``.

    Both must have all rows of each of their containers.
    """
    return readings.sparkSession.sql(_TREATMENTS, readings=readings, bookings=bookings)
