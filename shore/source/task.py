"""What the driver plans and a task does: ranges of many logs, read into Arrow record batches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.connection import backoff
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.errors import ConnectionLost, RequestTimeout
from shore.losses import Loss, note
from shore.source.columns import Collector, RawCollector
from shore.source.errors import SiteUnreachableError
from shore.source.files import write_files
from shore.source.logs import RangeReader
from shore.source.offsets import Positions, Range, pack, ranges
from shore.source.options import SourceOptions
from shore.source.readings import ReadingsCollector
from shore.tablefiles import as_batch

CLIENT_ID = "fairlead-shore"
PATIENCE_SECONDS = 60.0  # how long a task waits for a site that cannot be reached


class LogsPartition(InputPartition):
    """One task: ranges of many logs."""

    def __init__(self, work: Sequence[Range]) -> None:
        super().__init__(None)
        self.work = list(work)


def unreachable(endpoint: KafkaEndpoint, error: Exception) -> SiteUnreachableError:
    """The error for a site whose brokers do not answer."""
    first, *_ = str(error).splitlines()
    return SiteUnreachableError(
        f"site {endpoint.site} cannot be reached ({type(error).__name__}: {first})",
        hint="nothing is lost: start the query again when the site is back, it goes on from its checkpoint",
        site=endpoint.site,
    )


@dataclass(frozen=True)
class Task:
    """What every part of the source needs, and nothing that cannot be pickled."""

    endpoint: KafkaEndpoint
    options: SourceOptions

    async def connect(self, patience: float = 0.0) -> Cluster:
        """A connection to the site, tried for so many seconds.

        Raises:
            ConnectionLost, RequestTimeout: no broker answers.
            AuthenticationFailed: the login was refused.
        """
        loop = asyncio.get_running_loop()
        deadline, attempt = loop.time() + patience, 0
        while True:
            try:
                return await Cluster.open(self.endpoint, client_id=CLIENT_ID)
            except (ConnectionLost, RequestTimeout):
                if loop.time() >= deadline:
                    raise
            await asyncio.sleep(backoff(attempt, 5.0))
            attempt += 1

    def partitions(self, start: Positions, stop: Positions) -> list[InputPartition]:
        """The tasks that read what lies between two positions."""
        options = self.options
        return [
            LogsPartition(work) for work in pack(ranges(start, stop), options.tasks, keep_whole=options.keep_logs_whole)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs in the task: the rows, or with ``rows`` = ``files`` what has been written of them.

        Raises:
            DataLossError: records are gone, and option ``failOnDataLoss`` is set.
            SiteUnreachableError: the site does not answer for ``PATIENCE_SECONDS``.
        """
        if self.options.rows == "files":
            yield as_batch(write_files(self._read(partition), self.options.folder))
        else:
            yield from self._read(partition)

    def _read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """An event loop of its own, stepped for one record batch at a time."""
        if not isinstance(partition, LogsPartition):
            return
        batches = self._batches(partition.work)
        with asyncio.Runner() as runner:
            try:
                while (batch := runner.run(_next(batches))) is not None:
                    yield batch
            except (ConnectionLost, RequestTimeout) as error:
                raise unreachable(self.endpoint, error) from error
            finally:
                runner.run(batches.aclose())

    def note_loss(self, *losses: Loss) -> None:
        """Note what is gone, where the query has a place for it."""
        if self.options.losses and losses:
            note(self.options.losses, losses)

    async def _batches(self, work: list[Range]) -> Any:
        collector: Collector = RawCollector(self.endpoint.site) if self.options.rows == "raw" else ReadingsCollector()
        lost: list[Loss] = []
        async with await self.connect(PATIENCE_SECONDS) as cluster:
            options = self.options
            batches = record_batches(
                cluster, work, collector, fail_on_data_loss=options.fail_on_data_loss, on_loss=lost.append
            )
            async for batch in batches:
                yield batch
        self.note_loss(*lost)  # before the task ends, and with it the batch


async def record_batches(
    cluster: Cluster,
    work: Iterable[Range],
    collector: Collector,
    *,
    fail_on_data_loss: bool = False,
    on_loss: Callable[[Loss], None] = lambda loss: None,
) -> AsyncIterator[pa.RecordBatch]:
    """The rows of these ranges, as the collector makes them; the last batch may be empty.

    Raises:
        DataLossError: records are gone, and ``fail_on_data_loss``.
        CorruptBatch: stored batches cannot be read.
    """
    reader = RangeReader(cluster, work, fail_on_data_loss=fail_on_data_loss, on_loss=on_loss)
    async for log, stretch in reader.stretches():
        collector.add(*log, stretch)
        if collector.full:
            yield collector.take()
    yield collector.take()


async def _next(batches: AsyncIterator[pa.RecordBatch]) -> pa.RecordBatch | None:
    return await anext(batches, None)
