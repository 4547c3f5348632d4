"""Table ``ships_now``: the last known position of every ship."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from shore.tables.model import TIME, Column, Table, within_calendar

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TEXT, _DOUBLE = pa.string(), pa.float64()

SHIPS_NOW = Table(
    name="ships_now",
    title="Newest position of every ship",
    columns=(
        Column("vessel_imo_number", _TEXT, "IMO number of the ship"),
        Column("vessel", _TEXT, "Its name in the topology; null for a stranger"),
        Column("device_date_time", TIME, "When it was there, by the device's clock"),
        Column("latitude", _DOUBLE, "WGS 84", "deg"),
        Column("longitude", _DOUBLE, "WGS 84", "deg"),
        Column("speed_over_ground", _DOUBLE, "Speed over ground", "kn"),
        Column("course_over_ground", _DOUBLE, "Course over ground", "deg"),
        Column("navigation_status", pa.int32(), "AIS navigation status, 0 to 15"),
        Column("log", _TEXT, "Log of that position"),
        Column("log_offset", pa.int64(), "Its offset there"),
    ),
    key=("vessel_imo_number",),
    grain="One row per ship with a position.",
    late="A position older than the stored one changes nothing. Of two of one time the one of the first log counts, "
    "there the one that was written first.",
    layout="Not partitioned: one row a ship.",
    change_feed=True,
)

USED: Final = tuple(name for name in SHIPS_NOW.plain_schema.names if name != "vessel")
"""The columns of ``positions`` that the table is made from."""

NEWEST: Final = f"""
with ranked as (
    select *, row_number() over (
        partition by vessel_imo_number order by device_date_time desc, log, log_offset
    ) as age
    from {{positions}}
    where latitude is not null and vessel_imo_number is not null and {within_calendar("device_date_time")}
)
select {", ".join(f"p.{name}" for name in USED)}, s.title as vessel
from ranked p
left join {{sites}} s on s.vessel_imo_number = p.vessel_imo_number and s.kind = 'ship'
where p.age = 1
"""  # noqa: S608  # constants of this module


def ships_now(positions: DataFrame, sites: DataFrame) -> DataFrame:
    """Return the newest of these positions of each ship.

    Args:
        positions: Columns ``USED``: all positions, or the new ones and the table's rows of the same ships.
        sites: All sites of the topology: the names of ships.
    """
    found: DataFrame = positions.sparkSession.sql(NEWEST, positions=positions, sites=sites)
    return found
