"""Who hears of what: pages of staff, and portals of customers."""

from __future__ import annotations

import pytest

from board.live import Changed, LiveLogs, News, Subscription
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
