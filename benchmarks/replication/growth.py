"""A first copy of 1,000, 4,000 and 16,000 logs: time and memory grow no faster than the number of logs."""

from __future__ import annotations

from typing import Any, Final

from benchmarks.replication import ratios
from benchmarks.replication.copying import copy
from benchmarks.replication.fairlead_side import fairlead
from benchmarks.replication.load import append
from benchmarks.replication.many_topics import BATCHES, PER_BATCH, RECORD_BYTES
from benchmarks.replication.world import World

LOGS: Final = (1000, 4000, 16_000)


async def measure(sizes: tuple[int, ...]) -> dict[str, Any]:
    """Each number of logs on two fresh brokers of its own; logs as in ``many_topics``."""
    rows = []
    for count in sizes:
        async with World.fresh() as world:
            logs = await world.make_logs(count)
            ends = await append(world.source, logs.tps, offset=0, batches=BATCHES, records=PER_BATCH, size=RECORD_BYTES)
            rows.append({"logs": count, **await copy(world, fairlead, logs, ends, within=900)})
    return {"rows": rows, **ratios.growth(rows), "target": ratios.growth_targets(rows)}
