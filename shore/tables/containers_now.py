"""Table ``containers_now``: the last known state of every container that anything is known of.

The reading that counts is the newest by the device's clock; a clock that is ahead of the moment of receipt counts as
that moment, so that a wrong clock cannot hold a box's state for ever. "Now" is the box's own: the newest time known of
it, by its reading or its custody.
"""

from __future__ import annotations

import pyarrow as pa

from shore.tables.model import TIME, Column, Table

_TEXT, _DOUBLE, _BOOL, _LONG = pa.string(), pa.float64(), pa.bool_(), pa.int64()

READING_COLUMNS = (
    Column("reading_date_time", TIME, "Device time of its newest reading, at most when that was received"),
    Column("device_date_time", TIME, "That reading's device time"),
    Column("received_date_time", TIME, "When a site's bridge received it"),
    Column("log", _TEXT, "Its log"),
    Column("log_offset", _LONG, "Its offset there"),
    Column("device_id", _TEXT, "DCSA RMO deviceID: the sensor"),
    Column("supply_temperature", _DOUBLE, "Air supplied to the cargo", "Cel"),
    Column("return_temperature", _DOUBLE, "Air returned from the cargo", "Cel"),
    Column("ambient_temperature", _DOUBLE, "Outside the box", "Cel"),
    Column("relative_humidity", _DOUBLE, "Relative humidity", "%"),
    Column("setpoint_temperature", _DOUBLE, "Temperature set point", "Cel"),
    Column("is_connected_to_power_source", _BOOL, "TIC 4.0 plugged"),
    Column("is_powered", _BOOL, "TIC 4.0 powered: plugged and switched on"),
    Column("immersed", _BOOL, "Water contact"),
    Column("door_open", _BOOL, "Door open"),
    Column("own_latitude", _DOUBLE, "WGS 84, as the reading has it", "deg"),
    Column("own_longitude", _DOUBLE, "WGS 84, as the reading has it", "deg"),
)

CONTAINERS_NOW = Table(
    name="containers_now",
    title="Last known state of every container",
    columns=(
        Column("equipment_reference", _TEXT, "ISO 6346 container number"),
        Column("owner_code", _TEXT, "Its ISO 6346 owner code with category"),
        Column("line", _TEXT, "Line of the box, by its owner code; null where the topology does not know the code"),
        Column("seen_date_time", TIME, "Newest time known of it: of its reading or its custody"),
        *READING_COLUMNS,
        Column("latitude", _DOUBLE, "WGS 84: its own, else that of the ship that holds it", "deg"),
        Column("longitude", _DOUBLE, "WGS 84: its own, else that of the ship that holds it", "deg"),
        Column("position_source", _TEXT, "OWN or SHIP; null without a position"),
        Column("position_date_time", TIME, "When it was there"),
        Column("holder", _TEXT, "Site that holds its log; null when it has left the system or nothing is known"),
        Column("holder_kind", _TEXT, "ship, port, hq"),
        Column("un_location_code", _TEXT, "UN/LOCODE of the holder; null aboard"),
        Column("vessel_imo_number", _TEXT, "Ship that holds it; null ashore"),
        Column("vessel", _TEXT, "Its name in the topology"),
        Column("held_since", TIME, "When the event happened that gave it to the holder, or took it out of the system"),
        Column("custody_event", _TEXT, "That event: GTIN, LOAD, DISC, GTOT, HAND, SEIZURE"),
        Column("open_alerts", _LONG, "Alerts that are open, raised on board or ashore"),
        Column("worst_severity", _TEXT, "Worst of them: CRITICAL, ALARM, WARNING; null without one"),
        Column("booking_reference", _TEXT, "Booking valid at seen_date_time; of several the one that began last"),
        Column("customer", _TEXT, "Its customer"),
    ),
    key=("equipment_reference",),
    grain="One row per container with a reading, an entry of custody, a booking or an alert.",
    late="A reading older than the stored one changes nothing. The rest of a box's row is made again from custody, "
    "alerts, bookings and positions whenever one of them changes.",
    layout="Not partitioned: one row a container, rewritten in whole.",
)
