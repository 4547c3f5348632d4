"""Compute ``conditions``, ``excursions``, ``excursion_parts`` and ``mkt`` from all of ``readings`` by DuckDB.

Readings are read some hours at a time, so that memory holds no more than these.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from shore.delta import datasets
from shore.paths import TablePaths
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
    USED,
)
from shore.tables.conditions import CONDITIONS, aggregates_of_hours
from shore.tables.excursions import EXCURSION_PARTS, EXCURSIONS, SILENCE, SLOT
from shore.tables.hours import ACTIVATION_ENERGY, hours_sql
from shore.tables.mkt import MKT, aggregates_of_units
from shore.tables.model import TIME, Table
from shore.tables.sliding import DAY as DAYS
from shore.tables.sliding import HOUR as HOURS
from shore.tables.sliding import Unit
from tests.support.oracle.sql import between, select

HOUR: Final = dt.timedelta(hours=1)
DAY: Final = dt.timedelta(days=1)
_SLOT, _SILENCE = (int(time.total_seconds()) * 1_000_000 for time in (SLOT, SILENCE))
_SLOTS: Final = pa.schema([("low", TIME), ("high", TIME)])
_ENDS: Final = pa.schema([("low", TIME), ("high", TIME)])
_BOTH = {column.name: column.type for table in (MKT, CONDITIONS) for column in table.columns}
_NONE = ("window_hours", "whole_day", "activation_energy")
HOUR_SCHEMA: Final = pa.schema(
    [pa.field(name, kind) for name, kind in _BOTH.items() if name not in _NONE] + [pa.field("readings_out", pa.int64())]
)
"""The columns of ``hours_sql``, in any order: those of both tables, and how many readings were out of any band."""
_AT_ONCE: Final = 1_000_000  # readings, or those of one hour: some 500 MB
_BEGIN: Final = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)
_END: Final = dt.datetime(2100, 1, 1, tzinfo=dt.UTC)
_COUNTS = f"""
select date_trunc('hour', device_date_time) as hour, count(*) as n from {{readings}} where {IN_TIME} group by 1
"""  # noqa: S608  # the tables' own names
_COUNT: Final = pa.schema([("hour", TIME), ("n", pa.int64())])


def conditions(paths: TablePaths) -> pa.Table:
    """Return table ``conditions`` as it must be."""
    units = as_conditions(hours(paths, ACTIVATION_ENERGY))
    days = windows(CONDITIONS, DAYS_OF_CONDITIONS, units, _BEGIN, _END + DAY, hours=24)
    return pa.concat_tables([units, days])


def mkt(paths: TablePaths) -> pa.Table:
    """Return table ``mkt`` as it must be, with the activation energy that its stored rows have."""
    energy = stored_energy(paths) or ACTIVATION_ENERGY
    units = as_mkt(hours(paths, energy), energy)
    days = windows(MKT, DAYS_OF_MKT, units, _BEGIN, _END + DAY, hours=24)
    whole = days.filter(pc.field("whole_day"))
    months = windows(MKT, MONTHS_OF_MKT, whole, _BEGIN, _END + DAY, hours=720)
    return pa.concat_tables([units, days, months])


def excursion_parts(paths: TablePaths) -> pa.Table:
    """Return table ``excursion_parts`` as it must be."""
    made = [
        parts_of(_readings(paths, since - SLOT, until + SILENCE + SLOT), since, until) for since, until in _spans(paths)
    ]
    return pa.concat_tables([EXCURSION_PARTS.plain_schema.empty_table(), *made])


def excursions(paths: TablePaths) -> pa.Table:
    """Return table ``excursions`` as it must be."""
    return sessions_of(excursion_parts(paths))


def hours(paths: TablePaths, activation_energy: float) -> pa.Table:
    """Return all hours of all boxes (``shore.tables.hours``)."""
    made = [_hours(paths, since, until, activation_energy) for since, until in _spans(paths)]
    return pa.concat_tables([HOUR_SCHEMA.empty_table(), *made])


def _hours(paths: TablePaths, since: dt.datetime, until: dt.datetime, activation_energy: float) -> pa.Table:
    readings = _readings(paths, since - HOUR, until)
    found = select(hours_sql(activation_energy, touched=False), HOUR_SCHEMA, readings=readings)
    return found.filter(pc.field("window_start") >= pa.scalar(since, TIME))


def stored_energy(paths: TablePaths) -> float | None:
    """Return the activation energy of the rows of ``mkt``; None if there are no rows, or if they differ."""
    rows = datasets.open_dataset(paths, MKT.name)
    found = pc.unique(rows.to_table(columns=["activation_energy"])["activation_energy"]).to_pylist()
    return found[0] if len(found) == 1 else None


def _spans(paths: TablePaths) -> Iterator[tuple[dt.datetime, dt.datetime]]:
    """Yield times [since, until) in order that together hold all readings: whole hours, as many as fit in memory."""
    dataset = datasets.open_dataset(paths, "readings")
    hours = select(_COUNTS, _COUNT, readings=dataset).sort_by("hour").to_pylist()
    since: dt.datetime | None = None
    count = 0
    for row in hours:
        if since is not None and count + row["n"] > _AT_ONCE:
            yield since, row["hour"]
            since, count = None, 0
        since, count = since or row["hour"], count + row["n"]
    if since is not None:
        yield since, hours[-1]["hour"] + HOUR


def _readings(paths: TablePaths, since: dt.datetime, until: dt.datetime) -> pa.Table:
    found = between("device_date_time", since, until)
    return datasets.open_dataset(paths, "readings").to_table(columns=list(USED), filter=found)


def as_conditions(hours: pa.Table) -> pa.Table:
    """Return rows of hours as rows of ``conditions``."""
    return _with(hours, CONDITIONS, {"window_hours": 1})


def as_mkt(hours: pa.Table, activation_energy: float) -> pa.Table:
    """Return rows of hours as rows of ``mkt``."""
    return _with(hours, MKT, {"window_hours": 1, "whole_day": False, "activation_energy": activation_energy})


def windows(
    table: Table, statement: str, units: pa.Table, low: dt.datetime, high: dt.datetime, *, hours: int
) -> pa.Table:
    """Return the longer windows that end in [low, high], from the rows of their units."""
    ends = pa.Table.from_pylist([{"low": low, "high": high}], schema=_ENDS)
    constant = {"window_hours": hours} | ({"whole_day": False} if "whole_day" in table.plain_schema.names else {})
    made = pa.schema([f for f in table.plain_schema if f.name not in constant])
    rows = _with(select(statement, made, units=units, ends=ends), table, constant)
    if hours != 24 or "whole_day" not in constant:
        return rows
    start = rows["window_start"]
    whole = pc.equal(pc.floor_temporal(start, unit="day"), start)
    return rows.set_column(rows.schema.get_field_index("whole_day"), "whole_day", whole)


def _with(rows: pa.Table, table: Table, constant: Mapping[str, float]) -> pa.Table:
    """Return rows with the columns of a table, some of which have the same value in all rows."""
    schema = table.plain_schema
    arrays = [
        pa.repeat(pa.scalar(constant[f.name], f.type), rows.num_rows) if f.name in constant else rows[f.name]
        for f in schema
    ]
    return pa.table(arrays, schema=schema)


def parts_of(readings: pa.Table, since: dt.datetime, until: dt.datetime) -> pa.Table:
    """Return the half hours out of band that begin in [since, until), from these readings."""
    slots = pa.Table.from_pylist([{"low": since, "high": until - SLOT}], schema=_SLOTS)
    return select(PARTS, EXCURSION_PARTS.plain_schema, readings=readings, slots=slots)


def sessions_of(parts: pa.Table) -> pa.Table:
    """Return the sessions that these parts make up."""
    return select(SESSIONS, EXCURSIONS.plain_schema, parts=parts)


def _sliding(*, unit: Unit, count: int, columns: Mapping[str, str]) -> str:
    """Return SQL over ``{units}`` (rows of one unit each with equipment_reference, window_end and what the columns
    need; at most one row a box and unit) and ``{ends}`` (one row with the times low and high).

    ``{units}`` must hold all rows of the windows that end in [low, high].

    Args:
        columns: Aggregates over a window's rows, by name.

    Returns:
        SQL that gives equipment_reference, window_start, window_end and the columns.
    """
    micros = unit.hours * 3_600_000_000
    number = f"{MICROS}(window_end) // {micros}"
    midnight = "date_trunc('day', window_end - interval 1 microsecond) + interval 1 day"
    days = f"union select equipment_reference, {midnight} from {{units}}" if unit.of_days else ""  # noqa: S608
    chosen = ",\n    ".join(f"{sql} as {name}" for name, sql in columns.items())
    return f"""
with numbered as (select *, {number} as number from {{units}}),
placed as (
    select *, number // {count} as block from numbered
    union all
    select *, number // {count} + 1 from numbered
),
found as (
    select equipment_reference, window_end from {{units}} {days}
),
windows as (
    select equipment_reference as box, window_end as ended, {number} as last_number, {number} // {count} as block
    from found, {{ends}} as bounds
    where window_end between bounds.low and bounds.high
)
select
    box as equipment_reference,
    ended - interval {unit.hours * count} hour as window_start,
    ended as window_end,
    {chosen}
from windows join placed
    on windows.box = placed.equipment_reference and windows.block = placed.block
    and placed.number between windows.last_number - {count - 1} and windows.last_number
group by all
"""  # noqa: S608  # the tables' own names


DAYS_OF_CONDITIONS: Final = _sliding(unit=HOURS, count=24, columns=aggregates_of_hours(""))
DAYS_OF_MKT: Final = _sliding(unit=HOURS, count=24, columns=aggregates_of_units(""))
MONTHS_OF_MKT: Final = _sliding(unit=DAYS, count=30, columns=aggregates_of_units(""))


def _judged(quantity: str, judged: str, out: str, value: str, setpoint: str) -> str:
    return f"""
    select equipment_reference, device_date_time, at_micros, held_micros, latitude, longitude, place,
        '{quantity}' as quantity, {out} as is_out, {value} as value, {setpoint} as setpoint
    from held where {judged}"""  # noqa: S608


_QUANTITIES = " union all ".join(
    (
        _judged("TEMPERATURE", TEMPERATURE_JUDGED, TEMPERATURE_OUT, CONTROL, "setpoint_temperature"),
        _judged("HUMIDITY", HUMIDITY_JUDGED, HUMIDITY_OUT, "relative_humidity", "setpoint_relative_humidity"),
        _judged("POWER", POWER_JUDGED, POWER_OUT, "cast(null as double)", "setpoint_temperature"),
    )
)

PARTS = f"""
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
judged as ({_QUANTITIES}),
followed as (
    select *,
        lead(device_date_time) over followers as next_time,
        lead(at_micros) over followers as next_micros,
        lead(is_out) over followers as next_out,
        abs(value - setpoint) as deviation,
        case when minute(device_date_time) >= 30 then date_trunc('hour', device_date_time) + interval 30 minute
            else date_trunc('hour', device_date_time) end as part_start
    from judged
    window followers as (partition by equipment_reference, quantity order by place)
)
select equipment_reference, quantity, part_start,
    min(device_date_time) as start_date_time,
    max(device_date_time) as last_date_time,
    last(device_date_time + to_microseconds(held_micros) order by place) as end_date_time,
    last(case when not next_out and next_micros - at_micros <= {_SILENCE} then next_time end order by place)
        as recovered_date_time,
    sum(held_micros) / 6.0e7 as minutes_out_of_band,
    count(*) as readings,
    first(value order by deviation desc, place) as worst_value,
    max(deviation) as worst_deviation,
    first(case when value > setpoint then 'HIGH' when value < setpoint then 'LOW' end order by deviation desc, place)
        as direction,
    first(setpoint order by deviation desc, place) as setpoint,
    sum(deviation * held_micros) / 6.0e7 as deviation_minutes,
    first(latitude order by place) as latitude,
    first(longitude order by place) as longitude
from followed, {{slots}} as slots
where is_out and part_start between slots.low and slots.high
group by equipment_reference, quantity, part_start
"""  # noqa: S608  # the tables' own names
"""SQL for the half hours of ``{readings}`` that begin in [``{slots}``.low, ``{slots}``.high], for DuckDB.

They are right if ``{readings}`` has what was measured in them, ``SLOT`` before and ``SILENCE`` after.
"""

SESSIONS = f"""
with linked as (
    select *,
        lag(last_date_time) over before as last_before,
        lag(recovered_date_time) over before as recovered_before
    from {{parts}}
    window before as (partition by equipment_reference, quantity order by part_start)
),
numbered as (
    select *,
        count(*) filter (where last_before is null
            or {MICROS}(start_date_time) - {MICROS}(last_before) > {_SILENCE}
            or {MICROS}(start_date_time) - {MICROS}(recovered_before) >= {_SLOT}) over so_far as session
    from linked
    window so_far as (partition by equipment_reference, quantity order by part_start)
)
select
    equipment_reference || '/' || quantity || '/' || strftime(min(start_date_time), '%Y-%m-%dT%H:%M:%S.%fZ')
        as excursion_id,
    equipment_reference, quantity,
    min(start_date_time) as start_date_time,
    max(last_date_time) as last_date_time,
    max(end_date_time) as end_date_time,
    last(recovered_date_time order by part_start) as recovered_date_time,
    ({MICROS}(max(end_date_time)) - {MICROS}(min(start_date_time))) / 6.0e7 as minutes,
    sum(minutes_out_of_band) as minutes_out_of_band,
    sum(readings) as readings,
    first(worst_value order by worst_deviation desc, part_start) as worst_value,
    max(worst_deviation) as worst_deviation,
    first(direction order by worst_deviation desc, part_start) as direction,
    first(setpoint order by worst_deviation desc, part_start) as setpoint,
    sum(deviation_minutes) as deviation_minutes,
    first(latitude order by part_start) as latitude,
    first(longitude order by part_start) as longitude
from numbered
group by equipment_reference, quantity, session
"""  # noqa: S608  # the tables' own names
"""SQL for the sessions that ``{parts}`` make up, for DuckDB."""
