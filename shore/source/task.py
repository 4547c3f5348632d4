"""The executors' half of the source: read ranges of many logs into Arrow record batches.

The driver plans tasks (``Task.partitions``). Each task reads its ranges (``Task.read``), some hundred logs a request
(``RangeReader``). A broker answers with each log's records from a position on, up to a number of bytes that is the same
for all logs of a request. With too many bytes, most of an answer lies beyond the wanted ranges. With too few, a log
whose next batch is longer gets nothing unless it is the first in the request. So ``PortionSizer`` estimates the bytes
from the records read so far, and asks for more when logs get nothing.
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
from fairlead.kafka.client.reader import is_empty, lacks_batch
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

MOST_BYTES: Final = 8 << 20  # of one answer: what a task holds in memory beside its rows
MOST_LOGS: Final = 500
FEWEST_LOGS: Final = 50
LEAST_PORTION: Final = 16 << 10
LARGEST_PORTION: Final = 1 << 20  # except when few logs are left
_GUESS: Final = 1_000  # bytes of a record, until records were read
_MARGIN: Final = 1.3


class PortionSizer:
    """Computes how many bytes and logs to ask for in a request, from the answers so far."""

    def __init__(self) -> None:
        self._offsets = self._bytes = 0
        self._least = LEAST_PORTION

    def record_answer(self, offsets: int, size: int) -> None:
        """Record that ``offsets`` records took ``size`` bytes."""
        self._offsets += offsets
        self._bytes += size

    def starved(self) -> None:
        """Record that a log got nothing although the answer had room: its next batch is longer than a portion."""
        self._least = min(LARGEST_PORTION, 4 * self._least)

    def portion(self, longest: int, logs: int) -> int:
        """Return the bytes to ask for of each of ``logs`` logs. The longest range has ``longest`` offsets left."""
        record = self._bytes / self._offsets if self._offsets else _GUESS
        wanted = max(self._least, int(longest * record * _MARGIN))
        # Few logs get larger portions, so that a log with very many records is not read in small pieces.
        return min(wanted, max(LARGEST_PORTION, MOST_BYTES // max(1, logs)))

    def logs(self, longest: int) -> int:
        """Return how many logs to ask for at once, so that one answer has room for all of them."""
        return max(FEWEST_LOGS, min(MOST_LOGS, MOST_BYTES // self.portion(longest, MOST_LOGS)))


logger = logging.getLogger(__name__)

SILENCE_SECONDS = 15.0  # how long a log may return nothing before its records count as lost


class RangeReader:
    """Reads the stored batches of many ranges, each in order, some hundred logs per request.

    Lost records raise ``DataLossError`` with ``fail_on_data_loss``. Else the reader logs a warning, calls ``on_loss``,
    and goes on where the log has records again.
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
        """Yield stored batches as they arrive, until every range is read. The batches of one log come in order."""
        while self._refill():
            portion = self._portions.portion(self._longest(), len(self._positions))
            answers = await self._cluster.fetch(
                dict(self._positions), max_wait_ms=500, max_bytes=MOST_BYTES, partition_max_bytes=portion
            )
            room = sum(len(answer.records) for answer in answers.values()) + portion <= MOST_BYTES
            moved: list[TopicPartition] = []
            nothing, starved = is_empty(answers), False
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
                elif answer.high_watermark > before:  # the log has records, but the answer has none of them
                    if nothing:
                        raise lacks_batch(log, answer, before)
                    starved = room
                else:
                    self._check_silence(log, answer)
                if self._positions[log] >= self._active[log].stop:
                    self._finish(log)
            if starved:
                self._portions.starved()
            # Brokers fill an answer in the order of the request: logs that got records move to the end.
            for log in moved:
                if log in self._positions:
                    self._positions[log] = self._positions.pop(log)

    def _refill(self) -> bool:
        longest = max(self._longest(), self._waiting[-1].span if self._waiting else 0)
        most = self._portions.logs(longest)
        while self._waiting and len(self._active) < most:
            # A log's range may be cut into parts: read one part of a log at a time.
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
        """Return how many offsets are left in the longest range."""
        return max((work.stop - self._positions[log] for log, work in self._active.items()), default=0)

    @staticmethod
    def _log(work: Range) -> TopicPartition:
        return TopicPartition(work.topic, work.partition)

    def _finish(self, log: TopicPartition) -> None:
        self._active.pop(log, None)
        self._positions.pop(log, None)
        self._silent_since.pop(log, None)

    def _check_silence(self, log: TopicPartition, answer: FetchedPartition) -> None:
        """Report a loss where a log has lacked records for ``SILENCE_SECONDS`` that the driver had seen: the log was
        truncated or recreated. A shorter silence may be a follower that lags."""
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
    """The endpoint and options that every part of the source needs. Can be pickled."""

    endpoint: KafkaEndpoint
    options: SourceOptions

    async def connect(self, patience: float = 0.0) -> Cluster:
        """Connect to the site; retry for ``patience`` seconds while no broker answers.

        Raises:
            ConnectionLost, RequestTimeout: no broker answered in that time.
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
        """Return the tasks that read the records between two positions."""
        options = self.options
        return [
            LogsPartition(work) for work in pack(ranges(start, stop), options.tasks, keep_whole=options.keep_logs_whole)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition. Runs in the task, with an event loop that advances one record batch at a time.

        Raises:
            DataLossError: records are lost, and option ``failOnDataLoss`` is set.
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

    def settle_losses(self, *losses: Loss, fail: bool = True) -> None:
        """Note lost records in the folder of option ``losses``; do nothing without one.

        Raises:
            DataLossError: nobody has acknowledged a loss, ``fail`` and option ``failOnDataLoss`` are set.
        """
        if self.options.losses:
            settle_losses(self.options.losses, losses, fail=fail and self.options.fail_on_data_loss)

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
        self.settle_losses(*lost)  # before the task, and with it the batch, can succeed


async def record_batches(
    cluster: Cluster,
    work: Iterable[Range],
    collector: Collector,
    *,
    fail_on_data_loss: bool = False,
    on_loss: Callable[[Loss], None] = lambda loss: None,
) -> AsyncIterator[pa.RecordBatch]:
    """Yield the rows of these ranges in the collector's shape. The last batch may be empty.

    Raises:
        DataLossError: records are lost, and ``fail_on_data_loss`` is set.
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
