"""What a job is, and what all jobs are given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fairlead.errors import FairleadError
from fairlead.kafka.endpoint import KafkaEndpoint
from shore.paths import TablePaths
from shore.source.losses import losses_folder
from topologies.model import Topology

if TYPE_CHECKING:  # whoever only compares tables needs no Spark
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from shore.delta.lake import Lake

_QUERY_ID: Final = "sql.streaming.queryId"  # Spark sets it for the thread that runs a batch


@dataclass(frozen=True, slots=True)
class JobContext:
    """One topology's shore. ``endpoint`` is the Kafka of the site where shore runs, as user ``shore``."""

    topology: Topology
    endpoint: KafkaEndpoint
    paths: TablePaths
    spark: SparkSession
    max_records: int

    @property
    def lake(self) -> Lake:
        """The tables as DataFrames."""
        from shore.delta.lake import Lake  # whoever only compares tables needs no Spark

        return Lake(self.spark, self.paths)

    def read_logs(self, job: str, **options: str) -> Any:
        """A streaming DataFrame of the source ``fairlead``, for the job of this name."""
        reader = self.spark.readStream.format("fairlead").option("site", self.endpoint.site)
        reader = reader.option("tasks", str(self.spark.sparkContext.defaultParallelism))
        reader = reader.option("losses", losses_folder(self.paths, job))
        strict = self.topology.shore is None or self.topology.shore.fail_on_data_loss
        reader = reader.option("failOnDataLoss", str(strict).lower())
        return reader.option("maxRecordsPerTrigger", str(self.max_records)).options(**options).load()


@dataclass(frozen=True, slots=True)
class Job:
    """One streaming query.

    Args:
        stage: 1 for jobs that read logs. With ``--once`` the jobs of a stage run side by side, after all of the stage
            before.
        tables: The tables it writes.
        interval: Pause between the beginnings of two batches when it runs continuously, in Spark's words.
        query: Builds the query, all but its name, checkpoint and trigger.
        needed: Whether a topology has anything for it to do.
        inputs: The tables whose new rows the query follows, in the order in which it reads them; none for jobs that
            read logs. A checkpoint has a position for each: ``shore.jobs.state.renew_checkpoint``.
    """

    name: str
    stage: int
    tables: tuple[str, ...]
    interval: str
    query: Callable[[JobContext], DataStreamWriter]
    needed: Callable[[Topology], bool] = lambda topology: True
    inputs: tuple[str, ...] = ()

    @property
    def reads_logs(self) -> bool:
        """Whether it reads logs (stage 1), and not tables."""
        return self.stage == 1


def new_rows(spark: SparkSession, paths: TablePaths, table: str, **options: str) -> DataFrame:
    """A table's rows as a stream. Those that were moved, or changed by a repair or by hand, are nothing new."""
    reader = spark.readStream.format("delta").option("skipChangeCommits", "true")
    return reader.options(**options).load(paths.table(table))


def query_id(batch: DataFrame) -> str:
    """The id that stands in the checkpoint: batch numbers count within it, a new checkpoint has another.

    Raises:
        FairleadError: Spark does not say which query the batch is of.
    """
    found: str | None = batch.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
    if found is None:
        raise FairleadError(
            "a batch does not say which query it is of, so a repeated one could not be told from a new one",
            hint="this needs a Spark that sets the local property " + _QUERY_ID,
        )
    return found
