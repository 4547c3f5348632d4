from __future__ import annotations

import datetime as dt

from edge.holdings import CustodyState, Holdings
from fairlead.custody.view import CustodyView, Grant

AT = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
LOG = "containers.BIGU1000005"


def grant(term: int, to_site: str | None) -> Grant:
    return Grant(LOG, term, 10 * term, "x", to_site, "LOAD", f"e{term}", AT, {}, 10 * term)


def test_custody_comes_is_taken_and_goes() -> None:
    """A log goes through the custody states: granted to this site, held, granted away."""
    holdings = Holdings("tokyo", CustodyView())
    assert holdings.state(LOG) is CustodyState.ELSEWHERE
    holdings.apply_grant(grant(2, "tokyo"))
    assert holdings.state(LOG) is CustodyState.INCOMING
    assert set(holdings.incoming) == {LOG}
    holdings.hold(LOG, 2)
    assert (holdings.state(LOG), holdings.term(LOG), set(holdings.incoming)) == (CustodyState.HELD, 2, set())
    holdings.release(LOG)
    assert (holdings.state(LOG), holdings.term(LOG)) == (CustodyState.ELSEWHERE, 0)


def test_an_entry_read_again_changes_nothing() -> None:
    """An entry that is read again changes nothing."""
    holdings = Holdings("tokyo", CustodyView())
    holdings.hold(LOG, 3)
    holdings.apply_grant(grant(3, "tokyo"))
    assert holdings.state(LOG) is CustodyState.HELD
    holdings.apply_grant(grant(2, "sydney"))
    assert holdings.state(LOG) is CustodyState.HELD


def test_a_later_term_of_another_site_takes_the_log_away() -> None:
    """A later term of another site takes the log away."""
    holdings = Holdings("tokyo", CustodyView())
    holdings.hold(LOG, 3)
    assert holdings.apply_grant(grant(4, "sydney")) is CustodyState.HELD
    assert holdings.state(LOG) is CustodyState.ELSEWHERE


def test_whoever_waits_for_a_box_to_go_hears_of_a_log_that_is_passed_on_or_lost() -> None:
    """``on_release`` is called for a log that this site grants, and for one that another site seizes."""
    gone: list[str] = []
    holdings = Holdings("tokyo", CustodyView(), gone.append)
    holdings.hold(LOG, 3)
    holdings.apply_grant(grant(4, "sydney"))
    assert gone == [LOG]
    holdings.apply_grant(grant(5, "singapore"))  # was not this site's any more
    assert gone == [LOG]
    holdings.hold(LOG, 6)
    holdings.release(LOG)
    assert gone == [LOG, LOG]


def test_whoever_waits_for_a_box_to_come_hears_of_a_log_that_is_taken_over() -> None:
    """``on_hold`` is called when this site may append, not already when the ledger gives it the log."""
    here: list[str] = []
    holdings = Holdings("tokyo", CustodyView(), on_hold=here.append)
    holdings.apply_grant(grant(5, "tokyo"))
    assert here == []
    holdings.hold(LOG, 5)
    assert here == [LOG]


def test_a_box_that_comes_back_is_incoming_again() -> None:
    """A box that comes back is incoming again."""
    holdings = Holdings("tokyo", CustodyView())
    holdings.hold(LOG, 1)
    holdings.apply_grant(grant(5, "tokyo"))
    assert holdings.state(LOG) is CustodyState.INCOMING


def test_a_broken_log_is_not_appended_to_until_the_ledger_has_news() -> None:
    """A broken log takes no appends until the ledger has a new entry."""
    holdings = Holdings("tokyo", CustodyView())
    holdings.hold(LOG, 1)
    holdings.mark_broken(LOG)
    assert (holdings.state(LOG), holdings.counts()["broken"]) == (CustodyState.BROKEN, 1)
    holdings.apply_grant(grant(3, "tokyo"))
    assert holdings.state(LOG) is CustodyState.INCOMING
