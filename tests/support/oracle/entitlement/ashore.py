"""Alerts that only shore has found, and digests of ships at sea, as ``shore.feeds.ashore`` and ``at_sea`` define them.

SQL for the connection of ``due``; all touched containers are compared.
"""

from __future__ import annotations

from typing import Final

import duckdb

from fairlead.records.alert import RAISED_BY_SHORE
from shore.tables.valid_bookings import covers

_SCOPE: Final = """
insert into scope
select distinct c.customer, k.kind, t.equipment_reference, 0
from touched t, customers c, (values ('alerts'), ('digests')) k(kind)
where t.equipment_reference is not null
"""

_CONTENT: Final = f"""json_object(
        'alertID', alert_id,
        'kind', kind,
        'severity', severity,
        'state', state,
        'equipmentReference', equipment_reference,
        'raisedAt', '{RAISED_BY_SHORE}',
        'eventDateTime', strftime(event_date_time, '%Y-%m-%dT%H:%M:%S.%gZ'),
        'raisedDateTime', strftime(event_date_time, '%Y-%m-%dT%H:%M:%S.%gZ'),
        'evidence', [json_object('name', reason, 'weight', 1::double, 'detail', coalesce(detail, ''))]
    )::varchar"""
"""A state of an alert as its record has it, without the revision."""

_ALERTS: Final = f"""
insert into derived
with found as (
    select * from alerts_ashore a
    where a.equipment_reference in (select equipment_reference from touched) and not exists (
        select 1 from alerts s
        where s.equipment_reference = a.equipment_reference and s.alert_id = a.condition_id
    )
),
seen as (
    select x.customer, f.* from found f join boxes x on x.equipment_reference = f.equipment_reference
    where x.grain = 'alerts' or exists (
        select 1 from periods p
        where p.customer = x.customer and p.equipment_reference = f.equipment_reference
            and {covers("p", "f.event_date_time")}
    )
    qualify row_number() over (partition by x.customer, f.alert_id order by f.revision desc) = 1
)
select
    customer, 'alerts/' || equipment_reference || '/' || alert_id, 0, equipment_reference, event_date_time,
    {_CONTENT}
from seen
"""  # noqa: S608  # our own names

DELETED_ALERT: Final = f"""(
    h.log like 'alerts/%' and not exists (
        select 1 from alerts_ashore a where a.alert_id = split_part(h.log, '/', 3)
    ) and (
        exists (
            select 1 from periods p
            where p.customer = h.customer and p.equipment_reference = h.equipment_reference
                and {covers("p", "h.device_date_time")}
        ) or exists (
            select 1 from customers c
            where c.customer = h.customer and list_contains(c.owners, left(h.equipment_reference, 4))
        )
    )
)"""  # noqa: S608
"""The condition that a row ``h`` of a feed is an alert that the table has no more, by its retention, and that the
customer may see: it stays."""

_DIGESTS: Final = f"""
insert into derived
with said as (
    select vessel_imo_number, log, log_offset, unnest(boxes, max_depth := 2)
    from digests
),
seen as (
    select x.customer, s.*
    from said s join boxes x on x.equipment_reference = s.equipment_reference and x.grain = 'detailed'
    where s.equipment_reference in (select equipment_reference from touched) and exists (
        select 1 from periods p
        where p.customer = x.customer and p.equipment_reference = s.equipment_reference
            and {covers("p", "s.reading_date_time")}
    )
    qualify row_number() over (
        partition by x.customer, s.equipment_reference order by s.reading_date_time desc, s.log, s.log_offset
    ) = 1
)
select
    customer, 'digests/' || equipment_reference, 0, equipment_reference, reading_date_time,
    json_merge_patch('{{}}', json_object(
        'kind', 'digest',
        'equipmentReference', equipment_reference,
        'vesselIMONumber', vessel_imo_number,
        'readingDateTime', strftime(reading_date_time, '%Y-%m-%dT%H:%M:%S.%gZ'),
        'setpointTemperature', setpoint_temperature,
        'supplyTemperature', supply_temperature,
        'returnTemperature', return_temperature,
        'isConnectedToPowerSource', is_connected_to_power_source,
        'isPowered', is_powered,
        'inBand', in_band,
        'isDisturbed', is_disturbed,
        'doorOpen', door_open,
        'immersed', immersed
    ))::varchar
from seen
where not exists (
    select 1 from readings r
    where r.equipment_reference = seen.equipment_reference and date_trunc(
        'milliseconds', least(r.device_date_time, coalesce(r.received_date_time, r.device_date_time))
    ) >= seen.reading_date_time
)
"""  # noqa: S608

WITHOUT_REACHED: Final = """
delete from derived d
where d.log like 'digests/%' and d.device_date_time < ? and not exists (
    select 1 from made_there h where h.customer = d.customer and h.log = d.log and not h.taken_back
)
"""
"""Removes digests from before a time, unless they stand in a feed: a reading that retention has deleted may have
reached them."""


def derive(connection: duckdb.DuckDBPyConnection) -> None:
    """Add the alerts and digests that are due to ``derived``, and what was compared to ``scope``."""
    for statement in (_SCOPE, _ALERTS, _DIGESTS):
        connection.execute(statement)
