"""Ledger entries become rows of ``custody_entries``, and these the intervals of table ``custody``."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.custody.history import chain
from fairlead.records.custody import LedgerEntry
from fairlead.records.reading import MOST
from shore.source.operations import rows_of
from shore.tables.custody import rows_of_entries
from tests.support.examples import examples
from tests.support.ledgers import LOG, came_back, claimed, entry, histories, refused
from tests.support.shore.raw_records import LEDGERS, VOYAGE, raw


def test_every_kind_of_entry_is_a_row_that_can_be_read() -> None:
    entries = (VOYAGE[0], came_back(18, 5, 9), refused("o1"), claimed("sydney", 3))
    rows = rows_of(LEDGERS, raw(*(("custody.tokyo", each) for each in entries)))
    assert rows["problem"].null_count == 4
    assert rows["entry_type"].to_pylist() == ["grant", "return", "refusal", "claim"]
    assert rows["entry_log"].to_pylist() == [LOG] * 4
    assert rows["entry_term"].to_pylist() == [1, 18, None, 3]
    assert rows["end_offset"].to_pylist() == [None, 9, None, None]
    assert rows["order_id"].to_pylist() == [None, None, "o1", None]
    assert rows["reason"].to_pylist() == ["", None, "no", None]
    assert rows["claimed_by"].to_pylist() == [None, None, None, "sydney"]
    assert rows["left_site"].to_pylist() == [None, None, None, "tokyo"]


@settings(max_examples=examples(50))
@given(histories(), st.data())
def test_intervals_are_the_chain_in_whatever_order_entries_come(
    history: list[LedgerEntry], data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(history))
    rows = rows_of(LEDGERS, raw(*(("custody.tokyo", each) for each in shuffled)))
    found = rows_of_entries(rows, None).select(("term", "holder", "marker_offset", "to_offset", "lost")).to_pylist()
    wanted = chain(LOG, history).intervals
    assert [tuple(row.values()) for row in found] == [
        (each.term, each.holder, each.marker_offset, each.to_offset, each.lost) for each in wanted
    ]


def test_a_marker_at_the_last_offset_that_there_is_makes_an_interval() -> None:
    rows = rows_of(LEDGERS, raw(("custody.tokyo", entry(1, MOST, "tokyo"))))
    (row,) = rows_of_entries(rows, None).select(("marker_offset", "from_offset", "to_offset")).to_pylist()
    assert tuple(row.values()) == (MOST, MOST, None)
