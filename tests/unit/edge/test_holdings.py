from __future__ import annotations

import datetime as dt

from edge.holdings import Custody, Holdings
from fairlead.custody import CustodyView, Grant

AT = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
LOG = "containers.BIGU1000005"


def grant(term: int, to_site: str | None) -> Grant:
    return Grant(LOG, term, 10 * term, "x", to_site, "LOAD", f"e{term}", AT, {}, 10 * term)


def test_custody_comes_is_taken_and_goes() -> None:
    holdings = Holdings("tokyo", CustodyView())
    assert holdings.state(LOG) is Custody.ELSEWHERE
    holdings.news(grant(2, "tokyo"))
    assert holdings.state(LOG) is Custody.INCOMING
    assert set(holdings.incoming) == {LOG}
    holdings.hold(LOG, 2)
    assert (holdings.state(LOG), holdings.term(LOG), set(holdings.incoming)) == (Custody.HELD, 2, set())
    holdings.gave(LOG)
    assert (holdings.state(LOG), holdings.term(LOG)) == (Custody.ELSEWHERE, 0)


def test_an_entry_read_again_changes_nothing() -> None:
    holdings = Holdings("tokyo", CustodyView())
    holdings.hold(LOG, 3)
    holdings.news(grant(3, "tokyo"))
    assert holdings.state(LOG) is Custody.HELD
    holdings.news(grant(2, "sydney"))
    assert holdings.state(LOG) is Custody.HELD


def test_a_later_term_of_another_site_takes_the_log_away() -> None:
    holdings = Holdings("tokyo", CustodyView())
    holdings.hold(LOG, 3)
    assert holdings.news(grant(4, "sydney")) is Custody.HELD
    assert holdings.state(LOG) is Custody.ELSEWHERE


def test_a_box_that_comes_back_is_incoming_again() -> None:
    holdings = Holdings("tokyo", CustodyView())
    holdings.hold(LOG, 1)
    holdings.news(grant(5, "tokyo"))
    assert holdings.state(LOG) is Custody.INCOMING


def test_a_broken_log_is_not_appended_to_until_the_ledger_has_news() -> None:
    holdings = Holdings("tokyo", CustodyView())
    holdings.hold(LOG, 1)
    holdings.broke(LOG)
    assert (holdings.state(LOG), holdings.counts()["broken"]) == (Custody.BROKEN, 1)
    holdings.news(grant(3, "tokyo"))
    assert holdings.state(LOG) is Custody.INCOMING
