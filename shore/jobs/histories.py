"""Job ``histories``: keeps ``bookings`` and ``custody``, the histories that others join with.

Changes of bookings recompute the states of those bookings, and ledger entries the custody intervals of their logs, each
from all rows of the input table. A change of the topology recomputes all of ``custody``, because sites and owner codes
decide which entries count. The tables are the only state.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from shore.delta.commit import OneOf, replace_rows
from shore.delta.lake import Lake, computed
from shore.jobs.model import JobContext
from shore.tables.bookings import BOOKINGS, bookings
from shore.tables.custody import CUSTODY, custody

INPUTS: Final = ("booking_changes", "custody_entries", "sites", "owners")
BOOKING, LOG, TOPOLOGY = "booking", "log", "topology"
"""The values of column ``kind`` in a batch: what a row is about."""
_MOST: Final = "64m"  # bytes of a table in one batch
_NAMED: Final = 100  # keys: up to so many are literals in a condition, by which Delta skips files


def query(context: JobContext) -> DataStreamWriter:
    """Build the query, which follows the changes of bookings, the ledgers, and the topology."""
    lake = context.lake
    rows = changes(
        lake.new_rows("booking_changes", maxBytesPerTrigger=_MOST),
        lake.new_rows("custody_entries", maxBytesPerTrigger=_MOST),
        lake.changed_rows("sites"),
        lake.changed_rows("owners"),
    )
    writer: DataStreamWriter = rows.writeStream.foreachBatch(lambda batch, _: update(lake.in_batch(batch), batch))
    return writer


def changes(booking_changes: DataFrame, custody_entries: DataFrame, sites: DataFrame, owners: DataFrame) -> DataFrame:
    """Return what new rows of the inputs are about: ``kind``, and ``key`` (a booking or a log; null: the topology)."""

    def about(rows: DataFrame, kind: str, key: str) -> DataFrame:
        return rows.where(F.col(key).isNotNull()).select(F.lit(kind).alias("kind"), F.col(key).alias("key"))

    topology = F.lit(TOPOLOGY).alias("kind"), F.lit(None).cast("string").alias("key")
    return (
        about(booking_changes, BOOKING, "booking_reference")
        .union(about(custody_entries, LOG, "entry_log"))
        .union(sites.select(*topology))
        .union(owners.select(*topology))
    )


def update(lake: Lake, batch: DataFrame) -> None:
    """Recompute what the rows of a batch of ``changes`` are about."""
    keys = computed(batch.distinct())
    counts = {row["kind"]: row["count"] for row in keys.groupBy("kind").count().collect()}
    if BOOKING in counts:
        _update_bookings(lake, keys, counts[BOOKING])
    if TOPOLOGY in counts:
        replace_rows(lake, CUSTODY, _custody(lake, lake.read("custody_entries")))
    elif LOG in counts:
        _update_custody(lake, keys, counts[LOG])


def _update_bookings(lake: Lake, keys: DataFrame, count: int) -> None:
    touched, bounds = _touched(keys, BOOKING, "booking_reference", count)
    changed = lake.read("booking_changes").join(touched, "booking_reference", "left_semi")
    replace_rows(
        lake,
        BOOKINGS,
        bookings(changed),
        within=lambda rows: rows.join(touched, "booking_reference", "left_semi"),
        bounds=bounds,
    )


def _update_custody(lake: Lake, keys: DataFrame, count: int) -> None:
    touched, bounds = _touched(keys, LOG, "log", count)
    entries = lake.read("custody_entries").join(touched.withColumnRenamed("log", "entry_log"), "entry_log", "left_semi")
    replace_rows(
        lake,
        CUSTODY,
        _custody(lake, entries),
        within=lambda rows: rows.join(touched, "log", "left_semi"),
        bounds=bounds,
    )


def _custody(lake: Lake, entries: DataFrame) -> DataFrame:
    return custody(entries, lake.read("sites"), lake.read("owners"))


def _touched(keys: DataFrame, kind: str, column: str, count: int) -> tuple[DataFrame, list[OneOf]]:
    """Return the keys of one kind as a column of this name, and also as literals where they are few."""
    found = keys.where(F.col("kind") == kind).select(F.col("key").alias(column))
    if count > _NAMED:
        return found, []
    return F.broadcast(found), [OneOf(column, {row[column] for row in found.collect()})]
