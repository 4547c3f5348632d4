"""Waiting for the real system at a voyage's barriers: log ends at the sites, and custody taken.

Kafka has no call that waits for a log's end, so ends are asked for again every ``INTERVAL`` seconds, many logs at
a time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping

from fairlead.clusters import Clusters
from fairlead.custody import CustodyView
from fairlead.errors import FairleadError, UnavailableError
from fairlead.records.custody import CustodyEntry, ledger_entries
from fairlead.wire.cluster import Cluster
from fairlead.wire.types import TopicPartition
from simulators.report.collect import records_of
from simulators.steps import Barrier, BarrierKind
from topologies.model import Topology

INTERVAL = 0.1  # seconds between two looks
GIVE_WAY = 10.0  # seconds without progress after which time goes on without what may need a link that is cut

log = logging.getLogger(__name__)


class BarrierTimeout(UnavailableError):
    """The real system did not get where the voyage waits for it."""


class Waiter:
    """Gives the player its ``wait``: returns when a barrier's condition holds at the sites.

    A site that does not answer is waited for as well.

    Args:
        timeout: Seconds without any progress after which a barrier fails.
        check: Called at every look; raises when something that the voyage needs has ended.
        cut: The sites that have lost a link on purpose at this moment.
    """

    def __init__(
        self,
        topology: Topology,
        clusters: Clusters,
        *,
        timeout: float = 60.0,
        check: Callable[[], None] = lambda: None,
        cut: Callable[[], Collection[str]] = tuple,
    ) -> None:
        self._topology = topology
        self._clusters = clusters
        self._timeout = timeout
        self._check = check
        self._cut = cut

    async def wait(self, barrier: Barrier) -> None:
        """Return when the barrier's condition holds, or it gives way to a link that is cut on purpose.

        Raises:
            BarrierTimeout: nothing came nearer for ``timeout`` seconds; names what was awaited.
        """
        moved_at = time.monotonic()
        before: list[str] = []
        while missing := await self._look(barrier):
            self._check()
            now = time.monotonic()
            if missing != before:
                before, moved_at = missing, now
            if barrier.gives_way and now - moved_at > GIVE_WAY and {barrier.site, barrier.peer} & set(self._cut()):
                log.warning("a link is cut, going on without: %s; %s", barrier.description, missing[0])
                return
            if now - moved_at > self._timeout:
                raise BarrierTimeout(
                    f"waited {self._timeout:.0f} s for: {barrier.description}; still missing {len(missing)}, for "
                    f"example {missing[0]}",
                    hint="look at 'fairlead status' and the workers' logs in the state folder",
                    barrier=barrier.kind.value,
                    missing=missing[:20],
                )
            await asyncio.sleep(INTERVAL)

    async def _look(self, barrier: Barrier) -> list[str]:
        """What is missing, and how much of it; or which site does not answer."""
        try:
            return await self._missing(barrier)
        except FairleadError as error:
            if not error.retriable:
                raise
            return [error.what]

    async def _missing(self, barrier: Barrier) -> list[str]:
        match barrier.kind:
            case BarrierKind.RECORDED:
                return await self._short(barrier.site, barrier.log_ends)
            case BarrierKind.CUSTODY:
                return await self._not_held(barrier.site, barrier.containers) or await self._short(
                    barrier.site, barrier.log_ends
                )
            case BarrierKind.DEPARTURE:
                return (
                    await self._not_held(barrier.peer, barrier.containers)
                    or await self._short(barrier.peer, barrier.log_ends)
                    or await self._short(barrier.site, barrier.log_ends)
                )
            case BarrierKind.FINISHED:
                return await self._short_everywhere(barrier.log_ends)

    async def _short(self, site: str, log_ends: Mapping[str, int]) -> list[str]:
        ends = await _ends(await self._clusters.at(site), log_ends)
        return [f"{log} at {site}: {ends[log]} of {end}" for log, end in log_ends.items() if ends[log] < end]

    async def _short_everywhere(self, log_ends: Mapping[str, int]) -> list[str]:
        longest = dict.fromkeys(log_ends, 0)
        for site in self._topology.sites:
            for log, end in (await _ends(await self._clusters.at(site), log_ends)).items():
                longest[log] = max(longest[log], end)
        return [f"{log}: {longest[log]} of {end}" for log, end in log_ends.items() if longest[log] < end]

    async def _not_held(self, site: str, containers: Collection[str]) -> list[str]:
        """Containers whose log the ledger at ``site`` does not give to it, or whose replica is short there."""
        if not containers:
            return []
        view = await self.custody(site)
        logs = {f"{self._topology.container_stream(number)}.{number}" for number in containers}
        foreign = [f"custody of {log} at {site}" for log in sorted(logs) if view.holder(log) != site]
        return foreign or await self._short(site, {log: (view.marker(log) or 0) + 1 for log in logs})

    async def custody(self, site: str) -> CustodyView:
        """The ledger as this site's Kafka has it now."""
        cluster = await self._clusters.at(site)
        view = CustodyView()
        ledgers = [name for name in await cluster.topics(refresh=True) if name.startswith("custody.")]
        for records in (await records_of(cluster, ledgers)).values():
            for record in records:
                entry = ledger_entries.decode(record.value or b"")
                if isinstance(entry, CustodyEntry):
                    view.apply(entry)
        return view


async def _ends(cluster: Cluster, logs: Collection[str]) -> dict[str, int]:
    """End offsets; 0 for a log that is not there (yet)."""
    there = await cluster.topics(refresh=True)
    known = [TopicPartition(log) for log in logs if log in there]
    found = await cluster.end_offsets(known)
    ends = {tp.topic: end for tp, end in found.items() if isinstance(end, int)}
    return {log: ends.get(log, 0) for log in logs}
