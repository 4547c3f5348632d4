"""A site with the logs of very many containers, and readings in them, stored as a bridge stores them."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
import psutil

from benchmarks.brokers import fresh_port
from benchmarks.harbour import SITE, USER, boxes, log_of, reading_body
from benchmarks.harness import Say
from fairlead.kafka.admin import create_logs
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.convention import marker_record, term_batch
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.record import NewRecord
from fairlead.kafka.protocol.types import TP
from fairlead.local.sites import LocalSites
from fairlead.local.state import Profile
from fairlead.records import headers

SIZES: Final = (1, 1, 1, 2, 5)
"""Records in a batch, in turn: mostly one, as it comes every five minutes; some more after a while without a link."""
_AT_ONCE: Final = 500  # logs in one request
_BEGIN_MS: Final = 1_793_000_000_000
_INTERVAL_MS: Final = 300_000


@dataclass
class BenchmarkSite:
    """The site; ``ends`` is how many records each log has, its marker included."""

    sites: LocalSites
    ends: dict[str, int] = field(default_factory=dict)

    @property
    def endpoint(self) -> KafkaEndpoint:
        return self.sites.kafka(SITE, USER)

    def brokers(self) -> list[psutil.Process]:
        """The brokers' processes."""
        return [psutil.Process(pid) for what, pid in self.sites.status()[SITE].pids.items() if what.startswith("kafka")]

    def open_logs(self, count: int, say: Say) -> list[str]:
        """Make logs for so many boxes, with their markers only; return the boxes' numbers."""
        numbers = boxes(count)
        new = [number for number in numbers if log_of(number) not in self.ends]
        asyncio.run(self._open(new))
        say(f"{len(new):,} logs are there")
        return numbers

    def append(self, numbers: Sequence[str], readings: int, say: Say, *, sizes: Sequence[int] = SIZES) -> int:
        """So many readings to each of the boxes; how many batches that made."""
        batches = asyncio.run(self._append(numbers, readings, sizes))
        say(f"{len(numbers) * readings:,} readings in {batches:,} batches are stored")
        return batches

    async def _open(self, numbers: Sequence[str]) -> None:
        logs = [log_of(number) for number in numbers]
        async with await self._cluster() as cluster:
            await asyncio.to_thread(create_logs, self.endpoint, {log: {} for log in logs})
            await cluster.wait_writable(logs, timeout=600)
            marker = marker_record(b"opened for the benchmark", timestamp_ms=_BEGIN_MS)
            await self._produce(cluster, {log: (term_batch([marker], term=1, offset=0, marker=0), 1) for log in logs})

    async def _append(self, numbers: Sequence[str], readings: int, sizes: Sequence[int]) -> int:
        made = 0
        async with await self._cluster() as cluster:
            for size in _sizes(readings, sizes):
                for begin in range(0, len(numbers), _AT_ONCE):
                    new = {}
                    for number in numbers[begin : begin + _AT_ONCE]:
                        log = log_of(number)
                        first = self.ends[log]
                        records = [reading(number, sequence) for sequence in range(first, first + size)]
                        new[log] = term_batch(records, term=1, offset=first, marker=0), size
                    await self._produce(cluster, new)
                    made += len(new)
        return made

    async def _produce(self, cluster: Cluster, batches: dict[str, tuple[bytes, int]]) -> None:
        stored = await cluster.produce({TP(log): batch for log, (batch, _) in batches.items()})
        for tp, result in stored.items():
            if not result.appended_now:
                raise SystemExit(f"{tp} did not take a batch: {result}")
            self.ends[tp.topic] = self.ends.get(tp.topic, 0) + batches[tp.topic][1]

    async def _cluster(self) -> Cluster:
        return await Cluster.open(self.endpoint, client_id="bench", request_timeout=120)


def _sizes(readings: int, sizes: Sequence[int]) -> Iterator[int]:
    """These batch sizes in turn, for so many readings."""
    for size in itertools.cycle(sizes):
        if readings <= 0:
            return
        yield min(size, readings)
        readings -= size


def _rfc3339(milliseconds: int) -> str:
    return dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC).isoformat(timespec="milliseconds")


@contextlib.contextmanager
def fresh(logs: int) -> Iterator[BenchmarkSite]:
    """A fresh port with brokers for so many logs; removed afterwards."""
    with fresh_port(logs, Profile.DURABLE) as sites:
        yield BenchmarkSite(sites)


def reading(number: str, sequence: int) -> NewRecord:
    """What a box's device sent at its turn, with what the bridge adds."""
    now = _BEGIN_MS + sequence * _INTERVAL_MS + hash(number) % _INTERVAL_MS
    body = reading_body(number, sequence, _rfc3339(now))
    body["measurements"] |= {"supplyTemperature": 4 + now % 97 / 100, "returnTemperature": 5 + now % 89 / 100}
    body["motion"] = {"tiltDegrees": now % 31 / 10, "peakG": now % 17 / 100}
    received = ((headers.RECEIVED, str(now + 1_234).encode()),)
    return NewRecord(msgspec.json.encode(body), number.encode(), received, timestamp_ms=now)
