"""Watch the alert logs at several sites, and note when each site first had each overboard alert, in wall time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence, Set

from fairlead.errors import FairleadError
from fairlead.kafka.client.fetch_session import FetchSession
from fairlead.kafka.clusters import Clusters
from fairlead.kafka.convention import is_data
from fairlead.kafka.protocol.batch import split
from fairlead.kafka.protocol.record import decode_batch
from fairlead.kafka.protocol.types import TopicPartition
from fairlead.records import decoder
from fairlead.records.alert import OVERBOARD, Alert
from fairlead.waiting import wait_set

DISCOVERY = 1.0  # seconds between two searches for new alert logs


class AlertWatch:
    """Follows ``alerts.<raiser>`` at several sites; ``seen`` maps (site, container) to the wall time of first sight."""

    def __init__(self, clusters: Clusters, sites: Sequence[str], raisers: Sequence[str]) -> None:
        self._clusters = clusters
        self._sites = tuple(sites)
        self._logs = {f"alerts.{raiser}" for raiser in raisers}
        self._alert = decoder(Alert)
        self.seen: dict[tuple[str, str], float] = {}
        self._news = asyncio.Event()

    async def until(self, wanted: Set[tuple[str, str]]) -> None:
        """Return when every (site, container) of ``wanted`` was seen."""
        while not wanted <= self.seen.keys():
            self._news.clear()
            await self._news.wait()

    async def run(self, stop: asyncio.Event) -> None:
        """Watch all sites until ``stop`` is set. Try unreachable sites again."""
        async with asyncio.TaskGroup() as group:
            for site in self._sites:
                group.create_task(self._watch(site, stop))

    async def _watch(self, site: str, stop: asyncio.Event) -> None:
        cluster = await self._clusters.at(site)
        session = cluster.fetch_session()
        followed: set[str] = set()
        looked = 0.0
        try:
            while not stop.is_set():
                try:
                    if len(followed) < len(self._logs) and time.monotonic() - looked > DISCOVERY:
                        looked = time.monotonic()
                        for topic in self._logs & (await cluster.topics(refresh=True)).keys() - followed:
                            session.set(TopicPartition(topic), 0)
                            followed.add(topic)
                    if followed:
                        await self._take(site, session)
                    else:
                        await wait_set(stop, DISCOVERY)
                except FairleadError as error:
                    if not error.retriable:
                        raise
                    await wait_set(stop, DISCOVERY)
        finally:
            await session.close()

    async def _take(self, site: str, session: FetchSession) -> None:
        for tp, part in (await session.poll(max_wait_ms=500)).items():
            now = time.time()
            for view in split(part.records):
                session.set(tp, view.header.base_offset + view.header.last_offset_delta + 1)
                for record in decode_batch(part.records[view.start : view.stop]):
                    if not is_data(record):
                        continue
                    alert = self._alert.decode(record.value or b"")
                    if alert.kind == OVERBOARD:
                        self.seen.setdefault((site, alert.equipment_reference), now)
                        self._news.set()
