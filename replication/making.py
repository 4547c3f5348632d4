"""Makes the topics of replicas: with their source's settings and partitions, in batches that a controller accepts.

A KRaft controller refuses more than 10,000 records in one operation, and a topic with our settings takes up to ten:
larger requests, as MirrorMaker 2 makes them for 9,000 new topics, fail as a whole (measured on 4.3.1).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fairlead.admin import LOG_DEFAULTS, create_logs, grow_topics
from fairlead.wire.cluster import Cluster
from fairlead.wire.types import TopicPartition
from replication import settings
from replication.pull import Pull

log = logging.getLogger(__name__)

AT_ONCE: Final = 250


@dataclass(frozen=True, slots=True)
class Model:
    """What a topic shall be like: as at this source, with that many partitions."""

    source: Cluster
    partitions: int


def models(logs: Collection[TopicPartition], carrying: Mapping[TopicPartition, Sequence[Pull]]) -> dict[str, Model]:
    """What the topics of new replicas shall be like; a log whose source has just gone is left out."""
    wanted: dict[str, Model] = {}
    for tp in logs:
        source = carrying[tp][0].cluster
        if source is not None:
            count = max(pull.topics.get(tp.topic, 1) for pull in carrying[tp])
            wanted[tp.topic] = Model(source, max(count, tp.partition + 1))
    return wanted


async def make(
    cluster: Cluster, parts: Iterable[Mapping[str, Model]], here: Mapping[str, int]
) -> AsyncGenerator[Mapping[str, Model], None]:
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


async def _create(cluster: Cluster, wanted: Mapping[str, Model], here: Mapping[str, int], like: str | None) -> None:
    """``like``: a topic that the target has, which tells what a new one would be like without settings of its own."""
    endpoint = cluster.endpoint
    new: dict[str, dict[str, str]] = {}
    for source in {id(model.source): model.source for model in wanted.values()}.values():
        topics = [topic for topic, model in wanted.items() if topic not in here and model.source is source]
        there = await settings.read(source, topics)
        new |= {topic: settings.wanted(there.get(topic, {})) for topic in topics}
    counts = {topic: model.partitions for topic, model in wanted.items()}
    if new:
        implied = await cluster.topic_defaults(like, (*LOG_DEFAULTS, *settings.FOLLOWED)) if like is not None else {}
        await asyncio.to_thread(create_logs, endpoint, new, partitions=counts, implied=implied)
        log.info("%d topics made at %s", len(new), endpoint.site)
    grown = {topic: count for topic, count in counts.items() if here.get(topic, count) < count}
    if grown:
        await asyncio.to_thread(grow_topics, endpoint, grown)
        log.info("%d topics at %s have more partitions now", len(grown), endpoint.site)
