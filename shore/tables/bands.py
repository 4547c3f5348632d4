"""What is out of band, as SQL that Spark and DuckDB both run: pieces for ``conditions``, ``excursions`` and ``mkt``.

The rules are those of the alerts (docs/alerts.md), so tables and alerts agree:

- Temperature: the controlling air is more than 2 K from the set point. That is supply air, or return air at a set point
  of -10 Cel or below (Carrier T-363). Not judged while the unit defrosts or is inspected before a trip, nor for 30
  minutes after: the probes then do not show the cargo.
- Humidity: more than 15 % from its set point, where the unit has one, is powered, and does not defrost just now.
- Power: not plugged in or switched off, for a unit that has a set point (a box that cools nothing needs no power) and
  is not being inspected.

A reading stands for the time until the next one of the same box, at most 30 minutes. Repeats (the same device, boot,
sequence and time) count once: the one at the highest offset. Readings with a device time before 2000 or after 2099 are
in no window: their clock is wrong.

A limit counts as passed only by more than a millionth: 4.4 is not more than 2 K from 2.4, despite binary fractions.
"""

from __future__ import annotations

from typing import Final

from shore.alerts.rules import AFTER_DEFROST_MS, FROZEN_SETPOINT, HUMIDITY_TOLERANCE, TEMPERATURE_TOLERANCE

BAND_KELVIN: Final = TEMPERATURE_TOLERANCE
BAND_HUMIDITY: Final = HUMIDITY_TOLERANCE
HOLD_MINUTES: Final = 30
_EPSILON: Final = 1e-6

USED: Final = (
    "equipment_reference",
    "device_id",
    "boot_id",
    "sequence",
    "log",
    "log_offset",
    "device_date_time",
    "supply_temperature",
    "return_temperature",
    "ambient_temperature",
    "cargo_probe1_temperature",
    "relative_humidity",
    "setpoint_temperature",
    "setpoint_relative_humidity",
    "is_defrosting",
    "is_pre_trip_inspection",
    "is_connected_to_power_source",
    "is_powered",
    "latitude",
    "longitude",
    "door_open",
)
"""The columns of ``readings`` that the three tables are made from."""

MICROS: Final = "unix_micros"
MICROS_IN_DUCKDB: Final = "create or replace macro unix_micros(t) as epoch_us(t)"
"""Makes Spark's name known to a DuckDB database, for SQL that both run."""
HOLD: Final = f"{HOLD_MINUTES * 60_000_000}"

IN_TIME: Final = """device_date_time >= timestamp '2000-01-01 00:00:00+00:00'
        and device_date_time < timestamp '2100-01-01 00:00:00+00:00'"""

ORDER: Final = "device_date_time, device_id, boot_id, sequence, log, log_offset"
"""The order of a box's readings, without ties. Repeats are neighbours."""

FOLLOWED: Final = f"""
        lead({MICROS}(device_date_time)) over box as next_micros,
        lead(device_id) over box as next_device,
        lead(boot_id) over box as next_boot,
        lead(sequence) over box as next_sequence,
        max(case when is_defrosting or is_pre_trip_inspection then {MICROS}(device_date_time) end) over box
            as disturbed_micros"""
"""Columns over a window ``box`` in ``ORDER``: the next reading, and the last time so far of disturbed probes."""

NO_REPEAT: Final = """(next_sequence is null or next_device <> device_id or next_boot <> boot_id
        or next_sequence <> sequence or next_micros <> at_micros)"""

CONTROL: Final = (
    f"case when setpoint_temperature <= {FROZEN_SETPOINT} then return_temperature else supply_temperature end"
)
DISTURBED: Final = "coalesce(is_defrosting or is_pre_trip_inspection, false)"
SETTLED: Final = f"(disturbed_micros is null or at_micros - disturbed_micros > {AFTER_DEFROST_MS * 1000})"

TEMPERATURE_JUDGED: Final = f"({CONTROL} is not null and setpoint_temperature is not null and {SETTLED})"
TEMPERATURE_OUT: Final = f"""coalesce(
            abs({CONTROL} - setpoint_temperature) > {BAND_KELVIN + _EPSILON} and {SETTLED}, false)"""
HUMIDITY_JUDGED: Final = f"""(relative_humidity is not null and setpoint_relative_humidity is not null
            and coalesce(is_powered, true) and not {DISTURBED})"""
HUMIDITY_OUT: Final = f"""coalesce(
            {HUMIDITY_JUDGED} and abs(relative_humidity - setpoint_relative_humidity) > {BAND_HUMIDITY + _EPSILON},
            false)"""
UNPOWERED: Final = "not coalesce(is_powered and is_connected_to_power_source, true)"
POWER_JUDGED: Final = "(setpoint_temperature is not null and not coalesce(is_pre_trip_inspection, false))"
POWER_OUT: Final = f"({POWER_JUDGED} and {UNPOWERED})"
