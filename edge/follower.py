"""Following some logs in the site's own Kafka: up to their ends first, then as they grow."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial

from edge.patience import patiently
from fairlead.wire.cluster import Cluster
from fairlead.wire.errors import OFFSET_OUT_OF_RANGE, BrokerError, broker_error
from fairlead.wire.reader import Tail, decode_fetched
from fairlead.wire.record import Record
from fairlead.wire.types import TP

log = logging.getLogger(__name__)

_LOOK_FOR_LOGS = 1.0  # seconds; logs that were not here at start
_AT_ONCE = 1 << 19  # bytes; more would be no faster, and what is read at start would be what the process has at most

Take = Callable[[str, Record, bool], None]
"""Topic, record, and whether it was there at start."""


class Follower:
    """Reads every record of some logs once, markers and fillers included.

    Args:
        topics: Those that are not here yet are looked for while running.
        take: Called with each record, in the order of its log.
    """

    def __init__(
        self,
        cluster: Cluster,
        topics: Sequence[str],
        take: Take,
    ) -> None:
        self._cluster = cluster
        self._topics = tuple(topics)
        self._take = take
        self._positions: dict[TP, int] = {}
        self.starts: dict[str, int] = {}  # first offsets of logs that do not begin at 0 any more

    async def catch_up(self) -> None:
        """Read every log that is here, up to its end now. May be called again after an error: it goes on from there."""
        here = [TP(topic) for topic in await self._cluster.topics(self._topics, refresh=True)]
        for tp, start in (await self._cluster.start_offsets(here)).items():
            if isinstance(start, BrokerError):
                raise start
            if start > 0:
                self.starts[tp.topic] = start
            self._positions.setdefault(tp, start)
        ends = await self._cluster.end_offsets(here)
        for tp in here:
            end = ends[tp]
            if isinstance(end, BrokerError):
                raise end
            await self._read(tp, end)

    async def _read(self, tp: TP, end: int) -> None:
        while self._positions[tp] < end:
            position = self._positions[tp]
            content = (await self._cluster.fetch({tp: position}, partition_max_bytes=_AT_ONCE))[tp]
            if content.error_code:
                raise broker_error(content.error_code, tp)
            records, after = decode_fetched(content, position)
            for record in records:
                if record.offset >= end:
                    break
                self._positions[tp] = record.offset + 1
                self._take(tp.topic, record, True)
            else:
                self._positions[tp] = after

    async def follow(self) -> None:
        """Follow the logs until cancelled."""
        tail = Tail(self._cluster, self._positions)
        what = f"following {', '.join(self._topics[:3])}"
        looking = asyncio.create_task(self._look_for_logs(tail))
        try:
            while True:
                for topic, record in await patiently(partial(self._next, tail), what):
                    self._take(topic, record, False)
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
            await tail.close()

    async def _next(self, tail: Tail) -> list[tuple[str, Record]]:
        try:
            tp, found = await anext(tail)
        except BrokerError as error:
            if error.retriable or error.log is None:
                raise
            start = (await self._cluster.start_offsets([error.log]))[error.log]
            if isinstance(start, BrokerError):
                raise start from error
            if error.code == OFFSET_OUT_OF_RANGE:
                log.error("%s: records before offset %d are gone: %s", error.log, start, error)
            else:
                log.error("%s must be read again from its start: %s", error.log, error)
            tail.add(error.log, start)
            return []
        return [(tp.topic, record) for record in found]

    async def _look_for_logs(self, tail: Tail) -> None:
        while missing := [topic for topic in self._topics if TP(topic) not in self._positions]:
            for topic in await patiently(partial(self._cluster.topics, missing, refresh=True), "looking for logs"):
                self._positions[TP(topic)] = 0
                tail.add(TP(topic), 0)
            await asyncio.sleep(_LOOK_FOR_LOGS)
