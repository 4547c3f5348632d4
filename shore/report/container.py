"""What one container went through, as data: everything that its page shows and its files are about."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Iterator
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from shore.places import Places
from shore.report import alertreadings, course
from shore.report.course import Interval
from shore.report.known import check_known
from shore.report.slices import Row, Slices, of_container, slices
from shore.tables.model import TIME
from shore.tables.valid_bookings import VALID_BOOKINGS

_TIMES: Final = {
    "readings": ("device_date_time", "device_date_time"),
    "readings_rejected": ("record_date_time", "record_date_time"),
    "conditions": ("window_start", "window_end"),
    "excursions": ("start_date_time", "end_date_time"),
    "mkt": ("window_start", "window_end"),
    "custody": ("from_date_time", "to_date_time"),
    "dock_movements": ("event_date_time", "event_date_time"),
    "alerts": ("event_date_time", "event_date_time"),
    "alerts_ashore": ("event_date_time", "event_date_time"),
    "alerts_now": ("opened_date_time", "cleared_date_time"),
    "bookings": ("valid_from", "valid_to"),
    "quality": ("day", "day"),
}
"""Tables with rows about one container, and the columns where a row's time begins and ends (null: it has not ended)."""


_VALID: Final = f"""
select * from ({VALID_BOOKINGS.format(bookings="all_bookings")})
where (cast($since as timestamptz) is null or valid_to is null or valid_to > $since)
    and (cast($until as timestamptz) is null or valid_from < $until)
order by valid_from, booking_reference
"""  # noqa: S608  # our own text
"""The times for which bookings hold, those that overlap [since, until)."""

_REJECTED: Final = """
select log, log_offset, reason, record_date_time, received_date_time, origin
from readings_rejected order by log, log_offset
"""


class Log(msgspec.Struct, frozen=True, kw_only=True):
    """Which records of one log the readings stand for: ``records`` of them from ``first_offset`` to ``last_offset``."""

    log: str
    first_offset: int
    last_offset: int
    records: int


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """The container's time in numbers. Degrees Celsius, minutes; device time."""

    records: int = 0  # rows of readings, repeats included
    repeats: int = 0
    late: int = 0  # appended after newer ones of their device
    wrong_clock: int = 0  # more than a day ahead of their receipt; not drawn
    rejected: int = 0  # records that could not be read
    first_date_time: dt.datetime | None = None
    last_date_time: dt.datetime | None = None
    minutes_observed: float = 0.0
    supply_min: float | None = None
    supply_max: float | None = None
    return_min: float | None = None
    return_max: float | None = None


class ContainerReport(msgspec.Struct, frozen=True, kw_only=True):
    """All of it. Rows are those of the tables, with their columns.

    Args:
        since, until: What was asked for, in device time, ``until`` exclusive; None: all.
        mkt: Whole days, and of each length of window the one with the highest mean kinetic temperature (``worst``).
        booking: The booking that counts at the end of the time.
        states: When it was without power, open, defrosting and so on.
        wrong_set_points: When it was set to something else than its booking says.
        gaps: When nothing was heard.
        rejected: Records of its log that could not be read, with the reason; without their bytes.
        way: Where it was: ``source`` OWN or SHIP.
        versions: Of the Delta tables that were read.
        missing: Tables that are not there yet.
    """

    equipment_reference: str
    line: str | None
    since: dt.datetime | None
    until: dt.datetime | None
    figures: Figures
    latest: Row | None
    booking: Row | None
    logs: tuple[Log, ...]
    excursions: tuple[Row, ...]
    mkt: tuple[Row, ...]
    custody: tuple[Row, ...]
    movements: tuple[Row, ...]
    alerts: tuple[Row, ...]
    alert_readings: tuple[Row, ...]
    bookings: tuple[Row, ...]
    quality: tuple[Row, ...]
    states: tuple[Interval, ...]
    wrong_set_points: tuple[Interval, ...]
    gaps: tuple[Interval, ...]
    rejected: tuple[Row, ...]
    way: tuple[Row, ...]
    sites: dict[str, Row]
    versions: dict[str, int]
    missing: tuple[str, ...]


@contextlib.contextmanager
def open_container(
    places: Places, number: str, since: dt.datetime | None = None, until: dt.datetime | None = None
) -> Iterator[Slices]:
    """The tables narrowed to one container and a time: a row is in it when its time and [since, until) overlap.

    Raises:
        UnknownContainerError: the number is not valid by ISO 6346, or no table has it.
        UnavailableError: shore has not written any table yet.
    """
    with slices(places) as found:
        found.add("sites")
        found.add("owners")
        found.add("containers_now", of_container(number))
        for name, (start, end) in _TIMES.items():
            found.add(name, of_container(number) & _within(start, end, since, until))
        found.add("readings", of_container(number), as_="all_readings")
        found.add("bookings", of_container(number), as_="all_bookings")  # what holds follows from all states
        found.check_any()
        check_known(found, number)
        ships = found.rows(
            "select distinct vessel_imo_number from sites join custody on site = holder where kind = 'ship'"
        )
        aboard = pc.field("vessel_imo_number").isin(pa.array([row["vessel_imo_number"] for row in ships], pa.string()))
        found.add("positions", aboard & _within("device_date_time", "device_date_time", since, until))
        course.prepare(found)
        alertreadings.prepare(found)
        yield found


def container_report(
    found: Slices, number: str, since: dt.datetime | None = None, until: dt.datetime | None = None
) -> ContainerReport:
    """Put the report together from what ``open_container`` opened for the same number and times."""
    figures = _figures(found)
    bookings = found.rows("select * from bookings order by valid_from, booking_reference, recorded_from, log_offset")
    valid = found.rows(_VALID, since=since, until=until)
    now = found.rows("select * from containers_now")
    line = found.rows("select line from owners where owner_code = $code", code=number[:4])
    return ContainerReport(
        equipment_reference=number,
        line=line[0]["line"] if line else None,
        since=since,
        until=until,
        figures=figures,
        latest=now[0] if now else None,
        booking=_present(valid, figures.last_date_time),
        logs=tuple(
            msgspec.convert(row, Log)
            for row in found.rows(
                "select log, min(log_offset) as first_offset, max(log_offset) as last_offset, count(*) as records "
                "from readings group by log order by log"
            )
        ),
        excursions=tuple(found.rows("select * from excursions order by start_date_time, quantity")),
        mkt=tuple(_mkt(found)),
        custody=tuple(found.rows("select * from custody order by log, term, lost")),
        movements=tuple(found.rows("select * from dock_movements order by event_date_time, event_id")),
        alerts=tuple(_alerts(found)),
        alert_readings=tuple(alertreadings.rows(found)),
        bookings=tuple(bookings),
        quality=tuple(found.rows("select * from quality order by day, device_id")),
        states=tuple(course.intervals(found)),
        wrong_set_points=tuple(_wrong_set_points(course.set_points(found), valid)),
        gaps=tuple(course.gaps(found)),
        rejected=tuple(found.rows(_REJECTED)),
        way=tuple(_way(found)),
        sites=_sites(found),
        versions=dict(found.versions),
        missing=tuple(found.missing),
    )


def _within(start: str, end: str, since: dt.datetime | None, until: dt.datetime | None) -> pc.Expression:
    """Whether a row's time overlaps [since, until); rows without a begin are in it only where nothing is asked."""
    condition = pc.scalar(True)
    if since is not None and start == "day":
        since = since.replace(hour=0, minute=0, second=0, microsecond=0)
    if until is not None:
        condition &= pc.field(start) < pa.scalar(until, TIME)
    if since is not None and start == end:
        condition &= pc.field(end) >= pa.scalar(since, TIME)
    elif since is not None:
        condition &= pc.field(end).is_null() | (pc.field(end) > pa.scalar(since, TIME))
    return condition


def _figures(found: Slices) -> Figures:
    counted = found.row(
        """
        select count(*) as records,
            count(*) - count(distinct (device_id, boot_id, sequence)) as repeats,
            count(*) filter (where late) as late,
            count(*) filter (where device_date_time > received_date_time + interval 1 day) as wrong_clock
        from readings
        """
    )
    rejected = found.row("select count(*) as rejected from readings_rejected")
    measured = found.row(
        """
        select min(device_date_time) as first_date_time, max(device_date_time) as last_date_time,
            coalesce(sum(epoch_us(stop) - epoch_us(device_date_time)), 0) / 6e7 as minutes_observed,
            min(supply_temperature) as supply_min, max(supply_temperature) as supply_max,
            min(return_temperature) as return_min, max(return_temperature) as return_max
        from measured
        """
    )
    return msgspec.convert(counted | rejected | measured, Figures)


def _mkt(found: Slices) -> list[Row]:
    """Whole days, and the worst window of each length: by the cargo's probe, else by the air."""
    return found.rows(
        """
        with judged as (
            select *, coalesce(cargo_mean_kinetic_temperature, air_mean_kinetic_temperature) as judged,
            from mkt
            where window_hours > 1
        ),
        ranked as (
            select *, row_number() over (
                partition by window_hours order by judged desc nulls last, window_start
            ) = 1 and judged is not null as worst
            from judged
        )
        select * exclude (judged) from ranked
        where worst or coalesce(whole_day, false)
        order by window_hours, window_start
        """
    )


def _alerts(found: Slices) -> list[Row]:
    return found.rows("select * from alerts_now order by opened_date_time, source, alert_id")


def _sites(found: Slices) -> dict[str, Row]:
    return {row["site"]: row for row in found.rows("select * from sites order by site")}


def _present(bookings: list[Row], moment: dt.datetime | None) -> Row | None:
    """The newest booking that holds at a moment, else the last one that there is, of the times for which they do."""
    valid = [
        row
        for row in bookings
        if moment is not None and row["valid_from"] <= moment and (row["valid_to"] is None or moment < row["valid_to"])
    ]
    candidates = valid or bookings
    return candidates[-1] if candidates else None


def _wrong_set_points(set_points: list[Row], bookings: list[Row]) -> Iterator[Interval]:
    """When the unit was set to something else than the booking of that time says, by more than 0.05 K."""
    for booking in bookings:
        agreed = booking["setpoint_temperature"]
        if agreed is None:
            continue
        for each in set_points:
            start = max(each["start"], booking["valid_from"])
            end = each["end"] if booking["valid_to"] is None else min(each["end"], booking["valid_to"])
            if start < end and abs(each["celsius"] - agreed) > 0.05:
                detail = f"set to {each['celsius']:g} Cel, agreed {agreed:g} Cel ({booking['booking_reference']})"
                yield Interval(kind="SETPOINT", start=start, end=end, detail=detail)


def _way(found: Slices) -> list[Row]:
    return sorted([*course.own_way(found), *course.ships_way(found)], key=lambda row: row["time"])
