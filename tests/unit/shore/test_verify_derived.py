"""Derived tables against what their inputs give: when they can be compared, and made again by a backfill."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest
from deltalake import write_deltalake

from shore.checkpoint import write_checkpoint
from shore.places import Places
from shore.read import table
from shore.repair.derived import Span, differing, make_again
from shore.tables import TABLES
from shore.verify.catalogue import DERIVED
from shore.verify.derived import check_derived
from tests.unit.shared.test_custody_chain import T, entry
from tests.unit.shore.test_custody import VOYAGE, store

CUSTODY = next(each for each in DERIVED if each.table == "custody")


@pytest.fixture
def places(tmp_path: Path) -> Places:
    """A chain of custody of three terms, of which the job has done all."""
    made = Places.of(tmp_path)
    for name in ("custody", "custody_entries"):
        TABLES[name].create(made.table(name))
    store(made, 0, *VOYAGE)
    write_checkpoint(made, "operations", {"custody.tokyo": 9}, "{}")
    return made


def test_equal_until_somebody_changes_a_row(places: Places, tmp_path: Path) -> None:
    check = check_derived(CUSTODY, places)
    assert (check.same, check.rows, check.expected) == (True, 3, 3)
    rows = table(tmp_path, "custody").to_table()
    lied = rows.slice(1, 2).set_column(rows.schema.names.index("holder"), "holder", [["nobody", "nobody"]])
    write_deltalake(places.table("custody"), lied, mode="overwrite")
    check = check_derived(CUSTODY, places)
    assert (check.same, check.rows, check.expected, check.differing) == (False, 2, 3, 3)
    assert [(each.what, each.key["term"], each.columns) for each in check.differences] == [
        ("missing", 1, ()),
        ("changed", 2, ("holder",)),
        ("changed", 3, ("holder",)),
    ]
    assert differing(CUSTODY, places, Span(T, None)).differing == 3  # without a time of its own all of it is compared
    assert make_again(CUSTODY, places, Span(T, None)) == 3
    assert check_derived(CUSTODY, places).same is True
    assert table(tmp_path, "custody").to_table().sort_by("term") == rows.sort_by("term")


def test_what_a_job_has_not_done_cannot_be_compared(places: Places) -> None:
    checkpoint = Path(places.checkpoint("operations"))
    shutil.copy(checkpoint / "offsets" / "0", checkpoint / "offsets" / "1")
    check = check_derived(CUSTODY, places)
    assert (check.same, check.differing) == (None, 0)
    assert "works on a batch, or broke off" in check.notes[0]
    (checkpoint / "commits" / "1").write_text('v1\n{"nextBatchWatermarkMs":0}')
    assert check_derived(CUSTODY, places).same is True
    shutil.rmtree(places.table("custody_entries"))
    assert "not there yet" in check_derived(CUSTODY, places).notes[0]


def test_tables_that_grow_meanwhile_are_not_compared(places: Places) -> None:
    entries = iter(range(10, 99))

    def growing(location: Places) -> object:
        found = CUSTODY.everything(location)
        number = next(entries)
        store(places, number, entry(number, number * 10, "sydney", "LOAD"))
        return found

    check = check_derived(dataclasses.replace(CUSTODY, everything=growing), places)
    assert (check.same, check.notes) == (
        None,
        ("the tables changed while they were compared; try again, or stop shore first",),
    )
