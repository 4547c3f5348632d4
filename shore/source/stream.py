"""The streaming half of the source, on the driver: decide where each micro-batch ends, and report lost or missing logs.

``StreamReader`` needs none of its memory to read every record exactly once: a repeated batch follows from its two
offsets alone. Its memory (sizes, reported losses, topic ids) is lost with the driver and built up again.

**Sizes**, for batches bounded by bytes: Kafka reports offsets, but no bytes. So before each batch the source fetches
a few records from the start positions of the ``SAMPLED_LOGS`` logs with the longest lags, which decide how large the
batch gets. The mean size in each is the log's estimate. Other logs use the mean of their stream, smoothed over batches,
or ``UNSEEN_BYTES`` where nothing of the stream was ever sampled. Estimates stay between ``LEAST_BYTES`` and
``MOST_BYTES``. A batch exceeds ``maxBytesPerTrigger`` where records suddenly grow beyond the sample; the next batch is
right again. A restarted query starts without estimates.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import heapq
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.protocol.batch import HEADER_BYTES, parse_header, split
from fairlead.kafka.protocol.codecs import Codec
from fairlead.kafka.protocol.errors import BrokerError, ConnectionLost, RequestTimeout
from fairlead.kafka.protocol.record import Record, decode_batch
from fairlead.kafka.protocol.types import TopicPartition
from shore.errors import DataLossError, LogReturnedError, site_unreachable
from shore.source.losses import Loss
from shore.source.offsets import (
    Positions,
    StoredPositions,
    admit,
    parse_partition_id,
    partition_id,
    restore,
    restore_begin,
    store,
)
from shore.source.options import EARLIEST, LATEST, Edge
from shore.source.task import Task


@dataclass(frozen=True, slots=True)
class Ends:
    """Where the logs end now. ``starts`` holds the first offsets of logs that were not known before.

    ``unreadable``: logs that exist and could not be asked (no permission, no leader), with the reason.
    """

    ends: Positions
    starts: Positions
    unreadable: dict[str, str] = field(default_factory=dict)


async def find_ends(cluster: Cluster, takes: Callable[[str], bool], known: Collection[str] | None) -> Ends:
    """Return the selected logs that this user can see, and where they end.

    Args:
        takes: Whether a topic is selected.
        known: Logs whose first offset is not asked for. None: no first offset is.
    """
    topics = await cluster.topics(None, refresh=True)
    logs = [
        TopicPartition(topic, partition)
        for topic, info in topics.items()
        if takes(topic)
        for partition in info.partitions
    ]
    ends: Positions = {}
    unreadable: dict[str, str] = {}
    for log, answer in (await cluster.end_offsets(logs) if logs else {}).items():
        if isinstance(answer, BrokerError):
            unreadable[partition_id(*log)] = answer.name
        else:
            ends[partition_id(*log)] = answer
    strange = [log for log, end in ends.items() if end > 0 and log not in known] if known is not None else []
    new = [TopicPartition(*parse_partition_id(log)) for log in strange]
    starts: Positions = {}
    for log, answer in (await cluster.start_offsets(new) if new else {}).items():
        if not isinstance(answer, BrokerError):
            starts[partition_id(*log)] = answer
    return Ends(ends, starts, unreadable)


async def resolve_edge(cluster: Cluster, edge: Edge, ends: Positions) -> Positions:
    """Return an edge's offset in each log of ``ends``, and in each log that the edge names with an offset.

    Raises:
        BrokerError: a log cannot be asked. If it were left out, it would later be a new log, read from its beginning.
        ConnectionLost: no broker can be reached.
    """
    if edge.timestamp_ms is not None:
        found = _all(await cluster.offsets_at(dict.fromkeys(_logs(ends), edge.timestamp_ms)), ends)
        return {log: end if found[log] == LATEST else found[log] for log, end in ends.items()}
    chosen = {log: edge.by_log.get(log, edge.usual) for log in (*ends, *edge.by_log)}
    earliest = [log for log, offset in chosen.items() if offset == EARLIEST and log in ends]
    starts = await start_positions(cluster, earliest)
    return {
        log: offset if offset >= 0 else starts[log] if offset == EARLIEST else ends[log]
        for log, offset in chosen.items()
        if offset >= 0 or log in ends
    }


async def start_positions(cluster: Cluster, logs: Collection[str]) -> Positions:
    """Return the first offset that each log still has. Raises as ``resolve_edge``."""
    return _all(await cluster.start_offsets(_logs(logs)), logs) if logs else {}


def _logs(logs: Collection[str]) -> list[TopicPartition]:
    return [TopicPartition(*parse_partition_id(log)) for log in logs]


def _all(answers: dict[TopicPartition, int | BrokerError], logs: Collection[str]) -> Positions:
    found: Positions = {}
    for log in logs:
        answer = answers[TopicPartition(*parse_partition_id(log))]
        if isinstance(answer, BrokerError):
            raise answer
        found[log] = answer
    return found


SAMPLED_LOGS = 32
SAMPLED_BYTES = 64 << 10  # of each log, as stored
UNSEEN_BYTES = 1_000
LEAST_BYTES = 16
MOST_BYTES = 1 << 20  # of a record in a log: max.message.bytes
_STREAMS = 1_000
_WEIGHT = 0.3  # of a new measurement in a stream's mean


def size_of(record: Record) -> int:
    """Return the bytes of a record's key, value and headers."""
    size = len(record.key or b"") + len(record.value or b"")
    return size + sum(len(name) + len(value or b"") for name, value in record.headers)


class RecordSizes:
    """Estimated bytes of a record, by log. Pure."""

    def __init__(self) -> None:
        self._streams: dict[str, float] = {}
        self._logs: dict[str, float] = {}

    def estimate(self, log: str) -> int:
        """Return the estimated bytes of one record of a log."""
        found = self._logs.get(log)
        if found is None:
            found = self._streams.get(_stream(log), UNSEEN_BYTES)
        return round(min(max(found, LEAST_BYTES), MOST_BYTES))

    def update(self, measured: Mapping[str, float]) -> None:
        """Replace the mean sizes of logs by those just measured, and update the means of their streams."""
        self._logs = dict(measured)
        by_stream: dict[str, list[float]] = {}
        for log, mean in measured.items():
            by_stream.setdefault(_stream(log), []).append(mean)
        for stream, means in by_stream.items():
            mean = sum(means) / len(means)
            before = self._streams.pop(stream, mean)
            self._streams[stream] = before + _WEIGHT * (mean - before)
        while len(self._streams) > _STREAMS:
            self._streams.pop(next(iter(self._streams)))  # the one measured the longest time ago


def most_behind(spans: Mapping[str, int]) -> list[str]:
    """Return the logs to sample: those with the longest lags."""
    return heapq.nsmallest(SAMPLED_LOGS, spans, key=lambda log: (-spans[log], log))


async def measure_sizes(cluster: Cluster, positions: Mapping[str, int]) -> dict[str, float]:
    """Return the mean size of the records at some positions. Logs that returned none are left out.

    Raises:
        ConnectionLost: no broker can be reached.
    """
    wanted = {TopicPartition(*parse_partition_id(log)): position for log, position in positions.items()}
    found: dict[str, float] = {}
    answers = await cluster.fetch(
        wanted, max_wait_ms=0, partition_max_bytes=SAMPLED_BYTES, max_bytes=SAMPLED_LOGS * SAMPLED_BYTES
    )
    for log, answer in answers.items():
        mean = None if answer.error_code else mean_size(answer.records)
        if mean is not None:
            found[partition_id(*log)] = mean
    return found


def mean_size(content: memoryview) -> float | None:
    """Return the mean bytes of a record in fetched batches; None without any.

    A truncated last batch counts by its header, because it may be the first one with data.
    """
    size = count = stop = 0
    for view in split(content):
        stop, header = view.stop, view.header
        count += header.last_offset_delta + 1
        if header.codec is Codec.NONE:
            size += header.size
        elif not header.is_control:
            size += sum(size_of(record) for record in decode_batch(content, view.start, view.stop))
    if len(content) - stop >= HEADER_BYTES:
        header = parse_header(content, stop)
        size += header.size
        count += header.last_offset_delta + 1
    return size / count if count else None


def _stream(log: str) -> str:
    return log.partition(".")[0]


logger = logging.getLogger(__name__)

_EXAMPLES = 5


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches bounded by ``maxRecordsPerTrigger`` and ``maxBytesPerTrigger``, over all logs that exist by then.

    A log that appears while the query runs is read from its start; records that are gone before count as lost, and do
    not end the query. A log that vanishes keeps its position, and is read on if it comes back with more. The offset of
    a batch is the position in every log (``shore.source.offsets.store``).

    A site that cannot be reached when a query starts, or with trigger ``availableNow``, ends the query with
    ``SiteUnreachableError``. Later the query waits: triggers find nothing until the site is back, and the progress says
    since when.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        self._target: Positions | None = None  # with availableNow: where the logs ended when the query began
        self._backlog: dict[str, Any] | None = None
        self._sizes = RecordSizes()
        self._losses = LossReporter()
        self._left: frozenset[str] | None = None  # logs not read to their end; None before the first trigger
        self._ids: dict[str, bytes | None] = {}  # of topics, by name
        self._away_since: dt.datetime | None = None

    def initialOffset(self) -> StoredPositions:
        return {}  # always the same: the offset of the first batch holds where a new query begins

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._task.options.max_records)

    def prepareForTriggerAvailableNow(self) -> None:
        async def look() -> Ends:
            async with await self._task.connect() as cluster:
                return await find_ends(cluster, self._task.options.takes, None)

        try:
            self._target = asyncio.run(look()).ends
        except (ConnectionLost, RequestTimeout) as error:
            raise site_unreachable(self._task.endpoint, error) from error

    def latestOffset(self, start: StoredPositions, limit: ReadLimit) -> StoredPositions:
        try:
            stop = asyncio.run(self._look(start, limit))
        except (ConnectionLost, RequestTimeout) as error:
            away = site_unreachable(self._task.endpoint, error)
            if self._target is not None or self._left is None:
                raise away from error
            return self._wait(start, away.what)
        self._away_since = None
        return stop

    def _wait(self, start: StoredPositions, why: str) -> StoredPositions:
        if self._away_since is None:
            self._away_since = dt.datetime.now(dt.UTC)
            logger.warning("%s; the query waits", why)
        told = f"waiting since {self._away_since:%Y-%m-%d %H:%M:%S} UTC: {why}"
        self._backlog = {**(self._backlog or {}), "unreachable": told, "examples": [told]}
        return start

    async def _look(self, start: StoredPositions, limit: ReadLimit) -> StoredPositions:
        options, position = self._task.options, restore(start)
        async with await self._task.connect() as cluster:
            found = await find_ends(cluster, options.takes, frozenset(position))
            # A new log whose first offset is not known now waits for the next trigger.
            ends = {n: end for n, end in found.ends.items() if n in position or n in found.starts or not end}
            begin = {log: first for log, first in found.starts.items() if log not in position}
            if not start and options.starting != Edge(EARLIEST):
                begin = await resolve_edge(cluster, options.starting, ends)
            self._check_held(found.ends)
            ends = {log: min(end, position.get(log, 0)) if log in options.held else end for log, end in ends.items()}
            if self._target is not None:
                ends = {log: min(end, self._target[log]) for log, end in ends.items() if log in self._target}
            stop = await self._admit(cluster, begin | position, ends, limit)
            self._losses.add(self._begun_late(position, begin))
            unseen = self._losses.report_new(fail=False)
            self._losses.add(await self._overtaken(cluster, position, stop))
            unheld = {log: end for log, end in found.ends.items() if log not in options.held}
            self._losses.add(self._shrunk(position, unheld))
            self._losses.add(self._replaced(cluster, position))
        lost = self._losses.report_new(fail=options.fail_on_data_loss and not options.losses)
        self._task.settle_losses(*unseen, fail=False)
        try:
            self._task.settle_losses(*lost)
        except DataLossError:
            self._losses = LossReporter()  # if Spark asks again, the loss must be reported again
            raise
        self._left = frozenset(log for log, end in ends.items() if end > stop[log])
        self._report(position, stop, ends, found)
        if start and restore(store(stop)) == position:
            return start  # an equal offset makes no batch
        return store(stop, begin, begun=options.starting != Edge(EARLIEST))

    def _check_held(self, ends: Positions) -> None:
        """Raise where a held log has all that was read of it elsewhere: it can be compared now. A bounded query leaves
        that to the next one.

        Raises:
            LogReturnedError: there is such a log.
        """
        held = self._task.options.held.items()
        back = sorted(log for log, stop in held if stop is not None and ends.get(log, 0) >= stop)
        if back and self._target is None:
            raise LogReturnedError(
                f"{back[0]} has arrived at {self._task.endpoint.site} as far as it was read elsewhere",
                hint="the query starts again by itself, and compares the log with the tables first",
                logs=back[:_EXAMPLES],
            )

    async def _admit(self, cluster: Cluster, begin: Positions, ends: Positions, limit: ReadLimit) -> Positions:
        options = self._task.options
        if isinstance(limit, ReadAllAvailable):
            return admit(begin, ends, None)
        most = getattr(limit, "max_rows", options.max_records)
        stop = admit(begin, ends, most)
        if options.max_bytes is None:
            return stop
        spans = {log: end - begin.get(log, 0) for log, end in stop.items() if end > begin.get(log, 0)}
        if spans:
            self._sizes.update(await measure_sizes(cluster, {log: begin.get(log, 0) for log in most_behind(spans)}))
        return admit(begin, stop, None, limit_bytes=options.max_bytes, size=self._sizes.estimate)

    def _begun_late(self, position: Positions, begin: Positions) -> dict[str, Gone]:
        """Find new logs whose first records are gone, in the streams that were read before. They stop no query: nobody
        can tell whether retention deleted the records meanwhile, or whether a copy or a right to read came late."""
        streams = set(map(_stream, position))
        return {
            log: Gone(0, first, f"{log} begins at {first}; the records before were gone before any was read")
            for log, first in begin.items()
            if first > 0 and _stream(log) in streams and log not in self._task.options.held
        }

    async def _overtaken(self, cluster: Cluster, position: Positions, stop: Positions) -> dict[str, Gone]:
        """Find records that retention deleted before they were read, in the logs of this batch. Logs that were read to
        their end at the last trigger cannot have lost any and are not asked."""
        asked = [
            TopicPartition(*parse_partition_id(log))
            for log, first in position.items()
            if stop[log] > first and (self._left is None or log in self._left)
        ]
        lost: dict[str, Gone] = {}
        for answered, begins in (await cluster.start_offsets(asked) if asked else {}).items():
            log = str(answered)
            first = position[log]
            if not isinstance(begins, BrokerError) and begins > first:
                what = f"records {first} to {begins - 1} of {log} were deleted before they were read"
                lost[log] = Gone(first, begins - first, what)
        return lost

    @staticmethod
    def _shrunk(position: Positions, ends: Positions) -> dict[str, Gone]:
        return {
            log: Gone(
                first, 0, f"{log} ends at {ends[log]}, before {first}, up to where it was read: truncated, or made anew"
            )
            for log, first in position.items()
            if log in ends and ends[log] < first
        }

    def _replaced(self, cluster: Cluster, position: Positions) -> dict[str, Gone]:
        """Find topics that were deleted and created again since the last trigger. Reading goes on from the position,
        because a replica that is created again has the same records at the same offsets."""
        topics = {parse_partition_id(log)[0] for log in position}
        ids = {topic: found for topic in topics if (found := cluster.metadata.topic_id(topic)) is not None}
        replaced = {
            topic: Gone(
                position.get(topic, 0),
                0,
                f"{topic} was deleted and made anew; it is read on from offset {position.get(topic, 0)}",
            )
            for topic, found in ids.items()
            if self._ids.get(topic, found) != found
        }
        self._ids |= ids
        return replaced

    def _report(self, position: Positions, stop: Positions, ends: Positions, found: Ends) -> None:
        gone = sorted(log for log in position if log not in found.ends)
        unreadable = [f"{log}: {why}" for log, why in sorted(found.unreadable.items())]
        held = [
            f"{log} {'waits' if stop is not None else 'has other records here and waits'}"
            for log, stop in sorted(self._task.options.held.items())
        ]
        self._backlog = {
            "logs": len(ends),
            "behind": sum(max(0, end - stop[log]) for log, end in ends.items()),
            "vanished": len(gone),
            "unreadable": len(found.unreadable),
            "lost": self._losses.records,
            "examples": (self._losses.examples + held + gone + unreadable)[:_EXAMPLES],
        }

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return what the query's progress shows: what is left after the last batch, which logs could not be read, and
        how many records were lost since the query was started (``lost``)."""
        return self._backlog

    def partitions(self, start: StoredPositions, end: StoredPositions) -> Sequence[InputPartition]:
        return self._task.partitions(restore_begin(end) | restore(start), restore(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._task.read(partition)

    def commit(self, end: StoredPositions) -> None:
        """Do nothing: Spark keeps the checkpoint, and Kafka keeps no position for shore."""

    def stop(self) -> None:
        """Do nothing: no connection stays open between calls."""


class Gone(NamedTuple):
    """A problem of a log from offset ``first`` on: how many records are surely lost, and a sentence about it."""

    first: int
    records: int
    what: str


class LossReporter:
    """Lost records: reports each problem of each log once, and keeps totals and examples for the progress."""

    def __init__(self) -> None:
        self.records = 0  # surely lost, since the query was started
        self.examples: list[str] = []  # the newest first
        self._told: dict[str, str] = {}  # the last reported problem by log
        self._until: dict[str, int] = {}  # by log: losses before this are counted; a long hole takes several batches
        self._new: list[str] = []
        self._sure: list[Loss] = []

    def add(self, lost: Mapping[str, Gone]) -> None:
        """Add the problems that were found, by log."""
        now = dt.datetime.now(dt.UTC)
        for log, (start, records, what) in lost.items():
            end = start + records
            count = max(0, end - max(start, self._until.get(log, 0)))
            self.records += count
            if records:
                self._until[log] = max(end, self._until.get(log, 0))
            if self._told.get(log) != what and (count or not records):
                self._told[log] = what
                self._new.append(what)
                if count:
                    self._sure.append(Loss(log=log, first=start, last=end - 1, why=what, found_at=now))

    def report_new(self, *, fail: bool) -> list[Loss]:
        """Log a warning about new problems, or raise them. Return the losses among them that are sure.

        Raises:
            DataLossError: there are new problems, and ``fail`` is set.
        """
        found, self._new = self._new, []
        sure, self._sure = self._sure, []
        if not found:
            return []
        self.examples = [*found[:_EXAMPLES], *self.examples][:_EXAMPLES]
        more = f" (and {len(found) - 1} more like this)" if len(found) > 1 else ""
        if fail:
            raise DataLossError(
                found[0] + more,
                hint="read on without them by option failOnDataLoss=false",
                found=found[:_EXAMPLES],
            )
        logger.warning("%s%s", found[0], more)
        return sure
