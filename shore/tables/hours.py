"""Aggregate a box's readings by hour: the one pass over ``readings`` for ``conditions`` and ``mkt``.

``hours`` returns a row per container and hour with at least one reading of its own. It has the columns of both tables,
and a count that shows ``excursions`` where to look. A reading counts in the hour it was measured in. The time it stands
for is split among the hours it falls into, so no minute is lost where hours meet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shore.tables.bands import (
    CONTROL,
    DISTURBED,
    FOLLOWED,
    HOLD,
    HUMIDITY_JUDGED,
    HUMIDITY_OUT,
    IN_TIME,
    MICROS,
    NO_REPEAT,
    ORDER,
    POWER_OUT,
    TEMPERATURE_OUT,
    UNPOWERED,
    USED,
)

if TYPE_CHECKING:  # code that only reads tables needs no Spark
    from pyspark.sql import DataFrame

GAS_CONSTANT: Final = 8.3144e-3  # kJ/(K mol), as USP <1160> rounds it
ACTIVATION_ENERGY: Final = 83.144  # kJ/mol, USP's value where the product's own is unknown

_COLUMNS = ", ".join(USED)

_PLACED = f"""
    select {_COLUMNS},
        carried = 0 as own,
        case when carried = 0 then date_trunc('hour', device_date_time)
            else date_trunc('hour', device_date_time) + interval 1 hour end as window_start
    from {{readings}} cross join (select 0 as carried union all select 1 as carried) as hours
    where {IN_TIME} and (carried = 0 or minute(device_date_time) >= 30)"""  # noqa: S608

_TOUCHED = f"select distinct equipment_reference, window_start from ({_PLACED}) as placed"  # noqa: S608


def hours(readings: DataFrame, activation_energy: float = ACTIVATION_ENERGY) -> DataFrame:
    """Aggregate the hours of boxes that have a reading of their own.

    Args:
        readings: At least the columns ``bands.USED``. An hour is correct if they hold what was measured in it and in
            the 30 minutes before.
        activation_energy: kJ/mol.

    Returns:
        equipment_reference, window_start, window_end, the columns of tables ``conditions`` and ``mkt`` for a window of
        an hour, and ``readings_out``: how many readings are out of any band.
    """
    return readings.sparkSession.sql(hours_sql(activation_energy, touched=False), readings=readings)


def hours_of(touched: DataFrame, readings: DataFrame, activation_energy: float = ACTIVATION_ENERGY) -> DataFrame:
    """Aggregate only some hours, as ``touched_hours`` names them."""
    statement = hours_sql(activation_energy, touched=True)
    return readings.sparkSession.sql(statement, readings=readings, touched=touched)


def touched_hours(readings: DataFrame) -> DataFrame:
    """Return the hours (equipment_reference, window_start) that the readings count in or may extend into."""
    return readings.sparkSession.sql(_TOUCHED, readings=readings)


def _time(condition: str) -> str:
    return f"coalesce(sum(held_micros) filter (where {condition}), 0) / 6.0e7"


def _probe(prefix: str, value: str, kelvin: str) -> str:
    """Columns of one probe. A value that no container can have is ignored (it would make the exponential vanish)."""
    there = f"{value} between -100.0 and 150.0" + (f" and not {DISTURBED}" if prefix == "air" else "")
    part = f"filter (where {there} and (own or held_micros > 0))"
    time = f"nullif(sum(held_micros) {part}, 0)"
    return f"""
    count(*) filter (where own and {there}) as {prefix}_readings,
    {_time(there)} as {prefix}_minutes_observed,
    min({value}) {part} as {prefix}_temperature_min,
    sum(held_micros * {value}) {part} / {time} as {prefix}_temperature_mean,
    max({value}) {part} as {prefix}_temperature_max,
    {kelvin} / -ln(sum(held_micros * exp(-{kelvin} / ({value} + 273.15))) {part} / {time}) - 273.15
        as {prefix}_mean_kinetic_temperature"""


def hours_sql(activation_energy: float, *, touched: bool) -> str:
    """Return the statement over ``{readings}``, for Spark and DuckDB: of all hours, or of those in ``{touched}``."""
    kelvin = f"{activation_energy / GAS_CONSTANT:.17e}"
    chosen = "where (equipment_reference, window_start) in (select equipment_reference, window_start from {touched})"
    return f"""
with placed as ({_PLACED}
),
marked as (
    select *,
        {CONTROL} as control_temperature,
        {MICROS}(device_date_time) as at_micros,
        {MICROS}(window_start) as begin_micros,{FOLLOWED}
    from placed
    {chosen if touched else ""}
    window box as (partition by equipment_reference, window_start order by {ORDER})
),
held as (
    select *,
        greatest(
            least(coalesce(next_micros, begin_micros + 3600000000), begin_micros + 3600000000, at_micros + {HOLD})
                - greatest(at_micros, begin_micros),
            0) as held_micros,
        {TEMPERATURE_OUT} as temperature_out,
        {HUMIDITY_OUT} as humidity_out,
        {POWER_OUT} as power_out,
        {HUMIDITY_JUDGED} as humidity_judged,
        {UNPOWERED} as unpowered
    from marked
    where {NO_REPEAT}
)
select
    equipment_reference,
    window_start,
    window_start + interval 1 hour as window_end,
    count(*) filter (where own) as readings,
    min(supply_temperature) filter (where own) as supply_temperature_min,
    avg(supply_temperature) filter (where own) as supply_temperature_mean,
    max(supply_temperature) filter (where own) as supply_temperature_max,
    min(return_temperature) filter (where own) as return_temperature_min,
    avg(return_temperature) filter (where own) as return_temperature_mean,
    max(return_temperature) filter (where own) as return_temperature_max,
    avg(ambient_temperature) filter (where own) as ambient_temperature_mean,
    min(relative_humidity) filter (where own) as relative_humidity_min,
    avg(relative_humidity) filter (where own) as relative_humidity_mean,
    max(relative_humidity) filter (where own) as relative_humidity_max,
    min(setpoint_temperature) filter (where own) as setpoint_temperature_min,
    max(setpoint_temperature) filter (where own) as setpoint_temperature_max,
    min(setpoint_relative_humidity) filter (where own) as setpoint_relative_humidity_min,
    max(setpoint_relative_humidity) filter (where own) as setpoint_relative_humidity_max,
    count(*) filter (where own and temperature_out) as readings_out_of_band,
    {_time("temperature_out")} as minutes_out_of_band,
    case when max(setpoint_relative_humidity) is null then null else {_time("humidity_out")} end
        as minutes_out_of_humidity_band,
    {_time("unpowered")} as minutes_without_power,
    {_time("door_open")} as minutes_door_open,
    sum(held_micros) / 6.0e7 as minutes_observed,
    avg(case when is_powered then 1.0e0 else 0.0e0 end) filter (where own) as share_powered,
    avg(case when is_connected_to_power_source then 1.0e0 else 0.0e0 end) filter (where own) as share_plugged,
    max(device_date_time) as last_device_date_time,
    {_probe("air", "control_temperature", kelvin)},
    {_probe("cargo", "cargo_probe1_temperature", kelvin)},
    count(*) filter (where own and (temperature_out or humidity_out or power_out)) as readings_out
from held
group by equipment_reference, window_start
having count(*) filter (where own) > 0
"""  # noqa: S608  # the tables' own names
