"""Orders by hand (``fairlead custody grant`` and ``seize``): followed in the site's own Kafka, answered in its ledger.

An order that the ledger has an answer to, be it a grant, a seizure or a refusal, is never looked at again.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable
from functools import partial

from edge import records
from edge.boxes import BoxLane
from edge.custodian import Custodian
from edge.errors import NotHolderError, ReplicaBehindError
from edge.holdings import Custody, Holdings
from edge.lane import Control
from edge.lanes import SiteLanes, ledger_key
from edge.metrics import Metrics
from edge.seizing import Seizer
from edge.transfer import Transfer, of_order
from fairlead.errors import FairleadError, RefusedError, UnknownNameError
from fairlead.names import parse_log
from fairlead.records import UNREADABLE, decoder
from fairlead.records.custody import CustodyEntry, CustodyOrder, LedgerEntry, RefusalEntry
from fairlead.wire.convention import is_data
from fairlead.wire.record import Record
from topologies.model import InsertPoint, SiteKind, Topology

log = logging.getLogger(__name__)

_order = decoder(CustodyOrder)


class Handwork:
    """Carries out the orders of one site.

    Args:
        on_held: Told each log that was seized.
    """

    def __init__(
        self,
        topology: Topology,
        holdings: Holdings,
        lanes: SiteLanes,
        custodian: Custodian,
        seizer: Seizer,
        metrics: Metrics,
        *,
        on_held: Callable[[str], None],
    ) -> None:
        self._topology = topology
        self._site = holdings.site
        self._holdings = holdings
        self._lanes = lanes
        self._custodian = custodian
        self._seizer = seizer
        self._metrics = metrics
        self._on_held = on_held
        self._answered: set[str] = set()

    def learn(self, entry: LedgerEntry) -> None:
        """An entry of this site's own ledger."""
        match entry:
            case CustodyEntry(event="HAND" | "SEIZURE"):
                self._answered.add(entry.event_id)
            case RefusalEntry():
                self._answered.add(entry.order_id)

    def take(self, topic: str, record: Record, _at_start: bool) -> None:
        """A record of the topic of orders."""
        if record.value is None or not is_data(record):
            return
        try:
            order = _order.decode(record.value)
        except UNREADABLE as error:
            log.error("%s: the record at offset %d of %s is no order: %s", self._site, record.offset, topic, error)
            return
        if order.at_site != self._site or order.order_id in self._answered:
            return
        self._answered.add(order.order_id)
        lane = self._lanes.box(order.log)
        lane.put(Control(partial(self._carry_out, order, lane)))

    async def _carry_out(self, order: CustodyOrder, lane: BoxLane) -> None:
        try:
            transfer = of_order(order)
            self._check(order)
            if order.kind == "seize":
                await self._seizer.seize(transfer, lane)
                self._metrics.seizures += 1
                self._on_held(lane.log)
            else:
                await self._grant(transfer, lane)
                self._metrics.grants += 1
        except FairleadError as error:
            if error.retriable and not isinstance(error, ReplicaBehindError):
                raise
            log.warning("%s: order %s refused: %s", self._site, order.order_id, error)
            await self._refuse(order, error)

    async def _grant(self, transfer: Transfer, lane: BoxLane) -> None:
        grant = self._holdings.view.grant(lane.log)
        if grant is not None and grant.event_id == transfer.event_id:
            return  # a crash had cut it short, and it was completed at the start
        match self._holdings.state(lane.log):
            case Custody.HELD:
                await self._custodian.perform(transfer, lane)
            case Custody.INCOMING:
                marker = self._holdings.view.marker(lane.log)
                raise ReplicaBehindError(
                    f"{self._site} is behind: custody of {lane.log} is its own after the marker at offset {marker}, "
                    "and its copy does not reach that yet",
                    hint="give the order again when 'fairlead status' shows the copy complete",
                    log=lane.log,
                    marker=marker,
                )
            case _:
                holder = self._holdings.view.holder(lane.log)
                raise NotHolderError(lane.log, self._site, holder, doing="grant custody")

    def _check(self, order: CustodyOrder) -> None:
        """What is wrong with an order whatever the state of its log.

        Raises:
            UnknownNameError: the receiver, or the log's stream.
            RefusedError: the log is unknown or does not move, the receiver takes none, or the log has moved since.
        """
        name = parse_log(order.log)
        stream = self._topology.streams.get(name.stream) if name is not None else None
        if name is None or stream is None:
            raise UnknownNameError("log's stream", order.log, self._topology.streams)
        if stream.insert_point is not InsertPoint.MOVES:
            raise RefusedError(
                f"logs of stream {name.stream} do not move: who appends follows from their name", log=order.log
            )
        site = self._topology.sites.get(order.to_site)
        able = [each for each, spec in self._topology.sites.items() if spec.kind is not SiteKind.CUSTOMER]
        if site is None or site.kind is SiteKind.CUSTOMER:
            raise UnknownNameError("site that can hold a log", order.to_site, able)
        grant = self._holdings.view.grant(order.log)
        if grant is None:
            raise RefusedError(f"no ledger at {self._site} knows {order.log}: it was never opened", log=order.log)
        if order.term is not None and order.term != grant.term:
            raise RefusedError(
                f"{order.log} has moved since the order was given: it was in term {order.term}, it is in term "
                f"{grant.term}, held by {grant.to_site}",
                hint="look again with 'fairlead custody show', and give the order again if it is still right",
                log=order.log,
            )
        if order.kind == "grant" and order.to_site == self._site:
            raise RefusedError(f"{self._site} cannot grant {order.log} to itself", log=order.log)

    async def _refuse(self, order: CustodyOrder, error: FairleadError) -> None:
        entry = RefusalEntry(
            log=order.log,
            order_id=order.order_id,
            code=type(error).__name__,
            reason=error.what,
            refused_date_time=dt.datetime.now(dt.UTC),
            refused_by=self._site,
        )
        await self._lanes.ledger.append(records.ledger(entry), ledger_key(entry))
