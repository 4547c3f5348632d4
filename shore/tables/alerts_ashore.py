"""Table ``alerts_ashore``: what shore itself finds in the logs of containers (``shore.alerts`` has the rules).

Grain: one row per state of an alert. Key: (``alert_id``, ``revision``). Units: degrees Celsius, minutes; times in UTC.
Late data: a log's readings are judged in the order of the log; one that comes after a newer one of its device changes
nothing. Exactly once: Spark's Delta sink, bound to the checkpoint of job ``alerts``.

The rows follow from the logs alone, with one exception: a silence that is not over yet (or that turned out to be none)
was opened because time passed; ``shore.alerts.compare`` says how the table is compared with its logs.
"""

from __future__ import annotations

import pyarrow as pa

from shore.tables.model import TIME, Column, Table

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
        Column("reason", _TEXT, "Why this state: fault, worse, recovered; gap, delayed (no silence at all), forgotten"),
        Column("detail", _TEXT, "What was seen, in words"),
        Column("condition_id", _TEXT, "Id that detection on board gives to an alert about the same condition"),
    ),
    key=("alert_id", "revision"),
    grain="One row per state of an alert (OPENED, UPDATED, CLEARED).",
    late="A log's readings are judged in the order of the log, however late they come; one that comes after a newer "
    "reading of its device changes nothing.",
    layout="Not partitioned: small.",
)
