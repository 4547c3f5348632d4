"""A satellite link of 64 kbit/s, saturated by telemetry: how much of it is used, and how long an alert takes.

    python -m benchmarks.thin_link [--seconds 15]

The link really carries no more than it declares. One entry per case: ``share`` of the link in use, ``data_share`` of it
that is record batches, ``alert_p50_s`` and ``alert_max_s`` from the append at the source to the record at the target.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import secrets
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import uvloop

from benchmarks.harness import Figures, Say, main
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
    """The two sites. Every measurement uses its own streams."""

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
        """Run a replicator. ``line``: bits per second that the link carries; ``rate``: what it declares."""
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
    """Wait until the link has carried so many bytes to the target; return when."""
    while way.down.bytes < size:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.005)
    return time.monotonic()


LINE = 64e3
RATE = "64 kbit/s"
WARM = 24_000  # bytes: the link is up and saturated
ALERT = 200  # bytes


class Case(NamedTuple):
    """Logs with telemetry, and what their batches are."""

    rtt: float
    logs: int
    records: int
    size: int


CASES = {
    "satellite_small_batches": Case(0.6, 40, 1, 150),
    "satellite_2kB_batches": Case(0.6, 4, 4, 500),
    "satellite_one_log": Case(0.6, 1, 4, 500),
    "cable_2kB_batches": Case(0.02, 4, 4, 500),
}


async def measure_case(lines: Lines, case: Case, seconds: float) -> dict[str, Any]:
    run = secrets.token_hex(4)
    bulk, urgent = f"b{run}", f"u{run}"
    logs = await lines.make([f"{bulk}.alpha.{n}" for n in range(case.logs)])
    (alert,) = await lines.make([f"{urgent}.alpha"])
    wanted = LINE / 8 * (seconds + 15)
    for n in range(int(wanted / case.logs / case.records / case.size) + 1):
        await lines.append(logs, n * case.records, case.records, case.size)
    streams = {bulk: {"priority": "normal"}, urgent: {"priority": "urgent"}}
    taken: list[float] = []
    async with lines.copying(streams, rtt=case.rtt, line=LINE, rate=RATE) as (way, replicator):

        def data() -> int:
            return int(replicator.snapshot()["links"][0]["fetched_bytes"])

        began = await carried(way, WARM)
        wire, batches = way.down.bytes, data()
        while time.monotonic() - began < seconds:
            sent = time.monotonic()
            await lines.append([alert], len(taken), 1, ALERT)
            await lines.copied(alert, len(taken) + 1)
            taken.append(time.monotonic() - sent)
            await asyncio.sleep(0.37)  # no multiple of anything
        lasted = time.monotonic() - began
        wire, batches = way.down.bytes - wire, data() - batches
    return {
        **case._asdict(),
        "share": round(wire / lasted / (LINE / 8), 3),
        "data_share": round(batches / wire, 3),
        "alerts": len(taken),
        "alert_p50_s": round(statistics.median(taken), 2),
        "alert_max_s": round(max(taken), 2),
    }


async def measure_all(seconds: float) -> dict[str, Any]:
    async with two_sites() as lines:
        return {name: await measure_case(lines, case, seconds) for name, case in CASES.items()}


def measure(options: argparse.Namespace, say: Say) -> Figures:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(measure_all(options.seconds))


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=15.0)


if __name__ == "__main__":
    main("thin_link", {"thin_link": measure}, __doc__, add_options)
