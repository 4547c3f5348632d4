"""Table ``outlook``: its forecast for single boxes, and its accuracy against the simulator's physics."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from typing import get_args

import pytest
from pyspark.sql import SparkSession

from benchmarks.shore.outages import Trouble, judge, play
from shore.delta.commit import conform
from shore.tables.outlook import OUTLOOK, outlook
from shore.tables.readings import READINGS
from tests.integration.shore.hourly import in_spark, rows_of
from tests.support.shore.hours import Row, reading

pytestmark = [pytest.mark.integration, pytest.mark.spark]
OFF = {"is_powered": False, "is_connected_to_power_source": False}


def box(name: str, hours: float, cargo: Callable[[float], float | None], since: float, trouble: Row) -> list[Row]:
    """Return readings of ``since`` hours in order and ``hours`` of trouble; ``cargo`` takes the hour of trouble."""
    found = []
    for quarter in range(int((since + hours) * 4) + 1):
        hour = quarter / 4 - since
        values = {"ambient_temperature": 24.0, "cargo_probe1_temperature": cargo(hour) if hour >= 0 else 4.0}
        found.append(reading(name, quarter * 15) | values | (trouble if hour >= 0 else {}))
    return found


def newton(towards: float, per_hour: float) -> Callable[[float], float]:
    return lambda hour: towards - (towards - 4.0) * math.exp(-per_hour * max(hour, 0.0))


def test_what_it_says_of_single_boxes(spark: SparkSession) -> None:
    rows = [
        *box("WARMS", 6, newton(24.0, 0.01), 24, OFF),
        *box("FREEZES", 6, newton(-6.0, 0.02), 24, {"setpoint_temperature": -6.0}),
        *box("FAILS", 6, newton(24.0, 0.01), 24, {"supply_temperature": 8.0}),
        *box("SHORT", 1.5, newton(24.0, 0.01), 24, OFF),
        *box("STAYS", 6, lambda hour: 4.0, 24, OFF),
        *box("BLIND", 6, lambda hour: None, 24, OFF),
        *box("IS_OUT", 12, newton(24.0, 0.03), 24, OFF),
        *box("FALLS", 6, lambda hour: 5.9 - hour / 10, 24, {"supply_temperature": 1.0}),
        *box("RUNS", 6, newton(24.0, 0.01), 24, {}),
        *box("DRY", 6, newton(24.0, 0.01), 24, OFF | {"setpoint_temperature": None}),
    ]
    ahead = reading("WARMS", 60 * 24 * 365, received_date_time=rows[0]["device_date_time"])  # its clock runs ahead
    found = {row["equipment_reference"]: row for row in rows_of(outlook(in_spark(spark, [*rows, ahead])), "outlook")}
    assert {name: row["state"] for name, row in found.items()} == {
        "WARMS": "UNPLUGGED",
        "FREEZES": "WRONG_SETPOINT",
        "FAILS": "FAILING",
        "SHORT": "UNPLUGGED",
        "STAYS": "UNPLUGGED",
        "BLIND": "UNPLUGGED",
        "IS_OUT": "UNPLUGGED",
        "FALLS": "FAILING",
        "RUNS": "RUNNING",
        "DRY": None,
    }
    warms = found["WARMS"]
    assert warms["as_of_date_time"] - warms["since_date_time"] == dt.timedelta(hours=6)
    assert warms["readings"] == 21  # every quarter of an hour from the second hour on
    assert (warms["usual_setpoint"], warms["limit_temperature"]) == (4.0, 6.0)
    assert warms["temperature"] == pytest.approx(newton(24.0, 0.01)(6), abs=0.02)
    left = {name: row["minutes_left"] for name, row in found.items()}
    assert left["WARMS"] == left["FAILS"] == pytest.approx(60 * math.log(20 / 18) / 0.01 - 360, rel=0.03)
    assert left["FREEZES"] == pytest.approx(60 * math.log(10 / 8) / 0.02 - 360, rel=0.03)
    assert found["FREEZES"]["limit_temperature"] == 2.0
    assert left["IS_OUT"] == 0
    assert left["FALLS"] == pytest.approx(60 * (5.9 - 0.6 - 2.0) / 0.1, rel=0.05)
    assert {name for name, minutes in left.items() if minutes is None} == {"SHORT", "STAYS", "BLIND", "RUNS", "DRY"}
    for row in found.values():
        if row["minutes_left"]:
            assert row["minutes_left_low"] < row["minutes_left"] < row["minutes_left_high"]


@pytest.mark.long
@pytest.mark.parametrize("kind", get_args(Trouble))
def test_against_the_physics(spark: SparkSession, kind: Trouble) -> None:
    played = play(80, 5, kind, days=5)
    made = outlook(conform(spark.createDataFrame(played.readings(6)), READINGS))
    rows = [row for row in rows_of(made, OUTLOOK.name) if row["minutes_left"] is not None]
    times = {
        row["equipment_reference"]: (row["minutes_left"], row["minutes_left_low"], row["minutes_left_high"])
        for row in rows
    }
    judged = judge(times, played.left(6))
    assert judged.shown >= judged.boxes / 2 > 20, judged
    assert judged.median_error <= 0.2, judged
    assert judged.covered >= 0.6, judged
