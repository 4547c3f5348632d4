"""Bringing strays into their logs when custody comes: in order, and each once.

One pass through each strays log serves every log that asked for it: this site's own first, then those of the other
sites that are copied here. A stray counts as drained when its log has its reading, by (device, boot, sequence), so a
crash at any point and a second pass repeat nothing. For that the log must be remembered back to the marker of the
present term (or further, after a seizure); what was drained before that the marker itself tells.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from edge import records
from edge.batching import Batcher
from edge.boxes import BoxLane, Drained
from edge.holdings import Custody, Holdings
from edge.straybook import StrayBook
from edge.strays import StrayIndex, readable
from edge.tails import Tails
from fairlead.wire.record import Record

log = logging.getLogger(__name__)

_HELD_BYTES = 8 << 20  # readings in memory at once


class Drainer:
    """Drains strays. The lanes that ask wait, and take no new entries meanwhile."""

    def __init__(self, tails: Tails, book: StrayBook, holdings: Holdings, *, on_drained: Callable[[int], None]) -> None:
        self._tails = tails
        self._book = book
        self._holdings = holdings
        self._on_drained = on_drained
        self._batcher: Batcher[BoxLane, None] = Batcher(self._pass, moment=0.02, most=10_000)

    async def drain(self, lane: BoxLane) -> None:
        """Bring the strays of a log into it; returns when all that had been kept before the call are there."""
        await self._batcher.ask(lane)

    async def look_again(self, log: str) -> None:
        """Find every stray of a log anew: a seizure has put back how far they are drained."""
        for topic, index in self._book.indexes():
            found: list[Record] = []
            position = self._book.floor(log, topic)
            while position < (end := index.end):  # it grows while it is read; then the book knows the rest already
                async for record in self._tails.records(topic, position, end):
                    stray = readable(record)
                    if stray is not None and stray.log == log:
                        found.append(record)
                position = end
            self._book.look_again(log, topic, found)

    async def close(self) -> None:
        await self._batcher.close()

    async def _pass(self, lanes: list[BoxLane]) -> Mapping[BoxLane, None]:
        await self._book.own.lane.flush()
        for topic, index in self._book.indexes():
            wanted = {lane.log: lane for lane in lanes if index.has(lane.log)}
            if wanted:
                await self._drain(topic, index, wanted)
        return dict.fromkeys(lanes)

    async def _drain(self, topic: str, index: StrayIndex, wanted: Mapping[str, BoxLane]) -> None:
        end = index.end
        await asyncio.gather(*(self._remember(lane) for lane in wanted.values()))
        await self._copy(topic, index, wanted, end)
        for each in wanted:
            if self._holdings.state(each) is Custody.HELD:
                index.drained(each, upto=end)

    async def _remember(self, lane: BoxLane) -> None:
        grant = self._holdings.view.grant(lane.log)
        if grant is not None:
            await lane.cover(grant.drained_since + 1)

    async def _copy(self, topic: str, index: StrayIndex, wanted: Mapping[str, BoxLane], end: int) -> None:
        offsets = {each: frozenset(index.offsets(each)) for each in wanted}
        start = min(min(each) for each in offsets.values())
        waiting: dict[str, list[Drained]] = {}
        size = 0
        async for record in self._tails.records(topic, start, end):
            stray = readable(record)
            if stray is None or record.offset not in offsets.get(stray.log, ()):
                continue
            identity = records.identity(stray.payload)
            if identity is None:
                continue
            entry = Drained(records.drained(stray, record, topic), identity)
            waiting.setdefault(stray.log, []).append(entry)
            size += len(stray.payload)
            if size > _HELD_BYTES:
                await self._store(wanted, waiting)
                waiting, size = {}, 0
        await self._store(wanted, waiting)

    async def _store(self, wanted: Mapping[str, BoxLane], waiting: Mapping[str, list[Drained]]) -> None:
        counts = await asyncio.gather(*(self._write(wanted[each], entries) for each, entries in waiting.items()))
        self._on_drained(sum(counts))

    async def _write(self, lane: BoxLane, entries: list[Drained]) -> int:
        if self._holdings.state(lane.log) is not Custody.HELD:
            return 0  # an earlier part was refused; what is left stays a stray
        return await lane.write(entries)
