from __future__ import annotations

import datetime as dt
from itertools import permutations
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.custody.view import CustodyView, SplitCustodyError
from fairlead.records.custody import CustodyEntry

AT = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
SITES = ["tokyo", "star", "sydney", None]


def entry(log: str, term: int, to_site: str | None, *, marker: int | None = None) -> CustodyEntry:
    return CustodyEntry(
        log=log,
        term=term,
        marker_offset=10 * term if marker is None else marker,
        from_site="x",
        to_site=to_site,
        event="LOAD",
        event_id=f"{log}-{term}",
        event_date_time=AT,
        granted_date_time=AT,
        granted_by="x",
        marker_batch=b"m",
    )


histories = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c"]), st.lists(st.sampled_from(SITES), min_size=1, max_size=6)), max_size=3
)


@given(histories, st.randoms(use_true_random=False))
def test_any_order_and_any_repeats_give_the_same_view(
    histories: list[tuple[str, list[str | None]]], random: Random
) -> None:
    chains = dict(histories)
    entries = [entry(log, term, to) for log, chain in chains.items() for term, to in enumerate(chain, 1)]
    shuffled = [*entries, *entries]
    random.shuffle(shuffled)
    view = CustodyView()
    news = sum(view.apply(one) for one in shuffled)
    assert news <= len(entries)
    for log, chain in chains.items():
        assert view.holder(log) == chain[-1]
        assert view.term(log) == len(chain)
        assert view.marker(log) == 10 * len(chain)
    for site in ("tokyo", "star", "sydney"):
        held = {log for log, chain in chains.items() if chain[-1] == site}
        assert set(view.held_by(site)) == held
        assert len(view.held_by(site)) == len(held)
        assert {log for log in chains if log in view.held_by(site)} == held
        assert {grant.log for grant in view.granted_to(site)} == held
    assert len(view) == len(chains)


def test_an_unknown_log_has_no_holder() -> None:
    view = CustodyView()
    assert (view.holder("a"), view.term("a"), view.marker("a"), view.grant("a")) == (None, None, None, None)
    assert not view.held_by("tokyo")


def test_two_grants_of_one_term_are_an_error_and_the_first_stays() -> None:
    view = CustodyView()
    view.apply(entry("a", 2, "tokyo"))
    with pytest.raises(SplitCustodyError, match="granted twice"):
        view.apply(entry("a", 2, "star"))
    assert view.holder("a") == "tokyo"


def seizure(log: str, term: int, to_site: str, marker: int) -> CustodyEntry:
    return msgspec.structs.replace(entry(log, term, to_site, marker=marker), event="SEIZURE", drained_since=5)


@given(st.permutations([1, 2, 18, 19, 35]))
def test_seizures_are_remembered_whatever_comes_after_and_in_which_order(terms: list[int]) -> None:
    view = CustodyView()
    for term in terms:
        one = seizure("a", term, "tokyo", term) if term in (18, 35) else entry("a", term, "star")
        view.apply(one)
        view.apply(one)
    assert view.seized() == {"a"}
    assert [(each.term, each.marker, each.to_site) for each in view.seizures("a")] == [
        (18, 18, "tokyo"),
        (35, 35, "tokyo"),
    ]
    grant = view.grant("a")
    assert grant is not None
    assert (grant.term, grant.drained_since) == (35, 5)


def test_what_is_drained_since_is_the_marker_where_nothing_else_is_said() -> None:
    view = CustodyView()
    view.apply(entry("a", 2, "tokyo", marker=20))
    grant = view.grant("a")
    assert grant is not None
    assert (grant.drained_since, dict(grant.drained)) == (20, {})
    assert (view.seized(), view.seizures("a")) == (set(), ())


def test_holders_are_sites_that_hold_something_now() -> None:
    view = CustodyView()
    view.apply(entry("a", 1, "tokyo"))
    view.apply(entry("b", 1, "tokyo"))
    view.apply(entry("b", 2, "star"))
    view.apply(entry("a", 2, None))
    assert view.holders() == {"star": {"b"}}


def test_the_logs_of_a_holder_are_seen_as_they_are_now() -> None:
    view = CustodyView()
    held = view.held_by("tokyo")
    view.apply(entry("a", 1, "tokyo"))
    assert (list(held), len(held), "a" in held, "b" in held) == (["a"], 1, True, False)
    view.apply(entry("a", 2, "star"))
    assert (list(held), len(held), "a" in held) == ([], 0, False)


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_the_newest_event_before_a_grant_by_hand_is_known_in_any_order(order: tuple[int, ...]) -> None:
    """The view keeps the event that last moved a log before a grant by hand, whatever follows by hand. The term decides
    which was the last: devices and terminals date events."""
    view = CustodyView()
    given = [
        msgspec.structs.replace(entry("a", term, "tokyo"), event=event, event_date_time=AT - dt.timedelta(hours=term))
        for term, event in enumerate(("GTIN", "LOAD", "SEIZURE", "HAND"), 1)
    ]
    for place in order:
        view.apply(given[place])
    assert view.moved_before_hand("a") == (2, "a-2")
    view.apply(entry("b", 1, "tokyo"))
    view.apply(entry("b", 2, "star"))
    assert view.moved_before_hand("b") is None
