"""What keeps replicas in order beside the copying: retention, settings, what an interrupted replicator has left."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from fairlead.errors import FairleadError
from fairlead.wire.cluster import Cluster
from fairlead.wire.types import TopicPartition
from replication import settings
from replication.leftover import interrupted
from replication.plan import Catalog
from replication.pull import Pull
from replication.retention import keep_sweeping, limited
from replication.tails import Tails
from replication.trim import Trimmer
from replication.writer import Writer
from topologies.model import Topology

log = logging.getLogger(__name__)

TIDY: Final = 20.0


class Upkeep:
    """Tasks that run as long as the target is there; each until cancelled.

    Args:
        followed: The links over which each log is followed now.
        here: The target's topics, with their number of partitions.
        holder: The site that appends to a topic, as far as it is known.
    """

    def __init__(
        self,
        topology: Topology,
        site: str,
        pulls: Sequence[Pull],
        *,
        followed: Callable[[], Mapping[TopicPartition, Collection[str]]],
        here: Callable[[], Mapping[str, int]],
        holder: Callable[[str], str | None],
    ) -> None:
        self._topology = topology
        self._site = site
        self._pulls = pulls
        self._followed = followed
        self._here = here
        self._holder = holder

    async def keep_retention(self, cluster: Cluster) -> None:
        """Delete what this site's retention of its replicas no longer covers."""
        await keep_sweeping(cluster, lambda: limited(self._topology, self._site, self._here(), self._holder))

    async def keep_tidy(self, cluster: Cluster, trimmer: Trimmer) -> None:
        """Delete what a replicator that died while it positioned logs has left at their starts: once for each source
        from which they are followed, since what a replicator leaves is left once."""
        done: set[str] = set()
        while True:
            await asyncio.sleep(TIDY)
            for pull in self._pulls:
                if pull.cluster is None or pull.name in done:
                    continue
                logs = [tp for tp, over in self._followed().items() if pull.name in over]
                if not logs:
                    continue
                try:
                    for tp, before in (await interrupted(cluster, pull.cluster, logs, pull.link.start)).items():
                        trimmer.before(tp, before)
                    done.add(pull.name)
                except FairleadError as error:
                    log.warning("%s: fillers of an interrupted positioning: %s", pull.name, error.what)

    async def keep_closed(self, cluster: Cluster, writer: Writer) -> None:
        """Fill what the sources have nothing for any more, at the very end of their logs."""
        await Tails(self._pulls, self._followed, Catalog(self._topology), cluster, writer).run()

    async def keep_settings(self, cluster: Cluster) -> None:
        """Let the settings of replicas follow their source's."""
        async with asyncio.TaskGroup() as group:
            for pull in self._pulls:
                group.create_task(self._keep_settings_over(pull, cluster))

    async def _keep_settings_over(self, pull: Pull, cluster: Cluster) -> None:
        while True:
            await asyncio.sleep(settings.PAUSE[0])
            topics = sorted({tp.topic for tp, links in self._followed().items() if pull.name == min(links, default="")})
            step, wait = settings.pace(len(topics), pull.link.rate)
            for start in range(0, len(topics), step):
                some = topics[start : start + step]
                if pull.cluster is None:
                    break
                pull.charge(len(some) * settings.BYTES_PER_TOPIC)
                try:
                    await settings.bring_over(pull.cluster, cluster, some)
                except FairleadError as error:
                    log.warning("%s: settings do not follow: %s", pull.name, error.what)
                    break
                await asyncio.sleep(wait)

    async def limit_of(self, cluster: Cluster, tp: TopicPartition) -> int:
        """``max.message.bytes`` of a log at the target, after letting it follow the source's where that is allowed."""
        over = self._followed().get(tp, frozenset())
        for pull in self._pulls:
            if pull.name in over and pull.cluster is not None:
                try:
                    await settings.bring_over(pull.cluster, cluster, [tp.topic])
                except FairleadError as error:
                    log.warning("%s: max.message.bytes does not follow: %s", tp.topic, error.what)
        there = await cluster.topic_settings([tp.topic], ["max.message.bytes"])
        return int(there.get(tp.topic, {}).get("max.message.bytes", "0"))
