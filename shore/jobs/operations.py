"""Job ``operations``: copies the small streams (alerts, events, ships, bookings, custody) into their tables.

One query reads them all; a batch is bounded by the source's admission limit, so it is parsed on the driver and each
table gets one commit, bound to (query, batch), which a repeated batch does not repeat.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from fairlead.records import decoder
from shore.delta.write import append_once
from shore.jobs.model import JobContext, query_id
from shore.paths import TablePaths
from shore.source.parsing import read_strict
from shore.tables.operations import OPERATIONS, LogTable

PATTERN = "|".join(operation.pattern for operation in OPERATIONS)


def query(context: JobContext) -> DataStreamWriter:
    paths = context.paths
    writer: DataStreamWriter = context.read_logs("operations", pattern=PATTERN).writeStream.foreachBatch(
        lambda batch, batch_id: write(batch, batch_id, paths)
    )
    return writer


def write(batch: DataFrame, batch_id: int, paths: TablePaths) -> None:
    """Append one batch of raw rows to the tables they belong to."""
    app = f"operations:{query_id(batch)}"
    raw = batch.select("topic", "offset", "term", "timestamp", "value").toArrow()
    for operation in OPERATIONS:
        rows = rows_of(operation, raw)
        if rows.num_rows:
            append_once(paths.table(operation.table.name), rows, app=app, version=batch_id)


def rows_of(operation: LogTable, raw: pa.Table) -> pa.Table:
    """The rows of one table out of the source's raw rows; others are left out.

    Args:
        raw: Columns topic, offset, term, timestamp, value.
    """
    logs = [topic for topic in pc.unique(raw["topic"]).to_pylist() if re.fullmatch(operation.pattern, topic)]
    own = raw.filter(pc.is_in(raw["topic"], pa.array(logs, pa.string())))
    values = own["value"].to_pylist()
    parsed = read_strict(values, operation.payload_columns, decoder(operation.kind))
    by_name: dict[str, pa.Array | pa.ChunkedArray] = {
        "log": own["topic"],
        "log_offset": own["offset"],
        "term": own["term"],
        "record_date_time": own["timestamp"],
        "problem": parsed.problems,
        "payload": own["value"],
    }
    by_name |= dict(zip((c.name for c in operation.payload_columns), parsed.arrays, strict=True))
    schema = operation.table.plain_schema
    return pa.table([by_name[name].cast(schema.field(name).type) for name in schema.names], schema=schema)
