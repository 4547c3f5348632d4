"""Table ``quality``: how well each device reports, by day of its own clock; rejected records by day of receipt.

A reading whose device id is empty, as foreign writers may send it, does not count: its row would have the key of the
row of rejected records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from fairlead.records.reading import MOST
from shore.tables.model import TIME, Column, Table, within_calendar

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TEXT, _LONG = pa.string(), pa.int64()

QUALITY = Table(
    name="quality",
    title="How well each device reports, by day",
    columns=(
        Column("equipment_reference", _TEXT, "ISO 6346 container number"),
        Column("device_id", _TEXT, "DCSA RMO deviceID; empty in the row of the records that could not be read"),
        Column("day", TIME, "Begin of the day (UTC) by the device's clock; of rejected records, by receipt"),
        Column("readings", _LONG, "Readings, repeats counted once"),
        Column("repeats", _LONG, "Records that repeat one of them: same device, boot and sequence"),
        Column("missing", _LONG, "Numbers between a boot's lowest and highest of the day that no reading has"),
        Column("gaps", _LONG, "How many runs of missing numbers there are"),
        Column("late", _LONG, "Readings appended after newer ones of the device (drained strays)"),
        Column("out_of_order", _LONG, "Readings in the log after one of the same boot and day with a higher number"),
        Column("boots", _LONG, "Boots with readings in the day; each but the first is a reboot"),
        Column("clock_ahead", _LONG, "Readings with a device time after their receipt"),
        Column("delayed", _LONG, "Readings received more than a day after their device time"),
        Column("rejected", _LONG, "Records that could not be read"),
        Column("rejected_by_reason", _TEXT, "How many for which reason, JSON; null without any"),
        Column("first_boot_id", _LONG, "Boot of the day's first reading"),
        Column("first_sequence", _LONG, "Its sequence number"),
        Column("first_date_time", TIME, "Its device time"),
        Column("last_boot_id", _LONG, "Boot of the day's last reading"),
        Column("last_sequence", _LONG, "Its sequence number"),
        Column("last_date_time", TIME, "Its device time"),
    ),
    key=("equipment_reference", "device_id", "day"),
    grain="One row per device and day with a reading of it, and one per container and day with rejected records.",
    late="Days that new records fall into are made again from readings and readings_rejected, however late.",
    layout="Clustered by day and container: a short row a device and day.",
    cluster_by=("day", "equipment_reference"),
)

AHEAD_MINUTES: Final = 1
DELAYED_HOURS: Final = 24

WITHIN_CALENDAR: Final = within_calendar("day")

REPORTS: Final = f"""
with copies as (
    select equipment_reference, device_id, boot_id, sequence, device_date_time, received_date_time, late,
        log, log_offset,
        date_trunc('day', device_date_time) as day,
        row_number() over (
            partition by equipment_reference, device_id, boot_id, sequence, date_trunc('day', device_date_time)
            order by log, log_offset
        ) as copy
    from {{readings}}
    where device_date_time is not null and equipment_reference is not null and device_id <> ''
),
read as (
    select *,
        cast(sequence as decimal(20, 0)) - lag(sequence) over (
            partition by equipment_reference, device_id, day, boot_id order by sequence
        ) - 1 as skipped,
        sequence < max(sequence) over (
            partition by equipment_reference, device_id, day, boot_id order by log, log_offset
            rows between unbounded preceding and 1 preceding
        ) as out_of_order,
        row_number() over (
            partition by equipment_reference, device_id, day order by device_date_time, boot_id, sequence
        ) as place,
        row_number() over (
            partition by equipment_reference, device_id, day order by device_date_time desc, boot_id desc, sequence desc
        ) as place_from_end
    from copies
    where copy = 1
),
repeated as (
    select equipment_reference, device_id, day, count(*) as repeats
    from copies
    where copy > 1
    group by equipment_reference, device_id, day
),
reported as (
    select
        equipment_reference, device_id, day,
        count(*) as readings,
        cast(least(coalesce(sum(skipped), 0), {MOST}) as bigint) as missing,
        count(*) filter (where skipped > 0) as gaps,
        count(*) filter (where late) as late,
        count(*) filter (where out_of_order) as out_of_order,
        count(distinct boot_id) as boots,
        count(*) filter (where device_date_time > received_date_time + interval {AHEAD_MINUTES} minute) as clock_ahead,
        count(*) filter (where received_date_time > device_date_time + interval {DELAYED_HOURS} hour) as delayed,
        max(boot_id) filter (where place = 1) as first_boot_id,
        max(sequence) filter (where place = 1) as first_sequence,
        max(device_date_time) filter (where place = 1) as first_date_time,
        max(boot_id) filter (where place_from_end = 1) as last_boot_id,
        max(sequence) filter (where place_from_end = 1) as last_sequence,
        max(device_date_time) filter (where place_from_end = 1) as last_date_time
    from read
    group by equipment_reference, device_id, day
)
select r.*, coalesce(p.repeats, 0) as repeats, 0 as rejected, cast(null as string) as rejected_by_reason
from reported r
left join repeated p using (equipment_reference, device_id, day)
"""  # noqa: S608  # constants of this module

REFUSED: Final = """
with refused as (
    select equipment_reference, date_trunc('day', coalesce(received_date_time, record_date_time)) as day, reason,
        count(*) as records
    from {readings_rejected}
    where equipment_reference is not null and coalesce(received_date_time, record_date_time) is not null
    group by equipment_reference, day, reason
)
select equipment_reference, '' as device_id, day, 0 as readings, 0 as missing, 0 as gaps, 0 as late, 0 as out_of_order,
    0 as boots, 0 as clock_ahead, 0 as delayed, 0 as repeats, sum(records) as rejected,
    to_json(map_from_entries(array_sort(collect_list(struct(reason, records))))) as rejected_by_reason
from refused
group by equipment_reference, day
"""


def quality(readings: DataFrame, readings_rejected: DataFrame) -> DataFrame:
    """Compute how well each device reported on each day ``WITHIN_CALENDAR``. All rows of a container's day must be
    there."""
    session = readings.sparkSession
    reported = session.sql(REPORTS, readings=readings)
    refused = session.sql(REFUSED, readings_rejected=readings_rejected)
    found: DataFrame = reported.unionByName(refused, allowMissingColumns=True)
    return found.where(WITHIN_CALENDAR)
