"""The chain of custody: the same from any order of entries, without gaps, and lost terms told apart."""

from __future__ import annotations

import datetime as dt
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.custody.history import UnknownLogError, chain, chains
from fairlead.records.custody import CustodyEntry, LedgerEntry, ReturnEntry
from tests.support.ledgers import LOG, T, came_back, claimed, entry, histories, refused


def test_a_voyage_and_a_box_that_leaves() -> None:
    found = chain(
        LOG,
        [entry(3, 20, "sydney", "DISC"), entry(1, 0, "tokyo", "GTIN"), entry(2, 7, "duck-star", "LOAD"),
         entry(4, 31, None, "GTOT")],
    )  # fmt: skip
    told = [(each.holder, each.from_offset, each.to_offset, each.event) for each in found.intervals]
    assert told == [
        ("tokyo", 1, 7, "GTIN"),
        ("duck-star", 8, 20, "LOAD"),
        ("sydney", 21, 31, "DISC"),
        (None, 32, None, "GTOT"),
    ]
    assert (found.holder, found.newest and found.newest.term, found.missing, found.splits) == (None, 4, (), ())
    assert [each.to_date_time for each in found.intervals] == [T + dt.timedelta(hours=h) for h in (2, 3, 4)] + [None]


def test_a_seizure_cuts_off_what_the_lost_holder_granted_beyond_it() -> None:
    entries: list[LedgerEntry] = [
        entry(1, 0, "tokyo", "GTIN"),
        entry(2, 10, "duck-star", "LOAD"),
        entry(3, 50, "sydney", "DISC"),  # Singapore never heard of these two
        entry(4, 60, "tokyo", "LOAD"),
        entry(18, 30, "singapore", "SEIZURE", by="singapore", reason="sank", ordered_by="ann"),
        came_back(18, 30, 72),
        came_back(18, 30, 65, "sydney"),
        refused("o1"),
    ]
    found = chain(LOG, entries)
    assert [(each.term, each.lost, each.to_offset, each.cut_by) for each in found.intervals] == [
        (1, False, 10, None),
        (2, False, 30, None),
        (3, True, 60, 18),
        (4, True, 72, 18),
        (18, False, None, None),
    ]
    assert [each.term for each in found.standing] == [1, 2, 18]
    assert [each.returned_by for each in found.returns] == ["duck-star", "sydney"]
    assert [each.order_id for each in found.refusals] == ["o1"]
    assert found.missing == ()
    assert found.intervals[3].to_date_time == found.intervals[4].event_date_time
    without = chain(LOG, [each for each in entries if not isinstance(each, ReturnEntry)])
    assert without.intervals[3].to_offset is None  # nobody knows how far it had come


def test_what_is_missing_and_what_was_granted_twice() -> None:
    twice = [entry(5, 40, "tokyo"), entry(5, 40, "sydney", event_id="other")]
    found = chain(LOG, [entry(2, 10, "duck-star"), entry(3, 20, "sydney"), *twice])
    assert found.missing == ((1, 1), (4, 4))
    (split,) = found.splits
    assert (split.term, {each.to_site for each in split.grants}) == (5, {"tokyo", "sydney"})
    assert found == chain(LOG, [*reversed(twice), entry(3, 20, "sydney"), entry(2, 10, "duck-star")])
    assert found.intervals[1].to_offset == 40


def test_the_same_grant_written_twice_is_no_split() -> None:
    again = entry(1, 0, "tokyo", granted_date_time=T + dt.timedelta(days=1))
    assert chain(LOG, [again, entry(1, 0, "tokyo")]) == chain(LOG, [entry(1, 0, "tokyo")])


def test_an_unknown_log_names_its_neighbours() -> None:
    others = [f"containers.BIGU00000{n}" for n in range(10, 30)]
    with pytest.raises(UnknownLogError) as error:
        chain(LOG.replace("16", "31"), [entry(1, 0, "tokyo", log=log) for log in others], known=[LOG], at="tokyo")
    assert error.value.fields["nearest"]
    assert "did you mean" in error.value.hint and error.value.fields["known"] == 20


def test_only_refusals_make_a_chain_without_a_holder() -> None:
    found = chain(LOG, [refused("o1"), refused("o1")])
    assert (found.intervals, found.holder, found.newest, len(found.refusals)) == ((), None, None, 1)


@given(histories(), st.data())
def test_any_order_and_repetition_gives_the_same_chain_without_gaps(
    history: list[LedgerEntry], data: st.DataObject
) -> None:
    found = chain(LOG, history)
    repeated = data.draw(st.lists(st.sampled_from(history), max_size=5))
    assert chain(LOG, data.draw(st.permutations([*history, *repeated]))) == found
    (same,) = chains(history)
    assert same == found
    assert [each.term for each in found.intervals] == sorted({e.term for e in history if isinstance(e, CustodyEntry)})
    assert found.intervals[-1] == found.standing[-1]
    assert found.standing[-1].to_offset is None
    for before, after in pairwise(found.standing):
        assert before.to_offset == after.marker_offset == after.from_offset - 1
        assert before.marker_offset < after.marker_offset
        assert before.to_date_time == after.event_date_time
    for each in found.intervals:
        later = [s for s in found.intervals if s.term > each.term and s.event == "SEIZURE"]
        assert each.lost == any(s.marker_offset <= each.marker_offset for s in later)
    assert found.missing == () and found.splits == ()


def test_who_claims_the_log_of_a_box_that_has_left() -> None:
    left = [entry(1, 0, "tokyo", "GTIN"), entry(2, 9, None, "GTOT")]
    asked = [claimed("sydney", 2, after=5), claimed("duck-star", 2, after=4), claimed("sydney", 2, after=5, again=1)]
    open_still = chain(LOG, [*asked, claimed("duck-star", 1), *left]).claims
    assert [each.claimed_by for each in open_still] == ["duck-star", "sydney"]
    answered = chain(LOG, [*asked, *left, entry(3, 10, "duck-star", "GTIN")])
    assert answered.claims == ()
    assert answered.holder == "duck-star"
