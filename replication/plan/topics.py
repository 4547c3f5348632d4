"""Create the topics of replicas, and copy settings and partition counts from the source.

Settings of cleanup and batch size are copied. Each site keeps its own retention, replicas and in-sync replicas. Two
settings are fixed, because equal copies need them: replicas have ``compression.type=producer`` and
``message.timestamp.type=CreateTime`` (``fairlead.kafka.admin.LOG_DEFAULTS``).

A KRaft controller refuses more than 10,000 records in one operation, and a topic with our settings takes up to ten. So
topics are created in parts; one request for 9,000 topics fails as a whole (measured on 4.3.1).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fairlead.errors import FairleadError
from fairlead.kafka.admin import LOG_DEFAULTS, alter_topics, create_logs, grow_topics, raise_unavailable
from fairlead.kafka.client.cluster import Cluster, until_served
from fairlead.kafka.protocol.types import TopicPartition, partitions_of
from replication.link.source_link import SourceLink
from topologies.model import Link

log = logging.getLogger(__name__)

FOLLOWED: Final = (
    "cleanup.policy",
    "delete.retention.ms",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
)
COMPARE_AT_ONCE: Final = 500
COMPARE_LEAST_AT_ONCE: Final = 5
BYTES_PER_TOPIC: Final = 450  # both ways
COMPARE_PAUSE: Final = (30.0, 1800.0)  # seconds between two comparisons
COMPARE_PAUSE_PER_TOPIC: Final = 0.18  # with its bytes: 2.5 kB/s at most
THIN_SHARE: Final = 0.02  # of a link's rate that comparing may take

Settings = Mapping[str, str]


def followed_settings(source: Settings) -> dict[str, str]:
    """Return the settings that a replica copies from its source."""
    return {name: source[name] for name in FOLLOWED if name in source}


def setting_changes(source: Settings, target: Settings) -> dict[str, str]:
    """Return the settings to change at the target. ``max.message.bytes`` is only raised, since the target may have
    larger batches already."""
    out = {}
    for name, value in followed_settings(source).items():
        there = target.get(name)
        if there == value:
            continue
        if name == "max.message.bytes" and there is not None and int(there) >= int(value):
            continue
        out[name] = value
    return out


def comparing_pace(topics: int, rate: int | None) -> tuple[int, float]:
    """Return how many of ``topics`` to compare at a time, and how many seconds to pause after that."""
    if rate is not None:
        step = max(COMPARE_LEAST_AT_ONCE, rate // BYTES_PER_TOPIC)
        return step, step * BYTES_PER_TOPIC / (rate * THIN_SHARE)
    return max(topics, 1), min(max(topics * COMPARE_PAUSE_PER_TOPIC, COMPARE_PAUSE[0]), COMPARE_PAUSE[1])


def _at_once(cluster: Cluster) -> int:
    """Topics per request; the settings of one take as much as the offsets of eight logs."""
    return max(COMPARE_LEAST_AT_ONCE, min(COMPARE_AT_ONCE, cluster.logs_per_request // 8))


async def read_settings(cluster: Cluster, topics: list[str]) -> dict[str, dict[str, str]]:
    """Return the copied settings of topics at a cluster; topics that may not be described are left out."""
    found: dict[str, dict[str, str]] = {}
    step = _at_once(cluster)
    for start in range(0, len(topics), step):
        found |= await cluster.topic_settings(topics[start : start + step], FOLLOWED)
    return found


async def copy_settings(source: Cluster, target: Cluster, topics: list[str]) -> int:
    """Copy settings from the source to its replicas; return how many topics were changed.

    Raises:
        FairleadError: a cluster cannot be asked, or refuses the change.
    """
    different: dict[str, dict[str, str]] = {}
    for start in range(0, len(topics), COMPARE_AT_ONCE):
        some = topics[start : start + COMPARE_AT_ONCE]
        there, here = await read_settings(source, some), await read_settings(target, some)
        for topic in there.keys() & here.keys():
            if change := setting_changes(there[topic], here[topic]):
                different[topic] = change
    if different:
        await asyncio.to_thread(alter_topics, target.endpoint, different)
        log.info("%s: settings of %d topics follow %s", target.endpoint.site, len(different), source.endpoint.site)
    return len(different)


AT_ONCE: Final = 250


@dataclass(frozen=True, slots=True)
class TopicModel:
    """A topic to create: its settings' source (None for the defaults of logs) and its number of partitions."""

    source: Cluster | None
    partitions: int


@dataclass(frozen=True, slots=True)
class CreatedPart:
    """Topics of a part that the target serves now, with their numbers of partitions; those of them that were created
    for it; and topics that the target refuses to create or to make larger, or does not serve."""

    partitions: Mapping[str, int]
    created: Collection[str]
    refused: Mapping[str, FairleadError]


def topic_models(
    logs: Collection[TopicPartition],
    carrying: Mapping[TopicPartition, Sequence[SourceLink]],
    shapes: Callable[[Link, str], bool],
) -> dict[str, TopicModel]:
    """Return the topics to create for new replicas; a log whose source has just gone is left out. ``shapes`` returns
    whether settings and partitions of a topic are copied over a link."""
    wanted: dict[str, TopicModel] = {}
    for tp in logs:
        if carrying[tp][0].cluster is None:
            continue
        shaping = [source_link for source_link in carrying[tp] if shapes(source_link.link, tp.topic)]
        count = max((source_link.logs.topics.get(tp.topic, 1) for source_link in shaping), default=1)
        wanted[tp.topic] = TopicModel(shaping[0].cluster if shaping else None, max(count, tp.partition + 1))
    return wanted


async def create_topics(
    cluster: Cluster, parts: Iterable[Mapping[str, TopicModel]], here: Mapping[str, int]
) -> AsyncGenerator[CreatedPart, None]:
    """Create topics part by part, except those that are ``here`` (with their number of partitions), which may grow.

    Yields topics of a part as soon as the target serves them, and creates the next part meanwhile: a broker opens logs
    one after the other, which takes longest, so it should never wait. Close the iterator to stop early. A topic that
    the target refuses, or for which it has no leader, stops no other.

    Raises:
        FairleadError: a cluster cannot be reached. Topics that were created stay.
    """
    left = iter(parts)
    part = next(left, None)
    like = next(iter(here), None)
    making = asyncio.ensure_future(_create(cluster, part, here, like)) if part is not None else None
    try:
        while part is not None and making is not None:
            made = await making
            like = like or next(iter(made.partitions), None)
            following = next(left, None)
            making = asyncio.ensure_future(_create(cluster, following, here, like)) if following is not None else None
            async for served in _served(cluster, part, made):
                yield served
            part = following
    finally:
        if making is not None:
            making.cancel()
            await asyncio.gather(making, return_exceptions=True)


async def _served(cluster: Cluster, wanted: Mapping[str, TopicModel], made: CreatedPart) -> AsyncIterator[CreatedPart]:
    """Yield topics that were created as the target serves them, at last those that it does not serve, as refused."""
    logs = [tp for topic in made.partitions for tp in partitions_of(topic, wanted[topic].partitions)]
    refused = made.refused
    async for asked, late, is_last in until_served(cluster, logs):
        waiting = {tp.topic: error for tp, error in late.items()}
        served = {tp.topic for tp in asked} - waiting.keys()
        if served or is_last or refused:
            yield CreatedPart(
                {topic: count for topic, count in made.partitions.items() if topic in served},
                served.intersection(made.created),
                {**refused, **waiting} if is_last else refused,
            )
        refused = {}


async def _create(
    cluster: Cluster, wanted: Mapping[str, TopicModel], here: Mapping[str, int], like: str | None
) -> CreatedPart:
    """``like``: a topic of the target whose settings show the defaults of a new one."""
    endpoint = cluster.endpoint
    new: dict[str, dict[str, str]] = {topic: {} for topic in wanted if topic not in here}
    for source in {id(model.source): model.source for model in wanted.values() if model.source is not None}.values():
        topics = [topic for topic in new if wanted[topic].source is source]
        there = await read_settings(source, topics)
        new |= {topic: followed_settings(there.get(topic, {})) for topic in topics}
    counts = {topic: model.partitions for topic, model in wanted.items()}
    created: set[str] = set()
    refused: dict[str, FairleadError] = {}
    if new:
        implied = await cluster.topic_defaults(like, (*LOG_DEFAULTS, *FOLLOWED)) if like is not None else {}
        created = await asyncio.to_thread(
            create_logs, endpoint, new, partitions=counts, implied=implied, failures=refused
        )
        raise_unavailable(refused)
        log.info("%d topics created at %s", len(created), endpoint.site)
    known = {topic: here[topic] for topic in wanted if topic in here}
    if others := new.keys() - created - refused.keys():  # they existed, unknown to the plan
        found = await cluster.topics(others, refresh=True)
        known |= {topic: len(info.partitions) for topic, info in found.items()}
    grown = {topic: count for topic, count in counts.items() if known.get(topic, count) < count}
    if grown:
        await asyncio.to_thread(grow_topics, endpoint, grown, failures=refused)
        raise_unavailable(refused)
        log.info("%d topics at %s have more partitions now", len(grown.keys() - refused.keys()), endpoint.site)
    partitions = {topic: max(count, known.get(topic, 0)) for topic, count in counts.items() if topic not in refused}
    return CreatedPart(partitions, created, refused)
