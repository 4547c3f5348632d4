"""Job ``voyages``: the tables of bookings, docks and ships, from the log tables.

One query follows all of its input tables. Of each batch it takes what the new rows are about (bookings, events, ships)
and has those parts of each table made again: ``bookings``, ``dock_movements``, ``port_calls`` and ``voyages``, in this
order, since each follows from those before it. There is no state but the tables.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from shore.delta.write import append_once, last_version
from shore.jobs import bookings, dock_movements, reference, ships
from shore.jobs.model import JobContext, new_rows
from shore.paths import TablePaths
from shore.tables import TABLES
from shore.tables.model import TIME

BOOKING, EVENT, POSITION = "booking", "event", "position"
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
_MADE: Final = {
    "dock_movements": dock_movements.everything,
    "port_calls": ships.port_calls,
    "voyages": ships.voyages,
}  # in the order in which they follow from each other; all depend on the topology, too
_APP: Final = "reference"
_MOST_KEYS = "16m"  # of a table in one batch: the keys are held on the driver


def query(context: JobContext) -> DataStreamWriter:
    """Brings the tables in line with the topology, then follows the log tables."""
    paths, spark = context.paths, context.spark
    reference.refresh(paths, context.topology)
    follow_topology(paths)

    def update_batch(batch: DataFrame, _: int) -> None:
        update(paths, keys_of(batch))

    writer: DataStreamWriter = changes(spark, paths).writeStream.foreachBatch(update_batch)
    return writer


def changes(spark: SparkSession, paths: TablePaths) -> DataFrame:
    """New rows of all inputs as one stream: what each is about, and of readings the columns that count."""

    def about(table: str, kind: str, key: str, **more: str) -> DataFrame:
        others = [F.col(column).alias(name) for name, column in more.items()]
        found = new_rows(spark, paths, table, maxBytesPerTrigger=_MOST_KEYS)
        return found.select(F.lit(kind).alias("kind"), F.col(key).alias("key"), *others)

    found: DataFrame = about("booking_changes", BOOKING, "booking_reference", box="equipment_reference")
    for other in (
        about("events", EVENT, "event_id"),
        about("positions", POSITION, "vessel_imo_number", moment="device_date_time").where("moment is not null"),
    ):
        found = found.unionByName(other, allowMissingColumns=True)
    return found


def keys_of(batch: DataFrame) -> pa.Table:
    """What a batch is about: rows of ``KEYS``."""
    keys = batch.where("key is not null").groupBy("kind", "key", "box")
    found: pa.Table = keys.agg(F.min("moment").alias("first"), F.max("moment").alias("last")).toArrow()
    return found.cast(KEYS)


def update(paths: TablePaths, keys: pa.Table) -> None:
    """Make again what new rows are about.

    Args:
        keys: Rows of ``KEYS``.
    """
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in keys.to_pylist():
        rows[row["kind"]].append(row)
    bookings.update(paths, {row["key"] for row in rows[BOOKING]})
    copies = dock_movements.update(paths, {row["key"] for row in rows[EVENT]})
    spans = _spans(rows[POSITION], copies)
    ships.update(paths, spans)


def follow_topology(paths: TablePaths) -> None:
    """Make all tables that depend on the topology anew when it is another one than when they were made."""
    table = paths.table("voyages")
    version = reference.version(paths)
    if last_version(table, _APP) == version:
        return
    for name, everything in _MADE.items():
        rows = TABLES[name].sorted(everything(paths))
        write_deltalake(DeltaTable(paths.table(name)), rows, mode="overwrite")
    append_once(table, TABLES["voyages"].plain_schema.empty_table(), app=_APP, version=version)


def _spans(positions: list[dict[str, Any]], copies: pa.Table) -> dict[str, ships.Span]:
    """Of each ship the first and the last time of what is new."""
    times: dict[str, list[dt.datetime]] = defaultdict(list)
    for row in positions:
        times[row["key"]] += [row["first"], row["last"]]
    moves = copies.filter(pc.is_valid(copies["transport_event_type_code"])) if copies.num_rows else copies
    for row in moves.select(["vessel_imo_number", "event_date_time"]).to_pylist():
        if row["vessel_imo_number"] is not None:
            times[row["vessel_imo_number"]].append(row["event_date_time"])
    return {ship: (min(found), max(found)) for ship, found in times.items()}
