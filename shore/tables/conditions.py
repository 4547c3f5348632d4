"""Table ``conditions``: what each container went through, hour by hour.

Grain: one row per container and hour of device time in which it has at least one readable reading. Key:
(``equipment_reference``, ``window_start``). Units: degrees Celsius, per cent, minutes, shares from 0 to 1.

Late data: there is no watermark. Whenever readings arrive, the hours they fall into are computed again from the table
``readings`` and merged, so telemetry that comes days late corrects its hour. A re-run gives the same rows. The table
therefore always equals ``WINDOWS`` over all of ``readings``, as of the last batch.

A temperature is out of band when the air that controls the reefer (supply air, or return air from a set point of
-10 Cel down) is more than 2 K from the set point; while defrosting the probes do not show the cargo, so those readings
do not count as out of band. A reading stands for the time until the next one of the same box, within its hour, at most
30 minutes. Repeats (same device, boot and sequence) count once.

``WINDOWS`` is plain SQL that Spark and DuckDB both run: the tests check it without a JVM.
"""

from __future__ import annotations

import pyarrow as pa

from shore.tables.model import TIME, Column, Table

WINDOWS = """
with hours as (
    select *, date_trunc('hour', device_date_time) as window_start
    from {readings}
    where device_date_time is not null
),
marked as (
    select *,
        case when setpoint_temperature <= -10.0 then return_temperature else supply_temperature end
            as control_temperature,
        unix_micros(window_start) + 3600000000 as window_stop,
        unix_micros(device_date_time) as at_micros,
        lead(unix_micros(device_date_time)) over box as next_micros,
        lead(device_id) over box as next_device,
        lead(boot_id) over box as next_boot,
        lead(sequence) over box as next_sequence
    from hours
    window box as (
        partition by equipment_reference, window_start
        order by device_date_time, device_id, boot_id, sequence, log, log_offset
    )
),
held as (
    select *,
        least(coalesce(next_micros, window_stop), window_stop, at_micros + 1800000000) - at_micros as held_micros,
        abs(control_temperature - setpoint_temperature) > 2.0 and not coalesce(is_defrosting, false) as out_of_band
    from marked
    where next_sequence is null or next_device <> device_id or next_boot <> boot_id or next_sequence <> sequence
)
select
    equipment_reference,
    window_start,
    window_start + interval 1 hour as window_end,
    count(*) as readings,
    min(supply_temperature) as supply_temperature_min,
    avg(supply_temperature) as supply_temperature_mean,
    max(supply_temperature) as supply_temperature_max,
    min(return_temperature) as return_temperature_min,
    avg(return_temperature) as return_temperature_mean,
    max(return_temperature) as return_temperature_max,
    avg(ambient_temperature) as ambient_temperature_mean,
    avg(relative_humidity) as relative_humidity_mean,
    min(setpoint_temperature) as setpoint_temperature_min,
    max(setpoint_temperature) as setpoint_temperature_max,
    count(*) filter (where out_of_band) as readings_out_of_band,
    coalesce(sum(held_micros) filter (where out_of_band), 0) / 6.0e7 as minutes_out_of_band,
    sum(held_micros) / 6.0e7 as minutes_observed,
    avg(case when is_powered then 1.0e0 else 0.0e0 end) as share_powered,
    avg(case when is_connected_to_power_source then 1.0e0 else 0.0e0 end) as share_plugged,
    max(device_date_time) as last_device_date_time
from held
group by equipment_reference, window_start
"""

_DOUBLE, _LONG = pa.float64(), pa.int64()

CONDITIONS = Table(
    name="conditions",
    title="Hourly conditions of each container",
    columns=(
        Column("equipment_reference", pa.string(), "ISO 6346 container number"),
        Column("window_start", TIME, "Begin of the hour of device time, inclusive"),
        Column("window_end", TIME, "End of the hour, exclusive"),
        Column("readings", _LONG, "Readings in the hour, repeats counted once"),
        Column("supply_temperature_min", _DOUBLE, "Lowest supply air", "Cel"),
        Column("supply_temperature_mean", _DOUBLE, "Mean supply air over the readings", "Cel"),
        Column("supply_temperature_max", _DOUBLE, "Highest supply air", "Cel"),
        Column("return_temperature_min", _DOUBLE, "Lowest return air", "Cel"),
        Column("return_temperature_mean", _DOUBLE, "Mean return air over the readings", "Cel"),
        Column("return_temperature_max", _DOUBLE, "Highest return air", "Cel"),
        Column("ambient_temperature_mean", _DOUBLE, "Mean outside temperature", "Cel"),
        Column("relative_humidity_mean", _DOUBLE, "Mean relative humidity", "%"),
        Column("setpoint_temperature_min", _DOUBLE, "Lowest set point in the hour", "Cel"),
        Column("setpoint_temperature_max", _DOUBLE, "Highest set point in the hour", "Cel"),
        Column("readings_out_of_band", _LONG, "Readings with the controlling air more than 2 K from the set point"),
        Column("minutes_out_of_band", _DOUBLE, "Time those readings stand for", "min"),
        Column("minutes_observed", _DOUBLE, "Time all readings of the hour stand for", "min"),
        Column("share_powered", _DOUBLE, "Share of readings with the unit powered, 0 to 1"),
        Column("share_plugged", _DOUBLE, "Share of readings with the unit plugged in, 0 to 1"),
        Column("last_device_date_time", TIME, "Device time of the last reading in the hour"),
    ),
    key=("equipment_reference", "window_start"),
    grain="One row per container and hour of device time with at least one readable reading.",
    late="No watermark: hours touched by new readings are computed again from readings and merged, however late.",
    layout="Not partitioned: some 24 short rows a container and day.",
)
