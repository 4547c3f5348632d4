"""Claims to the log of a box that has left: which site answers, which claims are void, and which is served first."""

from __future__ import annotations

import datetime as dt
from typing import Any

from edge.custody.protocol import Claims
from fairlead.custody.view import CustodyView
from fairlead.records.custody import ClaimEntry, CustodyEntry

LOG = "containers.BIGU1000005"
NOON = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
HOUR = dt.timedelta(hours=1)


def claim(by: str = "sydney", *, term: int = 2, after: int = 1, left: str = "tokyo") -> ClaimEntry:
    return ClaimEntry(
        log=LOG,
        term=term,
        left_site=left,
        event_id=f"{by}-{after}",
        event_date_time=NOON + after * HOUR,
        claimed_date_time=NOON + after * HOUR,
        claimed_by=by,
    )


def grant(view: CustodyView, term: int, to_site: str | None, **more: Any) -> None:
    given: dict[str, Any] = {
        "log": LOG,
        "term": term,
        "marker_offset": 10 * term,
        "from_site": "tokyo",
        "to_site": to_site,
        "event": "LOAD" if to_site else "GTOT",
        "event_id": f"e{term}",
        "event_date_time": NOON,
        "granted_date_time": NOON,
        "granted_by": "tokyo",
        "marker_batch": b"",
    }
    view.apply(CustodyEntry(**{**given, **more}))


def left() -> tuple[CustodyView, Claims]:
    """Return Tokyo's claims, after the box has left there in term 2."""
    view = CustodyView()
    grant(view, 2, None)
    return view, Claims("tokyo", view)


def test_the_box_that_came_in_first_comes_first() -> None:
    """Of two claims, the one of the box that came in first is served first."""
    _, claims = left()
    assert claims.next(LOG) is None
    assert claims.learn(claim("sydney", after=3))
    assert claims.learn(claim("hamburg", after=2))
    first = claims.next(LOG)
    assert first is not None
    assert first.claimed_by == "hamburg"
    assert list(claims.logs()) == [LOG]


def test_what_others_are_asked_is_passed_over() -> None:
    """A claim to another site is ignored."""
    _, claims = left()
    assert not claims.learn(claim(left="hamburg"))
    assert claims.next(LOG) is None
    assert not claims.logs()


def test_a_claim_is_void_in_any_other_term_than_its_own() -> None:
    """A claim is void in any term but its own."""
    view, claims = left()
    claims.learn(claim())
    grant(view, 3, "sydney")
    assert claims.next(LOG) is None
    assert not claims.logs()
    grant(view, 4, None, from_site="sydney")
    claims.learn(claim("hamburg", term=4))  # the box has left another site since: not for Tokyo to answer
    assert claims.next(LOG) is None


def test_a_claim_may_be_read_before_what_it_answers_to() -> None:
    """A claim may be read before the entry that it refers to."""
    view = CustodyView()
    claims = Claims("tokyo", view)
    claims.learn(claim())
    assert claims.next(LOG) is None
    grant(view, 1, "tokyo")
    assert claims.next(LOG) is None
    grant(view, 2, None)
    assert claims.next(LOG) == claim()


def test_a_site_knows_what_it_has_claimed_itself() -> None:
    """A site recognises its own claims, and does not answer them."""
    _, claims = left()
    mine = claim("tokyo", left="hamburg")
    assert not claims.learn(mine)
    assert claims.is_made(LOG, 2, mine.event_id)
    assert not claims.is_made(LOG, 3, mine.event_id)
    assert not claims.is_made(LOG, 2, "another")
    assert claims.next(LOG) is None
