"""What the replicator costs between two local brokers: many logs, bulk, idle, latency.

    python -m benchmarks.replication [--topics 1000]

Prints a table and writes ``build/bench/replication.json``: ``many_topics``, ``bulk``, ``idle``, ``latency`` and
``machine``. The replicator runs alone in a process of its own; seconds count from its start (all logs are made
beforehand, empty at the target) to the last record at the target, CPU and memory are that process's.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import secrets
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from benchmarks._results import machine, write
from fairlead.admin import create_logs
from fairlead.local.sites import LocalSites, SiteSpec
from fairlead.wire.cluster import Cluster
from fairlead.wire.codecs import Codec
from fairlead.wire.convention import term_batch
from fairlead.wire.record import NewRecord
from fairlead.wire.types import TopicPartition
from replication.replicator import Replicator
from topologies.model import Topology

RECORD_BYTES = 190
RECORDS_PER_LOG = 20
BULK_LOGS, BULK_RECORDS, BULK_BYTES, BULK_PER_BATCH = 8, 400_000, 500, 400
LATENCY_RECORDS = 200
IDLE_SECONDS = 15.0


def topology(stream: str) -> Topology:
    return Topology.model_validate(
        {
            "name": "bench",
            "sites": {"alpha": {"kind": "datacentre"}, "beta": {"kind": "datacentre"}},
            "streams": {stream: {}},
            "links": [{"from": "alpha", "to": "beta", "streams": {stream: "all"}}],
        }
    )


async def replicate(folder: str, stream: str) -> None:
    """The measured process: one replicator until SIGTERM."""
    sites = LocalSites(Path(folder))
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    beta = Replicator(topology(stream), "beta", sites.kafka("beta", "admin"), lambda site: sites.kafka(site, "admin"))
    await beta.run(stop)


class World:
    """Two brokers, and the logs of one measurement on them."""

    def __init__(self, sites: LocalSites, alpha: Cluster, beta: Cluster) -> None:
        self.sites, self.alpha, self.beta = sites, alpha, beta
        self.stream = ""
        self.logs: list[TopicPartition] = []

    async def make(self, count: int) -> None:
        """Empty logs at both sites."""
        self.stream = "b" + secrets.token_hex(4)
        self.logs = [TopicPartition(f"{self.stream}.alpha.{n:06d}") for n in range(count)]
        names = [tp.topic for tp in self.logs]
        for cluster in (self.alpha, self.beta):
            await asyncio.to_thread(create_logs, cluster.endpoint, {name: {} for name in names})
            await cluster.wait_writable(names, timeout=300)

    async def append(self, logs: Sequence[TopicPartition], offset: int, count: int, size: int) -> None:
        stamp = int(time.time() * 1000)
        for start in range(0, len(logs), 500):
            batches = {}
            for tp in logs[start : start + 500]:
                value = secrets.token_hex(size // 2).encode()
                new = [NewRecord(value, timestamp_ms=stamp + n) for n in range(count)]
                batches[tp] = term_batch(new, term=1, offset=offset, marker=0, codec=Codec.LZ4)
            for tp, result in (await self.alpha.produce(batches)).items():
                if not result.appended_now:
                    raise RuntimeError(f"{tp}: {result}")

    async def copied(self, end: int, logs: Sequence[TopicPartition] | None = None) -> None:
        """Wait until these logs, or all, end there at the target."""
        left = list(logs or self.logs)
        while left:
            ends = await self.beta.end_offsets(left)
            left = [tp for tp, found in ends.items() if not isinstance(found, int) or found < end]
            await asyncio.sleep(0.02)

    @contextlib.asynccontextmanager
    async def replicator(self) -> AsyncIterator[psutil.Process]:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "benchmarks.replication", "--child", str(self.sites.folder), self.stream
        )
        try:
            yield psutil.Process(child.pid)
        finally:
            child.terminate()
            await child.wait()


def cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def used(process: psutil.Process, seconds: float, records: int) -> dict[str, float]:
    return {
        "seconds": round(seconds, 2),
        "records_per_second": round(records / seconds),
        "cpu_seconds": round(cpu(process), 2),
        "rss_mb": round(process.memory_info().rss / 1e6, 1),
    }


async def many_topics(world: World, topics: int) -> dict[str, Any]:
    await world.make(topics)
    await world.append(world.logs, 0, RECORDS_PER_LOG, RECORD_BYTES)
    async with world.replicator() as process:
        began = time.monotonic()
        await world.copied(RECORDS_PER_LOG)
        records = topics * RECORDS_PER_LOG
        return {"topics": topics, "records": records, **used(process, time.monotonic() - began, records)}


async def idle_and_latency(world: World) -> tuple[dict[str, Any], dict[str, Any]]:
    """On the logs of ``many_topics``: nothing to do, then single records."""
    async with world.replicator() as process:
        await world.append(world.logs[:1], RECORDS_PER_LOG, 1, RECORD_BYTES)
        await world.copied(RECORDS_PER_LOG + 1, world.logs[:1])
        before = cpu(process)
        await asyncio.sleep(IDLE_SECONDS)
        idle = {"topics": len(world.logs), "core_percent": round((cpu(process) - before) / IDLE_SECONDS * 100, 2)}
        taken: list[float] = []
        session = world.beta.fetch_session()
        for n in range(1, LATENCY_RECORDS + 1):
            tp = world.logs[n % len(world.logs)]
            at = (await world.alpha.end_offsets([tp]))[tp]
            if not isinstance(at, int):
                raise at
            session.set(tp, at)
            await session.poll(max_wait_ms=0)
            await asyncio.sleep(0.1)  # a fresh record on an idle link, not traffic
            began = time.monotonic()
            await world.append([tp], at, 1, RECORD_BYTES)
            while not (answer := await session.poll(max_wait_ms=5000)) or not answer[tp].records:
                pass
            taken.append((time.monotonic() - began) * 1000)
            session.forget(tp)
        await session.close()
    cuts = statistics.quantiles(taken, n=100)
    latency = {"topics": len(world.logs), "p50_ms": round(cuts[49], 1), "p99_ms": round(cuts[98], 1)}
    return idle, latency


async def bulk(world: World) -> dict[str, Any]:
    await world.make(BULK_LOGS)
    per_log = BULK_RECORDS // BULK_LOGS
    for offset in range(0, per_log, BULK_PER_BATCH):
        await world.append(world.logs, offset, BULK_PER_BATCH, BULK_BYTES)
    async with world.replicator() as process:
        began = time.monotonic()
        await world.copied(per_log)
        return {"logs": BULK_LOGS, "records": BULK_RECORDS, **used(process, time.monotonic() - began, BULK_RECORDS)}


async def measure(folder: Path, topics: int) -> dict[str, Any]:
    sites = LocalSites(folder)
    sites.up([SiteSpec(name, ()) for name in ("alpha", "beta")])
    try:
        async with await Cluster.open(sites.kafka("alpha", "admin"), client_id="bench") as alpha:
            async with await Cluster.open(sites.kafka("beta", "admin"), client_id="bench") as beta:
                world = World(sites, alpha, beta)
                found: dict[str, Any] = {"many_topics": await many_topics(world, topics)}
                found["idle"], found["latency"] = await idle_and_latency(world)
                found["bulk"] = await bulk(world)
    finally:
        sites.down(purge=True)
    found["machine"] = machine()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--child", nargs=2, metavar=("FOLDER", "STREAM"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(replicate(*options.child))
        return
    with tempfile.TemporaryDirectory(prefix="fairlead-bench-") as folder:
        found = asyncio.run(measure(Path(folder), options.topics))
    for name, figures in found.items():
        print(f"{name:12}", "  ".join(f"{key} {value}" for key, value in figures.items()))
    write("replication", found)


if __name__ == "__main__":
    main()
