"""The tables of boxes and devices: what they say, and that batches make no difference."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from shore.jobs import reference, voyages
from tests.support.examples import examples
from tests.support.ledgers import entry
from tests.unit.shore.fleet import (
    BOX,
    DERIVED,
    MARLIN,
    OTHER,
    YELLOW,
    Fleet,
    alert,
    at,
    change,
    ledger,
    merged,
    position,
    reading,
    story,
    topology,
)


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path)


# -- containers now


def test_the_newest_reading_stays_whatever_comes_late(fleet: Fleet) -> None:
    fleet.add(readings=[reading(1, 0), reading(3, 2), reading(2, 1)])
    assert (fleet.now()["log_offset"], fleet.now()["reading_date_time"]) == (3, at(2))
    fleet.add(readings=[reading(4, 1.5, late=True)])
    assert fleet.now()["log_offset"] == 3
    fleet.add(readings=[reading(5, 3, latitude=1.0, longitude=2.0)])
    row = fleet.now()
    assert (row["log_offset"], row["position_source"], row["latitude"], row["longitude"]) == (5, "OWN", 1.0, 2.0)
    assert (row["owner_code"], row["line"], row["holder"], row["open_alerts"]) == ("BIGU", "Our own", None, 0)


def test_a_clock_that_is_ahead_does_not_hold_a_boxs_state(fleet: Fleet) -> None:
    fleet.add(readings=[reading(1, 1000, received_date_time=at(1)), reading(2, 2)])
    assert (fleet.now()["log_offset"], fleet.now()["reading_date_time"]) == (2, at(2))


def test_a_box_is_where_its_ship_is(fleet: Fleet) -> None:
    loaded = entry(2, 7, "star", "LOAD")
    fleet.add(readings=[reading(1, 0), reading(1, 0, OTHER, latitude=5.0, longitude=6.0)])
    fleet.add(custody_entries=[ledger(1, entry(1, 0, "tokyo", "GTIN"))])
    assert (fleet.now()["holder"], fleet.now()["un_location_code"], fleet.now()["latitude"]) == ("tokyo", "JPTYO", None)
    fleet.add(positions=[position(1, 1, (30.0, 140.0))])
    fleet.add(custody_entries=[ledger(2, loaded)])
    row = fleet.now()
    assert (row["holder_kind"], row["vessel"], row["un_location_code"]) == ("ship", "MV Duck Star", None)
    assert (row["position_source"], row["latitude"], row["position_date_time"]) == ("SHIP", 30.0, at(1))
    assert (row["custody_event"], row["seen_date_time"]) == ("LOAD", loaded.event_date_time)
    fleet.add(positions=[position(2, 2, (29.0, 139.0)), position(1, 9, (0.0, 0.0), ship=MARLIN)])
    assert (fleet.now()["latitude"], fleet.now()["position_date_time"]) == (29.0, at(2))
    assert fleet.now(OTHER)["latitude"] == 5.0
    fleet.add(
        custody_entries=[ledger(3, entry(3, 9, "tokyo", "DISC", by="star")), ledger(4, entry(4, 12, None, "GTOT"))]
    )
    row = fleet.now()
    assert [row[name] for name in ("holder", "custody_event", "latitude", "vessel")] == [None, "GTOT", None, None]
    assert fleet.differing() == []


def test_open_alerts_and_the_booking_of_a_box(fleet: Fleet) -> None:
    fleet.add(readings=[reading(1, 2)], booking_changes=[change(1, 0), change(2, 0, booking_reference="B0")])
    assert (fleet.now()["booking_reference"], fleet.now()["customer"]) == ("B0", "ducks")
    fleet.add(booking_changes=[change(3, 3, booking_reference="B0", status="CANCELLED")])
    assert fleet.now()["booking_reference"] == "B1"
    again = {"booking_reference": "B0", "customer": "toyshop"}
    fleet.add(booking_changes=[change(5, 4, **again), change(6, 5, **again, status="CANCELLED", valid_from=at(2.5))])
    assert (fleet.now()["booking_reference"], fleet.now()["customer"]) == ("B0", "toyshop")  # cancelled after its time
    fleet.add(booking_changes=[change(7, 6, **again, status="CANCELLED", valid_from=at(2))])
    assert fleet.now()["booking_reference"] == "B1"
    fleet.add(alerts=[alert(1, 1), alert(2, 1, alert_id="a2", severity="CRITICAL")])
    assert (fleet.now()["open_alerts"], fleet.now()["worst_severity"]) == (2, "CRITICAL")
    ashore = {"alert_id": "s1", "revision": 0, "state": "OPENED", "severity": "WARNING", "condition_id": "a1"}
    fleet.add(alerts_ashore=[ashore | {"equipment_reference": BOX, "log": f"containers.{BOX}", "log_offset": 1}])
    assert fleet.now()["open_alerts"] == 2  # both sources know of one condition
    fleet.add(alerts=[alert(3, 2, "CLEARED", "a2")])
    assert (fleet.now()["open_alerts"], fleet.now()["worst_severity"]) == (1, "ALARM")
    fleet.add(booking_changes=[change(8, 7, status="COMPLETED", valid_to=at(2))], readings=[reading(2, 3)])
    assert (fleet.now()["booking_reference"], fleet.now()["open_alerts"]) == (None, 1)
    assert fleet.differing() == []


def test_an_entry_that_is_not_believed_makes_no_row_for_a_box(fleet: Fleet) -> None:
    opened_at_sea = entry(1, 0, "star", "GTIN", by="star", log=f"containers.{OTHER}")  # a ship cannot open a log
    fleet.add(readings=[reading(1, 0)], custody_entries=[ledger(1, opened_at_sea)])
    assert fleet.rows("containers_now", "equipment_reference") == [BOX]
    assert fleet.differing() == []


def test_another_topology_makes_the_table_anew(fleet: Fleet) -> None:
    fleet.add(readings=[reading(1, 0, YELLOW)])
    after = topology().model_copy(update={"customers": {}})
    for again in (False, True):
        reference.refresh(fleet.paths, after)
        voyages.follow_topology(fleet.paths)
        assert fleet.now(YELLOW)["line"] == "yellow"
        assert DeltaTable(fleet.paths.table("owners")).version() == 2, again
    assert fleet.differing() == []


# -- quality


def test_a_day_of_a_device(fleet: Fleet) -> None:
    found = [reading(i, i / 10) for i in (1, 2, 5, 6, 9)]
    found += [
        reading(10, 0.2, sequence=2),  # a repeat
        reading(11, 0.3, sequence=3, late=True),  # a drained stray
        reading(12, 2, boot_id=2, sequence=0, received_date_time=at(1)),  # its clock is ahead
        reading(13, 2.1, boot_id=2, sequence=1, received_date_time=at(60)),
    ]
    fleet.add(readings=found)
    (day,) = fleet.rows("quality")
    told = {name: day[name] for name in ("readings", "repeats", "missing", "gaps", "late", "out_of_order", "boots")}
    assert told == {"readings": 8, "repeats": 1, "missing": 3, "gaps": 2, "late": 1, "out_of_order": 1, "boots": 2}
    assert (day["clock_ahead"], day["delayed"], day["rejected"], day["rejected_by_reason"]) == (1, 1, 0, None)
    assert (day["first_boot_id"], day["first_sequence"], day["last_boot_id"], day["last_sequence"]) == (1, 1, 2, 1)
    fleet.add(readings=[reading(14, 0.35, sequence=4)])  # two days later
    assert fleet.rows("quality", "missing", "gaps") == [(2, 1)]


def test_rejected_records_are_counted_by_reason_on_the_day_of_receipt(fleet: Fleet) -> None:
    def rejected(offset: int, hours: float, reason: str) -> dict[str, Any]:
        row = {"log": f"containers.{BOX}", "log_offset": offset, "equipment_reference": BOX, "reason": reason}
        return row | {"received_date_time": at(hours)}

    fleet.add(readings_rejected=[rejected(1, 0, "no JSON"), rejected(2, 1, "no JSON"), rejected(3, 30, "too new")])
    fleet.add(readings=[reading(4, 0)], readings_rejected=[rejected(5, 2, "a 'reason'")])
    assert fleet.rows("quality", "device_id", "day", "readings", "rejected", "rejected_by_reason") == [
        ("", at(0), 0, 3, '{"a \'reason\'":1,"no JSON":2}'),
        ("", at(24), 0, 1, '{"too new":1}'),
        (f"dev-{BOX}", at(0), 1, 0, None),
    ]


# -- any order, any batches, any repeats


@pytest.fixture(scope="module")
def wanted() -> dict[str, list[Any]]:
    """All tables after the story in one batch."""
    with tempfile.TemporaryDirectory() as folder:
        fleet = Fleet(Path(folder))
        fleet.add(**merged(story()))
        assert fleet.differing() == []
        return {name: fleet.rows(name) for name in DERIVED}


@settings(max_examples=examples(8), deadline=None)
@given(data=st.data())
def test_batches_in_any_order_and_repeated_make_the_same_tables(
    data: st.DataObject, wanted: dict[str, list[Any]]
) -> None:
    shuffled = data.draw(st.permutations(story()))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(shuffled)), max_size=3)))
    parts = [shuffled[a:b] for a, b in zip([0, *cuts], [*cuts, len(shuffled)], strict=True)]
    with tempfile.TemporaryDirectory() as folder:
        fleet = Fleet(Path(folder))
        for part in parts:
            fleet.add(**merged(part))
            if data.draw(st.booleans()):
                fleet.update(merged(part))  # the driver was killed before Spark's commit
        assert fleet.differing() == []
        for name, rows in wanted.items():
            assert fleet.rows(name) == rows, name
