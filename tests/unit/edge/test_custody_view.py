from __future__ import annotations

import datetime as dt
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.custody import CustodyView, SplitCustodyError
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
