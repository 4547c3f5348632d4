"""Table ``mkt``: mean kinetic temperature of each container, hour by hour, over 24 hours and over 30 days.

The mean kinetic temperature is the one constant temperature that would have done a product as much harm as the
temperatures it had (Haynes; USP <1160>, <1079.2>):

    T_mk = (dH/R) / -ln( sum(w_i exp(-(dH/R) / T_i)) / sum(w_i) )        T in kelvin, 0 Cel = 273.15 K

with R = 8.3144e-3 kJ/(K mol), the activation energy dH (83.144 kJ/mol unless the topology says otherwise, so dH/R =
10,000 K), and as weight w_i the time that reading i stands for, since readings are not evenly spaced. USP <1079.2>
judges products for 2 to 8 Cel by windows of 24 hours and those for 20 to 25 Cel by windows of 30 days, never by a whole
voyage; a mean kinetic temperature does not replace the longest and the worst excursion (table ``excursions``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from shore.tables.hours import GAS_CONSTANT, hours
from shore.tables.model import TIME, Column, Table
from shore.tables.sliding import DAY, HOUR, windows

if TYPE_CHECKING:  # code that only reads tables needs no Spark
    from pyspark.sql import DataFrame

_DOUBLE, _LONG = pa.float64(), pa.int64()


def _probe(prefix: str, what: str) -> tuple[Column, ...]:
    return (
        Column(f"{prefix}_readings", _LONG, f"Readings with {what}, repeats counted once"),
        Column(f"{prefix}_minutes_observed", _DOUBLE, "Time those readings stand for", "min"),
        Column(f"{prefix}_temperature_min", _DOUBLE, "Lowest of them; null where there is none", "Cel"),
        Column(f"{prefix}_temperature_mean", _DOUBLE, "Mean over time", "Cel"),
        Column(f"{prefix}_temperature_max", _DOUBLE, "Highest of them", "Cel"),
        Column(f"{prefix}_mean_kinetic_temperature", _DOUBLE, "Mean kinetic temperature", "Cel"),
    )


MKT = Table(
    name="mkt",
    title="Mean kinetic temperature of each container",
    columns=(
        Column("equipment_reference", pa.string(), "ISO 6346 container number"),
        Column("window_hours", pa.int32(), "Length of the window: 1, 24 or 720 (30 days)", "h"),
        Column("window_start", TIME, "Begin of the window of device time, inclusive"),
        Column("window_end", TIME, "End of the window, exclusive"),
        Column("whole_day", pa.bool_(), "A window of 24 hours that is a day of UTC"),
        Column("activation_energy", _DOUBLE, "Activation energy it was computed with", "kJ/mol"),
        *_probe("air", "the air that controls the unit, not while it defrosts or is inspected before a trip"),
        *_probe("cargo", "the probe in the cargo"),
    ),
    key=("equipment_reference", "window_hours", "window_start"),
    grain="One row per container and window: hours with a reading; 24 hours that end with such an hour, and days of "
    "UTC with one; 30 days that end with such a day.",
    late="No watermark: windows that new readings fall into are made again, however late.",
    layout="Clustered by length of window, container and time.",
    cluster_by=("window_hours", "equipment_reference", "window_start"),
)


def _of_units(prefix: str, over: str) -> dict[str, str]:
    minutes = f"{prefix}_minutes_observed"
    mean, kinetic = f"{prefix}_temperature_mean", f"{prefix}_mean_kinetic_temperature"
    kelvin = f"(activation_energy / {GAS_CONSTANT})"
    # An hour's mean kinetic temperature gives back the mean of its exponentials. Weighted by minutes these add up to
    # those of the readings.
    harm = f"sum({minutes} * exp(-{kelvin} / ({kinetic} + 273.15))) {over}"
    # A unit that was observed for no time has no mean and no weight.
    time = f"nullif(sum(case when {kinetic} is not null then {minutes} end) {over}, 0)"
    return {
        f"{prefix}_readings": f"sum({prefix}_readings) {over}",
        minutes: f"sum({minutes}) {over}",
        f"{prefix}_temperature_min": f"min({prefix}_temperature_min) {over}",
        mean: f"sum({minutes} * {mean}) {over} / {time}",
        f"{prefix}_temperature_max": f"max({prefix}_temperature_max) {over}",
        kinetic: f"max({kelvin}) {over} / -ln({harm} / {time}) - 273.15",
    }


def aggregates_of_units(over: str = "over frame") -> dict[str, str]:
    """Return the columns of a longer window as aggregates over its hours or days, each aggregate function followed by
    ``over``."""
    energy = {"activation_energy": f"max(activation_energy) {over}"}
    return energy | _of_units("air", over) | _of_units("cargo", over)


def mkt(readings: DataFrame, activation_energy: float) -> DataFrame:
    """Compute all rows of the table from all of ``readings``. The activation energy is in kJ/mol."""
    units = hour_rows(hours(readings, activation_energy), activation_energy)
    days = day_rows(units)
    return units.unionByName(days).unionByName(month_rows(days.where("whole_day")))


def hour_rows(hours: DataFrame, activation_energy: float) -> DataFrame:
    """Return the rows of one hour, from rows that ``shore.tables.hours`` makes with this activation energy (kJ/mol)."""
    fixed = {"window_hours": "1", "whole_day": "false", "activation_energy": f"cast({activation_energy!r} as double)"}
    return hours.selectExpr(*(f"{fixed[c]} as {c}" if c in fixed else c for c in MKT.plain_schema.names))


def day_rows(units: DataFrame) -> DataFrame:
    """Return the rows of 24 hours, from those of one hour."""
    whole = "date_trunc('day', window_end) = window_end"
    return windows(units, MKT, aggregates_of_units(), unit=HOUR, count=24, whole_day=whole)


def month_rows(days: DataFrame) -> DataFrame:
    """Return the rows of 30 days, from those of whole days."""
    return windows(days, MKT, aggregates_of_units(), unit=DAY, count=30, whole_day="false")
