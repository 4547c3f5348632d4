"""Job ``quality``: keeps table ``quality`` equal to what follows from ``readings`` and ``readings_rejected``.

A batch says into which days of which containers its records fall. These days are made again from all their records, and
replace what was there, in one commit. Days that follow each other are one span, so a record that comes months late has
its own day read, and not all days since.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Final

from shore.delta.commit import Between, Bound, replace_rows
from shore.delta.lake import Lake
from shore.jobs.model import JobContext
from shore.jobs.scope import BOX, Boxes
from shore.tables.quality import QUALITY, quality

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

INPUTS: Final = ("readings", "readings_rejected")
MOST_SPANS: Final = 8
"""Spans that are read one by one; where there are more, one goes from the first day to the last."""
FEW_DAYS: Final = 5_000
"""Days of containers, some 100 readings each, that one task makes again; more are shuffled to many."""
_DAY: Final = dt.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Span:
    """Containers of which the days in [``since``, ``until``) are made again."""

    since: dt.datetime
    until: dt.datetime
    boxes: Boxes

    def of(self, column: str) -> Column:
        """The condition that a time lies in it."""
        from pyspark.sql import functions as F

        return (F.col(column) >= F.lit(self.since)) & (F.col(column) < F.lit(self.until))


def query(context: JobContext) -> DataStreamWriter:
    lake = context.lake

    def update_batch(batch: DataFrame, _: int) -> None:
        update(lake.in_batch(batch), touched_by(batch))

    writer: DataStreamWriter = news(lake).writeStream.foreachBatch(update_batch)
    return writer


def news(lake: Lake) -> DataFrame:
    """Container and day of what is new in both inputs, as one stream."""
    from pyspark.sql import functions as F

    refused = F.coalesce("received_date_time", "record_date_time")
    read = lake.new_rows("readings").select(BOX, F.date_trunc("day", "device_date_time").alias("day"))
    return read.unionByName(lake.new_rows("readings_rejected").select(BOX, F.date_trunc("day", refused).alias("day")))


def touched_by(batch: DataFrame) -> list[Span]:
    """The days that records of a batch fall into."""
    found = batch.where(f"{BOX} is not null and day is not null").distinct().toArrow()
    return spans(zip(found[BOX].to_pylist(), found["day"].to_pylist(), strict=True))


def spans(days: Iterable[tuple[str, dt.datetime]]) -> list[Span]:
    """Days of containers as spans that do not overlap: days that follow each other are one."""
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
    return [Span(run[0], run[-1] + _DAY, Boxes.of(set().union(*(boxes[day] for day in run)))) for run in runs]


def update(lake: Lake, touched: Sequence[Span]) -> int:
    """Make these days again; gives how many rows were written or deleted."""
    from pyspark.sql import functions as F

    if not touched:
        return 0
    readings, rejected = lake.read("readings"), lake.read("readings_rejected")
    days = sum((span.until - span.since) // _DAY * len(span.boxes.names or ()) for span in touched)

    def union(parts: Iterable[DataFrame]) -> DataFrame:
        found = reduce(lambda one, other: one.unionByName(other), parts)
        return found.coalesce(1) if days <= FEW_DAYS else found

    def read(span: Span) -> DataFrame:
        return span.boxes.rows_of(readings.where(span.of("device_date_time")))

    def refused(span: Span) -> DataFrame:
        unknown = F.col("received_date_time").isNull() & span.of("record_date_time")
        return span.boxes.rows_of(rejected.where(span.of("received_date_time") | unknown))

    def within(rows: DataFrame) -> DataFrame:
        return union(span.boxes.rows_of(rows.where(span.of("day"))) for span in touched)

    fresh = quality(union(map(read, touched)), union(map(refused, touched)))
    return replace_rows(lake, QUALITY, fresh, within=within, bounds=_bounds(touched))


def _bounds(touched: Sequence[Span]) -> tuple[Bound, ...]:
    every = Boxes.of(name for span in touched for name in span.boxes.names or ())
    return (Between("day", touched[0].since, touched[-1].until - _DAY), *every.bounds)
