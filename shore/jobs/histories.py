"""Job ``histories``: keeps ``bookings`` and ``custody``, the histories that others join with.

A batch's changes of bookings have the states of those bookings made again, its entries of ledgers the intervals of
those logs, each from all rows of its input. Another topology has all of ``custody`` made again: the sites and owner
codes in it decide which entries are believed. There is no state but the tables.
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
"""What a row of a batch is about: its column ``kind``."""
_MOST: Final = "64m"  # of a table in one batch
_NAMED: Final = 100  # keys: so few are named, which lets Delta skip files


def query(context: JobContext) -> DataStreamWriter:
    """Follows the changes of bookings, the ledgers, and the topology."""
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
    """What new rows of the inputs are about: columns ``kind`` and ``key`` (a booking, a log; null: the topology)."""

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
    """Make again what the rows of a batch (``changes``) are about."""
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
    """The keys of one kind as a column of this name; and, where they are few, in literals."""
    found = keys.where(F.col("kind") == kind).select(F.col("key").alias(column))
    if count > _NAMED:
        return found, []
    return F.broadcast(found), [OneOf(column, {row[column] for row in found.collect()})]
