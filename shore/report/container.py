"""The report of one container, as data. The board makes its page (``board.pages.container``).

The claim files of ``shore.report.pack`` are written from the same data.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import difflib
import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from fairlead.errors import ConfigurationError
from fairlead.names import container_check_digit, is_container_number
from fairlead.records import UNREADABLE
from fairlead.records.alert import RAISED_BY_SHORE
from fairlead.records.reading import Inspection, newest_inspection
from shore.paths import TablePaths
from shore.report import course
from shore.report.course import Interval
from shore.report.slices import Row, Slices, of_container, open_slices
from shore.tables.model import TIME
from shore.tables.valid_bookings import VALID_BOOKINGS
from topologies.drawing.seachart import PortPlace, ports

_TABLES: Final = ("containers_now", "custody", "bookings")  # small ones; ``readings`` is searched last


class UnknownContainerError(ConfigurationError):
    """A number that is no container number, or that no table has. The hint names similar numbers."""


def normalised(text: str) -> str:
    """Return a container number as the tables write it: capitals, no blanks or hyphens."""
    return "".join(text.split()).replace("-", "").upper()


def check_known(found: Slices, number: str) -> None:
    """Check that some table has a row of the container, at whatever time.

    Raises:
        UnknownContainerError: the number is not valid by ISO 6346, or no table has it.
    """
    valid = is_container_number(number)
    for name in (*_TABLES, "readings"):
        found.add(name, of_container(number), as_=f"{name}_of_it")
        if valid and found.rows(f"select 1 from {name}_of_it limit 1"):  # noqa: S608  # our own names
            return
    for name in _TABLES:
        found.add(name, as_=f"all_{name}")
    rows = found.rows(" union ".join(f"select equipment_reference as n from all_{name}" for name in _TABLES))  # noqa: S608
    known = sorted(row["n"] for row in rows if row["n"])
    near = difflib.get_close_matches(number, known, n=3, cutoff=0.7)
    fields: dict[str, Any] = {"equipment_reference": number, "nearest": near}
    hint = f"near it: {', '.join(near)}" if near else f"the tables know {len(known):,} containers"
    if valid:
        raise UnknownContainerError(f"no table has container {number}", hint=hint, **fields)
    right = _corrected(number)
    if right is None:
        raise UnknownContainerError(
            f"{number!r} is no container number: ISO 6346 has four letters and seven digits (MSKU1234565)",
            hint=hint,
            **fields,
        )
    raise UnknownContainerError(
        f"{number} is no container number: its check digit must be {right[-1]}",
        hint=f"did you mean {right}? {hint}" if right in known else f"{right} is in no table; {hint}",
        **fields,
    )


def _corrected(number: str) -> str | None:
    """The number with the right check digit, if nothing else is wrong with it."""
    if len(number) not in (10, 11) or not number.isascii():
        return None
    try:
        right = number[:10] + container_check_digit(number[:10])
    except (ValueError, KeyError, IndexError):
        return None
    return right if is_container_number(right) else None


_REFERENCES = pa.schema(
    [
        ("source", pa.string()),
        ("raised_at", pa.string()),
        ("alert_id", pa.string()),
        ("role", pa.string()),
        ("log", pa.string()),
        ("log_offset", pa.int64()),
        ("device_id", pa.string()),
        ("boot_id", pa.int64()),
        ("sequence", pa.int64()),
    ]
)


def prepare_alert_readings(slices: Slices) -> None:
    """Create the table ``alert_readings``: the readings that alerts name (``role``), their place in the logs, their
    values.

    One row per alert and reading. An alert raised by a site names its causes by log, offset and identity; an alert that
    left the ship before its reading was stored has the identity alone. An alert raised ashore names the first, the
    worst and the newest reading by offset. A reading that is not in table ``readings`` (not ashore yet) has no
    ``device_date_time``.
    """
    references = [*_of_sites(slices), *_of_shore(slices)]
    slices.put("alert_references", pa.Table.from_pylist(references, schema=_REFERENCES))
    slices.run(
        """
        create temp table alert_readings as
        select a.source, a.raised_at, a.alert_id, a.role,
            coalesce(r.log, a.log) as log, coalesce(r.log_offset, a.log_offset) as log_offset, r.term,
            coalesce(r.device_id, a.device_id) as device_id, coalesce(r.boot_id, a.boot_id) as boot_id,
            coalesce(r.sequence, a.sequence) as sequence,
            r.* exclude (log, log_offset, term, equipment_reference, device_id, boot_id, sequence, payload)
        from alert_references a
        left join all_readings r on
            case when a.log_offset is not null then r.log = a.log and r.log_offset = a.log_offset
            else r.device_id = a.device_id and r.boot_id = a.boot_id and r.sequence = a.sequence end
        qualify row_number() over (
            partition by a.raised_at, a.alert_id, a.role, a.log, a.log_offset, a.device_id, a.boot_id, a.sequence
            order by r.log, r.log_offset
        ) = 1
        """
    )


def alert_reading_rows(slices: Slices) -> list[Row]:
    """Return the table ``alert_readings``, alert by alert in order of time."""
    return slices.rows(
        "select * from alert_readings "
        "order by source, raised_at, alert_id, device_date_time nulls last, role, log_offset"
    )


def _of_sites(slices: Slices) -> Iterator[dict[str, Any]]:
    seen = set()
    for row in slices.rows("select log, alert_id, causes from alerts where problem is null order by log, log_offset"):
        for cause in json.loads(row["causes"] or "[]"):
            offset = cause.get("offset", -1)
            identity = (cause.get("deviceId"), cause.get("bootId"), cause.get("sequence"))
            if (row["log"], row["alert_id"], identity) in seen:
                continue
            seen.add((row["log"], row["alert_id"], identity))
            yield {
                "source": "site",
                "raised_at": row["log"].removeprefix("alerts."),
                "alert_id": row["alert_id"],
                "role": "cause",
                "log": cause.get("log"),
                "log_offset": offset if offset >= 0 else None,
                "device_id": identity[0],
                "boot_id": identity[1],
                "sequence": identity[2],
            }


def _of_shore(slices: Slices) -> list[Row]:
    return slices.rows(
        f"""
        select distinct 'shore' as source, '{RAISED_BY_SHORE}' as raised_at, alert_id, role, log, log_offset,
            null::varchar as device_id, null::bigint as boot_id, null::bigint as sequence
        from (
            select alert_id, log, 'first' as role, first_offset as log_offset from alerts_ashore
            union all select alert_id, log, 'worst', arg_max(worst_offset, revision) from alerts_ashore group by all
            union all select alert_id, log, 'newest', arg_max(log_offset, revision) from alerts_ashore group by all
        )
        where log_offset is not null
        order by all
        """  # noqa: S608  # our own name
    )


_READINGS: Final = """
create temp table readings as
select * from all_readings
where (cast($since as timestamptz) is null or device_date_time >= $since)
    and (cast($until as timestamptz) is null or device_date_time < $until)
"""

_TIMES: Final = {
    "readings_rejected": ("record_date_time", "record_date_time"),
    "conditions": ("window_start", "window_end"),
    "excursions": ("start_date_time", "end_date_time"),
    "mkt": ("window_start", "window_end"),
    "cold_treatments": ("since_date_time", "as_of_date_time"),
    "custody": ("from_date_time", "to_date_time"),
    "dock_movements": ("event_date_time", "event_date_time"),
    "alerts": ("event_date_time", "event_date_time"),
    "alerts_ashore": ("event_date_time", "event_date_time"),
    "alerts_now": ("opened_date_time", "cleared_date_time"),
    "bookings": ("valid_from", "valid_to"),
    "quality": ("day", "day"),
}
"""Tables with rows about one container, beside ``readings``, and the columns where a row's time begins and ends (null:
it has not ended)."""


_VALID: Final = f"""
select * from ({VALID_BOOKINGS.format(bookings="all_bookings")})
where (cast($since as timestamptz) is null or valid_to is null or valid_to > $since)
    and (cast($until as timestamptz) is null or valid_from < $until)
order by valid_from, booking_reference
"""  # noqa: S608  # our own text
"""The periods for which bookings hold that overlap [since, until)."""

_REJECTED: Final = """
select log, log_offset, reason, record_date_time, received_date_time, origin
from readings_rejected order by log, log_offset
"""


class Log(msgspec.Struct, frozen=True, kw_only=True):
    """The records of one log behind the readings: ``records`` of them, from ``first_offset`` to ``last_offset``."""

    log: str
    first_offset: int
    last_offset: int
    records: int


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """The report's figures. Degrees Celsius, minutes; device time."""

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
    """The whole report. Rows are those of the tables, with their columns.

    Args:
        since, until: The requested device times, ``until`` exclusive; None: all.
        mkt: Whole days, and per length of window the one with the highest mean kinetic temperature (``worst``).
        booking: The booking that counts at the end of the time.
        inspection: The newest inspection before a trip that its readings tell of.
        states: When it was without power, open, defrosting and so on.
        wrong_set_points: When its set point differed from its booking's.
        gaps: When it sent nothing.
        rejected: Records of its log that could not be read, with the reason; without their bytes.
        way: Where it was: ``source`` OWN or SHIP.
        versions: Of the Delta tables that were read.
        missing: Tables that do not exist yet.
    """

    equipment_reference: str
    line: str | None
    since: dt.datetime | None
    until: dt.datetime | None
    figures: Figures
    latest: Row | None
    booking: Row | None
    inspection: Inspection | None
    logs: tuple[Log, ...]
    excursions: tuple[Row, ...]
    mkt: tuple[Row, ...]
    cold_treatments: tuple[Row, ...]
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
    paths: TablePaths,
    number: str,
    since: dt.datetime | None = None,
    until: dt.datetime | None = None,
    *,
    payloads: bool = True,
) -> Iterator[Slices]:
    """Open the tables for one container and a time: a row is included when its time and [since, until) overlap.

    Args:
        payloads: Whether the readings have their payloads; null otherwise. Only ``shore.report.pack`` needs them, and
            they are most of the table's bytes.

    Raises:
        UnknownContainerError: the number is not valid by ISO 6346, or no table has it.
        UnavailableError: shore has not written any table yet.
    """
    with open_slices(paths) as found:
        found.add("sites")
        found.add("owners")
        found.add("containers_now", of_container(number))
        for name, (start, end) in _TIMES.items():
            found.add(name, of_container(number) & _within(start, end, since, until))
        without = () if payloads else ("payload",)
        found.load("readings", "equipment_reference", number, as_="all_readings", without=without)
        found.run(_READINGS, since=since, until=until)
        found.add("bookings", of_container(number), as_="all_bookings")  # periods follow from all states
        if is_container_number(number):  # else the number is what is wrong, whether there are tables or not
            found.check_any()
        check_known(found, number)
        ships = found.rows(
            "select distinct vessel_imo_number from sites join custody on site = holder where kind = 'ship'"
        )
        aboard = pc.field("vessel_imo_number").isin(pa.array([row["vessel_imo_number"] for row in ships], pa.string()))
        found.add("positions", aboard & _within("device_date_time", "device_date_time", since, until))
        course.prepare(found)
        prepare_alert_readings(found)
        yield found


def container_report(
    found: Slices, number: str, since: dt.datetime | None = None, until: dt.datetime | None = None
) -> ContainerReport:
    """Build the report from what ``open_container`` opened for the same number and times."""
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
        inspection=_inspection(found),
        logs=tuple(
            msgspec.convert(row, Log)
            for row in found.rows(
                "select log, min(log_offset) as first_offset, max(log_offset) as last_offset, count(*) as records "
                "from readings group by log order by log"
            )
        ),
        excursions=tuple(found.rows("select * from excursions order by start_date_time, quantity")),
        mkt=tuple(_mkt(found)),
        cold_treatments=tuple(found.rows("select * from cold_treatments order by since_date_time, booking_reference")),
        custody=tuple(found.rows("select * from custody order by log, term, lost")),
        movements=tuple(found.rows("select * from dock_movements order by event_date_time, event_id, log, log_offset")),
        alerts=tuple(_alerts(found)),
        alert_readings=tuple(alert_reading_rows(found)),
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
    """Whether a row's time overlaps [since, until). Rows without a start are included only where neither is given."""
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


def _inspection(found: Slices) -> Inspection | None:
    """The newest inspection in the newest reading that has one; None where it cannot be read."""
    for row in found.rows(
        "select inspection from readings where inspection is not null "
        "order by device_date_time desc, log_offset desc limit 1"
    ):
        with contextlib.suppress(*UNREADABLE):
            return newest_inspection(msgspec.json.decode(row["inspection"]))
    return None


def _mkt(found: Slices) -> list[Row]:
    """Whole days, and the worst window of each length: by the cargo probe, else by the air."""
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
    # Shore's next start names it in rows of release 0.1.0.
    return found.rows(
        "select * replace (coalesce(raised_at, $shore) as raised_at) from alerts_now "
        "order by opened_date_time, source, raised_at, alert_id",
        shore=RAISED_BY_SHORE,
    )


def _sites(found: Slices) -> dict[str, Row]:
    return {row["site"]: row for row in found.rows("select * from sites order by site")}


def _present(bookings: list[Row], moment: dt.datetime | None) -> Row | None:
    """The last booking period that holds at a moment, else the last of all."""
    valid = [
        row
        for row in bookings
        if moment is not None and row["valid_from"] <= moment and (row["valid_to"] is None or moment < row["valid_to"])
    ]
    candidates = valid or bookings
    return candidates[-1] if candidates else None


def _wrong_set_points(set_points: list[Row], bookings: list[Row]) -> Iterator[Interval]:
    """When the unit's set point differed from that of the booking at the time, by more than 0.05 K."""
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


def ports_of(report: ContainerReport) -> list[PortPlace]:
    """Return the ports that it touched or is booked for, those with a known place, by code. The name is the site's
    title, where a site is there."""
    codes = {row["un_location_code"] for row in report.movements}
    codes |= {
        report.sites[row["holder"]]["un_location_code"] for row in report.custody if row["holder"] in report.sites
    }
    if report.booking is not None:
        codes |= {report.booking["port_of_loading"], report.booking["port_of_discharge"]}
    titles = {row["un_location_code"]: row["title"] for row in report.sites.values()}
    known = ports()
    return [
        known[code]._replace(name=titles.get(code) or known[code].name or code)
        for code in sorted(code for code in codes if code and code in known)
    ]


def out_of_band(report: ContainerReport) -> list[tuple[str, int, float, float]]:
    """Return by quantity: how many excursions, their observed minutes out of band, and the minutes that they lasted."""
    counted: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in report.excursions:
        counted[row["quantity"]].append((row["minutes_out_of_band"], row["minutes"]))
    return [
        (quantity, len(both), sum(seen for seen, _ in both), sum(lasted for _, lasted in both))
        for quantity, both in sorted(counted.items())
    ]


def position_sources(report: ContainerReport) -> str:
    """Return in words whose positions its way is made of."""
    sources = {row["source"] for row in report.way}
    return {
        frozenset({"OWN"}): "Positions are the container's own",
        frozenset({"SHIP"}): "Positions are those of the ships that held it",
        frozenset(
            {"OWN", "SHIP"}
        ): "Positions are the container's own, and those of ships that held it where it gave none",
    }.get(frozenset(sources), "No position is known; the ports are those of its custody and booking")
