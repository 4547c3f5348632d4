"""One side copies one set of logs: how long, how much CPU, how much memory. The same for both sides."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any

import psutil

from benchmarks.replication.gauge import cpu_seconds, peak_rss_mb
from benchmarks.replication.world import Logs, World
from fairlead.kafka.protocol.types import TopicPartition

Side = Callable[[World, Logs], contextlib.AbstractAsyncContextManager[psutil.Process]]


async def copy(
    world: World, side: Side, logs: Logs, ends: Mapping[TopicPartition, int], *, within: float
) -> dict[str, Any]:
    """Start the side, wait until every log ends at the target where it should, stop it.

    Args:
        ends: Where each log ends at the source; all are empty at the target.
        within: Seconds after which it is given up.

    Returns:
        Seconds from the start of the process and from the first record at the target, both to the last record there;
        CPU of the process and of the two brokers from start to then; the most memory the process had.
    """
    records = sum(ends.values())
    brokers = {name: cpu_seconds(process) for name, process in world.brokers.items()}
    async with world.watch_first(logs) as first:
        began = time.monotonic()
        async with side(world, logs) as process:
            async with asyncio.timeout(within):
                until = await world.complete(ends)
            cpu, memory = cpu_seconds(process), peak_rss_mb(process)
            brokers = {name: cpu_seconds(each) - brokers[name] for name, each in world.brokers.items()}
            from_first = until - await first
    seconds = until - began
    return {
        "records": records,
        "seconds_from_start": round(seconds, 2),
        "seconds_from_first_record": round(from_first, 2),
        "records_per_second": round(records / seconds),
        "cpu_seconds": round(cpu, 2),
        "rss_mb": memory,
        "source_broker_cpu_seconds": round(brokers["alpha"], 2),
        "target_broker_cpu_seconds": round(brokers["beta"], 2),
    }
