"""Job ``conditions``: keeps table ``conditions`` equal to ``WINDOWS`` over all of ``readings``.

Each batch takes the new rows of ``readings``, finds the hours they fall into, computes these hours again from the whole
table and merges them. There is no state but the two tables, so late telemetry and repeated batches are no special case.
"""

from __future__ import annotations

import datetime as dt

from delta.tables import DeltaTable as SparkDeltaTable
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from shore.jobs.model import JobContext
from shore.places import Places
from shore.tables.conditions import WINDOWS

_HOUR = dt.timedelta(hours=1)


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
        table = places.table("conditions")
        if DeltaTable(table).version() == 0:  # created and never written: nothing to merge with, and half the work
            hours.write.format("delta").mode("append").save(table)
        else:
            _merge(spark, table, hours, low, high)
    finally:
        touched.unpersist()


def _merge(spark: SparkSession, table: str, hours: DataFrame, low: dt.datetime, high: dt.datetime) -> None:
    kept, new = F.col("kept.window_start"), F.col("new.window_start")
    same = (F.col("kept.equipment_reference") == F.col("new.equipment_reference")) & (kept == new)
    merge = (
        SparkDeltaTable.forPath(spark, table)
        .alias("kept")
        .merge(hours.alias("new"), same & kept.between(F.lit(low), F.lit(high)))
    )
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
