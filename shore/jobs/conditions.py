"""Job ``conditions``: keeps ``conditions``, ``excursions`` and ``mkt`` equal to what follows from all of ``readings``.

Each batch takes the new rows of ``readings`` and finds the hours that they touch. Spark computes these hours again from
the whole table, reading no more of it than their times; storing them, the longer windows that they are in and the
sessions that they touch is work for the driver (``shore.jobs.hourly``, ``shore.jobs.sessions``): it is small, and
Spark's own MERGE costs some three seconds of CPU however little there is to merge. There is no state but the tables, so
late telemetry, repeated batches and crashes are no special cases.
"""

from __future__ import annotations

import datetime as dt
import functools
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from shore.jobs import hourly, sessions, whole
from shore.jobs.model import JobContext, new_rows
from shore.paths import TablePaths
from shore.tables.bands import USED
from shore.tables.hours import HOUR_SCHEMA, TOUCHED, hours_sql
from shore.tables.mkt import ACTIVATION_ENERGY

HOUR: Final = dt.timedelta(hours=1)
_AT_ONCE: Final = 250_000  # hours of boxes: some 100 MB on the driver
_RANGES: Final = 50  # of time, in one condition
_NAMED: Final = 100  # boxes: so few are named, which lets Delta skip files that hold none of them


def query(context: JobContext) -> DataStreamWriter:
    paths, shore = context.paths, context.topology.shore
    energy = shore.activation_energy if shore is not None else ACTIVATION_ENERGY
    whole.renew_mkt(paths, energy)
    readings = new_rows(context.spark, paths, "readings", maxBytesPerTrigger="1g")
    writer: DataStreamWriter = readings.select(*USED).writeStream.foreachBatch(
        lambda batch, _: update(batch, paths, energy)
    )
    return writer


def update(batch: DataFrame, paths: TablePaths, activation_energy: float) -> None:
    """Compute the hours touched by a batch of rows of ``readings`` again, and store all that follows from them."""
    touched = batch.sparkSession.sql(TOUCHED, readings=batch).persist()
    try:
        counts = touched.groupBy("window_start").count().toArrow()
        by_hour = dict(zip(*(counts[name].to_pylist() for name in ("window_start", "count")), strict=True))
        for begins in slices(by_hour):
            store(paths, _hours(touched, paths, begins, activation_energy), activation_energy)
    finally:
        touched.unpersist()


def _hours(touched: DataFrame, paths: TablePaths, begins: Sequence[dt.datetime], activation_energy: float) -> pa.Table:
    """The touched hours that begin at these times, computed by Spark."""
    spark = touched.sparkSession
    chosen = touched.where(F.col("window_start").between(begins[0], begins[-1]))
    boxes = [row[0] for row in chosen.select("equipment_reference").distinct().limit(_NAMED + 1).collect()]
    readings = spark.read.format("delta").load(paths.table("readings")).select(*USED)
    readings = readings.where(_any(_during(since, until) for since, until in spans(begins)))
    if len(boxes) <= _NAMED:
        readings = readings.where(F.col("equipment_reference").isin(boxes))
    found: Any = spark.sql(hours_sql(activation_energy, touched=True), readings=readings, touched=chosen)
    table: pa.Table = found.toArrow()
    return table.select(HOUR_SCHEMA.names).cast(HOUR_SCHEMA)


def store(paths: TablePaths, hours: pa.Table, activation_energy: float) -> None:
    """Store hours that were computed, and what follows from them."""
    for chunk in hourly.chunks(hours):
        hourly.store_conditions(paths, hours, chunk)
        hourly.store_mkt(paths, hours, chunk, activation_energy)
        sessions.store_excursions(paths, hours, chunk)


def slices(counts: Mapping[dt.datetime, int]) -> Iterator[list[dt.datetime]]:
    """Divide hours (and how many boxes each has) into parts that are computed at once, in the order of time."""
    part: list[dt.datetime] = []
    total = ranges = 0
    for begin in sorted(counts):
        apart = not part or begin - part[-1] > HOUR
        if part and (total + counts[begin] > _AT_ONCE or ranges + apart > _RANGES):
            yield part
            part, total, ranges, apart = [], 0, 0, True
        part.append(begin)
        total, ranges = total + counts[begin], ranges + apart
    if part:
        yield part


def spans(begins: Sequence[dt.datetime]) -> list[tuple[dt.datetime, dt.datetime]]:
    """The times [since, until) whose readings sorted hours need: each hour and the half before it."""
    found: list[tuple[dt.datetime, dt.datetime]] = []
    for begin in begins:
        since, until = begin - HOUR / 2, begin + HOUR
        if found and since <= found[-1][1]:
            found[-1] = (found[-1][0], until)
        else:
            found.append((since, until))
    return found


def _during(since: dt.datetime, until: dt.datetime) -> Column:
    return (F.col("device_date_time") >= F.lit(since)) & (F.col("device_date_time") < F.lit(until))


def _any(conditions: Iterable[Column]) -> Column:
    return functools.reduce(operator.or_, conditions)
