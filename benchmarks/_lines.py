"""Two local sites with one link between them, over a line with a round trip and a rate of its own."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import secrets
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairlead.kafka.admin import create_logs
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.convention import term_batch
from fairlead.kafka.protocol.record import NewRecord
from fairlead.kafka.protocol.types import TopicPartition
from fairlead.local.sites import LocalSites, SiteSpec
from replication.replicator import Replicator
from simulators.network.proxy import TcpProxy
from topologies.model import Topology

SOURCE, TARGET = "alpha", "beta"


@dataclass
class Lines:
    """The two sites. Every measurement has streams of its own."""

    sites: LocalSites
    source: Cluster
    target: Cluster

    async def make(self, topics: Sequence[str]) -> list[TopicPartition]:
        """Empty logs at both sites."""
        for cluster in (self.source, self.target):
            await asyncio.to_thread(create_logs, cluster.endpoint, {topic: {} for topic in topics})
            await cluster.wait_writable(topics)
        return [TopicPartition(topic) for topic in topics]

    async def append(self, logs: Sequence[TopicPartition], offset: int, count: int, size: int) -> None:
        """One batch of ``count`` records to each log; they do not compress."""
        stamp = int(time.time() * 1000)
        new = [NewRecord(secrets.token_bytes(size), timestamp_ms=stamp + n) for n in range(count)]
        batch = term_batch(new, term=1, offset=offset, marker=0)
        for tp, result in (await self.source.produce(dict.fromkeys(logs, batch))).items():
            if not result.appended_now:
                raise RuntimeError(f"{tp}: {result}")

    async def copied(self, tp: TopicPartition, end: int) -> None:
        """Wait until a log ends there at the target."""
        session = self.target.fetch_session()
        try:
            session.set(tp, end - 1)
            while True:
                part = (await session.poll(max_wait_ms=1000)).get(tp)
                if part is not None and part.high_watermark >= end:
                    return
                session.set(tp, end - 1)
                if part is not None:
                    await asyncio.sleep(0.01)
        finally:
            await session.close()

    @contextlib.asynccontextmanager
    async def copying(
        self, streams: Mapping[str, Mapping[str, Any]], *, rtt: float, line: float, rate: str | None = None
    ) -> AsyncIterator[tuple[TcpProxy, Replicator]]:
        """A replicator at work. ``line``: bits per second that the line carries; ``rate``: what the link declares."""
        link = {"from": SOURCE, "to": TARGET, "streams": dict.fromkeys(streams, "all")}
        topology = Topology.model_validate(
            {
                "name": "bench",
                "sites": {name: {"kind": "datacentre"} for name in (SOURCE, TARGET)},
                "streams": streams,
                "links": [link | ({"rate": rate} if rate else {})],
            }
        )
        source = self.source.endpoint
        async with TcpProxy(source.bootstrap, rtt=rtt, rate=line) as way:
            stop = asyncio.Event()
            over = dataclasses.replace(source, address_overrides=way.address_overrides)
            replicator = Replicator(topology, TARGET, self.target.endpoint, lambda _: over)
            running = asyncio.ensure_future(replicator.run(stop))
            try:
                yield way, replicator
            finally:
                stop.set()
                await running


@contextlib.asynccontextmanager
async def two_sites() -> AsyncIterator[Lines]:
    """Started in a folder of their own, and gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="fairlead-bench-") as folder:
        sites = LocalSites(Path(folder))
        await asyncio.to_thread(sites.up, [SiteSpec(name, ()) for name in (SOURCE, TARGET)])
        try:
            async with await Cluster.open(sites.kafka(SOURCE, "admin"), client_id="bench") as source:
                async with await Cluster.open(sites.kafka(TARGET, "admin"), client_id="bench") as target:
                    yield Lines(sites, source, target)
        finally:
            await asyncio.to_thread(sites.down, purge=True)


async def carried(way: TcpProxy, size: int) -> float:
    """When the line had carried so many bytes to the target."""
    while way.down.bytes < size:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.005)
    return time.monotonic()
