"""Ten thousand mirrored logs in which nothing happens: what standing by costs replicator, link and brokers."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

import psutil

from benchmarks.replication.fairlead_side import fairlead
from benchmarks.replication.gauge import bytes_between, cpu_seconds, peak_rss_mb, sockets
from benchmarks.replication.load import append
from benchmarks.replication.world import World

LOGS: Final = 10_000
TRYING: Final = 0.05  # of all these times with fewer logs, where only the harness is tried out
SETTLE: Final = 60.0  # seconds after the last record before standing by begins: what looks for news has calmed down
SECONDS: Final = 180.0
ALONE_SECONDS: Final = 60.0
TARGET: Final = {"core_percent": 1.0, "wire_kb_per_second": 20.0, "source_broker_core_percent": 10.0}


async def measure(logs: int) -> dict[str, Any]:
    """Each figure is a mean over ``SECONDS``. The brokers' own cost with these logs is measured without a replicator,
    and given beside what they use with one. The comparison of settings, once in half an hour with so many logs, falls
    outside: about 4.5 MB, 2.5 kB/s."""
    settle, seconds, alone_seconds = (
        each * (1.0 if logs >= LOGS else TRYING) for each in (SETTLE, SECONDS, ALONE_SECONDS)
    )
    async with World.fresh() as world:
        made = await world.make_logs(logs)
        ends = await append(world.source, made.tps, offset=0, batches=1, records=20, size=190)
        await asyncio.sleep(settle)
        alone = await _percent(world.brokers, alone_seconds)
        async with fairlead(world, made) as process:
            await world.complete(ends)
            await asyncio.sleep(settle)
            ports = {name: endpoint.bootstrap[0][1] for name, endpoint in _endpoints(world).items()}
            before = sockets(process)
            used = await _percent({**world.brokers, "replicator": process}, seconds)
            after = sockets(process)
            memory = peak_rss_mb(process)
    wire = {name: round(bytes_between(before, after, port) / seconds / 1e3, 2) for name, port in ports.items()}
    return {
        "logs": logs,
        "seconds": seconds,
        "core_percent": used["replicator"],
        "rss_mb": memory,
        "wire_kb_per_second": round(bytes_between(before, after) / seconds / 1e3, 2),
        "wire_to_source_kb_per_second": wire["alpha"],
        "wire_to_target_kb_per_second": wire["beta"],
        "source_broker_core_percent": used["alpha"],
        "source_broker_core_percent_alone": alone["alpha"],
        "target_broker_core_percent": used["beta"],
        "target_broker_core_percent_alone": alone["beta"],
        "target": TARGET,
    }


def _endpoints(world: World) -> dict[str, Any]:
    return {"alpha": world.source.endpoint, "beta": world.target.endpoint}


async def _percent(processes: dict[str, psutil.Process], seconds: float) -> dict[str, float]:
    """Percent of one core that each process uses now."""
    began, before = time.monotonic(), {name: cpu_seconds(process) for name, process in processes.items()}
    await asyncio.sleep(seconds)
    took = time.monotonic() - began
    return {name: round((cpu_seconds(each) - before[name]) / took * 100, 2) for name, each in processes.items()}
