"""Job ``histories``: what its tables of bookings, custody and milestones contain, however the input is batched. No
broker."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, cast

import msgspec
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from fairlead.custody.history import chain
from shore.jobs import histories, reference
from shore.jobs.model import JobContext
from shore.tables import TABLES as DELTA_TABLES
from tests.integration.shore.fleet_lake import FleetLake, create_lake, same_shape
from tests.integration.shore.lake import Context
from tests.integration.shore.readings import undo_commit
from tests.support.ledgers import LOG, came_back, claimed, entry, refused
from tests.support.oracle import bookings as bookings_duckdb
from tests.support.oracle import custody as custody_duckdb
from tests.support.oracle import milestones as milestones_duckdb
from tests.support.oracle import schedules as schedules_duckdb
from tests.support.shore.fleet import (
    BOX,
    MARLIN,
    OTHER,
    STAR,
    at,
    change,
    docked,
    event,
    ledger,
    merged,
    scheduled,
    topology,
)
from topologies.model import Exceptions, InsertPoint, Shore, Site, SiteKind, Stream

pytestmark = [pytest.mark.integration, pytest.mark.spark]

ORACLES = {
    "bookings": bookings_duckdb.everything,
    "custody": custody_duckdb.everything,
    "milestones": milestones_duckdb.everything,
    "shipments": milestones_duckdb.shipments,
    "schedules": schedules_duckdb.everything,
}
TABLES = tuple(ORACLES)


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("histories")
    create_lake(folder, ("booking_changes", "custody_entries", "events", *TABLES))
    return folder


@pytest.fixture
def fleet(spark: SparkSession, empty: Path, tmp_path: Path) -> FleetLake:
    return FleetLake(spark, histories, tmp_path, empty)


def check(fleet: FleetLake, *, by_function: bool = False) -> None:
    """Check the tables against DuckDB over all input rows and, with ``by_function``, against their functions."""
    for table in TABLES:
        stored = fleet.stored(table)
        assert stored.equals(same_shape(table, ORACLES[table](fleet.paths))), table
        assert not by_function or stored.equals(fleet.computed(table)), table


# -- bookings


def test_a_booking_has_a_row_for_every_state(fleet: FleetLake) -> None:
    broken = {"log": "bookings.hq", "log_offset": 9, "problem": "broken", "record_date_time": at(0)}
    fleet.add(booking_changes=[change(1, 0), change(2, 0, equipment_reference=OTHER), change(3, 1), broken])
    fleet.add(booking_changes=[change(4, 5, status="COMPLETED", valid_to=at(4))])
    states = fleet.rows("bookings", "equipment_reference", "recorded_from", "recorded_to", "is_current", "status")
    assert states == [
        (BOX, at(0), at(5), False, "CONFIRMED"),
        (BOX, at(5), None, True, "COMPLETED"),
        (OTHER, at(0), None, True, "CONFIRMED"),
    ]
    check(fleet)


@pytest.mark.long
def test_two_offices_are_ordered_by_time_and_no_log_is_read_backwards(fleet: FleetLake) -> None:
    fleet.add(booking_changes=[change(1, 4, customer="a"), change(2, 3, customer="b")])  # a clock was set back
    fleet.add(booking_changes=[change(7, 1, "tokyo", customer="c"), change(8, 4, "tokyo", customer="d")])
    states = sorted(fleet.rows("bookings", "recorded_from", "log", "log_offset", "customer"))
    assert [(time, customer) for time, *_, customer in states] == [
        (at(1), "c"),
        (at(4), "a"),
        (at(4), "b"),
        (at(4), "d"),
    ]
    check(fleet)


# -- custody

VOYAGE = (entry(1, 0, "tokyo", "GTIN"), entry(2, 10, "star", "LOAD"), entry(3, 20, None, "GTOT", by="star"))
INTERVAL = ("term", "holder", "from_offset", "to_offset", "lost")


def test_intervals_grow_with_the_ledgers_in_whatever_order_they_come(fleet: FleetLake) -> None:
    other, seized, at_sea = (f"containers.{box}" for box in (OTHER, "BIGU0000037", "BIGU0000042"))
    fleet.add(custody_entries=[ledger(1, VOYAGE[0]), ledger(2, entry(1, 0, "tokyo", "GTIN", log=other))])
    assert fleet.rows("custody", "log", *INTERVAL) == [
        (LOG, 1, "tokyo", 1, None, False),
        (other, 1, "tokyo", 1, None, False),
    ]
    fleet.add(custody_entries=[ledger(1, VOYAGE[2])])  # the ship's entry, before the one that gives it the box
    assert fleet.rows("custody", "log", "term")[:2] == [(LOG, 1), (other, 1)]  # does not count yet
    forged = (
        entry(18, 5, "marlin", "SEIZURE", by="marlin"),  # it never had the box
        entry(1, 0, "star", "GTIN", by="star", log=at_sea),
    )
    chained = [
        msgspec.structs.replace(each, log=seized)
        for each in (*VOYAGE[:2], entry(18, 12, "tokyo", "SEIZURE"), came_back(18, 12, 30, by="tokyo"))
    ]
    news = (VOYAGE[1], refused("o1"), *forged, *chained)
    fleet.add(custody_entries=[ledger(offset, each) for offset, each in enumerate(news, 3)])
    rows = fleet.rows("custody", "log", *INTERVAL)
    assert [row[1:] for row in rows if row[0] == LOG] == [
        (1, "tokyo", 1, 10, False),
        (2, "star", 11, 20, False),
        (3, None, 21, None, False),
    ]
    assert {row[0] for row in rows} == {LOG, other, seized}, "a ship opens no log"
    intervals = [tuple(getattr(each, name) for name in INTERVAL) for each in chain(seized, chained).intervals]
    assert [row[1:] for row in rows if row[0] == seized] == intervals, "as fairlead custody show has them"
    first = fleet.rows("custody", "equipment_reference", "from_date_time", "to_date_time", "event", "granted_by")[0]
    assert first == (BOX, VOYAGE[0].event_date_time, VOYAGE[1].event_date_time, "GTIN", "tokyo")
    check(fleet)


@pytest.mark.long
def test_the_topology_decides_who_is_believed(fleet: FleetLake) -> None:
    yellow = entry(1, 0, "tokyo", "GTIN", log="yellow.YELU0000013")
    fleet.add(custody_entries=[ledger(1, VOYAGE[0]), ledger(2, yellow), ledger(3, VOYAGE[1])])
    assert fleet.rows("custody", "log") == [LOG, LOG, yellow.log]
    before = topology()
    sold = Stream(insert_point=InsertPoint.MOVES, owners=("PINU",))
    fleet.follow(before.model_copy(update={"streams": before.streams | {"yellow": sold}}))
    assert fleet.rows("custody", "log") == [LOG, LOG]
    check(fleet)
    fleet.follow(before)
    assert fleet.rows("custody", "log") == [LOG, LOG, yellow.log]
    check(fleet)


# -- milestones


@pytest.mark.long
def test_events_and_bookings_move_shipments_on_whichever_comes_first(fleet: FleetLake) -> None:
    columns = ("booking_reference", "state", "milestone", "vessel", "transport_document_reference")
    unnamed = event(1, 2, "LOAD", booking_reference=None, vessel_imo_number=STAR)
    fleet.add(events=[unnamed, event(2, 2, "LOAD", OTHER, booking_reference="B2")])
    assert fleet.rows("milestones", "equipment_reference", "booking_reference") == [(OTHER, "B2")]
    fleet.add(booking_changes=[change(1, 3)])
    assert fleet.rows("shipments", *columns) == [("B1", "IN_TRANSIT", "LOAD", "MV Duck Star", None)]
    version = fleet.version("shipments")
    fleet.add(events=[unnamed | {"log_offset": 9}, {"log": "events.tokyo", "log_offset": 7, "problem": "broken"}])
    assert fleet.version("shipments") == version
    fleet.add(booking_changes=[change(2, 4, transport_document_reference="BL7")])
    assert fleet.rows("shipments", *columns) == [("B1", "IN_TRANSIT", "LOAD", "MV Duck Star", "BL7")]
    red = Site(kind=SiteKind.SHIP, title="MV Red Herring", imo=STAR)
    fleet.follow(topology().model_copy(update={"sites": topology().sites | {"star": red}}))
    assert fleet.rows("shipments", "vessel") == ["MV Red Herring"]
    check(fleet)


# -- any order, any batches, any repeats


def journeys() -> list[tuple[str, dict[str, Any]]]:
    """Return two boxes' events under named bookings and under none: told twice, missing, with a transhipment."""
    told: list[tuple[str, dict[str, Any]]] = []
    for number, box in enumerate((BOX, OTHER)):
        for index, (code, ship) in enumerate(
            (("GTIN", None), ("LOAD", STAR), ("DISC", STAR), ("LOAD", MARLIN), ("DISC", None), ("GTOT", None))
        ):
            about: dict[str, Any] = {"vessel_imo_number": ship, "booking_reference": None if index == 4 else "B1"}
            offset = 10 * number + index
            told.append(("events", event(offset, index + number, code, box, **about)))
            if index in (1, 3):
                told.append(("events", event(offset, index + number, code, box, **about) | {"log": "events.star"}))
    for number, ship in enumerate((STAR, MARLIN, "9000001")):
        for index, (written, expected, code) in enumerate(((0, 50, "ARRI"), (2, 70, "ARRI"), (1, 60, "DEPA"))):
            call: dict[str, Any] = {"vessel_imo_number": ship, "event_id": f"S{number}{index}"}
            told.append(("events", scheduled(40 + 10 * number + index, written, expected, code, **call)))
        told.append(("events", docked(48 + 10 * number, 66, "ARRI", "singapore", ship)))
    return told


def story() -> list[tuple[str, dict[str, Any]]]:
    """Return bookings of two offices with ties and repeats, and logs that are seized, split, forged and come back."""
    told: list[tuple[str, dict[str, Any]]] = []
    for number, (name, box) in enumerate((("B1", BOX), ("B1", OTHER), ("B2", BOX), ("B3", "BIGU0000037"))):
        about = {"booking_reference": name, "equipment_reference": box}
        told += [
            ("booking_changes", change(10 * number + 1, 0, **about)),
            ("booking_changes", change(10 * number + 2, 1, **about)),
            ("booking_changes", change(10 * number + 3, 5, **about, consignee="")),
            ("booking_changes", change(10 * number + 4, 4, **about, setpoint_temperature=None)),
            ("booking_changes", change(10 * number + 5, 9, **about, status="CANCELLED", valid_to=at(7))),
            ("booking_changes", change(10 * number + 1, 4, "tokyo", **about, customer="toyshop", consignee="ducks")),
            ("booking_changes", change(10 * number + 2, 4, "tokyo", **about, valid_from=None)),
        ]
    told.append(("booking_changes", {"log": "bookings.hq", "log_offset": 99, "problem": "broken"}))
    offset = 0
    for box in (BOX, OTHER, "BIGU0000037", "YELU0000013", "ZZZU0000010"):
        stream = "yellow" if box.startswith("YELU") else "containers"
        entries = (
            *VOYAGE[:2],
            entry(2, 10, "sydney", "HAND"),  # a split
            entry(3, 20, "tokyo", "DISC", by="star"),
            entry(20, 15, "tokyo", "SEIZURE"),
            entry(3, 20, "marlin", "HAND", by="marlin"),  # forged
            came_back(20, 15, 30, by="tokyo"),
            entry(21, 40, None, "GTOT"),
            claimed("tokyo", 21),
            refused(f"o-{box}"),
        )
        for each in entries:
            offset += 1
            told.append(("custody_entries", ledger(offset, msgspec.structs.replace(each, log=f"{stream}.{box}"))))
    told.append(("custody_entries", {"log": "custody.tokyo", "log_offset": 999, "problem": "broken", "payload": b"{"}))
    return told + journeys()


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.chaos)])
def test_batches_in_any_order_and_repeated_make_the_same_tables(
    spark: SparkSession, empty: Path, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose = random.Random(seed)  # noqa: S311
    monkeypatch.setattr(histories, "_NAMED", choose.choice([1, 100]))
    told = story()
    choose.shuffle(told)
    fleet = FleetLake(spark, histories, tmp_path, empty)
    for first in range(0, len(told), 60):
        fleet.add(**merged(told[first : first + 60]))
    before = [fleet.version(table) for table in TABLES]
    fleet.update(merged(told[-30:]))  # the driver was killed before Spark's commit
    assert [fleet.version(table) for table in TABLES] == before
    check(fleet, by_function=True)
    assert fleet.stored("bookings").num_rows == 24
    assert fleet.rows("schedules", "contradictory", "eta_changed") == [(True, True), (True, False)] * 3
    assert {"TRANSHIPMENT", "CHANGE_OF_VESSEL", "GTOT"} <= {*fleet.rows("milestones", "milestone")}
    assert len(set(fleet.rows("custody", "log"))) == 4  # the topology has no stream for the fifth
    terms = [row for row in fleet.rows("custody") if row["log"] == LOG]
    assert [(row["term"], row["holder"], row["lost"]) for row in terms] == [
        (1, "tokyo", False),
        (2, "star", False),
        (3, "tokyo", True),
        (20, "tokyo", False),
        (21, None, False),
    ]


@pytest.mark.long
def test_the_query_follows_its_inputs_and_another_topology(spark: SparkSession, fleet: FleetLake) -> None:
    context = JobContext(topology(), cast(Any, None), fleet.paths, spark, 1000)

    def run() -> None:
        writer = histories.query(context).option("checkpointLocation", fleet.paths.checkpoint("histories"))
        assert writer.trigger(availableNow=True).start().awaitTermination(240)

    told = story()
    fleet.append(merged(told[::2]))
    run()
    check(fleet)
    undo_commit(Path(fleet.paths.base), "histories")  # a crash: the batch comes again
    fleet.append(merged(told[1::2]))
    run()
    check(fleet)
    before = [fleet.version(table) for table in TABLES]
    run()
    assert [fleet.version(table) for table in TABLES] == before
    after = topology()
    reference.write(fleet.lake, after.model_copy(update={"streams": {"yellow": after.streams["yellow"]}}))
    run()
    assert {log.partition(".")[0] for log in fleet.rows("custody", "log")} == {"yellow"}
    assert fleet.version("bookings") == before[0]
    check(fleet)


@pytest.mark.long
def test_other_limits_and_rows_without_marks_renew_the_marks(spark: SparkSession, fleet: FleetLake) -> None:
    fleet.add(
        booking_changes=[change(1, 0)],
        events=[
            event(1, 0, "GTIN"),
            event(2, 9, "LOAD", vessel_imo_number=STAR),
            scheduled(3, 0, 60),
            scheduled(4, 1, 66),
        ],
    )
    assert fleet.rows("milestones", "long_dwell") + fleet.rows("schedules", "eta_changed") == [False, False, False]
    limits = Exceptions(eta_hours=5, dwell_hours=8)
    before = topology()
    shore = Shore(at="tokyo", exceptions=limits)
    context = Context(before.model_copy(update={"shore": shore}), cast(Any, None), fleet.paths, spark, 1000)
    histories.query(context)
    assert fleet.rows("milestones", "milestone", "long_dwell") == [("GTIN", False), ("LOAD", True)]
    assert fleet.rows("schedules", "eta_changed") == [True]
    versions = [fleet.version(table) for table in TABLES]
    histories.query(context)
    assert [fleet.version(table) for table in TABLES] == versions
    for table, mark in (("milestones", "long_dwell"), ("schedules", "eta_changed")):  # as an earlier release left them
        rows = [row | {mark: None} for row in fleet.rows(table)]
        content = pa.Table.from_pylist(rows, schema=DELTA_TABLES[table].plain_schema)
        write_deltalake(fleet.paths.table(table), content, mode="overwrite")
    histories.query(context)
    assert fleet.stored("milestones").equals(
        same_shape("milestones", milestones_duckdb.everything(fleet.paths, limits))
    )
    assert fleet.stored("schedules").equals(same_shape("schedules", schedules_duckdb.everything(fleet.paths, limits)))
