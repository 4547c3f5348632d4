"""Job ``readings``: writes every data record of every container log to ``readings`` or ``readings_rejected``.

A batch is one append to ``readings`` and, if records were rejected, one to ``readings_rejected``. Both carry the
query's id and the batch's number, so a repeated batch is appended to neither table twice. The first append counts the
rejected records while it reads the logs. The logs are read a second time only to store rejected records. These are
rare, and to cache every batch for them would make all batches slower.

After a crash Spark repeats the batch:

========================================  ==========================================================================
the driver died                           the repeated batch
========================================  ==========================================================================
before the append to ``readings``         is a new one
between the two appends                   finds itself in ``readings``, and appends to ``readings_rejected`` only
after the last one                        finds itself in both tables, and appends nothing
========================================  ==========================================================================

The repeated batch cannot know whether records were rejected. If none were, its append to ``readings_rejected`` has no
rows and only records that the batch is done.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from shore.delta.commit import append_once, is_committed
from shore.delta.lake import Lake, computed
from shore.delta.lease import check_lease
from shore.delta.table_errors import open_table
from shore.jobs.checkpoint import records_under_way
from shore.jobs.model import JobContext, query_id
from shore.jobs.query import note_read_twice
from shore.paths import TablePaths
from shore.source.readings import REASON, inspections
from shore.tables.readings import READINGS, READINGS_REJECTED
from topologies.model import Topology

_MANY: Final = 20_000  # records in a batch from which on generated code pays
_NO_DICTIONARY: Final = {
    f"parquet.enable.dictionary#{field.name}": "false"
    for field in READINGS.plain_schema
    if not pa.types.is_string(field.type)
}
"""Settings that limit Parquet dictionaries to text columns, where values repeat. Dictionaries for numbers and payloads
took a third of the JVM's time and made the files larger."""


def logs(topology: Topology) -> dict[str, str]:
    """Return the options of source ``fairlead`` that select the logs of all containers, and their rows."""
    return {"streams": ",".join(topology.moving_streams), "rows": "readings"}


def query(context: JobContext) -> DataStreamWriter:
    lake = context.lake
    for name, value in _NO_DICTIONARY.items():
        context.spark.conf.set(name, value)
    rows = context.read_logs("readings", **logs(context.topology))

    def update_batch(batch: DataFrame, number: int) -> None:
        if records_under_way(lake.paths, "readings") >= _MANY:
            lake.in_batch(batch).generate_code()
        store(batch, number, lake.paths)

    writer: DataStreamWriter = rows.writeStream.foreachBatch(update_batch)
    return writer


def store(batch: DataFrame, number: int, paths: TablePaths) -> None:
    """Append one batch of rows of ``READINGS_SCHEMA`` to each of the two tables that does not have it yet."""
    app = query_id(batch)
    if not is_committed(paths.table(READINGS.name), app=app, version=number):
        counted = Observation()
        rows = batch.observe(counted, F.count(F.lit(1)).alias("rows"), F.count(REASON).alias("rejected"))
        rows = rows.where(F.col(REASON).isNull()).select(*READINGS.plain_schema.names)
        append_once(rows, paths.table(READINGS.name), app=app, version=number)
        if not counted.get["rejected"]:
            return
        note_read_twice(app, number, counted.get["rows"])
    if not is_committed(paths.table(READINGS_REJECTED.name), app=app, version=number):
        rows = batch.where(F.col(REASON).isNotNull()).select(*READINGS_REJECTED.plain_schema.names)
        append_once(rows, paths.table(READINGS_REJECTED.name), app=app, version=number)


def add_inspections(lake: Lake) -> None:
    """Add column ``inspection`` to a table that an earlier release has stored, with what the payloads tell.

    Column and values come in one commit, so that a crash leaves no table whose column lacks values. All payloads are
    read, and each file with an inspection is written anew. Where no payload tells of one, ``create_tables`` adds the
    column.

    Raises:
        UnavailableError: the table cannot be opened.
    """
    location, column = lake.paths.table(READINGS.name), READINGS.spark_schema["inspection"]
    there = open_table(lake.paths, READINGS.name)
    if there is None or column.name in {field.name for field in there.schema().fields}:
        return
    known = (*READINGS.key, "payload")
    rows = lake.spark.read.format("delta").load(location).select(*known)
    rows = rows.where(F.col("payload").cast("string").contains('"inspection"'))
    told = rows.mapInArrow(_inspected, StructType([*(READINGS.spark_schema[name] for name in known), column]))
    told = computed(told.where(F.col(column.name).isNotNull()).dropDuplicates(list(known)))  # rows may be there twice
    if told.isEmpty():
        return
    check_lease(location)
    condition = " and ".join(f"t.{name} = s.{name}" for name in known)
    merge = DeltaTable.forPath(lake.spark, location).alias("t").merge(told.alias("s"), condition)
    merge.withSchemaEvolution().whenMatchedUpdate(set={column.name: f"s.{column.name}"}).execute()


def _inspected(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        payloads = batch.column("payload").cast(pa.binary())
        found = inspections(payloads, payloads.is_valid())
        columns = [*(batch.column(name) for name in READINGS.key), payloads, found]
        yield pa.RecordBatch.from_arrays(columns, names=[*READINGS.key, "payload", "inspection"])
