"""What a bridge makes of the entries of the ledgers, the bad ones too."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest

from edge.errors import SecondBridgeError
from edge.holdings import Custody, Holdings
from edge.receiver import Receiver
from fairlead.custody import CustodyView
from fairlead.errors import FairleadError
from fairlead.records import encode
from fairlead.records.custody import ClaimEntry, CustodyEntry, LedgerEntry, RefusalEntry
from fairlead.wire.errors import Fenced, Misplaced, broker_error
from fairlead.wire.record import Record
from fairlead.wire.types import TP, LogPosition

LOG = "containers.BIGU1000005"
NOW = dt.datetime.now(dt.UTC)


class World:
    """A receiver at Tokyo, fed by hand."""

    def __init__(self) -> None:
        self.holdings = Holdings("tokyo", CustodyView())
        self.custodian = MagicMock()
        self.custodian.is_writing.return_value = False
        self.own: list[LedgerEntry] = []
        self.claims: list[ClaimEntry] = []
        self.granted: list[int] = []
        self.lost: list[str] = []
        self.cluster = MagicMock()
        self.appender = MagicMock()
        self.receiver = Receiver(
            self.cluster,
            self.appender,
            self.holdings,
            self.custodian,
            ("custody.tokyo", "custody.star"),
            on_own=self.own.append,
            on_claim=self.claims.append,
            on_grant=lambda grant: self.granted.append(grant.term),
            on_held=MagicMock(),
            on_lost=self.lost.append,
        )

    def take(self, site: str, value: bytes | LedgerEntry, *, at_start: bool = False) -> None:
        body = value if isinstance(value, bytes) else encode(value)
        self.receiver._take(f"custody.{site}", Record(0, 0, None, body, ()), at_start)  # noqa: SLF001

    async def take_over(self, *answers: dict[TP, LogPosition | FairleadError]) -> None:
        """Take over until these answers to ``adopt_many`` are used up; every copy here is complete."""
        self.cluster.topics = AsyncMock(side_effect=dict.fromkeys)
        self.cluster.end_offsets = AsyncMock(side_effect=lambda logs: dict.fromkeys(logs, 1000))
        self.appender.adopt_many = AsyncMock(side_effect=[*answers, asyncio.CancelledError])
        with pytest.raises((asyncio.CancelledError, TimeoutError)):
            await asyncio.wait_for(self.receiver.take_over(), 0.5)


@pytest.fixture
def world() -> World:
    return World()


def entry(term: int, to_site: str | None, **more: Any) -> CustodyEntry:
    given: dict[str, Any] = {
        "log": LOG,
        "term": term,
        "marker_offset": 10 * term,
        "from_site": "star",
        "to_site": to_site,
        "event": "DISC",
        "event_id": f"e{term}",
        "event_date_time": NOW,
        "granted_date_time": NOW,
        "granted_by": "star",
        "marker_batch": b"",
    }
    return CustodyEntry(**{**given, **more})


def test_a_grant_to_this_site_is_on_its_way_until_the_copy_is_complete(world: World) -> None:
    world.take("star", entry(2, "tokyo"))
    assert world.holdings.state(LOG) is Custody.INCOMING
    world.take("star", entry(2, "tokyo"))
    assert world.granted == [2]


def test_what_is_no_entry_is_said_and_passed_over(world: World, caplog: pytest.LogCaptureFixture) -> None:
    for nonsense in (b"{", b"[]", b'{"entryType":"abdication","log":"x"}', b"\xff\xfe"):
        world.take("star", nonsense)
    assert caplog.text.count("is no entry") == 4
    world.take("star", entry(2, "tokyo"))
    assert world.holdings.state(LOG) is Custody.INCOMING


def test_one_term_granted_twice_is_said_and_the_first_stays(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.take("star", entry(2, "tokyo"))
    world.take("marlin", entry(2, "sydney", event_id="other"))
    assert world.holdings.view.holder(LOG) == "tokyo"
    assert world.receiver.splits.keys() == {LOG}
    assert "granted twice" in caplog.text


def test_an_entry_from_the_future_holds_and_is_said(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.take("star", entry(2, "tokyo", event_date_time=NOW + dt.timedelta(days=400)))
    assert "from the future" in caplog.text
    assert world.holdings.state(LOG) is Custody.INCOMING


def test_a_log_that_the_ledger_takes_away_is_given_up(world: World) -> None:
    world.take("tokyo", entry(1, "tokyo", from_site=None, granted_by="tokyo"), at_start=True)
    world.holdings.hold(LOG, 1)
    world.take("sydney", entry(17, "sydney", event="SEIZURE", granted_by="sydney"))
    assert world.lost == [LOG]
    assert world.holdings.state(LOG) is Custody.ELSEWHERE


def test_a_second_bridge_of_this_site_shows_in_its_ledger(world: World) -> None:
    world.take("tokyo", entry(2, "star", granted_by="tokyo"), at_start=True)  # of an earlier life
    world.custodian.is_writing.return_value = True
    world.take("tokyo", entry(3, "star", granted_by="tokyo"))  # being written now
    world.custodian.is_writing.return_value = False
    world.take("tokyo", entry(3, "star", granted_by="tokyo"))  # known by now
    with pytest.raises(SecondBridgeError, match="another bridge of tokyo"):
        world.take("tokyo", entry(4, "star", granted_by="tokyo"))


def test_entries_of_this_sites_ledger_are_passed_on(world: World) -> None:
    refusal = RefusalEntry(log=LOG, order_id="o1", code="x", reason="y", refused_date_time=NOW, refused_by="tokyo")
    world.take("tokyo", refusal, at_start=True)
    world.take("star", refusal)
    assert world.own == [refusal]


async def test_many_logs_are_taken_over_in_one_go_each_as_its_copy_is(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    good, cut, fenced, busy = (f"containers.{name}" for name in ("good", "cut", "fenced", "busy"))
    for log in (good, cut, fenced, busy):
        world.take("star", entry(2, "tokyo", log=log))
    await world.take_over(
        {
            TP(good): LogPosition(21, 2, 20),
            TP(cut): Misplaced("older", term=1),
            TP(fenced): Fenced("later"),
            TP(busy): broker_error(6, TP(busy)),
        },
        {TP(cut): Misplaced("older", term=1), TP(busy): LogPosition(21, 2, 20)},
    )
    assert [world.holdings.state(log) for log in (good, cut, fenced, busy)] == [
        Custody.HELD,
        Custody.INCOMING,
        Custody.BROKEN,
        Custody.HELD,
    ]
    assert world.receiver.taken == 2
    assert "containers.fenced" in caplog.text
    assert [set(call.args[0]) for call in world.appender.adopt_many.await_args_list[:2]] == [
        {TP(good), TP(cut), TP(fenced), TP(busy)},
        {TP(cut), TP(busy)},
    ]


async def test_a_log_that_has_moved_on_while_it_was_looked_at_is_left_alone(world: World) -> None:
    world.take("star", entry(2, "tokyo"))

    async def adopt(_terms: object) -> dict[TP, LogPosition | FairleadError]:
        world.take("star", entry(4, "star"))
        return {TP(LOG): Fenced("later")}

    world.cluster.topics = AsyncMock(side_effect=dict.fromkeys)
    world.cluster.end_offsets = AsyncMock(side_effect=lambda logs: dict.fromkeys(logs, 1000))
    world.appender.adopt_many = adopt
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(world.receiver.take_over(), 0.2)
    assert world.holdings.state(LOG) is Custody.ELSEWHERE


def test_claims_of_every_ledger_are_passed_on_those_found_at_start_too(world: World) -> None:
    claim = ClaimEntry(
        log=LOG,
        term=2,
        left_site="tokyo",
        event_id="gate-in",
        event_date_time=NOW,
        claimed_date_time=NOW,
        claimed_by="star",
    )
    world.take("star", claim, at_start=True)
    world.take("tokyo", claim)
    assert world.claims == [claim, claim]
    assert world.own == [claim]
