"""The two steps of a custody order, write it and wait for the answer, and the access to the sites that they need.

An order that is written stands, even if waiting for its answer fails. Plans and steps use the protocol
``LedgerAccess``: ``KafkaLedgers`` implements it for real sites, with administrators' credentials, and tests implement
it in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from msgspec.json import Decoder

from edge.strays.report import WaitingLog, find_waiting
from fairlead.custody.ledger import LEDGER_PREFIX, Ledgers, read_ledgers
from fairlead.errors import FairleadError, RefusedError, UnavailableError
from fairlead.kafka.client.reader import OffsetRange, extents, sweep
from fairlead.kafka.clusters import Clusters
from fairlead.kafka.convention import is_data
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.order_topic import TIMEOUT, append_records
from fairlead.kafka.protocol.types import TP
from fairlead.plan import Plan, PlanStep, Tell, execute, silent
from fairlead.records import UNREADABLE, decoder, encode
from fairlead.records.custody import (
    CUSTODY_ORDERS,
    CustodyEntry,
    CustodyOrder,
    LedgerEntry,
    RefusalEntry,
    ledger_entries,
)
from topologies.ledger_trust import sifted
from topologies.model import Topology

ANSWER: Final = 10.0  # seconds for a site to answer
WAIT: Final = 30.0  # seconds for a bridge to answer an order
PAUSE: Final = 0.2
_GLANCE: Final = 3.0  # seconds for a site that is thought to be lost
_AT_ONCE: Final = 2_000  # orders in one call of the producer, which has ``ANSWER`` seconds for them

T = TypeVar("T")

_order = decoder(CustodyOrder)


class OrderRefusedError(RefusedError):
    """The site's bridge refused the order; its reason is in the site's ledger."""


class OrderStandsError(UnavailableError):
    """The order is written but not answered yet. The site's bridge carries it out as soon as it runs."""


class LedgerAccess(Protocol):
    """Reads ledgers from sites and writes orders there. Methods raise ``FairleadError`` if the site does not answer."""

    async def ledgers(self, site: str, *, about: str | None = None) -> Ledgers:
        """Return the ledgers in a site's Kafka, without entries that are not believed.

        Args:
            about: Only the entries about this log.
        """

    async def copy(self, site: str, log: str) -> OffsetRange | None:
        """Return the offsets of a site's copy of a log; None when the site has no copy."""

    async def copies(self, site: str, logs: Collection[str]) -> Mapping[str, OffsetRange]:
        """Return the offsets of a site's copies of these logs, without those that it has no copy of."""

    async def waiting(self, site: str, ledgers: Ledgers) -> tuple[WaitingLog, ...]:
        """Return the strays that wait to be drained, as far as the strays logs at this site show."""

    async def answers(self, site: str) -> bool:
        """Return whether a site's Kafka answers. Raises nothing."""

    async def append(self, site: str, orders: Sequence[CustodyOrder]) -> None:
        """Write orders, in a few requests. After an error, some of them may be written."""

    async def orders(self, site: str) -> Sequence[CustodyOrder]:
        """Return every order at a site, oldest first."""

    async def ledger_end(self, site: str) -> int:
        """Return the end offset of the site's own ledger; 0 when there is none yet."""

    async def ledger_since(self, site: str, position: int) -> tuple[Sequence[LedgerEntry], int]:
        """Return the entries of the site's own ledger from an offset on, and the offset to continue from."""


@dataclass(slots=True)
class CustodyRun:
    """The context and the result of one order's steps.

    Args:
        wait: Seconds to wait for the bridge's answer.
        tell: Called with one line of progress at a time.
        position: End of the acting site's ledger before the order was written; set by the steps.
        entry: The ledger entry that answers the order; set by the steps.
    """

    access: LedgerAccess
    wait: float = WAIT
    tell: Tell = silent
    position: int = 0
    entry: CustodyEntry | None = None


async def carry_out(plan: Plan[CustodyRun], run: CustodyRun) -> CustodyEntry:
    """Write the order and return the ledger entry that carried it out.

    Raises:
        OrderRefusedError: the bridge refused it.
        OrderStandsError: there was no answer in time; ``fields["order_id"]`` names the order.
        FairleadError: the order could not be written.
    """
    await execute(plan.steps, run)
    if run.entry is None:
        raise AssertionError("a plan ends with an answer")
    return run.entry


@dataclass(frozen=True, slots=True)
class WriteCustodyOrder(PlanStep[CustodyRun]):
    """Append the order to ``fairlead.custody`` at ``site``; create the topic if it is missing."""

    site: str
    order: CustodyOrder

    @property
    def kind(self) -> str:
        return "WriteOrder"

    def describe(self) -> str:
        return f"append to {CUSTODY_ORDERS} at {self.site}: {describe(self.order)}"

    async def carry_out(self, context: CustodyRun) -> None:
        context.position = await context.access.ledger_end(self.site)
        await context.access.append(self.site, [self.order])


@dataclass(frozen=True, slots=True)
class AwaitAnswer(PlanStep[CustodyRun]):
    """Wait until the bridge of ``site`` has answered the order in its ledger ``custody.<site>``."""

    site: str
    order: CustodyOrder

    def describe(self) -> str:
        ledger = f"{LEDGER_PREFIX}{self.site}"
        return f"wait until the bridge of {self.site} has carried it out or refused it, by its ledger {ledger}"

    async def carry_out(self, context: CustodyRun) -> None:
        began = time.monotonic()
        trouble: FairleadError | None = None
        while True:
            seconds = time.monotonic() - began
            context.tell(f"waiting for the bridge of {self.site} ({seconds:.0f} of {context.wait:g} s)")
            try:
                entries, context.position = await context.access.ledger_since(self.site, context.position)
                trouble = None
            except FairleadError as error:
                if not error.retriable:
                    raise self._stands(f"its ledger cannot be read ({error.what})") from error
                entries, trouble = (), error
            for entry in entries:
                if isinstance(entry, CustodyEntry) and entry.event_id == self.order.order_id:
                    context.entry = entry
                    return
                if isinstance(entry, RefusalEntry) and entry.order_id == self.order.order_id:
                    raise self._refused(entry)
            if seconds > context.wait:
                why = trouble.what if trouble else f"its bridge has not answered within {context.wait:g} s"
                raise self._stands(why)
            await asyncio.sleep(PAUSE)

    def _refused(self, entry: RefusalEntry) -> OrderRefusedError:
        return OrderRefusedError(
            f"the bridge of {self.site} refused: {entry.reason}",
            hint=f"fairlead custody show {entry.log}",
            log=entry.log,
            site=self.site,
            code=entry.code,
            order_id=entry.order_id,
        )

    def _stands(self, why: str) -> OrderStandsError:
        return OrderStandsError(
            f"the order is written at {self.site} ({describe(self.order)}), but {why}; the bridge of {self.site} "
            "carries it out when it runs",
            hint=f"fairlead status; fairlead bridge --site {self.site}; then 'fairlead custody show {self.order.log} "
            f"--site {self.site}'",
            log=self.order.log,
            site=self.site,
            order_id=self.order.order_id,
        )


def describe(order: CustodyOrder) -> str:
    """Return an order as a phrase: ``grant containers.BIGU0000013 to sydney``."""
    what = f"grant {order.log} to {order.to_site}" if order.kind == "grant" else f"seize {order.log}"
    return what + (f", because: {order.reason}" if order.reason else "")


class KafkaLedgers:
    """``LedgerAccess`` to the real sites of a topology. Use ``open_ledgers`` to create it."""

    def __init__(
        self, topology: Topology, kafka: Callable[[str], KafkaEndpoint], clusters: Clusters, *, timeout: float
    ) -> None:
        self._topology = topology
        self._kafka = kafka
        self._clusters = clusters
        self._timeout = timeout

    async def ledgers(self, site: str, *, about: str | None = None) -> Ledgers:
        return sifted(self._topology, await read_ledgers(await self._clusters.at(site), site, about=about))

    async def copy(self, site: str, log: str) -> OffsetRange | None:
        return (await self.copies(site, [log])).get(log)

    async def copies(self, site: str, logs: Collection[str]) -> Mapping[str, OffsetRange]:
        cluster = await self._clusters.at(site)
        here = [TP(log) for log in (await cluster.topics(logs, refresh=True) if logs else ())]
        return {tp.topic: extent for tp, extent in (await extents(cluster, here)).items()}

    async def waiting(self, site: str, ledgers: Ledgers) -> tuple[WaitingLog, ...]:
        return await find_waiting(await self._clusters.at(site), ledgers, self._topology.is_box_log)

    async def answers(self, site: str) -> bool:
        try:
            async with asyncio.timeout(_GLANCE):
                await self._clusters.at(site)
        except (FairleadError, TimeoutError):
            return False
        return True

    async def append(self, site: str, orders: Sequence[CustodyOrder]) -> None:
        for first in range(0, len(orders), _AT_ONCE):
            some = orders[first : first + _AT_ONCE]
            await asyncio.to_thread(append_custody_orders, self._kafka(site), some, timeout=self._timeout)

    async def orders(self, site: str) -> Sequence[CustodyOrder]:
        return (await self._records(site, CUSTODY_ORDERS, 0, _order))[0]

    async def ledger_end(self, site: str) -> int:
        extent = await self.copy(site, LEDGER_PREFIX + site)
        return extent.end if extent is not None else 0

    async def ledger_since(self, site: str, position: int) -> tuple[Sequence[LedgerEntry], int]:
        return await self._records(site, LEDGER_PREFIX + site, position, ledger_entries)

    async def _records(self, site: str, topic: str, position: int, decode: Decoder[T]) -> tuple[list[T], int]:
        """Return the readable records of a topic from an offset on, and the offset to continue from."""
        extent = await self.copy(site, topic)
        if extent is None or extent.end <= position:
            return [], position
        found: list[T] = []
        rest = OffsetRange(max(position, extent.start), extent.end)
        async for _, records in sweep(await self._clusters.at(site), {TP(topic): rest}):
            for record in records:
                if record.value is not None and is_data(record):
                    with contextlib.suppress(*UNREADABLE):  # ``fairlead custody show`` reports these
                        found.append(decode.decode(record.value))
        return found, extent.end


@contextlib.asynccontextmanager
async def open_ledgers(
    topology: Topology, kafka: Callable[[str], KafkaEndpoint], *, answer: float = ANSWER
) -> AsyncIterator[KafkaLedgers]:
    """Open access to the real sites; close its connections on exit.

    Args:
        kafka: Returns a site's Kafka endpoint with its administrator's credentials.
        answer: Seconds within which a site must answer.
    """
    async with Clusters(kafka, client_id="fairlead-custody", request_timeout=answer) as clusters:
        yield KafkaLedgers(topology, kafka, clusters, timeout=answer)


def append_custody_orders(endpoint: KafkaEndpoint, orders: Sequence[CustodyOrder], *, timeout: float = TIMEOUT) -> None:
    """Append orders. Creates the topic if it is missing. Blocks.

    Raises:
        RefusedError: the user may not write to the topic.
        UnavailableError: the site does not answer within ``timeout`` seconds; orders may be stored all the same.
    """
    records = [(order.log.encode(), encode(order)) for order in orders]
    landed = append_records(endpoint, CUSTODY_ORDERS, records, client_id="fairlead-custody", timeout=timeout)
    if len(landed) < len(orders):
        raise UnavailableError(
            f"{endpoint.site}'s Kafka confirmed {len(landed)} of {len(orders)} orders",
            hint=f"fairlead status; 'fairlead custody show {orders[0].log}' tells whether it was carried out all the "
            "same",
            site=endpoint.site,
        )
