"""Very many orders: some are carried out at the same time, each once, and one that waits holds up no other."""

from __future__ import annotations

import asyncio
from typing import Any, Literal
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
from tests.support.kafka.fake_broker import until

COUNT, AT_ONCE = 30, 10


def record(number: int, kind: Literal["grant", "seize"] = "seize") -> Record:
    order = CustodyOrder(
        order_id=f"o{number}",
        kind=kind,
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


async def test_seizures_that_wait_for_a_damaged_ledger_hold_up_no_grant(monkeypatch: Any) -> None:
    """Every seizure reads the ledgers to their ends first, which takes as long as one of them is damaged."""
    monkeypatch.setattr(handlers, "ORDERS_AT_ONCE", AT_ONCE)
    bridge, whole = Bridge(), asyncio.Event()
    bridge.away.clear()

    async def run(order_id: str) -> SeizureError | None:
        if order_id != f"o{COUNT}":
            await whole.wait()
        return await bridge.run(order_id)

    writers = mock.Mock(box=bridge.box, metrics=mock.Mock(seizures=0, grants=0))
    handler = OrderHandler(topology(), writers, mock.Mock(protocol=bridge.protocol, run=run))
    for number in range(COUNT):
        handler.add_order(CUSTODY_ORDERS, record(number), False)
    handler.add_order(CUSTODY_ORDERS, record(COUNT, "grant"), False)
    try:
        await until(lambda: bridge.done)
        assert bridge.done == [f"o{COUNT}"] and writers.metrics.grants == 1
    finally:
        whole.set()
        while len(bridge.done) <= COUNT:
            await asyncio.gather(*bridge.tasks)
    assert bridge.most <= AT_ONCE and writers.metrics.seizures == COUNT
