"""Thousands of small logs, the case that Fairlead is for: 20 records of about 190 B in each."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Final

from benchmarks.replication.copying import copy
from benchmarks.replication.fairlead_side import fairlead
from benchmarks.replication.load import append
from benchmarks.replication.mirrormaker_side import DELIVERED, Setting, mirrormaker
from benchmarks.replication.ratios import compare
from benchmarks.replication.world import World

TOPICS: Final = 9000
RECORD_BYTES: Final = 190
BATCHES, PER_BATCH = 4, 5  # small batches are harder for what copies batches
TARGET: Final = {"speed_ratio": 25, "cpu_ratio": 1 / 40, "rss_mb": 150}


async def measure(topics: int, *, settings: Sequence[Setting] = DELIVERED) -> dict[str, Any]:
    """Both sides on the same two brokers, each with its own topics, which exist at both sites beforehand."""
    async with World.fresh() as world:
        sets = [await world.make_logs(topics) for _ in range(2)]
        ends = [
            await append(world.source, logs.tps, offset=0, batches=BATCHES, records=PER_BATCH, size=RECORD_BYTES)
            for logs in sets
        ]
        # Fairlead first: its brokers have not warmed up yet.
        ours = await copy(world, fairlead, sets[0], ends[0], within=600)
        theirs = await copy(world, functools.partial(mirrormaker, settings=settings), sets[1], ends[1], within=1800)
    shape = {"topics": topics, "records_per_topic": BATCHES * PER_BATCH, "record_bytes": RECORD_BYTES}
    return {
        **shape,
        "records_per_batch": PER_BATCH,
        **compare(ours, theirs),
        "target": TARGET,
        "fairlead": ours,
        "mirrormaker": theirs,
    }
