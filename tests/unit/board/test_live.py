"""What logs tell the board, and who hears of it: pages of staff, and portals of customers."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator

import pytest

import board.live
import board.pages.live
from board.itinerary import Itineraries
from board.live import Changed, LiveLogs, News, Subscription
from board.service import BoardService
from fairlead.kafka.protocol.record import NewRecord
from fairlead.records import encode
from fairlead.records.ship import Position
from fairlead.waiting import in_background
from tests.support.board import STAR, position
from tests.support.kafka.fake_broker import FakeCluster
from tests.support.kafka.fake_log import begin, damage, put
from tests.support.notices import T0, alert
from tests.support.waits import PATIENCE
from topologies.loader.load import load


@pytest.fixture
def live() -> LiveLogs:
    def no_kafka() -> None:
        raise AssertionError("nothing is read here")

    return LiveLogs(load("minimal"), no_kafka)  # type: ignore[arg-type]


async def heard(subscription: Subscription) -> list[News]:
    """Return all news that wait for a page."""
    found = []
    while (news := await subscription.next(0.05)) is not None:
        found.append(news)
    return found


async def test_a_portal_hears_of_its_own_table_alone_and_once_for_each_version(live: LiveLogs) -> None:
    with live.subscribe("ducks", 7) as ducks, live.subscribe("geese", 3) as geese, live.subscribe() as staff:
        assert live.customers == {"ducks", "geese"}
        for what in ("alerts", "tables", "status", "voyages"):
            live.tell(Changed(what))
        live.tell_customers({"ducks": 8, "geese": 3})
        live.tell_customers({"ducks": 8, "geese": 3})
        assert await heard(ducks) == [Changed("feed")]
        assert await heard(geese) == []
        assert [news.what for news in await heard(staff) if isinstance(news, Changed)] == [
            "alerts", "tables", "status", "voyages",
        ]  # fmt: skip
        live.tell_customers({"geese": None})  # the topology gives it no table any more
        live.tell_customers({"ducks": 8}, all_of_them=True)
        assert (await heard(ducks), await heard(geese)) == ([Changed("feed")], [Changed("feed")])
    assert live.customers == frozenset()


# --- what logs say


@contextlib.asynccontextmanager
async def following(fake: FakeCluster) -> AsyncIterator[LiveLogs]:
    """Yield the live logs once they have read all that is in the broker."""
    live = LiveLogs(load("minimal"), fake.endpoint)
    async with live.running(), asyncio.timeout(PATIENCE):
        await live.read()
        yield live


async def test_a_site_changes_alerts_of_its_own_alone(fake: FakeCluster) -> None:
    """Neither a record in another site's name nor one with another's id changes what the other has raised."""
    raised, ashore = alert("a"), alert("c", raised_at="shore")
    own = alert("a", "CLEARED", raised_at="duck-star")
    begin(fake, "alerts.tokyo", encode(raised))
    begin(fake, "alerts.shore", encode(ashore))
    begin(fake, "alerts.duck-star", encode(alert("a", "CLEARED")), encode(alert("b")), encode(own))
    async with following(fake) as live:
        assert {each.alert_id: each for each in live.open_alerts()} == {"a": raised, "c": ashore}
        assert (live.alert("a", ""), live.alert("a", "duck-star"), live.opened(raised)) == (raised, own, T0)


async def test_a_position_whose_time_nobody_can_convert_is_passed_over(fake: FakeCluster) -> None:
    good = position(0)
    last_year = encode(good).replace(b"2026-09-01T00:00:00Z", b"9999-12-31T23:59:59-01:00")
    begin(fake, f"ships.{STAR}.location", last_year, encode(good))
    async with following(fake) as live:
        assert live.positions() == {STAR: good}


async def test_a_damaged_batch_hides_no_other_log_and_is_told(fake: FakeCluster, service: BoardService) -> None:
    begin(fake, "alerts.tokyo", encode(alert("a")))
    begin(fake, f"ships.{STAR}.location", encode(position(0)))
    put(fake.logs[f"ships.{STAR}.location"], NewRecord(encode(position(1)), timestamp_ms=5))
    damage(fake.logs[f"ships.{STAR}.location"])
    async with following(fake) as live:
        assert ([each.alert_id for each in live.open_alerts()], live.positions()) == (["a"], {STAR: position(0)})
        service.live = live
        (told,) = service.warnings()
    assert f"ships.{STAR}.location" in told and "damaged" in told


async def test_a_mistake_in_reading_the_logs_is_told_and_reading_begins_again(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages would show old alerts as if they were read now."""
    monkeypatch.setattr(board.live, "_PAUSE", 0.01)
    begin(fake, f"ships.{STAR}.location", encode(position(0)))
    live, locate, troubles = LiveLogs(load("minimal"), fake.endpoint), Itineraries.locate, list[str]()

    def mistaken(itineraries: Itineraries, located: Position) -> None:
        troubles.append(live.trouble)
        if len(troubles) < 3:
            raise OverflowError("date value out of range")
        locate(itineraries, located)

    monkeypatch.setattr(Itineraries, "locate", mistaken)
    async with live.running(), asyncio.timeout(PATIENCE):
        await live.read()
        assert (troubles[-1], live.trouble) == ("reading the logs failed: OverflowError", "")
        assert live.positions() == {STAR: position(0)}


# --- tables that change


@pytest.fixture
def versions(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The versions of the tables, which a test changes. A customer's table has another one at every look."""
    found, looks = {"containers_now": 1}, itertools.count(1)
    monkeypatch.setattr(board.pages.live, "_versions_of_feeds", lambda *_: {"ducks": next(looks)})
    monkeypatch.setattr(board.pages.live, "_LOOK", 0.01)
    monkeypatch.setattr(board.pages.live, "_versions", lambda _board: dict(found))
    return found


@pytest.fixture
async def watched(service: BoardService, versions: dict[str, int]) -> AsyncIterator[BoardService]:
    async with in_background(board.pages.live.watch(service)):
        yield service


async def hears_of_tables(subscription: Subscription) -> None:
    async with asyncio.timeout(PATIENCE):
        while await subscription.next(PATIENCE) != Changed("tables"):
            pass


async def test_what_a_page_reads_when_it_hears_of_tables_is_from_after_the_change(
    watched: BoardService, versions: dict[str, int]
) -> None:
    async def shown() -> int:
        return await watched.read_once("page", lambda: versions["containers_now"], stale=60)

    with watched.live.subscribe() as page:
        await hears_of_tables(page)  # nobody knows what it was rendered from
        assert await shown() == 1
        versions["containers_now"] = 2
        await hears_of_tables(page)
        assert await shown() == 2


async def test_a_page_hears_of_tables_that_changed_while_none_was_open(
    watched: BoardService, versions: dict[str, int]
) -> None:
    with watched.live.subscribe() as page:
        await hears_of_tables(page)
    with watched.live.subscribe("ducks") as portal:  # some looks while no page of staff is open
        for _ in range(3):
            assert await portal.next(PATIENCE) == Changed("feed")
    versions["containers_now"] = 2
    with watched.live.subscribe() as page:
        await hears_of_tables(page)
