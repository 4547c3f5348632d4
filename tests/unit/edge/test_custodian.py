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
        self.custodian = Custodian(
            self.holdings, MagicMock(), MagicMock(), MagicMock(), AsyncMock(), MagicMock(), self._read
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
    gate.arrived = [entry(0, 1, "sydney"), entry(1, 1, "tokyo"), entry(2, 1, None)]
    assert await gate.custodian.decide(gate_in(0)) is Move.WAIT  # another port has opened it
    assert await gate.custodian.decide(gate_in(1)) is Move.NOTHING
    assert await gate.custodian.decide(gate_in(2)) is Move.REOPEN


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
    movements = Movements(
        "tokyo", lanes, gate.custodian, MagicMock(), finish=MagicMock(), reject=MagicMock(), on_moved=MagicMock()
    )
    message = MagicMock(log=box(), to_site="tokyo")
    message.event.payload.equipment_event_type_code = "GTIN"
    message.event.payload.event_date_time = NOW + HOUR
    message.event.metadata.event_id = "gate-in"
    await movements._carry_out(message, MagicMock(), "events", False, None, lane)  # noqa: SLF001
    lanes.events.append.assert_not_awaited()
    lanes.strays.keep_event.assert_called_once()
