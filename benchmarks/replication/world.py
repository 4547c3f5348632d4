"""Two fresh brokers, ``alpha`` and ``beta``, the logs of one measurement, and one side that copies them."""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import psutil
from confluent_kafka import KafkaError, Message, Producer

from benchmarks.brokers import BROKER, ONE_COPY, broker_heap
from benchmarks.processes import cpu_seconds, peak_rss_mb
from benchmarks.replication.fairlead_side import SOURCE, TARGET, USER
from fairlead.kafka.admin import LOG_DEFAULTS, create_logs
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.fetch_session import FetchSession
from fairlead.kafka.convention import term_batch
from fairlead.kafka.protocol.codecs import Codec
from fairlead.kafka.protocol.record import NewRecord
from fairlead.kafka.protocol.types import TopicPartition
from fairlead.local.sites import LocalSites, SiteSpec

SITES: Final = (SOURCE, TARGET)
WATCHED_AT_ONCE: Final = 250
LOOK_SECONDS: Final = 0.05
LONG_MS: Final = 1_800_000


@dataclass(frozen=True, slots=True)
class Logs:
    """The topics of one stream, which one side copies."""

    stream: str
    topics: tuple[str, ...]
    tps: tuple[TopicPartition, ...]


class World:
    """The two brokers, with a client of the harness to each."""

    def __init__(self, sites: LocalSites, source: Cluster, target: Cluster) -> None:
        self.sites, self.source, self.target = sites, source, target
        self._brokers = {
            name: [psutil.Process(pid) for what, pid in site.pids.items() if what != "mqtt"]
            for name, site in sites.status().items()
        }

    @classmethod
    @contextlib.asynccontextmanager
    async def fresh(
        cls, *, tls: bool = False, properties: Mapping[str, str] = MappingProxyType({}), brokers: int = 1
    ) -> AsyncIterator[World]:
        """Fresh brokers, removed with their data afterwards. Several brokers of a site have one copy of each log."""
        properties = {**BROKER, **(ONE_COPY if brokers > 1 else {}), **properties}
        with tempfile.TemporaryDirectory(prefix="fairlead-bench-") as folder:
            sites = LocalSites(Path(folder) / "sites")
            try:
                with broker_heap():
                    specs = [SiteSpec(site, properties=properties, brokers=brokers, tls=tls) for site in SITES]
                    await asyncio.to_thread(sites.up, specs)
                async with (
                    await Cluster.open(sites.kafka(SOURCE, USER), client_id="bench", request_timeout=120) as source,
                    await Cluster.open(sites.kafka(TARGET, USER), client_id="bench", request_timeout=120) as target,
                ):
                    yield cls(sites, source, target)
            finally:
                await asyncio.to_thread(sites.down, purge=True)

    async def make_logs(self, topics: int, *, partitions: int = 1) -> Logs:
        """Empty topics of a new stream, the same at both sites, and ready to be written."""
        stream = "b" + secrets.token_hex(4)
        names = tuple(f"{stream}.{SOURCE}.{number:06d}" for number in range(topics))
        counts = dict.fromkeys(names, partitions)
        for cluster in (self.source, self.target):
            # Local brokers have these settings as their defaults. With settings of their own, each new topic costs a
            # look at all logs of its broker: 100,000 took more than 27 minutes.
            await asyncio.to_thread(
                create_logs, cluster.endpoint, {name: {} for name in names}, partitions=counts, implied=LOG_DEFAULTS
            )
            await cluster.wait_writable(names, timeout=max(600, topics // 20))  # a slow machine opens 150 a second
        return Logs(stream, names, tuple(TopicPartition(name, n) for name in names for n in range(partitions)))

    def cpu(self) -> dict[str, float]:
        """CPU seconds so far of each site's brokers together."""
        return {name: sum(map(cpu_seconds, each)) for name, each in self._brokers.items()}

    def resident(self, site: str) -> int:
        """Bytes of memory that a site's brokers have resident together."""
        return sum(each.memory_info().rss for each in self._brokers[site])

    # ---- watching what arrives

    @contextlib.asynccontextmanager
    async def watch_first(self, logs: Logs) -> AsyncIterator[asyncio.Task[float]]:
        """A task that returns when (``time.monotonic``) the first record of these logs is at the target.

        It is one long poll over all of them, which the broker answers at the first append.
        """
        session = self.target.fetch_session()
        for tp in logs.tps:
            session.set(tp, 0)
        await session.poll(max_wait_ms=0, max_bytes=1, partition_max_bytes=1)
        task = asyncio.create_task(_first(session))
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await session.close()

    async def complete(self, ends: Mapping[TopicPartition, int]) -> float:
        """Wait until these logs end there at the target; the moment at which that was seen.

        Looks at a few logs at a time, so that looking takes next to nothing from the two brokers and cores.
        """
        tps = list(ends)
        for start in range(0, len(tps), WATCHED_AT_ONCE):
            left: Sequence[TopicPartition] = tps[start : start + WATCHED_AT_ONCE]
            while True:
                found = await self.target.end_offsets(left)
                left = [tp for tp in left if not _reached(found[tp], ends[tp])]
                if not left:
                    break
                await asyncio.sleep(LOOK_SECONDS)
        return time.monotonic()


async def _first(session: FetchSession) -> float:
    while True:
        answer = await session.poll(max_wait_ms=LONG_MS, max_bytes=1, partition_max_bytes=1)
        if any(part.records for part in answer.values()):
            return time.monotonic()


def _reached(found: object, end: int) -> bool:
    return isinstance(found, int) and found >= end


LOGS_AT_ONCE: Final = 500
POOL: Final = 4000  # different values: 2 MB of 500 B each, more than lz4 looks back


async def append(
    cluster: Cluster, tps: Sequence[TopicPartition], *, offset: int, batches: int, records: int, size: int
) -> dict[TopicPartition, int]:
    """Append batches of ``records`` records of ``size`` bytes (lz4) to each log, as Fairlead's bridge writes them.

    Returns:
        Where each log ends now.
    """
    stamp = int(time.time() * 1000)
    values = _values(size)
    for start in range(0, len(tps), LOGS_AT_ONCE):
        for number in range(batches):
            at = offset + number * records
            appended = {}
            for tp in tps[start : start + LOGS_AT_ONCE]:
                new = [NewRecord(random.choice(values), timestamp_ms=stamp + n) for n in range(records)]  # noqa: S311
                appended[tp] = term_batch(new, term=1, offset=at, marker=0, codec=Codec.LZ4)
            for tp, result in (await cluster.produce(appended)).items():
                if not result.appended_now:
                    raise RuntimeError(f"{tp}: {result}")
    return dict.fromkeys(tps, offset + batches * records)


def produce(world: World, logs: Logs, *, records: int, size: int, settings: dict[str, object]) -> None:
    """Write with an ordinary producer, in turn to each partition."""
    producer = Producer({**world.source.endpoint.librdkafka(), "log_level": 0, "compression.type": "lz4", **settings})
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failed.append(error)

    values = _values(size)
    for number in range(records):
        tp = logs.tps[number % len(logs.tps)]
        while True:
            try:
                producer.produce(tp.topic, values[number % POOL], partition=tp.partition, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    left = producer.flush(120)
    if left or failed:
        raise RuntimeError(f"{left} records not written, {len(failed)} failed: {failed[:1]}")


def _values(size: int) -> list[bytes]:
    """Hexadecimal noise: compresses to about half, as telemetry does."""
    return [random.randbytes((size + 1) // 2).hex()[:size].encode() for _ in range(POOL)]  # noqa: S311


CORES: Final = psutil.cpu_count() or 1
Side = Callable[[World, Logs], contextlib.AbstractAsyncContextManager[psutil.Process]]


async def copy(
    world: World,
    side: Side,
    logs: Logs,
    ends: Mapping[TopicPartition, int],
    *,
    within: float,
    then: Callable[[psutil.Process], Awaitable[dict[str, float]]] | None = None,
) -> dict[str, Any]:
    """Start the side, wait until every log ends at the target where it should, stop it.

    Args:
        ends: Where each log ends at the source; all are empty at the target.
        within: Seconds after which it is given up.
        then: Measures more while the side still runs.

    Returns:
        Seconds from the start of the process and from the first record at the target, both to the last record there;
        CPU of the process and of the two brokers from start to then; the most memory the process had. ``floor_ratio``
        is the seconds from the first record beside those in which all cores could do what all three did meanwhile.
    """
    records = sum(ends.values())
    before = world.cpu()
    async with world.watch_first(logs) as watched:
        began = time.monotonic()
        async with side(world, logs) as process:
            first = asyncio.create_task(_first_seen(world, process, watched))
            async with asyncio.timeout(within):
                until = await world.complete(ends)
            cpu, memory, after = cpu_seconds(process), peak_rss_mb(process), world.cpu()
            arrived, before_first = await first
            more = {} if then is None else await then(process)
    seconds, from_first = until - began, until - arrived
    brokers = {name: after[name] - before[name] for name in after}
    meanwhile = cpu + sum(after.values()) - before_first
    return {
        "records": records,
        "seconds_from_start": round(seconds, 2),
        "seconds_from_first_record": round(from_first, 2),
        "records_per_second": round(records / seconds),
        "cpu_seconds": round(cpu, 2),
        "rss_mb": memory,
        "source_broker_cpu_seconds": round(brokers[SOURCE], 2),
        "target_broker_cpu_seconds": round(brokers[TARGET], 2),
        "floor_ratio": round(from_first / (meanwhile / CORES), 2),
        **more,
    }


async def _first_seen(world: World, process: psutil.Process, watched: asyncio.Task[float]) -> tuple[float, float]:
    """When the first record is at the target, and the CPU that the process and all brokers had used by then."""
    return await watched, cpu_seconds(process) + sum(world.cpu().values())
