"""Carries out a plan, step by step, in the order in which ``explain`` tells it.

Every step may be repeated: when a run is interrupted, the next one finds the log paused by it and goes on. Nothing is
deleted before ``Verify`` has found both versions equal and the log still where the plan saw it.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final, assert_never

from fairlead.admin import create_logs, delete_logs
from fairlead.endpoint import KafkaEndpoint
from fairlead.errors import FairleadError, RefusedError, UnavailableError
from fairlead.wire.cluster import Cluster
from fairlead.wire.types import TopicPartition
from replication.group_client import GroupClient
from replication.orders import Order
from replication.reading import first_batch
from replication.resolve.committed import restore_groups
from replication.resolve.copier import Copier, difference, pack_batch
from replication.resolve.explain import explain
from replication.resolve.facts import Committed, Extent
from replication.resolve.look import CLIENT, Upstream
from replication.resolve.plan import Plan
from replication.resolve.steps import (
    DeleteTopic,
    GiveBack,
    KeepBatch,
    KeepCopy,
    PauseLog,
    RestoreGroups,
    Step,
    Verify,
    WaitFor,
    WriteOrder,
)
from replication.states import LogState

POLL: Final = 0.2
PAUSE_SECONDS: Final = 30.0
STALL_SECONDS: Final = 60.0  # without any progress
_SPARE: Final = 4096

Say = Callable[[str], None]
Status = Callable[[], Mapping[str, Any] | None]
"""What the replicator says of itself now; None when it does not run."""


class Executor:
    """Carries out plans at one site.

    Args:
        target: The site, as a user that may do everything there.
        upstream: Other sites, as the site's replicator sees them.
        write: Appends an order to the site's orders; gives the offset after it.
        status: The replicator's newest snapshot.
        say: Told what is being done.
    """

    def __init__(
        self,
        target: KafkaEndpoint,
        upstream: Upstream,
        *,
        write: Callable[[Order], Awaitable[int]],
        status: Status,
        say: Say = lambda _: None,
    ) -> None:
        self._target = target
        self._upstream = upstream
        self._write = write
        self._status = status
        self._say = say

    async def run(self, plan: Plan) -> None:
        """Carry out every step.

        Raises:
            RefusedError: the kept copy is not equal, or the log has changed meanwhile; nothing was deleted then.
            UnavailableError: a site or the replicator does not answer; run it again.
        """
        async with await Cluster.open(self._target, client_id=CLIENT) as cluster:
            for step in plan.steps:
                self._say(explain(step))
                await self._do(cluster, step)

    async def _do(self, cluster: Cluster, step: Step) -> None:
        match step:
            case PauseLog(order, wait=wait):
                position = await self._write(order)
                if wait:
                    await self._until(lambda now: now["orders"] >= position, PAUSE_SECONDS, "to leave it alone")
            case KeepCopy(topic, kept, extents):
                await self._keep(cluster, topic, kept, extents)
            case KeepBatch():
                await self._keep_batch(cluster, step)
            case Verify(topic, kept, extents):
                await self._verify(cluster, topic, kept, extents)
            case DeleteTopic(topic):
                await asyncio.to_thread(delete_logs, self._target, [topic])
            case GiveBack():
                await self._give_back(cluster, step)
            case WriteOrder(order):
                await self._write(order)
            case WaitFor(log, ends):
                await self._wait(cluster, log, ends)
            case RestoreGroups(topic, committed):
                await self._restore(cluster, topic, committed)
            case _:
                assert_never(step)

    # ---- keeping

    async def _keep(self, cluster: Cluster, topic: str, kept: str, extents: tuple[tuple[int, Extent], ...]) -> None:
        info = (await cluster.topics([topic], refresh=True)).get(topic)
        count = len(info.partitions) if info else max(number for number, _ in extents) + 1
        settings = (await cluster.topic_settings([topic], ["max.message.bytes"])).get(topic, {})
        await asyncio.to_thread(create_logs, self._target, {kept: settings}, partitions={kept: count})
        logs = [TopicPartition(kept, number) for number in range(count)]
        await cluster.wait_writable(logs)
        copier = Copier(cluster, on_progress=_progress(self._say))
        for number, extent in extents:
            await copier.copy(TopicPartition(topic, number), TopicPartition(kept, number), extent)

    async def _keep_batch(self, cluster: Cluster, step: KeepBatch) -> None:
        async with await Cluster.open(self._upstream(step.site), client_id=CLIENT) as source:
            batch = await first_batch(source, step.log, step.extent.start)
        if batch is None or (batch.header.base_offset, batch.header.next_offset) != step.extent:
            raise RefusedError(
                f"the batch at offset {step.extent.start} of {step.log} is not at {step.site} any more",
                hint="fairlead status, and run it again",
            )
        packed = pack_batch(batch, log=step.log, site=step.site)
        settings = {"max.message.bytes": str(len(packed) + _SPARE)}
        await asyncio.to_thread(create_logs, self._target, {step.kept: settings})
        await cluster.wait_writable([step.kept])
        result = (await cluster.produce({TopicPartition(step.kept): packed}))[TopicPartition(step.kept)]
        if result.error_code:
            raise UnavailableError(
                f"{step.kept} did not take the batch: error {result.error_code}", hint="run it again"
            )

    async def _verify(self, cluster: Cluster, topic: str, kept: str, extents: tuple[tuple[int, Extent], ...]) -> None:
        for number, extent in extents:
            log, copy = TopicPartition(topic, number), TopicPartition(kept, number)
            differs = await difference(cluster, log, copy, extent)
            if differs:
                raise RefusedError(
                    f"the copy is not equal, so nothing was deleted: {differs}", hint=f"delete {kept} and run it again"
                )
        ends = await cluster.end_offsets([TopicPartition(topic, number) for number, _ in extents])
        for number, extent in extents:
            end = ends[TopicPartition(topic, number)]
            if end != extent.stop:
                raise RefusedError(
                    f"{topic} has changed meanwhile (it ended at {extent.stop}, now {end}), so nothing was deleted",
                    hint="somebody writes to it; run it again, and the rest is kept as well",
                )

    async def _give_back(self, cluster: Cluster, step: GiveBack) -> None:
        settings = (await cluster.topic_settings([step.kept], ["max.message.bytes"])).get(step.kept, {})
        partitions = {step.topic: step.partitions}
        await asyncio.to_thread(create_logs, self._target, {step.topic: settings}, partitions=partitions)
        await cluster.refresh([step.topic])  # it has another id now
        await cluster.wait_writable([TopicPartition(step.topic, number) for number in range(step.partitions)])
        copier = Copier(cluster, on_progress=_progress(self._say))
        for number, extent in step.extents:
            kept, log = TopicPartition(step.kept, number), TopicPartition(step.topic, number)
            await copier.copy(kept, log, extent)
            differs = await difference(cluster, kept, log, extent, strict=True)
            if differs:
                raise RefusedError(
                    f"what is older than the sources cannot be given back byte for byte: {differs}",
                    hint=f"it stays in {step.kept}; run this again with --shorter",
                )

    async def _restore(self, cluster: Cluster, topic: str, committed: Collection[Committed]) -> None:
        ends = await self._ends(cluster, topic, {each.partition for each in committed})
        wanted = [
            each._replace(offset=min(each.offset, ends[each.partition])) for each in committed if each.partition in ends
        ]
        for refused in await restore_groups(GroupClient(self._target), topic, wanted):
            self._say(f"not restored, since its members are at work or it is not permitted: group {refused}")

    # ---- waiting

    async def _until(self, condition: Callable[[Mapping[str, Any]], bool], seconds: float, what: str) -> None:
        deadline = time.monotonic() + seconds
        while True:
            now = self._status()
            if now is None or condition(now):
                return  # one that has stopped leaves everything alone, and reads the order when it starts
            if time.monotonic() > deadline:
                raise UnavailableError(
                    f"the replicator of {self._target.site} did not come {what} within {seconds:.0f} s",
                    hint="its log says why; run this again",
                )
            await asyncio.sleep(POLL)

    async def _wait(self, cluster: Cluster, log: str, ends: tuple[tuple[int, int], ...]) -> None:
        """Until the log is out of trouble and has what the sources had; as long as anything moves."""
        topic, began = log.partition("/")[0], dt.datetime.now(dt.UTC)
        deadline, seen = time.monotonic() + STALL_SECONDS, -1
        while True:
            now = self._status()
            trouble = (now or {"logs": {}})["logs"].get(log)
            fresh = now is not None and dt.datetime.fromisoformat(now["at"]) > began
            if now is None:
                raise UnavailableError(f"the replicator of {self._target.site} has stopped", hint="start it again")
            here = await self._ends(cluster, topic, [number for number, _ in ends])
            if fresh and trouble is None and all(here.get(number, -1) >= end for number, end in ends):
                return
            if fresh and trouble is not None and _is_new(trouble, began) and trouble["state"] not in _PASSING:
                raise FairleadError(
                    f"{log} is in trouble again: {trouble['state']}: {trouble['cause']}", hint=trouble["what_to_do"]
                )
            moved = sum(here.values())
            if moved != seen:
                deadline, seen = time.monotonic() + STALL_SECONDS, moved
            if time.monotonic() > deadline:
                raise UnavailableError(
                    f"{log} has not moved for {STALL_SECONDS:.0f} s", hint="it goes on by itself: fairlead status"
                )
            await asyncio.sleep(POLL)

    async def _ends(self, cluster: Cluster, topic: str, partitions: Collection[int]) -> dict[int, int]:
        if topic not in await cluster.topics([topic], refresh=True):
            return {}
        ends = await cluster.end_offsets([TopicPartition(topic, number) for number in partitions])
        return {tp.partition: end for tp, end in ends.items() if isinstance(end, int)}


_PASSING: Final = (LogState.UNAVAILABLE, LogState.PAUSED)


def _is_new(trouble: Mapping[str, Any], began: dt.datetime) -> bool:
    return dt.datetime.fromisoformat(trouble["since"]) > began


def _progress(say: Say) -> Callable[[TopicPartition, int], None]:
    told = time.monotonic()

    def tell(log: TopicPartition, offset: int) -> None:
        nonlocal told
        if time.monotonic() - told > 1:
            told = time.monotonic()
            say(f"{log}: kept up to offset {offset}")

    return tell
