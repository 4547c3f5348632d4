"""Table ``outlook``: how long the cargo of a box that is not kept cool stays in its band, if nothing is done.

One row per box, as of its newest reading. The cargo's band is ``BAND_KELVIN`` around the box's usual set point: the one
that most of its readings of the last three days have. A box is

- ``UNPLUGGED``: not plugged in or switched off;
- ``WRONG_SETPOINT``: its set point is more than ``BAND_KELVIN`` from the usual one;
- ``FAILING``: powered, and the controlling air is out of band; readings within half an hour after a defrost do not
  count;
- ``RUNNING``: none of these. A box whose newest reading has no set point has no state.

Cargo follows Newton's law of cooling: it moves towards a temperature (the mean ambient temperature of the last 24
hours, or the wrong set point) in proportion to its distance from it. The factor is fitted to the box's own cargo probe
since the state began, without the first hour, in which the air changes faster than the cargo:

    slope = k (T_towards - T_cargo)        minutes = 60 / k ln( (T_towards - T_now) / (T_towards - T_limit) )

``slope`` is that of a straight line through the readings. The slope is assumed constant where the cargo moves away from
that temperature (fruit that breathes warms by itself) or is close to it.

There are no minutes without enough data: ``LEAST_READINGS`` over an hour, whose slope is ``SIGNIFICANCE`` times its
standard error. The spread combines that error and what the law leaves out (sun, day and night, breathing).
``benchmarks/shore/outlook.py`` tests all of it against the simulator's physics.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from shore.alerts.rules import CLOCK_AHEAD_MS
from shore.tables.bands import (
    BAND_KELVIN,
    CONTROL,
    FOLLOWED,
    IN_TIME,
    MICROS,
    NO_REPEAT,
    ORDER,
    SETTLED,
    TEMPERATURE_OUT,
    UNPOWERED,
    USED,
)
from shore.tables.model import TIME, Column, Table

if TYPE_CHECKING:  # code that only reads tables needs no Spark
    from pyspark.sql import DataFrame

LOOKBACK: Final = dt.timedelta(hours=72)  # before a box's newest reading; older ones do not count
LEAST_READINGS: Final = 5
SIGNIFICANCE: Final = 4.0
_SETTLING: Final = 1.0  # hours until the air has settled at its new temperature
_FITTED: Final = 24.0  # hours
_NEAR: Final = 3.0  # K; closer to T_towards the law says nothing about the slope
_NOISE: Final = 0.03  # K, the least noise of a probe: fewer than a dozen readings may lie on a line by chance
_LAW: Final = 0.3  # relative error of the minutes from what the law leaves out, in nine of ten boxes
_Z: Final = 1.645  # standard errors on each side, in nine of ten
_LONGEST: Final = 14.0 * 24 * 60  # minutes; a longer prediction means nothing

USED_BY_OUTLOOK: Final = (*USED, "received_date_time")
"""The columns of ``readings`` that the table is made from."""

OUTLOOK = Table(
    name="outlook",
    title="How long the cargo of each reefer stays in its band",
    columns=(
        Column("equipment_reference", pa.string(), "ISO 6346 container number"),
        Column("as_of_date_time", TIME, "Device time of its newest reading"),
        Column("state", pa.string(), "UNPLUGGED, WRONG_SETPOINT, FAILING or RUNNING; null without a set point"),
        Column("since_date_time", TIME, "Device time of the first reading of that state, of the last 72 hours"),
        Column("usual_setpoint", pa.float64(), "Set point of most readings of the last 72 hours", "Cel"),
        Column("temperature", pa.float64(), "Cargo now, by the line through the readings; null without one", "Cel"),
        Column("limit_temperature", pa.float64(), "End of the band that the cargo moves towards", "Cel"),
        Column("minutes_left", pa.float64(), "Time until it is there, 0 if it was; null: stays or not known", "min"),
        Column("minutes_left_low", pa.float64(), "Nine of ten boxes have at least about this time", "min"),
        Column("minutes_left_high", pa.float64(), "Nine of ten boxes have at most about this time", "min"),
        Column("readings", pa.int64(), "Readings of the cargo probe that the line goes through"),
    ),
    key=("equipment_reference",),
    grain="One row per container. Times only where the state is not RUNNING, and with enough readings.",
    late="Made again with every reading of the 72 hours before the box's newest one, however late it comes.",
    layout="Not clustered: one row per container.",
)

CREDIBLE: Final = f"""{IN_TIME}
        and coalesce(device_date_time <= received_date_time + interval {CLOCK_AHEAD_MS // 60_000} minutes, true)"""
"""Readings that count. A reading whose clock is ahead does not: it would stay the newest."""

_OUTLOOK: Final = f"""
with seen as (
    select *, {MICROS}(device_date_time) as at_micros, row_number() over box as place,{FOLLOWED},
        max({MICROS}(device_date_time)) over (partition by equipment_reference) as now_micros
    from {{readings}}
    where {CREDIBLE}
    window box as (partition by equipment_reference order by {ORDER})
),
recent as (
    select *, (at_micros - now_micros) / 3.6e9 as hours,
        count(*) over (partition by equipment_reference, setpoint_temperature) as times,
        min(place) over (partition by equipment_reference, setpoint_temperature) as first_place
    from seen
    where {NO_REPEAT} and at_micros > now_micros - {LOOKBACK // dt.timedelta(microseconds=1)}
),
compared as (
    select *,
        max_by(setpoint_temperature, if(setpoint_temperature is null, null, struct(times, -first_place)))
            over (partition by equipment_reference) as usual_setpoint
    from recent
),
judged as (
    select *,
        case when {UNPOWERED} then 'UNPLUGGED'
            when abs(setpoint_temperature - usual_setpoint) > {BAND_KELVIN} then 'WRONG_SETPOINT'
            when not {SETTLED} or {CONTROL} is null or setpoint_temperature is null then null
            when {TEMPERATURE_OUT} then 'FAILING'
            else 'RUNNING' end as state_then
    from compared
),
stated as (
    select *,
        last_value(setpoint_temperature) over box as setpoint,
        if(last_value(setpoint_temperature) over box is null, null, last_value(state_then, true) over box) as state
    from judged
    window box as (partition by equipment_reference order by place
        rows between unbounded preceding and unbounded following)
),
lasting as (
    select *, coalesce(max(if(state_then <> state, place, null)) over (partition by equipment_reference), 0) as before
    from stated
),
begun as (
    select *, min(if(place > before and state_then = state, hours, null)) over (partition by equipment_reference)
        as since
    from lasting
),
marked as (
    select *,
        state <> 'RUNNING' and place > before and hours >= since + {_SETTLING} and hours > -{_FITTED}
            and cargo_probe1_temperature between -100.0 and 150.0 as fitted,
        if(state = 'WRONG_SETPOINT', setpoint, ambient_temperature) as towards_then
    from begun
),
lines as (
    select equipment_reference, max(device_date_time) as as_of_date_time, max(state) as state,
        min(if(hours = since, device_date_time, null)) as since_date_time,
        max(usual_setpoint) as usual_setpoint,
        count(if(fitted, 1, null)) as readings,
        max(if(fitted, hours, null)) - min(if(fitted, hours, null)) as length,
        regr_slope(cargo_probe1_temperature, hours) filter (where fitted) as slope,
        regr_intercept(cargo_probe1_temperature, hours) filter (where fitted) as temperature,
        regr_sxx(cargo_probe1_temperature, hours) filter (where fitted) as sxx,
        regr_syy(cargo_probe1_temperature, hours) filter (where fitted) as syy,
        avg(cargo_probe1_temperature) filter (where fitted) as mean,
        avg(towards_then) filter (where fitted) as towards_fitted,
        avg(towards_then) filter (where hours > -24) as towards
    from marked group by equipment_reference
),
measured as (
    select *, greatest(sqrt(greatest(syy - slope * slope * sxx, 0) / nullif(readings - 2, 0)), {_NOISE})
            / sqrt(nullif(sxx, 0)) as error,
        usual_setpoint + sign(slope) * {BAND_KELVIN} as limit_temperature
    from lines
),
known as (
    select *,
        coalesce(readings >= {LEAST_READINGS} and length >= 1 and abs(slope) >= {SIGNIFICANCE} * error, false) as enough
    from measured
),
predicted as (
    select *,
        case when not enough then null
            when abs(temperature - usual_setpoint) >= {BAND_KELVIN} then 0
            when coalesce(abs(towards_fitted - mean) < {_NEAR} or sign(slope) <> sign(towards_fitted - mean), true)
                then 60 * (limit_temperature - temperature) / slope
            when (towards - limit_temperature) * sign(slope) > 0
                then 60 * ln((towards - temperature) / (towards - limit_temperature)) * (towards_fitted - mean) / slope
            end as minutes,
        1 + sqrt(power({_Z} * error / nullif(abs(slope), 0), 2) + {_LAW * _LAW}) as factor
    from known
),
bounded as (
    select *, if(minutes between 0 and {_LONGEST}, minutes, null) as minutes_left from predicted
)
select equipment_reference, as_of_date_time, state, since_date_time, usual_setpoint,
    if(enough, temperature, null) as temperature,
    if(enough, limit_temperature, null) as limit_temperature,
    minutes_left,
    minutes_left / factor as minutes_left_low,
    minutes_left * factor as minutes_left_high,
    readings
from bounded
"""  # noqa: S608  # the tables' own names


def outlook(readings: DataFrame) -> DataFrame:
    """Compute all rows from ``readings`` (at least ``USED_BY_OUTLOOK``) of at least the 72 hours before each box's
    newest one."""
    return readings.sparkSession.sql(_OUTLOOK, readings=readings)
