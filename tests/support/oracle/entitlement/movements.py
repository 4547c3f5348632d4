"""A port authority's feed: the movements of ships and boxes of all lines at its port, and nothing about the cargo.

One record per event (``movements/<event>@0``), made by the same statement as table ``dock_movements``. Where events of
one id are about several containers or ships at the port, each is ``movements/<event>/<container or ship>@0``. A record
has neither the booking that the event may name, nor anything of the container except its number and line. SQL for the
connection of ``due``.
"""

from __future__ import annotations

from typing import Final

import duckdb

from shore.tables.dock_movements import MOVEMENTS
from shore.tables.operations import ABOUT

NEEDED: Final = "select exists (select 1 from customers where grain = 'movements')"

_NAME: Final = "replace(event_id, '/', '_')"  # as a part of a name in which slashes separate the parts

_HEARD: Final = """
create temp table heard as
select * from events
where problem is null and event_id in (
    select e.event_id from events e
    where exists (
        select 1 from touched t
        where (t.log is null and t.equipment_reference is null) or (t.log = e.log and e.log_offset >= t.first_offset)
    )
)
"""

_SCOPE: Final = f"""
insert into scope
select distinct c.customer, 'movements', {_NAME}, 0 from heard, customers c where c.grain = 'movements'
"""  # noqa: S608  # our own names

_LEFT_OVER: Final = """
insert into scope
select distinct f.customer, 'movements', split_part(f.log, '/', 2), 0
from feeds f join customers c on c.customer = f.customer
where c.grain <> 'movements' and f.log like 'movements/%'
"""
"""Customers that had a feed of movements and now have another kind: nothing of it is due, so it is taken back."""

_MOVEMENTS: Final = f"""
insert into derived
select
    c.customer,
    'movements/' || {_NAME} || case when count(*) over (partition by c.customer, m.event_id) > 1
        then '/' || {ABOUT} else '' end,
    0, coalesce(m.equipment_reference, m.vessel_imo_number, ''), m.event_date_time,
    json_merge_patch('{{}}', json_object(
        'kind', 'movement',
        'eventID', m.event_id,
        case when m.equipment_reference is null then 'transport' else 'equipment' end || 'EventTypeCode', m.movement,
        'eventDateTime', strftime(m.event_date_time, '%Y-%m-%dT%H:%M:%SZ'),
        'UNLocationCode', m.un_location_code,
        'vesselIMONumber', m.vessel_imo_number,
        'vessel', m.vessel,
        'voyageReference', m.voyage_reference,
        'equipmentReference', m.equipment_reference,
        'line', m.line
    ))::varchar
from ({MOVEMENTS.format(events="heard", sites="sites", owners="owners")}) m
join customers c on c.grain = 'movements' and c.port = m.un_location_code
where m.event_date_time is not null
"""  # noqa: S608


def derive(connection: duckdb.DuckDBPyConnection, *, everything: bool) -> None:
    """Add the movements that are due to port authorities to ``derived``, and what was compared to ``scope``; with
    ``everything`` also movements that others once got. Needs relations ``sites`` and ``owners`` for port
    authorities."""
    row = connection.execute(NEEDED).fetchone()
    if row is not None and row[0]:
        for statement in (_HEARD, _SCOPE, _MOVEMENTS):
            connection.execute(statement)
    if everything:
        connection.execute(_LEFT_OVER)
