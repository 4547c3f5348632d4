"""Job ``feeds``: gives each customer the records it is entitled to (``shore.feeds`` says which, and how once)."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from fairlead.kafka.endpoint import KafkaEndpoint
from shore.feeds.readers import FeedReader, readers_here
from shore.feeds.records import new_record
from shore.feeds.welcome import newcomers, note
from shore.feeds.writer import append, check_whole, create_feeds, read_back
from shore.jobs import reference
from shore.jobs.checkpoint import has_begun
from shore.jobs.entitlement import TOUCHED, all_touched, entitled
from shore.jobs.model import JobContext, new_rows
from shore.paths import TablePaths
from shore.tables.customer_feed import CUSTOMER_FEED

ROWS_PER_PASS = 100_000  # bounds what the driver holds at once


def query(context: JobContext) -> DataStreamWriter:
    """Makes the feeds' logs, looks at everything once for customers that are new, then follows the tables."""
    paths, endpoint = context.paths, context.endpoint
    readers = readers_here(context.topology)
    if any(reader.grain == "movements" for reader in readers):
        reference.refresh(paths, context.topology)  # the names of ships and lines
    create_feeds(endpoint, [reader.customer for reader in readers])
    create_tables(paths, readers)
    check_whole(paths, [reader.customer for reader in readers])
    welcome(paths, endpoint, readers)

    def changes(table: str) -> DataFrame:
        return new_rows(context.spark, paths, table)

    # A null log stands for all records of the container: its booking changed.
    everything = [F.col("equipment_reference"), F.lit(None).cast("string").alias("log"), F.lit(0).alias("log_offset")]
    box = F.split_part(F.col("entry_log"), F.lit("."), F.lit(2)).alias("equipment_reference")
    moved = F.coalesce("equipment_reference", "vessel_imo_number").alias("equipment_reference")
    grants = changes("custody_entries").where("entry_type = 'grant'")
    changed = (
        changes("readings")
        .select("equipment_reference", "log", "log_offset")
        .unionByName(changes("alerts").select("equipment_reference", "log", "log_offset"))
        .unionByName(changes("booking_changes").select(*everything))
        .unionByName(grants.select(box, "log", "log_offset"))
        .unionByName(changes("events").select(moved, "log", "log_offset"))
    )

    def update(batch: DataFrame, _: int) -> None:
        touched = batch.groupBy("equipment_reference", "log").agg(F.min("log_offset").alias("first_offset"))
        deliver(touched.toArrow().cast(TOUCHED), paths, endpoint, readers)

    writer: DataStreamWriter = changed.writeStream.foreachBatch(update)
    return writer


def create_tables(paths: TablePaths, readers: Sequence[FeedReader]) -> None:
    """Make the tables of customers that have one of their own."""
    for reader in readers:
        if reader.table:
            CUSTOMER_FEED.create(paths.customer(reader.customer))


def deliver(touched: pa.Table, paths: TablePaths, endpoint: KafkaEndpoint, readers: Sequence[FeedReader]) -> None:
    """Append to each feed what its customer is entitled to among what was touched, and does not have yet.

    Runs on the driver: a feed is one log, written by one. ``ROWS_PER_PASS`` bounds what it holds at once.
    """
    tables = {reader.customer: reader.table for reader in readers}
    ends = {customer: read_back(endpoint, paths, customer, table=own) for customer, own in tables.items()}
    while True:
        rows = entitled(paths, readers, touched, limit=ROWS_PER_PASS)
        for customer, records in _by_customer(rows):
            append(endpoint, customer, [new_record(r) for r in records], expected_end=ends[customer])
            ends[customer] = read_back(endpoint, paths, customer, table=tables[customer])
        if rows.num_rows < ROWS_PER_PASS:
            return


def _by_customer(rows: pa.Table) -> list[tuple[str, list[dict[str, object]]]]:
    found: dict[str, list[dict[str, object]]] = {}
    for row in rows.to_pylist():
        found.setdefault(row["customer"], []).append(row)
    return list(found.items())


def welcome(paths: TablePaths, endpoint: KafkaEndpoint, readers: Sequence[FeedReader]) -> None:
    """A customer that is new to a running job, or gets another kind of feed, gets what the tables already hold, and
    has taken back what was of the other kind.

    For a new one without a checkpoint there is nothing to do: the first batches look at everything, repeated until they
    succeed.
    """
    new = newcomers(paths, readers)
    begun = has_begun(paths, "feeds")
    if again := [each.reader for each in new if begun or each.known]:
        deliver(all_touched(paths), paths, endpoint, again)
    for each in new:
        note(paths, each.reader)
