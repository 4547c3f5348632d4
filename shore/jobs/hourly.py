"""Storing hours that were computed: the rows of ``conditions`` and ``mkt``, and of the longer windows that they are in.

No Spark. Hours come as ``shore.tables.hours`` gives them; everything else is read from the tables themselves: a window
of 24 hours needs the stored hours beside the new ones, one of 30 days the stored days. Each length of window is
replaced in one commit of its own, shorter ones first; doing it twice gives the same tables.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from shore.delta import datasets
from shore.delta.write import ReplaceScope, replace_rows
from shore.paths import TablePaths
from shore.tables import conditions as conditions_table
from shore.tables import mkt as mkt_table
from shore.tables.conditions import CONDITIONS
from shore.tables.mkt import MKT
from shore.tables.model import TIME, Table

HOUR: Final = dt.timedelta(hours=1)
DAY: Final = dt.timedelta(days=1)
_MANY: Final = 500  # boxes: an hour that so many share is stored apart from those of single ones

_ENDS: Final = pa.schema([("low", TIME), ("high", TIME)])


@dataclass(frozen=True, slots=True)
class Chunk:
    """Hours of one day that are stored together: those that begin in [``low``, ``high``], of these boxes."""

    boxes: tuple[str, ...]
    low: dt.datetime
    high: dt.datetime

    def scope(self, since: dt.datetime, until: dt.datetime, *, hours: int) -> ReplaceScope:
        """The rows of these boxes whose windows of so many hours end in [since, until]."""
        return ReplaceScope(
            "equipment_reference", self.boxes, "window_end", since, until + HOUR, equal={"window_hours": hours}
        )

    def among(self, since: dt.datetime, until: dt.datetime) -> pc.Expression:
        """Arrow's filter for these boxes and windows that end in [since, until]."""
        found = (pc.field("window_end") >= pa.scalar(since, TIME)) & (pc.field("window_end") <= pa.scalar(until, TIME))
        return found & pc.field("equipment_reference").isin(self.boxes)


def chunks(hours: pa.Table) -> list[Chunk]:
    """Divide rows of hours (equipment_reference, window_start) so that one box's late hour does not draw in all others.

    Of each day, the hours that many boxes share are stored together, and so are those of few boxes.
    """
    counts = hours.group_by("window_start").aggregate([("equipment_reference", "count")])
    groups: dict[tuple[dt.date, bool], list[dt.datetime]] = {}
    for begin, count in zip(*(counts[name].to_pylist() for name in counts.schema.names), strict=True):
        groups.setdefault((begin.date(), count > _MANY), []).append(begin)
    found = []
    for begins in groups.values():
        boxes = hours.filter(pc.is_in(hours["window_start"], pa.array(begins, TIME)))["equipment_reference"]
        found.append(Chunk(tuple(sorted(pc.unique(boxes).to_pylist())), min(begins), max(begins)))
    return sorted(found, key=lambda chunk: chunk.low)


def store_conditions(paths: TablePaths, hours: pa.Table, chunk: Chunk) -> None:
    """Bring table ``conditions`` up to date with the hours of a chunk; ``hours`` are all that were computed."""
    fresh = as_conditions(hours)
    units = _store_units(paths, CONDITIONS, fresh, chunk)
    _store_windows(paths, CONDITIONS, conditions_table.DAYS, units, chunk)


def store_mkt(paths: TablePaths, hours: pa.Table, chunk: Chunk, activation_energy: float) -> None:
    """The same for table ``mkt``."""
    units = _store_units(paths, MKT, as_mkt(hours, activation_energy), chunk)
    _store_windows(paths, MKT, mkt_table.DAYS, units, chunk)
    first, last = _midnight(chunk.low), _midnight(chunk.high)
    whole = chunk.among(first - 28 * DAY, last + 30 * DAY) & pc.field("whole_day")
    days = datasets.rows(paths, MKT, whole)
    low, high = first + DAY, last + 30 * DAY
    rows = windows(MKT, mkt_table.MONTHS, days, low, high, hours=720)
    replace_rows(paths.table(MKT.name), rows, chunk.scope(low, high, hours=720), key=MKT.key)


def as_conditions(hours: pa.Table) -> pa.Table:
    """Rows of hours as rows of ``conditions``."""
    return _with(hours, CONDITIONS, {"window_hours": 1})


def as_mkt(hours: pa.Table, activation_energy: float) -> pa.Table:
    """Rows of hours as rows of ``mkt``."""
    return _with(hours, MKT, {"window_hours": 1, "whole_day": False, "activation_energy": activation_energy})


def windows(
    table: Table, statement: str, units: pa.Table, low: dt.datetime, high: dt.datetime, *, hours: int
) -> pa.Table:
    """The longer windows that end in [low, high], from the rows of their units."""
    ends = pa.Table.from_pylist([{"low": low, "high": high}], schema=_ENDS)
    constant = {"window_hours": hours} | ({"whole_day": False} if "whole_day" in table.plain_schema.names else {})
    made = pa.schema([f for f in table.plain_schema if f.name not in constant])
    rows = _with(datasets.select(statement, made, units=units, ends=ends), table, constant)
    if hours != 24 or "whole_day" not in constant:
        return rows
    start = rows["window_start"]
    whole = pc.equal(pc.floor_temporal(start, unit="day"), start)
    return rows.set_column(rows.schema.get_field_index("whole_day"), "whole_day", whole)


def _store_units(paths: TablePaths, table: Table, fresh: pa.Table, chunk: Chunk) -> pa.Table:
    """Store the rows of one hour; gives these and those around them, as far as the windows of 24 hours reach."""
    around = chunk.among(chunk.low - 22 * HOUR, chunk.high + 24 * HOUR)
    there = datasets.rows(paths, table, around & (pc.field("window_hours") == 1))
    newer = fresh.filter(around)
    key = ["equipment_reference", "window_end"]
    kept = there.join(newer.select(key), keys=key, join_type="left anti").select(table.plain_schema.names)
    units = pa.concat_tables([kept.cast(table.plain_schema), newer])
    low, high = chunk.low + HOUR, chunk.high + HOUR
    rows = units.filter(chunk.among(low, high))
    replace_rows(paths.table(table.name), rows, chunk.scope(low, high, hours=1), key=table.key)
    return units


def _store_windows(paths: TablePaths, table: Table, statement: str, units: pa.Table, chunk: Chunk) -> None:
    low, high = chunk.low + HOUR, chunk.high + 24 * HOUR
    rows = windows(table, statement, units, low, high, hours=24)
    replace_rows(paths.table(table.name), rows, chunk.scope(low, high, hours=24), key=table.key)


def _with(rows: pa.Table, table: Table, constant: Mapping[str, float]) -> pa.Table:
    """The columns of a table, some of them the same in all rows."""
    schema = table.plain_schema
    arrays = [
        pa.repeat(pa.scalar(constant[f.name], f.type), rows.num_rows) if f.name in constant else rows[f.name]
        for f in schema
    ]
    return pa.table(arrays, schema=schema)


def _midnight(time: dt.datetime) -> dt.datetime:
    return time.replace(hour=0, minute=0, second=0, microsecond=0)
