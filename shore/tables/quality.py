"""Table ``quality``: how well each device reports, day by day of its own clock."""

from __future__ import annotations

import pyarrow as pa

from shore.tables.model import TIME, Column, Table

_TEXT, _LONG = pa.string(), pa.int64()

QUALITY = Table(
    name="quality",
    title="How well each device reports, by day",
    columns=(
        Column("equipment_reference", _TEXT, "ISO 6346 container number"),
        Column("device_id", _TEXT, "DCSA RMO deviceID; empty in the row of the records that could not be read"),
        Column("day", TIME, "Begin of the day (UTC) by the device's clock; of rejected records, by receipt"),
        Column("readings", _LONG, "Readings, repeats counted once"),
        Column("repeats", _LONG, "Records that repeat one of them: same device, boot and sequence"),
        Column("missing", _LONG, "Numbers between a boot's lowest and highest of the day that no reading has"),
        Column("gaps", _LONG, "How many runs of missing numbers there are"),
        Column("late", _LONG, "Readings appended after newer ones of the device (drained strays)"),
        Column("out_of_order", _LONG, "Readings in the log after one of the same boot and day with a higher number"),
        Column("boots", _LONG, "Boots with readings in the day; each but the first is a reboot"),
        Column("clock_ahead", _LONG, "Readings with a device time after their receipt"),
        Column("delayed", _LONG, "Readings received more than a day after their device time"),
        Column("rejected", _LONG, "Records that could not be read"),
        Column("rejected_by_reason", _TEXT, "How many for which reason, JSON; null without any"),
        Column("first_boot_id", _LONG, "Boot of the day's first reading"),
        Column("first_sequence", _LONG, "Its sequence number"),
        Column("first_date_time", TIME, "Its device time"),
        Column("last_boot_id", _LONG, "Boot of the day's last reading"),
        Column("last_sequence", _LONG, "Its sequence number"),
        Column("last_date_time", TIME, "Its device time"),
    ),
    key=("equipment_reference", "device_id", "day"),
    grain="One row per device and day with a reading of it, and one per container and day with rejected records.",
    late="Days that new records fall into are made again from readings and readings_rejected, however late.",
    layout="Not partitioned: a short row a device and day.",
)
