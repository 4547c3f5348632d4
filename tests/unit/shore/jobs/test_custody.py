"""Ledger entries into ``custody_entries``, and the intervals of table ``custody`` out of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.custody.history import chain
from fairlead.records.custody import LedgerEntry
from shore.delta.write import append_once
from shore.paths import TablePaths
from shore.source.operations import rows_of
from shore.tables import TABLES
from tests.support.examples import examples
from tests.support.ledgers import LOG, came_back, claimed, entry, histories, refused
from tests.unit.shore.raw_records import LEDGERS, VOYAGE, raw, store

OTHER = "containers.BIGU0000021"


@pytest.fixture
def paths(tmp_path: Path) -> TablePaths:
    made = TablePaths.of(tmp_path)
    for name in ("custody", "custody_entries"):
        TABLES[name].create(made.table(name))
    return made


def intervals(paths: TablePaths, *columns: str, log: str = LOG) -> list[tuple[Any, ...]]:
    rows = DeltaTable(paths.table("custody")).to_pyarrow_dataset().to_table().to_pylist()
    return [tuple(row[name] for name in columns) for row in rows if row["log"] == log]


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


def test_intervals_grow_with_the_ledger(paths: TablePaths) -> None:
    store(paths, 1, VOYAGE[0], entry(1, 0, "sydney", "GTIN", log=OTHER))
    assert intervals(paths, "term", "holder", "to_offset") == [(1, "tokyo", None)]
    store(paths, 2, VOYAGE[2])  # the entry of the second term comes later: another site wrote it
    store(paths, 3, VOYAGE[1], refused("o1"), b"no entry")
    assert intervals(paths, "term", "holder", "from_offset", "to_offset", "lost") == [
        (1, "tokyo", 1, 10, False),
        (2, "star", 11, 20, False),
        (3, None, 21, None, False),
    ]
    (first, *_) = intervals(paths, "equipment_reference", "from_date_time", "to_date_time", "event", "granted_by")
    assert first == ("BIGU0000016", VOYAGE[0].event_date_time, VOYAGE[1].event_date_time, "GTIN", "tokyo")
    assert intervals(paths, "term", "holder", log=OTHER) == [(1, "sydney")]


def test_a_batch_that_is_repeated_changes_nothing(paths: TablePaths) -> None:
    store(paths, 1, *VOYAGE)
    before = intervals(paths, *TABLES["custody"].schema.names)
    store(paths, 1, *VOYAGE)
    store(paths, 2, *VOYAGE)  # the same entries from another ledger, or a ledger that was read anew
    assert intervals(paths, *TABLES["custody"].schema.names) == before


def test_a_crash_between_the_two_writes_is_made_good_by_the_repeated_batch(paths: TablePaths) -> None:
    rows = rows_of(LEDGERS, raw(*(("custody.tokyo", each) for each in VOYAGE)))
    append_once(paths.table("custody_entries"), rows, app="test", version=1)
    assert intervals(paths, "term") == []
    store(paths, 1, *VOYAGE)
    assert len(intervals(paths, "term")) == len(VOYAGE)
    assert DeltaTable(paths.table("custody_entries")).to_pyarrow_dataset().count_rows() == len(VOYAGE)


def test_a_batch_with_nothing_readable_leaves_the_table_alone(paths: TablePaths) -> None:
    version = DeltaTable(paths.table("custody")).version()
    store(paths, 1, b"{}")
    assert DeltaTable(paths.table("custody")).version() == version


@settings(max_examples=examples(20))
@given(histories(), st.data())
def test_rows_are_the_chain_whatever_the_batches(history: list[LedgerEntry], data: st.DataObject) -> None:
    import tempfile

    shuffled = data.draw(st.permutations(history))
    cut = data.draw(st.integers(0, len(history)))
    with tempfile.TemporaryDirectory() as folder:
        paths = TablePaths.of(Path(folder))
        for name in ("custody", "custody_entries"):
            TABLES[name].create(paths.table(name))
        for number, part in enumerate((shuffled[:cut], shuffled[cut:]), 1):
            if part:
                store(paths, number, *part)
        found = intervals(paths, "term", "holder", "marker_offset", "to_offset", "lost")
    wanted = chain(LOG, history).intervals
    assert found == [(each.term, each.holder, each.marker_offset, each.to_offset, each.lost) for each in wanted]
