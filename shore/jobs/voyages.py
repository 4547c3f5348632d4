"""Job ``voyages``: table ``containers_now``, from the log tables.

One query follows all of its input tables. Of each batch it takes what the new rows are about (bookings, ships, boxes)
and has those rows made again. There is no state but the tables.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from shore.delta.write import append_once, last_version
from shore.jobs import containers_now, reference
from shore.jobs.containers_now import READINGS, Touched
from shore.jobs.model import JobContext, new_rows
from shore.paths import TablePaths
from shore.tables.containers_now import CONTAINERS_NOW, NEWEST, OBSERVED
from shore.tables.model import TIME

BOOKING, POSITION, CUSTODY, ALERT, READING = "booking", "position", "custody", "alert", "reading"
"""What a row of a batch is about: its column ``kind``."""

KEYS = pa.schema(
    [
        pa.field("kind", pa.string()),
        pa.field("key", pa.string()),
        pa.field("box", pa.string()),
        pa.field("first", TIME),
        pa.field("last", TIME),
    ]
)
_APP: Final = "reference"
_MOST_KEYS, _MOST_READINGS = "16m", "128m"  # of a table in one batch: the keys are held on the driver


def query(context: JobContext) -> DataStreamWriter:
    """Brings the tables in line with the topology, then follows the log tables."""
    paths, spark = context.paths, context.spark
    reference.refresh(paths, context.topology)
    follow_topology(paths)

    def update_batch(batch: DataFrame, _: int) -> None:
        batch.persist()
        try:
            update(paths, keys_of(batch), newest_of(batch))
        finally:
            batch.unpersist()

    writer: DataStreamWriter = changes(spark, paths).writeStream.foreachBatch(update_batch)
    return writer


def changes(spark: SparkSession, paths: TablePaths) -> DataFrame:
    """New rows of all inputs as one stream: what each is about, and of readings the columns that count."""

    def rows(table: str, most: str = _MOST_KEYS) -> DataFrame:
        return new_rows(spark, paths, table, maxBytesPerTrigger=most)

    def about(table: str, kind: str, key: str, **more: str) -> DataFrame:
        others = [F.col(column).alias(name) for name, column in more.items()]
        return rows(table).select(F.lit(kind).alias("kind"), F.col(key).alias("key"), *others)

    found: DataFrame = spark.sql(OBSERVED, readings=rows("readings", _MOST_READINGS)).withColumn("kind", F.lit(READING))
    for other in (
        about("booking_changes", BOOKING, "booking_reference", box="equipment_reference"),
        about("positions", POSITION, "vessel_imo_number", moment="device_date_time").where("moment is not null"),
        about("custody_entries", CUSTODY, "entry_log"),
        about("alerts", ALERT, "equipment_reference"),
        about("alerts_ashore", ALERT, "equipment_reference"),
    ):
        found = found.unionByName(other, allowMissingColumns=True)
    return found


def keys_of(batch: DataFrame) -> pa.Table:
    """What a batch is about, but for readings: rows of ``KEYS``."""
    keys = batch.where(f"kind <> '{READING}' and key is not null").groupBy("kind", "key", "box")
    found: pa.Table = keys.agg(F.min("moment").alias("first"), F.max("moment").alias("last")).toArrow()
    return found.cast(KEYS)


def newest_of(batch: DataFrame) -> pa.Table:
    """The reading that counts of each container in a batch."""
    observed = batch.where(f"kind = '{READING}'").select(*READINGS.names)
    found: pa.Table = batch.sparkSession.sql(NEWEST, observed=observed).toArrow()
    return found.select(READINGS.names).cast(READINGS)


def update(paths: TablePaths, keys: pa.Table, newest: pa.Table) -> None:
    """Make again what new rows are about.

    Args:
        keys: Rows of ``KEYS``.
        newest: The newest reading of each container that has new ones.
    """
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in keys.to_pylist():
        rows[row["kind"]].append(row)
    touched = Touched(
        newest,
        held={row["key"].partition(".")[2] for row in rows[CUSTODY]},
        alerted={row["key"] for row in rows[ALERT]} - {""},
        booked={row["box"] for row in rows[BOOKING]} - {None},
        ships={row["key"] for row in rows[POSITION]},
    )
    containers_now.update(paths, touched)


def follow_topology(paths: TablePaths) -> None:
    """Make the table anew when the topology is another one than when it was made."""
    table = paths.table("containers_now")
    version = reference.version(paths)
    if last_version(table, _APP) == version:
        return
    rows = CONTAINERS_NOW.sorted(containers_now.everything(paths))
    write_deltalake(DeltaTable(table), rows, mode="overwrite")
    append_once(table, CONTAINERS_NOW.plain_schema.empty_table(), app=_APP, version=version)
