"""What a custodian decides before anything is written."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest

from edge.custodian import Custodian
from edge.errors import NotHolderError
from edge.holdings import Custody, Holdings
from edge.movements import Movements
from edge.strays import WaitingEvent
from edge.transfer import Move, Transfer
from fairlead.custody import CustodyView
from fairlead.records.custody import CustodyEntry
from fairlead.wire.errors import ConnectionLost

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
        self.custodian = Custodian(
            self.holdings,
            MagicMock(),
            MagicMock(),
            self.ledger,
            AsyncMock(),
            MagicMock(),
            self._read,
            sites=("tokyo", "sydney", "star"),
        )

    async def _read(self) -> None:
        self.readings += 1
        await asyncio.sleep(0)
        if self.trouble:
            raise self.trouble.pop()
        while self.arrived:
            entry = self.arrived.pop(0)
            if self.holdings.view.apply(entry) and (grant := self.holdings.view.grant(entry.log)) is not None:
                self.holdings.news(grant)


@pytest.fixture
async def gate() -> AsyncIterator[Gate]:
    made = Gate()
    yield made
    await made.custodian.close()


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
    assert await gate.custodian.decide(gate_in()) is Move.OPEN
    assert gate.readings == 1


async def test_a_gate_in_hears_first_what_is_in_the_ledgers_here(gate: Gate) -> None:
    gate.arrived = [
        entry(0, 1, "sydney"),
        entry(1, 1, "tokyo"),
        entry(2, 1, None),
        entry(3, 1, None, from_site="tokyo"),
    ]
    assert await gate.custodian.decide(gate_in(0)) is Move.WAIT  # another port has opened it
    assert await gate.custodian.decide(gate_in(1)) is Move.NOTHING
    assert await gate.custodian.decide(gate_in(2)) is Move.CLAIM
    assert await gate.custodian.decide(gate_in(3)) is Move.REOPEN


async def test_a_box_that_another_port_has_opened_again_is_not_opened_again(gate: Gate) -> None:
    gate.holdings.view.apply(entry(0, 2, None))
    gate.arrived = [entry(0, 3, "sydney", event="GTIN")]
    assert await gate.custodian.decide(gate_in()) is Move.WAIT
    gate.holdings.view.apply(entry(1, 2, None))
    gate.arrived = [entry(1, 3, "sydney", event="GTIN", event_date_time=NOW + 2 * HOUR)]
    with pytest.raises(NotHolderError):
        await gate.custodian.decide(gate_in(1))


async def test_many_gate_ins_at_once_are_one_reading_and_later_ones_another(gate: Gate) -> None:
    gate.arrived = [entry(7, 1, "sydney")]
    moves = await asyncio.gather(*(gate.custodian.decide(gate_in(n)) for n in range(200)))
    assert [n for n, move in enumerate(moves) if move is not Move.OPEN] == [7]
    assert gate.readings == 1
    gate.arrived = [entry(200, 1, "sydney")]
    assert await gate.custodian.decide(gate_in(200)) is Move.WAIT
    assert gate.readings == 2


async def test_what_opens_nothing_reads_nothing(gate: Gate) -> None:
    gate.holdings.view.apply(entry(0, 1, "tokyo"))
    gate.holdings.hold(box(), 1)
    load = Transfer(box(), "LOAD", "load", NOW + HOUR, "star")
    assert await gate.custodian.decide(load) is Move.GRANT
    assert await gate.custodian.decide(gate_in()) is Move.NOTHING
    assert gate.holdings.state(box()) is Custody.HELD
    assert gate.readings == 0


async def test_a_broker_that_is_away_is_waited_for(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edge.patience.FIRST_DELAY", 0.001)
    gate.trouble = [ConnectionLost("away")]
    gate.arrived = [entry(0, 1, "sydney")]
    assert await gate.custodian.decide(gate_in()) is Move.WAIT


async def test_an_event_is_written_down_only_after_that(gate: Gate) -> None:
    """A gate-in of a box that is open elsewhere waits; among the site's events it is when it is carried out."""
    gate.arrived = [entry(0, 1, "sydney")]
    lanes, lane = MagicMock(), MagicMock(log=box())
    lanes.events.append = AsyncMock()
    lanes.event_ids = set()
    movements = Movements("tokyo", lanes, gate.custodian, MagicMock(), finish=MagicMock(), reject=MagicMock())
    message = MagicMock(log=box(), to_site="tokyo")
    message.event.payload.equipment_event_type_code = "GTIN"
    message.event.payload.event_date_time = NOW + HOUR
    message.event.metadata.event_id = "gate-in"
    await movements._carry_out(message, MagicMock(), "events", False, None, lane)  # noqa: SLF001
    lanes.events.append.assert_not_awaited()
    lanes.strays.keep_event.assert_called_once()


async def test_a_box_that_left_elsewhere_is_claimed_once(gate: Gate) -> None:
    gate.holdings.view.apply(entry(0, 2, None))
    assert await gate.custodian.perform(gate_in(), MagicMock(log=box())) is Move.CLAIM
    assert await gate.custodian.perform(gate_in(), MagicMock(log=box())) is Move.CLAIM
    assert gate.custodian.has_claimed(gate_in())
    assert gate.ledger.append.await_count == 1
    gate.holdings.view.apply(entry(0, 4, None))  # it was in and out elsewhere since
    assert not gate.custodian.has_claimed(gate_in())


async def test_a_claim_is_an_event_that_happened_and_waits(gate: Gate) -> None:
    gate.holdings.view.apply(entry(0, 2, None))
    lanes, lane = MagicMock(), MagicMock(log=box())
    lanes.events.append = AsyncMock()
    lanes.event_ids = set()
    finish = MagicMock()
    movements = Movements("tokyo", lanes, gate.custodian, MagicMock(), finish=finish, reject=MagicMock())
    await movements._carry_out(message_of(gate_in()), MagicMock(), "events", False, MagicMock(), lane)  # noqa: SLF001
    lanes.events.append.assert_awaited_once()
    lanes.strays.keep_event.assert_called_once()
    finish.assert_not_called()  # the strays log acknowledges
    assert gate.custodian.has_claimed(gate_in())


async def test_a_gate_in_passes_what_waits_of_a_time_before_the_box_had_left(gate: Gate) -> None:
    """A loading waits here, and behind it the gate-in of a box that has left: the gate-in is carried out."""
    gate.holdings.view.apply(entry(0, 2, None, from_site="tokyo", event_date_time=NOW - HOUR))
    load = Transfer(box(), "LOAD", "load", NOW, "star")
    done = await carried_out(gate, load, gate_in())
    assert done == ["gate-in-0"]
    gate.holdings.view.apply(entry(0, 3, "sydney", event_date_time=NOW - HOUR))  # it is in, elsewhere
    assert await carried_out(gate, load, gate_in()) == []


async def carried_out(gate: Gate, *waiting: Transfer) -> list[str]:
    """The ids of the events that a look at those that wait carries out."""
    done: list[str] = []
    lanes = MagicMock()
    events = [WaitingEvent(n, each.event_id, each.at) for n, each in enumerate(waiting)]
    lanes.strays.events = {box(): events}
    movements = Movements("tokyo", lanes, gate.custodian, MagicMock(), finish=MagicMock(), reject=MagicMock())

    async def read(event: WaitingEvent, *_: object) -> tuple[Any, Any, str]:
        return message_of(waiting[event.offset]), MagicMock(), "events"

    async def run(what: Any) -> None:
        done.append(what.args[0].event.metadata.event_id)

    movements._read = read  # type: ignore[assignment, method-assign]  # noqa: SLF001
    lanes.box.return_value.run_alone = run
    await movements.retry_one(box(), MagicMock(), MagicMock())
    return done


def message_of(transfer: Transfer) -> MagicMock:
    message = MagicMock(log=transfer.log, to_site=transfer.to_site)
    message.event.payload.equipment_event_type_code = transfer.event
    message.event.payload.event_date_time = transfer.at
    message.event.metadata.event_id = transfer.event_id
    return message
