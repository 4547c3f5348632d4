"""Compute sliding windows over rows in order of time, as DataFrames.

A window of ``count`` units ends with each unit that has a row and, for hours, with each day of UTC that has one. One
pass over a box's rows in order of time gives all of its windows; there is no join.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from shore.tables.model import Table

if TYPE_CHECKING:  # code that only reads tables needs no Spark
    from pyspark.sql import DataFrame

_PLACES: Final = ("equipment_reference", "window_hours", "window_start", "window_end", "whole_day")


@dataclass(frozen=True, slots=True)
class Unit:
    """The unit that windows are made of.

    Args:
        hours: Its length.
        of_days: Whether a window also ends with every day of UTC that has a unit.
    """

    hours: int
    of_days: bool


HOUR: Final = Unit(1, of_days=True)
DAY: Final = Unit(24, of_days=False)

# A row without values follows the last unit of a day if no unit ends with the day: it makes the day's own window.
_PLACED: Final = """
    select {values}, if(is_unit, window_end, midnight) as ended
    from (
        select *,
            date_trunc('day', window_end - interval 1 microsecond) + interval 1 day as midnight,
            lead(window_end) over (partition by equipment_reference order by window_end) as next_end
        from {{units}}
    )
    lateral view explode(
        if({of_days} and window_end < midnight and (next_end is null or next_end > midnight),
            array(true, false), array(true))
    ) as is_unit"""


def windows_sql(columns: Iterable[str], aggregates: Mapping[str, str], *, unit: Unit, count: int) -> str:
    """Return a Spark statement over ``{units}``: rows of one unit each, at most one for a box and ``window_end``.

    Args:
        columns: The columns of ``{units}`` that the aggregates use.
        aggregates: Aggregates over a window's rows, by name; each aggregate function is followed by ``over frame``.

    Returns:
        The statement for equipment_reference, window_start, window_end and the aggregates. A window is correct where
        ``{units}`` hold all of its units.
    """
    values = ", ".join(["equipment_reference", *(f"if(is_unit, {name}, null) as {name}" for name in columns)])
    chosen = ",\n    ".join(f"{sql} as {name}" for name, sql in aggregates.items())
    placed = _PLACED.format(values=values, of_days=str(unit.of_days).lower())
    return f"""
with placed as ({placed}
)
select
    equipment_reference,
    ended - interval {unit.hours * count} hours as window_start,
    ended as window_end,
    {chosen}
from placed
window frame as (
    partition by equipment_reference order by ended
    range between interval {unit.hours * (count - 1)} hours preceding and current row
)
"""  # noqa: S608  # the tables' own names


def windows(
    units: DataFrame, table: Table, aggregates: Mapping[str, str], *, unit: Unit, count: int, **constants: str
) -> DataFrame:
    """Return the longer windows made of these units, as rows of a table.

    Args:
        units: Rows of the table, of one unit each; at most one for a box and ``window_end``.
        constants: SQL expressions for the columns that are no aggregates, besides those of box and time.
    """
    columns = [name for name in table.plain_schema.names if name not in _PLACES]
    made = units.sparkSession.sql(windows_sql(columns, aggregates, unit=unit, count=count), units=units)
    fixed = {"window_hours": str(unit.hours * count)} | constants
    return made.selectExpr(*(f"{fixed[c]} as {c}" if c in fixed else c for c in table.plain_schema.names))
