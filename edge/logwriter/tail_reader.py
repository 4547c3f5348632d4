"""Reads the newest records of many logs with few requests, for the writers' memories after a restart."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

from edge.logwriter.retry import FIRST_DELAY, retry_transient
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.reader import decode_fetched, is_empty, read_log
from fairlead.kafka.protocol.errors import OFFSET_OUT_OF_RANGE, BrokerError, CorruptBatch, WireError, broker_error
from fairlead.kafka.protocol.record import Record
from fairlead.kafka.protocol.types import TP

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

log = logging.getLogger(__name__)
NEWEST = 4  # records per log; enough for a reading that is its device's newest, as nearly all are
DEPTH = 256  # records per log, where those are not enough
DEEP = 2_048  # above the number of messages that the MQTT broker may send again
_PARTITION_BYTES = 256 * 1024
_REQUEST_BYTES = 4 << 20
_LOGS_AT_ONCE = 250  # per pass; their tails are in memory at the same time
_ENDS_AT_ONCE = 1_000  # the same for tails of ``NEWEST`` records, of which many are wanted after a start
_SOON = 2.0  # seconds for which a log that is not served may hold up the others of its pass


class Batcher(Generic[K, V]):
    """Collects the keys of many callers for a moment and answers them with one call.

    Args:
        answer: Takes up to ``most`` distinct keys and returns a value for each. All callers get any error it raises.
        moment: Seconds to wait for more keys after the first.
    """

    def __init__(
        self, answer: Callable[[list[K]], Awaitable[Mapping[K, V]]], *, moment: float = 0.005, most: int = 500
    ) -> None:
        self._answer = answer
        self._moment = moment
        self._most = most
        self._asked: dict[K, asyncio.Future[V]] = {}
        self._task: asyncio.Task[None] | None = None

    async def ask(self, key: K) -> V:
        """Return the value for one key. Callers that wait for the same key share one answer."""
        future = self._asked.get(key)
        if future is None:
            future = self._asked[key] = asyncio.get_running_loop().create_future()
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return await asyncio.shield(future)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        turn: dict[K, asyncio.Future[V]] = {}
        try:
            await asyncio.sleep(self._moment)
            while self._asked:
                turn = {key: self._asked.pop(key) for key in list(self._asked)[: self._most]}
                try:
                    values = await self._answer(list(turn))
                    for key, future in turn.items():
                        _settle(future, value=values[key])
                except Exception as error:
                    for future in turn.values():
                        _settle(future, error=error)
        finally:
            self._task = None
            for future in (*turn.values(), *self._asked.values()):
                future.cancel()
            self._asked.clear()


def _settle(future: asyncio.Future[V], *, value: V | None = None, error: Exception | None = None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
        future.exception()  # marks it as retrieved: the caller may be gone
    else:
        future.set_result(value)  # type: ignore[arg-type]  # None only where V allows it


@dataclass(slots=True)
class LogTail:
    """The records of a log from offset ``floor`` to its end. ``start`` is the first offset that the log still has."""

    start: int
    floor: int
    end: int
    records: list[Record] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        return self.floor <= self.start


_Answer = LogTail | BrokerError | CorruptBatch


class TailReader:
    """Reads tails of the logs of one cluster. Calls at the same time share requests.

    Reads a log that its broker does not serve apart from the others, so that they do not wait for it.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        soon = partial(self._read_many, seconds=min(_SOON, cluster.request_timeout))
        self._batcher: Batcher[tuple[str, int], _Answer] = Batcher(soon, most=_LOGS_AT_ONCE)
        self._short: Batcher[tuple[str, int], _Answer] = Batcher(soon, most=_ENDS_AT_ONCE)
        self._unserved: Batcher[tuple[str, int], _Answer] = Batcher(self._read_many, most=_LOGS_AT_ONCE)

    async def read(self, topic: str, depth: int = DEPTH) -> LogTail:
        """Return the newest ``depth`` records of one log.

        Raises:
            BrokerError: the log does not exist, or may not be read.
            CorruptBatch: one of these records is in a damaged batch.
        """
        batcher = self._short if depth <= NEWEST else self._batcher
        answer = await batcher.ask((topic, depth))
        # Retention may have deleted records since the log was asked where it begins.
        if isinstance(answer, BrokerError) and (answer.retriable or answer.code == OFFSET_OUT_OF_RANGE):
            answer = await self._unserved.ask((topic, depth))
        if isinstance(answer, WireError):
            raise answer
        return answer

    async def records(self, topic: str, start: int, end: int, *, patient: bool = True) -> AsyncIterator[Record]:
        """Yield all records of a range of offsets. Continues after retriable errors, and skips deleted records.

        Args:
            patient: If False, raise retriable errors of the broker too. Lost connections are retried in any case.
        """
        position = start
        while position < end:
            try:
                async for record in read_log(self._cluster, TP(topic), position, end):
                    position = record.offset + 1
                    yield record
                return
            except WireError as error:
                if isinstance(error, BrokerError) and error.code == OFFSET_OUT_OF_RANGE:
                    position = await self._skip_deleted(topic, position)
                elif not error.retriable or (isinstance(error, BrokerError) and not patient):
                    raise
                else:
                    await asyncio.sleep(FIRST_DELAY)

    async def _skip_deleted(self, topic: str, wanted: int) -> int:
        start = (await self._cluster.start_offsets([TP(topic)]))[TP(topic)]
        if isinstance(start, BrokerError):
            raise start
        log.error("%s: records from offset %d to %d have been deleted by its retention", topic, wanted, start - 1)
        return max(start, wanted + 1)

    async def close(self) -> None:
        for batcher in (self._short, self._batcher, self._unserved):
            await batcher.close()

    async def _read_many(
        self, asked: list[tuple[str, int]], seconds: float | None = None
    ) -> Mapping[tuple[str, int], _Answer]:
        depths: dict[str, int] = {}
        for topic, depth in asked:
            depths[topic] = max(depth, depths.get(topic, 0))
        answers = await retry_transient(partial(self._read_depths, depths, seconds), "reading the tails of logs")
        return {(topic, depth): answers[topic] for topic, depth in asked}

    async def _read_depths(self, depths: Mapping[str, int], seconds: float | None) -> Mapping[str, _Answer]:
        wanted = [TP(topic) for topic in depths]
        ends = await self._cluster.end_offsets(wanted, seconds=seconds)
        starts = await self._cluster.start_offsets(wanted, seconds=seconds)
        tails: dict[str, LogTail] = {}
        failed: dict[str, BrokerError | CorruptBatch] = {}
        positions: dict[TP, int] = {}
        for tp in wanted:
            start, end = starts[tp], ends[tp]
            if isinstance(start, BrokerError):
                failed[tp.topic] = start
                continue
            if isinstance(end, BrokerError):
                failed[tp.topic] = end
                continue
            floor = max(start, end - depths[tp.topic])
            tails[tp.topic] = LogTail(start, floor, end)
            if floor < end:
                positions[tp] = floor
        while positions:
            answers = await self._cluster.fetch(
                positions, max_bytes=_REQUEST_BYTES, partition_max_bytes=_PARTITION_BYTES, seconds=seconds
            )
            left_out = not is_empty(answers)
            for tp, answer in answers.items():
                if answer.error_code:
                    failed[tp.topic] = broker_error(answer.error_code, tp)
                    del positions[tp]
                    continue
                tail = tails[tp.topic]
                position = positions[tp]
                try:
                    records, position = decode_fetched(tp, answer, position, left_out=left_out)
                except CorruptBatch as error:  # the others are whole
                    failed[tp.topic] = error
                    del positions[tp]
                    continue
                tail.records += [record for record in records if record.offset < tail.end]
                if position >= tail.end:
                    del positions[tp]
                else:
                    positions[tp] = position
        return {**tails, **failed}
