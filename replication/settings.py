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
LEAST_AT_ONCE: Final = 5
BYTES_PER_TOPIC: Final = 450  # both ways
PAUSE: Final = (30.0, 1800.0)  # seconds between two comparisons
PAUSE_PER_TOPIC: Final = 0.18  # with its bytes: 2.5 kB/s at most
THIN_SHARE: Final = 0.02  # of a link's rate that comparing may take

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


def pace(topics: int, rate: int | None) -> tuple[int, float]:
    """How many of so many topics to compare at a time over a link with this rate, and seconds to pause after that."""
    if rate is not None:
        step = max(LEAST_AT_ONCE, rate // BYTES_PER_TOPIC)
        return step, step * BYTES_PER_TOPIC / (rate * THIN_SHARE)
    return max(topics, 1), min(max(topics * PAUSE_PER_TOPIC, PAUSE[0]), PAUSE[1])


def _at_once(cluster: Cluster) -> int:
    """A topic's settings are as much as the offsets of eight logs."""
    return max(LEAST_AT_ONCE, min(AT_ONCE, cluster.logs_per_request // 8))


async def read(cluster: Cluster, topics: list[str]) -> dict[str, dict[str, str]]:
    """The followed settings of topics as a cluster has them; topics that may not be asked about are left out."""
    found: dict[str, dict[str, str]] = {}
    step = _at_once(cluster)
    for start in range(0, len(topics), step):
        found |= await cluster.topic_settings(topics[start : start + step], FOLLOWED)
    return found


async def bring_over(source: Cluster, target: Cluster, topics: list[str]) -> int:
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
        await asyncio.to_thread(alter_topics, target.endpoint, different)
        log.info("%s: settings of %d topics follow %s", target.endpoint.site, len(different), source.endpoint.site)
    return len(different)
