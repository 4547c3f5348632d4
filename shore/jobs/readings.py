"""Job ``readings``: every data record of every container log becomes a row of ``readings`` or ``readings_rejected``.

The source parses and says which. A batch is one commit to ``readings``, which also counts the rejected rows on their
way, and one to ``readings_rejected`` if there are any. For that the batch is read again: rejected rows are few, and to
hold every batch would cost more. Both commits carry the query's id and the batch's number, so a repeated batch is not
written twice, wherever the one before it stopped.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from shore.append import last_version
from shore.jobs.model import JobContext, query_id
from shore.places import Places
from shore.source.readings import REASON
from shore.tables.model import Table
from shore.tables.readings import READINGS, READINGS_REJECTED


def query(context: JobContext) -> DataStreamWriter:
    rows = context.read_logs(streams=",".join(context.topology.moving_streams), rows="readings")
    places = context.places
    writer: DataStreamWriter = rows.writeStream.foreachBatch(lambda batch, number: store(batch, number, places))
    return writer


def store(batch: DataFrame, number: int, places: Places) -> None:
    """Write one batch to the tables that do not have it yet."""
    app = query_id(batch)
    rejected = F.col(REASON).isNotNull()
    done = last_version(places.table(READINGS.name), app)
    if done is None or done < number:
        seen = Observation()
        _append(batch.observe(seen, F.count(REASON).alias("rejected")), ~rejected, READINGS, places, app, number)
        if not seen.get["rejected"]:
            return
    _append(batch, rejected, READINGS_REJECTED, places, app, number)


def _append(rows: DataFrame, which: Column, table: Table, places: Places, app: str, number: int) -> None:
    chosen = rows.where(which).select(*table.plain_schema.names)
    writer = chosen.write.format("delta").mode("append").option("txnAppId", app).option("txnVersion", number)
    writer.save(places.table(table.name))
