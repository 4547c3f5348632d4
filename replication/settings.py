"""Which settings of a topic follow from source to target, and keeping them so.

What a topic is follows: how it is cleaned up and how large a batch may be. What a site does with it stays the site's
own: retention, replicas, in-sync replicas. Two settings are never copied because equality rests on them: replicas have
``compression.type=producer`` and ``message.timestamp.type=CreateTime`` (``fairlead.admin.LOG_DEFAULTS``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from fairlead.admin import alter_topics
from fairlead.endpoint import KafkaEndpoint
from fairlead.wire.cluster import Cluster

log = logging.getLogger(__name__)

FOLLOWED: Final = (
    "cleanup.policy",
    "delete.retention.ms",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
)
AT_ONCE: Final = 500

Settings = Mapping[str, str]


def wanted(source: Settings) -> dict[str, str]:
    """The settings that a replica takes over from its source's values."""
    return {name: source[name] for name in FOLLOWED if name in source}


def changes(source: Settings, target: Settings) -> dict[str, str]:
    """What has to be set at the target. ``max.message.bytes`` is only ever raised: the target's log may hold larger
    batches already."""
    out = {}
    for name, value in wanted(source).items():
        there = target.get(name)
        if there == value:
            continue
        if name == "max.message.bytes" and there is not None and int(there) >= int(value):
            continue
        out[name] = value
    return out


async def read(cluster: Cluster, topics: list[str]) -> dict[str, dict[str, str]]:
    """The followed settings of topics as a cluster has them; topics that may not be asked about are left out."""
    found: dict[str, dict[str, str]] = {}
    for start in range(0, len(topics), AT_ONCE):
        found |= await cluster.topic_settings(topics[start : start + AT_ONCE], FOLLOWED)
    return found


async def bring_over(source: Cluster, target: Cluster, endpoint: KafkaEndpoint, topics: list[str]) -> int:
    """Make the settings of replicas those of their source; returns how many topics were changed.

    Raises:
        FairleadError: a cluster cannot be asked, or refuses the change.
    """
    different: dict[str, dict[str, str]] = {}
    for start in range(0, len(topics), AT_ONCE):
        some = topics[start : start + AT_ONCE]
        there, here = await read(source, some), await read(target, some)
        for topic in there.keys() & here.keys():
            if change := changes(there[topic], here[topic]):
                different[topic] = change
    if different:
        await asyncio.to_thread(alter_topics, endpoint, different)
        log.info("%s: settings of %d topics follow %s", endpoint.site, len(different), source.endpoint.site)
    return len(different)
