"""Part ``sizes``: what the model of ``docs/sizing.md`` says, measured on two real brokers.

Each log gets a day of hourly readings, each a batch of its own, as a port's bridge stores them. One replicator copies
all of it to a site that has the logs, but no record.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime as dt
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.harbour import boxes, reading_body
from benchmarks.harness import Figures, Say
from benchmarks.processes import bytes_between, cpu_seconds, peak_rss_mb, sockets
from benchmarks.replication.fairlead_side import SOURCE, TARGET, fairlead
from benchmarks.replication.world import LOGS_AT_ONCE, World
from edge.logwriter.records import published
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.convention import term_batch
from fairlead.kafka.protocol.types import TopicPartition

SIZES: Final = (1_000, 5_000)
READINGS: Final = 24
WITHIN: Final = 900.0


def measure(options: argparse.Namespace, say: Say) -> Figures:
    """Measure each size on brokers of its own."""
    rows = []
    for logs in [options.topics] if options.topics else SIZES:
        say(f"{logs:,} logs")
        rows.append(asyncio.run(_copied(logs)))
    return {"rows": rows}


async def _copied(logs: int) -> dict[str, Any]:
    async with World.fresh() as world:
        empty = _on_disk(world, TARGET)
        made = await world.make_logs(logs)
        opened = _on_disk(world, TARGET)
        payload = await _fill(world.source, made.tps)
        memory_of_broker = world.resident(SOURCE)
        async with fairlead(world, made) as process:
            before = sockets(process)
            async with asyncio.timeout(WITHIN):
                await world.complete(dict.fromkeys(made.tps, READINGS))
            cpu, memory = cpu_seconds(process), peak_rss_mb(process)
            port = world.source.endpoint.bootstrap[0][1]
            wire = bytes_between(before, sockets(process), port)
        stored = await _stored(world.target, made.tps)
        return {
            "logs": logs,
            "records": logs * READINGS,
            "payload_bytes": payload,
            "stored_bytes": stored,
            "wire_bytes": wire,
            "disk_empty_bytes": empty,
            "disk_opened_bytes": opened,
            "disk_bytes": _on_disk(world, TARGET),
            "cpu_seconds": round(cpu, 2),
            "rss_mb": memory,
            "broker_rss_mb": round(memory_of_broker / 1e6),
        }


async def _fill(cluster: Cluster, tps: Collection[TopicPartition]) -> int:
    """Append the readings; return the bytes of one payload."""
    begins = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
    numbers = dict(zip(tps, boxes(len(tps)), strict=True))
    every = list(tps)
    size = 0
    for start in range(0, len(every), LOGS_AT_ONCE):
        for offset in range(READINGS):
            moment = begins + dt.timedelta(hours=offset)
            at_ms = int(moment.timestamp() * 1000)
            batches = {}
            for tp in every[start : start + LOGS_AT_ONCE]:
                body = msgspec.json.encode(reading_body(numbers[tp], offset, moment.isoformat()))
                size = len(body)
                record = published(body, key=f"dev-{numbers[tp]}", at_ms=at_ms, received_ms=at_ms)
                batches[tp] = term_batch([record], term=1, offset=offset, marker=0)
            for tp, result in (await cluster.produce(batches)).items():
                if not result.appended_now:
                    raise RuntimeError(f"{tp}: {result}")
    return size


async def _stored(cluster: Cluster, tps: Collection[TopicPartition]) -> int:
    found = await cluster.log_sizes(tps)
    return sum(size for size in found.values() if isinstance(size, int))


def _on_disk(world: World, site: str) -> int:
    """Bytes that a site's files take on the disk, in whole blocks."""
    total = 0
    for file in (Path(world.sites.folder) / "sites" / site).rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            total += file.lstat().st_blocks * 512
    return total
