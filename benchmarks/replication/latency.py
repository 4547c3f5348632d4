"""A fresh record on an idle link of ten thousand logs: how long until it can be read at the target."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from typing import Any, Final

from benchmarks.replication.fairlead_side import fairlead
from benchmarks.replication.load import append
from benchmarks.replication.ratios import percentile
from benchmarks.replication.world import World
from fairlead.kafka.protocol.types import TopicPartition

LOGS: Final = 10_000
RECORDS: Final = 400
SETTLE: Final = 30.0
PAUSE: Final = (0.2, 0.6)  # seconds between two records: single ones on an idle link, in no step with anything
TARGET: Final = {"p50_ms": 20.0, "p99_ms": 100.0}


async def measure(logs: int) -> dict[str, Any]:
    """From sending the record to the source until a reader at the target has it: the source's append is included."""
    async with World.fresh() as world:
        made = await world.make_logs(logs)
        ends = await append(world.source, made.tps, offset=0, batches=1, records=20, size=190)
        async with fairlead(world, made):
            await world.complete(ends)
            await asyncio.sleep(SETTLE)
            taken, appended = [], []
            for tp in random.choices(made.tps, k=RECORDS):  # noqa: S311
                whole, source = await _one(world, tp, ends[tp])
                ends[tp] += 1
                taken.append(whole * 1000)
                appended.append(source * 1000)
    return {
        "logs": logs,
        "records": RECORDS,
        "p50_ms": round(percentile(taken, 50), 1),
        "p90_ms": round(percentile(taken, 90), 1),
        "p99_ms": round(percentile(taken, 99), 1),
        "max_ms": round(max(taken), 1),
        "source_append_p50_ms": round(statistics.median(appended), 1),
        "target": TARGET,
    }


async def _one(world: World, tp: TopicPartition, at: int) -> tuple[float, float]:
    """Seconds until the record is at the target, and until the source has acknowledged it."""
    session = world.target.fetch_session()
    session.set(tp, at)
    await session.poll(max_wait_ms=0)
    reading = asyncio.create_task(_read(session, tp))
    await asyncio.sleep(random.uniform(*PAUSE))  # noqa: S311
    began = time.monotonic()
    await append(world.source, [tp], offset=at, batches=1, records=1, size=190)
    appended = time.monotonic()
    arrived = await reading
    await session.close()
    return arrived - began, appended - began


async def _read(session: Any, tp: TopicPartition) -> float:
    while True:
        answer = await session.poll(max_wait_ms=30_000)
        if tp in answer and answer[tp].records:
            return time.monotonic()
