"""Keeping ``excursions`` and ``excursion_parts`` after hours that were computed again. No Spark.

Most boxes are in band: only those with a reading out of band in their hours, with a stored part there, or with one that
these hours may show to be over are looked at. Their half hours are made again from ``readings``, then the sessions
within reach of them from the parts.
"""

from __future__ import annotations

import datetime as dt
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from shore.delta import datasets
from shore.delta.write import ReplaceScope, replace_rows
from shore.jobs.hourly import HOUR, Chunk
from shore.paths import TablePaths
from shore.tables.bands import USED
from shore.tables.excursions import EXCURSION_PARTS, EXCURSIONS, PARTS, SESSIONS, SILENCE, SLOT
from shore.tables.model import TIME

_SLOTS: Final = pa.schema([("low", TIME), ("high", TIME)])
_PART: Final = pa.schema([("equipment_reference", pa.string()), ("part_start", TIME)])

# Those in the hours and in the half hour before. Of earlier ones the last of each quantity, unless a reading before
# these hours had shown what came after it.
_PENDING = """
select equipment_reference, part_start from {parts}, {bounds} as bounds where part_start >= near
union all
select equipment_reference, part_start from {parts} as parts, {bounds} as bounds where part_start < near
qualify row_number() over (partition by equipment_reference, quantity order by part_start desc) = 1
    and (recovered_date_time is null or recovered_date_time >= low)
"""

_REACHED = """
with bounds as (
    select p.equipment_reference, p.quantity, least(p.low, min(start_date_time)) as low,
        greatest(p.high, max(last_date_time)) as high
    from {touched} as p left join {sessions} as s using (equipment_reference, quantity)
    group by p.equipment_reference, p.quantity, p.low, p.high
)
select parts.* from {parts} as parts join bounds using (equipment_reference, quantity)
where start_date_time between low and high
"""


def store_excursions(paths: TablePaths, hours: pa.Table, chunk: Chunk) -> None:
    """Bring both tables up to date with the hours of a chunk; ``hours`` are all that were computed."""
    since, until = chunk.low - SLOT, chunk.high + HOUR
    pending = _pending(paths, chunk, since - SILENCE, until)
    out = hours.filter(chunk.among(chunk.low + HOUR, chunk.high + HOUR) & (pc.field("readings_out") > 0))
    boxes = {*out["equipment_reference"].to_pylist(), *pending["equipment_reference"].to_pylist()}
    if not boxes:
        return
    if pending.num_rows:
        since = min(since, pc.min(pending["part_start"]).as_py())
    _store_parts(paths, sorted(boxes), since, until)
    _store_sessions(paths, sorted(boxes), since, until)


def _pending(paths: TablePaths, chunk: Chunk, since: dt.datetime, until: dt.datetime) -> pa.Table:
    """Stored parts that readings of the chunk's hours may change, which begin in [since, until)."""
    found = pc.field("equipment_reference").isin(chunk.boxes) & datasets.between("part_start", since, until)
    parts = datasets.open_dataset(paths, EXCURSION_PARTS.name).to_table(filter=found)
    bounds = pa.table({"low": pa.array([chunk.low], TIME), "near": pa.array([chunk.low - SLOT], TIME)})
    return datasets.select(_PENDING, _PART, parts=parts, bounds=bounds)


def _store_parts(paths: TablePaths, boxes: list[str], since: dt.datetime, until: dt.datetime) -> None:
    found = pc.field("equipment_reference").isin(boxes)
    found &= datasets.between("device_date_time", since - SLOT, until + SILENCE + SLOT)
    readings = datasets.open_dataset(paths, "readings").to_table(columns=list(USED), filter=found)
    fresh = parts_of(readings, since, until)
    scope = ReplaceScope("equipment_reference", boxes, "part_start", since, until)
    replace_rows(paths.table(EXCURSION_PARTS.name), fresh, scope, key=EXCURSION_PARTS.key)


def _store_sessions(paths: TablePaths, boxes: list[str], since: dt.datetime, until: dt.datetime) -> None:
    """Make the sessions again that begin or end within reach of [since, until); all others stay as they are."""
    mine = pc.field("equipment_reference").isin(boxes)
    reach = mine & (pc.field("start_date_time") <= until + SILENCE) & (pc.field("last_date_time") >= since - SILENCE)
    before = datasets.rows(paths, EXCURSIONS, reach)
    bounds = [since, until]
    if before.num_rows:
        bounds += [pc.min(before["start_date_time"]).as_py(), pc.max(before["last_date_time"]).as_py()]
    parts = datasets.rows(
        paths, EXCURSION_PARTS, mine & datasets.between("part_start", min(bounds) - SLOT, max(bounds) + SLOT)
    )
    quantities = pa.array([q for q in ("TEMPERATURE", "HUMIDITY", "POWER") for _ in boxes], pa.string())
    touched = pa.table(
        {
            "equipment_reference": pa.array(boxes * 3, pa.string()),
            "quantity": quantities,
            "low": pa.repeat(pa.scalar(since, TIME), len(quantities)),
            "high": pa.repeat(pa.scalar(until, TIME), len(quantities)),
        }
    )
    chosen = datasets.select(_REACHED, EXCURSION_PARTS.plain_schema, touched=touched, sessions=before, parts=parts)
    fresh = sessions_of(chosen)
    ids = sorted({*before["excursion_id"].to_pylist(), *fresh["excursion_id"].to_pylist()})
    begins = [*before["start_date_time"].to_pylist(), *fresh["start_date_time"].to_pylist()]
    if not ids or fresh.sort_by("excursion_id").equals(before.sort_by("excursion_id")):
        return
    scope = ReplaceScope("excursion_id", ids, "start_date_time", min(begins), max(begins) + SLOT)
    replace_rows(paths.table(EXCURSIONS.name), fresh, scope, key=EXCURSIONS.key)


def parts_of(readings: pa.Table, since: dt.datetime, until: dt.datetime) -> pa.Table:
    """The half hours that begin in [since, until) of these readings."""
    slots = pa.Table.from_pylist([{"low": since, "high": until - SLOT}], schema=_SLOTS)
    return datasets.select(PARTS, EXCURSION_PARTS.plain_schema, readings=readings, slots=slots)


def sessions_of(parts: pa.Table) -> pa.Table:
    """The sessions that these parts make up."""
    return datasets.select(SESSIONS, EXCURSIONS.plain_schema, parts=parts)
