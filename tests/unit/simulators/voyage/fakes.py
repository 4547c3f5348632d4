"""Clusters in memory, for code that reads logs through ``fairlead.kafka.clusters``."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Collection, Mapping
from typing import cast

from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.clusters import Clusters
from fairlead.kafka.convention import marker_record, term_batch
from fairlead.kafka.endpoint import MqttEndpoint
from fairlead.kafka.protocol.record import NewRecord
from fairlead.kafka.protocol.types import TP, FetchedPartition, TopicInfo

FIRST_MS = 1_788_220_800_000


class FakeCluster:
    """Logs by name. Each begins with the marker that opens it."""

    def __init__(self) -> None:
        self.logs: dict[str, list[NewRecord]] = {}
        self._looks = 0
        self._looked = asyncio.Event()

    async def looked_at(self, times: int) -> None:
        """Return when ends were asked for so often."""
        while self._looks < times:
            self._looked.clear()
            await self._looked.wait()

    def append(self, log: str, *values: bytes) -> None:
        records = self.logs.setdefault(log, [marker_record(log.encode(), timestamp_ms=FIRST_MS)])
        records += [NewRecord(value, timestamp_ms=FIRST_MS + len(records)) for value in values]

    def lengthen(self, log: str, end: int) -> None:
        """Append until the log ends at ``end``."""
        self.append(log)
        self.append(log, *[b"{}"] * (end - len(self.logs[log])))

    async def topics(self, names: Collection[str] | None = None, *, refresh: bool = False) -> dict[str, TopicInfo]:
        return {
            name: TopicInfo(name, uuid.uuid5(uuid.NAMESPACE_OID, name).bytes, {0: 1})
            for name in self.logs
            if names is None or name in names
        }

    async def end_offsets(self, logs: Collection[TP]) -> dict[TP, int]:
        self._looks += 1
        self._looked.set()
        return {log: len(self.logs[log.topic]) for log in logs}

    async def start_offsets(self, logs: Collection[TP]) -> dict[TP, int]:
        return dict.fromkeys(logs, 0)

    async def fetch(
        self, positions: Mapping[TP, int], *, max_wait_ms: int = 500, partition_max_bytes: int = 1 << 20
    ) -> dict[TP, FetchedPartition]:
        """The whole log as one batch, as a broker gives the batch that contains the offset asked for."""
        out = {}
        for log in positions:
            records = self.logs[log.topic]
            batch = bytearray(term_batch(records, term=1, offset=0, marker=0))
            out[log] = FetchedPartition(0, len(records), len(records), 0, (), memoryview(batch))
        return out


class FakeClusters(Clusters):
    """One fake per site, there from the beginning."""

    def __init__(self, *sites: str) -> None:
        self.fakes = {site: FakeCluster() for site in sites}

    def __getitem__(self, site: str) -> FakeCluster:
        return self.fakes[site]

    async def at(self, site: str) -> Cluster:
        return cast(Cluster, self.fakes[site])

    async def close(self) -> None:
        """Nothing to close."""


def nobody(site: str) -> MqttEndpoint:
    """The brokers of a voyage that publishes nothing: asking for one fails."""
    raise AssertionError(f"no broker of {site} is wanted here")
