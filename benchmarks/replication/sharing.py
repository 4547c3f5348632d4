"""Part ``sharing``: the same logs by one replicator and by two of a group, and what happens when one is killed."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import psutil

from benchmarks.harness import Figures, Say
from benchmarks.processes import cpu_seconds
from benchmarks.replication.fairlead_side import fairlead, status_file
from benchmarks.replication.parts import BATCHES, MANY_TOPICS, PER_BATCH, RECORD_BYTES
from benchmarks.replication.world import Logs, World, append
from fairlead.kafka.protocol.types import TopicPartition

GROUP: Final = "bench"
NAMES: Final = ("0", "1")
KAFKAS_OWN: Final = {"group.initial.rebalance.delay.ms": "3000"}  # sites of fairlead up do not wait for more members
WITHIN: Final = 600.0
LOOK_SECONDS: Final = 0.1
TARGETS: Final = {"fetched_ratio": 1.02, "seconds_until_replaced": 10.0, "repeated_records": 0}


def measure(options: argparse.Namespace, say: Say) -> Figures:
    return asyncio.run(sharing(options.topics or MANY_TOPICS))


async def sharing(topics: int) -> dict[str, Any]:
    """One replicator alone, then two members with logs of their own; then one of the two is killed."""
    async with World.fresh(properties=KAFKAS_OWN) as world:
        sets = [await world.make_logs(topics) for _ in range(2)]
        shape = {"batches": BATCHES, "records": PER_BATCH, "size": RECORD_BYTES}
        ends = [await append(world.source, logs.tps, offset=0, **shape) for logs in sets]
        began = time.monotonic()
        async with fairlead(world, sets[0]) as process:
            one = await _copied(world, ends[0], {"": process}, began)
        began = time.monotonic()
        async with _pair(world, sets[1]) as processes:
            two = await _copied(world, ends[1], processes, began)
            shown = _status(world, NAMES[0])["group"]["members"].values()
            two["logs"] = [each["logs"] for each in shown]
            before = _count(world, "records", *NAMES)
            killed = time.monotonic()
            processes[NAMES[1]].kill()
            more = await append(
                world.source, sets[1].tps, offset=BATCHES * PER_BATCH, batches=1, records=PER_BATCH, size=RECORD_BYTES
            )
            async with asyncio.timeout(WITHIN):
                replaced = await world.complete(more) - killed
            added = await _settled(world, topics * PER_BATCH, _status(world, NAMES[1])["links"][0]["records"] - before)
        stored = await world.target.end_offsets(sets[1].tps)
        too_many = sum(max(0, end - more[tp]) for tp, end in stored.items() if isinstance(end, int))
    return {
        "topics": topics,
        "records_per_topic": BATCHES * PER_BATCH,
        "records_after": PER_BATCH,
        "fetched_ratio": round(two["fetched_mb"] / one["fetched_mb"], 4),
        "seconds_until_replaced": round(replaced, 2),
        "repeated_records": too_many + abs(before - sum(ends[1].values())) + abs(added - topics * PER_BATCH),
        "target": TARGETS,
        "one": one,
        "two": two,
    }


@contextlib.asynccontextmanager
async def _pair(world: World, logs: Logs) -> AsyncIterator[dict[str, psutil.Process]]:
    async with fairlead(world, logs, GROUP, NAMES[0]) as first, fairlead(world, logs, GROUP, NAMES[1]) as second:
        yield dict(zip(NAMES, (first, second), strict=True))


async def _copied(
    world: World, ends: Mapping[TopicPartition, int], processes: Mapping[str, psutil.Process], began: float
) -> dict[str, Any]:
    """Wait until every log ends at the target where it should; return what the processes used until then."""
    async with asyncio.timeout(WITHIN):
        until = await world.complete(ends)
    await _settled(world, sum(ends.values()), 0, *processes)
    return {
        "seconds": round(until - began, 2),
        "fetched_mb": round(_count(world, "fetched_bytes", *processes) / 1e6, 3),
        "cpu_seconds": round(sum(cpu_seconds(each) for each in processes.values()), 2),
    }


async def _settled(world: World, wanted: int, less: int, *members: str) -> int:
    """Wait until these members (by default the first) have counted ``wanted`` records; return how many they have.

    Args:
        less: Records that do not count.
    """
    async with asyncio.timeout(WITHIN):
        while True:
            found = _count(world, "records", *(members or NAMES[:1])) + less
            if found >= wanted:
                return found
            await asyncio.sleep(LOOK_SECONDS)


def _status(world: World, member: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(status_file(world.sites.folder, member).read_text(encoding="utf-8"))
    return found


def _count(world: World, what: str, *members: str) -> int:
    return sum(link[what] for member in members for link in _status(world, member)["links"])
