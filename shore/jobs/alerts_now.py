"""Job ``alerts_now``: keeps table ``alerts_now`` equal to what follows from the tables of alerts, custody and bookings.

A batch says which containers its rows are about; all alerts of these are made again and replace what was there, in one
commit. There is no state but the tables.

Custody is taken from ``custody_entries``, which a batch is told of, and not from ``custody``, which may still be about
to follow from them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from fairlead.names import parse_log
from shore.delta.datasets import is_in, open_dataset, select
from shore.delta.lease import check_lease
from shore.delta.write import ReplaceScope, last_version, replace_rows
from shore.jobs import bookings, custody, reference
from shore.jobs.model import JobContext, new_rows
from shore.paths import TablePaths
from shore.tables.alerts_now import ALERTS_NOW, NOW
from shore.tables.reference import SITES

if TYPE_CHECKING:  # whoever only compares tables needs no Spark
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_SITES: Final = "sites"  # names the transactions that say with which sites the table was made
_BOX: Final = "equipment_reference"


def query(context: JobContext) -> DataStreamWriter:
    """Makes the table again where the topology has changed, then follows the tables."""
    paths = context.paths
    reference.refresh(paths, context.topology)
    follow_sites(paths)

    def update_batch(batch: DataFrame, _: int) -> None:
        keys = batch.where("key is not null").distinct().toArrow().to_pylist()
        logs = {row["key"] for row in keys if row["is_log"]}
        update(paths, {row["key"] for row in keys if not row["is_log"]}, logs)

    writer: DataStreamWriter = changes(context.spark, paths).writeStream.foreachBatch(update_batch)
    return writer


def changes(spark: SparkSession, paths: TablePaths) -> DataFrame:
    """What new rows of the inputs are about: containers, or logs of containers."""
    from pyspark.sql import functions as F

    def about(table: str, key: str, *, is_log: bool = False) -> DataFrame:
        found: DataFrame = new_rows(spark, paths, table).select(F.col(key).alias("key"), F.lit(is_log).alias("is_log"))
        return found

    return (
        about("alerts", _BOX)
        .unionByName(about("alerts_ashore", _BOX))
        .unionByName(about("booking_changes", _BOX))
        .unionByName(about("custody_entries", "entry_log", is_log=True))
    )


def update(paths: TablePaths, boxes: Collection[str], logs: Collection[str] = ()) -> None:
    """Make all alerts of these containers again, and of those whose logs have new entries of custody."""
    named = {name.key for log in logs if (name := parse_log(log)) is not None}
    touched = {*boxes, *named}
    if not touched:
        return
    filter_ = is_in(_BOX, touched)
    fresh = _made(
        paths,
        alerts=open_dataset(paths, "alerts").to_table(filter=filter_),
        alerts_ashore=open_dataset(paths, "alerts_ashore").to_table(filter=filter_),
        bookings=bookings.states(open_dataset(paths, "booking_changes").to_table(filter=filter_)),
        custody=custody.of_boxes(paths, touched),
    )
    if fresh.num_rows or open_dataset(paths, ALERTS_NOW.name).count_rows(filter=filter_):
        scope = ReplaceScope(_BOX, touched)
        replace_rows(paths.table(ALERTS_NOW.name), fresh, scope, key=ALERTS_NOW.key)


def everything(paths: TablePaths) -> pa.Table:
    """The table as it must be."""
    return _made(
        paths,
        alerts=open_dataset(paths, "alerts").to_table(),
        alerts_ashore=open_dataset(paths, "alerts_ashore").to_table(),
        bookings=bookings.states(open_dataset(paths, "booking_changes").to_table()),
        custody=custody.everything(paths),
    )


def follow_sites(paths: TablePaths) -> None:
    """Make the whole table again where it was made with other sites: whose ship a holder is stands there."""
    location, version = paths.table(ALERTS_NOW.name), reference.version(paths)
    if last_version(location, _SITES) == version:
        return
    rows = ALERTS_NOW.sorted(everything(paths))
    properties = CommitProperties(app_transactions=[Transaction(_SITES, version)])
    check_lease(location)
    write_deltalake(DeltaTable(location), rows, mode="overwrite", commit_properties=properties)


def _made(
    paths: TablePaths, *, alerts: pa.Table, alerts_ashore: pa.Table, bookings: pa.Table, custody: pa.Table
) -> pa.Table:
    return select(
        NOW,
        ALERTS_NOW.plain_schema,
        alerts=alerts,
        alerts_ashore=alerts_ashore,
        bookings=bookings,
        custody=custody,
        sites=reference.stored(paths, SITES),
    )
