"""Everything that custody by hand touches at the sites, as their ``admin``: ledgers, copies of logs, orders.

``Ground`` is what the rest sees, so that tests can stand on another one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, Protocol

import msgspec

from edge.orders.topic import append_order
from edge.waiting import WaitingLog, find_waiting
from fairlead.clusters import Clusters
from fairlead.endpoint import KafkaEndpoint
from fairlead.errors import FairleadError
from fairlead.ledgers import LEDGER_PREFIX, Ledgers, read_ledgers
from fairlead.records.custody import CustodyOrder, LedgerEntry, ledger_entries
from fairlead.wire.convention import is_data
from fairlead.wire.sweep import Extent, extents, sweep
from fairlead.wire.types import TP

TIMEOUT: Final = 10.0  # seconds for a site to answer
_GLANCE: Final = 3.0  # seconds for a site that is thought to be lost


class Ground(Protocol):
    """What is there. Every question raises ``FairleadError`` when the site cannot be asked."""

    async def ledgers(self, site: str, *, about: str | None = None) -> Ledgers:
        """The ledgers as a site has them."""

    async def copy(self, site: str, log: str) -> Extent | None:
        """The offsets of a site's copy of a log; None when it has none."""

    async def waiting(self, site: str, ledgers: Ledgers) -> tuple[WaitingLog, ...]:
        """The strays that wait, as far as this site can see."""

    async def answers(self, site: str) -> bool:
        """Whether a site answers at all; raises nothing."""

    async def append(self, site: str, order: CustodyOrder) -> int:
        """Write an order; its offset."""

    async def ledger_end(self, site: str) -> int:
        """Where the site's own ledger ends; 0 when there is none yet."""

    async def ledger_since(self, site: str, position: int) -> tuple[Sequence[LedgerEntry], int]:
        """The entries of the site's own ledger from an offset on, and the offset to go on from."""


class RealGround:
    """The sites of a topology. Made by ``standing``."""

    def __init__(self, kafka: Callable[[str], KafkaEndpoint], clusters: Clusters, *, timeout: float) -> None:
        self._kafka = kafka
        self._clusters = clusters
        self._timeout = timeout

    async def ledgers(self, site: str, *, about: str | None = None) -> Ledgers:
        return await read_ledgers(await self._clusters.at(site), site, about=about)

    async def copy(self, site: str, log: str) -> Extent | None:
        cluster = await self._clusters.at(site)
        if log not in await cluster.topics(refresh=True):
            return None
        return (await extents(cluster, [TP(log)]))[TP(log)]

    async def waiting(self, site: str, ledgers: Ledgers) -> tuple[WaitingLog, ...]:
        return await find_waiting(await self._clusters.at(site), ledgers)

    async def answers(self, site: str) -> bool:
        try:
            async with asyncio.timeout(_GLANCE):
                await self._clusters.at(site)
        except (FairleadError, TimeoutError):
            return False
        return True

    async def append(self, site: str, order: CustodyOrder) -> int:
        return await asyncio.to_thread(append_order, self._kafka(site), order, timeout=self._timeout)

    async def ledger_end(self, site: str) -> int:
        extent = await self.copy(site, LEDGER_PREFIX + site)
        return extent.end if extent is not None else 0

    async def ledger_since(self, site: str, position: int) -> tuple[Sequence[LedgerEntry], int]:
        extent = await self.copy(site, LEDGER_PREFIX + site)
        if extent is None or extent.end <= position:
            return (), position
        found: list[LedgerEntry] = []
        rest = Extent(max(position, extent.start), extent.end)
        async for _, records in sweep(await self._clusters.at(site), {TP(LEDGER_PREFIX + site): rest}):
            for record in records:
                if record.value is not None and is_data(record):
                    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):  # 'show' tells of these
                        found.append(ledger_entries.decode(record.value))
        return found, extent.end


@contextlib.asynccontextmanager
async def standing(kafka: Callable[[str], KafkaEndpoint], *, answer: float = TIMEOUT) -> AsyncIterator[RealGround]:
    """The real ground, whose connections close at the end.

    Args:
        kafka: A site's Kafka as its administrator.
        answer: Seconds within which a site must answer.
    """
    async with Clusters(kafka, client_id="fairlead-custody", request_timeout=answer) as clusters:
        yield RealGround(kafka, clusters, timeout=answer)
