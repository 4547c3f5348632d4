"""What a bridge makes of the entries of the ledgers, the bad ones too."""

from __future__ import annotations

import datetime as dt
from typing import Any
from unittest.mock import MagicMock

import pytest

from edge.errors import SecondBridgeError
from edge.holdings import Custody, Holdings
from edge.receiver import Receiver
from fairlead.custody import CustodyView
from fairlead.records import encode
from fairlead.records.custody import CustodyEntry, LedgerEntry, RefusalEntry
from fairlead.wire.record import Record

LOG = "containers.BIGU1000005"
NOW = dt.datetime.now(dt.UTC)


class World:
    """A receiver at Tokyo, fed by hand."""

    def __init__(self) -> None:
        self.holdings = Holdings("tokyo", CustodyView())
        self.custodian = MagicMock()
        self.custodian.is_writing.return_value = False
        self.own: list[LedgerEntry] = []
        self.granted: list[int] = []
        self.lost: list[str] = []
        self.receiver = Receiver(
            MagicMock(),
            MagicMock(),
            self.holdings,
            self.custodian,
            ("custody.tokyo", "custody.star"),
            on_own=self.own.append,
            on_grant=lambda grant: self.granted.append(grant.term),
            on_held=MagicMock(),
            on_lost=self.lost.append,
        )

    def take(self, site: str, value: bytes | LedgerEntry, *, at_start: bool = False) -> None:
        body = value if isinstance(value, bytes) else encode(value)
        self.receiver._take(f"custody.{site}", Record(0, 0, None, body, ()), at_start)  # noqa: SLF001


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
