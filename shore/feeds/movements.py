"""A port authority's feed: the movements of ships and boxes of all lines at its port, and nothing about the cargo.

One record per event (``movements/<event>@0``), made by the same statement as table ``dock_movements``. Where events of
one id are about several containers or ships at the port, each is ``movements/<event>/<container or ship>@0``. A record
has neither the booking that the event may name, nor anything of the container except its number and line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shore.feeds.coarse import json_time
from shore.tables.dock_movements import MOVEMENTS
from shore.tables.operations import ABOUT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NAME: Final = "replace(event_id, '/', '_')"
"""An event's id as a part of a name in which slashes separate the parts."""

_MOVEMENTS: Final = f"""
select
    c.customer,
    concat('movements/', {NAME.replace("event_id", "m.event_id")},
        case when count(*) over (partition by c.customer, m.event_id) > 1
            then concat('/', {ABOUT}) else '' end
    ) as log,
    0L as log_offset,
    coalesce(m.equipment_reference, m.vessel_imo_number, '') as equipment_reference,
    m.event_date_time as device_date_time,
    to_json(named_struct(
        'kind', 'movement',
        'eventID', m.event_id,
        'transportEventTypeCode', case when m.equipment_reference is null then m.movement end,
        'equipmentEventTypeCode', case when m.equipment_reference is not null then m.movement end,
        'eventDateTime', {json_time("m.event_date_time")},
        'UNLocationCode', m.un_location_code,
        'vesselIMONumber', m.vessel_imo_number,
        'vessel', m.vessel,
        'voyageReference', m.voyage_reference,
        'equipmentReference', m.equipment_reference,
        'line', m.line
    )) as content
from ({MOVEMENTS}) m
join {{customers}} c on c.grain = 'movements' and c.port = m.un_location_code
where m.event_date_time is not null
"""  # noqa: S608  # our own names


def movements(events: DataFrame, sites: DataFrame, owners: DataFrame, customers: DataFrame) -> DataFrame:
    """Compute the movements of all port authorities, as rows of ``shore.feeds.coarse.MADE``.

    Args:
        events: All copies of each event that is among them.
    """
    return events.sparkSession.sql(_MOVEMENTS, events=events, sites=sites, owners=owners, customers=customers)
