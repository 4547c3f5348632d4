"""The time ranges that a batch touches, by box, and the literal bounds for Delta's file skipping.

A batch may hold current readings of many boxes, a reading of one box from last month, and weeks of readings from a ship
that has just berthed. A *span* is a time range of one box: touched times that lie close together. A join with the spans
selects exactly the rows in scope. An *extent* is a time range around spans of many boxes. Extents become literals in
conditions, so that Delta skips files outside them. Late readings get an extent of their own, so that nothing between
them and now is read.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from shore.delta.commit import AnyOf, Between
from shore.tables.model import time_of

BOX: Final = "equipment_reference"
_EXTENTS: Final = 10  # alternatives in one condition
_LONG: Final = dt.timedelta(days=2)  # spans longer than this share no extent with shorter ones

_SPANS: Final = """
with followed as (
    select *, coalesce(window_start - lag(window_start) over box > interval '{seconds}' second, false) as is_first
    from {{keys}}
    window box as (partition by equipment_reference order by window_start)
),
numbered as (
    select *, sum(cast(is_first as int)) over (partition by equipment_reference order by window_start) as number
    from followed
)
select equipment_reference, min(window_start) as low, max(window_start) as high
from numbered group by equipment_reference, number
"""

# The hours in which a span begins and ends, so that few rows reach the driver.
_FIRST_HOUR: Final = "date_trunc('hour', low)"
_LAST_HOUR: Final = "date_trunc('hour', high + interval 1 hour - interval 1 microsecond)"


@dataclass(frozen=True, slots=True)
class Extent:
    """Touched times in [``low``, ``high``], of boxes whose names are in [``first``, ``last``]."""

    low: dt.datetime
    high: dt.datetime
    first: str
    last: str

    def join(self, other: Extent) -> Extent:
        """Return the smallest extent that holds both."""
        return Extent(
            min(self.low, other.low),
            max(self.high, other.high),
            min(self.first, other.first),
            max(self.last, other.last),
        )


def spans_of(keys: DataFrame, *, gap: dt.timedelta) -> DataFrame:
    """Return the spans of touched times: columns equipment_reference, low, high.

    Args:
        keys: One row for each touched hour of a box: equipment_reference, window_start.
        gap: Times of a box that are further apart than this belong to two spans.
    """
    statement = _SPANS.format(seconds=int(gap.total_seconds()))
    return keys.sparkSession.sql(statement, keys=keys)


def within(rows: DataFrame, spans: DataFrame, condition: str) -> DataFrame:
    """Return the rows (``r``) for which a span (``s``) of the same box meets a condition over both."""
    return _joined(rows, spans, condition, "left_semi")


def outside(rows: DataFrame, spans: DataFrame, condition: str) -> DataFrame:
    """Return the rows (``r``) for which no span (``s``) of the same box meets the condition."""
    return _joined(rows, spans, condition, "left_anti")


def _joined(rows: DataFrame, spans: DataFrame, condition: str, kind: str) -> DataFrame:
    same_box = F.col(f"r.{BOX}") == F.col(f"s.{BOX}")
    return rows.alias("r").join(spans.alias("s"), same_box & F.expr(condition), kind)


def extents_of(spans: DataFrame) -> tuple[Extent, ...]:
    """Return the extents of spans in order of time; empty without spans. The driver collects only the distinct hours in
    which spans begin and end, not the spans."""
    hours = (F.unix_micros(F.expr(hour)) for hour in (_FIRST_HOUR, _LAST_HOUR))
    rows = spans.groupBy(*hours).agg(F.min(BOX), F.max(BOX)).collect()
    return join_extents(Extent(time_of(low), time_of(high), first, last) for low, high, first, last in map(tuple, rows))


def join_extents(found: Iterable[Extent]) -> tuple[Extent, ...]:
    """Join neighbouring extents until at most ``_EXTENTS`` are left. Long and short extents are not joined."""
    extents = sorted(found, key=lambda extent: extent.low)
    long = [extent for extent in extents if extent.high - extent.low > _LONG]
    short = [extent for extent in extents if extent.high - extent.low <= _LONG]
    gap = dt.timedelta(days=1)
    while len(joined := [*_joined_by(gap, long), *_joined_by(gap, short)]) > _EXTENTS:
        gap *= 2
    return tuple(sorted(joined, key=lambda extent: extent.low))


def _joined_by(gap: dt.timedelta, extents: Sequence[Extent]) -> list[Extent]:
    joined: list[Extent] = []
    for extent in extents:
        if joined and extent.low - joined[-1].high <= gap:
            joined[-1] = joined[-1].join(extent)
        else:
            joined.append(extent)
    return joined


def bound(extents: Iterable[Extent], times: Callable[[Extent], tuple[Between, ...]]) -> AnyOf:
    """Return, in literals, what holds for every row of the extents. ``times`` bounds the times of one extent's rows."""
    return AnyOf(tuple((*times(extent), Between(BOX, extent.first, extent.last)) for extent in extents))


def between(column: str, extent: Extent, before: dt.timedelta, after: dt.timedelta) -> Between:
    """Return the bound of times from ``before`` an extent's start to ``after`` its end. Both may be negative."""
    return Between(column, extent.low - before, extent.high + after)
