"""Job ``ships``: what its tables of docks and ships contain, however the input is batched. No broker."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import Column, DataFrame, SparkSession

from shore.jobs import reference, ships
from shore.jobs.model import JobContext
from shore.maintenance import ExpiryStep, expire, maintenance_session
from shore.sailing import TimeBounds
from shore.tables.model import Table, micros_of
from shore.verify.catalogue import REFERENCE
from tests.integration.shore.fleet_lake import FleetLake, create_lake, same_shape
from tests.integration.shore.readings import undo_commit
from tests.support.oracle import dock_movements as dock_movements_duckdb
from tests.support.oracle import ships as ships_duckdb
from tests.support.shore.fleet import (
    BOX,
    MARLIN,
    SINGAPORE,
    STAR,
    STRANGER,
    TOKYO,
    YELLOW,
    at,
    docked,
    event,
    merged,
    position,
    topology,
)
from topologies.model import Geofence, Place, Site, SiteKind, Topology

pytestmark = [pytest.mark.integration, pytest.mark.spark]

ORACLES = {
    "dock_movements": dock_movements_duckdb.everything,
    "port_calls": ships_duckdb.port_calls,
    "voyages": ships_duckdb.voyages,
    "geofence_visits": ships_duckdb.geofence_visits,
    "ships_now": ships_duckdb.ships_now,
}
TABLES = tuple(ORACLES)


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ships")
    create_lake(folder, ("events", "positions", *TABLES))
    return folder


@pytest.fixture
def fleet(spark: SparkSession, empty: Path, tmp_path: Path) -> FleetLake:
    return FleetLake(spark, ships, tmp_path, empty)


def check(fleet: FleetLake, *, by_function: bool = False) -> None:
    """Check the tables against oracles over all input rows and, with ``by_function``, against their functions."""
    for table in TABLES:
        stored = fleet.stored(table)
        assert same(stored, same_shape(table, ORACLES[table](fleet.paths))), table
        assert not by_function or same(stored, fleet.computed(table)), table


def same(one: pa.Table, other: pa.Table) -> bool:
    """Compare tables with rounded floats: distances are sums, whose last digits may differ."""

    def plain(rows: pa.Table) -> list[tuple[Any, ...]]:
        found = rows.to_pylist()
        return [tuple(round(v, 6) if isinstance(v, float) else v for v in row.values()) for row in found]

    return plain(one) == plain(other)


# -- dock movements


def test_movements_say_what_came_and_left_and_of_which_line(fleet: FleetLake) -> None:
    fleet.add(
        events=[
            event(1, 0, "GTIN", un_location_code=None),  # its port is that of the publishing site
            event(2, 1, "GTIN", YELLOW),
            event(3, 1.5, "DISC", STRANGER, "star"),
            docked(4, 2, "ARRI"),
            event(5, 3, "LOAD", vessel_imo_number=STAR, voyage_reference="V1"),
            {"log": "events.tokyo", "log_offset": 6, "problem": "broken"},
        ]
    )
    columns = ("movement", "un_location_code", "equipment_reference", "line", "vessel")
    assert sorted(fleet.rows("dock_movements", "event_date_time", *columns)) == [
        (at(0), "GTIN", "JPTYO", BOX, "Our own", None),
        (at(1), "GTIN", "JPTYO", YELLOW, "Yellow Box Leasing", None),
        (at(1.5), "DISC", None, STRANGER, None, None),
        (at(2), "ARRI", "JPTYO", None, None, "MV Duck Star"),
        (at(3), "LOAD", "JPTYO", BOX, "Our own", "MV Duck Star"),
    ]
    check(fleet)


@pytest.mark.long
def test_an_event_is_one_row_however_often_it_is_told(fleet: FleetLake) -> None:
    first = docked(1, 2, "ARRI")
    fleet.add(events=[first | {"event_created_date_time": at(3)}])
    fleet.add(events=[first | {"log": "events.star", "log_offset": 9, "publisher": "star"}])  # created earlier
    fleet.add(events=[first | {"log_offset": 2, "event_created_date_time": at(4), "event_date_time": at(1)}])
    assert fleet.rows("dock_movements", "copies", "log", "publisher", "event_date_time") == [
        (3, "events.star", "star", at(2))
    ]
    check(fleet)


def test_one_id_about_several_boxes_and_ships_is_a_movement_of_each(fleet: FleetLake) -> None:
    """Senders count their events on their own. An earlier copy takes the row's place, and no other's."""
    fleet.add(events=[event(1, 1, "GTIN", event_id="7")])
    fleet.add(
        events=[
            event(1, 0, "GTIN", YELLOW, "singapore", event_id="7"),
            docked(2, 2, "ARRI", "singapore", event_id="7"),
            docked(1, 3, "ARRI", "star", MARLIN, event_id="7", un_location_code="JPTYO"),
        ]
    )
    fleet.add(events=[event(4, 0.5, "GTIN", site="star", event_id="7")])
    columns = ("equipment_reference", "vessel_imo_number", "event_date_time", "copies", "log")
    assert sorted(fleet.rows("dock_movements", *columns), key=lambda row: row[2]) == [
        (YELLOW, None, at(0), 1, "events.singapore"),
        (BOX, None, at(0.5), 2, "events.star"),
        (None, STAR, at(2), 1, "events.singapore"),
        (None, MARLIN, at(3), 1, "events.star"),
    ]
    assert fleet.rows("port_calls", "vessel_imo_number", "call_date_time") == [(STAR, at(2)), (MARLIN, at(3))]
    check(fleet, by_function=True)


# -- port calls, voyages, and where ships are now


@pytest.mark.long
def test_calls_and_legs_follow_events_and_positions(fleet: FleetLake) -> None:
    fleet.add(events=[docked(1, 0, "ARRI"), docked(2, 10, "DEPA")])
    fleet.add(positions=[position(i, 10 + i, (35.0 - i, 139.0 - i)) for i in range(1, 10)])
    assert fleet.rows("voyages", "from_un_location_code", "to_un_location_code", "positions") == [("JPTYO", None, 9)]
    fleet.add(positions=[position(20, 30, SINGAPORE, 0.0), position(21, 32, SINGAPORE, 0.0)])  # no ARRI yet
    assert fleet.rows("port_calls", "un_location_code", "arrival_date_time", "arrival_source", "in_port") == [
        ("JPTYO", at(0), "EVENT", False),
        ("SGSIN", at(30), "POSITION", True),
    ]
    fleet.add(events=[docked(3, 29, "ARRI", "singapore")])  # days late
    assert fleet.rows("port_calls", "arrival_date_time", "arrival_source")[1] == (at(29), "EVENT")
    (leg,) = fleet.rows("voyages")
    assert (leg["vessel"], leg["voyage_reference"], leg["arrival_date_time"]) == ("MV Duck Star", "V1", at(29))
    assert leg["distance"] == pytest.approx(8 * 79.4, rel=0.01)
    assert (leg["gaps"], leg["gap_minutes"], leg["longest_gap_minutes"]) == (1, 600, 600)
    check(fleet)


def test_a_repeated_position_counts_once(fleet: FleetLake) -> None:
    steps = [position(i, i, (10.0 + i, 120.0)) for i in range(3)]
    fleet.add(positions=[*steps, steps[1] | {"log_offset": 9}])
    (leg,) = fleet.rows("voyages")
    assert (leg["positions"], round(leg["distance"])) == (3, 120)
    check(fleet)


@pytest.mark.long
def test_the_newest_position_of_a_ship_stays_whatever_comes_late(fleet: FleetLake) -> None:
    more: dict[str, Any] = {"course_over_ground": 90.0, "navigation_status": 0}
    fleet.add(positions=[position(1, 5, (10.0, 120.0), **more), position(2, 6, TOKYO, latitude=None)])
    newest = ("vessel", "device_date_time", "latitude", "speed_over_ground", "course_over_ground", "log_offset")
    assert fleet.rows("ships_now", *newest) == [("MV Duck Star", at(5), 10.0, 14.0, 90.0, 1)]
    version = fleet.version("ships_now")
    fleet.add(positions=[position(3, 4, (11.0, 120.0)), position(4, 5, (12.0, 120.0))])  # late, and of the same time
    assert fleet.version("ships_now") == version
    fleet.add(positions=[position(5, 7, (13.0, 120.0)), position(1, 1, TOKYO, 0.0, "9999999")])
    assert fleet.rows("ships_now", "vessel_imo_number", "vessel", "log_offset") == [
        (STAR, "MV Duck Star", 5),
        ("9999999", None, 1),
    ]
    check(fleet)


@pytest.mark.parametrize("beyond", [2**60, -(2**60)])
def test_a_position_beyond_the_calendar_counts_nowhere(fleet: FleetLake, beyond: int) -> None:
    fleet.add(positions=[position(1, 5, TOKYO), position(2, 6, TOKYO)])
    before = {table: fleet.rows(table) for table in TABLES}
    fleet.add(positions=[position(3, 7, SINGAPORE, device_date_time=beyond)])
    assert {table: fleet.rows(table) for table in TABLES} == before
    fleet.add(events=[docked(1, 1, "ARRI"), docked(2, 9, "DEPA")])
    assert len(fleet.rows("port_calls")) == 1


SEA = (20.0, 130.0)


@pytest.mark.long
def test_a_visit_of_a_geofence_lasts_until_a_position_outside(fleet: FleetLake) -> None:
    def visits() -> list[Any]:
        return fleet.rows("geofence_visits", "geofence", "entered_date_time", "left_date_time", "positions")

    fleet.add(positions=[position(1, 0, SEA), position(2, 5, TOKYO), position(3, 50, TOKYO)])
    assert visits() == [("tokyo-bay", at(5), None, 2)]  # a gap does not end it
    fleet.add(positions=[position(4, 30, SEA), position(5, 51, TOKYO, latitude=None)])  # late: it was away between
    assert visits() == [("tokyo-bay", at(5), at(5), 1), ("tokyo-bay", at(50), None, 1)]
    fleet.add(positions=[position(6, 4, TOKYO), position(7, 52, SEA)])
    assert visits() == [("tokyo-bay", at(4), at(5), 2), ("tokyo-bay", at(50), at(50), 1)]
    assert set(fleet.rows("geofence_visits", "vessel_imo_number", "vessel")) == {(STAR, "MV Duck Star")}
    check(fleet, by_function=True)


@pytest.mark.parametrize("days", [5, 30, 90])
@pytest.mark.long
def test_positions_of_a_visit_are_read_back_to_its_beginning(
    fleet: FleetLake, days: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int | None] = []

    def needed(bounds: Mapping[str, TimeBounds]) -> Column:
        read.extend(each.read_since for each in bounds.values())
        return ships_needed(bounds)

    ships_needed = ships.needed
    fleet.add(positions=[position(1, 0, SEA), position(2, 1, TOKYO)])
    monkeypatch.setattr(ships, "needed", needed)
    ships.update_visits(fleet.lake, {STAR: ships.TimeSpan(micros_of(at(24 * days)), micros_of(at(24 * days)))})
    assert len(read) == {5: 1, 30: 2, 90: 3}[days]
    assert (read[-1] is None) == (days == 90)
    fleet.add(positions=[position(3, 24 * days, TOKYO)])
    assert fleet.rows("geofence_visits", "entered_date_time", "positions") == [(at(1), 2)]


def renamed() -> Topology:
    """Return the fleet with another ship, another name of a line, and a port that is no longer known."""
    before = topology()
    return before.model_copy(
        update={
            "customers": {},
            "geofences": {"singapore-roads": Geofence(at=Place(latitude=1.2, longitude=103.8), within_km=10)},
            "sites": before.sites
            | {
                "marlin": Site(kind=SiteKind.SHIP, title="MV Red Herring", imo=MARLIN),
                "singapore": Site(kind=SiteKind.PORT, unlocode="XXXXX"),
            },
        }
    )


@pytest.mark.long
def test_another_topology_makes_the_tables_anew(fleet: FleetLake) -> None:
    fleet.add(
        events=[event(1, 0, "GTIN", YELLOW), docked(2, 1, "ARRI", ship=MARLIN)],
        positions=[position(1, 3, SINGAPORE, 0.0), position(1, 2, (20.0, 130.0), ship=MARLIN)],
    )
    assert fleet.rows("geofence_visits") == []
    calls = fleet.rows("port_calls", "vessel", "un_location_code")
    assert calls == [("MV Duck Star", "SGSIN"), ("MV Blue Marlin", "JPTYO")]
    fleet.follow(renamed())
    assert set(fleet.rows("dock_movements", "line", "vessel")) == {("yellow", None), (None, "MV Red Herring")}
    assert fleet.rows("port_calls", "vessel", "un_location_code") == [("MV Red Herring", "JPTYO")]
    assert fleet.rows("ships_now", "vessel") == ["MV Duck Star", "MV Red Herring"]
    assert fleet.rows("geofence_visits", "vessel", "geofence") == [("MV Duck Star", "singapore-roads")]
    check(fleet)
    versions = [fleet.version(table) for table in (*TABLES, *REFERENCE)]
    fleet.follow(renamed())
    assert [fleet.version(table) for table in (*TABLES, *REFERENCE)] == versions
    fleet.follow(renamed().model_copy(update={"geofences": {}}))
    assert fleet.rows("geofence_visits") == []


@pytest.mark.long
def test_what_was_made_of_deleted_positions_stays_when_the_topology_changes(fleet: FleetLake) -> None:
    """The ship lay in Tokyo, sailed, and is at Singapore from before retention's limit until after it."""
    track = [(0, SEA), (5, TOKYO), (10, TOKYO), (15, SEA), (20, SEA), (40, SINGAPORE), (60, SINGAPORE)]
    fleet.add(positions=[position(i, hours, place, 0.0) for i, (hours, place) in enumerate(track)])
    fleet.follow(with_roads(10))
    fleet.add(positions=[position(20, 1, SEA, ship=MARLIN)])
    before = {name: fleet.rows(name) for name in ("port_calls", "voyages", "geofence_visits", "ships_now")}
    assert [row["positions"] for row in before["geofence_visits"]] == [2, 2]
    assert [row["un_location_code"] for row in before["port_calls"]] == ["JPTYO", "SGSIN"]
    assert len(before["voyages"]) == 3
    assert expire(maintenance_session(fleet.spark), fleet.paths, ExpiryStep("positions", at(48), 1)) == 7
    fleet.follow(with_roads(12))
    assert {name: fleet.rows(name) for name in before} == before

    fleet.add(positions=[position(9, 70, SINGAPORE, 0.0), position(10, 80, SEA)])  # it leaves
    visits = fleet.rows("geofence_visits", "geofence", "entered_date_time", "left_date_time")
    assert visits == [("tokyo-bay", at(5), at(10)), ("roads", at(40), at(70))]
    calls = fleet.rows("port_calls", "call_date_time", "departure_date_time", "in_port")
    assert calls == [(at(5), at(10), False), (at(40), at(70), False)]
    legs = [row for row in fleet.rows("voyages") if row not in before["voyages"]]
    assert [(leg["from_un_location_code"], leg["departure_date_time"]) for leg in legs] == [("SGSIN", at(70))]
    assert fleet.stored("voyages").num_rows == 4


@pytest.mark.long
def test_a_batch_that_is_all_after_retentions_limit_looks_for_no_former_rows(
    fleet: FleetLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []

    def with_former(table: Table, stored: DataFrame, fresh: DataFrame, limit: dt.datetime) -> DataFrame:
        looked.append(table.name)
        return found(table, stored, fresh, limit)

    found = ships.with_former
    monkeypatch.setattr(ships, "with_former", with_former)
    calls = [(0, "ARRI", "tokyo"), (10, "DEPA", "tokyo"), (100, "ARRI", "singapore"), (120, "DEPA", "singapore")]
    calls += [(200, "ARRI", "tokyo"), (220, "DEPA", "tokyo"), (300, "ARRI", "singapore")]
    fleet.add(
        events=[docked(n, hour, code, site) for n, (hour, code, site) in enumerate(calls)],
        positions=[position(1, 2, TOKYO, 0.0), position(2, 250, SEA)],
    )
    assert expire(maintenance_session(fleet.spark), fleet.paths, ExpiryStep("positions", at(48), 1)) == 1
    fleet.add(positions=[position(3, 305, SINGAPORE, 0.0)])
    assert looked == []
    assert fleet.rows("port_calls", "in_port") == [False, False, False, True]


def with_roads(within_km: float) -> Topology:
    before = topology()
    roads = Geofence(at=Place(latitude=SINGAPORE[0], longitude=SINGAPORE[1]), within_km=within_km)
    return before.model_copy(update={"geofences": before.geofences | {"roads": roads}})


# -- any order, any batches, any repeats


def story(choose: random.Random) -> list[tuple[str, dict[str, Any]]]:
    """Return voyages of five ships between two ports: some events are missing, some are repeated, positions have gaps
    and differing repeats, one ship has only events and one only positions."""
    told: list[tuple[str, dict[str, Any]]] = []
    offset = 0
    ports = (("tokyo", TOKYO), ("singapore", SINGAPORE))
    for number in range(5):
        ship = (STAR, MARLIN, "9000001", "9000002", "9000003")[number]
        hour = choose.uniform(0, 20)
        for call in range(4):
            site, place = ports[(call + number) % 2]
            leaves = hour + choose.uniform(5, 30)
            for code, time in (("ARRI", hour), ("DEPA", leaves)):
                for _ in range(choose.choice([0, 1, 1, 2]) if number != 3 else 0):
                    offset += 1
                    more = {"log": choose.choice(["events.tokyo", "events.star"])}
                    told.append(("events", docked(offset, round(time, 2), code, site, ship, **more)))
            nearby = [(hour + choose.uniform(0, leaves - hour), place, 0.0) for _ in range(3)]
            there = leaves + choose.uniform(40, 80)
            sailing = [(leaves + 1.5 * step, (20.0 + step / 4, 120.0 + step / 4), 14.0) for step in range(1, 25)]
            for moment, where, speed in (*nearby, *sailing) if number != 4 else ():
                if choose.random() < 0.8:
                    offset += 1
                    told.append(("positions", position(offset, round(moment, 2), where, speed, ship)))
                    if choose.random() < 0.1:
                        told.append(("positions", position(offset + 10_000, round(moment, 2), where, speed + 1, ship)))
            hour = there
    boxes = (event(offset + i, i, code, box) for i, (code, box) in enumerate((("GTIN", BOX), ("LOAD", YELLOW))))
    return [*told, *(("events", each) for each in boxes)]


@pytest.mark.chaos
@pytest.mark.parametrize("seed", [0, 1])
def test_batches_in_any_order_and_repeated_make_the_same_tables(
    spark: SparkSession, empty: Path, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose = random.Random(seed)  # noqa: S311
    monkeypatch.setattr(ships, "_NAMED", choose.choice([2, 100]))
    monkeypatch.setattr(ships, "_RANGES", choose.choice([2, 50]))
    told = sorted(story(choose), key=lambda row: row[1].get("event_date_time") or row[1]["device_date_time"])
    parts: list[list[tuple[str, dict[str, Any]]]] = [[] for _ in range(5)]
    for i, row in enumerate(told):  # most rows come in order, some in any batch
        parts[i * 5 // len(told) if choose.random() < 0.75 else choose.randrange(5)].append(row)
    fleet = FleetLake(spark, ships, tmp_path, empty)
    for part in parts:
        fleet.add(**merged(part))
        check(fleet)
    before = [fleet.version(table) for table in TABLES]
    fleet.update(merged(parts[0]))  # the driver was killed before Spark's commit
    assert [fleet.version(table) for table in TABLES] == before
    check(fleet, by_function=True)
    assert fleet.stored("port_calls").num_rows >= 12
    assert {*fleet.rows("port_calls", "arrival_source")} >= {"EVENT", "POSITION"}
    assert fleet.stored("ships_now").num_rows == 4


@pytest.mark.chaos
def test_the_query_follows_its_inputs_and_another_topology(spark: SparkSession, fleet: FleetLake) -> None:
    context = JobContext(topology(), cast(Any, None), fleet.paths, spark, 1000)

    def run() -> None:
        writer = ships.query(context).option("checkpointLocation", fleet.paths.checkpoint("ships"))
        assert writer.trigger(availableNow=True).start().awaitTermination(240)

    told = story(random.Random(7))  # noqa: S311
    fleet.append(merged(told[::2]))
    run()
    check(fleet)
    undo_commit(Path(fleet.paths.base), "ships")  # a crash: the batch comes again
    fleet.append(merged(told[1::2]))
    run()
    check(fleet)
    before = [fleet.version(table) for table in TABLES]
    run()
    assert [fleet.version(table) for table in TABLES] == before
    reference.write(fleet.lake, renamed())
    run()
    assert "MV Red Herring" in fleet.rows("ships_now", "vessel")
    check(fleet)
