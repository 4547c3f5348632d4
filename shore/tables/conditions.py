"""Table ``conditions``: climate and power of each container, hour by hour and over sliding windows of 24 hours.

Units: degrees Celsius, per cent, minutes, shares from 0 to 1. ``shore.tables.bands`` defines what is out of band and
how long a reading stands. ``shore.tables.hours`` alone computes hours, and longer windows are computed from the hours,
so both agree: sums are sums of the hours, means are means of the hours weighted by their readings.

One window of 24 hours ends with each hour in which the box reported, and one with each day of UTC on which it did.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from shore.tables.hours import hours
from shore.tables.model import TIME, Column, Table
from shore.tables.sliding import HOUR, windows

if TYPE_CHECKING:  # code that only reads tables needs no Spark
    from pyspark.sql import DataFrame

_DOUBLE, _LONG = pa.float64(), pa.int64()

CONDITIONS = Table(
    name="conditions",
    title="Conditions of each container, hour by hour and over 24 hours",
    columns=(
        Column("equipment_reference", pa.string(), "ISO 6346 container number"),
        Column("window_hours", pa.int32(), "Length of the window: 1 (hours follow each other) or 24 (sliding)", "h"),
        Column("window_start", TIME, "Begin of the window of device time, inclusive; a full hour"),
        Column("window_end", TIME, "End of the window, exclusive"),
        Column("readings", _LONG, "Readings in the window, repeats counted once"),
        Column("supply_temperature_min", _DOUBLE, "Lowest supply air", "Cel"),
        Column("supply_temperature_mean", _DOUBLE, "Mean supply air over the readings", "Cel"),
        Column("supply_temperature_max", _DOUBLE, "Highest supply air", "Cel"),
        Column("return_temperature_min", _DOUBLE, "Lowest return air", "Cel"),
        Column("return_temperature_mean", _DOUBLE, "Mean return air over the readings", "Cel"),
        Column("return_temperature_max", _DOUBLE, "Highest return air", "Cel"),
        Column("ambient_temperature_mean", _DOUBLE, "Mean outside temperature", "Cel"),
        Column("relative_humidity_min", _DOUBLE, "Lowest relative humidity", "%"),
        Column("relative_humidity_mean", _DOUBLE, "Mean relative humidity", "%"),
        Column("relative_humidity_max", _DOUBLE, "Highest relative humidity", "%"),
        Column("setpoint_temperature_min", _DOUBLE, "Lowest set point in the window", "Cel"),
        Column("setpoint_temperature_max", _DOUBLE, "Highest set point in the window", "Cel"),
        Column("setpoint_relative_humidity_min", _DOUBLE, "Lowest humidity set point in the window", "%"),
        Column("setpoint_relative_humidity_max", _DOUBLE, "Highest humidity set point in the window", "%"),
        Column("readings_out_of_band", _LONG, "Readings with the controlling air more than 2 K from the set point"),
        Column("minutes_out_of_band", _DOUBLE, "Time those readings stand for", "min"),
        Column(
            "minutes_out_of_humidity_band",
            _DOUBLE,
            "Time with the humidity more than 15 % from its set point; null where there was no such set point",
            "min",
        ),
        Column("minutes_without_power", _DOUBLE, "Time not plugged in or switched off", "min"),
        Column("minutes_door_open", _DOUBLE, "Time with the door open", "min"),
        Column("minutes_observed", _DOUBLE, "Time all readings stand for", "min"),
        Column("share_powered", _DOUBLE, "Share of readings with the unit powered, 0 to 1"),
        Column("share_plugged", _DOUBLE, "Share of readings with the unit plugged in, 0 to 1"),
        Column("last_device_date_time", TIME, "Device time of the last reading in the window"),
    ),
    key=("equipment_reference", "window_hours", "window_start"),
    grain="One row per container and window of device time: hours with a reading; 24 hours that end with such an hour, "
    "and days of UTC with one. Whoever adds up rows wants those with window_hours = 1.",
    late="No watermark: windows that new readings fall into are made again from readings, however late.",
    layout="Clustered by length of window, container and time.",
    cluster_by=("window_hours", "equipment_reference", "window_start"),
)

_MEANS = (
    "supply_temperature_mean",
    "return_temperature_mean",
    "ambient_temperature_mean",
    "relative_humidity_mean",
    "share_powered",
    "share_plugged",
)


def _of_hours(name: str, over: str) -> str:
    if name in _MEANS:
        weight = f"sum(case when {name} is not null then readings end) {over}"
        return f"sum({name} * readings) {over} / {weight}"
    if name.endswith("_min"):
        return f"min({name}) {over}"
    if name.endswith("_max") or name == "last_device_date_time":
        return f"max({name}) {over}"
    return f"sum({name}) {over}"


def aggregates_of_hours(over: str = "over frame") -> dict[str, str]:
    """Return the columns of a longer window as aggregates over its hours, each aggregate function followed by
    ``over``."""
    return {name: _of_hours(name, over) for name in _VALUES}


_VALUES: Final = tuple(CONDITIONS.plain_schema.names[4:])


def conditions(readings: DataFrame) -> DataFrame:
    """Compute all rows of the table from all of ``readings``."""
    units = hour_rows(hours(readings))
    return units.unionByName(day_rows(units))


def hour_rows(hours: DataFrame) -> DataFrame:
    """Return the rows of one hour, from the rows of ``shore.tables.hours``."""
    return hours.selectExpr(*("1 as window_hours" if c == "window_hours" else c for c in CONDITIONS.plain_schema.names))


def day_rows(units: DataFrame) -> DataFrame:
    """Return the rows of 24 hours, from those of one hour."""
    return windows(units, CONDITIONS, aggregates_of_hours(), unit=HOUR, count=24)
