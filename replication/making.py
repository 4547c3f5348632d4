"""Makes the topics of replicas: with their source's settings and partitions, in batches that a controller accepts.

A KRaft controller refuses more than 10,000 records in one operation, and a topic with our settings takes ten: larger
requests, as MirrorMaker 2 makes them for 9,000 new topics, fail as a whole (measured on 4.3.1).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fairlead.admin import create_logs, grow_topics
from fairlead.wire.cluster import Cluster
from fairlead.wire.types import TopicPartition
from replication import settings

log = logging.getLogger(__name__)

AT_ONCE: Final = 250


@dataclass(frozen=True, slots=True)
class Model:
    """What a topic shall be like: as at this source, with that many partitions."""

    source: Cluster
    partitions: int


async def make(cluster: Cluster, wanted: Mapping[str, Model], here: Mapping[str, int]) -> None:
    """Make topics that are not ``here`` (topics with their number of partitions), let others grow, and wait until the
    target serves them.

    Raises:
        FairleadError: a cluster cannot be reached, or refuses. What was made stays.
    """
    endpoint = cluster.endpoint
    new: dict[str, dict[str, str]] = {}
    for source in {id(model.source): model.source for model in wanted.values()}.values():
        topics = [topic for topic, model in wanted.items() if topic not in here and model.source is source]
        there = await settings.read(source, topics)
        new |= {topic: settings.wanted(there.get(topic, {})) for topic in topics}
    counts = {topic: model.partitions for topic, model in wanted.items()}
    if new:
        await asyncio.to_thread(create_logs, endpoint, new, partitions=counts)
        log.info("%d topics made at %s", len(new), endpoint.site)
    grown = {topic: count for topic, count in counts.items() if here.get(topic, count) < count}
    if grown:
        await asyncio.to_thread(grow_topics, endpoint, grown)
        log.info("%d topics at %s have more partitions now", len(grown), endpoint.site)
    await cluster.wait_writable([TopicPartition(topic, n) for topic, count in counts.items() for n in range(count)])
