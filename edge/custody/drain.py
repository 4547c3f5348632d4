"""Drains strays into the logs that they belong to: carries out the protocol's actions about strays on Kafka.

A container's writer drains its strays before it appends anything newer. Writers that ask at the same time share one
pass through each strays log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Set
from typing import Any, Final, TypeVar

from edge.custody.protocol import (
    Action,
    CopyStrays,
    CustodyProtocol,
    FindStrays,
    RememberLogs,
    Steps,
    StoreStrays,
)
from edge.logwriter import records
from edge.logwriter.container import ContainerWriter
from edge.logwriter.tail_reader import Batcher, TailReader
from edge.logwriter.writer import LogEntry
from edge.messages import MessageId
from edge.metrics import Metrics
from edge.strays.store import KeptReading, Strays, kept_reading, readable
from fairlead.kafka.protocol.errors import BrokerError, CorruptBatch

log = logging.getLogger(__name__)

T = TypeVar("T")

_HELD_BYTES: Final = 8 << 20  # strays in memory at once while they are drained
_SOON: Final = 2.0  # seconds for which one slow log may hold up the others of its pass
_Rest = asyncio.Task[Any]
"""The unfinished work of a log that makes no progress."""


async def run_procedure(steps: Steps[T], carry_out: Callable[[Action], Awaitable[Any]]) -> T:
    """Run a procedure of the protocol and return its result.

    Carries out each action that the procedure yields, and sends it the outcome or throws the error into it.
    """
    outcome: object = None
    error: Exception | None = None
    try:
        while True:
            action = steps.send(outcome) if error is None else steps.throw(error)
            outcome, error = None, None
            try:
                outcome = await carry_out(action)
            except Exception as trouble:
                error = trouble
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        steps.close()


class StrayDrainer:
    """Drains strays for the writers of containers' logs.

    Args:
        go_back: Takes a strays log, an offset and an error: its strays from there on wait, because a batch is damaged.
    """

    def __init__(
        self,
        protocol: CustodyProtocol,
        strays: Strays,
        tails: TailReader,
        metrics: Metrics,
        go_back: Callable[[str, int, CorruptBatch], None],
    ) -> None:
        self._protocol = protocol
        self._strays = strays
        self._tails = tails
        self._metrics = metrics
        self._go_back = go_back
        self._asking: dict[str, ContainerWriter] = {}  # writers that wait for a drain, by log
        self._draining: Batcher[str, _Rest | None] = Batcher(self._drain_all, moment=0.02, most=10_000)
        self._stuck: dict[str, _Rest] = {}  # logs that make no progress in the present pass
        self._rests: set[_Rest] = set()

    async def close(self) -> None:
        await self._draining.close()
        for rest in self._rests:
            rest.cancel()
        await asyncio.gather(*self._rests, return_exceptions=True)

    async def drain(self, writer: ContainerWriter) -> None:
        """Append a log's strays to it. Returns when all strays that were kept before the call are in the log."""
        self._asking[writer.log] = writer
        while (rest := await self._draining.ask(writer.log)) is not None:  # wait, then drain the rest of its strays
            await asyncio.wait((rest,))
            rest.result()

    async def look_again(self, log: str) -> None:
        """Search for the strays of a log again, if a seizure has reduced how far they are drained."""
        await run_procedure(self._protocol.look_again(log), self._carry_out)

    async def _drain_all(self, logs: list[str]) -> Mapping[str, _Rest | None]:
        """Run one pass. Returns, for a log that makes no progress, the task to wait for before draining it again."""
        self._stuck = {}
        await run_procedure(self._protocol.drain(logs), self._carry_out)
        return {log: self._stuck.get(log) for log in logs}

    async def _carry_out(self, action: Action) -> Any:
        match action:
            case StoreStrays():
                return await self._strays.writer.flush()
            case RememberLogs(offsets):
                return await self._for_each({log: self._remember(log, offset) for log, offset in offsets.items()})
            case CopyStrays(topic, end, wanted):
                return await self._copy(topic, end, wanted)
            case FindStrays(log, topic, start, end):
                return await self._find(log, topic, start, end)
            case _:
                raise TypeError(f"{type(action).__name__} is no action of draining, see edge.custody.term_writer")

    async def _remember(self, log: str, offset: int) -> None:
        writer = self._asking[log]
        try:
            await writer.load_from(offset)
        except (BrokerError, CorruptBatch) as error:
            writer.lose(error)  # and go on draining the other logs

    async def _copy(self, topic: str, end: int, wanted: Mapping[str, frozenset[int]]) -> Set[str]:
        stuck: Set[str] = frozenset()
        waiting: dict[str, list[LogEntry[MessageId]]] = {}
        size = 0
        left = {log: len(offsets) for log, offsets in wanted.items()}  # strays not found yet, by log
        position = min(min(offsets) for offsets in wanted.values())
        damage: CorruptBatch | None = None
        try:
            async for record in self._tails.records(topic, position, end):
                position = record.offset + 1
                stray = readable(record)
                if stray is None or stray.log in stuck or record.offset not in wanted.get(stray.log, ()):
                    continue
                left[stray.log] -= 1
                identity = records.identity(stray.payload)
                if identity is None:
                    continue
                entry = LogEntry(records.drained(stray, record, topic), identity, kept=True)
                waiting.setdefault(stray.log, []).append(entry)
                size += len(stray.payload)
                if size > _HELD_BYTES:
                    stuck |= await self._store(waiting)
                    waiting, size = {}, 0
        except CorruptBatch as error:
            damage = error
        stuck |= await self._store({log: entries for log, entries in waiting.items() if log not in stuck})
        if damage is not None:
            self._go_back(topic, position, damage)  # last, so that the procedure sees where the index ends now
        elif missing := sum(count for log, count in left.items() if log not in stuck):
            self._metrics.strays_gone += missing
            log.error("%s: %d strays were deleted from the copy here before they were drained", topic, missing)
        return stuck

    async def _store(self, waiting: Mapping[str, list[LogEntry[MessageId]]]) -> Set[str]:
        return await self._for_each({log: self._asking[log].write(entries) for log, entries in waiting.items()})

    async def _for_each(self, work: Mapping[str, Coroutine[Any, Any, None]]) -> Set[str]:
        """Run one coroutine per log. Returns the logs whose coroutine takes longer than ``_SOON``; it runs on."""
        tasks = {log: asyncio.create_task(coroutine, name=f"draining {log}") for log, coroutine in work.items()}
        if not tasks:
            return frozenset()
        self._rests.update(tasks.values())
        for task in tasks.values():
            task.add_done_callback(self._rests.discard)
        done, _ = await asyncio.wait(tasks.values(), timeout=_SOON)
        stuck = {log: task for log, task in tasks.items() if task not in done}
        self._stuck |= stuck
        for task in done:
            task.result()
        return stuck.keys()

    async def _find(self, log: str, topic: str, start: int, end: int) -> list[KeptReading]:
        found: list[KeptReading] = []
        position = start
        try:
            async for record in self._tails.records(topic, start, end):
                position = record.offset + 1
                stray = readable(record)
                if stray is not None and stray.log == log and (kept := kept_reading(record, stray)) is not None:
                    found.append(kept)
        except CorruptBatch as error:
            self._go_back(topic, position, error)
        return found
