"""What one box measured, in order of device time, prepared for drawing. SQL over the slice ``readings``.

A reading stands until the next one, at most 30 minutes; repeats count once (``shore.tables.bands``). Where a box sent
nothing for longer than five of its usual intervals, and at least an hour, its course has a gap, and no line is drawn
across it. Readings more than a day ahead of their own receipt (a wrong clock) are left out: they would stretch every
axis. They are in the table, and in the files of a claim.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from shore.report.slices import Row, Slices
from shore.tables.bands import HOLD_MINUTES

HELD: Final = dt.timedelta(minutes=HOLD_MINUTES)
_STRETCHES: Final = 500  # of the axis; two times each
_WAY_POINTS: Final = 600

STATES: Final[Mapping[str, str]] = {
    "DEFROST": "coalesce(is_defrosting, false)",
    "INSPECTION": "coalesce(is_pre_trip_inspection, false)",
    "UNPLUGGED": "not coalesce(is_connected_to_power_source, true)",
    "NO_POWER": "coalesce(is_connected_to_power_source, true) and not coalesce(is_powered, true)",
    "DOOR_OPEN": "coalesce(door_open, false)",
    "IMMERSED": "coalesce(immersed, false)",
}
"""States of a box that last for some time, each as a condition on its readings."""


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """An interval of device time, ``end`` exclusive. ``detail`` adds text, if there is any."""

    kind: str
    start: dt.datetime
    end: dt.datetime
    detail: str = ""

    @property
    def minutes(self) -> float:
        return (self.end - self.start) / dt.timedelta(minutes=1)


def prepare(slices: Slices) -> None:
    """Create the table ``measured`` from the slice ``readings``: one row per reading, in order ``n``.

    A reading stands until ``stop``; ``segment`` numbers the stretches between gaps.
    """
    slices.run(
        """
        create temp table ordered as
        select *,
            row_number() over course as n,
            lead(device_date_time) over course as next_date_time
        from (
            select * exclude (payload)
            from readings
            where device_date_time <= coalesce(received_date_time, device_date_time) + interval 1 day
            qualify row_number() over (
                partition by device_id, boot_id, sequence, device_date_time order by log, log_offset desc
            ) = 1
        )
        window course as (order by device_date_time, device_id, boot_id, sequence, log, log_offset)
        """
    )
    slices.run(
        """
        create temp table measured as
        with usual as (
            select greatest(
                interval 1 hour,
                5 * coalesce(median(next_date_time - device_date_time), interval 1 hour)
            ) as longest
            from ordered
        ),
        marked as (
            select *,
                least(coalesce(next_date_time, device_date_time + $held), device_date_time + $held) as stop,
                coalesce(device_date_time - lag(device_date_time) over (order by n) > longest, false) as after_gap
            from ordered, usual
        )
        select * exclude (next_date_time, longest, after_gap),
            sum(after_gap::int) over (order by n rows unbounded preceding)::bigint as segment
        from marked
        """,
        held=HELD,
    )
    slices.run("drop table ordered")


SAMPLED: Final = (
    "supply_temperature",
    "return_temperature",
    "ambient_temperature",
    "cargo_probe1_temperature",
    "cargo_probe2_temperature",
    "cargo_probe3_temperature",
    "relative_humidity",
    "o2",
    "co2",
)
SET: Final = ("setpoint_temperature", "setpoint_relative_humidity", "setpoint_o2", "setpoint_co2")


def samples(slices: Slices) -> list[Row]:
    """Return rows of ``time``, ``segment``, ``SAMPLED`` and ``SET``, in order of time: all quantities at common times.

    Each stretch of the axis has its first and its last time. A quantity has its lowest and its highest value there, in
    the order in which they were measured, so nothing that is out of band disappears; a set point has its first and its
    last value. A stretch with one reading has one row. Null: not measured in the stretch.
    """
    columns = ", ".join(
        f"min({name}) as low_{name}, max({name}) as high_{name}, "
        f"coalesce(arg_min(n, {name}) <= arg_max(n, {name}), true) as rises_{name}"
        for name in SAMPLED
    )
    chosen = ", ".join(
        f"case when rises_{name} = (edge = 0) then low_{name} else high_{name} end as {name}" for name in SAMPLED
    )
    settings = ", ".join(f"arg_min({name}, n) as first_{name}, arg_max({name}, n) as last_{name}" for name in SET)
    set_to = ", ".join(f"case when edge = 0 then first_{name} else last_{name} end as {name}" for name in SET)
    return slices.rows(
        f"""
        with span as (
            select greatest(1, (epoch_us(max(device_date_time)) - epoch_us(min(device_date_time))) // $points) as width
            from measured
        ),
        stretches as (
            select segment, min(device_date_time) as first_time, max(device_date_time) as last_time,
                {columns}, {settings}
            from measured, span
            group by segment, epoch_us(device_date_time) // width
        )
        select case when edge = 0 then first_time else last_time end as time, segment, {chosen}, {set_to}
        from stretches, (values (0), (1)) edges(edge)
        where edge = 0 or last_time > first_time
        order by time
        """,  # noqa: S608  # columns of this module
        points=_STRETCHES,
    )


def set_points(slices: Slices) -> list[Row]:
    """Return rows of ``start``, ``end``, ``celsius``: the unit's set point, one row until it changes."""
    return slices.rows(
        """
        with edges as (
            select *,
                setpoint_temperature is distinct from lag(setpoint_temperature) over (order by n)
                or segment is distinct from lag(segment) over (order by n) as edge
            from measured
        ),
        runs as (select *, sum(edge::int) over (order by n rows unbounded preceding) as run from edges)
        select min(device_date_time) as start, max(stop) as end, any_value(setpoint_temperature) as celsius
        from runs
        where setpoint_temperature is not null
        group by run
        order by start
        """
    )


def intervals(slices: Slices) -> list[Interval]:
    """Return when the box was in each of ``STATES``, in order of time."""
    conditions = ", ".join(f"('{kind}', {condition})" for kind, condition in STATES.items())
    rows = slices.rows(
        f"""
        with told as (
            select s.kind, s.is_so, n, segment, device_date_time, stop
            from measured, lateral (values {conditions}) s(kind, is_so)
        ),
        edges as (
            select *,
                is_so is distinct from lag(is_so) over box or segment is distinct from lag(segment) over box as edge
            from told
            window box as (partition by kind order by n)
        ),
        runs as (
            select *, sum(edge::int) over (partition by kind order by n rows unbounded preceding) as run from edges
        )
        select kind, min(device_date_time) as start, max(stop) as end
        from runs where is_so group by kind, run order by start, kind
        """  # noqa: S608  # conditions of this module
    )
    return [Interval(kind=row["kind"], start=row["start"], end=row["end"]) for row in rows]


def joined(found: Iterable[Interval], shortest: dt.timedelta) -> list[Interval]:
    """Join intervals of one kind that are less than ``shortest`` apart, for drawings: such a gap cannot be seen."""
    out: dict[str, list[Interval]] = {}
    for each in sorted(found, key=lambda each: each.start):
        known = out.setdefault(each.kind, [])
        if known and each.start - known[-1].end < shortest:
            known[-1] = msgspec.structs.replace(known[-1], end=max(known[-1].end, each.end))
        else:
            known.append(each)
    return [each for known in out.values() for each in known]


def gaps(slices: Slices) -> list[Interval]:
    """Return when nothing was heard, from one reading to the next, in order of time."""
    rows = slices.rows(
        """
        select max(device_date_time) as start, lead(min(device_date_time)) over (order by segment) as end
        from measured
        group by segment
        qualify "end" is not null
        order by start
        """
    )
    return [Interval(kind="GAP", start=row["start"], end=row["end"]) for row in rows]


def own_way(slices: Slices) -> list[Row]:
    """Return rows of ``time``, ``latitude``, ``longitude``, ``source``: the box's own positions, at most 1,200."""
    return slices.rows(
        """
        with placed as (
            select device_date_time as time, latitude, longitude, row_number() over (order by n) as k,
                count(*) over () as points
            from measured
            where latitude is not null and longitude is not null
        )
        select time, latitude, longitude, 'OWN' as source
        from placed
        where (k - 1) % greatest(1, points // $most) = 0 or k = points
        order by time
        """,
        most=_WAY_POINTS,
    )


def ships_way(slices: Slices) -> list[Row]:
    """Return such rows from the ships that held the box, for stays aboard without a position of its own.

    The slices ``custody``, ``sites`` and ``positions`` must be there.
    """
    return slices.rows(
        """
        with stays as (
            select c.from_date_time, coalesce(c.to_date_time, 'infinity'::timestamptz) as to_date_time,
                s.vessel_imo_number
            from custody c join sites s on s.site = c.holder
            where s.kind = 'ship' and not coalesce(c.lost, false)
            and not exists (
                select 1 from measured m
                where m.latitude is not null and m.device_date_time >= c.from_date_time
                and (c.to_date_time is null or m.device_date_time < c.to_date_time)
            )
        ),
        placed as (
            select p.device_date_time as time, p.latitude, p.longitude,
                row_number() over (order by p.device_date_time) as k, count(*) over () as points
            from positions p join stays s on s.vessel_imo_number = p.vessel_imo_number
                and p.device_date_time >= s.from_date_time and p.device_date_time < s.to_date_time
            where p.latitude is not null and p.longitude is not null
        )
        select time, latitude, longitude, 'SHIP' as source
        from placed
        where (k - 1) % greatest(1, points // $most) = 0 or k = points
        order by time
        """,
        most=_WAY_POINTS,
    )
