"""The Python Data Source ``fairlead``: what Spark calls. Options are described in ``shore.source.options``.

Spark creates these objects in Python processes of its own and pickles them to where tasks run, so they hold plain
values only. The endpoints with their passwords are part of the registered class (``register``), which travels inside
the pickle; they are no options, because options are shown in plans.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from fairlead.endpoint import KafkaEndpoint
from fairlead.wire.cluster import Cluster
from shore.source.columns import RAW_SCHEMA, READINGS_SCHEMA, Collector, RawCollector, ReadingsCollector
from shore.source.errors import SourceOptionError
from shore.source.logs import Ends, RangeReader, find_ends
from shore.source.offsets import Positions, Range, StoredPositions, admit, pack, ranges, restore, store
from shore.source.options import SourceOptions, parse_options

ROWS_PER_BATCH = 10_000  # rows of one Arrow batch: a few MB, and enough to make its overhead small
CLIENT_ID = "fairlead-shore"


class LogsPartition(InputPartition):
    """One task: ranges of many logs."""

    def __init__(self, work: Sequence[Range]) -> None:
        super().__init__(None)
        self.work = list(work)


class FairleadSource(DataSource):
    """``spark.readStream.format("fairlead")`` and ``spark.read.format("fairlead")``; made usable by ``register``."""

    endpoints: ClassVar[Mapping[str, KafkaEndpoint]] = {}

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self.settings = parse_options(options)

    @classmethod
    def name(cls) -> str:
        return "fairlead"

    def schema(self) -> StructType:
        return from_arrow_schema(READINGS_SCHEMA if self.settings.rows == "readings" else RAW_SCHEMA)

    def _endpoint(self) -> KafkaEndpoint:
        site = self.settings.site or (next(iter(self.endpoints)) if len(self.endpoints) == 1 else None)
        if site is None or site not in self.endpoints:
            raise SourceOptionError(
                f"option 'site' is {site!r}; the source was registered for {', '.join(self.endpoints) or 'no site'}",
                hint="register(spark, endpoint) with the endpoint of that site first",
            )
        return self.endpoints[site]

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(_Task(self._endpoint(), self.settings))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(_Task(self._endpoint(), self.settings))


def register(spark: SparkSession, *endpoints: KafkaEndpoint) -> None:
    """Make ``format("fairlead")`` known to a session, for these sites.

    The passwords go to the executors inside the pickled class, in memory only: neither options, plans, the checkpoint
    nor Spark's configuration hold them.
    """
    # A class made here is pickled by value, its attributes with it; a module's class would be pickled by name.
    registered = type("RegisteredSource", (FairleadSource,), {"endpoints": {e.site: e for e in endpoints}})
    registered.__module__ = "__main__"
    spark.dataSource.register(registered)


@dataclass(frozen=True)
class _Task:
    """What every part of the source needs, and nothing that cannot be pickled."""

    endpoint: KafkaEndpoint
    options: SourceOptions

    def ends(self, known: Iterable[str]) -> Ends:
        async def ask() -> Ends:
            async with await Cluster.open(self.endpoint, client_id=CLIENT_ID) as cluster:
                return await find_ends(cluster, self.options.takes, frozenset(known))

        return asyncio.run(ask())

    def partitions(self, start: Positions, stop: Positions) -> list[InputPartition]:
        return [LogsPartition(work) for work in pack(ranges(start, stop), self.options.tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs in the task: an event loop of its own, stepped for one record batch at a time."""
        if not isinstance(partition, LogsPartition):
            return
        batches = self._batches(partition.work)
        with asyncio.Runner() as runner:
            try:
                while (batch := runner.run(_next(batches))) is not None:
                    yield batch
            finally:
                runner.run(batches.aclose())

    async def _batches(self, work: list[Range]) -> Any:
        collector: Collector = (
            ReadingsCollector() if self.options.rows == "readings" else RawCollector(self.endpoint.site)
        )
        async with await Cluster.open(self.endpoint, client_id=CLIENT_ID) as cluster:
            reader = RangeReader(cluster, work, fail_on_data_loss=self.options.fail_on_data_loss)
            async for chunk in reader.chunks():
                collector.add(chunk.topic, chunk.partition, chunk.term, chunk.records)
                if len(collector) >= ROWS_PER_BATCH:
                    yield collector.take()
        if len(collector):
            yield collector.take()


async def _next(batches: Any) -> pa.RecordBatch | None:
    return await anext(batches, None)


class BatchReader(DataSourceReader):
    """Everything that the selected logs hold now."""

    def __init__(self, task: _Task) -> None:
        self._task = task

    def partitions(self) -> Sequence[InputPartition]:
        found = self._task.ends(())
        return self._task.partitions(found.starts, found.ends)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._task.read(partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches of at most ``maxRecordsPerTrigger`` offsets, over all logs that are there at that moment.

    A log that appears while the query runs is read from its start; one that vanishes keeps its position, and is read on
    if it comes back. The offset of a batch is the position in every log (``shore.source.offsets.store``).
    """

    def __init__(self, task: _Task) -> None:
        self._task = task
        self._target: Positions | None = None  # availableNow: what was there at the beginning
        self._backlog: dict[str, Any] | None = None

    def initialOffset(self) -> StoredPositions:
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._task.options.max_records)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._task.ends(()).ends

    def latestOffset(self, start: StoredPositions, limit: ReadLimit) -> StoredPositions:
        position = restore(start)
        found = self._task.ends(position)
        ends = found.ends
        if self._target is not None:
            ends = {log: min(end, self._target[log]) for log, end in ends.items() if log in self._target}
        begin = {log: first for log, first in found.starts.items() if log in ends} | position
        most = (
            None if isinstance(limit, ReadAllAvailable) else getattr(limit, "max_rows", self._task.options.max_records)
        )
        stop = admit(begin, ends, most)
        gone = sorted(log for log in position if log not in found.ends)
        self._backlog = {
            "logs": len(ends),
            "behind": sum(max(0, end - stop[log]) for log, end in ends.items()),
            "vanished": len(gone),
            "unreadable": len(found.unreadable),
            "examples": (gone + [f"{log}: {why}" for log, why in sorted(found.unreadable.items())])[:5],
        }
        return store(stop)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Shown in the query's progress: what is left after the last batch, and which logs could not be read."""
        return self._backlog

    def partitions(self, start: StoredPositions, end: StoredPositions) -> Sequence[InputPartition]:
        return self._task.partitions(restore(start), restore(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._task.read(partition)

    def commit(self, end: StoredPositions) -> None:
        """Nothing to do: the checkpoint is Spark's, and Kafka keeps no position for shore."""

    def stop(self) -> None:
        """Nothing is kept open between calls."""
