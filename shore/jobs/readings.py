"""Job ``readings``: every data record of every container log becomes a row of ``readings`` or ``readings_rejected``.

The tasks that read the logs also write the tables' files; what comes to the driver is a row for each file. A batch is
one commit to ``readings_rejected`` if anything was rejected, then one to ``readings``. Both carry the query's id and
the batch's number, so a repeated batch is not committed twice, wherever the one before it stopped; what it had written
until then belongs to no version.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from shore.delta.files import NewFile
from shore.delta.write import commit_files, last_version
from shore.jobs.model import JobContext, query_id
from shore.jobs.query import STORED
from shore.paths import TablePaths
from shore.tables.readings import READINGS, READINGS_REJECTED


def query(context: JobContext) -> DataStreamWriter:
    paths = context.paths
    streams = ",".join(context.topology.moving_streams)
    files = context.read_logs("readings", streams=streams, rows="files", folder=paths.tables)
    files = files.observe(STORED, F.sum("rows").alias("rows"))
    writer: DataStreamWriter = files.writeStream.foreachBatch(lambda batch, number: store(batch, number, paths))
    return writer


def store(batch: DataFrame, number: int, paths: TablePaths) -> None:
    """Commit one batch to the tables that do not have it yet. ``readings`` is the last of them: with it all is done."""
    app = query_id(batch)
    done = last_version(paths.table(READINGS.name), app)
    if done is not None and done >= number:
        return
    files = [NewFile(**row.asDict()) for row in batch.collect()]
    for table in (READINGS_REJECTED, READINGS):
        if own := [file for file in files if file.table == table.name]:
            commit_files(paths.table(table.name), table.schema, own, app=app, version=number)
