"""The stretches of time that a batch touches, box by box, and the literal bounds that follow from them.

A batch holds readings of now of many boxes, perhaps a late one of last month of one box, and weeks of a ship that has
berthed. A *span* is a stretch of one box: touched times that lie close together. Joins with the spans say exactly what
is in the scope. An *extent* is a stretch of time with all spans in it; extents are literals, so that Delta skips the
files outside of them. Late readings make an extent of their own, and so draw in nothing between them and now.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame

from shore.delta.commit import AnyOf, Between

BOX: Final = "equipment_reference"
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_EXTENTS: Final = 10  # alternatives in one condition
_LONG: Final = dt.timedelta(days=2)  # spans longer than this share no extent with shorter ones

_SPANS: Final = """
with followed as (
    select *, coalesce({time} - lag({time}) over box > interval '{seconds}' second, false) as is_first
    from {{keys}}
    window box as (partition by equipment_reference order by {time})
),
numbered as (
    select *, sum(cast(is_first as int)) over (partition by equipment_reference order by {time}) as number
    from followed
)
select equipment_reference, min({time}) as low, max({time}) as high
from numbered group by equipment_reference, number
"""

# By full hours, so that there are few.
_EXTENT: Final = """
select
    unix_micros(date_trunc('hour', low)),
    unix_micros(date_trunc('hour', high + interval 1 hour - interval 1 microsecond)),
    min(equipment_reference), max(equipment_reference)
from {spans} group by 1, 2
"""


@dataclass(frozen=True, slots=True)
class Extent:
    """Touched times in [``low``, ``high``], of boxes whose names are in [``first``, ``last``]."""

    low: dt.datetime
    high: dt.datetime
    first: str
    last: str

    def join(self, other: Extent) -> Extent:
        """The smallest extent that holds both."""
        return Extent(
            min(self.low, other.low),
            max(self.high, other.high),
            min(self.first, other.first),
            max(self.last, other.last),
        )


def spans_of(keys: DataFrame, *, time: str, gap: dt.timedelta) -> DataFrame:
    """The spans of touched times: equipment_reference, low, high.

    Args:
        keys: A row for each touched time of a box; ``time`` names its column.
        gap: Times of a box that lie further apart are of two spans.
    """
    statement = _SPANS.format(time=time, seconds=int(gap.total_seconds()))
    return keys.sparkSession.sql(statement, keys=keys)


def within(rows: DataFrame, spans: DataFrame, condition: str) -> DataFrame:
    """The rows of boxes that have a span for which a condition holds, over columns of both."""
    return _joined(rows, spans, condition, "left semi")


def outside(rows: DataFrame, spans: DataFrame, condition: str) -> DataFrame:
    """The rows of which no span of their box meets the condition."""
    return _joined(rows, spans, condition, "left anti")


def _joined(rows: DataFrame, spans: DataFrame, condition: str, kind: str) -> DataFrame:
    statement = f"""
    select r.* from {{rows}} as r {kind} join {{spans}} as s
    on r.equipment_reference = s.equipment_reference and {condition}
    """  # noqa: S608  # our own names
    return rows.sparkSession.sql(statement, rows=rows, spans=spans)


def extents_of(spans: DataFrame) -> tuple[Extent, ...]:
    """The extents of spans, in the order of time; none where there are no spans. The driver sees no more of the spans
    than the hours in which they begin and end."""
    rows = spans.sparkSession.sql(_EXTENT, spans=spans).collect()
    return join_extents(
        Extent(_EPOCH + dt.timedelta(microseconds=low), _EPOCH + dt.timedelta(microseconds=high), first, last)
        for low, high, first, last in map(tuple, rows)
    )


def join_extents(found: Iterable[Extent]) -> tuple[Extent, ...]:
    """Join extents that are close together, so that there are few, and none much longer than the spans in it."""
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
    """What holds for every row of the extents, in literals; ``times`` bounds the times of an extent's rows."""
    return AnyOf(tuple((*times(extent), Between(BOX, extent.first, extent.last)) for extent in extents))


def between(column: str, extent: Extent, before: dt.timedelta, after: dt.timedelta) -> Between:
    """Times from ``before`` an extent until ``after`` it; both may be negative."""
    return Between(column, extent.low - before, extent.high + after)
