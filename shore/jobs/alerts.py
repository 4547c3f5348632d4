"""Job ``alerts``: shore's own detection, from the logs of all containers to table ``alerts_ashore``.

One query with state: Spark's ``transformWithState`` keeps what is remembered of each log (``shore.alerts.processor``),
its Delta sink appends, each batch as one commit that names query and batch. State and table belong to the checkpoint.

Order does not depend on tasks: Spark brings all rows of a log of a batch together, and the processor sorts them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.readwriter import DataStreamWriter

from shore.alerts.processor import BUCKETS, Detection, Sites, SitesNow
from shore.alerts.rules import CLOCK_AHEAD_MS, COLUMNS, WATERMARK_DELAY_MS
from shore.jobs.model import JobContext
from shore.tables.alerts_ashore import ALERTS_ASHORE
from shore.tables.containers_now import CONTAINERS_NOW

_TIME = "device_date_time"
_STORE = "spark.sql.streaming.stateStore"
MAX_RECORDS: Final = 100_000  # of one batch: a task holds the readings of a bucket, some 0.5 kB each, at once
STATE_SETTINGS: Final = {
    # transformWithState needs RocksDB. With a changelog a batch stores what it changed and not all containers.
    f"{_STORE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
}
"""Settings that a session must have before the query starts; no other job of shore has state."""


def query(context: JobContext) -> DataStreamWriter:
    for name, value in STATE_SETTINGS.items():
        context.spark.conf.set(name, value)
    readings = context.read_logs(
        "alerts",
        streams=",".join(context.topology.moving_streams),
        rows="readings",
        maxRecordsPerTrigger=str(min(context.max_records, MAX_RECORDS)),
    )
    states = detected(readings, SitesNow(context.paths.table(CONTAINERS_NOW.name)))
    writer: DataStreamWriter = states.writeStream.format("delta").option(
        "path", context.paths.table(ALERTS_ASHORE.name)
    )
    return writer


def detected(readings: DataFrame, sites: Callable[[], Sites]) -> DataFrame:
    """The rows of ``alerts_ashore`` that follow from a stream of rows of ``readings``.

    The watermark is time as all readings together tell it. But Spark drops rows that are older than it, and what a ship
    brings after weeks at sea is; so behind the operator that follows the watermark the column is null, of which Spark
    says neither that it is late nor that it is not (a test holds this).
    """
    clock = "clock"
    known = readings.where(F.col(_TIME).isNotNull()).withColumn(clock, _trusted_time())
    watched = known.withWatermark(clock, f"{WATERMARK_DELAY_MS} milliseconds")
    never_late = F.lit(None).cast("timestamp").alias(clock, metadata={"spark.watermarkDelayMs": WATERMARK_DELAY_MS})
    bucket = F.pmod(F.crc32(F.col("log").cast("binary")), F.lit(BUCKETS)).cast("int").alias("bucket")
    columns = [F.unix_micros(name).alias(name) if name == _TIME else F.col(name) for name in COLUMNS]
    states: DataFrame = (
        watched.select(bucket, "log", *columns, never_late)
        .groupBy("bucket")
        .transformWithState(Detection(sites), from_arrow_schema(ALERTS_ASHORE.plain_schema), "append", "eventTime")
    )
    return states


def _trusted_time() -> Column:
    """The device's time, but of a clock that was ahead of the bridge's: it would make all others seem silent."""
    ahead = F.unix_millis(F.col(_TIME)) - F.unix_millis(F.col("received_date_time"))
    return F.when(ahead <= CLOCK_AHEAD_MS, F.col(_TIME))
