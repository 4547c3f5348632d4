"""Logs in memory, for tests of the code that writes to them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from edge.logwriter.tail_reader import DEPTH, LogTail
from fairlead.kafka.protocol.record import NewRecord, Record
from fairlead.kafka.protocol.types import Appended, TopicPartition


class Kafka:
    """Logs in memory, as writers and tail readers see them."""

    def __init__(self) -> None:
        self.logs: dict[str, list[Record]] = {}
        self.refuse: dict[str, Exception] = {}
        self.slow: dict[str, asyncio.Event] = {}

    def submit(
        self, log: TopicPartition, records: Sequence[NewRecord], *, term: int | None = None
    ) -> asyncio.Future[Appended]:
        return asyncio.ensure_future(self.append(log, records))

    async def append(self, log: TopicPartition, records: Sequence[NewRecord]) -> Appended:
        await asyncio.sleep(0)
        if log.topic in self.slow:
            await self.slow[log.topic].wait()
        if log.topic in self.refuse:
            raise self.refuse[log.topic]
        stored = self.logs.setdefault(log.topic, [])
        base = len(stored)
        stored += [Record(base + n, r.timestamp_ms, r.key, r.value, r.headers) for n, r in enumerate(records)]
        return Appended(base, len(records))

    async def read(self, topic: str, depth: int = DEPTH) -> LogTail:
        stored = self.logs.get(topic, [])
        floor = max(0, len(stored) - depth)
        return LogTail(0, floor, len(stored), stored[floor:])

    async def records(self, topic: str, start: int, end: int, *, patient: bool = True) -> AsyncIterator[Record]:
        for record in self.logs.get(topic, [])[start:end]:
            yield record
