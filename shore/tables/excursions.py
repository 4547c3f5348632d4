"""Tables ``excursions`` and ``excursion_parts``: when a container was out of band, as sessions.

``shore.tables.bands`` defines the bands of temperature, humidity and power. A session begins with the first reading out
of band. It is over when the container has been back in band for 30 minutes, or has sent nothing that can be judged for
six hours; a later reading out of band begins another session. Readings that cannot be judged (defrosting, an inspection
before a trip, no set point) neither begin nor end anything.

``excursion_parts`` holds the same by half hour. Readings out of band within a half hour are always of one session. So
sessions follow from the parts alone, and a late reading recomputes some half hours instead of a voyage.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from shore.tables.bands import (
    CONTROL,
    FOLLOWED,
    HOLD,
    HUMIDITY_JUDGED,
    HUMIDITY_OUT,
    IN_TIME,
    MICROS,
    NO_REPEAT,
    ORDER,
    POWER_JUDGED,
    POWER_OUT,
    TEMPERATURE_JUDGED,
    TEMPERATURE_OUT,
)
from shore.tables.model import TIME, Column, Table

if TYPE_CHECKING:  # code that only reads tables needs no Spark
    from pyspark.sql import DataFrame

SLOT: Final = dt.timedelta(minutes=30)  # length of a part; also how long a box must be back in band
SILENCE: Final = dt.timedelta(hours=6)
_SLOT, _SILENCE = (int(time.total_seconds()) * 1_000_000 for time in (SLOT, SILENCE))

_TEXT, _DOUBLE, _LONG = pa.string(), pa.float64(), pa.int64()

_WORST = (
    Column("worst_value", _DOUBLE, "Reading furthest from the set point; null for POWER", "Cel or %"),
    Column("worst_deviation", _DOUBLE, "How far that was from the set point, at least 0; null for POWER", "K or %"),
    Column("direction", _TEXT, "HIGH or LOW: on which side of the set point that was; null for POWER"),
    Column("setpoint", _DOUBLE, "Set point at that reading; of the temperature for POWER", "Cel or %"),
    Column("deviation_minutes", _DOUBLE, "Distance from the set point times time (degree-minutes)", "K min or % min"),
    Column("latitude", _DOUBLE, "Where it began, WGS 84; null where that reading has no position", "deg"),
    Column("longitude", _DOUBLE, "Where it began, WGS 84; null where that reading has no position", "deg"),
)
_BOX = Column("equipment_reference", _TEXT, "ISO 6346 container number")
_QUANTITY = Column("quantity", _TEXT, "TEMPERATURE, HUMIDITY or POWER (POWER: not plugged in or switched off)")
_END = Column(
    "end_date_time", TIME, "End: until when the last reading out of band stands (the next reading, at most 30 min)"
)
_RECOVERED = Column(
    "recovered_date_time",
    TIME,
    "First reading back in band, if the next that can be judged is one within six hours; null: not seen to be over",
)
_READINGS = Column("readings", _LONG, "Readings out of band, repeats counted once")
_MINUTES = Column("minutes_out_of_band", _DOUBLE, "Time those readings stand for", "min")

EXCURSIONS = Table(
    name="excursions",
    title="Excursions: when a container was out of band",
    columns=(
        Column("excursion_id", _TEXT, "<container>/<quantity>/<begin>: names the row"),
        _BOX,
        _QUANTITY,
        Column("start_date_time", TIME, "Device time of the first reading out of band"),
        Column("last_date_time", TIME, "Device time of the last reading out of band"),
        _END,
        _RECOVERED,
        Column("minutes", _DOUBLE, "From begin to end, short times in band included", "min"),
        _MINUTES,
        _READINGS,
        *_WORST,
    ),
    key=("equipment_reference", "quantity", "start_date_time"),
    grain="One row per container, quantity and session out of band. A session goes on until the container was back in "
    "band for 30 minutes, or silent for six hours. Not seen to be over: recovered_date_time is null.",
    late="The sessions that new readings fall into, or are within reach of, are made again: late readings lengthen, "
    "join and split sessions. One whose first reading changes gets another begin, and so another key and id.",
    layout="Clustered by container and begin.",
    cluster_by=("equipment_reference", "start_date_time"),
)

EXCURSION_PARTS = Table(
    name="excursion_parts",
    title="Half hours out of band, from which excursions are made",
    columns=(
        _BOX,
        _QUANTITY,
        Column("part_start", TIME, "Begin of the half hour of device time, inclusive"),
        Column("start_date_time", TIME, "Device time of its first reading out of band"),
        Column("last_date_time", TIME, "Device time of its last reading out of band"),
        _END,
        _RECOVERED,
        _MINUTES,
        _READINGS,
        *_WORST,
    ),
    key=("equipment_reference", "quantity", "part_start"),
    grain="One row per container, quantity and half hour of device time with at least one reading out of band.",
    late="The half hours that new readings touch are made again from readings, however late.",
    layout="Clustered by container and time; only containers out of band have rows.",
    cluster_by=("equipment_reference", "part_start"),
)


QUANTITIES: Final = (
    ("TEMPERATURE", TEMPERATURE_JUDGED, TEMPERATURE_OUT, CONTROL, "setpoint_temperature"),
    ("HUMIDITY", HUMIDITY_JUDGED, HUMIDITY_OUT, "relative_humidity", "setpoint_relative_humidity"),
    ("POWER", POWER_JUDGED, POWER_OUT, "cast(null as double)", "setpoint_temperature"),
)
"""What is judged of a reading: its name, and SQL for whether it is judged, whether it is out of band, its value and set
point."""

_STRUCTS = ",".join(
    f"""
        named_struct('quantity', '{quantity}', 'is_judged', {judged}, 'is_out', {out}, 'value', {value},
            'setpoint', {setpoint})"""
    for quantity, judged, out, value, setpoint in QUANTITIES
)

_PARTS = f"""
with seen as (
    select *, {MICROS}(device_date_time) as at_micros, row_number() over box as place,{FOLLOWED}
    from {{readings}}
    where {IN_TIME}
    window box as (partition by equipment_reference order by {ORDER})
),
held as (
    select *, least(coalesce(next_micros, at_micros + {HOLD}), at_micros + {HOLD}) - at_micros as held_micros
    from seen
    where {NO_REPEAT}
),
judged as (
    select equipment_reference, device_date_time, at_micros, held_micros, latitude, longitude, place,
        quantity, is_out, value, setpoint
    from held lateral view inline(array({_STRUCTS})) as quantity, is_judged, is_out, value, setpoint
    where is_judged
),
followed as (
    select *,
        lead(device_date_time) over followers as next_time,
        lead(at_micros) over followers as next_micros,
        lead(is_out) over followers as next_out,
        abs(value - setpoint) as deviation,
        case when minute(device_date_time) >= 30 then date_trunc('hour', device_date_time) + interval 30 minutes
            else date_trunc('hour', device_date_time) end as part_start
    from judged
    window followers as (partition by equipment_reference, quantity order by place)
),
ranked as (
    select *, struct(deviation, -place) as badness from followed where is_out
)
select equipment_reference, quantity, part_start,
    min(device_date_time) as start_date_time,
    max(device_date_time) as last_date_time,
    max_by(timestamp_micros(at_micros + held_micros), place) as end_date_time,
    max_by(case when not next_out and next_micros - at_micros <= {_SILENCE} then next_time end, place)
        as recovered_date_time,
    sum(held_micros) / 6.0e7 as minutes_out_of_band,
    count(*) as readings,
    max_by(value, badness) as worst_value,
    max(deviation) as worst_deviation,
    max_by(case when value > setpoint then 'HIGH' when value < setpoint then 'LOW' end, badness) as direction,
    max_by(setpoint, badness) as setpoint,
    sum(deviation * held_micros) / 6.0e7 as deviation_minutes,
    min_by(latitude, place) as latitude,
    min_by(longitude, place) as longitude
from ranked
group by equipment_reference, quantity, part_start
"""  # noqa: S608  # the tables' own names


def excursion_parts(readings: DataFrame) -> DataFrame:
    """Compute the half hours out of band from ``readings`` (at least the columns ``bands.USED``).

    A half hour is correct if the readings hold what was measured in it, ``SLOT`` before and ``SILENCE`` after.
    """
    return readings.sparkSession.sql(_PARTS, readings=readings)


_SESSIONS = f"""
with linked as (
    select *,
        lag(last_date_time) over before as last_before,
        lag(recovered_date_time) over before as recovered_before
    from {{parts}}
    window before as (partition by equipment_reference, quantity order by part_start)
),
numbered as (
    select *,
        sum(case when last_before is null
            or {MICROS}(start_date_time) - {MICROS}(last_before) > {_SILENCE}
            or {MICROS}(start_date_time) - {MICROS}(recovered_before) >= {_SLOT} then 1 else 0 end) over so_far
            as session,
        struct(worst_deviation, -{MICROS}(part_start)) as badness
    from linked
    window so_far as (partition by equipment_reference, quantity order by part_start)
)
select
    equipment_reference || '/' || quantity || '/'
        || date_format(min(start_date_time), "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'") as excursion_id,
    equipment_reference, quantity,
    min(start_date_time) as start_date_time,
    max(last_date_time) as last_date_time,
    max(end_date_time) as end_date_time,
    max_by(recovered_date_time, part_start) as recovered_date_time,
    ({MICROS}(max(end_date_time)) - {MICROS}(min(start_date_time))) / 6.0e7 as minutes,
    sum(minutes_out_of_band) as minutes_out_of_band,
    sum(readings) as readings,
    max_by(worst_value, badness) as worst_value,
    max(worst_deviation) as worst_deviation,
    max_by(direction, badness) as direction,
    max_by(setpoint, badness) as setpoint,
    sum(deviation_minutes) as deviation_minutes,
    min_by(latitude, part_start) as latitude,
    min_by(longitude, part_start) as longitude
from numbered
group by equipment_reference, quantity, session
"""  # noqa: S608  # the tables' own names


def excursions(excursion_parts: DataFrame) -> DataFrame:
    """Join half hours out of band into sessions."""
    return excursion_parts.sparkSession.sql(_SESSIONS, parts=excursion_parts)
