"""Table ``cold_treatments``: days without a break below a booking's limit, and how job ``containers_now`` keeps it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from shore.maintenance import ExpiryStep, expire, maintenance_session
from shore.tables import TABLES
from shore.tables.cold_treatments import cold_treatments
from simulators.fleet.scenario_file import load
from simulators.voyage.voyage import Voyage
from tests.integration.shore.hourly import in_spark
from tests.integration.shore.lake import Tables, empty_tables
from tests.support.cold_truth import cold_truths
from tests.support.shore import fleet
from tests.support.shore.fleet import BOX, at, change
from topologies.loader.load import load as load_topology

pytestmark = [pytest.mark.integration, pytest.mark.spark]

ASKED: dict[str, Any] = {"cold_treatment_temperature": 1.1, "cold_treatment_days": 2.0}
PROBES = tuple(f"cargo_probe{number}_temperature" for number in (1, 2, 3))
Row = dict[str, Any]


def reading(box: str, hour: float, *probes: float | None) -> Row:
    """Return a reading of a box at this hour, with the values of its probes."""
    found = fleet.reading(int(hour * 60), hour, box)
    return found | dict(zip(PROBES, (*probes, None, None, None), strict=False))


def hourly(box: str, first: int, last: int, *probes: float | None) -> list[Row]:
    return [reading(box, hour, *probes) for hour in range(first, last + 1)]


def booking(box: str, **more: Any) -> Row:
    state = {"booking_reference": "B1", "equipment_reference": box, "recorded_from": at(0), "is_current": True}
    state |= {"status": "CONFIRMED", "valid_from": at(0), "log": "bookings.hq", "log_offset": 1}
    return state | ASKED | more


def found_in(spark: SparkSession, readings: list[Row], bookings: list[Row]) -> dict[str, Row]:
    states = spark.createDataFrame(pa.Table.from_pylist(bookings, schema=TABLES["bookings"].plain_schema))
    rows: list[Row] = cold_treatments(in_spark(spark, readings), states).toArrow().to_pylist()
    return {row["equipment_reference"]: row for row in rows}


def test_what_breaks_a_treatment_and_what_completes_it(spark: SparkSession) -> None:
    readings = [
        *hourly("RUNS", 0, 30, 1.0, 0.9, 1.1),
        *hourly("RUNS", 3, 5, 1.0, 0.9, 1.1),  # repeats
        *hourly("DONE", 0, 60, 1.0, 0.9, 1.1),
        reading("DONE", 61, 9.0, 9.0, 9.0),
        *hourly("WARM", 0, 20, 1.0, 0.5, 0.5),
        reading("WARM", 20.5, 1.0, 1.2, 0.5),
        *hourly("ANEW", 0, 40, 1.0, 0.5, 0.5),
        reading("ANEW", 41, 1.0, 1.0, 1.11),
        *hourly("ANEW", 42, 92, 1.0, 0.5, 0.5),
        *hourly("GAP", 0, 20, 1.0),
        *hourly("GAP", 22, 30, 1.0),
        reading("GAP", 32.5, 0.2),
        *hourly("MISSING", 0, 10, 1.0, 1.0),
        reading("MISSING", 10.5, 1.0, None),
        *hourly("MISSING", 11, 20, 1.0, 1.0),
        reading("MISSING", 20.5, 1.0, 3276.7),
        *hourly("NEVER", 0, 10, 1.0, 4.0, 1.0),
        *hourly("NO_PROBES", 0, 10),
        *hourly("BEFORE", 0, 30, 1.0),
        *hourly("NOT_ASKED", 0, 60, 1.0),
    ]
    bookings = [booking(box) for box in sorted({row["equipment_reference"] for row in readings} - {"BEFORE"})]
    bookings = [each for each in bookings if each["equipment_reference"] != "NOT_ASKED"]
    bookings.append(booking("BEFORE", valid_from=at(25)))
    bookings.append(booking("NOT_ASKED", cold_treatment_temperature=None, cold_treatment_days=None))
    found = found_in(spark, readings, bookings)

    def told(box: str) -> tuple[Any, ...]:
        row = found[box]
        hours = None if row["days"] is None else round(row["days"] * 24, 6)
        return row["state"], row["since_date_time"], hours, row["breaks"], row["broken_by"], row["broken_date_time"]

    assert told("RUNS") == ("RUNNING", at(0), 30.0, 0, None, None)
    assert told("DONE") == ("COMPLETED", at(0), 60.0, 0, None, None), "what comes after does not undo it"
    assert found["DONE"]["completed_date_time"] == at(48)
    assert told("WARM") == ("BROKEN", at(0), 20.0, 1, "WARM", at(20.5))
    assert told("ANEW") == ("COMPLETED", at(42), 50.0, 1, "WARM", at(41))
    assert found["ANEW"]["completed_date_time"] == at(90)
    assert told("GAP") == ("RUNNING", at(32.5), 0.0, 1, "GAP", at(32.5)), "two hours are no gap, more are one"
    assert told("MISSING") == ("BROKEN", at(11), 9.0, 2, "PROBE_MISSING", at(20.5))
    assert told("NEVER") == told("NO_PROBES") == (None, None, None, 0, None, None)
    assert told("BEFORE") == ("RUNNING", at(25), 5.0, 0, None, None), "cold before its booking does not count"
    assert "NOT_ASKED" not in found
    probes = {box: found[box]["probes"] for box in ("RUNS", "GAP", "MISSING", "NO_PROBES")}
    assert probes == {"RUNS": 3, "GAP": 1, "MISSING": 2, "NO_PROBES": 0}
    assert (found["RUNS"]["warmest_temperature"], found["RUNS"]["limit_temperature"]) == (1.1, 1.1)


def test_it_says_of_a_voyage_what_the_simulated_devices_measured(spark: SparkSession) -> None:
    truths = cold_truths(Voyage(load("reefer-claim"), load_topology("big-blue", env={}), seed=7))
    readings, bookings = [], []
    for number, truth in truths.items():
        asked = truth.box.lot.cold_treatment
        assert asked is not None
        for time, probes in truth.measured:
            readings.append(reading(number, 0, *probes) | {"device_date_time": time})
        limits = {"cold_treatment_temperature": asked.temperature, "cold_treatment_days": asked.days}
        bookings.append(booking(number, valid_from=truth.box.first_load.time, **limits))
    found = found_in(spark, readings, bookings)
    assert found.keys() == truths.keys()
    assert len(found) == 2
    for number, truth in truths.items():
        row = found[number]
        since, until = truth.cold[-1]
        assert (row["state"], row["probes"]) == ("RUNNING", 3)
        assert (row["since_date_time"], row["until_date_time"]) == (since, until)
        assert row["breaks"] == len(truth.warm_again)
        assert row["broken_date_time"] == max(truth.warm_again, default=None)
        assert row["broken_by"] == ("WARM" if truth.box.outages else None)


@pytest.fixture
def tables(spark: SparkSession, tmp_path: Path) -> Tables:
    """Return tables that the job keeps."""
    names = ("containers_now", "cold_treatments")
    (tmp_path / "empty").mkdir()
    (tmp_path / "kept").mkdir()
    found = Tables(spark, tmp_path / "kept", empty_tables(tmp_path / "empty", names), names)
    found.start("containers_now")
    return found


@pytest.mark.long
def test_the_job_keeps_it_with_readings_and_bookings_in_any_order(tables: Tables) -> None:

    def row() -> Row:
        assert tables.differing() == {}
        (kept,) = tables.rows("cold_treatments")
        return dict(kept)

    tables.add(readings=hourly(BOX, 0, 30, 1.0, 1.0, 1.0))
    assert tables.rows("cold_treatments") == []
    tables.add(booking_changes=[change(1, 1, **ASKED)])
    assert (row()["state"], row()["days"]) == ("RUNNING", 1.25)
    tables.add(readings=hourly(BOX, 34, 90, 1.0, 1.0, 1.0))
    assert (row()["state"], row()["since_date_time"], row()["broken_by"]) == ("COMPLETED", at(34), "GAP")
    tables.add(readings=hourly(BOX, 31, 33, 1.0, 1.0, 1.0))
    assert (row()["since_date_time"], row()["breaks"]) == (at(0), 0), "late readings close the gap"
    tables.add(booking_changes=[change(2, 2, **ASKED | {"cold_treatment_days": 14.0})])
    assert row()["state"] == "RUNNING"
    tables.add(booking_changes=[change(3, 3)])
    assert tables.rows("cold_treatments") == [], "the booking asks for none any more"


@pytest.mark.long
def test_a_treatment_whose_readings_are_past_their_retention_stays(tables: Tables) -> None:
    tables.add(booking_changes=[change(1, 1, **ASKED)], readings=hourly(BOX, 0, 60, 1.0, 1.0, 1.0))
    (before,) = tables.rows("cold_treatments")
    assert (before["state"], before["since_date_time"]) == ("COMPLETED", at(0))
    assert expire(maintenance_session(tables.spark), tables.paths, ExpiryStep("readings", at(40), 1)) == 40
    tables.add(readings=[reading(BOX, 70, 9.0, 9.0, 9.0)])
    assert tables.rows("cold_treatments") == [before]
