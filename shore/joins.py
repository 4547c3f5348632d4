"""Views that join readings and alerts with the booking, ship's position or holder of their time; and gaps of devices.

Each is a named view in ``shore.read.sql`` (and so in ``fairlead sql``), and a function here that returns the same rows
as a Spark DataFrame. Both engines run the same SQL, except for the positions around a reading: DuckDB has an as-of
join, which reads only the readings asked for; in Spark, windows over each ship's readings and positions find the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fairlead.records.reading import MOST
from shore.paths import TablePaths
from shore.tables.operations import ALERTS
from shore.tables.readings import READINGS
from shore.tables.valid_bookings import VALID_BOOKINGS, covers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GAP_MINUTES: Final = 60


@dataclass(frozen=True, slots=True)
class View:
    """A named view. ``statement`` is its SQL, with the tables of ``inputs`` in braces."""

    name: str
    title: str
    statement: str
    inputs: tuple[str, ...]


_READING: Final = ", ".join(f"r.{column.name}" for column in READINGS.columns if column.name != "payload")
_ALERT: Final = ", ".join(f"a.{column.name}" for column in ALERTS.columns if column.name != "payload")

_BOOKED = f"""
select {_READING}, b.booking_reference, b.customer, b.commodity, b.setpoint_temperature as booked_temperature,
    b.valid_from, b.valid_to
from {{readings}} r
left join ({VALID_BOOKINGS}) b
    on b.equipment_reference = r.equipment_reference and {covers("b", "r.device_date_time")}
"""  # noqa: S608  # our own columns

_ABOARD = f"""
with aboard as (
    select {_READING}, c.holder, s.vessel_imo_number, unix_micros(r.device_date_time) as reading_micros
    from {{readings}} r
    left join {{custody}} c
        on c.log = r.log and not c.lost and r.log_offset >= c.from_offset
        and (c.to_offset is null or r.log_offset < c.to_offset)
    left join {{sites}} s on s.site = c.holder and s.kind = 'ship'
),
fixes as (
    select vessel_imo_number, fix_micros, latitude, longitude from (
        select vessel_imo_number, unix_micros(device_date_time) as fix_micros, latitude, longitude,
            row_number() over (partition by vessel_imo_number, device_date_time order by log, log_offset) as copy
        from {{positions}}
        where latitude is not null and device_date_time is not null
    ) told
    where copy = 1
),
"""  # noqa: S608

_AROUND_BY_ASOF = """
placed as (
    select r.*, p.fix_micros as before_micros, p.latitude as before_latitude, p.longitude as before_longitude,
        n.fix_micros as after_micros, n.latitude as after_latitude, n.longitude as after_longitude
    from aboard r
    asof left join fixes p on p.vessel_imo_number = r.vessel_imo_number and r.reading_micros >= p.fix_micros
    asof left join fixes n on n.vessel_imo_number = r.vessel_imo_number and r.reading_micros <= n.fix_micros
),
"""

# The next position uses a window backwards in time, because windows that end at the last row are quadratic in Spark.
_AROUND_BY_WINDOWS = """
moments as (
    select vessel_imo_number, fix_micros as micros, fix_micros from fixes
    union
    select vessel_imo_number, reading_micros, null from aboard where vessel_imo_number is not null
),
brackets as (
    select vessel_imo_number, micros, max(before_micros) as before_micros, min(after_micros) as after_micros from (
        select vessel_imo_number, micros,
            max(fix_micros) over (
                partition by vessel_imo_number order by micros, fix_micros desc
                rows between unbounded preceding and current row
            ) as before_micros,
            min(fix_micros) over (
                partition by vessel_imo_number order by micros desc, fix_micros desc
                rows between unbounded preceding and current row
            ) as after_micros
        from moments
    ) told
    group by vessel_imo_number, micros
),
placed as (
    select r.*, p.fix_micros as before_micros, p.latitude as before_latitude, p.longitude as before_longitude,
        n.fix_micros as after_micros, n.latitude as after_latitude, n.longitude as after_longitude
    from aboard r
    left join brackets b on b.vessel_imo_number = r.vessel_imo_number and b.micros = r.reading_micros
    left join fixes p on p.vessel_imo_number = b.vessel_imo_number and p.fix_micros = b.before_micros
    left join fixes n on n.vessel_imo_number = b.vessel_imo_number and n.fix_micros = b.after_micros
),
"""

_INTERPOLATED = f"""
shares as (
    select r.*,
        (after_micros - before_micros) / 6.0e7 as ship_gap_minutes,
        case when after_micros = before_micros then 0.0e0
            else (reading_micros - before_micros) * 1.0e0 / (after_micros - before_micros) end as share,
        case when after_longitude - before_longitude > 180.0 then after_longitude - before_longitude - 360.0
            when after_longitude - before_longitude < -180.0 then after_longitude - before_longitude + 360.0
            else after_longitude - before_longitude end as eastward
    from placed r
),
moved as (
    select r.*,
        case when ship_gap_minutes <= {GAP_MINUTES}
            then before_latitude + share * (after_latitude - before_latitude) end as ship_latitude,
        case when ship_gap_minutes <= {GAP_MINUTES} then before_longitude + share * eastward end as turned
    from shares r
)
select {_READING}, r.holder, r.vessel_imo_number, r.ship_latitude,
    case when turned > 180.0 then turned - 360.0 when turned < -180.0 then turned + 360.0 else turned end
        as ship_longitude,
    r.ship_gap_minutes
from moved r
"""  # noqa: S608

_HELD = f"""
select {_ALERT}, a.holder, s.kind as holder_kind, a.custody_term, a.custody_event, a.held_from, a.held_to
from (
    select a.*, c.holder, c.term as custody_term, c.event as custody_event,
        c.from_date_time as held_from, c.to_date_time as held_to,
        row_number() over (
            partition by a.log, a.log_offset order by c.from_date_time desc, c.log, c.term desc
        ) as choice
    from {{alerts}} a
    left join {{custody}} c
        on c.equipment_reference = a.equipment_reference and not c.lost and a.event_date_time >= c.from_date_time
        and (c.to_date_time is null or a.event_date_time < c.to_date_time)
) a
left join {{sites}} s on s.site = a.holder
where a.choice = 1
"""  # noqa: S608

_GAPS = f"""
select equipment_reference, device_id, previous_date_time, next_date_time, boot_id,
    cast(least(missing, {MOST}) as bigint) as missing
from (
    select equipment_reference, device_id,
        lag(last_date_time) over device as previous_date_time, first_date_time as next_date_time,
        first_boot_id as boot_id,
        case when lag(last_boot_id) over device = first_boot_id
            then cast(first_sequence as decimal(20, 0)) - lag(last_sequence) over device - 1 end as missing
    from {{quality}}
    where device_id <> ''
    window device as (partition by equipment_reference, device_id order by day)
) days
where missing > 0
"""  # noqa: S608

READINGS_WITH_BOOKINGS: Final = View(
    "readings_with_bookings",
    "Every reading with the booking that is valid at its device time, as bookings are known now; null without one. A "
    "cancellation takes away the times that it names itself: valid_from and valid_to are those of what is left around "
    "the reading. A box in several valid bookings has a row for each.",
    _BOOKED,
    ("readings", "bookings"),
)
READINGS_WITH_POSITIONS: Final = View(
    "readings_with_positions",
    "Every reading with the site that held the log at its offset and, where that is a ship, the ship's position at its "
    f"device time: linear between the positions before and after, null where these are more than {GAP_MINUTES} minutes "
    "apart or one is missing.",
    _ABOARD + _AROUND_BY_ASOF + _INTERPOLATED,
    ("readings", "custody", "sites", "positions"),
)
ALERTS_WITH_CUSTODY: Final = View(
    "alerts_with_custody",
    "Every state of an alert with who held the box when it happened, by the times of the events that moved custody.",
    _HELD,
    ("alerts", "custody", "sites"),
)
DEVICE_GAPS: Final = View(
    "device_gaps",
    "Where a device's sequence numbers jump between one day with readings and the next; within days see quality.",
    _GAPS,
    ("quality",),
)
VIEWS: Final[Mapping[str, View]] = {
    view.name: view for view in (READINGS_WITH_BOOKINGS, READINGS_WITH_POSITIONS, ALERTS_WITH_CUSTODY, DEVICE_GAPS)
}


def readings_with_bookings(spark: SparkSession, paths: TablePaths) -> DataFrame:
    """Return the view ``readings_with_bookings`` as a Spark DataFrame."""
    return _in_spark(spark, paths, READINGS_WITH_BOOKINGS)


def readings_with_positions(spark: SparkSession, paths: TablePaths) -> DataFrame:
    """Return the view ``readings_with_positions`` as a Spark DataFrame."""
    return _in_spark(spark, paths, READINGS_WITH_POSITIONS, _ABOARD + _AROUND_BY_WINDOWS + _INTERPOLATED)


def alerts_with_custody(spark: SparkSession, paths: TablePaths) -> DataFrame:
    """Return the view ``alerts_with_custody`` as a Spark DataFrame."""
    return _in_spark(spark, paths, ALERTS_WITH_CUSTODY)


def device_gaps(spark: SparkSession, paths: TablePaths) -> DataFrame:
    """Return the view ``device_gaps`` as a Spark DataFrame."""
    return _in_spark(spark, paths, DEVICE_GAPS)


def _in_spark(spark: SparkSession, paths: TablePaths, view: View, statement: str = "") -> DataFrame:
    inputs: dict[str, Any] = {name: spark.read.format("delta").load(paths.table(name)) for name in view.inputs}
    return spark.sql(statement or view.statement, **inputs)
