"""Everything that verbs touch: both ends' Kafka as their ``admin``, orders, replicators' status files.

``Ground`` is what the rest sees, so that tests can stand on another one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

from fairlead.clusters import Clusters
from fairlead.endpoint import KafkaEndpoint
from fairlead.wire.types import TopicPartition
from replication.orders import Order, Orders
from replication.verbs.status import Status, read_status
from replication.verbs.topic import append_orders, orders_of

TIMEOUT: Final = 10.0  # seconds for a site to answer


class Ground(Protocol):
    """What is there."""

    async def ends(self, site: str, wanted: Callable[[str], bool]) -> dict[TopicPartition, int]:
        """The end of every partition of the topics that are wanted.

        Raises:
            FairleadError: the site cannot be asked.
        """

    async def orders(self, site: str) -> Orders:
        """What holds at a site; raises ``FairleadError`` when it cannot be asked."""

    async def append(self, site: str, orders: Sequence[Order]) -> int:
        """Append orders; the offset after the last. Raises ``FairleadError``."""

    def status(self, site: str) -> Status | None:
        """What the site's replicator says; None when none has ever run here."""


class RealGround:
    """The sites of a topology. Made by ``standing``."""

    def __init__(
        self, kafka: Callable[[str], KafkaEndpoint], clusters: Clusters, folder: Path, *, timeout: float
    ) -> None:
        self._kafka = kafka
        self._clusters = clusters
        self._folder = folder
        self._timeout = timeout

    async def ends(self, site: str, wanted: Callable[[str], bool]) -> dict[TopicPartition, int]:
        cluster = await self._clusters.at(site)
        found = await cluster.topics(refresh=True)
        logs = [TopicPartition(topic, n) for topic, info in found.items() if wanted(topic) for n in info.partitions]
        ends: dict[TopicPartition, int] = {}
        for tp, end in (await cluster.end_offsets(logs)).items() if logs else ():
            if not isinstance(end, int):
                raise end
            ends[tp] = end
        return ends

    async def orders(self, site: str) -> Orders:
        return await asyncio.to_thread(orders_of, self._kafka(site), timeout=self._timeout)

    async def append(self, site: str, orders: Sequence[Order]) -> int:
        return await asyncio.to_thread(append_orders, self._kafka(site), orders, timeout=self._timeout)

    def status(self, site: str) -> Status | None:
        return read_status(self._folder, site)


@contextlib.asynccontextmanager
async def standing(
    kafka: Callable[[str], KafkaEndpoint], folder: Path, *, answer: float = TIMEOUT
) -> AsyncIterator[RealGround]:
    """The real ground, whose connections close at the end.

    Args:
        kafka: A site's Kafka as its administrator.
        folder: The topology's state folder, where replicators leave their status.
        answer: Seconds within which a site must answer.
    """
    async with Clusters(kafka, client_id="fairlead-link", request_timeout=answer) as clusters:
        yield RealGround(kafka, clusters, folder, timeout=answer)
