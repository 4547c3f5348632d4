"""Table ``alerts_now``: what it says of an alert, and that the order and cut of batches make no difference."""

from __future__ import annotations

import atexit
import datetime as dt
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.names import parse_log
from fairlead.records.custody import ledger_entries
from shore.alerts.machine import advance
from shore.jobs import alerts_now, reference
from shore.paths import TablePaths
from shore.tables import TABLES
from shore.tables.alerts_ashore import table_of
from tests.support.examples import examples
from tests.support.ledgers import entry
from tests.support.tables import fill
from tests.unit.shore.alerts.logs import BOX, LOG, every, reading
from tests.unit.shore.fleet import STAR, T0, alert, at, change, ledger, topology
from tests.unit.shore.raw_records import make_custody
from topologies.model import Site, SiteKind

OTHER = "BIGU0000021"
_HOLDERS: list[dict[str, Any]] = [
    ledger(1, entry(1, 0, "tokyo", "GTIN", event_date_time=at(0))),
    ledger(2, entry(2, 30, "star", "LOAD", event_date_time=at(2))),
    ledger(3, entry(3, 9000, "singapore", "DISC", by="star", event_date_time=at(100))),
]


@cache
def _empty() -> Path:
    """The tables without rows: copied, since making them takes far longer."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder)
    names = ("alerts", "alerts_ashore", "alerts_now", "booking_changes", "custody", "custody_entries")
    fill(folder, dict.fromkeys((*names, "sites", "owners"), ()))
    reference.refresh(TablePaths.of(folder), topology())
    alerts_now.follow_sites(TablePaths.of(folder))
    return folder


class World:
    """Tables in a folder, and what the job does with each batch."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.paths = folder, TablePaths.of(folder)
        shutil.copytree(_empty() / "delta", folder / "delta")

    def add(self, *, custody_first: bool = False, **rows: Sequence[Mapping[str, Any]]) -> None:
        fill(self.folder, rows)
        logs = {row["entry_log"] for row in rows.get("custody_entries", ())}
        if custody_first:
            make_custody(self.paths)
        boxes = {
            row["equipment_reference"] for table, found in rows.items() if table != "custody_entries" for row in found
        }
        alerts_now.update(self.paths, boxes, logs)
        make_custody(self.paths)

    def rows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._sorted(DeltaTable(self.paths.table("alerts_now")).to_pyarrow_table())
        return found

    def row(self) -> dict[str, Any]:
        (row,) = self.rows()
        return row

    def check(self) -> None:
        assert self.rows() == self._sorted(alerts_now.everything(self.paths))

    def _sorted(self, table: pa.Table) -> Any:
        names = TABLES["alerts_now"].plain_schema.names
        return table.select(names).sort_by([("source", "ascending"), ("alert_id", "ascending")]).to_pylist()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_the_holder_is_known_from_entries_before_table_custody_follows(world: World) -> None:
    """Job operations was killed between the two tables, and an alert came before it was back."""
    fill(world.folder, {"custody_entries": _HOLDERS})
    world.add(alerts=[alert(1, 3, raised_at="star")])
    assert world.row()["holder"] == "star"
    world.check()


def test_an_alert_of_a_site(world: World) -> None:
    evidence = '[{"name":"power-lost","weight":1.0,"detail":"switched off, for 30 min"},{"name":"silence","weight":1}]'
    place: dict[str, Any] = {"latitude": 1.5, "longitude": 2.5, "raised_at": "star", "vessel_imo_number": STAR}
    opened = alert(1, 3, **place, evidence='[{"name":"first"}]', raised_date_time=at(3.25))
    worse = alert(2, 4, "UPDATED", severity="CRITICAL", raised_at="star", evidence=evidence)
    world.add(
        custody_entries=_HOLDERS, booking_changes=[change(1, 0)], alerts=[opened, worse, worse | {"log_offset": 3}]
    )
    assert world.row() == {
        "source": "site",
        "alert_id": "a1",
        "kind": "POWER_LOST",
        "state": "UPDATED",
        "severity": "CRITICAL",
        "highest_severity": "CRITICAL",
        "equipment_reference": BOX,
        "opened_date_time": at(3),
        "updated_date_time": at(4),
        "cleared_date_time": None,
        "minutes_open": None,
        "revisions": 2,
        "raised_at": "star",
        "raised_date_time": at(3.25),
        "log": LOG,
        "holder": "star",
        "vessel_imo_number": STAR,
        "booking_reference": "B1",
        "customer": "ducks",
        "latitude": 1.5,
        "longitude": 2.5,
        "detail": "power-lost: switched off, for 30 min; silence",
        "condition_id": "a1",
    }
    world.add(alerts=[alert(4, 5.5, "CLEARED", revision=2, severity="ALARM", raised_at="star")])
    row = world.row()
    assert (row["state"], row["severity"], row["highest_severity"]) == ("CLEARED", "ALARM", "CRITICAL")
    assert (row["cleared_date_time"], row["minutes_open"], row["detail"]) == (at(5.5), 150.0, None)
    world.check()


def test_an_alert_of_shore_is_held_by_who_held_its_first_reading(world: World) -> None:
    warm = advance(LOG, None, [*every(10, 70, supply_temperature=9.0), *every(10, 120, since=70)])[1]
    assert warm[0].first_offset == 1
    assert warm[0].since_date_time == T0
    world.add(alerts_ashore=table_of(warm).to_pylist())
    row = world.row()
    assert (row["source"], row["log"], row["holder"], row["raised_at"]) == ("shore", LOG, None, None)
    world.add(custody_entries=_HOLDERS)
    row = world.row()
    assert (row["holder"], row["vessel_imo_number"], row["minutes_open"]) == ("tokyo", None, 30.0)
    aboard = advance(LOG, None, [*every(10, 130, since=40, supply_temperature=9.0), reading(130)])[1]
    world.add(alerts_ashore=table_of(aboard).to_pylist())
    assert [(r["alert_id"], r["holder"], r["vessel_imo_number"], r["state"]) for r in world.rows()] == [
        (f"TEMPERATURE.{BOX}@1", "tokyo", None, "CLEARED"),
        (f"TEMPERATURE.{BOX}@41", "star", STAR, "OPENED"),
    ]
    world.check()


def test_both_sources_name_one_condition_alike(world: World) -> None:
    warm = advance(LOG, None, every(10, 70, supply_temperature=9.0))[1]
    world.add(alerts=[alert(1, 1, alert_id=f"TEMPERATURE.{BOX}.d.1.1", kind="TEMPERATURE")])
    world.add(alerts_ashore=table_of(warm).to_pylist())
    assert {(r["source"], r["condition_id"]) for r in world.rows()} == {
        ("site", f"TEMPERATURE.{BOX}.d.1.1"),
        ("shore", f"TEMPERATURE.{BOX}.d.1.1"),
    }


def test_the_booking_is_the_one_of_that_time(world: World) -> None:
    world.add(alerts=[alert(1, 3), alert(2, 30, alert_id="a2"), alert(3, 60, alert_id="a3")])
    world.add(booking_changes=[change(1, 0, valid_to=at(10)), change(2, 1, booking_reference="B2", valid_from=at(20))])
    assert [row["booking_reference"] for row in world.rows()] == ["B1", "B2", "B2"]
    world.add(booking_changes=[change(3, 2, booking_reference="B2", valid_from=at(20), status="CANCELLED")])
    assert [row["booking_reference"] for row in world.rows()] == ["B1", None, None]
    later = change(5, 50, booking_reference="B2", valid_from=at(50), status="CANCELLED")
    world.add(booking_changes=[change(4, 3, booking_reference="B2", valid_from=at(20)), later])
    assert [row["booking_reference"] for row in world.rows()] == ["B1", "B2", None]  # cancelled from then on
    world.check()


def test_an_alert_about_a_whole_ship_has_no_container(world: World) -> None:
    world.add(alerts=[alert(1, 3, equipment_reference="", kind="SILENCE", vessel_imo_number=STAR)])
    row = world.row()
    assert (row["equipment_reference"], row["holder"], row["vessel_imo_number"]) == ("", None, STAR)
    world.check()


def test_what_cannot_be_read_is_no_alert(world: World) -> None:
    unreadable = dict.fromkeys(TABLES["alerts"].plain_schema.names) | {"log": "alerts.star", "log_offset": 1}
    fill(world.folder, {"alerts": [unreadable]})
    world.check()
    assert world.rows() == []


def test_a_ship_that_the_topology_comes_to_know(world: World) -> None:
    aboard = advance(LOG, None, every(10, 130, since=40, supply_temperature=9.0))[1]
    later = [_HOLDERS[0], ledger(2, entry(2, 30, "swan", "LOAD", event_date_time=at(2)))]
    world.add(alerts_ashore=table_of(aboard).to_pylist(), custody_entries=later)
    assert (world.row()["holder"], world.row()["vessel_imo_number"]) == ("swan", None)
    more = topology()
    swan = Site(kind=SiteKind.SHIP, imo="9321483")
    known = more.model_copy(update={"sites": more.sites | {"swan": swan}})
    reference.refresh(world.paths, known)
    alerts_now.follow_sites(world.paths)
    assert world.row()["vessel_imo_number"] == "9321483"
    version = DeltaTable(world.paths.table("alerts_now")).version()
    alerts_now.follow_sites(world.paths)
    assert DeltaTable(world.paths.table("alerts_now")).version() == version
    world.check()


def _story() -> list[tuple[str, dict[str, Any]]]:
    """Rows of all inputs about two boxes."""
    log = [*every(10, 150, supply_temperature=9.0, is_powered=False), *every(10, 400, since=150), reading(900)]
    other = every(20, 400, relative_humidity=20.0)
    second = LOG.replace(BOX, OTHER)
    ashore = [*advance(LOG, None, log)[1], *advance(second, None, other)[1]]
    of_other = [entry(1, 0, "tokyo", log=second), entry(2, 200, None, "GTOT", log=second)]
    return [
        *(("alerts_ashore", row) for row in table_of(ashore).to_pylist()),
        *(("custody_entries", row) for row in _HOLDERS),
        *(("custody_entries", ledger(n, e)) for n, e in enumerate(of_other)),
        *(("alerts", alert(n, n, state, equipment_reference=box, alert_id=f"{box}-{n % 2}", revision=n // 2))
          for n, (state, box) in enumerate([("OPENED", BOX), ("OPENED", BOX), ("UPDATED", BOX), ("CLEARED", BOX)])),
        ("alerts", alert(9, 5, equipment_reference=OTHER, alert_id="other")),
        ("booking_changes", change(1, 0)),
        ("booking_changes", change(2, 1, booking_reference="B2", equipment_reference=OTHER)),
        ("booking_changes", change(3, 2, status="COMPLETED", valid_to=at(1))),
    ]  # fmt: skip


@settings(max_examples=examples(6), deadline=None)
@given(st.permutations(_story()), st.sets(st.integers(1, 30), max_size=4), st.booleans())
def test_batches_in_any_order_give_what_follows_from_all(
    story: list[tuple[str, dict[str, Any]]], cuts: set[int], custody_first: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world, begin = World(Path(folder)), 0
        for end in [*sorted(c for c in cuts if c < len(story)), len(story)]:
            rows: dict[str, list[dict[str, Any]]] = {}
            for table, row in story[begin:end]:
                rows.setdefault(table, []).append(row)
            world.add(custody_first=custody_first, **rows)
            begin = end
        world.check()
        assert len(world.rows()) == len({(r["alert_id"], t) for t, r in _story() if t.startswith("alerts")})


def test_the_story_is_about_logs_of_containers() -> None:
    for row in _HOLDERS:
        name = parse_log(ledger_entries.decode(row["payload"]).log)
        assert name is not None
        assert name.key == BOX
    assert T0 == dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
