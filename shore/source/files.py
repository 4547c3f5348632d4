"""Rows of container logs as new files of tables ``readings`` and ``readings_rejected``, written where they are read.

So a row goes through no other process on its way: to hand it to Spark's JVM, and to have that write it, costs twice
what reading and parsing it does (docs/benchmarks/shore.md).
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from shore.source.readings import REASON
from shore.tablefiles import FileWriter, NewFile
from shore.tables.readings import READINGS, READINGS_REJECTED


def write_files(batches: Iterable[pa.RecordBatch], tables: str) -> list[NewFile]:
    """Write rows of ``READINGS_SCHEMA`` into files of the two tables below the folder ``tables``: at most one each.

    Raises what reading and writing raise; nothing is left behind then, where that can be done.
    """
    good = FileWriter(f"{tables}/{READINGS.name}", READINGS)
    bad = FileWriter(f"{tables}/{READINGS_REJECTED.name}", READINGS_REJECTED)
    try:
        for batch in batches:
            reasons = batch.column(REASON)
            if reasons.null_count == batch.num_rows:
                good.write(_columns(batch, READINGS.plain_schema))
            else:
                good.write(_columns(batch.filter(reasons.is_null()), READINGS.plain_schema))
                bad.write(_columns(batch.filter(reasons.is_valid()), READINGS_REJECTED.plain_schema))
        return [file for file in (good.close(), bad.close()) if file is not None]
    except BaseException:
        good.abandon()
        bad.abandon()
        raise


def _columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([batch.column(name) for name in schema.names], schema=schema)
