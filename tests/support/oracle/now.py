"""Compute tables ``containers_now``, ``alerts_now``, ``ships_now`` and ``quality`` by DuckDB."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from shore.delta.datasets import open_dataset
from shore.paths import TablePaths
from shore.tables.alerts_now import ALERTS_NOW
from shore.tables.containers_now import (
    CONTAINERS_NOW,
    DIGESTED,
    HOLDERS,
    NEWEST,
    NOW,
    OBSERVED,
    OPEN_ALERTS,
    READING_COLUMNS,
    SOURCE_COLUMNS,
)
from shore.tables.model import TIME
from shore.tables.quality import AHEAD_MINUTES, DELAYED_HOURS, QUALITY
from shore.tables.ships_now import NEWEST as NEWEST_POSITIONS
from shore.tables.ships_now import SHIPS_NOW
from shore.tables.valid_bookings import VALID_BOOKINGS, covers
from tests.support.oracle import bookings, custody
from tests.support.oracle.sql import select

_DAY = dt.timedelta(days=1)
_BOX = pa.field("equipment_reference", pa.string())
_READINGS = pa.schema([_BOX, *(pa.field(column.name, column.type) for column in (*READING_COLUMNS, *SOURCE_COLUMNS))])
_HELD = pa.schema(
    [_BOX, pa.field("holder", pa.string()), pa.field("held_since", TIME), pa.field("custody_event", pa.string())]
)
_ALERTED = pa.schema([_BOX, pa.field("open_alerts", pa.int64()), pa.field("worst", pa.int64())])


def containers_now(paths: TablePaths) -> pa.Table:
    """Return the table as it must be."""
    sites = open_dataset(paths, "sites").to_table()
    held = select(HOLDERS, _HELD, custody=custody.everything(paths))
    alerts, ashore = open_dataset(paths, "alerts"), open_dataset(paths, "alerts_ashore")
    observed = f"({OBSERVED} union all by name {DIGESTED.replace('explode(', 'unnest(')})"
    readings, digests = open_dataset(paths, "readings"), open_dataset(paths, "digests")
    newest = select(NEWEST.replace("{observed}", observed), _READINGS, readings=readings, digests=digests)
    return select(
        NOW,
        CONTAINERS_NOW.plain_schema,
        newest=newest,
        held=held,
        alerted=select(OPEN_ALERTS, _ALERTED, alerts=alerts, alerts_ashore=ashore),
        bookings=open_dataset(paths, "bookings").to_table(),
        owners=open_dataset(paths, "owners").to_table(),
        sites=sites,
        ships_now=ships_now(paths),
    )


def alerts_now(paths: TablePaths) -> pa.Table:
    """Return the table as it must be."""
    return select(
        _ALERTS,
        ALERTS_NOW.plain_schema,
        alerts=open_dataset(paths, "alerts").to_table(),
        alerts_ashore=open_dataset(paths, "alerts_ashore").to_table(),
        bookings=bookings.states(open_dataset(paths, "booking_changes").to_table()),
        custody=custody.everything(paths),
        sites=open_dataset(paths, "sites").to_table(),
    )


def ships_now(paths: TablePaths) -> pa.Table:
    """Return the table as it must be."""
    sites = open_dataset(paths, "sites").to_table()
    return select(NEWEST_POSITIONS, SHIPS_NOW.plain_schema, positions=open_dataset(paths, "positions"), sites=sites)


def quality(paths: TablePaths) -> pa.Table:
    """Return the table as it must be, computed day by day so that memory holds one day at a time."""
    readings, rejected = inputs = _inputs(paths)
    days = select(_DAYS, _DAY_COLUMN, readings=readings, rejected=rejected)
    made = [_reports(*_of_day(inputs, day)) for day in days["day"].to_pylist()]
    return pa.concat_tables([QUALITY.plain_schema.empty_table(), *made])


def _inputs(paths: TablePaths) -> tuple[Any, Any]:
    """Open ``readings`` and ``readings_rejected``, once for all days."""
    return open_dataset(paths, "readings"), open_dataset(paths, "readings_rejected")


def _of_day(inputs: tuple[Any, Any], day: dt.datetime) -> tuple[Any, Any]:
    """Return the rows of both inputs that fall into a day."""
    received = pc.coalesce(pc.field("received_date_time"), pc.field("record_date_time"))
    measured = pc.field("device_date_time")
    read = (measured >= day) & (measured < day + _DAY)
    refused = (received >= day) & (received < day + _DAY)
    readings, rejected = inputs
    return readings.filter(read), rejected.filter(refused)


def _reports(readings: Any, rejected: Any) -> pa.Table:
    return select(
        _REPORTS.replace("{ahead}", str(AHEAD_MINUTES)).replace("{delayed}", str(DELAYED_HOURS)),
        QUALITY.plain_schema,
        readings=readings,
        rejected=rejected,
    )


_DAYS = """
select distinct date_trunc('day', device_date_time) as day from {readings} where device_date_time is not null
union
select distinct date_trunc('day', coalesce(received_date_time, record_date_time)) from {rejected}
where coalesce(received_date_time, record_date_time) is not null
order by day
"""
_DAY_COLUMN = pa.schema([pa.field("day", TIME)])

_ALERTS = f"""
with states as (
    select 'site' as source, alert_id, kind, state, severity, coalesce(revision, 0) as revision, equipment_reference,
        event_date_time, substr(log, length('alerts.') + 1) as raised_at, raised_date_time, vessel_imo_number,
        latitude, longitude,
        null::varchar as log, null::bigint as first_offset, alert_id as condition_id,
        array_to_string(
            list_transform(
                from_json(evidence, '[{{{{"name": "VARCHAR", "detail": "VARCHAR"}}}}]'),
                lambda e: case when coalesce(e.detail, '') = '' then e.name else e.name || ': ' || e.detail end
            ),
            '; '
        ) as detail,
        nullif(acknowledged_by, '') as acknowledged_by, acknowledged_date_time,
        log as record_log, log_offset as record_offset
    from {{alerts}}
    where alert_id is not null
    union all
    select 'shore', alert_id, kind, state, severity, revision, equipment_reference,
        event_date_time, 'shore', null, null, latitude, longitude, log, first_offset, condition_id, detail,
        null, null, log, log_offset
    from {{alerts_ashore}}
),
numbered as (
    select *,
        case severity when 'CRITICAL' then 3 when 'ALARM' then 2 else 1 end as rank,
        row_number() over (
            partition by raised_at, alert_id, equipment_reference
            order by revision, event_date_time, record_log, record_offset
        ) as first,
        row_number() over (
            partition by raised_at, alert_id, equipment_reference
            order by revision desc, event_date_time desc, record_log desc, record_offset desc
        ) as last
    from states
),
raised as (
    select source, raised_at, alert_id, equipment_reference,
        any_value(kind) filter (where first = 1) as kind,
        any_value(state) filter (where last = 1) as state,
        any_value(severity) filter (where last = 1) as severity,
        case max(rank) when 3 then 'CRITICAL' when 2 then 'ALARM' else 'WARNING' end as highest_severity,
        any_value(event_date_time) filter (where first = 1) as opened_date_time,
        any_value(event_date_time) filter (where last = 1) as updated_date_time,
        any_value(event_date_time) filter (where last = 1 and state = 'CLEARED') as cleared_date_time,
        count(distinct revision) as revisions,
        any_value(raised_date_time) filter (where first = 1) as raised_date_time,
        any_value(log) filter (where first = 1) as log,
        any_value(first_offset) filter (where first = 1) as first_offset,
        any_value(vessel_imo_number) filter (where first = 1) as vessel_imo_number,
        any_value(latitude) filter (where first = 1) as latitude,
        any_value(longitude) filter (where first = 1) as longitude,
        any_value(detail) filter (where last = 1) as detail,
        any_value(condition_id) filter (where first = 1) as condition_id,
        any_value(acknowledged_by) filter (where last = 1) as acknowledged_by,
        any_value(acknowledged_date_time) filter (where last = 1) as acknowledged_date_time
    from numbered
    group by source, raised_at, alert_id, equipment_reference
),
held as (
    select a.raised_at, a.alert_id, a.equipment_reference, c.log, c.holder, row_number() over (
        partition by a.raised_at, a.alert_id, a.equipment_reference
        order by c.from_date_time desc, c.term desc, c.log
    ) as nth
    from raised a join {{custody}} c on not c.lost and case
        when a.log is not null
            then c.log = a.log and a.first_offset >= c.from_offset
            and (c.to_offset is null or a.first_offset < c.to_offset)
        else c.equipment_reference = a.equipment_reference and a.opened_date_time >= c.from_date_time
            and (c.to_date_time is null or a.opened_date_time < c.to_date_time)
    end
),
booked as (
    select a.raised_at, a.alert_id, a.equipment_reference, b.booking_reference, b.customer, row_number() over (
        partition by a.raised_at, a.alert_id, a.equipment_reference
        order by b.recorded_from desc nulls last, b.booking_reference, b.log, b.log_offset
    ) as nth
    from raised a join ({VALID_BOOKINGS}) b on b.equipment_reference = a.equipment_reference
        and {covers("b", "a.opened_date_time")}
)
select a.source, a.alert_id, a.kind, a.state, a.severity, a.highest_severity, a.equipment_reference,
    a.opened_date_time, a.updated_date_time, a.cleared_date_time,
    (epoch_us(a.cleared_date_time) - epoch_us(a.opened_date_time)) / 6.0e7 as minutes_open,
    a.revisions, a.raised_at, a.raised_date_time, coalesce(a.log, h.log) as log, h.holder,
    coalesce(a.vessel_imo_number, s.vessel_imo_number) as vessel_imo_number,
    b.booking_reference, b.customer, a.latitude, a.longitude, a.detail, a.condition_id,
    a.acknowledged_by, a.acknowledged_date_time
from raised a
left join held h on h.raised_at = a.raised_at and h.equipment_reference = a.equipment_reference
    and h.alert_id = a.alert_id and h.nth = 1
left join {{sites}} s on s.site = h.holder
left join booked b on b.raised_at = a.raised_at and b.equipment_reference = a.equipment_reference
    and b.alert_id = a.alert_id and b.nth = 1
"""  # noqa: S608  # constants of this package

_REPORTS = """
with told as (
    select equipment_reference, device_id, boot_id, sequence, device_date_time, received_date_time, late,
        log, log_offset,
        date_trunc('day', device_date_time) as day,
        row_number() over (
            partition by equipment_reference, device_id, boot_id, sequence, date_trunc('day', device_date_time)
            order by log, log_offset
        ) as copy
    from {readings}
    where device_date_time is not null and device_id <> ''
),
read as (
    select *,
        sequence::hugeint - lag(sequence) over (
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
        least(coalesce(sum(skipped), 0), 9223372036854775807) as missing,
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
