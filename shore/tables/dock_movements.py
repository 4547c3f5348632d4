"""Table ``dock_movements``: arrivals, loads, unloads and departures of boxes and ships at docks, for port authorities.

Computed from ``events``: one row per DCSA eventID and box or ship, however many copies were published and by however
many sites. It names a box's line, but never its contents, customer or booking, so a port authority may be given all of
it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from shore.tables.model import TIME, Column, Table
from shore.tables.operations import COPIES, HAPPENED, OF_ONE_EVENT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TEXT = pa.string()

DOCK_MOVEMENTS = Table(
    name="dock_movements",
    title="What happened at the docks: ships and boxes that came and left",
    columns=(
        Column("event_id", _TEXT, "DCSA eventID; events about several boxes or ships may have the same"),
        Column("un_location_code", _TEXT, "UN/LOCODE of the event, else of the site that published it; null at sea"),
        Column("event_date_time", TIME, "When it happened"),
        Column(
            "movement",
            _TEXT,
            "DCSA code. Ships: ARRI (docked), DEPA (left). Boxes: GTIN (came to the dock), LOAD, DISC (unloaded), GTOT",
        ),
        Column("vessel_imo_number", _TEXT, "Ship involved; null at a gate"),
        Column("vessel", _TEXT, "Its name in the topology; null for a stranger"),
        Column("voyage_reference", _TEXT, "Voyage"),
        Column("equipment_reference", _TEXT, "ISO 6346 container number; null for a ship's movement"),
        Column("owner_code", _TEXT, "Its ISO 6346 owner code with category"),
        Column("line", _TEXT, "Line of the box, by its owner code; null where the topology does not know the code"),
        Column("publisher", _TEXT, "Who says it"),
        Column("event_created_date_time", TIME, "When it was written down"),
        Column("copies", pa.int64(), "How many records say it"),
        Column("log", _TEXT, "Log of the record that counts: the one written down first"),
        Column("log_offset", pa.int64(), "Its offset there"),
    ),
    key=("event_id", "log", "log_offset"),
    grain="One row per DCSA event and the box or ship that it is about.",
    late="Events that new records are about are made again from all their copies, however late those come. An earlier "
    "copy that comes later takes the place of the row.",
    layout="Clustered by port and time: port authorities ask about theirs.",
    cluster_by=("un_location_code", "event_date_time"),
)

MOVEMENTS = f"""
with told as (
    select *,
        row_number() over copies as copy,
        count(*) over (partition by {OF_ONE_EVENT}) as copies
    from {{events}}
    where problem is null and {HAPPENED}
    window copies as (partition by {OF_ONE_EVENT} order by {COPIES})
)
select
    e.event_id,
    coalesce(e.un_location_code, p.un_location_code) as un_location_code,
    e.event_date_time,
    coalesce(e.equipment_event_type_code, e.transport_event_type_code) as movement,
    e.vessel_imo_number,
    v.title as vessel,
    e.voyage_reference,
    e.equipment_reference,
    substr(e.equipment_reference, 1, 4) as owner_code,
    o.line,
    e.publisher,
    e.event_created_date_time,
    e.copies,
    e.log,
    e.log_offset
from told e
left join {{sites}} p on e.log = 'events.' || p.site
left join {{sites}} v on v.vessel_imo_number = e.vessel_imo_number and v.kind = 'ship'
left join {{owners}} o on o.owner_code = substr(e.equipment_reference, 1, 4)
where e.copy = 1
"""  # noqa: S608  # constants of this package


def dock_movements(events: DataFrame, sites: DataFrame, owners: DataFrame) -> DataFrame:
    """Return one row per event.

    Args:
        events: All copies of each of its events.
        sites: All sites of the topology: the names of ships, and the ports of events that name none.
        owners: All owner codes: the lines of boxes.
    """
    found: DataFrame = events.sparkSession.sql(MOVEMENTS, events=events, sites=sites, owners=owners)
    return found
