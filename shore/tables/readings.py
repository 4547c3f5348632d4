"""Tables ``readings`` and ``readings_rejected``: together every data record of every container's log.

Grain: each data record of a container log is one row in exactly one of the two: in ``readings`` when it can be parsed,
else unchanged in ``readings_rejected``. Markers and fillers have no rows, so rows and data records can be counted
against each other. Key: (``log``, ``log_offset``), the same at every site. A repeat that reached a log is a row too;
(``device_id``, ``boot_id``, ``sequence``) identifies it. Units: degrees Celsius, per cent, g; times in UTC. Late data:
a row is appended when its record is read, whatever its device time; nothing is dropped or updated. Exactly once: every
commit carries the query's id and the batch's number. Not partitioned: see ``layout``.
"""

from __future__ import annotations

import pyarrow as pa

from shore.tables.model import TIME, Column, Table

_TEXT, _LONG, _DOUBLE, _BOOL = pa.string(), pa.int64(), pa.float64(), pa.bool_()

RECORD_COLUMNS = (
    Column("log", _TEXT, "Log the record stands in: <stream>.<container number>"),
    Column("log_offset", _LONG, "Offset in the log, the same at every site"),
    Column("term", pa.int32(), "Custody term of the batch; null for records of foreign writers"),
)

_VALUES = (
    Column("device_id", _TEXT, "DCSA RMO deviceID: the sensor", path="device.deviceId"),
    Column("boot_id", _LONG, "How often the device had booted", path="device.bootId"),
    Column("sequence", _LONG, "Counts the device's readings since it booted", path="device.sequence"),
    Column("device_date_time", TIME, "When it was measured, by the device's clock", path="device.deviceDateTime"),
    Column("supply_temperature", _DOUBLE, "Air supplied to the cargo", "Cel", "measurements.supplyTemperature"),
    Column("return_temperature", _DOUBLE, "Air returned from the cargo", "Cel", "measurements.returnTemperature"),
    Column("ambient_temperature", _DOUBLE, "Outside the box", "Cel", "measurements.ambientTemperature"),
    Column("cargo_probe1_temperature", _DOUBLE, "Probe in the cargo", "Cel", "measurements.cargoProbe1Temperature"),
    Column("relative_humidity", _DOUBLE, "Relative humidity", "%", "measurements.relativeHumidity"),
    Column("o2", _DOUBLE, "Oxygen", "%", "measurements.o2"),
    Column("co2", _DOUBLE, "Carbon dioxide", "%", "measurements.co2"),
    Column("setpoint_temperature", _DOUBLE, "Temperature set point", "Cel", "setpoints.temperature"),
    Column("setpoint_relative_humidity", _DOUBLE, "Humidity set point", "%", "setpoints.relativeHumidity"),
    Column(
        "is_defrosting",
        _BOOL,
        "Evaporator defrosting: the probes do not show the cargo",
        path="reeferSettings.isDefrosting",
    ),
    Column(
        "is_pre_trip_inspection",
        _BOOL,
        "The unit is running its pre-trip inspection, whatever is inside",
        path="reeferSettings.isPreTripInspection",
    ),
    Column("is_connected_to_power_source", _BOOL, "TIC 4.0 plugged", path="isConnectedToPowerSource"),
    Column("is_powered", _BOOL, "TIC 4.0 powered: plugged and switched on", path="isPowered"),
    Column("latitude", _DOUBLE, "WGS 84", "deg", "geoLocation.latitude"),
    Column("longitude", _DOUBLE, "WGS 84", "deg", "geoLocation.longitude"),
    Column("tilt_degrees", _DOUBLE, "Tilt of the box", "deg", "motion.tiltDegrees"),
    Column("peak_g", _DOUBLE, "Largest acceleration since the last reading", "g", "motion.peakG"),
    Column("free_fall_seconds", _DOUBLE, "How long the box fell", "s", "motion.freeFallSeconds"),
    Column("immersed", _BOOL, "Water contact", path="motion.immersed"),
    Column("door_open", _BOOL, "Door open", path="motion.doorOpen"),
)

_ADDED = (
    Column("cargo_probe2_temperature", _DOUBLE, "Probe in the cargo", "Cel", "measurements.cargoProbe2Temperature"),
    Column("cargo_probe3_temperature", _DOUBLE, "Probe in the cargo", "Cel", "measurements.cargoProbe3Temperature"),
    Column("setpoint_o2", _DOUBLE, "Oxygen set point", "%", "setpoints.o2"),
    Column("setpoint_co2", _DOUBLE, "Carbon dioxide set point", "%", "setpoints.co2"),
    Column("inspection", _TEXT, "Newest inspections before a trip as published (RMO inspection[]), JSON"),
)
"""Columns that a later release added: they stand at the table's end."""

PAYLOAD_COLUMNS = tuple(column for column in (*_VALUES, *_ADDED) if column.path)

READINGS = Table(
    name="readings",
    title="Readings of all containers",
    columns=(
        *RECORD_COLUMNS,
        Column("equipment_reference", _TEXT, "ISO 6346 container number, from the log's name"),
        *_VALUES,
        Column("received_date_time", TIME, "When a site's bridge received it"),
        Column("late", _BOOL, "Appended after newer readings of the same device (a drained stray)"),
        Column("origin", _TEXT, "Where a copied record came from: <log>@<offset>"),
        Column("payload", pa.binary(), "The reading as published, JSON"),
        *_ADDED,
    ),
    key=("log", "log_offset"),
    grain="One row per data record of a container log; markers and fillers are no rows.",
    late="Appended when read, whatever its device time; never dropped, never updated.",
    layout="Clustered by container and device time: files hold what was read together until OPTIMIZE sorts them, so "
    "that a question about one container and one about one hour each open few.",
    cluster_by=("equipment_reference", "device_date_time"),
)

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

READINGS_REJECTED = Table(
    name="readings_rejected",
    title="Records of container logs that cannot be read",
    columns=(
        *RECORD_COLUMNS,
        Column("equipment_reference", _TEXT, "ISO 6346 container number, from the log's name"),
        Column("reason", _TEXT, "Why the record cannot be a row of readings"),
        Column("received_date_time", TIME, "When a site's bridge received it; null without its header"),
        Column("record_date_time", TIME, "Kafka's time of the record; for ours that of the device"),
        Column("origin", _TEXT, "Where a copied record came from: <log>@<offset>"),
        Column("headers", HEADERS, "The record's headers in their order, as they stand in the log"),
        Column("record_key", pa.binary(), "The record's key, as it stands in the log"),
        Column("payload", pa.binary(), "The record's value, as it stands in the log; null when it has none"),
    ),
    key=("log", "log_offset"),
    grain="One row per data record of a container log that cannot be read; those that can are in `readings`.",
    late="Appended when read; never dropped, never updated. What a newer version can read stays here.",
    layout="Not partitioned: there should be none.",
)
