"""The newest records of logs, read for many logs with few requests: what a restarted bridge must remember."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from edge.batching import Batcher
from edge.patience import FIRST_DELAY, patiently
from fairlead.wire.batch import split
from fairlead.wire.cluster import Cluster
from fairlead.wire.errors import OFFSET_OUT_OF_RANGE, BrokerError, WireError, broker_error
from fairlead.wire.reader import read_log
from fairlead.wire.record import Record, decode_batch
from fairlead.wire.types import TP

log = logging.getLogger(__name__)

NEWEST = 4  # records per log: those tell that a reading is newer than all of its device, as nearly every one is
DEPTH = 256  # where those do not tell; further back is read only when a message asks for it
DEEP = 2_048  # above the number of messages that the MQTT broker may send again
_PARTITION_BYTES = 256 * 1024
_REQUEST_BYTES = 4 << 20
_LOGS_AT_ONCE = 250  # their tails are in memory together
_ENDS_AT_ONCE = 1_000  # the same of so short ones as ``NEWEST``: as many as wait when a bridge has just started


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


class Tails:
    """Reads tails of the logs of one cluster; calls that come together share requests."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._batcher: Batcher[tuple[str, int], LogTail | BrokerError] = Batcher(self._read_many, most=_LOGS_AT_ONCE)
        self._short: Batcher[tuple[str, int], LogTail | BrokerError] = Batcher(self._read_many, most=_ENDS_AT_ONCE)

    async def read(self, topic: str, depth: int = DEPTH) -> LogTail:
        """The newest ``depth`` records of one log.

        Raises:
            BrokerError: the log is not there, or may not be read.
        """
        batcher = self._short if depth <= NEWEST else self._batcher
        answer = await batcher.ask((topic, depth))
        if isinstance(answer, BrokerError):
            raise answer
        return answer

    async def records(self, topic: str, start: int, end: int) -> AsyncIterator[Record]:
        """All records of a range, for looking further back; goes on by itself after retriable errors."""
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
                elif not error.retriable:
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
        await self._short.close()
        await self._batcher.close()

    async def _read_many(self, asked: list[tuple[str, int]]) -> Mapping[tuple[str, int], LogTail | BrokerError]:
        depths: dict[str, int] = {}
        for topic, depth in asked:
            depths[topic] = max(depth, depths.get(topic, 0))
        answers = await patiently(partial(self._read_depths, depths), "reading the tails of logs")
        return {(topic, depth): answers[topic] for topic, depth in asked}

    async def _read_depths(self, depths: Mapping[str, int]) -> Mapping[str, LogTail | BrokerError]:
        wanted = [TP(topic) for topic in depths]
        ends = await self._cluster.end_offsets(wanted)
        starts = await self._cluster.start_offsets(wanted)
        tails: dict[str, LogTail] = {}
        failed: dict[str, BrokerError] = {}
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
                positions, max_bytes=_REQUEST_BYTES, partition_max_bytes=_PARTITION_BYTES
            )
            for tp, answer in answers.items():
                if answer.error_code:
                    error = broker_error(answer.error_code, tp)
                    if not error.retriable:
                        failed[tp.topic] = error
                        del positions[tp]
                    else:
                        await asyncio.sleep(FIRST_DELAY)
                    continue
                tail = tails[tp.topic]
                position = positions[tp]
                for view in split(answer.records):
                    for record in decode_batch(answer.records, view.start, view.stop):
                        if position <= record.offset < tail.end:
                            tail.records.append(record)
                    position = max(position, view.header.base_offset + view.header.last_offset_delta + 1)
                if position >= tail.end:
                    del positions[tp]
                else:
                    positions[tp] = position
        return {**tails, **failed}
