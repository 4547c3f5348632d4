"""What a bridge does with the entries of the ledgers, including invalid ones."""

from __future__ import annotations

import asyncio
import datetime as dt
from unittest.mock import AsyncMock

import msgspec
import pytest

from edge.custody.protocol import AppendEntry, StoredMarker
from edge.errors import SecondBridgeError
from edge.holdings import CustodyState
from fairlead.errors import FairleadError
from fairlead.kafka.protocol.errors import Fenced, Misplaced, broker_error
from fairlead.kafka.protocol.types import TP, LogPosition
from fairlead.names import container_check_digit
from fairlead.records.custody import ClaimEntry, CustodyEntry, Marker, RefusalEntry
from tests.support.edge.receiving import LOG, NOW, World, entry

BOXES = tuple(number + container_check_digit(number) for number in (f"BIGU20000{n}" for n in range(10)))


@pytest.fixture
def world() -> World:
    return World()


def marker(term: int, to_site: str | None) -> Marker:
    return Marker(
        log=LOG,
        term=term,
        from_site="tokyo",
        to_site=to_site,
        event="DISC",
        event_id=f"e{term}",
        event_date_time=NOW,
        nonce="n",
    )


def given(term: int) -> CustodyEntry:
    """Return Tokyo's grant of the log to the ship."""
    return entry(term, "star", from_site="tokyo", granted_by="tokyo")


def test_a_grant_to_this_site_is_on_its_way_until_the_copy_is_complete(world: World) -> None:
    """A log granted to this site counts as incoming until its copy is complete."""
    world.aboard()
    world.take("star", entry(2, "tokyo"))
    assert world.holdings.state(LOG) is CustodyState.INCOMING
    world.take("star", entry(2, "tokyo"))
    assert world.granted == [2]


def test_what_is_no_entry_is_said_and_passed_over(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """A record that is no valid entry is logged and skipped."""
    for nonsense in (b"{", b"[]", b'{"entryType":"abdication","log":"x"}', b"\xff\xfe"):
        world.take("star", nonsense)
    assert caplog.text.count("is not a ledger entry") == 4
    world.aboard()
    world.take("star", entry(2, "tokyo"))
    assert world.holdings.state(LOG) is CustodyState.INCOMING


def test_one_term_granted_twice_is_said_and_the_first_stays(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Two grants of one term are logged, and the first one holds."""
    world.aboard()
    world.take("star", entry(2, "tokyo"))
    world.take("star", entry(2, "sydney", event_id="other"))
    assert world.holdings.view.holder(LOG) == "tokyo"
    assert world.protocol.splits.keys() == {LOG}
    assert "granted twice" in caplog.text


def test_an_entry_from_the_future_holds_and_is_said(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """A grant dated in the future holds, and is logged."""
    world.aboard()
    world.take("star", entry(2, "tokyo", event_date_time=NOW + dt.timedelta(days=400)))
    assert "from the future" in caplog.text
    assert world.holdings.state(LOG) is CustodyState.INCOMING


def test_a_log_that_the_ledger_takes_away_is_given_up(world: World) -> None:
    """When the ledger gives a log to another site, this site stops writing to it."""
    world.take("tokyo", entry(1, "tokyo", from_site=None, granted_by="tokyo"), at_start=True)
    world.holdings.hold(LOG, 1)
    world.take("sydney", entry(17, "sydney", event="SEIZURE", granted_by="sydney"))
    assert world.lost == [LOG]
    assert world.holdings.state(LOG) is CustodyState.ELSEWHERE


def test_a_second_bridge_of_this_site_shows_in_its_ledger(world: World) -> None:
    """A second bridge of the same site is detected by its entries in the site's ledger."""
    world.take("tokyo", given(2), at_start=True)  # written before this bridge started
    writing = world.protocol.publish(marker(4, "star"), 40)
    writing.send(None)
    appending = writing.send(StoredMarker(None, b""))
    assert isinstance(appending, AppendEntry)
    world.take("tokyo", given(4))  # the entry that is being written now
    with pytest.raises(StopIteration):
        writing.send(None)
    world.take("tokyo", given(4))  # the entry is known by now
    with pytest.raises(SecondBridgeError, match="another bridge of tokyo"):
        world.take("tokyo", given(6))


def test_entries_of_this_sites_ledger_are_passed_on(world: World) -> None:
    """Refusals in this site's own ledger mark the order as answered; those of other sites do not."""
    refusal = RefusalEntry(log=LOG, order_id="o1", code="x", reason="y", refused_date_time=NOW, refused_by="tokyo")
    world.take("tokyo", refusal, at_start=True)
    world.take("star", msgspec.structs.replace(refusal, order_id="o2"))
    assert world.protocol.is_answered("o1")
    assert not world.protocol.is_answered("o2")


async def test_many_logs_are_taken_over_in_one_go_each_as_its_copy_is(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Many logs are taken over in one request; each one's result depends on its own copy."""
    good, cut, fenced, busy = (f"containers.{BOXES[n]}" for n in range(4))
    world.aboard(good, cut, fenced, busy)
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
        CustodyState.HELD,
        CustodyState.INCOMING,
        CustodyState.BROKEN,
        CustodyState.HELD,
    ]
    assert fenced in caplog.text
    assert list(world.broken.looks) == [fenced]  # the log itself is checked for the outcome
    assert [set(call.args[0]) for call in world.appender.adopt_many.await_args_list[:2]] == [
        {TP(good), TP(cut), TP(fenced), TP(busy)},
        {TP(cut), TP(busy)},
    ]


async def test_a_log_that_has_moved_on_while_it_was_looked_at_is_left_alone(world: World) -> None:
    """A log whose custody changes while it is being checked is left alone."""
    world.aboard()
    world.take("star", entry(2, "tokyo"))

    async def adopt(_terms: object) -> dict[TP, LogPosition | FairleadError]:
        world.take("sydney", entry(4, "star", from_site="sydney", granted_by="sydney"))
        return {TP(LOG): Fenced("later")}

    world.cluster.topics = AsyncMock(side_effect=dict.fromkeys)
    world.cluster.end_offsets = AsyncMock(side_effect=lambda logs, **_: dict.fromkeys(logs, 1000))
    world.appender.adopt_many = adopt
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(world.receiver.take_over(), 0.2)
    assert world.holdings.state(LOG) is CustodyState.ELSEWHERE


def test_claims_of_every_ledger_are_known_those_found_at_start_too(world: World) -> None:
    """Claims in every ledger are known, including those found at the start."""
    claim = ClaimEntry(
        log=LOG,
        term=2,
        left_site="tokyo",
        event_id="gate-in",
        event_date_time=NOW,
        claimed_date_time=NOW,
        claimed_by="sydney",
    )
    own = msgspec.structs.replace(claim, left_site="sydney", claimed_by="tokyo")
    world.take("sydney", claim, at_start=True)
    assert (world.protocol.claims.logs(), world.receiver.claimed.is_set()) == ((LOG,), True)
    world.take("tokyo", own)
    assert world.protocol.claims.is_made(LOG, 2, "gate-in")
