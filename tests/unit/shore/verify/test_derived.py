"""Derived tables against what their inputs give: when they can be compared, and made again by a backfill."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest
from deltalake import write_deltalake

from fairlead.kafka.endpoint import KafkaEndpoint
from shore.delta.table_errors import damaged_tables
from shore.jobs.checkpoint import write_checkpoint
from shore.paths import TablePaths
from shore.read import table
from shore.repair.backfill import Span, compare_derived, recompute
from shore.tables import TABLES
from shore.tables.customer_feed import CUSTOMER_FEED
from shore.verify.catalogue import DERIVED
from shore.verify.derived import check_derived
from shore.verify.run import verify
from tests.support.ledgers import T, entry
from tests.unit.shore import fleet as story
from tests.unit.shore import hours
from tests.unit.shore.raw_records import VOYAGE, store
from topologies.loader.load import load
from topologies.model import Customer

CUSTODY = next(each for each in DERIVED if each.table == "custody")


@pytest.fixture
def paths(tmp_path: Path) -> TablePaths:
    """A chain of custody of three terms, of which the job has done all."""
    made = TablePaths.of(tmp_path)
    for name in ("custody", "custody_entries", "sites", "owners"):
        TABLES[name].create(made.table(name))
    store(made, 0, *VOYAGE)
    write_checkpoint(made, "histories", {}, "{}")
    return made


def test_equal_until_somebody_changes_a_row(paths: TablePaths, tmp_path: Path) -> None:
    check = check_derived(CUSTODY, paths)
    assert (check.same, check.rows, check.expected) == (True, 3, 3)
    rows = table(tmp_path, "custody").to_table()
    lied = rows.slice(1, 2).set_column(rows.schema.names.index("holder"), "holder", [["nobody", "nobody"]])
    write_deltalake(paths.table("custody"), lied, mode="overwrite")
    check = check_derived(CUSTODY, paths)
    assert (check.same, check.rows, check.expected, check.differing) == (False, 2, 3, 3)
    assert [(each.what, each.key["term"], each.columns) for each in check.differences] == [
        ("missing", 1, ()),
        ("changed", 2, ("holder",)),
        ("changed", 3, ("holder",)),
    ]
    assert (
        compare_derived(CUSTODY, paths, Span(T, None)).differing == 3
    )  # without a time of its own all of it is compared
    assert recompute(CUSTODY, paths, Span(T, None)) == 3
    assert check_derived(CUSTODY, paths).same is True
    assert table(tmp_path, "custody").to_table().sort_by("term") == rows.sort_by("term")


def test_what_a_job_has_not_done_cannot_be_compared(paths: TablePaths) -> None:
    checkpoint = Path(paths.checkpoint("histories"))
    shutil.copy(checkpoint / "offsets" / "0", checkpoint / "offsets" / "1")
    check = check_derived(CUSTODY, paths)
    assert (check.same, check.differing) == (None, 0)
    assert "works on a batch, or broke off" in check.notes[0]
    (checkpoint / "commits" / "1").write_text('v1\n{"nextBatchWatermarkMs":0}')
    assert check_derived(CUSTODY, paths).same is True
    shutil.rmtree(paths.table("custody_entries"))
    assert "not there yet" in check_derived(CUSTODY, paths).notes[0]


@pytest.mark.parametrize("damage", ["file", "commit"])
def test_a_table_that_cannot_be_read_is_told_beside_the_others(paths: TablePaths, tmp_path: Path, damage: str) -> None:
    place = Path(paths.table("custody"))
    if damage == "file":
        for file in place.glob("*.parquet"):
            file.unlink()
    else:
        sorted(place.glob("_delta_log/*.json"))[0].write_text("this is no commit")
    nowhere = KafkaEndpoint("alpha", (("127.0.0.1", 1),))
    found = verify(load("minimal"), nowhere, tmp_path, ["custody", "mkt"])
    check, other = found.tables
    assert (check.table, check.same, found.ok) == ("custody", False, False)
    assert "cannot be read" in check.notes[0]
    assert "fairlead shore rebuild histories --yes" in check.notes[0]
    assert (other.table, other.same) == ("mkt", None)


def test_what_is_made_from_a_damaged_table_is_not_blamed(paths: TablePaths, tmp_path: Path) -> None:
    nowhere = KafkaEndpoint("alpha", (("127.0.0.1", 1),))
    next(Path(paths.table("custody_entries")).glob("*.parquet")).write_bytes(b"no Parquet")
    (check,) = verify(load("minimal"), nowhere, tmp_path, ["custody"]).tables
    assert (check.same, check.unreadable) == (None, False)
    assert check.notes == ("it is made from custody_entries, which cannot be read",)
    (why,) = damaged_tables(paths, ["custody", "custody_entries", "mkt"]).items()
    assert why[0] == "custody_entries"
    assert "Parquet" in why[1]


def test_a_customers_table_that_cannot_be_read_says_how_to_have_it_again(tmp_path: Path) -> None:
    topology = load("minimal")
    assert topology.shore is not None
    ducks = Customer(feed_at=topology.shore.at, table=True)
    paths = TablePaths.of(tmp_path)
    CUSTOMER_FEED.create(paths.customer("ducks"))
    for file in Path(paths.customer("ducks"), "_delta_log").glob("*.json"):
        file.write_text("this is no commit")
    nowhere = KafkaEndpoint("alpha", (("127.0.0.1", 1),))
    found = verify(topology.model_copy(update={"customers": {"ducks": ducks}}), nowhere, tmp_path, ["feeds"])
    check = found.of("customers/ducks")
    assert check is not None and (check.same, check.unreadable) == (False, True)
    assert f"remove {paths.customer('ducks')}: the next run fills it again from the feed" in check.notes[0]
    assert "rebuild" not in check.notes[0]


def test_tables_that_grow_meanwhile_are_not_compared(paths: TablePaths) -> None:
    entries = iter(range(10, 99))

    def growing(location: TablePaths) -> object:
        found = CUSTODY.everything(location)
        number = next(entries)
        store(paths, number, entry(number, number * 10, "sydney", "LOAD"))
        return found

    check = check_derived(dataclasses.replace(CUSTODY, everything=growing), paths)
    assert (check.same, check.notes) == (
        None,
        ("the tables changed while they were compared; try again, or stop shore first",),
    )


def test_tables_of_every_kind_are_compared(tmp_path: Path) -> None:
    fleet = story.Fleet(tmp_path / "fleet")
    fleet.add(
        readings=[story.reading(n, n / 2) for n in range(6)],
        booking_changes=[story.change(1, 0), story.change(2, 5, status="COMPLETED")],
        events=[story.docked(1, 1, "ARRI"), story.event(2, 2, "LOAD", vessel_imo_number=story.STAR)],
        positions=[story.position(n, n, (35.0 - n, 139.0)) for n in range(4)],
        alerts=[story.alert(1, 1)],
    )
    batch = hours.Shore(str(tmp_path / "hours"))
    batch.take([hours.reading("BIGU0000016", minute, 9.0) for minute in range(0, 300, 5)])
    for paths, names in ((fleet.paths, (*story.MADE, *story.DERIVED)), (batch.paths, hours.DERIVED)):
        for made_of in DERIVED:
            if made_of.table not in names:
                continue
            if not Path(paths.checkpoint(made_of.job)).exists():
                write_checkpoint(paths, made_of.job, {}, "{}")
            check = check_derived(made_of, paths)
            assert (check.table, check.same, check.differences) == (made_of.table, True, ())
            assert check.rows == check.expected > 0
            span = Span(story.T0, story.T0 + story.HOUR)
            made = recompute(made_of, paths, span)
            assert check_derived(made_of, paths).same is True
            assert 0 <= made <= check.rows
