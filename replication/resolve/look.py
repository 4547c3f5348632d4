"""Asks the sites what a resolution has to know (``facts``). Changes nothing."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from typing import Any, Final

from fairlead.endpoint import KafkaEndpoint
from fairlead.errors import ConfigurationError, FairleadError, UnknownNameError
from fairlead.wire.batch import verify_crc
from fairlead.wire.cluster import Cluster
from fairlead.wire.errors import WireError
from fairlead.wire.types import TopicPartition
from replication.agreement import conflict
from replication.group_client import GroupClient
from replication.ledger import Ledger
from replication.plan import Catalog
from replication.reading import first_batch
from replication.resolve.committed import groups_of
from replication.resolve.copier import identity, without_producer
from replication.resolve.facts import Extent, Facts, Source, kept_copies, parse_tp
from replication.resolve.plan import resolved_by
from replication.states import LogState
from topologies.model import Link, Topology

CLIENT: Final = "fairlead-resolve"
SOURCE_TIMEOUT: Final = 10.0

Upstream = Callable[[str], KafkaEndpoint]


async def look(
    topology: Topology,
    target: KafkaEndpoint,
    upstream: Upstream,
    snapshot: Mapping[str, Any],
    log: str,
    *,
    running: bool,
) -> tuple[LogState, Facts]:
    """The state of one log at one site, and everything that a plan for it needs.

    Args:
        target: The site, as a user that may read everything there.
        upstream: Gives another site's Kafka as the user that the site's replicator is there.
        snapshot: What the site's replicator wrote last (``Replicator.snapshot``).
        running: Whether it is still at work.

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
            links = [link for link in topology.links_to(site) if Catalog(topology).takes(link, tp.topic)]
            sources = await asyncio.gather(*(_source(link, upstream, tp.topic) for link in links))
            offending, via = None, ""
            if state is LogState.QUARANTINED:
                concerned = [each for each in sources if found["link"] in (None, each.link)]
                offending, via = await _offending(concerned, upstream, tp, here)
            facts = Facts(
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
                groups=await groups_of(GroupClient(target), tp.topic, here),
                by=getpass.getuser(),
            )
    return state, facts


def trouble_of(snapshot: Mapping[str, Any], site: str, log: str) -> Mapping[str, Any]:
    """What a site's replicator says about a log.

    Raises:
        UnknownNameError: no log of this name is in trouble; with those that are.
    """
    found: Mapping[str, Any] | None = snapshot["logs"].get(log)
    if found is None:
        raise UnknownNameError(f"log in trouble at {site} named", log, snapshot["logs"])
    return found


def parse_checked(log: str) -> TopicPartition:
    """``topic`` or ``topic/3``.

    Raises:
        ConfigurationError: what follows the slash is no number.
    """
    try:
        return parse_tp(log)
    except ValueError as error:
        raise ConfigurationError(f"{log!r} is no log", hint="TOPIC, or TOPIC/PARTITION") from error


@contextlib.asynccontextmanager
async def _ledger(topology: Topology, site: str, cluster: Cluster, topics: Collection[str]) -> AsyncIterator[Ledger]:
    """The site's orders and custody, read to their present end."""
    ledger = Ledger(topology, site, on_change=lambda: None)
    ledger.offer(topics)
    following = asyncio.ensure_future(ledger.run(cluster))
    ready = asyncio.ensure_future(ledger.ready.wait())
    try:
        await asyncio.wait({following, ready}, return_when=asyncio.FIRST_COMPLETED)
        if following.done():
            following.result()
        yield ledger
    finally:
        ready.cancel()
        following.cancel()
        await asyncio.gather(following, ready, return_exceptions=True)


def _paused(ledger: Ledger, link: Link, tp: TopicPartition) -> Any:
    return ledger.orders.paused(link.name, tp.topic.partition(".")[0], str(tp))


def _held(topology: Topology, ledger: Ledger, site: str, tp: TopicPartition, here: Mapping[int, Extent]) -> str:
    release = ledger.orders.released(str(tp))
    if release is not None:
        return f"{release.kind} ordered by {release.by} at {release.at.isoformat(timespec='seconds')}"
    if topology.fixed_holder(tp.topic) == site:
        return "its name says so"
    limit = Catalog(topology).limit(ledger.custody, site, tp.topic)
    has = here.get(tp.partition)
    if limit is not None and (limit == 0 or (has is not None and has.stop >= limit)):
        return "it has custody of it"
    return ""


async def _extents(cluster: Cluster, topic: str) -> dict[int, Extent]:
    """What a cluster has of a topic, by partition; nothing when it has no such topic.

    Raises:
        WireError: it cannot be asked, or a partition cannot be read.
    """
    info = (await cluster.topics([topic], refresh=True)).get(topic)
    logs = [TopicPartition(topic, number) for number in info.partitions] if info else []
    starts, ends = await cluster.start_offsets(logs), await cluster.end_offsets(logs)
    found = {}
    for tp in logs:
        start, end = starts[tp], ends[tp]
        if not isinstance(start, int):
            raise start
        if not isinstance(end, int):
            raise end
        found[tp.partition] = Extent(start, end)
    return found


async def _source(link: Link, upstream: Upstream, topic: str) -> Source:
    try:
        endpoint = upstream(link.from_)
        async with await Cluster.open(endpoint, client_id=CLIENT, request_timeout=SOURCE_TIMEOUT) as cluster:
            has = await _extents(cluster, topic)
    except FairleadError as error:
        return Source(link.name, link.from_, None, error.what)
    return Source(link.name, link.from_, has or None, "" if has else "it has no such topic")


async def _offending(
    sources: Collection[Source], upstream: Upstream, tp: TopicPartition, here: Mapping[int, Extent]
) -> tuple[Extent | None, str]:
    """The batch that a source has where the target ends, and over which link it was seen; before it, a damaged one that
    a source has just there."""
    end = here[tp.partition].stop if tp.partition in here else 0
    for source in sources:
        has = (source.has or {}).get(tp.partition)
        for offset in (end - 1, end):
            if has is None or not has.start <= offset < has.stop:
                continue
            with contextlib.suppress(WireError):
                endpoint = upstream(source.site)
                async with await Cluster.open(endpoint, client_id=CLIENT, request_timeout=SOURCE_TIMEOUT) as cluster:
                    batch = await first_batch(cluster, tp, offset)
                if batch is None or batch.header.base_offset > offset:
                    continue
                if offset == end or not verify_crc(batch.data):
                    return Extent(batch.header.base_offset, batch.header.next_offset), source.link
    return None, ""


async def _joined(
    cluster: Cluster, sources: Collection[Source], upstream: Upstream, topic: str, here: Mapping[int, Extent]
) -> frozenset[int]:
    """Partitions that begin earlier here than at every source, where the oldest source's first batch is here, too."""
    found: set[int] = set()
    for number, extent in here.items():
        having = [each for each in sources if each.has and number in each.has]
        if not having:
            continue
        oldest = min(having, key=lambda each: (each.has or {})[number].start)
        start, log = (oldest.has or {})[number].start, TopicPartition(topic, number)
        if not extent.start < start < min(extent.stop, (oldest.has or {})[number].stop):
            continue
        async with await Cluster.open(upstream(oldest.site), client_id=CLIENT, request_timeout=SOURCE_TIMEOUT) as other:
            theirs = await first_batch(other, log, start)
        ours = await first_batch(cluster, log, start)
        if theirs is None or ours is None or ours.header.base_offset > start or theirs.header.base_offset > start:
            continue
        if not conflict(theirs.data, ours.data):
            found.add(number)
    return frozenset(found)


async def _unfinished(cluster: Cluster, topic: str, here: Mapping[int, Extent], copies: Collection[str]) -> str | None:
    """The newest kept copy, if it is the beginning of what is here now: then a copy goes on where it ends."""
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


async def _continues(cluster: Cluster, log: TopicPartition, kept: TopicPartition, here: Extent, there: Extent) -> bool:
    if there.stop <= here.start:
        return True  # nothing but positioning so far
    if there.stop > here.stop:
        return False
    one, other = await first_batch(cluster, log, there.stop - 1), await first_batch(cluster, kept, there.stop - 1)
    if one is None or other is None:
        return False
    return (
        one.header.base_offset >= there.stop
        or identity(one) == identity(other)
        or bytes(without_producer(one)[8:]) == bytes(other.data[8:])
    )
