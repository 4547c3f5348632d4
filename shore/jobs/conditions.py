"""Job ``conditions``: keeps table ``conditions`` equal to ``WINDOWS`` over all of ``readings``.

Each batch takes the new rows of ``readings``, finds the hours they fall into, computes these hours again from the whole
table and merges them. There is no state but the two tables, so late telemetry and repeated batches are no special case.
"""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from shore.jobs.model import JobContext
from shore.places import Places
from shore.tables.conditions import CONDITIONS, WINDOWS

_HOUR = dt.timedelta(hours=1)
_KEY = list(CONDITIONS.key)
_RFC3339 = "%Y-%m-%dT%H:%M:%SZ"


def query(context: JobContext) -> DataStreamWriter:
    readings = context.spark.readStream.format("delta").load(context.places.table("readings"))
    places = context.places
    writer: DataStreamWriter = readings.select("equipment_reference", "device_date_time").writeStream.foreachBatch(
        lambda batch, _: update(batch, places)
    )
    return writer


def update(batch: DataFrame, places: Places) -> None:
    """Compute the hours touched by a batch again and store them."""
    spark = batch.sparkSession
    touched = (
        batch.where("device_date_time is not null")
        .select("equipment_reference", F.date_trunc("hour", "device_date_time").alias("window_start"))
        .distinct()
        .persist()
    )
    try:
        low, high = touched.agg(F.min("window_start"), F.max("window_start")).collect()[0]
        if low is None:
            return
        # Bounds let Delta skip files by their statistics; the semi join then keeps only the touched hours.
        readings = (
            spark.read.format("delta")
            .load(places.table("readings"))
            .where((F.col("device_date_time") >= F.lit(low)) & (F.col("device_date_time") < F.lit(high + _HOUR)))
            .withColumn("hour", F.date_trunc("hour", "device_date_time"))
        )
        found = [
            readings["equipment_reference"] == touched["equipment_reference"],
            readings["hour"] == touched["window_start"],
        ]
        hours = spark.sql(WINDOWS, readings=readings.join(touched, found, "left_semi"))
        merge(places.table("conditions"), hours.toArrow().cast(CONDITIONS.plain_schema))
    finally:
        touched.unpersist()


def merge(location: str, hours: pa.Table) -> None:
    """Replace the rows of these hours and add those that are new, one commit a day of device time.

    Spark computes the hours; storing them is delta-rs's work, because Spark's own MERGE costs some three seconds of CPU
    however little there is to merge. (delta-rs's MERGE is not used either: it writes strings as views, over whose
    statistics Arrow's filters fail.) A day's rows of all containers are held at once, no more. Doing it twice gives the
    same table.
    """
    days = pc.floor_temporal(hours["window_start"], unit="day")
    for day in sorted(pc.unique(days).to_pylist()):
        _replace(location, day, hours.filter(pc.equal(days, pa.scalar(day, days.type))))


def _replace(location: str, day: dt.datetime, fresh: pa.Table) -> None:
    table = DeltaTable(location)
    after = day + dt.timedelta(days=1)
    window = pc.field("window_start")
    that_day = table.to_pyarrow_dataset().to_table(filter=(window >= day) & (window < after))
    kept = that_day.join(fresh.select(_KEY), keys=_KEY, join_type="left anti").select(fresh.schema.names)
    write_deltalake(
        table,
        pa.concat_tables([kept.cast(fresh.schema), fresh]).sort_by([(name, "ascending") for name in _KEY]),
        mode="overwrite",
        predicate=f"window_start >= '{day:{_RFC3339}}' and window_start < '{after:{_RFC3339}}'",
    )
