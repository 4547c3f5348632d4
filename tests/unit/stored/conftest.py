"""What a small voyage left on disk on 2026-11-22: logs, tables, checkpoints, state files, a recording, topologies.

``minimal-2026-11-22.tar.xz`` was written by the Fairlead of that day: scenario ``harbour`` on topology ``minimal``, and
afterwards a pause and a resume of a link, a grant and two seizures by order, and readings that became strays.
``logs/<site>/<topic>.log`` are Kafka's own segments, ``state/`` is the topology's state folder (of large tables only
the Delta log), ``expected.json`` is what the Fairlead of that day read in them. The archive is never written again.
"""

from __future__ import annotations

import json
import tarfile
import uuid
from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import pytest

from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.protocol.batch import split
from fairlead.kafka.protocol.record import Record, decode_batch
from fairlead.kafka.protocol.types import TP, FetchedPartition, TopicInfo

ARCHIVE = Path(__file__).parent / "minimal-2026-11-22.tar.xz"


class StoredCluster:
    """A site's logs as its Kafka would give them."""

    def __init__(self, folder: Path) -> None:
        self.logs = {file.stem: file.read_bytes() for file in sorted(folder.glob("*.log"))}
        self.records = {topic: list(_records(data)) for topic, data in self.logs.items()}

    def end(self, topic: str) -> int:
        return self.records[topic][-1].offset + 1

    async def topics(self, names: Collection[str] | None = None, *, refresh: bool = False) -> dict[str, TopicInfo]:
        return {
            name: TopicInfo(name, uuid.uuid5(uuid.NAMESPACE_OID, name).bytes, {0: 1})
            for name in self.logs
            if names is None or name in names
        }

    async def end_offsets(self, logs: Collection[TP]) -> dict[TP, int]:
        return {log: self.end(log.topic) for log in logs}

    async def start_offsets(self, logs: Collection[TP]) -> dict[TP, int]:
        return dict.fromkeys(logs, 0)

    async def fetch(
        self, positions: Mapping[TP, int], *, max_wait_ms: int = 500, partition_max_bytes: int = 1 << 20
    ) -> dict[TP, FetchedPartition]:
        """From the batch that has the offset asked for to the log's end."""
        out = {}
        for log, offset in positions.items():
            data, end = self.logs[log.topic], self.end(log.topic)
            views = (v for v in split(data) if v.header.base_offset + v.header.last_offset_delta >= offset)
            start = next((view.start for view in views), len(data))
            out[log] = FetchedPartition(0, end, end, 0, (), memoryview(bytearray(data[start:])))
        return out


def _records(data: bytes) -> list[Record]:
    return [record for view in split(data) for record in decode_batch(data[view.start : view.stop])]


class StoredFleet:
    """The archive, unpacked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.expected: Any = json.loads((folder / "expected.json").read_text(encoding="utf-8"))

    @cached_property
    def sites(self) -> dict[str, StoredCluster]:
        return {folder.name: StoredCluster(folder) for folder in sorted((self.folder / "logs").iterdir())}

    def cluster(self, site: str) -> Cluster:
        return cast(Cluster, self.sites[site])


@pytest.fixture(scope="session")
def stored(tmp_path_factory: pytest.TempPathFactory) -> StoredFleet:
    folder = tmp_path_factory.mktemp("stored")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return StoredFleet(folder)
