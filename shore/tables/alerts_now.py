"""Table ``alerts_now``: one row an alert, raised by a site (``alerts``) or by shore (``alerts_ashore``).

Grain: one row per alert. Key: (``source``, ``alert_id``). Late data: all alerts of a box are made again, as a whole,
when a row comes that touches it, from ``alerts``, ``alerts_ashore``, ``custody_entries``, ``events`` and
``booking_changes``. Doing it twice changes nothing.
"""

from __future__ import annotations

import pyarrow as pa

from shore.tables.model import TIME, Column, Table

_TEXT, _LONG, _DOUBLE = pa.string(), pa.int64(), pa.float64()

ALERTS_NOW = Table(
    name="alerts_now",
    title="Every alert as it stands now",
    columns=(
        Column("source", _TEXT, "site: raised by a site's bridge (table alerts); shore: by alerts_ashore"),
        Column("alert_id", _TEXT, "Id of the alert in that table"),
        Column("kind", _TEXT, "What it is about: OVERBOARD, POWER_LOST, TEMPERATURE, SILENCE, ... (docs/edge.md)"),
        Column("state", _TEXT, "Newest state: OPENED, UPDATED; CLEARED when it is over"),
        Column("severity", _TEXT, "Newest severity: CRITICAL, ALARM, WARNING"),
        Column("highest_severity", _TEXT, "Highest severity that it ever had"),
        Column("equipment_reference", _TEXT, "ISO 6346 container number; empty: all of a ship"),
        Column("opened_date_time", TIME, "Device time of its first state"),
        Column("updated_date_time", TIME, "Device time of its newest state"),
        Column("cleared_date_time", TIME, "Device time of its end; null while it is open"),
        Column("minutes_open", _DOUBLE, "From opened to cleared; null while it is open", "min"),
        Column("revisions", _LONG, "States so far, repeats counted once"),
        Column("raised_at", _TEXT, "Site that raised it; null where shore did"),
        Column("raised_date_time", TIME, "When the site wrote its first state; null where shore raised it"),
        Column("log", _TEXT, "Log of the container that custody was looked up in; null without one"),
        Column("holder", _TEXT, "Site that held the container's log when the alert opened (table custody)"),
        Column("vessel_imo_number", _TEXT, "Ship it happened on; null ashore"),
        Column("booking_reference", _TEXT, "Booking of the container at that time"),
        Column("customer", _TEXT, "Customer of that booking"),
        Column("latitude", _DOUBLE, "WGS 84, when it opened", "deg"),
        Column("longitude", _DOUBLE, "WGS 84, when it opened", "deg"),
        Column("detail", _TEXT, "What was seen, as its newest state says"),
        Column("condition_id", _TEXT, "The same for alerts of both sources about one condition"),
    ),
    key=("source", "alert_id"),
    grain="One row per alert.",
    late="All alerts of a container are made again when a row about it comes, whatever its time.",
    layout="Not partitioned: small.",
)
