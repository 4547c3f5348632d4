"""Rows within a scope are replaced in one commit; the others stay."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from shore.delta.write import ReplaceScope, exchange_rows, replace_rows
from shore.tables.model import TIME

HOUR = dt.timedelta(hours=1)
T0 = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)


def _rows(*rows: tuple[str, int, int]) -> pa.Table:
    return pa.table(
        {
            "box": pa.array([box for box, _, _ in rows], pa.string()),
            "at": pa.array([T0 + hour * HOUR for _, hour, _ in rows], TIME),
            "n": pa.array([n for _, _, n in rows], pa.int64()),
        }
    )


def _stored(location: Path) -> set[tuple[str, int, int]]:
    found = DeltaTable(location).to_pyarrow_dataset().to_table().to_pylist()
    return {(row["box"], (row["at"] - T0) // HOUR, row["n"]) for row in found}


@pytest.fixture
def location(tmp_path: Path) -> Path:
    write_deltalake(tmp_path, _rows(("a", 0, 1), ("a", 1, 2), ("a", 2, 3), ("b'", 1, 4), ("c", 1, 5)))
    return tmp_path


def test_only_the_scope_is_replaced_in_one_commit(location: Path) -> None:
    scope = ReplaceScope("box", ("a", "b'"), "at", T0 + HOUR, T0 + 2 * HOUR)
    replace_rows(str(location), _rows(("b'", 1, 40), ("a", 1, 20)), scope, key=("box", "at"))
    assert _stored(location) == {("a", 0, 1), ("a", 1, 20), ("a", 2, 3), ("b'", 1, 40), ("c", 1, 5)}
    assert DeltaTable(location).version() == 1


def test_nothing_fresh_empties_the_scope_and_twice_is_once(location: Path) -> None:
    for _ in range(2):
        replace_rows(str(location), _rows(), ReplaceScope("box", ("a",)), key=("box",))
        assert _stored(location) == {("b'", 1, 4), ("c", 1, 5)}


def test_an_empty_scope_writes_nothing(location: Path) -> None:
    replace_rows(str(location), _rows(), ReplaceScope("box", ()), key=("box",))
    assert DeltaTable(location).version() == 0


@pytest.mark.parametrize("more", [0, 200])
def test_another_column_can_be_given(location: Path, more: int) -> None:
    scope = ReplaceScope("box", ("a", "b'", *(f"x{i}" for i in range(more))), "at", T0, T0 + 2 * HOUR, {"n": 2})
    for _ in range(2):
        replace_rows(str(location), _rows(("b'", 0, 2)), scope, key=("box", "at"))
        assert _stored(location) == {("a", 0, 1), ("a", 2, 3), ("b'", 0, 2), ("b'", 1, 4), ("c", 1, 5)}


def test_rows_outside_the_scope_are_refused(location: Path) -> None:
    with pytest.raises(Exception, match="failed validation"):
        replace_rows(str(location), _rows(("c", 1, 6)), ReplaceScope("box", ("a",)), key=("box",))
    assert DeltaTable(location).version() == 0


def test_what_was_rewritten_can_still_be_filtered_by_arrow(location: Path) -> None:
    """delta-rs has written strings as views, over whose statistics Arrow's filters failed (its MERGE, 1.6)."""
    replace_rows(str(location), _rows(("a", 1, 20)), ReplaceScope("box", ("a",)), key=("box", "at"))
    dataset = DeltaTable(location).to_pyarrow_dataset()
    assert dataset.to_table(filter=pc.field("box").isin(["a"])).num_rows == 1


def test_a_scope_of_very_many_values_is_replaced_all_the_same(location: Path) -> None:
    many = ["a", "b'", *(f"b{number:03}" for number in range(200))]
    scope = ReplaceScope("box", many, "at", T0 + HOUR, T0 + 2 * HOUR)
    replace_rows(str(location), _rows(("b007", 1, 40), ("a", 1, 20)), scope, key=("box", "at"))
    assert _stored(location) == {("a", 0, 1), ("a", 1, 20), ("a", 2, 3), ("b007", 1, 40), ("c", 1, 5)}
    assert DeltaTable(location).version() == 1
    with pytest.raises(ValueError, match="outside the scope"):
        replace_rows(str(location), _rows(("a", 2, 20)), scope, key=("box", "at"))


def test_rows_are_exchanged_in_one_commit(location: Path) -> None:
    gone = (pc.field("box") == "a") & (pc.field("at") >= T0 + HOUR)
    exchange_rows(str(location), _rows(("a", 3, 9)), gone, key=("box", "at"))
    assert _stored(location) == {("a", 0, 1), ("a", 3, 9), ("b'", 1, 4), ("c", 1, 5)}
    assert DeltaTable(location).version() == 1
