"""Define the steps that resolve a log in trouble. Each step describes and carries out itself.

Every step may be repeated: after an interruption, the next run finds the pause of the interrupted run and continues.
Nothing is deleted before ``Verify`` has found both versions equal and the log's end unchanged.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from fairlead.errors import FairleadError, RefusedError, UnavailableError
from fairlead.kafka.admin import create_logs, delete_logs
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.reader import OffsetRange
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.types import TopicPartition, partitions_of
from fairlead.plan import Plan, PlanStep, Tell, execute, silent
from replication.groups.client import GroupClient
from replication.groups.rules import Commit
from replication.operations.links.access import ClusterAccess
from replication.operations.resolve.copier import Copier, difference, pack_batch
from replication.overrides import Override, OverrideKind
from replication.states import LogState
from replication.target.log_reader import raw_batch

CLIENT: Final = "fairlead-resolve"
POLL: Final = 0.2
PAUSE_SECONDS: Final = 30.0
STALL_SECONDS: Final = 60.0  # seconds without progress
GROUPS_AT_ONCE: Final = 8  # concurrent requests
_SPARE: Final = 4096
_PASSING: Final = (LogState.UNAVAILABLE, LogState.PAUSED)

Upstream = Callable[[str], KafkaEndpoint]
"""Returns another site's Kafka, with the user that this site's replicator has there."""

Extents = tuple[tuple[int, OffsetRange], ...]
"""Offsets by partition."""


class Committed(NamedTuple):
    """A consumer group's committed offset of one partition, with the consumer's metadata."""

    group: str
    partition: int
    offset: int
    metadata: str = ""


@dataclass(slots=True)
class ResolveRun:
    """The context of one plan's steps.

    Args:
        target: The site, as a user that may do everything there. ``cluster`` is connected to it.
        upstream: Other sites, as the site's replicator sees them.
        access: The site's orders and its replicator's status.
        committed: The groups' offsets that Kafka deleted with the topic.
    """

    target: KafkaEndpoint
    cluster: Cluster
    upstream: Upstream
    access: ClusterAccess
    tell: Tell = silent
    committed: tuple[Committed, ...] = ()

    async def write(self, order: Override) -> int:
        """Append an order to the site's orders; return the offset after it."""
        return await self.access.append(self.target.site, [order])

    def status(self) -> Mapping[str, Any] | None:
        """Return the replicator's newest snapshot; None if it does not run."""
        now = self.access.status(self.target.site)
        return now.snapshot if now is not None and now.running else None

    async def ends(self, topic: str, partitions: Collection[int]) -> dict[int, int]:
        """Return the ends of these partitions at the site; empty if it does not have the topic."""
        if topic not in await self.cluster.topics([topic], refresh=True):
            return {}
        ends = await self.cluster.end_offsets([TopicPartition(topic, number) for number in partitions])
        return {tp.partition: end for tp, end in ends.items() if isinstance(end, int)}

    async def copy(self, source: str, copy: str, extents: Extents) -> None:
        """Copy these offsets of one topic to the same offsets of another topic of the site."""
        copier = Copier(self.cluster, on_progress=_progress(self.tell))
        for number, extent in extents:
            await copier.copy(TopicPartition(source, number), TopicPartition(copy, number), extent)


async def resolve_log(
    plan: Plan[ResolveRun],
    target: KafkaEndpoint,
    upstream: Upstream,
    access: ClusterAccess,
    tell: Tell = silent,
) -> None:
    """Carry out every step of a plan; the arguments are those of ``ResolveRun``.

    Raises:
        RefusedError: the kept copy is not equal, or the log has changed meanwhile; nothing was deleted.
        UnavailableError: a site or the replicator does not answer; run it again.
    """
    async with await Cluster.open(target, client_id=CLIENT) as cluster:
        await execute(plan.steps, ResolveRun(target, cluster, upstream, access, tell))


@dataclass(frozen=True, slots=True)
class PauseLog(PlanStep[ResolveRun]):
    """Order the replicator to stop following the topic; with ``wait``, wait until it has read the order."""

    order: Override
    logs: tuple[str, ...]
    wait: bool

    def describe(self) -> str:
        return f"pause {self.order.log}" + (
            " and wait until the replicator has stopped following it" if self.wait else ""
        )

    async def carry_out(self, context: ResolveRun) -> None:
        position = await context.write(self.order)
        deadline = time.monotonic() + PAUSE_SECONDS
        # A replicator that does not run reads the order when it starts.
        while self.wait and (now := context.status()) is not None and now["orders"] < position:
            if time.monotonic() > deadline:
                raise UnavailableError(
                    f"the replicator of {context.target.site} did not stop following it within {PAUSE_SECONDS:.0f} s",
                    hint="see its log for the reason, then repeat the command",
                )
            await asyncio.sleep(POLL)


@dataclass(frozen=True, slots=True)
class KeepCopy(PlanStep[ResolveRun]):
    """Copy these offsets of each partition to the same offsets of another topic of the same site."""

    topic: str
    kept: str
    extents: Extents

    def describe(self) -> str:
        return f"copy {_ranges(self.extents)} of {self.topic} to {self.kept}, same offsets"

    async def carry_out(self, context: ResolveRun) -> None:
        cluster = context.cluster
        info = (await cluster.topics([self.topic], refresh=True)).get(self.topic)
        count = len(info.partitions) if info else max(number for number, _ in self.extents) + 1
        settings = (await cluster.topic_settings([self.topic], ["max.message.bytes"])).get(self.topic, {})
        await asyncio.to_thread(create_logs, context.target, {self.kept: settings}, partitions={self.kept: count})
        await cluster.wait_writable([*partitions_of(self.kept, count)])
        await context.copy(self.topic, self.kept, self.extents)


@dataclass(frozen=True, slots=True)
class KeepBatch(PlanStep[ResolveRun]):
    """Store the bytes of the source's batch as the value of one record in a topic of this site."""

    log: TopicPartition
    site: str
    link: str
    extent: OffsetRange
    kept: str

    def describe(self) -> str:
        return (
            f"store the bytes of the batch {_range(self.extent)} of {self.log}, as {self.site} has it, in {self.kept}"
        )

    async def carry_out(self, context: ResolveRun) -> None:
        async with await Cluster.open(context.upstream(self.site), client_id=CLIENT) as source:
            batch = await raw_batch(source, self.log, self.extent.start)
        if batch is None or batch.extent.start != self.extent.start or batch.extent.end < self.extent.end:
            raise RefusedError(
                f"the batch at offset {self.extent.start} of {self.log} is not at {self.site} any more",
                hint="fairlead status, then repeat the command",
            )
        packed = pack_batch(batch.data, self.extent, log=self.log, site=self.site)
        settings = {"max.message.bytes": str(len(packed) + _SPARE)}
        await asyncio.to_thread(create_logs, context.target, {self.kept: settings})
        await context.cluster.wait_writable([self.kept])
        kept = TopicPartition(self.kept)
        result = (await context.cluster.produce({kept: packed}))[kept]
        if result.error_code:
            raise UnavailableError(
                f"{self.kept} refused the batch: error {result.error_code}", hint="repeat the command"
            )


@dataclass(frozen=True, slots=True)
class Verify(PlanStep[ResolveRun]):
    """Compare a log and its kept copy batch by batch; refuse if they differ or records were appended meanwhile."""

    topic: str
    kept: str
    extents: Extents

    def describe(self) -> str:
        return f"compare {self.kept} with {self.topic} batch by batch; stop here if anything differs"

    async def carry_out(self, context: ResolveRun) -> None:
        for number, extent in self.extents:
            log, copy = TopicPartition(self.topic, number), TopicPartition(self.kept, number)
            differs = await difference(context.cluster, log, copy, extent)
            if differs:
                raise RefusedError(
                    f"the copy is not equal, so nothing was deleted: {differs}",
                    hint=f"delete {self.kept} and repeat the command",
                )
        ends = await context.cluster.end_offsets([TopicPartition(self.topic, number) for number, _ in self.extents])
        for number, extent in self.extents:
            end = ends[TopicPartition(self.topic, number)]
            if end != extent.end:
                raise RefusedError(
                    f"{self.topic} has changed meanwhile (it ended at {extent.end}, now {end}), so nothing was deleted",
                    hint="another client writes to it; repeat the command, which keeps the new records too",
                )


@dataclass(frozen=True, slots=True)
class DeleteTopic(PlanStep[ResolveRun]):
    """Delete the replica's topic, with all partitions."""

    topic: str

    def describe(self) -> str:
        return f"delete {self.topic}"

    async def carry_out(self, context: ResolveRun) -> None:
        info = (await context.cluster.topics([self.topic], refresh=True)).get(self.topic)
        if info is not None:  # groups may have gone on since the plan was made
            context.committed = await groups_of(GroupClient(context.target), self.topic, info.partitions)
        await asyncio.to_thread(delete_logs, context.target, [self.topic])


@dataclass(frozen=True, slots=True)
class RestoreRecords(PlanStep[ResolveRun]):
    """Create the topic again with offsets of the kept copy that no source has any more, byte for byte."""

    topic: str
    kept: str
    partitions: int
    extents: Extents

    def describe(self) -> str:
        return f"create {self.topic} again with {_ranges(self.extents)}, which no source has any more, from {self.kept}"

    async def carry_out(self, context: ResolveRun) -> None:
        cluster, counts = context.cluster, {self.topic: self.partitions}
        settings = (await cluster.topic_settings([self.kept], ["max.message.bytes"])).get(self.kept, {})
        await asyncio.to_thread(create_logs, context.target, {self.topic: settings}, partitions=counts)
        await cluster.refresh([self.topic])  # the new topic has another id
        await cluster.wait_writable([*partitions_of(self.topic, self.partitions)])
        for number, extent in self.extents:
            await context.copy(self.kept, self.topic, ((number, extent),))
            kept, log = TopicPartition(self.kept, number), TopicPartition(self.topic, number)
            differs = await difference(cluster, kept, log, extent, strict=True)
            if differs:
                raise RefusedError(
                    f"records older than the sources' cannot be restored byte for byte: {differs}",
                    hint=f"they stay in {self.kept}; repeat the command with --shorter",
                )


@dataclass(frozen=True, slots=True)
class WriteOrder(PlanStep[ResolveRun]):
    """Append an order to the site's ``fairlead.orders``."""

    order: Override

    def describe(self) -> str:
        order = self.order
        match order.kind:
            case OverrideKind.SKIP:
                return f"order the replicator to fill offsets {order.start}..{(order.stop or 0) - 1} of {order.log}"
            case OverrideKind.RETRY:
                return f"order the replicator to retry {order.log}"
            case OverrideKind.RESUME:
                return f"end the pause of {order.log}"
            case _:
                return f"order: {order.kind} {order.log}"

    async def carry_out(self, context: ResolveRun) -> None:
        await context.write(self.order)


@dataclass(frozen=True, slots=True)
class WaitFor(PlanStep[ResolveRun]):
    """Wait until the log is mirrored and reaches these ends; give up after ``STALL_SECONDS`` without progress."""

    log: str
    ends: tuple[tuple[int, int], ...]  # (partition, offset)

    def describe(self) -> str:
        upto = ", ".join(f"offset {end}" + (f" in partition {number}" if number else "") for number, end in self.ends)
        return f"wait until {self.log} is mirrored" + (f" up to {upto}" if upto else "")

    async def carry_out(self, context: ResolveRun) -> None:
        topic, began = self.log.partition("/")[0], dt.datetime.now(dt.UTC)
        deadline, seen = time.monotonic() + STALL_SECONDS, -1
        while True:
            now = context.status()
            if now is None:
                raise UnavailableError(f"the replicator of {context.target.site} has stopped", hint="start it again")
            trouble = now["logs"].get(self.log)
            fresh = dt.datetime.fromisoformat(now["at"]) > began
            here = await context.ends(topic, [number for number, _ in self.ends])
            if fresh and trouble is None and all(here.get(number, -1) >= end for number, end in self.ends):
                return
            if fresh and trouble is not None and _is_new(trouble, began) and trouble["state"] not in _PASSING:
                raise FairleadError(
                    f"{self.log} is in trouble again: {trouble['state']}: {trouble['cause']}",
                    hint=trouble["what_to_do"],
                )
            moved = sum(here.values())
            if moved != seen:
                deadline, seen = time.monotonic() + STALL_SECONDS, moved
            if time.monotonic() > deadline:
                raise UnavailableError(
                    f"{self.log} has not moved for {STALL_SECONDS:.0f} s",
                    hint="it continues by itself: fairlead status",
                )
            await asyncio.sleep(POLL)


@dataclass(frozen=True, slots=True)
class RestoreGroups(PlanStep[ResolveRun]):
    """Commit again the offsets that Kafka deleted with the topic, at most the log's end; report refused groups.

    Args:
        committed: The offsets as the plan shows them; those of the moment of the deletion count.
    """

    topic: str
    committed: tuple[Committed, ...]

    def describe(self) -> str:
        groups = sorted({each.group for each in self.committed})
        return f"commit the offsets of {', '.join(groups)} in {self.topic} again"

    async def carry_out(self, context: ResolveRun) -> None:
        committed = context.committed or self.committed
        ends = await context.ends(self.topic, {each.partition for each in committed})
        wanted = [
            each._replace(offset=min(each.offset, ends[each.partition])) for each in committed if each.partition in ends
        ]
        for refused in await restore_groups(GroupClient(context.target), self.topic, wanted):
            context.tell(f"not restored, because it has active members or the commit was refused: group {refused}")


async def groups_of(client: GroupClient, topic: str, partitions: Collection[int]) -> tuple[Committed, ...]:
    """Return the offsets that a site's consumer groups have committed in a topic.

    Raises:
        FairleadError: the site does not answer, or the user may not see its groups.
    """
    limit = asyncio.Semaphore(GROUPS_AT_ONCE)

    async def ask(group: str) -> list[Committed]:
        async with limit:
            found = await client.offsets(group)
        return [
            Committed(group, tp.partition, commit.offset, commit.metadata)
            for tp, commit in found.items()
            if tp.topic == topic and tp.partition in partitions
        ]

    names = (await client.groups()).active
    return tuple(sorted(each for some in await asyncio.gather(*map(ask, names)) for each in some))


async def restore_groups(client: GroupClient, topic: str, committed: Collection[Committed]) -> list[str]:
    """Commit these offsets again where a group has none or a lower one now; return the refused groups, with the
    errors."""
    refused = []
    for group in sorted({each.group for each in committed}):
        commits = {
            TopicPartition(topic, each.partition): Commit(each.offset, each.metadata)
            for each in committed
            if each.group == group
        }
        try:
            there = await client.offsets(group)
            ahead = {tp: each for tp, each in commits.items() if tp not in there or there[tp].offset < each.offset}
            errors = {each.name for each in (await client.commit(group, ahead)).values()}
        except FairleadError as error:
            errors = {error.what}
        if errors:
            refused.append(f"{group}: {', '.join(sorted(errors))}")
    return refused


def _is_new(trouble: Mapping[str, Any], began: dt.datetime) -> bool:
    return dt.datetime.fromisoformat(trouble["since"]) > began


def _progress(tell: Tell) -> Callable[[TopicPartition, int], None]:
    told = time.monotonic()

    def kept_up_to(log: TopicPartition, offset: int) -> None:
        nonlocal told
        if time.monotonic() - told > 1:
            told = time.monotonic()
            tell(f"{log}: kept up to offset {offset}")

    return kept_up_to


def _ranges(extents: Extents) -> str:
    return ", ".join(_range(each) + (f" of partition {number}" if number else "") for number, each in extents)


def _range(extent: OffsetRange) -> str:
    return f"offsets {extent.start}..{extent.end - 1}"
