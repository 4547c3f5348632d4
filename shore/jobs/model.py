"""The definition of a job (``Job``) and what every job gets to work with (``JobContext``)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from fairlead.errors import FairleadError
from fairlead.kafka.endpoint import KafkaEndpoint
from shore.paths import TablePaths
from shore.site import read_site
from shore.source.losses import losses_folder
from topologies.model import Topology

if TYPE_CHECKING:  # comparing tables needs no Spark
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from shore.delta.lake import Lake

_QUERY_ID: Final = "sql.streaming.queryId"  # Spark sets it for the thread that runs a batch


@dataclass(frozen=True, slots=True)
class JobContext:
    """The environment of one topology's jobs. ``endpoint`` is Kafka of the site where shore runs, as user ``shore``.
    ``max_records`` bounds a micro-batch of a job that reads logs."""

    topology: Topology
    endpoint: KafkaEndpoint
    paths: TablePaths
    spark: SparkSession
    max_records: int

    @property
    def lake(self) -> Lake:
        """The tables as DataFrames."""
        from shore.delta.lake import Lake  # comparing tables needs no Spark

        return Lake(self.spark, self.paths)

    def in_own_session(self) -> JobContext:
        """Return the same with a session of its own that generates no code (``Lake.in_own_session``)."""
        return replace(self, spark=self.lake.in_own_session().spark)

    def read_logs(self, job: str, **options: str) -> Any:
        """Return a streaming DataFrame of the source ``fairlead`` for the job of this name."""
        reader = self.spark.readStream.format("fairlead").option("site", self.endpoint.site)
        reader = reader.option("tasks", str(self.spark.sparkContext.defaultParallelism))
        reader = reader.option("losses", losses_folder(self.paths, job))
        record = read_site(self.paths)
        held = {} if record is None else record.held.get(job, {})
        if held:
            stops = {log: each.position if each.differs is None else None for log, each in held.items()}
            reader = reader.option("held", json.dumps(stops))
        strict = self.topology.shore is None or self.topology.shore.fail_on_data_loss
        reader = reader.option("failOnDataLoss", str(strict).lower())
        return reader.option("maxRecordsPerTrigger", str(self.max_records)).options(**options).load()


@dataclass(frozen=True, slots=True)
class Job:
    """One streaming query.

    Args:
        tables: The tables that the job writes.
        interval: The trigger interval of a continuous run, as Spark writes it ("10 seconds").
        query: Builds the query, without name, checkpoint and trigger.
        needed: Whether the job has anything to do for a topology.
        inputs: The tables that the query follows, in the order in which it reads them; empty for jobs that read logs.
            With ``--once`` the job begins when the jobs that write them have ended. The checkpoint holds one position
            for each, in this order (``shore.jobs.state.renew_checkpoint``).
        logs: For a job whose batches only copy logs into tables, the options of source ``fairlead`` that select them.
    """

    name: str
    tables: tuple[str, ...]
    interval: str
    query: Callable[[JobContext], DataStreamWriter]
    needed: Callable[[Topology], bool] = lambda topology: True
    inputs: tuple[str, ...] = ()
    logs: Callable[[Topology], dict[str, str]] | None = None

    @property
    def reads_logs(self) -> bool:
        """Whether the job reads logs instead of tables."""
        return not self.inputs


def follow(lake: Lake, rows: DataFrame, update: Callable[[Lake, DataFrame], object]) -> DataStreamWriter:
    """Return a query that updates tables from each batch of ``rows``, with the tables in the batch's session."""

    def update_batch(batch: DataFrame, _: int) -> None:
        update(lake.in_batch(batch), batch)

    writer: DataStreamWriter = rows.writeStream.foreachBatch(update_batch)
    return writer


def query_id(batch: DataFrame) -> str:
    """Return the query id from the checkpoint. Batch numbers count within it; a new checkpoint has a new id.

    Raises:
        FairleadError: Spark does not say which query the batch belongs to.
    """
    found: str | None = batch.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
    if found is None:
        raise FairleadError(
            "a batch does not say which query it is of, so a repeated one could not be told from a new one",
            hint="this needs a Spark that sets the local property " + _QUERY_ID,
        )
    return found
