"""Custody decisions of a bridge before it writes anything."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest

from edge.custody.handlers import CustodyEventHandler, _Event
from edge.custody.protocol import CustodyMove, CustodyProtocol, Transfer
from edge.custody.term_writer import TermWriter
from edge.errors import NotHolderError
from edge.holdings import CustodyState, Holdings
from edge.strays.store import WaitingEvent
from fairlead.custody.view import CustodyView
from fairlead.kafka.protocol.errors import ConnectionLost
from fairlead.records.custody import CustodyEntry

NOW = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
HOUR = dt.timedelta(hours=1)


class Gate:
    """The bridge of a port. ``arrived``: entries that are in its Kafka and that it has not read."""

    def __init__(self) -> None:
        self.holdings = Holdings("tokyo", CustodyView())
        self.arrived: list[CustodyEntry] = []
        self.readings = 0
        self.trouble: list[Exception] = []
        self.ledger = MagicMock(append=AsyncMock())
        self.protocol = CustodyProtocol(
            self.holdings,
            MagicMock(),
            sites=("tokyo", "sydney", "star"),
            now=lambda: dt.datetime.now(dt.UTC),
            nonce=lambda: "n",
        )
        writers = MagicMock(ledger=self.ledger)
        self.kafka = MagicMock(create=AsyncMock())
        self.term_writer = TermWriter(
            self.protocol,
            self.kafka,
            writers,
            MagicMock(read_to_ends=self._read),
        )

    async def decide(self, transfer: Transfer) -> CustodyMove:
        return await self.term_writer.run(self.protocol.decide(transfer))

    async def perform(self, transfer: Transfer) -> CustodyMove:
        return await self.term_writer.run(self.protocol.perform(transfer))

    async def _read(self) -> None:
        self.readings += 1
        await asyncio.sleep(0)
        if self.trouble:
            raise self.trouble.pop()
        while self.arrived:
            entry = self.arrived.pop(0)
            if self.holdings.view.apply(entry) and (grant := self.holdings.view.grant(entry.log)) is not None:
                self.holdings.apply_grant(grant)


@pytest.fixture
async def gate() -> AsyncIterator[Gate]:
    made = Gate()
    yield made
    await made.term_writer.close()


def box(n: int = 0) -> str:
    return f"containers.BIGU{n:07d}"


def entry(n: int, term: int, to_site: str | None, **more: Any) -> CustodyEntry:
    given: dict[str, Any] = {
        "log": box(n),
        "term": term,
        "marker_offset": 10 * term,
        "from_site": "sydney",
        "to_site": to_site,
        "event": "LOAD" if to_site else "GTOT",
        "event_id": f"e{term}",
        "event_date_time": NOW,
        "granted_date_time": NOW,
        "granted_by": "sydney",
        "marker_batch": b"",
    }
    return CustodyEntry(**{**given, **more})


def gate_in(n: int = 0, at: dt.datetime = NOW + HOUR) -> Transfer:
    return Transfer(box(n), "GTIN", f"gate-in-{n}", at, "tokyo")


async def test_a_box_that_nobody_knows_is_opened(gate: Gate) -> None:
    """A gate-in of an unknown box opens its log."""
    assert await gate.decide(gate_in()) is CustodyMove.OPEN
    assert gate.readings == 1


async def test_a_gate_in_hears_first_what_is_in_the_ledgers_here(gate: Gate) -> None:
    """Before a gate-in opens a log, the bridge reads all ledger entries that have arrived."""
    gate.arrived = [
        entry(0, 1, "sydney"),
        entry(1, 1, "tokyo"),
        entry(2, 1, None),
        entry(3, 1, None, from_site="tokyo"),
    ]
    assert await gate.decide(gate_in(0)) is CustodyMove.WAIT  # another port has opened the log
    assert await gate.decide(gate_in(1)) is CustodyMove.NOTHING
    assert await gate.decide(gate_in(2)) is CustodyMove.CLAIM
    assert await gate.decide(gate_in(3)) is CustodyMove.REOPEN


async def test_a_box_that_another_port_has_opened_again_is_not_opened_again(gate: Gate) -> None:
    """A log that another port has reopened is not opened here."""
    gate.holdings.view.apply(entry(0, 2, None))
    gate.arrived = [entry(0, 3, "sydney", event="GTIN")]
    assert await gate.decide(gate_in()) is CustodyMove.WAIT
    gate.holdings.view.apply(entry(1, 2, None))
    gate.arrived = [entry(1, 3, "sydney", event="GTIN", event_date_time=NOW + 2 * HOUR)]
    with pytest.raises(NotHolderError):
        await gate.decide(gate_in(1))


async def test_many_gate_ins_at_once_are_one_reading_and_later_ones_another(gate: Gate) -> None:
    """Many gate-ins at once share one reading of the ledgers; later ones read again."""
    gate.arrived = [entry(7, 1, "sydney")]
    moves = await asyncio.gather(*(gate.decide(gate_in(n)) for n in range(200)))
    assert [n for n, move in enumerate(moves) if move is not CustodyMove.OPEN] == [7]
    assert gate.readings == 1
    gate.arrived = [entry(200, 1, "sydney")]
    assert await gate.decide(gate_in(200)) is CustodyMove.WAIT
    assert gate.readings == 2


async def test_what_opens_nothing_reads_nothing(gate: Gate) -> None:
    """An event that opens no log reads no ledgers."""
    gate.holdings.view.apply(entry(0, 1, "tokyo"))
    gate.holdings.hold(box(), 1)
    load = Transfer(box(), "LOAD", "load", NOW + HOUR, "star")
    assert await gate.decide(load) is CustodyMove.GRANT
    assert await gate.decide(gate_in()) is CustodyMove.NOTHING
    assert gate.holdings.state(box()) is CustodyState.HELD
    assert gate.readings == 0


async def test_a_broker_that_is_away_is_waited_for(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bridge waits for a broker that is away, then reads the ledgers and decides."""
    monkeypatch.setattr("edge.logwriter.retry.FIRST_DELAY", 0.001)
    gate.trouble = [ConnectionLost("away")]
    gate.arrived = [entry(0, 1, "sydney")]
    assert await gate.decide(gate_in()) is CustodyMove.WAIT


async def test_an_event_is_written_down_only_after_that(gate: Gate) -> None:
    """A gate-in that waits because its box is open elsewhere is not written to the site's log of events yet."""
    gate.arrived = [entry(0, 1, "sydney")]
    writers, writer = MagicMock(), MagicMock(log=box())
    writers.events.append = AsyncMock()
    writers.event_ids = set()
    event_handler = CustodyEventHandler(MagicMock(site="tokyo"), MagicMock(), writers, gate.term_writer, MagicMock())
    message = MagicMock(log=box(), to_site="tokyo")
    message.event.payload.equipment_event_type_code = "GTIN"
    message.event.payload.event_date_time = NOW + HOUR
    message.event.metadata.event_id = "gate-in"
    await event_handler._carry_out(_Event(message, MagicMock(), "events", False), writer)  # noqa: SLF001
    writers.events.append.assert_not_awaited()
    writers.strays.keep_event.assert_called_once()


async def test_a_box_that_left_elsewhere_is_claimed_once(gate: Gate) -> None:
    """A box that left another site is claimed there, once."""
    gate.holdings.view.apply(entry(0, 2, None))
    assert await gate.perform(gate_in()) is CustodyMove.CLAIM
    assert await gate.perform(gate_in()) is CustodyMove.CLAIM
    assert gate.protocol.has_claimed(gate_in())
    assert gate.ledger.append.await_count == 1
    gate.holdings.view.apply(entry(0, 4, None))  # it was in and out elsewhere since
    assert not gate.protocol.has_claimed(gate_in())


async def test_a_claim_is_an_event_that_happened_and_waits(gate: Gate) -> None:
    """A gate-in that leads to a claim is written to the site's log of events, and waits as a stray for the answer."""
    gate.holdings.view.apply(entry(0, 2, None))
    writers, writer = MagicMock(), MagicMock(log=box())
    writers.events.append = AsyncMock()
    writers.event_ids = set()
    ack = MagicMock()
    event_handler = CustodyEventHandler(MagicMock(site="tokyo"), MagicMock(), writers, gate.term_writer, MagicMock())
    await event_handler._carry_out(_Event(message_of(gate_in()), MagicMock(), "events", False, ack), writer)  # noqa: SLF001
    writers.events.append.assert_awaited_once()
    writers.strays.keep_event.assert_called_once()
    ack.finish.assert_not_called()  # the strays log acknowledges
    assert gate.protocol.has_claimed(gate_in())


async def test_a_gate_in_passes_what_waits_of_a_time_before_the_box_had_left(gate: Gate) -> None:
    """A gate-in is not held up by an older event that waits.

    A LOAD event waits here, and behind it the gate-in of a box that has left: the gate-in is carried out.
    """
    gate.holdings.view.apply(entry(0, 2, None, from_site="tokyo", event_date_time=NOW - HOUR))
    load = Transfer(box(), "LOAD", "load", NOW, "star")
    done = await carried_out(gate, load, gate_in())
    assert done == ["gate-in-0"]
    gate.holdings.view.apply(entry(0, 3, "sydney", event_date_time=NOW - HOUR))  # the box is in, at another site
    assert await carried_out(gate, load, gate_in()) == []


async def carried_out(gate: Gate, *waiting: Transfer) -> list[str]:
    """Return the ids of the waiting events that a check carries out."""
    done: list[str] = []
    writers = MagicMock()
    events = [WaitingEvent(n, each.event_id, each.at, 0) for n, each in enumerate(waiting)]
    writers.strays.events = {box(): events}
    event_handler = CustodyEventHandler(MagicMock(site="tokyo"), MagicMock(), writers, gate.term_writer, MagicMock())

    async def read(event: WaitingEvent, *_: object) -> tuple[Any, Any, str]:
        return message_of(waiting[event.offset]), MagicMock(), "events"

    async def run(what: Any) -> None:
        done.append(what.args[0].message.event.metadata.event_id)

    event_handler._read = read  # type: ignore[assignment, method-assign]  # noqa: SLF001
    writers.box.return_value.run_alone = run
    await event_handler.retry_one(box())
    return done


def message_of(transfer: Transfer) -> MagicMock:
    message = MagicMock(log=transfer.log, to_site=transfer.to_site)
    message.event.payload.equipment_event_type_code = transfer.event
    message.event.payload.event_date_time = transfer.at
    message.event.metadata.event_id = transfer.event_id
    return message
