"""The executors' half of the source: ranges of many logs, read into Arrow record batches.

The driver plans tasks (``Task.partitions``), each task reads its ranges (``Task.read``), some hundred logs a request
(``RangeReader``). A broker answers with what a log has from a position on, up to a number of bytes that is the same for
all logs of a request. Too many bytes, and most of an answer lies behind the ranges that are to be read; too few, and a
log whose next batch is longer gets nothing unless it is the first of the request. So ``PortionSizer`` goes by what
records took so far, and grows when logs get nothing.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.connection import backoff
from fairlead.kafka.columnar import Stretch, stretch
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.errors import (
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_TOPIC_OR_PARTITION,
    ConnectionLost,
    RequestTimeout,
    broker_error,
)
from fairlead.kafka.protocol.types import FetchedPartition, TopicPartition
from shore.errors import DataLossError, site_unreachable
from shore.source.columns import Collector, RawCollector
from shore.source.losses import Loss, settle_losses
from shore.source.offsets import Positions, Range, pack, partition_id, ranges
from shore.source.options import SourceOptions
from shore.source.readings import ReadingsCollector

MOST_BYTES: Final = 8 << 20  # of one answer: what a task holds beside the rows that it makes
MOST_LOGS: Final = 500
FEWEST_LOGS: Final = 50
LEAST_PORTION: Final = 16 << 10
LARGEST_PORTION: Final = 1 << 20  # but for the last few logs
_GUESS: Final = 1_000  # bytes of a record, before any is known
_MARGIN: Final = 1.3


class PortionSizer:
    """What a task has seen so far, and what follows from it."""

    def __init__(self) -> None:
        self._offsets = self._bytes = 0
        self._least = LEAST_PORTION

    def record_answer(self, offsets: int, size: int) -> None:
        """So many offsets took so many bytes."""
        self._offsets += offsets
        self._bytes += size

    def starved(self) -> None:
        """Some log had records and room in the answer, and got nothing: its next batch is longer than a portion."""
        self._least = min(LARGEST_PORTION, 4 * self._least)

    def portion(self, longest: int, logs: int) -> int:
        """Bytes to ask for of each of ``logs`` logs, when the longest range that is left has so many offsets."""
        record = self._bytes / self._offsets if self._offsets else _GUESS
        wanted = max(self._least, int(longest * record * _MARGIN))
        # A few logs may have more each, so that one with very many records is not read in small pieces.
        return min(wanted, max(LARGEST_PORTION, MOST_BYTES // max(1, logs)))

    def logs(self, longest: int) -> int:
        """How many logs to ask for at once, so that one answer has room for them."""
        return max(FEWEST_LOGS, min(MOST_LOGS, MOST_BYTES // self.portion(longest, MOST_LOGS)))


logger = logging.getLogger(__name__)

SILENCE_SECONDS = 15.0  # how long a log may answer with nothing before its records count as gone


class RangeReader:
    """Reads the stored batches of many ranges, each in order, some hundred logs per request.

    Records that are gone are said in the log and to ``on_loss``, or raised when ``fail_on_data_loss``; the reader then
    goes on where the log has records again.
    """

    def __init__(
        self,
        cluster: Cluster,
        work: Iterable[Range],
        *,
        fail_on_data_loss: bool = False,
        on_loss: Callable[[Loss], None] = lambda loss: None,
    ) -> None:
        self._cluster = cluster
        self._on_loss = on_loss
        self._waiting = sorted(work, reverse=True)
        self._fail = fail_on_data_loss
        self._active: dict[TopicPartition, Range] = {}
        self._positions: dict[TopicPartition, int] = {}
        self._silent_since: dict[TopicPartition, float] = {}
        self._portions = PortionSizer()

    async def stretches(self) -> AsyncIterator[tuple[TopicPartition, Stretch]]:
        """Stored batches as they come, until every range is read; each log's in order."""
        while self._refill():
            portion = self._portions.portion(self._longest(), len(self._positions))
            answers = await self._cluster.fetch(
                dict(self._positions), max_wait_ms=500, max_bytes=MOST_BYTES, partition_max_bytes=portion
            )
            room = sum(len(answer.records) for answer in answers.values()) + portion <= MOST_BYTES
            moved: list[TopicPartition] = []
            starved = False
            for log, answer in answers.items():
                before = self._positions.get(log)
                if before is None:
                    continue
                if answer.error_code:
                    await self._handle_error(log, answer)
                    continue
                found = stretch(answer.records, before, self._active[log].stop)
                self._positions[log] = max(before, min(found.after, found.stop))
                if found.starts:
                    self._portions.record_answer(found.records, found.end)
                    yield log, found
                if self._positions[log] > before:
                    moved.append(log)
                    self._silent_since.pop(log, None)
                elif answer.high_watermark > before:  # there is something, and it was not given
                    starved = room
                else:
                    self._check_silence(log, answer)
                if self._positions[log] >= self._active[log].stop:
                    self._finish(log)
            if starved:
                self._portions.starved()
            # Brokers fill an answer in the order of the request: who got something goes to the end.
            for log in moved:
                if log in self._positions:
                    self._positions[log] = self._positions.pop(log)

    def _refill(self) -> bool:
        longest = max(self._longest(), self._waiting[-1].span if self._waiting else 0)
        most = self._portions.logs(longest)
        while self._waiting and len(self._active) < most:
            # Of a log that is cut in parts one is read at a time.
            free = (n for n in range(len(self._waiting) - 1, -1, -1) if self._log(self._waiting[n]) not in self._active)
            number = next(free, None)
            if number is None:
                break
            work = self._waiting.pop(number)
            log = self._log(work)
            self._active[log] = work
            self._positions[log] = work.start
        return bool(self._active)

    def _longest(self) -> int:
        """Offsets that are left of the longest range."""
        return max((work.stop - self._positions[log] for log, work in self._active.items()), default=0)

    @staticmethod
    def _log(work: Range) -> TopicPartition:
        return TopicPartition(work.topic, work.partition)

    def _finish(self, log: TopicPartition) -> None:
        self._active.pop(log, None)
        self._positions.pop(log, None)
        self._silent_since.pop(log, None)

    def _check_silence(self, log: TopicPartition, answer: FetchedPartition) -> None:
        """A log that has nothing where records were promised was truncated or recreated; followers may lag a moment."""
        now = asyncio.get_running_loop().time()
        if now - self._silent_since.setdefault(log, now) > SILENCE_SECONDS:
            self._lose(log, self._active[log].stop, f"the log now ends at {answer.high_watermark}")

    async def _handle_error(self, log: TopicPartition, answer: FetchedPartition) -> None:
        if answer.error_code == UNKNOWN_TOPIC_OR_PARTITION:
            self._lose(log, self._active[log].stop, "the log was deleted")
        elif answer.error_code == OFFSET_OUT_OF_RANGE:
            start = (await self._cluster.start_offsets([log])).get(log)
            if isinstance(start, int) and start > self._positions[log]:
                self._lose(log, start, f"retention deleted records; the log now starts at {start}")
            else:
                self._lose(log, self._active[log].stop, "the log was truncated or recreated")
        else:
            raise broker_error(answer.error_code, log)

    def _lose(self, log: TopicPartition, until: int, reason: str) -> None:
        position, stop = self._positions[log], self._active[log].stop
        until = min(until, stop)
        what = f"records {position} to {until - 1} of {log} are gone before shore read them: {reason}"
        if self._fail:
            raise DataLossError(
                what,
                hint="read on without them by option failOnDataLoss=false",
                log=str(log),
                first=position,
                last=until - 1,
            )
        logger.warning("%s", what)
        now = dt.datetime.now(dt.UTC)
        self._on_loss(Loss(log=partition_id(*log), first=position, last=until - 1, why=reason, found_at=now))
        self._positions[log] = until
        if until >= stop:
            self._finish(log)


CLIENT_ID = "fairlead-shore"
PATIENCE_SECONDS = 60.0  # how long a task waits for a site that cannot be reached


class LogsPartition(InputPartition):
    """One task: ranges of many logs."""

    def __init__(self, work: Sequence[Range]) -> None:
        super().__init__(None)
        self.work = list(work)


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
        """Runs in the task: the rows. An event loop of its own is stepped for one record batch at a time.

        Raises:
            DataLossError: records are gone, and option ``failOnDataLoss`` is set.
            SiteUnreachableError: the site does not answer for ``PATIENCE_SECONDS``.
        """
        if not isinstance(partition, LogsPartition):
            return
        batches = self._batches(partition.work)
        with asyncio.Runner() as runner:
            try:
                while (batch := runner.run(_next(batches))) is not None:
                    yield batch
            except (ConnectionLost, RequestTimeout) as error:
                raise site_unreachable(self.endpoint, error) from error
            finally:
                runner.run(batches.aclose())

    def settle_losses(self, *losses: Loss) -> None:
        """Note what is gone, where the query has a place for it.

        Raises:
            DataLossError: nobody has acknowledged it, and option ``failOnDataLoss`` is set.
        """
        if self.options.losses:
            settle_losses(self.options.losses, losses, fail=self.options.fail_on_data_loss)

    async def _batches(self, work: list[Range]) -> Any:
        collector: Collector = RawCollector(self.endpoint.site) if self.options.rows == "raw" else ReadingsCollector()
        lost: list[Loss] = []
        async with await self.connect(PATIENCE_SECONDS) as cluster:
            options = self.options
            batches = record_batches(
                cluster,
                work,
                collector,
                fail_on_data_loss=options.fail_on_data_loss and not options.losses,
                on_loss=lost.append,
            )
            async for batch in batches:
                yield batch
        self.settle_losses(*lost)  # before the task ends, and with it the batch


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
    async for log, batches in reader.stretches():
        collector.add(*log, batches)
        if collector.full:
            yield collector.take_batch()
    yield collector.take_batch()


async def _next(batches: AsyncIterator[pa.RecordBatch]) -> pa.RecordBatch | None:
    return await anext(batches, None)
