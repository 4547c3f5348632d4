"""The measurements beside MirrorMaker, and of Fairlead alone.

``many_topics`` and ``bulk`` copy with both sides on the same two brokers, one after the other, each with its own
topics, which exist at both sites beforehand. ``tls`` copies one busy topic through TLS (SASL_SSL at both ends) and
without, in turn, each on brokers of its own; the best round counts, since the first ones find brokers that are not
warm.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import random
import statistics
import time
from collections.abc import Sequence
from typing import Any, Final

import psutil

from benchmarks.brokers import brokers_for
from benchmarks.harness import Figures, Say
from benchmarks.processes import bytes_between, cpu_seconds, peak_rss_mb, sockets
from benchmarks.replication.fairlead_side import SOURCE, TARGET, fairlead
from benchmarks.replication.mirrormaker_side import DELIVERED, Setting, described, mirrormaker
from benchmarks.replication.ratios import compare, growth_ratios, growth_targets, percentile, tls_ratios
from benchmarks.replication.world import Logs, World, append, copy, produce
from fairlead.kafka.admin import create_logs
from fairlead.kafka.protocol.batch import split
from fairlead.kafka.protocol.types import TopicPartition

MANY_TOPICS: Final = 9000
RECORD_BYTES: Final = 190
BATCHES, PER_BATCH = 4, 5  # small batches are harder for what copies batches
FLOOR: Final = 1.4
MANY_TARGET: Final = {"speed_ratio_from_start": 18, "cpu_ratio": 1 / 60, "rss_mb": 150, "floor_ratio": FLOOR}


async def many_topics(topics: int, *, settings: Sequence[Setting] = DELIVERED) -> dict[str, Any]:
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
        "target": MANY_TARGET,
        "fairlead": ours,
        "mirrormaker": theirs,
    }


BULK_PARTITIONS: Final = 8
BULK_RECORDS: Final = 1_000_000
BULK_RECORD_BYTES: Final = 500
# librdkafka's defaults: linger 5 ms and up to 1 MB, so the size of the batches follows from how fast it is fed.
PRODUCER: Final[dict[str, object]] = {}
BULK_TARGET: Final = {"speed_ratio_from_first_record": 6, "cpu_ratio": 1 / 30, "floor_ratio": FLOOR}


async def bulk(records: int = BULK_RECORDS, *, settings: Sequence[Setting] = DELIVERED) -> dict[str, Any]:
    """Both sides on the same two brokers, each with its own topic, which exists at both sites beforehand."""
    async with World.fresh() as world:
        sets = [await world.make_logs(1, partitions=BULK_PARTITIONS) for _ in range(2)]
        for logs in sets:
            await asyncio.to_thread(produce, world, logs, records=records, size=BULK_RECORD_BYTES, settings=PRODUCER)
        ends = [await ends_of(world, logs) for logs in sets]
        per_batch = await _records_per_batch(world, sets[0])
        ours = await copy(world, fairlead, sets[0], ends[0], within=600)
        theirs = await copy(world, functools.partial(mirrormaker, settings=settings), sets[1], ends[1], within=1800)
    return {
        "topics": 1,
        "partitions": BULK_PARTITIONS,
        "records": records,
        "record_bytes": BULK_RECORD_BYTES,
        "records_per_batch": per_batch,
        **compare(ours, theirs),
        "target": BULK_TARGET,
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


IDLE_LOGS: Final = 10_000
IDLE_TRYING: Final = 0.05  # the share of all these times when there are fewer logs, for trying out
IDLE_SETTLE: Final = 60.0  # seconds between the last record and the measurement
IDLE_SECONDS: Final = 180.0
IDLE_ALONE_SECONDS: Final = 60.0
IDLE_TARGET: Final = {"core_percent": 0.5, "wire_kb_per_second": 20.0, "source_broker_core_percent": 10.0}


async def idle(logs: int) -> dict[str, Any]:
    """Each figure is a mean over ``IDLE_SECONDS``. The brokers' own cost with these logs is measured without a
    replicator, and given beside what they use with one. The comparison of settings, once in half an hour with so many
    logs, falls
    outside: about 4.5 MB, 2.5 kB/s."""
    settle, seconds, alone_seconds = (
        each * (1.0 if logs >= IDLE_LOGS else IDLE_TRYING) for each in (IDLE_SETTLE, IDLE_SECONDS, IDLE_ALONE_SECONDS)
    )
    async with World.fresh() as world:
        made = await world.make_logs(logs)
        ends = await append(world.source, made.tps, offset=0, batches=1, records=20, size=190)
        await asyncio.sleep(settle)
        alone = await _percent(world, alone_seconds)
        async with fairlead(world, made) as process:
            await world.complete(ends)
            await asyncio.sleep(settle)
            ports = {name: endpoint.bootstrap[0][1] for name, endpoint in _endpoints(world).items()}
            before = sockets(process)
            used = await _percent(world, seconds, process)
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
        "target": IDLE_TARGET,
    }


def _endpoints(world: World) -> dict[str, Any]:
    return {"alpha": world.source.endpoint, "beta": world.target.endpoint}


async def _percent(world: World, seconds: float, replicator: psutil.Process | None = None) -> dict[str, float]:
    """Percent of one core that each site's brokers, and the replicator, use now."""

    def used() -> dict[str, float]:
        return world.cpu() | ({} if replicator is None else {"replicator": cpu_seconds(replicator)})

    began, before = time.monotonic(), used()
    await asyncio.sleep(seconds)
    took, after = time.monotonic() - began, used()
    return {name: round((after[name] - before[name]) / took * 100, 2) for name in after}


LATENCY_LOGS: Final = 10_000
LATENCY_RECORDS: Final = 400
LATENCY_SETTLE: Final = 30.0
LATENCY_PAUSE: Final = (0.2, 0.6)  # seconds between two records: single ones on an idle link, in no step with anything
LATENCY_TARGET: Final = {"p50_ms": 20.0, "p99_ms": 100.0}


async def latency(logs: int) -> dict[str, Any]:
    """From sending the record to the source until a reader at the target has it: the source's append is included."""
    async with World.fresh() as world:
        made = await world.make_logs(logs)
        ends = await append(world.source, made.tps, offset=0, batches=1, records=20, size=190)
        async with fairlead(world, made):
            await world.complete(ends)
            await asyncio.sleep(LATENCY_SETTLE)
            taken, appended = [], []
            for tp in random.choices(made.tps, k=LATENCY_RECORDS):  # noqa: S311
                whole, source = await _one(world, tp, ends[tp])
                ends[tp] += 1
                taken.append(whole * 1000)
                appended.append(source * 1000)
    return {
        "logs": logs,
        "records": LATENCY_RECORDS,
        "p50_ms": round(percentile(taken, 50), 1),
        "p90_ms": round(percentile(taken, 90), 1),
        "p99_ms": round(percentile(taken, 99), 1),
        "max_ms": round(max(taken), 1),
        "source_append_p50_ms": round(statistics.median(appended), 1),
        "target": LATENCY_TARGET,
    }


async def _one(world: World, tp: TopicPartition, at: int) -> tuple[float, float]:
    """Seconds until the record is at the target, and until the source has acknowledged it."""
    session = world.target.fetch_session()
    session.set(tp, at)
    await session.poll(max_wait_ms=0)
    reading = asyncio.create_task(_read(session, tp))
    await asyncio.sleep(random.uniform(*LATENCY_PAUSE))  # noqa: S311
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


TLS_ROUNDS: Final = 4
TLS_RECORDS: Final = 1_000_000
TLS_TARGET: Final = {"throughput_ratio": 0.4}


async def tls(records: int = TLS_RECORDS) -> dict[str, Any]:
    """The replicator alone, with and without TLS, in turn."""
    rounds: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
    async with World.fresh() as plain, World.fresh(tls=True) as tls:
        for _ in range(TLS_ROUNDS):
            for world, wanted in ((plain, False), (tls, True)):
                rounds[wanted].append(await _round(world, records))
    best = {
        wanted: min(found, key=lambda each: float(each["seconds_from_first_record"]))
        for wanted, found in rounds.items()
    }
    return {
        "partitions": BULK_PARTITIONS,
        "records": records,
        "record_bytes": BULK_RECORD_BYTES,
        "rounds": TLS_ROUNDS,
        **tls_ratios(best[False], best[True]),
        "target": TLS_TARGET,
        "plaintext": best[False],
        "tls": best[True],
    }


async def _round(world: World, records: int) -> dict[str, Any]:
    logs = await world.make_logs(1, partitions=BULK_PARTITIONS)
    await asyncio.to_thread(produce, world, logs, records=records, size=BULK_RECORD_BYTES, settings=PRODUCER)
    return await copy(world, fairlead, logs, await ends_of(world, logs), within=600)


GROWTH_LOGS: Final = (10_000, 30_000, 100_000)
GROWTH_BROKERS: Final = brokers_for(30_000)
"""The fewest brokers at each end. All brokers share the cores of one machine, and each warms up by itself: with one for
10,000 logs and three for 30,000, their number counts more than that of the logs."""
GROWTH_SECONDS: Final = 60.0  # of standing by


async def growth(sizes: tuple[int, ...], say: Say) -> dict[str, Any]:
    """Each number of logs on fresh brokers, as many as they need but at least ``GROWTH_BROKERS``; logs as in
    ``many_topics``. Then the replicator stands by, and one more log is made and written at the source."""
    rows = []
    for count in sizes:
        brokers = max(brokers_for(count), GROWTH_BROKERS)
        async with World.fresh(brokers=brokers) as world:
            began = time.monotonic()
            logs = await world.make_logs(count)
            ends = await append(world.source, logs.tps, offset=0, batches=BATCHES, records=PER_BATCH, size=RECORD_BYTES)
            say(f"{count:,} logs made and filled in {time.monotonic() - began:.0f} s")
            shape = {"logs": count, "brokers": brokers}
            standing_by = functools.partial(_stand_by, world, logs)
            rows.append({**shape, **await copy(world, fairlead, logs, ends, within=1800, then=standing_by)})
            say(str(rows[-1]))
    return {"rows": rows, **growth_ratios(rows), "target": growth_targets(rows)}


async def _stand_by(world: World, logs: Logs, process: psutil.Process) -> dict[str, float]:
    """What the replicator and all brokers use when all is copied, and how long until the first records of a new log are
    copied."""
    await asyncio.sleep(IDLE_SETTLE)
    used = await _percent(world, GROWTH_SECONDS, process)
    new = TopicPartition(f"{logs.stream}.{SOURCE}.new")
    await asyncio.to_thread(create_logs, world.source.endpoint, {new.topic: {}})
    await world.source.wait_writable([new.topic], timeout=60)
    ends = await append(world.source, [new], offset=0, batches=1, records=PER_BATCH, size=RECORD_BYTES)
    began = time.monotonic()
    async with asyncio.timeout(600):
        copied = await world.complete(ends)
    return {
        "core_percent": used["replicator"],
        "brokers_core_percent": round(used[SOURCE] + used[TARGET], 1),
        "new_log_seconds": round(copied - began, 1),
    }


def measure_many_topics(options: argparse.Namespace, say: Say, settings: Sequence[Setting]) -> Figures:
    return asyncio.run(many_topics(options.topics or MANY_TOPICS, settings=settings))


def measure_bulk(options: argparse.Namespace, say: Say, settings: Sequence[Setting]) -> Figures:
    records = options.topics * 100 if options.topics else BULK_RECORDS
    return asyncio.run(bulk(records, settings=settings))


def measure_idle(options: argparse.Namespace, say: Say) -> Figures:
    return asyncio.run(idle(options.topics or IDLE_LOGS))


def measure_latency(options: argparse.Namespace, say: Say) -> Figures:
    return asyncio.run(latency(options.topics or LATENCY_LOGS))


def measure_tls(options: argparse.Namespace, say: Say) -> Figures:
    return asyncio.run(tls(options.topics * 100 if options.topics else TLS_RECORDS))


def measure_growth(options: argparse.Namespace, say: Say) -> Figures:
    n = options.topics
    return asyncio.run(growth((n // 10, n // 3, n) if n else GROWTH_LOGS, say))


def describe_peer(options: argparse.Namespace, say: Say) -> Figures:
    return described()
