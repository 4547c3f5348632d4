"""One busy topic: 8 partitions, a million records of 500 B, written by an ordinary producer."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence
from typing import Any, Final

from benchmarks.replication.copying import copy
from benchmarks.replication.fairlead_side import fairlead
from benchmarks.replication.load import produce
from benchmarks.replication.mirrormaker_side import DELIVERED, Setting, mirrormaker
from benchmarks.replication.ratios import compare
from benchmarks.replication.world import Logs, World
from fairlead.kafka.protocol.batch import split
from fairlead.kafka.protocol.types import TopicPartition

PARTITIONS: Final = 8
RECORDS: Final = 1_000_000
RECORD_BYTES: Final = 500
# librdkafka's defaults: linger 5 ms and up to 1 MB, so the size of the batches follows from how fast it is fed.
PRODUCER: Final[dict[str, object]] = {}
TARGET: Final = {"speed_ratio": 10, "cpu_ratio": 1 / 30}


async def measure(records: int = RECORDS, *, settings: Sequence[Setting] = DELIVERED) -> dict[str, Any]:
    """Both sides on the same two brokers, each with its own topic, which exists at both sites beforehand."""
    async with World.fresh() as world:
        sets = [await world.make_logs(1, partitions=PARTITIONS) for _ in range(2)]
        for logs in sets:
            await asyncio.to_thread(produce, world, logs, records=records, size=RECORD_BYTES, settings=PRODUCER)
        ends = [await ends_of(world, logs) for logs in sets]
        per_batch = await _records_per_batch(world, sets[0])
        ours = await copy(world, fairlead, sets[0], ends[0], within=600)
        theirs = await copy(world, functools.partial(mirrormaker, settings=settings), sets[1], ends[1], within=1800)
    return {
        "topics": 1,
        "partitions": PARTITIONS,
        "records": records,
        "record_bytes": RECORD_BYTES,
        "records_per_batch": per_batch,
        **compare(ours, theirs),
        "target": TARGET,
        "fairlead": ours,
        "mirrormaker": theirs,
    }


async def ends_of(world: World, logs: Logs) -> dict[TopicPartition, int]:
    """Where each partition ends at the source."""
    ends = await world.source.end_offsets(logs.tps)
    return {tp: end for tp, end in ends.items() if isinstance(end, int)}


async def _records_per_batch(world: World, logs: Logs) -> float:
    """Of the first megabytes of each partition."""
    found = await world.source.fetch(dict.fromkeys(logs.tps, 0), partition_max_bytes=4 << 20, max_bytes=64 << 20)
    counts = [batch.header.count for part in found.values() for batch in split(part.records)]
    return round(sum(counts) / len(counts), 1)
