"""Two fresh brokers, ``alpha`` and ``beta``, and the logs of one measurement on them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from benchmarks.replication.names import SOURCE, TARGET, USER
from fairlead.kafka.admin import create_logs
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.fetch_session import FetchSession
from fairlead.kafka.protocol.types import TopicPartition
from fairlead.local.sites import LocalSites, SiteSpec

BROKER_HEAP: Final = "-Xmx1g"  # 256 MB is enough for 10,000 logs, and too little for twice that many
# A broker that gives 20,000 logs all it has must not be taken for dead: local ones have 3 s, Kafka's default is 9.
BROKER: Final = {"broker.session.timeout.ms": "30000"}
WATCHED_AT_ONCE: Final = 250
LOOK_SECONDS: Final = 0.05
LONG_MS: Final = 1_800_000


@dataclass(frozen=True, slots=True)
class Logs:
    """The topics of one stream, which one side copies."""

    stream: str
    topics: tuple[str, ...]
    tps: tuple[TopicPartition, ...]


class World:
    """The two brokers, with a client of the harness to each."""

    def __init__(self, sites: LocalSites, source: Cluster, target: Cluster) -> None:
        self.sites, self.source, self.target = sites, source, target
        pids = {name: site.pids["kafka"] for name, site in sites.status().items()}
        self.brokers = {name: psutil.Process(pid) for name, pid in pids.items()}

    @classmethod
    @contextlib.asynccontextmanager
    async def fresh(cls, *, tls: bool = False) -> AsyncIterator[World]:
        """Brokers that nobody has used yet; they and their data are gone afterwards."""
        with tempfile.TemporaryDirectory(prefix="fairlead-bench-") as folder:
            sites = LocalSites(Path(folder) / "sites")
            try:
                with broker_heap():
                    specs = [SiteSpec(site, properties=BROKER, tls=tls) for site in (SOURCE, TARGET)]
                    await asyncio.to_thread(sites.up, specs)
                async with (
                    await Cluster.open(sites.kafka(SOURCE, USER), client_id="bench", request_timeout=120) as source,
                    await Cluster.open(sites.kafka(TARGET, USER), client_id="bench", request_timeout=120) as target,
                ):
                    yield cls(sites, source, target)
            finally:
                await asyncio.to_thread(sites.down, purge=True)

    async def make_logs(self, topics: int, *, partitions: int = 1) -> Logs:
        """Empty topics of a new stream, the same at both sites, and ready to be written."""
        stream = "b" + secrets.token_hex(4)
        names = tuple(f"{stream}.{SOURCE}.{number:06d}" for number in range(topics))
        counts = dict.fromkeys(names, partitions)
        for cluster in (self.source, self.target):
            await asyncio.to_thread(create_logs, cluster.endpoint, {name: {} for name in names}, partitions=counts)
            await cluster.wait_writable(names, timeout=600)
        return Logs(stream, names, tuple(TopicPartition(name, n) for name in names for n in range(partitions)))

    # ---- watching what arrives

    @contextlib.asynccontextmanager
    async def watch_first(self, logs: Logs) -> AsyncIterator[asyncio.Task[float]]:
        """A task that gives the moment (``time.monotonic``) at which the first record of these logs is at the target.

        One long poll over all of them: the broker answers at the first append, and nothing is asked until then.
        """
        session = self.target.fetch_session()
        for tp in logs.tps:
            session.set(tp, 0)
        await session.poll(max_wait_ms=0, max_bytes=1, partition_max_bytes=1)
        task = asyncio.create_task(_first(session))
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await session.close()

    async def complete(self, ends: Mapping[TopicPartition, int]) -> float:
        """Wait until these logs end there at the target; the moment at which that was seen.

        Looks at a few logs at a time, so that looking takes next to nothing from the two brokers and cores.
        """
        tps = list(ends)
        for start in range(0, len(tps), WATCHED_AT_ONCE):
            left: Sequence[TopicPartition] = tps[start : start + WATCHED_AT_ONCE]
            while True:
                found = await self.target.end_offsets(left)
                left = [tp for tp in left if not _reached(found[tp], ends[tp])]
                if not left:
                    break
                await asyncio.sleep(LOOK_SECONDS)
        return time.monotonic()


async def _first(session: FetchSession) -> float:
    while True:
        answer = await session.poll(max_wait_ms=LONG_MS, max_bytes=1, partition_max_bytes=1)
        if any(part.records for part in answer.values()):
            return time.monotonic()


def _reached(found: object, end: int) -> bool:
    return isinstance(found, int) and found >= end


@contextlib.contextmanager
def broker_heap() -> Iterator[None]:
    """The Java that is started now gets another heap: this variable wins over the command line."""
    before = os.environ.get("_JAVA_OPTIONS")
    os.environ["_JAVA_OPTIONS"] = BROKER_HEAP
    try:
        yield
    finally:
        if before is None:
            del os.environ["_JAVA_OPTIONS"]
        else:
            os.environ["_JAVA_OPTIONS"] = before
