"""Table ``alerts_ashore``: alerts that shore itself finds in the logs of containers (``shore.alerts`` has the rules).

Grain: one row per state of an alert. Key: (``alert_id``, ``revision``). Units: degrees Celsius, minutes; times in UTC.
Late data: a log's readings are judged in the order of the log; a reading that comes after a newer one of its device
changes nothing. Exactly once: Spark's Delta sink, bound to the checkpoint of job ``alerts``.

The rows follow from the logs alone, with one exception: the passing of time opens a silence that is not over yet, or
that turns out to be none. ``compared`` selects the rows that follow from the logs alone; ``comparable_rows`` also says
how a row of a silence must read where there is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from shore.alerts.machine import SILENCE, State, advance, told_by_time
from shore.alerts.rules import COLUMNS, AlertReading, reading_of
from shore.tables.model import TIME, Column, Table

if TYPE_CHECKING:  # code that only reads tables needs no Spark
    from pyspark.sql import DataFrame

_TEXT, _LONG, _DOUBLE = pa.string(), pa.int64(), pa.float64()

ALERTS_ASHORE = Table(
    name="alerts_ashore",
    title="Alerts that shore finds in the logs of containers",
    columns=(
        Column("alert_id", _TEXT, "The same over all states of one alert: <kind>.<container>@<first_offset>"),
        Column("revision", pa.int32(), "Counts the states of one alert, from 0"),
        Column("kind", _TEXT, "What it is about: TEMPERATURE, POWER_LOST, HUMIDITY, O2, CO2, SILENCE"),
        Column("severity", _TEXT, "DCSA RMO alarmSeverity: CRITICAL, ALARM, WARNING"),
        Column("state", _TEXT, "OPENED, UPDATED, CLEARED"),
        Column("equipment_reference", _TEXT, "ISO 6346 container number"),
        Column("log", _TEXT, "Log of the readings: <stream>.<container number>"),
        Column("first_offset", _LONG, "First reading of the condition; of a SILENCE: the last one before it"),
        Column("worst_offset", _LONG, "Worst reading of the condition so far"),
        Column("log_offset", _LONG, "Reading that caused this state; where time passing did: the last one before"),
        Column("term", pa.int32(), "Custody term of that reading"),
        Column("since_date_time", TIME, "Device time of the condition's first reading"),
        Column("event_date_time", TIME, "Device time of this state; a SILENCE opens when the next reading was due"),
        Column("lasted_minutes", _DOUBLE, "From since_date_time to event_date_time", "min"),
        Column("latitude", _DOUBLE, "WGS 84, of the reading at log_offset", "deg"),
        Column("longitude", _DOUBLE, "WGS 84, of the reading at log_offset", "deg"),
        Column(
            "reason",
            _TEXT,
            "Why this state: fault, worse, recovered; gap; delayed, left (no silence at all); forgotten",
        ),
        Column("detail", _TEXT, "What was seen, in words"),
        Column("condition_id", _TEXT, "Id that detection on board gives to an alert about the same condition"),
    ),
    key=("alert_id", "revision"),
    grain="One row per state of an alert (OPENED, UPDATED, CLEARED).",
    late="A log's readings are judged in the order of the log, however late they come; one that comes after a newer "
    "reading of its device changes nothing.",
    layout="Not partitioned: small.",
)


def alerts_ashore(readings: DataFrame) -> DataFrame:
    """Compute the table from ``readings``. One task judges each log in the order of its offsets.

    Silences that only the passing of time reveals are left out: see ``compared``.
    """
    return _judged(readings).groupBy("log").applyInArrow(_states_of, ALERTS_ASHORE.spark_schema)


def comparable(rows: DataFrame, readings: DataFrame) -> DataFrame:
    """Return the rows of the table that can be compared, and what they must be: ``comparable_rows`` of each log.

    Returns:
        The columns of the table, and ``stored``: true for a row of the table, false for an expected row.
    """
    both = rows.select(*ALERTS_ASHORE.plain_schema.names).groupBy("log").cogroup(_judged(readings).groupBy("log"))
    return both.applyInArrow(_comparable_of, ALERTS_ASHORE.spark_schema.add("stored", "boolean"))


def table_of(states: Iterable[State]) -> pa.Table:
    """Return states as rows of this table, sorted by its key."""
    rows = pa.Table.from_pylist([state._asdict() for state in states], schema=ALERTS_ASHORE.plain_schema)
    return ALERTS_ASHORE.sorted(rows)


def compared(rows: pa.Table) -> pa.Table:
    """Select the rows that must equal those of ``alerts_ashore``: all that do not depend on the passing of time alone.

    Left out are alerts SILENCE that are still open (no later reading has shown the gap yet), that turned out to be none
    (``delayed``, ``left``) or that ended because the container was forgotten, and other ends for that reason. A log may
    differ if its box was forgotten and then sent readings from before that time: what was forgotten is not known.
    """
    proven = rows.filter(pc.and_(pc.equal(rows["kind"], SILENCE), pc.equal(rows["reason"], "gap")))["alert_id"]
    counts = pc.or_(pc.not_equal(rows["kind"], SILENCE), pc.is_in(rows["alert_id"], proven))
    kept = rows.filter(pc.and_(counts, pc.not_equal(rows["reason"], "forgotten")))
    return ALERTS_ASHORE.sorted(kept)


def comparable_rows(log: str, rows: pa.Table, readings: Sequence[AlertReading]) -> tuple[pa.Table, pa.Table]:
    """Return the comparable rows of one log, and what they must be.

    These are ``compared`` of the stored rows and of what the log's readings give. Stored rows that only the passing of
    time explains are added, with how each must read; not so for a log whose box was forgotten.

    Args:
        readings: All readings of the log, in the order of their offsets.
    """
    must = compared(table_of(advance(log, None, readings)[1]))
    follow = {*_keys(compared(rows)), *_keys(must)}
    shown = [key in follow for key in _keys(rows)]
    there = rows.filter(pa.array(shown, pa.bool_()))
    rest = rows.filter(pa.array([not each for each in shown], pa.bool_()))
    if rest.num_rows and "forgotten" not in rows["reason"].to_pylist():
        may: dict[tuple[str, int], list[State]] = {}
        for state in told_by_time(log, readings):
            may.setdefault((state.alert_id, state.revision), []).append(state)
        right = [_likest(row, may.get((row["alert_id"], row["revision"]), [])) for row in rest.to_pylist()]
        there = pa.concat_tables([there, rest])
        must = pa.concat_tables([must, table_of(each for each in right if each is not None)])
    return ALERTS_ASHORE.sorted(there), ALERTS_ASHORE.sorted(must)


def _likest(row: Mapping[str, Any], states: Sequence[State]) -> State | None:
    """The possible continuation of a silence that has the row's reason, else the first."""
    return next((each for each in states if each.reason == row["reason"]), states[0] if states else None)


def _keys(rows: pa.Table) -> list[tuple[str, int]]:
    return list(zip(rows["alert_id"].to_pylist(), rows["revision"].to_pylist(), strict=True))


def _judged(readings: DataFrame) -> DataFrame:
    """The columns of ``readings`` that the rules use, and the log."""
    from pyspark.sql import functions as F

    times = {"device_date_time": F.unix_micros("device_date_time").alias("device_date_time")}
    return readings.where("device_date_time is not null").select("log", *(times.get(c, F.col(c)) for c in COLUMNS))


def _readings_of(rows: pa.Table) -> list[AlertReading]:
    """Rows of ``_judged`` of one log in the order of their offsets."""
    columns = [rows.sort_by("log_offset")[name].to_pylist() for name in COLUMNS]
    return [reading_of(values) for values in zip(*columns, strict=True)]


def _states_of(key: tuple[pa.Scalar, ...], rows: pa.Table) -> pa.Table:
    return table_of(advance(key[0].as_py(), None, _readings_of(rows))[1])


def _comparable_of(key: tuple[pa.Scalar, ...], rows: pa.Table, readings: pa.Table) -> pa.Table:
    log = key[0].as_py()
    stored = rows.cast(ALERTS_ASHORE.plain_schema) if rows.num_rows else ALERTS_ASHORE.plain_schema.empty_table()
    there, must = comparable_rows(log, stored, _readings_of(readings) if readings.num_rows else [])
    marked = [
        table.append_column("stored", pa.array([flag] * table.num_rows, pa.bool_()))
        for table, flag in ((there, True), (must, False))
    ]
    return pa.concat_tables(marked)
