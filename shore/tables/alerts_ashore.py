"""Table ``alerts_ashore``: what shore itself finds in the logs of containers (``shore.alerts`` has the rules).

Grain: one row per state of an alert. Key: (``alert_id``, ``revision``). Units: degrees Celsius, minutes; times in UTC.
Late data: a log's readings are judged in the order of the log; one that comes after a newer one of its device changes
nothing. Exactly once: Spark's Delta sink, bound to the checkpoint of job ``alerts``.

The rows follow from the logs alone, with one exception: a silence that is not over yet (or that turned out to be none)
was opened because time passed; ``compared`` says what of the table follows from the logs alone, ``comparable`` how such
a row must read where there is one.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from shore.alerts.machine import SILENCE, State, advance, told_by_time
from shore.alerts.rules import COLUMNS, AlertReading, reading_of
from shore.paths import TablePaths
from shore.tables.model import TIME, Column, Table
from shore.tables.readings import READINGS

_ROWS = 50_000  # at once
_TEXT, _LONG, _DOUBLE = pa.string(), pa.int64(), pa.float64()

ALERTS_ASHORE = Table(
    name="alerts_ashore",
    title="Alerts that shore finds in the logs of containers",
    columns=(
        Column("alert_id", _TEXT, "The same over all states of one alert: <kind>.<container>@<first_offset>"),
        Column("revision", pa.int32(), "Counts the states of one alert, from 0"),
        Column("kind", _TEXT, "What it is about: TEMPERATURE, POWER_LOST, HUMIDITY, SILENCE"),
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


def everything(paths: TablePaths) -> pa.Table:
    """The table as it follows from all of ``readings``, log by log in the order of their offsets, without Spark.

    Silences that only time passing tells are not in it: see ``compared``.
    """
    states: list[State] = []
    for log, readings in _readings(paths):
        states += advance(log, None, readings)[1]
    return table_of(states)


def table_of(states: Iterable[State]) -> pa.Table:
    """States as rows of this table, sorted by its key."""
    rows = pa.Table.from_pylist([state._asdict() for state in states], schema=ALERTS_ASHORE.plain_schema)
    return ALERTS_ASHORE.sorted(rows)


def compared(rows: pa.Table) -> pa.Table:
    """What of the table must be the same in ``everything``: all of it but what only time passing can tell.

    Left out are alerts SILENCE that are still open (no later reading has shown the gap yet), that turned out to be none
    (``delayed``, ``left``) or ended because the container was forgotten, and other ends for that reason. A log whose
    box was forgotten, and which then brought readings of the time before that, may differ: what was forgotten is not
    known.
    """
    proven = rows.filter(pc.and_(pc.equal(rows["kind"], SILENCE), pc.equal(rows["reason"], "gap")))["alert_id"]
    counts = pc.or_(pc.not_equal(rows["kind"], SILENCE), pc.is_in(rows["alert_id"], proven))
    kept = rows.filter(pc.and_(counts, pc.not_equal(rows["reason"], "forgotten")))
    return ALERTS_ASHORE.sorted(kept)


def comparable(paths: TablePaths, rows: pa.Table, expected: pa.Table) -> tuple[pa.Table, pa.Table]:
    """What of the table (``rows``) must be the same as what: ``compared`` of both, and of what only time passing tells
    the rows that are there, with how each must read. Rows of logs whose box was forgotten are left out of the latter.

    Args:
        expected: ``everything``.
    """
    must = compared(expected)
    known = set(_keys(must))
    follow = set(_keys(compared(rows))) | known
    forgotten = set(rows.filter(pc.equal(rows["reason"], "forgotten"))["log"].to_pylist())
    open_ = [
        row for key, row in zip(_keys(rows), rows.to_pylist(), strict=True)
        if key not in follow and row["log"] not in forgotten
    ]  # fmt: skip
    shown = pc.is_in(
        pc.binary_join_element_wise(rows["alert_id"], pc.cast(rows["revision"], pa.string()), "#"), _texts(follow)
    )
    there = rows.filter(shown)
    if open_:
        may = _told_by_time(paths, {row["log"] for row in open_})
        right = [_likest(row, may.get((row["alert_id"], row["revision"]), [])) for row in open_]
        there = pa.concat_tables([there, pa.Table.from_pylist(open_, schema=rows.schema)])
        must = pa.concat_tables([must, table_of(each for each in right if each is not None)])
    return ALERTS_ASHORE.sorted(there), ALERTS_ASHORE.sorted(must)


def _told_by_time(paths: TablePaths, logs: Collection[str]) -> dict[tuple[str, int], list[State]]:
    found: dict[tuple[str, int], list[State]] = {}
    for log, readings in _readings(paths, logs):
        for state in told_by_time(log, readings):
            found.setdefault((state.alert_id, state.revision), []).append(state)
    return found


def _likest(row: Mapping[str, Any], states: Sequence[State]) -> State | None:
    """Of how a silence may have gone on, what a row says it did."""
    return next((each for each in states if each.reason == row["reason"]), states[0] if states else None)


def _keys(rows: pa.Table) -> list[tuple[str, int]]:
    return list(zip(rows["alert_id"].to_pylist(), rows["revision"].to_pylist(), strict=True))


def _texts(keys: Iterable[tuple[str, int]]) -> pa.Array:
    return pa.array([f"{alert}#{revision}" for alert, revision in keys], pa.string())


def _readings(paths: TablePaths, logs: Collection[str] | None = None) -> Iterator[tuple[str, Iterator[AlertReading]]]:
    """The readings of all logs, or of these, each log's in the order of its offsets."""
    columns = ", ".join("epoch_us(device_date_time)" if name == "device_date_time" else name for name in COLUMNS)
    only = "" if logs is None else " and list_contains($logs, log)"
    query = (
        f"select log, {columns} from readings where device_date_time is not null{only} "  # noqa: S608  # our own names
        "order by log, log_offset"
    )
    with duckdb.connect(":memory:") as connection:
        connection.execute("set timezone = 'UTC'")
        connection.register("readings", DeltaTable(paths.table(READINGS.name)).to_pyarrow_dataset())
        rows = _rows(connection, query, {} if logs is None else {"logs": sorted(logs)})
        for log, group in itertools.groupby(rows, key=itemgetter(0)):
            yield log, (reading_of(row[1:]) for row in group)


def _rows(connection: duckdb.DuckDBPyConnection, query: str, values: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    for batch in connection.sql(query, params=dict(values)).to_arrow_reader(_ROWS):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
