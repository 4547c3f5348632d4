"""Keeping table ``containers_now``: a part of job ``voyages``.

A row has parts that follow from different tables: the newest reading, the holder, the open alerts. The parts that
something new is known of are made again, the others are taken from the stored row; then all is joined with the line,
the ship, its position, and the booking. The newest of all readings is the newer of the stored one and that of the
batch, so no box's history is ever read.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from fairlead.records.alert import SEVERITIES
from shore.delta.datasets import is_in, open_dataset, select
from shore.delta.write import ReplaceScope, replace_rows
from shore.jobs import custody
from shore.jobs.reference import stored
from shore.paths import TablePaths
from shore.tables.containers_now import CONTAINERS_NOW, NEWEST, NEWEST_OF_ALL, NOW, OPEN_ALERTS, READING_COLUMNS, SHIPS
from shore.tables.model import TIME
from shore.tables.reference import OWNERS, SITES

_BOX = pa.field("equipment_reference", pa.string())
READINGS = pa.schema([_BOX, *(pa.field(column.name, column.type) for column in READING_COLUMNS)])
_HELD = pa.schema(
    [_BOX, pa.field("holder", pa.string()), pa.field("held_since", TIME), pa.field("custody_event", pa.string())]
)
_ALERTED = pa.schema([_BOX, pa.field("open_alerts", pa.int64()), pa.field("worst", pa.int64())])
_SHIPS = pa.schema(
    [
        pa.field("vessel_imo_number", pa.string()),
        pa.field("device_date_time", TIME),
        pa.field("latitude", pa.float64()),
        pa.field("longitude", pa.float64()),
    ]
)


@dataclass(frozen=True, slots=True)
class Touched:
    """What something new is known of.

    Args:
        readings: The newest readings of a batch (schema ``READINGS``), at most one a container.
        held: Containers with new entries of custody.
        alerted: Containers with new states of alerts.
        booked: Containers with changed bookings.
        ships: IMO numbers of ships with new positions.
    """

    readings: pa.Table
    held: Collection[str] = ()
    alerted: Collection[str] = ()
    booked: Collection[str] = ()
    ships: Collection[str] = ()


def update(paths: TablePaths, touched: Touched) -> None:
    """Make the rows of all containers that are touched again. Table ``bookings`` must be up to date."""
    now = open_dataset(paths, CONTAINERS_NOW.name)
    boxes = {*touched.readings["equipment_reference"].to_pylist(), *touched.held, *touched.alerted, *touched.booked}
    if touched.ships:
        aboard = is_in("vessel_imo_number", touched.ships) & pc.field("own_latitude").is_null()
        moved = now.to_table(columns=["equipment_reference"], filter=aboard)
        boxes |= set(moved["equipment_reference"].to_pylist())
    if not boxes:
        return
    rows = now.to_table(filter=is_in("equipment_reference", boxes))
    seen = rows.filter(pc.is_valid(rows["log"])).select(READINGS.names).cast(READINGS)
    newest = _newest(pa.concat_tables([seen, touched.readings]))
    held = _kept(_held_parts(rows), touched.held, _held(custody.of_boxes(paths, touched.held)))
    alerted = _kept(_alert_parts(rows), touched.alerted, _alerted(paths, touched.alerted))
    booked = open_dataset(paths, "bookings").to_table(columns=["equipment_reference"], filter=is_in(_BOX.name, boxes))
    fresh = _joined(paths, _known(newest, held, alerted, booked), newest, held, alerted)
    scope = ReplaceScope("equipment_reference", boxes)
    replace_rows(paths.table(CONTAINERS_NOW.name), fresh, scope, key=CONTAINERS_NOW.key)


def everything(paths: TablePaths) -> pa.Table:
    """The table as it must be."""
    newest = select(NEWEST_OF_ALL, READINGS, readings=open_dataset(paths, "readings"))
    held = _held(custody.everything(paths))
    alerted = _alerted(paths, None)
    booked = open_dataset(paths, "bookings").to_table(columns=["equipment_reference"])
    return _joined(paths, _known(newest, held, alerted, booked), newest, held, alerted)


def _known(*parts: pa.Table) -> list[str]:
    """The containers of which one of the parts knows something. An entry that is not believed makes no row."""
    return sorted({box for part in parts for box in part["equipment_reference"].to_pylist()} - {None})


def _joined(paths: TablePaths, boxes: Sequence[str], newest: pa.Table, held: pa.Table, alerted: pa.Table) -> pa.Table:
    sites = stored(paths, SITES)
    holders = sites.filter(pc.is_in(sites["site"], pc.unique(held["holder"])))
    aboard = [ship for ship in holders["vessel_imo_number"].to_pylist() if ship is not None]
    positions = open_dataset(paths, "positions").filter(is_in("vessel_imo_number", aboard))
    return select(
        NOW,
        CONTAINERS_NOW.plain_schema,
        boxes=pa.table([pa.array(boxes, pa.string())], schema=pa.schema([_BOX])),
        newest=newest,
        held=held,
        alerted=alerted,
        bookings=open_dataset(paths, "bookings").to_table(filter=is_in("equipment_reference", boxes)),
        owners=stored(paths, OWNERS),
        sites=sites,
        ships=select(SHIPS, _SHIPS, positions=positions),
    )


def _newest(observed: pa.Table) -> pa.Table:
    return select(NEWEST, READINGS, observed=observed)


_HOLDER = """
select equipment_reference, holder, from_date_time as held_since, event as custody_event from (
    select *, row_number() over (
        partition by equipment_reference order by from_date_time desc, log, term desc
    ) as age
    from (select *, row_number() over (partition by log order by term desc) as newest from {intervals}) terms
    where newest = 1 and equipment_reference is not null
) ranked
where age = 1
"""


def _held(intervals: pa.Table) -> pa.Table:
    return select(_HOLDER, _HELD, intervals=intervals)


def _alerted(paths: TablePaths, boxes: Collection[str] | None) -> pa.Table:
    """Open alerts of these containers; of all when None."""
    if boxes is not None and not boxes:
        return _ALERTED.empty_table()
    alerts, ashore = open_dataset(paths, "alerts"), open_dataset(paths, "alerts_ashore")
    if boxes is not None:
        own = is_in("equipment_reference", boxes)
        alerts, ashore = alerts.filter(own), ashore.filter(own)
    return select(OPEN_ALERTS, _ALERTED, alerts=alerts, alerts_ashore=ashore)


def _held_parts(rows: pa.Table) -> pa.Table:
    return rows.select(_HELD.names).cast(_HELD)


def _alert_parts(rows: pa.Table) -> pa.Table:
    worst = pc.index_in(rows["worst_severity"], pa.array(SEVERITIES)).cast(pa.int64())
    return pa.table([rows["equipment_reference"], rows["open_alerts"], pc.add(worst, 1)], schema=_ALERTED)


def _kept(stored_part: pa.Table, again: Collection[str], fresh: pa.Table) -> pa.Table:
    """The stored part of rows, but for the containers whose part was made again."""
    made_again = pc.is_in(stored_part["equipment_reference"], pa.array(sorted(again), pa.string()))
    return pa.concat_tables([stored_part.filter(pc.invert(made_again)), fresh])
