"""The Python Data Source ``fairlead``: what Spark calls.

Options are described in ``shore.source.options``.

Spark creates these objects in Python processes of its own and pickles them to where tasks run, so they hold plain
values only. The endpoints with their passwords are part of the registered class (``register``), which travels inside
the pickle; they are no options, because options are shown in plans.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import ClassVar, Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.errors import ConnectionLost, RequestTimeout
from shore.errors import SourceOptionError, site_unreachable
from shore.source.columns import RAW_SCHEMA
from shore.source.offsets import Positions
from shore.source.options import EARLIEST, LATEST, Edge, Rows, SourceOptions, parse_options
from shore.source.readings import READINGS_SCHEMA
from shore.source.stream import StreamReader, find_ends, resolve_edge
from shore.source.task import Task

_SCHEMAS: Final[Mapping[Rows, pa.Schema]] = {"raw": RAW_SCHEMA, "readings": READINGS_SCHEMA}


class FairleadSource(DataSource):
    """``format("fairlead")`` to read; made usable by ``register``."""

    endpoints: ClassVar[Mapping[str, KafkaEndpoint]] = {}

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        return "fairlead"

    def schema(self) -> StructType:
        return from_arrow_schema(_SCHEMAS[self._settings().rows])

    def _settings(self) -> SourceOptions:
        return parse_options(self.options)

    def _endpoint(self, wanted: str | None) -> KafkaEndpoint:
        site = wanted or (next(iter(self.endpoints)) if len(self.endpoints) == 1 else None)
        if site is None or site not in self.endpoints:
            raise SourceOptionError(
                f"option 'site' is {site!r}; the source was registered for {', '.join(self.endpoints) or 'no site'}",
                hint="register(spark, endpoint) with the endpoint of that site first",
            )
        return self.endpoints[site]

    def reader(self, schema: StructType) -> DataSourceReader:
        settings = self._settings()
        return BatchReader(Task(self._endpoint(settings.site), settings))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        settings = self._settings()
        settings.check_streaming()
        return StreamReader(Task(self._endpoint(settings.site), settings))


def register(spark: SparkSession, *endpoints: KafkaEndpoint) -> None:
    """Make ``format("fairlead")`` known to a session, for these sites.

    The passwords go to the executors inside the pickled class, in memory only: neither options, plans, the checkpoint
    nor Spark's configuration hold them.
    """
    # A class made here is pickled by value, its attributes with it; a module's class would be pickled by name.
    registered = type("RegisteredSource", (FairleadSource,), {"endpoints": {e.site: e for e in endpoints}})
    registered.__module__ = "__main__"
    spark.dataSource.register(registered)


class BatchReader(DataSourceReader):
    """What the selected logs hold between the options' edges: by default everything that is there now."""

    def __init__(self, task: Task) -> None:
        self._task = task

    def partitions(self) -> Sequence[InputPartition]:
        try:
            return self._task.partitions(*asyncio.run(self._edges()))
        except (ConnectionLost, RequestTimeout) as error:
            raise site_unreachable(self._task.endpoint, error) from error

    async def _edges(self) -> tuple[Positions, Positions]:
        options = self._task.options
        async with await self._task.connect() as cluster:
            from_start = options.starting == Edge(EARLIEST)
            found = await find_ends(cluster, options.takes, frozenset() if from_start else None)
            start, stop = found.starts, found.ends
            if not from_start:
                start = await resolve_edge(cluster, options.starting, found.ends)
            if options.ending != Edge(LATEST):
                stop = await resolve_edge(cluster, options.ending, found.ends)
        return start, {log: min(end, found.ends[log]) for log, end in stop.items() if log in found.ends}

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._task.read(partition)
