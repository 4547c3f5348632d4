"""Schedules of ships and exceptions from them; what only happened, and what did not happen yet. By DuckDB."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.support.oracle.schedules import everything
from tests.support.shore.fleet import MARLIN, Fleet, at, docked, position, scheduled
from topologies.model import Exceptions

Row = dict[str, Any]
ETA_HOURS = Exceptions().eta_hours
MARKS = ("contradictory", "eta_changed", "port_omitted")


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path)


def marks(fleet: Fleet) -> dict[tuple[str, str], set[str]]:
    """Return the marks of each row by port and movement."""
    return {
        (row["un_location_code"], row["movement"]): {mark for mark in MARKS if row[mark]}
        for row in fleet.rows("schedules")
    }


def test_what_was_written_down_last_is_expected(fleet: Fleet) -> None:
    plan = scheduled(1, 0, 48, event_classifier_code="PLN")
    late, newest = scheduled(3, 10, 50), scheduled(2, 20, 49)
    fleet.add(events=[plan])
    fleet.add(events=[newest, plan | {"log": "events.star"}])
    fleet.add(events=[late])  # it was written down before the newest
    names = ("vessel", "voyage_reference", "un_location_code", "movement", "first_date_time", "expected_date_time",
             "expected_since", "schedules", "actual_date_time")  # fmt: skip
    (row,) = fleet.rows("schedules", *names)
    assert row == ("MV Duck Star", "V1", "SGSIN", "ARRI", at(48), at(49), at(20), 3, None)
    fleet.add(events=[docked(4, 51, "ARRI", "singapore"), docked(5, 52, "ARRI", "singapore")])
    assert fleet.rows("schedules", "expected_date_time", "actual_date_time") == [(at(49), at(51))]
    assert marks(fleet) == {("SGSIN", "ARRI"): set()}


def test_no_other_table_takes_a_schedule_for_an_event(fleet: Fleet) -> None:
    happened = [docked(1, 0, "ARRI"), docked(2, 10, "DEPA")]
    fleet.add(events=happened, positions=[position(i, 10 + i, (35.0 - i, 139.0 - i)) for i in range(1, 9)])
    tables = ("dock_movements", "port_calls", "voyages", "containers_now", "milestones")
    before = {table: fleet.rows(table) for table in tables}
    fleet.add(
        events=[
            scheduled(3, 1, 5, "DEPA", "tokyo"),
            scheduled(4, 1, 15),
            scheduled(5, 1, 20, "DEPA", event_classifier_code="PLN"),
            scheduled(6, 1, 2, vessel_imo_number=MARLIN),
        ]
    )
    assert {table: fleet.rows(table) for table in tables} == before
    assert len(fleet.rows("schedules")) == 4


@pytest.mark.parametrize("moved", [-ETA_HOURS - 1, -ETA_HOURS, 0, ETA_HOURS, ETA_HOURS + 1])
def test_an_arrival_that_moves_far_is_an_exception(fleet: Fleet, moved: int) -> None:
    fleet.add(events=[scheduled(1, 0, 60), scheduled(2, 1, 60 + moved)])
    fleet.add(events=[scheduled(3, 0, 70, "DEPA"), scheduled(4, 1, 200, "DEPA")])
    expected = {"eta_changed"} if abs(moved) > ETA_HOURS else set()
    assert marks(fleet)["SGSIN", "ARRI"] == expected
    assert marks(fleet)["SGSIN", "DEPA"] == set()


@pytest.mark.parametrize(("eta_hours", "changed"), [(5, True), (6, False), (7, False)])
def test_a_topology_says_how_far_an_arrival_may_move(fleet: Fleet, eta_hours: int, changed: bool) -> None:
    fleet.add(events=[scheduled(1, 0, 60), scheduled(2, 1, 54)])
    found = everything(fleet.paths, Exceptions(eta_hours=eta_hours))
    assert found["eta_changed"].to_pylist() == [changed]


def test_a_schedule_that_contradicts_itself_is_kept_and_marked(fleet: Fleet) -> None:
    fleet.add(events=[scheduled(1, 0, 60), scheduled(2, 0, 50, "DEPA"), scheduled(3, 0, 40, "DEPA", "tokyo")])
    both = {("SGSIN", "ARRI"): {"contradictory"}, ("SGSIN", "DEPA"): {"contradictory"}, ("JPTYO", "DEPA"): set()}
    assert marks(fleet) == both
    assert sorted(fleet.rows("schedules", "expected_date_time")) == [at(40), at(50), at(60)]
    fleet.add(events=[scheduled(4, 5, 55)])  # still after the departure
    assert marks(fleet) == both
    fleet.add(events=[scheduled(5, 6, 49)])
    assert marks(fleet)["SGSIN", "ARRI"] == set()


def test_a_port_that_the_ship_passes_by_is_omitted_until_it_comes(fleet: Fleet) -> None:
    busan = {"un_location_code": "KRPUS", "event_id": "EST-KRPUS"}
    fleet.add(events=[scheduled(1, 0, 40, **busan), scheduled(2, 0, 60), docked(3, 30, "ARRI", "tokyo")])
    assert marks(fleet)["KRPUS", "ARRI"] == set()  # it was elsewhere before
    fleet.add(events=[docked(4, 38, "ARRI", "singapore")])  # earlier than planned, as it took the short way
    assert marks(fleet) == {("KRPUS", "ARRI"): {"port_omitted"}, ("SGSIN", "ARRI"): set()}
    fleet.add(events=[docked(5, 70, "ARRI", un_location_code="KRPUS")])
    assert marks(fleet)["KRPUS", "ARRI"] == set()


def test_an_event_that_names_no_port_is_of_the_site_that_published_it(fleet: Fleet) -> None:
    fleet.add(events=[scheduled(1, 0, 40), scheduled(2, 0, 60, site="tokyo")])
    fleet.add(events=[docked(3, 41, "ARRI", "singapore", un_location_code=None), docked(4, 61, "ARRI", "tokyo")])
    assert fleet.rows("schedules", "un_location_code", "actual_date_time") == [("JPTYO", at(61)), ("SGSIN", at(41))]
    assert set.union(*marks(fleet).values()) == set()


def test_another_ship_and_another_voyage_are_other_schedules(fleet: Fleet) -> None:
    fleet.add(events=[scheduled(1, 0, 60), scheduled(2, 0, 90, voyage_reference="V2", event_id="v2")])
    fleet.add(events=[docked(3, 61, "ARRI", "singapore", MARLIN), scheduled(4, 0, 99, vessel_imo_number=MARLIN)])
    found = fleet.rows("schedules", "vessel", "voyage_reference", "actual_date_time")
    assert sorted(found, key=str) == [
        ("MV Blue Marlin", "V1", at(61)), ("MV Duck Star", "V1", None), ("MV Duck Star", "V2", None)
    ]  # fmt: skip


def test_schedules_do_not_depend_on_the_order_of_records(tmp_path: Path) -> None:
    choose = random.Random(5)  # noqa: S311
    events: list[Row] = [
        scheduled(n, choose.randrange(5), choose.randrange(90), choose.choice(["ARRI", "DEPA"]),
                  choose.choice(["tokyo", "singapore"]), event_id=f"s{n}")
        for n in range(25)
    ]  # fmt: skip
    events += [docked(30 + n, 20 * n, "ARRI", site) for n, site in enumerate(("tokyo", "singapore"))]
    one, other = Fleet(tmp_path / "one"), Fleet(tmp_path / "other")
    one.add(events=events)
    other.add(events=choose.sample(events, len(events)))
    assert one.rows("schedules") == other.rows("schedules")
    assert len(one.rows("schedules")) == 4
