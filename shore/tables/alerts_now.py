"""Table ``alerts_now``: one row per alert, raised by a site (``alerts``) or by shore (``alerts_ashore``).

Grain: one row per alert. Key: (``raised_at``, ``alert_id``, ``equipment_reference``). Late data: a new row about a box
recomputes all alerts of that box from ``alerts``, ``alerts_ashore``, ``custody``, ``bookings`` and ``sites``. Repeating
this changes nothing.

The site in whose log a state stands has raised the alert. Several sites may give one id to alerts of their own, and a
stolen ship any id, also one to alerts about several boxes; rows of ``alerts`` of earlier releases may name another site
than their log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from fairlead.records.alert import RAISED_BY_SHORE
from shore.tables.model import TIME, Column, Table
from shore.tables.valid_bookings import VALID_BOOKINGS, covers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TEXT, _LONG, _DOUBLE = pa.string(), pa.int64(), pa.float64()

ALERTS_NOW = Table(
    name="alerts_now",
    title="Every alert as it stands now",
    columns=(
        Column("source", _TEXT, "site: raised by a site's bridge (table alerts); shore: by alerts_ashore"),
        Column("alert_id", _TEXT, "Id of the alert in that table"),
        Column("kind", _TEXT, "What it is about: OVERBOARD, POWER_LOST, TEMPERATURE, SILENCE, ... (docs/edge.md)"),
        Column("state", _TEXT, "Newest state: OPENED, UPDATED; CLEARED when it is over"),
        Column("severity", _TEXT, "Newest severity: CRITICAL, ALARM, WARNING"),
        Column("highest_severity", _TEXT, "Highest severity that it ever had"),
        Column("equipment_reference", _TEXT, "ISO 6346 container number; empty: all of a site"),
        Column("opened_date_time", TIME, "Device time of its first state"),
        Column("updated_date_time", TIME, "Device time of its newest state"),
        Column("cleared_date_time", TIME, "Device time of its end; null while it is open"),
        Column("minutes_open", _DOUBLE, "From opened to cleared; null while it is open", "min"),
        Column("revisions", _LONG, "States so far, repeats counted once"),
        Column("raised_at", _TEXT, "Site that raised it, by the log that has it; shore: shore did"),
        Column("raised_date_time", TIME, "When the site wrote its first state; null where shore raised it"),
        Column("log", _TEXT, "Log of the container that custody was looked up in; null without one"),
        Column("holder", _TEXT, "Site that held the container's log when the alert opened (table custody)"),
        Column("vessel_imo_number", _TEXT, "Ship it happened on: as the site says, or the holder; null ashore"),
        Column("booking_reference", _TEXT, "Booking of the container at that time"),
        Column("customer", _TEXT, "Customer of that booking"),
        Column("latitude", _DOUBLE, "WGS 84, when it opened", "deg"),
        Column("longitude", _DOUBLE, "WGS 84, when it opened", "deg"),
        Column("detail", _TEXT, "What was seen, as its newest state says"),
        Column("condition_id", _TEXT, "The same for alerts of both sources about one condition"),
        Column("acknowledged_by", _TEXT, "Who has said that it is seen to; null: nobody"),
        Column("acknowledged_date_time", TIME, "When"),
    ),
    key=("raised_at", "alert_id", "equipment_reference"),
    grain="One row per alert.",
    late="All alerts of a container are made again when a row about it comes, whatever its time.",
    layout="Not partitioned: small.",
)

NOW: Final = f"""
with states as (
    select 'site' as source, alert_id, kind, state, severity, coalesce(revision, 0) as revision, equipment_reference,
        event_date_time, split_part(log, '.', 2) as raised_at, raised_date_time, vessel_imo_number, latitude, longitude,
        cast(null as string) as log, cast(null as bigint) as first_offset, alert_id as condition_id,
        array_join(
            transform(
                from_json(evidence, 'array<struct<name: string, detail: string>>'),
                e -> case when coalesce(e.detail, '') = '' then e.name else concat(e.name, ': ', e.detail) end
            ),
            '; '
        ) as detail,
        nullif(acknowledged_by, '') as acknowledged_by, acknowledged_date_time,
        log as record_log, log_offset as record_offset
    from {{alerts}}
    where alert_id is not null
    union all
    select 'shore', alert_id, kind, state, severity, revision, equipment_reference,
        event_date_time, '{RAISED_BY_SHORE}', null, null, latitude, longitude, log, first_offset, condition_id, detail,
        cast(null as string), cast(null as timestamp), log, log_offset
    from {{alerts_ashore}}
),
numbered as (
    select *,
        case severity when 'CRITICAL' then 3 when 'ALARM' then 2 else 1 end as rank,
        row_number() over (
            partition by raised_at, alert_id, equipment_reference
            order by revision, event_date_time nulls last, record_log, record_offset
        ) as place,
        row_number() over (
            partition by raised_at, alert_id, equipment_reference
            order by revision desc, event_date_time desc nulls last, record_log desc, record_offset desc
        ) as place_from_end
    from states
),
raised as (
    select source, raised_at, alert_id, equipment_reference,
        max(kind) filter (where place = 1) as kind,
        max(state) filter (where place_from_end = 1) as state,
        max(severity) filter (where place_from_end = 1) as severity,
        case max(rank) when 3 then 'CRITICAL' when 2 then 'ALARM' else 'WARNING' end as highest_severity,
        max(event_date_time) filter (where place = 1) as opened_date_time,
        max(event_date_time) filter (where place_from_end = 1) as updated_date_time,
        max(event_date_time) filter (where place_from_end = 1 and state = 'CLEARED') as cleared_date_time,
        count(distinct revision) as revisions,
        max(raised_date_time) filter (where place = 1) as raised_date_time,
        max(log) filter (where place = 1) as log,
        max(first_offset) filter (where place = 1) as first_offset,
        max(vessel_imo_number) filter (where place = 1) as vessel_imo_number,
        max(latitude) filter (where place = 1) as latitude,
        max(longitude) filter (where place = 1) as longitude,
        max(detail) filter (where place_from_end = 1) as detail,
        max(condition_id) filter (where place = 1) as condition_id,
        max(acknowledged_by) filter (where place_from_end = 1) as acknowledged_by,
        max(acknowledged_date_time) filter (where place_from_end = 1) as acknowledged_date_time
    from numbered
    group by source, raised_at, alert_id, equipment_reference
),
held as (
    select a.*, c.log as held_log, c.holder, row_number() over (
        partition by a.raised_at, a.alert_id, a.equipment_reference
        order by c.from_date_time desc, c.term desc, c.log
    ) as nth
    from raised a
    left join {{custody}} c on c.equipment_reference = a.equipment_reference and not c.lost and case
        when a.log is not null
            then c.log = a.log and a.first_offset >= c.from_offset
            and (c.to_offset is null or a.first_offset < c.to_offset)
        else a.opened_date_time >= c.from_date_time
            and (c.to_date_time is null or a.opened_date_time < c.to_date_time)
    end
),
booked as (
    select a.*, b.booking_reference, b.customer, row_number() over (
        partition by a.raised_at, a.alert_id, a.equipment_reference
        order by b.recorded_from desc nulls last, b.booking_reference, b.log, b.log_offset
    ) as number
    from (select * from held where nth = 1) a
    left join ({VALID_BOOKINGS}) b on b.equipment_reference = a.equipment_reference
        and {covers("b", "a.opened_date_time")}
)
select a.source, a.alert_id, a.kind, a.state, a.severity, a.highest_severity, a.equipment_reference,
    a.opened_date_time, a.updated_date_time, a.cleared_date_time,
    (unix_micros(a.cleared_date_time) - unix_micros(a.opened_date_time)) / 6.0e7 as minutes_open,
    a.revisions, a.raised_at, a.raised_date_time, coalesce(a.log, a.held_log) as log, a.holder,
    coalesce(a.vessel_imo_number, s.vessel_imo_number) as vessel_imo_number,
    a.booking_reference, a.customer, a.latitude, a.longitude, a.detail, a.condition_id,
    a.acknowledged_by, a.acknowledged_date_time
from booked a
left join {{sites}} s on s.site = a.holder
where a.number = 1
"""  # noqa: S608  # constants of this package


def alerts_now(
    alerts: DataFrame, alerts_ashore: DataFrame, custody: DataFrame, bookings: DataFrame, sites: DataFrame
) -> DataFrame:
    """Compute the current state of all alerts in these rows of both alert tables.

    Args:
        alerts: All rows of each of their containers.
        alerts_ashore: All rows of each of their containers.
        custody: The intervals of custody of these containers.
        bookings: The states of all bookings of these containers.
        sites: All sites of the topology.
    """
    found: DataFrame = alerts.sparkSession.sql(
        NOW, alerts=alerts, alerts_ashore=alerts_ashore, custody=custody, bookings=bookings, sites=sites
    )
    return found
