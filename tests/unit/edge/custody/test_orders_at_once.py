"""Very many orders: some are carried out at the same time, each once, and one that waits holds up no other."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest import mock

from edge.custody import handlers
from edge.custody.handlers import OrderHandler
from edge.errors import SeizureError
from edge.logwriter.writer import Barrier
from fairlead.errors import UnavailableError
from fairlead.kafka.protocol.record import Record
from fairlead.records import encode
from fairlead.records.custody import CUSTODY_ORDERS, CustodyOrder
from tests.support.edge.samples import NOW, topology

COUNT, AT_ONCE = 30, 10


def record(number: int) -> Record:
    order = CustodyOrder(
        order_id=f"o{number}",
        kind="seize",
        log=f"containers.{number}",
        at_site="tokyo",
        to_site="tokyo",
        ordered_date_time=NOW,
        ordered_by="ann",
        reason="sank",
    )
    return mock.Mock(spec=Record, value=encode(order), key=None, headers=(), offset=number)


class Bridge:
    """The rest of a bridge: writers that run a barrier at once, and a protocol that lets each order wait for others."""

    def __init__(self) -> None:
        self.running = self.most = 0
        self.done: list[str] = []
        self.away = {"o1"}  # orders that fail once, because a broker is away
        self.protocol = mock.Mock(site="tokyo")
        self.protocol.is_refused.return_value = self.protocol.is_answered.return_value = False
        self.protocol.carry_out_order.side_effect = lambda transfer, **_: transfer.event_id
        self.tasks: set[asyncio.Task[None]] = set()

    def box(self, log: str) -> Any:
        return mock.Mock(enqueue=self.enqueue, log=log)

    def enqueue(self, barrier: Barrier) -> None:
        self.tasks.add(asyncio.ensure_future(barrier.run()))

    async def run(self, order_id: str) -> SeizureError | None:
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        if order_id in self.away:
            self.away.remove(order_id)
            raise UnavailableError("the broker is away")
        self.done.append(order_id)
        return None


async def test_many_orders_are_carried_out_some_at_a_time(monkeypatch: Any) -> None:
    monkeypatch.setattr(handlers, "_AGAIN", 0.0)
    monkeypatch.setattr(handlers, "ORDERS_AT_ONCE", AT_ONCE)
    bridge = Bridge()
    writers = mock.Mock(box=bridge.box, metrics=mock.Mock(seizures=0))
    handler = OrderHandler(topology(), writers, mock.Mock(protocol=bridge.protocol, run=bridge.run))
    for number in range(COUNT):
        handler.add_order(CUSTODY_ORDERS, record(number), False)
        handler.add_order(CUSTODY_ORDERS, record(number), False)  # written twice: it has one id
    async with asyncio.timeout(30):
        while len(bridge.done) < COUNT:
            await asyncio.gather(*bridge.tasks)
            await asyncio.sleep(0)
    assert bridge.most == AT_ONCE
    assert sorted(bridge.done) == sorted(f"o{number}" for number in range(COUNT))
    assert bridge.done.index("o1") > bridge.done.index("o2"), "the others do not wait for it"
    assert bridge.done[0] == "o0" and writers.metrics.seizures == COUNT
