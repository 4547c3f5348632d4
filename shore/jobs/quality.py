"""Job ``quality``: computes table ``quality`` from ``readings`` and ``readings_rejected``.

A batch touches days of containers. The job recomputes these days from all their records and replaces their rows in one
commit. The row of a day of which retention has deleted records stays. Consecutive days form one span, so a record that
is months late makes the job read that day, and not all days since.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Final

from shore.delta.commit import Between, Bound, replace_rows, stored_rows
from shore.delta.lake import Lake, computed
from shore.jobs.model import JobContext, follow
from shore.jobs.scope import BOX, Boxes
from shore.kept import kept_of, whole_since
from shore.tables.graph import BY_NAME
from shore.tables.quality import QUALITY, WITHIN_CALENDAR, quality

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

INPUTS: Final = ("readings", "readings_rejected")
MOST_SPANS: Final = 8
"""The most spans that are read one by one; more become one span from the first day to the last."""
FEW_DAYS: Final = 5_000
"""The most days of containers, some 100 readings each, that one task recomputes; more are shuffled to many tasks."""
_DAY: Final = dt.timedelta(days=1)
# Rows that count more records than there are now: retention has deleted some since.
_LACKING: Final = """
select s.equipment_reference, s.device_id, s.day
from {stored} as s left join {fresh} as f using (equipment_reference, device_id, day)
where s.readings + s.repeats + s.rejected > coalesce(f.readings + f.repeats + f.rejected, 0)
"""
_LARGE: Final = 16 << 20
"""Bytes of ``readings`` from which on generated code pays: after a compaction, a day's rows are in a file with millions
of others, and what the file's statistics leave is looked at row by row."""


@dataclass(frozen=True, slots=True)
class DaySpan:
    """Containers whose days in [``since``, ``until``) are recomputed."""

    since: dt.datetime
    until: dt.datetime
    boxes: Boxes

    def of(self, column: str) -> Column:
        """Return the condition that the time in a column lies in the span."""
        from pyspark.sql import functions as F

        return (F.col(column) >= F.lit(self.since)) & (F.col(column) < F.lit(self.until))


def query(context: JobContext) -> DataStreamWriter:
    lake = context.lake
    return follow(lake, news(lake), lambda tables, batch: update(tables, touched_by(batch)))


def news(lake: Lake) -> DataFrame:
    """Return container and day of all new rows of both inputs as one stream."""
    from pyspark.sql import functions as F

    refused = F.coalesce("received_date_time", "record_date_time")
    read = lake.new_rows("readings").select(BOX, F.date_trunc("day", "device_date_time").alias("day"))
    return read.unionByName(lake.new_rows("readings_rejected").select(BOX, F.date_trunc("day", refused).alias("day")))


def touched_by(batch: DataFrame) -> list[DaySpan]:
    """Return the spans of days ``WITHIN_CALENDAR`` that records of a batch fall into."""
    found = batch.where(f"{BOX} is not null").where(WITHIN_CALENDAR).distinct().toArrow()
    return spans(zip(found[BOX].to_pylist(), found["day"].to_pylist(), strict=True))


def spans(days: Iterable[tuple[str, dt.datetime]]) -> list[DaySpan]:
    """Return spans that cover these days of containers and do not overlap. Consecutive days share a span."""
    boxes: dict[dt.datetime, set[str]] = {}
    for box, day in days:
        boxes.setdefault(day, set()).add(box)
    runs: list[list[dt.datetime]] = []
    for day in sorted(boxes):
        if runs and day - runs[-1][-1] == _DAY:
            runs[-1].append(day)
        else:
            runs.append([day])
    if len(runs) > MOST_SPANS:
        runs = [sorted(boxes)]
    return [DaySpan(run[0], run[-1] + _DAY, Boxes.of(set().union(*(boxes[day] for day in run)))) for run in runs]


def update(lake: Lake, touched: Sequence[DaySpan]) -> int:
    """Recompute these days. Return how many rows were written or deleted."""
    from pyspark.sql import functions as F

    if not touched:
        return 0
    if lake.bytes_of("readings") > _LARGE:
        lake.generate_code()
    lake = lake.fixed(INPUTS)
    readings, rejected = (lake.read(name) for name in INPUTS)
    days = sum((span.until - span.since) // _DAY * len(span.boxes.names or ()) for span in touched)

    def union(parts: Iterable[DataFrame]) -> DataFrame:
        found = reduce(lambda one, other: one.unionByName(other), parts)
        return found.coalesce(1) if days <= FEW_DAYS else found

    def read(span: DaySpan) -> DataFrame:
        return span.boxes.rows_of(readings.where(span.of("device_date_time")))

    def refused(span: DaySpan) -> DataFrame:
        unknown = F.col("received_date_time").isNull() & span.of("record_date_time")
        return span.boxes.rows_of(rejected.where(span.of("received_date_time") | unknown))

    def within(rows: DataFrame) -> DataFrame:
        return union(span.boxes.rows_of(rows.where(span.of("day"))) for span in touched)

    bounds = _bounds(touched)
    fresh = quality(union(map(read, touched)), union(map(refused, touched)))
    since = whole_since(BY_NAME[QUALITY.name], kept_of(lake.paths, INPUTS))
    if since is None or touched[0].since >= since:
        return replace_rows(lake, QUALITY, fresh, within=within, bounds=bounds)
    fresh, known = computed(fresh), computed(stored_rows(lake, QUALITY, within, bounds))
    lacking = known.sparkSession.sql(_LACKING, stored=known.where(F.col("day") < F.lit(since)), fresh=fresh)
    fresh, known = (rows.join(lacking, list(QUALITY.key), "left_anti") for rows in (fresh, known))
    return replace_rows(lake, QUALITY, fresh, stored=known, bounds=bounds)


def _bounds(touched: Sequence[DaySpan]) -> tuple[Bound, ...]:
    every = Boxes.of(name for span in touched for name in span.boxes.names or ())
    return (Between("day", touched[0].since, touched[-1].until - _DAY), *every.bounds)
