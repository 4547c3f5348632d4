"""Job ``alerts``: detects alerts ashore. In: the logs of all containers. Out: table ``alerts_ashore``.

This query has state: Spark's ``transformWithState`` keeps what is known of each log (``shore.alerts.processor``).
A batch with alerts is one append that names query and batch; most batches have none, and append nothing. State and
table belong to the checkpoint.

The result does not depend on how tasks run: one call gets all of a log's rows in a batch, and the processor sorts them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.readwriter import DataStreamWriter

from shore.alerts.processor import BUCKETS, Detection, Sites, SitesThen
from shore.alerts.rules import CLOCK_AHEAD_MS, COLUMNS, DAY_MS, WATERMARK_DELAY_MS
from shore.delta.commit import append_once
from shore.delta.lake import computed
from shore.jobs.model import JobContext, query_id
from shore.tables.alerts_ashore import ALERTS_ASHORE
from shore.tables.containers_now import CONTAINERS_NOW

NEVER_LATE_DAYS: Final = 365_000
"""The watermark's threshold: a thousand years, more than any two clocks that count can differ."""
_LAST_MS: Final = 253_402_300_799_999 - NEVER_LATE_DAYS * DAY_MS  # so that no event time is after year 9999
_TIME = "device_date_time"
_CLOCK = "clock"
_STORE = "spark.sql.streaming.stateStore"
MAX_RECORDS: Final = 100_000  # in one batch: a task holds all readings of a bucket in memory, some 0.5 kB each
STATE_SETTINGS: Final = {
    # transformWithState needs RocksDB. With a changelog, a batch stores only the state that it changed.
    f"{_STORE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
}
"""Settings that the session needs before the query starts. No other job of shore has state."""


def query(context: JobContext) -> DataStreamWriter:
    context = context.in_own_session()  # generated code would not pay
    for name, value in STATE_SETTINGS.items():
        context.spark.conf.set(name, value)
    readings = context.read_logs(
        "alerts",
        streams=",".join(context.topology.moving_streams),
        rows="readings",
        maxRecordsPerTrigger=str(min(context.max_records, MAX_RECORDS)),
    )
    states = detected(readings, SitesThen(context.paths.table(CONTAINERS_NOW.name)))
    table = context.paths.table(ALERTS_ASHORE.name)
    writer: DataStreamWriter = states.writeStream.foreachBatch(lambda batch, number: store(batch, number, table))
    return writer


def store(batch: DataFrame, number: int, table: str) -> None:
    """Append the rows of a batch, if it has any and the table does not have them yet."""
    rows = computed(batch)  # once, because it changes the state
    if not rows.isEmpty():
        append_once(rows.coalesce(1), table, app=query_id(batch), version=number)


def detected(readings: DataFrame, sites: Callable[[int], Sites]) -> DataFrame:
    """Return the rows of ``alerts_ashore`` that follow from a stream of rows of ``readings``.

    Spark drops rows older than the watermark. Readings that a ship brings after weeks at sea must count, so the
    threshold is ``NEVER_LATE_DAYS``. Event time (``_event_time``) is as many days later. So the watermark, which is the
    newest event time minus the threshold, is the newest device time that counts minus ``WATERMARK_DELAY_MS``.
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
    """Return the device's time, minus ``WATERMARK_DELAY_MS``, plus ``NEVER_LATE_DAYS``, so that no row is late. A clock
    far ahead of the bridge's (``CLOCK_AHEAD_MS``) would make all other devices seem silent. Its readings, like those
    from before 1970, do not advance the watermark."""
    millis = F.least(F.unix_millis(F.col(_TIME)), F.lit(_LAST_MS))
    ahead = millis - F.unix_millis(F.col("received_date_time"))
    trusted = F.when(ahead <= CLOCK_AHEAD_MS, F.greatest(millis - WATERMARK_DELAY_MS, F.lit(0)))
    return F.timestamp_millis(F.coalesce(trusted, F.lit(0)) + NEVER_LATE_DAYS * DAY_MS)
