"""Job ``operations``: copies the small streams (alerts, events, ships, bookings, custody) into their tables.

One query reads them all. It reads a batch once and keeps it: a small Spark job counts the records of each log, then
each table with records gets one append, whose tasks parse the records. An append carries (query, batch), so a repeated
batch adds nothing to tables that already have it.

To find that out, Delta runs two queries over the table's log, which cost more than a small batch's rows. Without
generated code an append takes 0.75 instead of 1.0 CPU-s, the first of a session 2.4 instead of 3.5 (Delta 4.4.0).
"""

from __future__ import annotations

import re
from functools import partial
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from shore.delta.commit import append_once
from shore.delta.lake import Lake, computed
from shore.jobs.model import JobContext, query_id
from shore.source.operations import RAW_COLUMNS, parse_batches
from shore.tables.operations import OPERATIONS, LogTable
from topologies.model import Topology

PATTERN = "|".join(operation.pattern for operation in OPERATIONS)
_ROWS_PER_FILE: Final = 50_000  # fewer rows are written by one task, into one file
_MANY: Final = 10_000  # records in a batch from which on generated code pays


def logs(topology: Topology) -> dict[str, str]:
    """Return the options of source ``fairlead`` that select the logs of all tables."""
    return {"pattern": PATTERN}


def query(context: JobContext) -> DataStreamWriter:
    lake = context.lake
    rows = context.read_logs("operations", **logs(context.topology))
    writer: DataStreamWriter = rows.writeStream.foreachBatch(
        lambda batch, batch_id: write(batch, batch_id, lake.in_batch(batch))
    )
    return writer


def write(batch: DataFrame, batch_id: int, lake: Lake) -> None:
    """Append the rows of one raw batch to their tables."""
    app = f"operations:{query_id(batch)}"
    raw = computed(batch.select(*RAW_COLUMNS))
    counts = {row["topic"]: row["count"] for row in raw.groupBy("topic").count().collect()}
    if sum(counts.values()) >= _MANY:
        lake.generate_code()
    for operation in OPERATIONS:
        count = sum(n for topic, n in counts.items() if re.fullmatch(operation.pattern, topic))
        if not count:
            continue
        rows = parsed(raw, operation).coalesce(1 + count // _ROWS_PER_FILE)
        append_once(rows, lake.paths.table(operation.table.name), app=app, version=batch_id)


def parsed(raw: DataFrame, operation: LogTable) -> DataFrame:
    """Return the rows of one table out of raw rows, parsed by the tasks that hold them."""
    own = raw.where(raw["topic"].rlike(f"^(?:{operation.pattern})$"))
    found: DataFrame = own.mapInArrow(partial(parse_batches, operation.table.name), operation.table.spark_schema)
    return found
