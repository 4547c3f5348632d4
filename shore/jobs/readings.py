"""Job ``readings``: every data record of every container log becomes a row of table ``readings``.

The source parses, Spark's Delta sink appends: each batch is one commit that carries the query's id and the batch's
number, so a repeated batch is not written twice.
"""

from __future__ import annotations

from pyspark.sql.streaming.readwriter import DataStreamWriter

from shore.jobs.model import JobContext
from topologies.model import InsertPoint, Topology


def container_streams(topology: Topology) -> tuple[str, ...]:
    """The streams that have a log per container."""
    return tuple(name for name, stream in topology.streams.items() if stream.insert_point is InsertPoint.MOVES)


def query(context: JobContext) -> DataStreamWriter:
    rows = context.read_logs(streams=",".join(container_streams(context.topology)), rows="readings")
    writer: DataStreamWriter = rows.writeStream.format("delta").option("path", context.places.table("readings"))
    return writer
