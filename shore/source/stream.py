"""The streaming half of the source, on the driver: where each micro-batch ends, and what there is to say about logs.

Nothing of what this reader remembers is needed to read every record once: a repeated batch follows from its two offsets
alone. What it remembers (sizes, losses told, whom it met) is lost with the driver and learned anew.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.protocol.errors import BrokerError, ConnectionLost, RequestTimeout
from fairlead.kafka.protocol.types import TopicPartition
from shore.losses import Loss
from shore.source.edges import resolve
from shore.source.errors import DataLossError
from shore.source.logs import Ends, find_ends
from shore.source.offsets import (
    Positions,
    StoredPositions,
    admit,
    parse_partition_id,
    restore,
    restore_begin,
    store,
)
from shore.source.options import EARLIEST, Edge
from shore.source.sizes import Sizes, measure, most_behind
from shore.source.task import Task, unreachable

logger = logging.getLogger(__name__)

_EXAMPLES = 5


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches bounded by ``maxRecordsPerTrigger`` and ``maxBytesPerTrigger``, over all logs there are just then.

    A log that appears while the query runs is read from its start; one that vanishes keeps its position, and is read on
    if it comes back with more. The offset of a batch is the position in every log (``shore.source.offsets.store``).

    A site that cannot be reached at a query's first look, or with trigger ``availableNow``, ends the query with
    ``SiteUnreachableError``. One that was reached before makes it wait: triggers find nothing until the site is back,
    and the progress says since when.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        self._target: Positions | None = None  # availableNow: what was there at the beginning
        self._backlog: dict[str, Any] | None = None
        self._sizes = Sizes()
        self._losses = Losses()
        self._left: frozenset[str] | None = None  # logs not read to their end; None: never looked
        self._ids: dict[str, bytes | None] = {}  # of topics, by name
        self._away_since: dt.datetime | None = None

    def initialOffset(self) -> StoredPositions:
        return {}  # always the same: where a new query begins stands in the offset of its first batch

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._task.options.max_records)

    def prepareForTriggerAvailableNow(self) -> None:
        async def look() -> Ends:
            async with await self._task.connect() as cluster:
                return await find_ends(cluster, self._task.options.takes, None)

        try:
            self._target = asyncio.run(look()).ends
        except (ConnectionLost, RequestTimeout) as error:
            raise unreachable(self._task.endpoint, error) from error

    def latestOffset(self, start: StoredPositions, limit: ReadLimit) -> StoredPositions:
        try:
            stop = asyncio.run(self._look(start, limit))
        except (ConnectionLost, RequestTimeout) as error:
            away = unreachable(self._task.endpoint, error)
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
            # A new log whose beginning cannot be told just now waits for the next look.
            ends = {n: end for n, end in found.ends.items() if n in position or n in found.starts or not end}
            begin = {log: first for log, first in found.starts.items() if log not in position}
            if not start and options.starting != Edge(EARLIEST):
                begin = await resolve(cluster, options.starting, ends)
            if self._target is not None:
                ends = {log: min(end, self._target[log]) for log, end in ends.items() if log in self._target}
            stop = await self._admit(cluster, begin | position, ends, limit)
            self._losses.add(await self._overtaken(cluster, position, stop))
            self._losses.add(self._shrunk(position, found.ends))
            self._losses.add(self._replaced(cluster, position))
        self._task.note_loss(*self._losses.tell(fail=options.fail_on_data_loss))
        self._left = frozenset(log for log, end in ends.items() if end > stop[log])
        self._report(position, stop, ends, found)
        if start and restore(store(stop)) == position:
            return start  # the very same, so that there is no batch
        return store(stop, begin, begun=options.starting != Edge(EARLIEST))

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
            self._sizes.learn(await measure(cluster, {log: begin.get(log, 0) for log in most_behind(spans)}))
        return admit(begin, stop, None, limit_bytes=options.max_bytes, size=self._sizes.of)

    async def _overtaken(self, cluster: Cluster, position: Positions, stop: Positions) -> dict[str, Gone]:
        """Records of this batch that retention deleted before they were read. A log that was read to its end a moment
        ago cannot have lost any, so only the others are asked about."""
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
                gone = min(begins, stop[log]) - first
                what = f"records {first} to {first + gone - 1} of {log} were deleted before they were read"
                lost[log] = Gone(first, gone, what)
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
        """Topics that were deleted and made anew since the last look: their records count only from where the old ones
        ended, since a replica that is made anew has the same records at the same offsets."""
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
        self._backlog = {
            "logs": len(ends),
            "behind": sum(max(0, end - stop[log]) for log, end in ends.items()),
            "vanished": len(gone),
            "unreadable": len(found.unreadable),
            "lost": self._losses.records,
            "examples": (self._losses.examples + gone + unreadable)[:_EXAMPLES],
        }

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Shown in the query's progress: what is left after the last batch, which logs could not be read, and how many
        records were lost since the query was started (``lost``)."""
        return self._backlog

    def partitions(self, start: StoredPositions, end: StoredPositions) -> Sequence[InputPartition]:
        return self._task.partitions(restore_begin(end) | restore(start), restore(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._task.read(partition)

    def commit(self, end: StoredPositions) -> None:
        """Nothing to do: the checkpoint is Spark's, and Kafka keeps no position for shore."""

    def stop(self) -> None:
        """Nothing is kept open between calls."""


class Gone(NamedTuple):
    """What is wrong with a log from an offset on: how many records are surely lost, and the sentence about it."""

    first: int
    records: int
    what: str


class Losses:
    """What is gone: said once for each log and trouble, and kept for the progress."""

    def __init__(self) -> None:
        self.records = 0  # surely lost, since the query was started
        self.examples: list[str] = []  # the newest first
        self._told: dict[str, str] = {}  # by log
        self._new: list[str] = []
        self._sure: list[Loss] = []

    def add(self, lost: Mapping[str, Gone]) -> None:
        """Take over what was found, by log."""
        now = dt.datetime.now(dt.UTC)
        for log, (first, count, what) in lost.items():
            self.records += count
            if self._told.get(log) != what:
                self._told[log] = what
                self._new.append(what)
                if count:
                    self._sure.append(Loss(log=log, first=first, last=first + count - 1, why=what, found_at=now))

    def tell(self, *, fail: bool) -> list[Loss]:
        """Say what is new in the log, or raise it; gives what of it is surely lost.

        Raises:
            DataLossError: there is something new, and ``fail``.
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
