"""Creates the topics of replicas, and lets their settings and partition counts follow the source's.

What a topic is follows: how it is cleaned up and how large a batch may be. What a site does with it stays the site's
own: retention, replicas, in-sync replicas. Two settings are never copied because equality rests on them: replicas have
``compression.type=producer`` and ``message.timestamp.type=CreateTime`` (``fairlead.kafka.admin.LOG_DEFAULTS``).

Topics are created in batches that a controller accepts. A KRaft controller refuses more than 10,000 records in one
operation, and a topic with our settings takes up to ten: larger requests, as MirrorMaker 2 makes them for 9,000 new
topics, fail as a whole (measured on 4.3.1).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fairlead.kafka.admin import LOG_DEFAULTS, alter_topics, create_logs, grow_topics
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.protocol.types import TopicPartition
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
    """The settings that a replica takes over from its source's values."""
    return {name: source[name] for name in FOLLOWED if name in source}


def setting_changes(source: Settings, target: Settings) -> dict[str, str]:
    """What has to be set at the target. ``max.message.bytes`` is only ever raised: the target's log may hold larger
    batches already."""
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
    """How many of so many topics to compare at a time over a link with this rate, and seconds to pause after that."""
    if rate is not None:
        step = max(COMPARE_LEAST_AT_ONCE, rate // BYTES_PER_TOPIC)
        return step, step * BYTES_PER_TOPIC / (rate * THIN_SHARE)
    return max(topics, 1), min(max(topics * COMPARE_PAUSE_PER_TOPIC, COMPARE_PAUSE[0]), COMPARE_PAUSE[1])


def _at_once(cluster: Cluster) -> int:
    """A topic's settings are as much as the offsets of eight logs."""
    return max(COMPARE_LEAST_AT_ONCE, min(COMPARE_AT_ONCE, cluster.logs_per_request // 8))


async def read_settings(cluster: Cluster, topics: list[str]) -> dict[str, dict[str, str]]:
    """The followed settings of topics as a cluster has them; topics that may not be asked about are left out."""
    found: dict[str, dict[str, str]] = {}
    step = _at_once(cluster)
    for start in range(0, len(topics), step):
        found |= await cluster.topic_settings(topics[start : start + step], FOLLOWED)
    return found


async def copy_settings(source: Cluster, target: Cluster, topics: list[str]) -> int:
    """Make the settings of replicas those of their source; returns how many topics were changed.

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
    """What a topic shall be like: as at this source (None: as every log without settings of its own), with that many
    partitions."""

    source: Cluster | None
    partitions: int


def models(
    logs: Collection[TopicPartition],
    carrying: Mapping[TopicPartition, Sequence[SourceLink]],
    shapes: Callable[[Link, str], bool],
) -> dict[str, TopicModel]:
    """What the topics of new replicas shall be like; a log whose source has just gone is left out. ``shapes`` tells
    whether settings and partitions of a topic follow over a link."""
    wanted: dict[str, TopicModel] = {}
    for tp in logs:
        if carrying[tp][0].cluster is None:
            continue
        shaping = [source_link for source_link in carrying[tp] if shapes(source_link.link, tp.topic)]
        count = max((source_link.topics.get(tp.topic, 1) for source_link in shaping), default=1)
        wanted[tp.topic] = TopicModel(shaping[0].cluster if shaping else None, max(count, tp.partition + 1))
    return wanted


def after_look(here: Mapping[str, int], known: Container[str], seen: Mapping[str, int]) -> dict[str, int]:
    """The target's topics, with their numbers of partitions, after a look at it.

    Args:
        here: What is known now, with the topics that were made since the last look.
        known: What was known after the last look.
        seen: What the target shows. It need not show yet what was made since the last look.
    """
    return {topic: count for topic, count in here.items() if topic not in known} | dict(seen)


async def make(
    cluster: Cluster, parts: Iterable[Mapping[str, TopicModel]], here: Mapping[str, int]
) -> AsyncGenerator[Mapping[str, TopicModel], None]:
    """Make topics part by part: those that are not ``here`` (topics with their number of partitions); let others grow.

    Gives each part as soon as the target serves it. The next one is made meanwhile: a broker opens logs one after the
    other, which takes longer than all else about a new topic, so it must never wait for us. Close the iterator when not
    all of it is wanted.

    Raises:
        FairleadError: a cluster cannot be reached, or refuses. What was made stays.
    """
    left = iter(parts)
    part = next(left, None)
    like = next(iter(here), None)
    making = asyncio.ensure_future(_create(cluster, part, here, like)) if part is not None else None
    try:
        while part is not None and making is not None:
            await making
            like = like or next(iter(part), None)
            following = next(left, None)
            making = asyncio.ensure_future(_create(cluster, following, here, like)) if following is not None else None
            logs = [TopicPartition(topic, n) for topic, model in part.items() for n in range(model.partitions)]
            await cluster.wait_writable(logs)
            yield part
            part = following
    finally:
        if making is not None:
            making.cancel()
            await asyncio.gather(making, return_exceptions=True)


async def _create(
    cluster: Cluster, wanted: Mapping[str, TopicModel], here: Mapping[str, int], like: str | None
) -> None:
    """``like``: a topic that the target has, which tells what a new one would be like without settings of its own."""
    endpoint = cluster.endpoint
    new: dict[str, dict[str, str]] = {topic: {} for topic in wanted if topic not in here}
    for source in {id(model.source): model.source for model in wanted.values() if model.source is not None}.values():
        topics = [topic for topic in new if wanted[topic].source is source]
        there = await read_settings(source, topics)
        new |= {topic: followed_settings(there.get(topic, {})) for topic in topics}
    counts = {topic: model.partitions for topic, model in wanted.items()}
    if new:
        implied = await cluster.topic_defaults(like, (*LOG_DEFAULTS, *FOLLOWED)) if like is not None else {}
        await asyncio.to_thread(create_logs, endpoint, new, partitions=counts, implied=implied)
        log.info("%d topics made at %s", len(new), endpoint.site)
    grown = {topic: count for topic, count in counts.items() if here.get(topic, count) < count}
    if grown:
        await asyncio.to_thread(grow_topics, endpoint, grown)
        log.info("%d topics at %s have more partitions now", len(grown), endpoint.site)
