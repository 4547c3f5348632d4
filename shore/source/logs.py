"""What the source asks of Kafka: where logs begin and end, and the records between two positions."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from dataclasses import dataclass, field

from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.columnar import Stretch, stretch
from fairlead.kafka.protocol.errors import OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION, BrokerError, broker_error
from fairlead.kafka.protocol.types import FetchedPartition, TopicPartition
from shore.losses import Loss
from shore.source.errors import DataLossError
from shore.source.offsets import Positions, Range, parse_partition_id, partition_id
from shore.source.portions import MOST_BYTES, Portions

logger = logging.getLogger(__name__)

PATIENCE_SECONDS = 15.0  # how long a log may answer with nothing before its records count as gone


@dataclass(frozen=True, slots=True)
class Ends:
    """Where the logs end now. ``starts`` holds the first offsets of logs that were not known before.

    ``unreadable``: logs that are there and could not be asked (no permission, no leader), with the reason.
    """

    ends: Positions
    starts: Positions
    unreadable: dict[str, str] = field(default_factory=dict)


async def find_ends(cluster: Cluster, takes: Callable[[str], bool], known: Collection[str] | None) -> Ends:
    """The logs this user can see and the selection takes, and where they end.

    Args:
        known: Logs whose beginnings are not asked for; None: those of none are.
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
        self._portions = Portions()

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
                    self._portions.learn(found.records, found.end)
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
        if now - self._silent_since.setdefault(log, now) > PATIENCE_SECONDS:
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
