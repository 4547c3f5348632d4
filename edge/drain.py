"""Bringing strays into their logs when custody comes: in order, and each once.

One pass through the strays log serves every log that asked for it. A stray counts as drained when its log has its
reading, by (device, boot, sequence), so a crash at any point and a second pass repeat nothing. For that the log must be
remembered back to the marker of the present term; what was drained in earlier terms the marker itself tells.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from edge import records
from edge.batching import Batcher
from edge.boxes import BoxLane, Drained
from edge.holdings import Custody, Holdings
from edge.repeats import Verdict
from edge.strays import Strays
from edge.tails import Tails

log = logging.getLogger(__name__)

_HELD_BYTES = 8 << 20  # readings in memory at once


class Drainer:
    """Drains this site's own strays. The lanes that ask wait, and take no new entries meanwhile."""

    def __init__(self, tails: Tails, strays: Strays, holdings: Holdings, *, on_drained: Callable[[int], None]) -> None:
        self._tails = tails
        self._strays = strays
        self._holdings = holdings
        self._on_drained = on_drained
        self._batcher: Batcher[BoxLane, None] = Batcher(self._pass, moment=0.02, most=10_000)

    async def drain(self, lane: BoxLane) -> None:
        """Bring the strays of a log into it; returns when all that had been kept before the call are there."""
        await self._batcher.ask(lane)

    async def close(self) -> None:
        await self._batcher.close()

    async def _pass(self, lanes: list[BoxLane]) -> Mapping[BoxLane, None]:
        await self._strays.lane.flush()
        index = self._strays.index
        wanted = {lane.log: lane for lane in lanes if index.has(lane.log)}
        if wanted:
            end = index.end
            await asyncio.gather(*(self._remember(lane) for lane in wanted.values()))
            await self._copy(wanted, min(min(index.offsets(topic)) for topic in wanted), end)
            for topic in wanted:
                if self._holdings.state(topic) is Custody.HELD:
                    index.drained(topic, upto=end)
        return dict.fromkeys(lanes)

    async def _remember(self, lane: BoxLane) -> None:
        grant = self._holdings.view.grant(lane.log)
        if grant is not None:
            await lane.cover(grant.marker + 1)

    async def _copy(self, wanted: Mapping[str, BoxLane], start: int, end: int) -> None:
        offsets = {topic: frozenset(self._strays.index.offsets(topic)) for topic in wanted}
        waiting: dict[str, list[Drained]] = {}
        size = 0
        async for record in self._tails.records(self._strays.log, start, end):
            stray = records.read_stray(record)
            if stray is None or record.offset not in offsets.get(stray.log, ()):
                continue
            identity = records.identity(stray.payload)
            if identity is None:
                continue
            lane = wanted[stray.log]
            late = lane.is_late(identity) and lane.memory.check(identity) is not Verdict.REPEAT
            entry = Drained(records.drained(stray, record, self._strays.log, late=late), identity)
            waiting.setdefault(stray.log, []).append(entry)
            size += len(stray.payload)
            if size > _HELD_BYTES:
                await self._store(wanted, waiting)
                waiting, size = {}, 0
        await self._store(wanted, waiting)

    async def _store(self, wanted: Mapping[str, BoxLane], waiting: Mapping[str, list[Drained]]) -> None:
        counts = await asyncio.gather(*(self._write(wanted[topic], entries) for topic, entries in waiting.items()))
        self._on_drained(sum(counts))

    async def _write(self, lane: BoxLane, entries: list[Drained]) -> int:
        if self._holdings.state(lane.log) is not Custody.HELD:
            return 0  # an earlier part was refused; what is left stays a stray
        return await lane.write(entries)
