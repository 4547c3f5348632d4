"""The recipient's coarse feed: milestones and hourly conditions, made from records that the recipient may see.

They are not copies of records, so each has a name in place of an origin: ``hours/<container>@<hour>``, with hours
counted since 1970, and ``milestones/<container>/<event>@0``. All functions return rows of ``MADE``.

An hour is due as soon as the container has a reading of a later hour. It is made from those of its readings that the
recipient's bookings cover. So late readings and corrected bookings change an hour that was delivered. New readings
remake all hours, starting with the last one that has readings before the hour of the first new reading.

Copies of an event have its id and its container or ship. Where a ship's event has the id of one of the container's own,
that one counts.

An hour whose readings retention may have deleted cannot be made again. One that was given stays as it is while a
booking covers any part of it.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Final

from shore.feeds.periods import covered
from shore.tables.bands import IN_TIME, USED
from shore.tables.hours import ACTIVATION_ENERGY, hours_sql
from shore.tables.operations import COPIES, HAPPENED, OF_ONE_EVENT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MADE: Final = ("customer", "log", "log_offset", "equipment_reference", "device_date_time", "content")
"""Columns of records that are made for feeds. ``content`` is the record's JSON without its revision."""

_MINE: Final = f"""
select concat(p.customer, '/', n.equipment_reference) as equipment_reference,
    {", ".join(f"n.{name}" for name in USED if name != "equipment_reference")}
from {{near}} n
join {{periods}} p on p.equipment_reference = n.equipment_reference
where p.grain = 'coarse' and {covered("n.device_date_time")}
"""  # noqa: S608  # our own names


def rounded(value: str) -> str:
    """Return the SQL that rounds a number to three decimals. Half goes away from zero and zero keeps its sign, as in
    the feeds of older versions: another digit would be another revision."""
    return f"signum({value}) * floor(abs({value}) * 1000 + 0.5) / 1000"


def json_time(name: str) -> str:
    """Return the SQL for a time as JSON has it, in seconds of UTC."""
    return f"date_format({name}, \"yyyy-MM-dd'T'HH:mm:ss'Z'\")"


def exact_time(name: str) -> str:
    """Return the SQL for a time as JSON has it, in milliseconds of UTC."""
    return f"date_format({name}, \"yyyy-MM-dd'T'HH:mm:ss.SSS'Z'\")"


def _span(prefix: str) -> str:
    parts = ", ".join(f"'{each}', {rounded(f'h.{prefix}_temperature_{each}')}" for each in ("min", "mean", "max"))
    return f"named_struct({parts})"


_HOURS: Final = f"""
select
    split_part(h.equipment_reference, '/', 1) as customer,
    concat('hours/', b.equipment_reference) as log,
    unix_seconds(h.window_start) div 3600 as log_offset,
    b.equipment_reference,
    h.window_start as device_date_time,
    to_json(named_struct(
        'kind', 'conditions',
        'equipmentReference', b.equipment_reference,
        'windowStart', {json_time("h.window_start")},
        'windowEnd', {json_time("h.window_end")},
        'readings', h.readings,
        'supplyTemperature', {_span("supply")},
        'returnTemperature', {_span("return")},
        'minutesOutOfBand', {rounded("h.minutes_out_of_band")},
        'minutesWithoutPower', {rounded("h.minutes_without_power")},
        'minutesObserved', {rounded("h.minutes_observed")}
    )) as content
from ({hours_sql(ACTIVATION_ENERGY, touched=False).replace("{readings}", "{mine}")}) h
join (
    select s.equipment_reference, s.since, max(n.device_date_time) as newest
    from {{near}} n join {{since}} s on s.equipment_reference = n.equipment_reference
    group by s.equipment_reference, s.since
) b on b.equipment_reference = split_part(h.equipment_reference, '/', 2)
where h.window_start >= b.since and h.window_end <= b.newest
"""  # noqa: S608


def hours(readings: DataFrame, periods: DataFrame, since: DataFrame) -> DataFrame:
    """Compute the hours of all recipients.

    Args:
        readings: The readings of the containers in ``since``, from half an hour before that time on.
        periods: From ``shore.feeds.periods.periods``.
        since: The start of the first hour to make (``since``), by ``equipment_reference``.
    """
    spark = readings.sparkSession
    near = spark.sql(
        f"""
        select {", ".join(f"r.{name}" for name in USED)}
        from {{readings}} r join {{since}} s on s.equipment_reference = r.equipment_reference
        where r.device_date_time >= s.since - interval 30 minutes and {IN_TIME}
        """,  # noqa: S608
        readings=readings,
        since=since,
    ).localCheckpoint()  # it is read three times
    return spark.sql(_HOURS, near=near, mine=spark.sql(_MINE, near=near, periods=periods), since=since)


_STAYS: Final = """
select g.*, coalesce(
    g.log like 'hours/%' and not g.taken_back and g.log_offset <= {hour} and exists(p.spans, span ->
        span.valid_from < timestamp_seconds((g.log_offset + 1) * 3600)
        and (span.valid_to is null or span.valid_to > timestamp_seconds(g.log_offset * 3600))),
    false) as stays
from {given} g
left join {periods} p
    on p.customer = g.customer and p.equipment_reference = g.equipment_reference and p.grain = 'coarse'
"""


def last_hour_without_readings(readings_since: dt.datetime | None) -> int:
    """Return the last hour, counted since 1970, some of whose readings may be deleted; -1 where all are there. An hour
    needs those of half an hour before it, too, so it is the one that begins when the readings do.

    Args:
        readings_since: No later reading was deleted; None: no reading was.
    """
    return -1 if readings_since is None else int(readings_since.timestamp()) // 3600


def with_stays(given: DataFrame, periods: DataFrame, readings_since: dt.datetime | None) -> DataFrame:
    """Return what feeds have (rows of ``newest_rows``) with column ``stays``: whether it is an hour that cannot be made
    again and that its customer may see. It stays in the feed as it is."""
    hour = last_hour_without_readings(readings_since)
    if hour < 0:
        return given.selectExpr("*", "false as stays")
    return given.sparkSession.sql(_STAYS, given=given, periods=periods, hour=hour)


_MILESTONES: Final = f"""
with numbered as (
    select *, row_number() over (partition by {OF_ONE_EVENT} order by {COPIES}) as copy
    from {{events}}
    where problem is null and event_date_time is not null and {HAPPENED}
),
told as (
    select n.*, coalesce(n.un_location_code, s.un_location_code) as port
    from numbered n left join {{sites}} s on n.log = 'events.' || s.site
    where n.copy = 1
),
aboard as (
    select l.event_id, l.equipment_reference, l.vessel_imo_number, l.event_date_time as since,
        min(d.event_date_time) as until
    from told l
    left join told d on d.equipment_reference = l.equipment_reference and d.equipment_event_type_code = 'DISC'
        and d.event_date_time > l.event_date_time
    where l.equipment_event_type_code = 'LOAD' and l.vessel_imo_number is not null
    group by all
),
happened as (
    select equipment_reference as box, told.* from told where equipment_event_type_code is not null
    union all
    select a.equipment_reference, t.*
    from told t join aboard a on a.vessel_imo_number = t.vessel_imo_number
    where t.transport_event_type_code is not null
        and t.event_date_time >= a.since and (a.until is null or t.event_date_time <= a.until)
),
named as (
    select *, row_number() over (
        partition by box, event_id order by equipment_reference nulls last, {COPIES}
    ) as place
    from happened
)
select
    p.customer,
    concat('milestones/', h.box, '/', h.event_id) as log,
    0L as log_offset,
    h.box as equipment_reference,
    h.event_date_time as device_date_time,
    to_json(named_struct(
        'kind', 'milestone',
        'equipmentReference', h.box,
        'eventID', h.event_id,
        'eventType', h.event_type,
        'equipmentEventTypeCode', h.equipment_event_type_code,
        'transportEventTypeCode', h.transport_event_type_code,
        'eventDateTime', {json_time("h.event_date_time")},
        'UNLocationCode', h.port,
        'vesselIMONumber', h.vessel_imo_number,
        'voyageReference', h.voyage_reference
    )) as content
from named h
join {{periods}} p on p.equipment_reference = h.box
where h.place = 1 and p.grain = 'coarse' and {covered("h.event_date_time")}
"""  # noqa: S608


def milestones(events: DataFrame, sites: DataFrame, periods: DataFrame) -> DataFrame:
    """Compute the milestones of all recipients.

    Args:
        events: All events of the containers, and those of their ships.
        sites: All sites of the topology: the ports of events that name none.
    """
    return events.sparkSession.sql(_MILESTONES, events=events, sites=sites, periods=periods)
