"""The recipient's coarse feed: milestones and hourly conditions, made from records that the recipient may see.

They are not copies of records, so each has a name in place of an origin: ``hours/<container>@<hour>``, with hours
counted since 1970, and ``milestones/<container>/<event>@0``. SQL for the connection of ``due``.

An hour is due as soon as the container has a reading of a later hour. It is made from those of its readings that the
recipient's bookings cover. So late readings and corrected bookings change an hour that was delivered. New readings
remake all hours, starting with the last one that has readings before the hour of the first new reading. Hours whose
readings retention may have deleted stay as they were given.
"""

from __future__ import annotations

from typing import Final

import duckdb

from shore.tables.bands import IN_TIME, MICROS_IN_DUCKDB, USED
from shore.tables.hours import ACTIVATION_ENERGY, hours_sql
from shore.tables.operations import COPIES, TOLD
from shore.tables.valid_bookings import covers

NEEDED: Final = """
select exists (select 1 from customers where grain = 'coarse') and exists (select 1 from boxes where grain = 'coarse')
"""

_BOUNDS: Final = f"""
create temp table bounds as
with fresh as (
    select r.equipment_reference, min(r.device_date_time) as first
    from readings r
    join touched t on t.equipment_reference = r.equipment_reference and t.log = r.log and r.log_offset >= t.first_offset
    where {IN_TIME} and r.equipment_reference in (select equipment_reference from boxes where grain = 'coarse')
    group by r.equipment_reference
),
earlier as (
    select f.equipment_reference, max(r.device_date_time) as last
    from fresh f
    join readings r on r.equipment_reference = f.equipment_reference
    where {IN_TIME} and r.device_date_time < date_trunc('hour', f.first)
    group by f.equipment_reference
)
select equipment_reference, min(since) as since
from (
    select f.equipment_reference, date_trunc('hour', coalesce(e.last, f.first)) as since
    from fresh f left join earlier e using (equipment_reference)
    union all
    select b.equipment_reference, timestamptz '2000-01-01 00:00:00+00:00'
    from boxes b join touched t using (equipment_reference)
    where b.grain = 'coarse' and t.log is null
)
group by equipment_reference
"""  # noqa: S608  # our own names

_NEAR: Final = f"""
create temp table near as
select {", ".join(f"r.{name}" for name in USED)}
from readings r
join bounds b on b.equipment_reference = r.equipment_reference
where {IN_TIME} and r.device_date_time >= b.since - interval 30 minute
"""  # noqa: S608

_MINE: Final = f"""
create temp view mine as
select n.* from near n
where exists (
    select 1 from periods p
    where p.customer = (select customer from turn) and p.equipment_reference = n.equipment_reference
        and {covers("p", "n.device_date_time")}
)
"""  # noqa: S608


def _time(name: str) -> str:
    return f"strftime({name}, '%Y-%m-%dT%H:%M:%SZ')"


def _span(prefix: str) -> str:
    parts = ", ".join(f"'{each}', round(h.{prefix}_temperature_{each}, 3)" for each in ("min", "mean", "max"))
    return f"json_object({parts})"


_HOURS: Final = f"""
insert into derived
select
    turn.customer, 'hours/' || h.equipment_reference, epoch(h.window_start)::bigint // 3600, h.equipment_reference,
    h.window_start,
    json_merge_patch('{{{{}}}}', json_object(
        'kind', 'conditions',
        'equipmentReference', h.equipment_reference,
        'windowStart', {_time("h.window_start")},
        'windowEnd', {_time("h.window_end")},
        'readings', h.readings,
        'supplyTemperature', {_span("supply")},
        'returnTemperature', {_span("return")},
        'minutesOutOfBand', round(h.minutes_out_of_band, 3),
        'minutesWithoutPower', round(h.minutes_without_power, 3),
        'minutesObserved', round(h.minutes_observed, 3)
    ))::varchar
from ({hours_sql(ACTIVATION_ENERGY, touched=False)}) h
cross join turn
join bounds b on b.equipment_reference = h.equipment_reference
where h.window_start >= b.since
    and h.window_end <= (select max(n.device_date_time) from near n where n.equipment_reference = h.equipment_reference)
"""  # noqa: S608

_READERS: Final = """
select distinct customer from boxes semi join bounds using (equipment_reference) where grain = 'coarse'
"""

_SCOPE_OF_HOURS: Final = """
insert into scope
select x.customer, 'hours', x.equipment_reference, epoch(b.since)::bigint // 3600
from boxes x join bounds b using (equipment_reference) where x.grain = 'coarse'
"""

STAYING: Final = """
create temp table staying as
select h.customer, h.log, h.log_offset
from made_there h join customers c on c.customer = h.customer
where c.grain = 'coarse' and h.log like 'hours/%' and not h.taken_back and h.log_offset <= {hour} and exists (
    select 1 from periods p
    where p.customer = h.customer and p.equipment_reference = h.equipment_reference
        and p.valid_from < to_timestamp((h.log_offset + 1) * 3600)
        and (p.valid_to is null or p.valid_to > to_timestamp(h.log_offset * 3600))
)
"""
"""The hours that cannot be made again and that their customers may see: they stay as they are."""

_SCOPE_OF_MILESTONES: Final = """
insert into scope
select distinct x.customer, 'milestones', x.equipment_reference, 0
from boxes x join touched t using (equipment_reference) where x.grain = 'coarse' and t.log like 'events.%'
"""

_MILESTONES: Final = f"""
insert into derived
with told as (
    select t.*, coalesce(t.un_location_code, s.un_location_code) as port
    from ({TOLD}) t left join sites s on t.log = 'events.' || s.site
),
aboard as (
    select
        l.equipment_reference, l.vessel_imo_number, l.event_date_time as since,
        (
            select min(d.event_date_time) from told d
            where d.equipment_reference = l.equipment_reference and d.equipment_event_type_code = 'DISC'
                and d.event_date_time > l.event_date_time
        ) as until
    from told l
    where l.equipment_event_type_code = 'LOAD' and l.vessel_imo_number is not null
),
happened as (
    select equipment_reference as box, told.* from told where equipment_event_type_code is not null
    union all
    select a.equipment_reference, t.*
    from told t join aboard a on a.vessel_imo_number = t.vessel_imo_number
    where t.transport_event_type_code is not null
        and t.event_date_time >= a.since and (a.until is null or t.event_date_time <= a.until)
)
select distinct
    s.customer, 'milestones/' || h.box || '/' || h.event_id, 0, h.box, h.event_date_time,
    json_merge_patch('{{}}', json_object(
        'kind', 'milestone',
        'equipmentReference', h.box,
        'eventID', h.event_id,
        'eventType', h.event_type,
        'equipmentEventTypeCode', h.equipment_event_type_code,
        'transportEventTypeCode', h.transport_event_type_code,
        'eventDateTime', {_time("h.event_date_time")},
        'UNLocationCode', h.port,
        'vesselIMONumber', h.vessel_imo_number,
        'voyageReference', h.voyage_reference
    ))::varchar
from scope s
join happened h on h.box = s.name
where s.kind = 'milestones' and s.customer in (select customer from customers where grain = 'coarse')
    and exists (
        select 1 from periods p
        where p.customer = s.customer and p.equipment_reference = h.box and {covers("p", "h.event_date_time")}
    )
qualify row_number() over (
    partition by s.customer, h.box, h.event_id order by h.equipment_reference nulls last, {COPIES}
) = 1
"""  # noqa: S608


def derive(connection: duckdb.DuckDBPyConnection) -> None:
    """Add the hours and milestones that are due to recipients to ``derived``, and what was compared to ``scope``."""
    row = connection.execute(NEEDED).fetchone()
    if row is None or not row[0]:
        return
    # One thread sums in the order of the readings: the same readings give the same mean, to the last bit.
    connection.execute("set threads = 1")
    connection.execute(MICROS_IN_DUCKDB)
    for statement in (_BOUNDS, _NEAR, "create temp table turn (customer varchar)", _MINE, _SCOPE_OF_HOURS):
        connection.execute(statement)
    for (customer,) in connection.execute(_READERS).fetchall():
        connection.execute("delete from turn")
        connection.execute("insert into turn values (?)", [customer])
        connection.execute(_HOURS.format(readings="mine"))
    connection.execute(_SCOPE_OF_MILESTONES)
    connection.execute(_MILESTONES)
    connection.execute("reset threads")
