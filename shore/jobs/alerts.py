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
from shore.alerts.rules import CLOCK_AHEAD_MS, COLUMNS, DAY_MS, WATERMARK_DELAY_MS
from shore.jobs.model import JobContext
from shore.tables.alerts_ashore import ALERTS_ASHORE
from shore.tables.containers_now import CONTAINERS_NOW

NEVER_LATE_DAYS: Final = 365_000
"""How late a row may be for Spark: a thousand years, more than two clocks that count can be apart."""
_LAST_MS: Final = 253_402_300_799_999 - NEVER_LATE_DAYS * DAY_MS  # so that no event time is after year 9999
_TIME = "device_date_time"
_CLOCK = "clock"
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

    Spark drops rows that are later than the threshold of their watermark. What a ship brings after weeks at sea counts,
    so the threshold is ``NEVER_LATE_DAYS``. Event time is the device's time and as many days more, so the watermark,
    which is the threshold behind the newest event time, stands where the clock of all readings does.
    """
    known = readings.where(F.col(_TIME).isNotNull()).withColumn(_CLOCK, _event_time())
    bucket = F.pmod(F.crc32(F.col("log").cast("binary")), F.lit(BUCKETS)).cast("int").alias("bucket")
    columns = [F.unix_micros(name).alias(name) if name == _TIME else F.col(name) for name in COLUMNS]
    states: DataFrame = (
        known.withWatermark(_CLOCK, f"{NEVER_LATE_DAYS} days")
        .select(bucket, "log", *columns, _CLOCK)
        .groupBy("bucket")
        .transformWithState(Detection(sites), from_arrow_schema(ALERTS_ASHORE.plain_schema), "append", "eventTime")
    )
    return states


def _event_time() -> Column:
    """The device's time, less ``WATERMARK_DELAY_MS``, so many days later that no row is late. A clock that was ahead of
    the bridge's would make all others seem silent: its readings, like those from before 1970, say nothing of time."""
    millis = F.least(F.unix_millis(F.col(_TIME)), F.lit(_LAST_MS))
    ahead = millis - F.unix_millis(F.col("received_date_time"))
    trusted = F.when(ahead <= CLOCK_AHEAD_MS, F.greatest(millis - WATERMARK_DELAY_MS, F.lit(0)))
    return F.timestamp_millis(F.coalesce(trusted, F.lit(0)) + NEVER_LATE_DAYS * DAY_MS)
