"""Table ``quality``: how well each device reports, day by day of its own clock."""

from __future__ import annotations

import pyarrow as pa

from shore.tables.model import TIME, Column, Table

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
    layout="Not partitioned: a short row a device and day.",
)

AHEAD_MINUTES, DELAYED_HOURS = 1, 24

REPORTS = """
with told as (
    select equipment_reference, device_id, boot_id, sequence, device_date_time, received_date_time, late,
        log, log_offset,
        date_trunc('day', device_date_time) as day,
        row_number() over (
            partition by equipment_reference, device_id, boot_id, sequence, date_trunc('day', device_date_time)
            order by log, log_offset
        ) as copy
    from {readings}
    where device_date_time is not null
),
read as (
    select *,
        sequence - lag(sequence) over (
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
    from told
    where copy = 1
),
repeated as (
    select equipment_reference, device_id, day, count(*) as repeats
    from told
    where copy > 1
    group by equipment_reference, device_id, day
),
reported as (
    select
        equipment_reference, device_id, day,
        count(*) as readings,
        coalesce(sum(skipped), 0) as missing,
        count(*) filter (where skipped > 0) as gaps,
        count(*) filter (where late) as late,
        count(*) filter (where out_of_order) as out_of_order,
        count(distinct boot_id) as boots,
        count(*) filter (where device_date_time > received_date_time + interval {ahead} minute) as clock_ahead,
        count(*) filter (where received_date_time > device_date_time + interval {delayed} hour) as delayed,
        max(boot_id) filter (where place = 1) as first_boot_id,
        max(sequence) filter (where place = 1) as first_sequence,
        max(device_date_time) filter (where place = 1) as first_date_time,
        max(boot_id) filter (where place_from_end = 1) as last_boot_id,
        max(sequence) filter (where place_from_end = 1) as last_sequence,
        max(device_date_time) filter (where place_from_end = 1) as last_date_time
    from read
    group by equipment_reference, device_id, day
),
refused as (
    select equipment_reference, date_trunc('day', coalesce(received_date_time, record_date_time)) as day, reason,
        count(*) as records
    from {rejected}
    where equipment_reference is not null and coalesce(received_date_time, record_date_time) is not null
    group by all
)
select r.*, coalesce(p.repeats, 0) as repeats, 0 as rejected, null as rejected_by_reason
from reported r
left join repeated p using (equipment_reference, device_id, day)
union all by name
select equipment_reference, '' as device_id, day, 0 as readings, 0 as missing, 0 as gaps, 0 as late, 0 as out_of_order,
    0 as boots, 0 as clock_ahead, 0 as delayed, 0 as repeats, sum(records) as rejected,
    '{{' || string_agg(to_json(reason) || ':' || records, ',' order by reason) || '}}' as rejected_by_reason
from refused
group by equipment_reference, day
"""
