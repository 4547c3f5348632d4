"""The Python Data Source ``fairlead``: the classes that Spark calls. ``shore.source.options`` describes the options.

Spark creates these objects in Python processes of its own and pickles them for its tasks, so they hold plain values
only. The registered class (``register``) holds the endpoints with their passwords and travels inside the pickle. They
are not options, because query plans show options.
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

_SET_BY_SPARK: Final = ("SPARK_LOCAL_DIRS", "SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE", "SPARK_PYTHON_RUNTIME")
_SCHEMAS: Final[Mapping[Rows, pa.Schema]] = {"raw": RAW_SCHEMA, "readings": READINGS_SCHEMA}


class FairleadSource(DataSource):
    """The data source of ``format("fairlead")``, for reading. ``register`` gives it its endpoints."""

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
    """Register ``format("fairlead")`` in a session, for these sites.

    The passwords go to the executors inside the pickled class, in memory only. Neither options, plans, the checkpoint
    nor Spark's configuration hold them.
    """
    # A class created here is pickled by value, with its attributes; a module's class would be pickled by name.
    registered = type("RegisteredSource", (FairleadSource,), {"endpoints": {e.site: e for e in endpoints}})
    registered.__module__ = "__main__"
    # Spark 4.2 (PythonStreamingSourceRunner.init) sets these variables in the registered class's map, a HashMap that
    # all queries of the session share, each from its own thread. Two threads that add a key at once damage the map,
    # and then no task can be read any more (OptionalDataException). A key that is there already is only set anew.
    for name in _SET_BY_SPARK:
        spark.sparkContext.environment.setdefault(name, "")
    spark.dataSource.register(registered)


class BatchReader(DataSourceReader):
    """Reads the selected logs between the edges that options set; by default everything that is there now."""

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
