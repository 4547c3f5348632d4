"""A port and a ship on brokers of their own, with a bridge and a replicator at each, and what they have used."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks.custody.devices import Devices
from benchmarks.custody.names import PORT, SHIP, USER
from benchmarks.replication.gauge import cpu_seconds, peak_rss_mb
from benchmarks.replication.world import BROKER, broker_heap
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.protocol.types import TP
from fairlead.local.sites import LocalSites, SiteSpec

PATIENCE: Final = 600.0  # seconds without anything new after which a measurement is given up
PER_LOG: Final = 0.1  # seconds that each log may take besides
LOOK_SECONDS: Final = 0.05
WATCHED_AT_ONCE: Final = 250
ONE_REPLICA: Final = {
    name: "1"
    for name in (
        "default.replication.factor",
        "min.insync.replicas",
        "offsets.topic.replication.factor",
        "transaction.state.log.replication.factor",
        "transaction.state.log.min.isr",
    )
}


class Worker:
    """A measured process and the newest that it has told."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.told: dict[str, Any] = {}
        self.gauge = psutil.Process(process.pid)
        self._process = process
        self._news = asyncio.Condition()
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, what: str, folder: Path, site: str) -> Worker:
        line = ("-m", "benchmarks.custody.worker", what, str(folder), site)
        process = await asyncio.create_subprocess_exec(sys.executable, *line, stdout=asyncio.subprocess.PIPE)
        return cls(f"{what} {site}", process)

    async def until(self, what: str, reached: Callable[[dict[str, Any]], bool]) -> float:
        """When the process had told something that is so (``time.monotonic``)."""
        async with self._news:
            while not (self.told and reached(self.told)):
                if self._reading.done():
                    raise SystemExit(f"{self.name} ended; {what} was awaited, it told {self.told}")
                try:
                    await asyncio.wait_for(self._news.wait(), PATIENCE)
                except TimeoutError:
                    raise SystemExit(f"{self.name}: {what} does not come about; it told {self.told}") from None
        return time.monotonic()

    async def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        await self._process.wait()
        await self._reading

    async def _read(self) -> None:
        assert self._process.stdout is not None  # noqa: S101 - for the type checker
        async for line in self._process.stdout:
            async with self._news:
                self.told = json.loads(line)
                self._news.notify_all()
        async with self._news:
            self._news.notify_all()


class Harbour:
    """The two sites at work. Everything is gone afterwards."""

    def __init__(self, sites: LocalSites, clusters: Mapping[str, Cluster], workers: Mapping[str, Worker]) -> None:
        self.port, self.ship = clusters[PORT], clusters[SHIP]
        self.port_bridge, self.ship_bridge = workers[f"bridge {PORT}"], workers[f"bridge {SHIP}"]
        self.devices = {site: Devices(sites.mqtt(site, "device")) for site in (PORT, SHIP)}
        pids = {site: state.pids for site, state in sites.status().items()}
        brokers = {f"{what} {site}": psutil.Process(pid) for site in pids for what, pid in pids[site].items()}
        self.processes = {name: worker.gauge for name, worker in workers.items()} | brokers

    @classmethod
    @contextlib.asynccontextmanager
    async def fresh(cls, brokers: int = 1) -> AsyncIterator[Harbour]:
        """Sites that nobody has used yet, with their processes ready. Each log is at one of a site's brokers."""
        with tempfile.TemporaryDirectory(prefix="fairlead-bench-") as name:
            folder = Path(name) / "sites"
            sites = LocalSites(folder)
            async with contextlib.AsyncExitStack() as stack:
                stack.push_async_callback(asyncio.to_thread, sites.down, purge=True)
                with broker_heap():
                    properties = BROKER | (ONE_REPLICA if brokers > 1 else {})
                    specs = [SiteSpec(site, properties=properties, brokers=brokers) for site in (PORT, SHIP)]
                    await asyncio.to_thread(sites.up, specs)
                clusters = {}
                for site in (PORT, SHIP):
                    opened = await Cluster.open(sites.kafka(site, USER), client_id="bench", request_timeout=120)
                    clusters[site] = await stack.enter_async_context(opened)
                workers: dict[str, Worker] = {}
                for what in ("bridge", "replicator"):
                    for site in (PORT, SHIP):
                        worker = workers[f"{what} {site}"] = await Worker.start(what, folder, site)
                        stack.push_async_callback(worker.stop)
                for worker in workers.values():
                    await worker.until("its start", lambda told: bool(told["ready"]))
                harbour = cls(sites, clusters, workers)
                for devices in harbour.devices.values():
                    stack.callback(devices.close)
                yield harbour

    def cpu(self) -> dict[str, float]:
        """CPU-seconds of every process so far."""
        return {name: cpu_seconds(process) for name, process in self.processes.items()}

    def peak_mb(self) -> dict[str, float]:
        """The most resident memory that every process ever had."""
        return {name: peak_rss_mb(process) for name, process in self.processes.items()}


async def reached(cluster: Cluster, ends: Mapping[str, int]) -> float:
    """Wait until logs end there or later at a site; the moment at which that was seen. Looks at a few at a time, so
    that looking takes next to nothing from the brokers."""
    logs = list(ends)
    latest = time.monotonic() + PATIENCE + PER_LOG * len(logs)
    for start in range(0, len(logs), WATCHED_AT_ONCE):
        left = logs[start : start + WATCHED_AT_ONCE]
        while left := await _short(cluster, left, ends):
            if time.monotonic() > latest:
                raise SystemExit(f"{len(left)} logs do not get to their ends, for example {left[0]}")
            await asyncio.sleep(LOOK_SECONDS)
    return time.monotonic()


async def _short(cluster: Cluster, logs: list[str], ends: Mapping[str, int]) -> list[str]:
    here = await cluster.topics(logs)
    if len(here) < len(logs):
        here = await cluster.topics(logs, refresh=True)
    found = await cluster.end_offsets([TP(log) for log in here])
    there = {tp.topic: end for tp, end in found.items() if isinstance(end, int)}
    return [log for log in logs if there.get(log, 0) < ends[log]]
