"""Gather the facts of a resolution (``TroubleFacts``). Changes nothing."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
from collections.abc import AsyncIterator, Collection, Mapping
from typing import Any, Final

from fairlead.errors import ConfigurationError, FairleadError, RefusedError, UnknownNameError
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.reader import OffsetRange, extents
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.errors import WireError
from fairlead.kafka.protocol.types import TopicPartition
from replication.batch.batch_diff import conflict
from replication.catalog import Catalog
from replication.changes import PlanChanges
from replication.custody.ledger import Ledger
from replication.groups.client import GroupClient
from replication.operations.resolve.copier import identity, without_producer
from replication.operations.resolve.plan import ResolveSource, TroubleFacts, kept_copies, resolved_by
from replication.operations.resolve.steps import CLIENT, Upstream, groups_of
from replication.states import LogState
from replication.target.log_reader import RawBatch, first_batch, raw_batch
from topologies.model import Link, Topology

SOURCE_TIMEOUT: Final = 10.0


async def gather_facts(
    topology: Topology,
    target: KafkaEndpoint,
    upstream: Upstream,
    snapshot: Mapping[str, Any],
    log: str,
    *,
    running: bool,
) -> tuple[LogState, TroubleFacts]:
    """Return the state of one log at one site, and the facts from which its plan is built.

    Args:
        target: The site, as a user that may read everything there.
        upstream: Returns another site's Kafka, with the user that this site's replicator has there.
        snapshot: The replicator's last snapshot.
        running: Whether it still runs.

    Raises:
        UnknownNameError: no log of this name is in trouble. FairleadError: the site cannot be read.
    """
    site, tp, found = target.site, parse_checked(log), trouble_of(snapshot, target.site, log)
    async with await Cluster.open(target, client_id=CLIENT) as cluster:
        names = await cluster.topics(refresh=True)
        async with _ledger(topology, site, cluster, names) as ledger:
            here = await _extents(cluster, tp.topic)
            paused = next((each for link in topology.links_to(site) if (each := _paused(ledger, link, tp))), None)
            state = LogState(found["state"])
            if state is LogState.PAUSED:
                state = resolved_by(paused) or state
            links = [link for link in topology.links_to(site) if Catalog(topology).may_carry(link, tp.topic)]
            sources = await asyncio.gather(*(_source(link, upstream, tp.topic) for link in links))
            offending, via, resumes = None, "", dict[str, int]()
            if state is LogState.QUARANTINED:
                concerned = [each for each in sources if found["link"] in (None, each.link)]
                end = here[tp.partition].end if tp.partition in here else 0
                offending, via = await offending_batch(concerned, upstream, tp, end, damaged=found["link"] is not None)
                if offending is None and found["link"] is not None:
                    resumes = await goes_on(sources, upstream, tp, end)
            facts = TroubleFacts(
                site=site,
                log=log,
                cause=found["cause"],
                link=found["link"],
                here=here,
                sources=tuple(sources),
                held_here=_held(topology, ledger, site, tp, here),
                paused=paused,
                joined=await _joined(cluster, sources, upstream, tp.topic, here),
                running=running,
                unfinished=await _unfinished(cluster, tp.topic, here, kept_copies(tp.topic, names)),
                offending=offending,
                offending_link=via,
                goes_on=resumes,
                topic_id=names[tp.topic].topic_id.hex() if tp.topic in names else None,
                groups=await groups_of(GroupClient(target), tp.topic, here),
                by=getpass.getuser(),
            )
    return state, facts


def trouble_of(snapshot: Mapping[str, Any], site: str, log: str) -> Mapping[str, Any]:
    """Return the trouble of a log in a site's snapshot.

    Raises:
        UnknownNameError: no log of this name is in trouble; the error lists the logs that are.
        ConfigurationError: no log is.
    """
    found: Mapping[str, Any] | None = snapshot["logs"].get(log)
    if found is None:
        if not snapshot["logs"]:
            raise ConfigurationError(
                f"{log} is in no trouble at {site}, nor is any other log", hint="fairlead status shows logs in trouble"
            )
        raise UnknownNameError(f"log in trouble at {site} named", log, snapshot["logs"])
    return found


def parse_checked(log: str) -> TopicPartition:
    """Parse ``topic`` or ``topic/3``.

    Raises:
        ConfigurationError: the text after the slash is not a number.
    """
    try:
        return TopicPartition.parse(log)
    except ValueError as error:
        raise ConfigurationError(f"{log!r} is no log", hint="TOPIC, or TOPIC/PARTITION") from error


@contextlib.asynccontextmanager
async def _ledger(topology: Topology, site: str, cluster: Cluster, topics: Collection[str]) -> AsyncIterator[Ledger]:
    """Read the site's orders and custody to their current end."""
    ledger = Ledger(topology, site, PlanChanges())
    ledger.follow_topics(topics)
    following = asyncio.ensure_future(ledger.run(cluster))
    ready = asyncio.ensure_future(ledger.ready.wait())
    try:
        await asyncio.wait({following, ready}, return_when=asyncio.FIRST_COMPLETED)
        if following.done():
            following.result()
        unread = ledger.overrides.unread
        if unread is not None:
            raise RefusedError(f"the orders of {site} cannot be read: {unread.cause}", hint=unread.hint, site=site)
        yield ledger
    finally:
        ready.cancel()
        following.cancel()
        await asyncio.gather(following, ready, return_exceptions=True)


def _paused(ledger: Ledger, link: Link, tp: TopicPartition) -> Any:
    return ledger.overrides.paused(link.name, tp.topic.partition(".")[0], str(tp))


def _held(topology: Topology, ledger: Ledger, site: str, tp: TopicPartition, here: Mapping[int, OffsetRange]) -> str:
    release = ledger.overrides.released(str(tp))
    if release is not None:
        return f"{release.kind} ordered by {release.by} at {release.at.isoformat(timespec='seconds')}"
    if topology.fixed_holder(tp.topic) == site:
        return "its name says so"
    limit = Catalog(topology).limit(ledger.custody, site, tp.topic)
    has = here.get(tp.partition)
    if limit is not None and (limit == 0 or (has is not None and has.end >= limit)):
        return "it has custody of it"
    return ""


async def _extents(cluster: Cluster, topic: str) -> dict[int, OffsetRange]:
    """Read a cluster's offsets of a topic, by partition; empty if it has no such topic.

    Raises:
        WireError: the cluster cannot be asked, or a partition cannot be read.
    """
    info = (await cluster.topics([topic], refresh=True)).get(topic)
    logs = [TopicPartition(topic, number) for number in info.partitions] if info else []
    return {tp.partition: extent for tp, extent in (await extents(cluster, logs)).items()}


async def _source(link: Link, upstream: Upstream, topic: str) -> ResolveSource:
    try:
        endpoint = upstream(link.from_)
        async with await Cluster.open(endpoint, client_id=CLIENT, request_timeout=SOURCE_TIMEOUT) as cluster:
            has = await _extents(cluster, topic)
    except FairleadError as error:
        return ResolveSource(link.name, link.from_, None, error.what)
    return ResolveSource(link.name, link.from_, has or None, "" if has else "it has no such topic")


async def offending_batch(
    sources: Collection[ResolveSource], upstream: Upstream, tp: TopicPartition, end: int, *, damaged: bool
) -> tuple[OffsetRange | None, str]:
    """Return the batch that stops a log which ends here at ``end``, and the link of the source that has it.

    Args:
        damaged: A source has damaged it: the batch at the end or right before it. Else the target refuses the whole
            batch at the end. If all sources begin after the end, their first batch counts.
    """
    starts = [has.start for source in sources if (has := (source.has or {}).get(tp.partition)) is not None]
    following = max(end, min(starts, default=end))
    for source in sources:
        has = (source.has or {}).get(tp.partition)
        for offset in (end - 1, following) if damaged else (following,):
            if has is None or not has.start <= offset < has.end:
                continue
            batch = await _batch(source, upstream, tp, offset)
            if batch is not None and batch.extent.start <= offset and batch.is_damaged is damaged:
                return batch.extent, source.link
    return None, ""


async def goes_on(
    sources: Collection[ResolveSource], upstream: Upstream, tp: TopicPartition, end: int
) -> dict[str, int]:
    """Return by link the first offset from ``end`` on of which its source has a batch; sources that cannot be asked, or
    have none, are left out."""
    found: dict[str, int] = {}
    for source in sources:
        has = (source.has or {}).get(tp.partition)
        if has is None or not has.start <= end < has.end:
            continue
        batch = await _batch(source, upstream, tp, end)
        if batch is not None:
            found[source.link] = max(batch.extent.start, end)
    return found


async def _batch(source: ResolveSource, upstream: Upstream, tp: TopicPartition, offset: int) -> RawBatch | None:
    """Return a source's batch at an offset, or the first after it; None if it has none, or cannot be asked."""
    with contextlib.suppress(WireError):
        endpoint = upstream(source.site)
        async with await Cluster.open(endpoint, client_id=CLIENT, request_timeout=SOURCE_TIMEOUT) as cluster:
            return await raw_batch(cluster, tp, offset)
    return None


async def _joined(
    cluster: Cluster,
    sources: Collection[ResolveSource],
    upstream: Upstream,
    topic: str,
    here: Mapping[int, OffsetRange],
) -> frozenset[int]:
    """Return the partitions that start earlier here than at every source and have the oldest source's first batch."""
    found: set[int] = set()
    for number, extent in here.items():
        having = [each for each in sources if each.has and number in each.has]
        if not having:
            continue
        oldest = min(having, key=lambda each: (each.has or {})[number].start)
        start, log = (oldest.has or {})[number].start, TopicPartition(topic, number)
        if not extent.start < start < min(extent.end, (oldest.has or {})[number].end):
            continue
        async with await Cluster.open(upstream(oldest.site), client_id=CLIENT, request_timeout=SOURCE_TIMEOUT) as other:
            theirs = await first_batch(other, log, start)
        ours = await first_batch(cluster, log, start)
        if theirs is None or ours is None or ours.header.base_offset > start or theirs.header.base_offset > start:
            continue
        if not conflict(theirs.data, ours.data):
            found.add(number)
    return frozenset(found)


async def _unfinished(
    cluster: Cluster, topic: str, here: Mapping[int, OffsetRange], copies: Collection[str]
) -> str | None:
    """Return the newest kept copy if it equals the start of the current log; then copying continues at its end."""
    if not here:
        return None
    for kept in list(copies)[:1]:
        there = await _extents(cluster, kept)
        if there.keys() == here.keys() and all(
            [
                await _continues(cluster, TopicPartition(topic, n), TopicPartition(kept, n), each, there[n])
                for n, each in here.items()
            ]
        ):
            return kept
    return None


async def _continues(
    cluster: Cluster, log: TopicPartition, kept: TopicPartition, here: OffsetRange, there: OffsetRange
) -> bool:
    if there.end <= here.start:
        return True  # the copy has only positioning fillers so far
    if there.end > here.end:
        return False
    one, other = await first_batch(cluster, log, there.end - 1), await first_batch(cluster, kept, there.end - 1)
    if one is None or other is None:
        return False
    return (
        one.header.base_offset >= there.end
        or identity(one) == identity(other)
        or bytes(without_producer(one)[8:]) == bytes(other.data[8:])
    )
