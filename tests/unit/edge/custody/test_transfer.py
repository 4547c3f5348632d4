from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.custody.protocol import CustodyMove, Transfer, of_order, plan
from edge.errors import NotHolderError
from edge.holdings import CustodyState, Holdings
from fairlead.custody.view import CustodyView
from fairlead.records.custody import CustodyEntry, CustodyEvent, CustodyOrder

LOG = "containers.BIGU1000005"
NOON = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
NOW = NOON + dt.timedelta(hours=2)
HOUR = dt.timedelta(hours=1)
SITES = ("tokyo", "sydney", "star")


def transfer(event: CustodyEvent, to_site: str | None, *, at: dt.datetime = NOON, event_id: str = "new") -> Transfer:
    return Transfer(LOG, event, event_id, at, to_site)


def known(
    to_site: str | None,
    *,
    term: int = 1,
    event: CustodyEvent = "LOAD",
    at: dt.datetime = NOON - HOUR,
    from_site: str = "tokyo",
) -> Holdings:
    """Return Tokyo's holdings after one grant."""
    view = CustodyView()
    view.apply(
        CustodyEntry(
            log=LOG,
            term=term,
            marker_offset=10 * term,
            from_site=from_site,
            to_site=to_site,
            event=event,
            event_id="before",
            event_date_time=at,
            granted_date_time=at,
            granted_by="x",
            marker_batch=b"",
        )
    )
    holdings = Holdings("tokyo", view)
    grant = view.grant(LOG)
    assert grant is not None
    holdings.apply_grant(grant)
    return holdings


def held() -> Holdings:
    holdings = known("tokyo")
    holdings.hold(LOG, 1)
    return holdings


@pytest.mark.parametrize(
    ("event", "to_site", "holdings", "move"),
    [
        ("GTIN", "tokyo", Holdings("tokyo", CustodyView()), CustodyMove.OPEN),
        ("GTIN", "tokyo", held(), CustodyMove.NOTHING),
        ("GTIN", "tokyo", known("tokyo"), CustodyMove.NOTHING),
        ("GTIN", "tokyo", known(None, event="GTOT"), CustodyMove.REOPEN),
        (
            "GTIN",
            "tokyo",
            known(None, event="GTOT", from_site="sydney"),
            CustodyMove.CLAIM,
        ),  # sydney reopens it for the site that claims it
        ("GTIN", "tokyo", known(None, event="GTOT", from_site="gone"), CustodyMove.REOPEN),  # no other site can
        ("LOAD", "star", known(None, event="GTOT", from_site="sydney"), CustodyMove.WAIT),
        ("GTIN", "tokyo", known("star"), CustodyMove.WAIT),  # it left another gate, whose ledger is not here yet
        ("LOAD", "star", held(), CustodyMove.GRANT),
        ("GTOT", None, held(), CustodyMove.GRANT),
        ("DISC", "tokyo", held(), CustodyMove.NOTHING),
        ("LOAD", "star", known("tokyo"), CustodyMove.WAIT),
        ("LOAD", "star", known("star"), CustodyMove.WAIT),
        ("LOAD", "star", Holdings("tokyo", CustodyView()), CustodyMove.WAIT),
    ],
)
def test_what_an_event_asks_for(
    event: CustodyEvent, to_site: str | None, holdings: Holdings, move: CustodyMove
) -> None:
    """Each kind of event and each state of custody leads to one defined action."""
    assert plan(transfer(event, to_site), holdings, NOW, SITES) is move


@pytest.mark.parametrize("holdings", [held(), known("tokyo"), known("star"), known(None)])
def test_what_was_carried_out_is_not_asked_again(holdings: Holdings) -> None:
    """An event that was carried out already leads to no action."""
    assert plan(transfer("LOAD", "star", event_id="before"), holdings, NOW, SITES) is CustodyMove.NOTHING


@pytest.mark.parametrize("event", ["LOAD", "DISC", "GTOT"])
@pytest.mark.parametrize("to_site", ["tokyo", "star", None])
def test_an_event_older_than_the_newest_grant_has_been_overtaken(event: CustodyEvent, to_site: str | None) -> None:
    """An event older than the newest grant is refused."""
    holdings = known(to_site, at=NOON + HOUR)
    with pytest.raises(NotHolderError, match="older"):
        plan(transfer(event, "star"), holdings, NOW, SITES)
    if to_site == "tokyo":
        holdings.hold(LOG, 1)
        with pytest.raises(NotHolderError, match="older"):
            plan(transfer(event, "star"), holdings, NOW, SITES)


def test_a_gate_in_older_than_the_gate_out_opens_nothing() -> None:
    """A gate-in older than the gate-out opens nothing."""
    with pytest.raises(NotHolderError, match="older"):
        plan(transfer("GTIN", "tokyo"), known(None, event="GTOT", at=NOON + HOUR), NOW, SITES)


@pytest.mark.parametrize("by_hand", ["HAND", "SEIZURE"])
def test_a_grant_by_hand_overtakes_nothing_because_its_time_is_no_devices(by_hand: CustodyEvent) -> None:
    """A grant by hand makes no event too old: its time is not a device's."""
    holdings = known("tokyo", event=by_hand, at=NOON + HOUR)
    holdings.hold(LOG, 1)
    assert plan(transfer("LOAD", "star"), holdings, NOW, SITES) is CustodyMove.GRANT


def test_a_grant_from_the_future_overtakes_nothing() -> None:
    """A grant dated in the future makes no event too old."""
    holdings = known("tokyo", at=NOW + 25 * HOUR)
    holdings.hold(LOG, 1)
    assert plan(transfer("LOAD", "star"), holdings, NOW, SITES) is CustodyMove.GRANT
    with pytest.raises(NotHolderError):
        plan(transfer("LOAD", "star"), holdings, NOW + 2 * HOUR, SITES)  # a clock may be ahead by up to a day


@given(st.sampled_from(["GTIN", "GTOT", "LOAD", "DISC"]), st.sampled_from(list(CustodyState)), st.booleans())
def test_only_a_holder_grants(event: CustodyEvent, state: CustodyState, later: bool) -> None:
    holdings = known("star" if state is CustodyState.ELSEWHERE else "tokyo", at=NOON + HOUR if later else NOON - HOUR)
    if state is CustodyState.HELD:
        holdings.hold(LOG, 1)
    elif state is CustodyState.BROKEN:
        holdings.mark_broken(LOG)
    try:
        move = plan(transfer(event, "star"), holdings, NOW, SITES)
    except NotHolderError:
        return
    assert move is not CustodyMove.GRANT or state is CustodyState.HELD
    assert move not in (CustodyMove.OPEN, CustodyMove.REOPEN)  # it is open, and has not left the system


def test_an_order_becomes_a_transfer_of_its_name() -> None:
    order = CustodyOrder(
        order_id="o1",
        kind="seize",
        log=LOG,
        at_site="tokyo",
        to_site="tokyo",
        ordered_date_time=NOON,
        ordered_by="ann",
        reason="sunk",
    )
    assert of_order(order) == Transfer(LOG, "SEIZURE", "o1", NOON, "tokyo", "sunk", "ann")
