"""Sliding windows made from rows that follow each other: SQL for DuckDB.

A window of ``count`` units ends with each unit that has a row, and, of hours, with each day of UTC that has one.
Windows are found by blocks of ``count`` units: a window lies in the block of its last unit and the one before, so each
unit is looked up in two blocks and not compared with all windows of its box.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from shore.tables.bands import MICROS


@dataclass(frozen=True, slots=True)
class Unit:
    """What windows are made of. ``of_days``: whether a window also ends with every day of UTC."""

    name: str
    micros: int
    of_days: bool


HOUR: Final = Unit("hour", 3_600_000_000, of_days=True)
DAY: Final = Unit("day", 86_400_000_000, of_days=False)


def sliding(*, unit: Unit, count: int, columns: Mapping[str, str]) -> str:
    """A statement over ``{units}`` (rows of one unit each with equipment_reference, window_end and what the columns
    need; at most one row a box and unit) and ``{ends}`` (one row with the times low and high).

    ``{units}`` must hold all rows of the windows that end in [low, high].

    Args:
        columns: Aggregates over a window's rows, by name.

    Returns:
        equipment_reference, window_start, window_end and the columns.
    """
    number = f"{MICROS}(window_end) // {unit.micros}"
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
    ended - interval {count} {unit.name} as window_start,
    ended as window_end,
    {chosen}
from windows join placed
    on windows.box = placed.equipment_reference and windows.block = placed.block
    and placed.number between windows.last_number - {count - 1} and windows.last_number
group by all
"""  # noqa: S608  # the tables' own names
