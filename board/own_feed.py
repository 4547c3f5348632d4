"""What a customer was given, read from the customer's own table (``customers/<customer>``) and from nothing else.

Shore fills that table from the customer's feed, so the rule that decides what a customer may see is the feed's
(``shore.feeds.entitlement``); here is none. ``open_own_feed`` opens this one table, and the queries run in a database
whose only relation it is.

Records count as docs/feeds.md says: the last row of each (``log``, ``log_offset``), unless it takes the record back.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import io
import json
import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.dataset as pads
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from board import ForEveryoneError
from fairlead.errors import UnavailableError
from fairlead.records.alert import RAISED_BY_SHORE
from shore.delta.table_errors import open_table
from shore.feeds.readers import customers_tables
from shore.jobs.status import IN_TROUBLE, read_status
from shore.paths import CUSTOMERS, TablePaths
from shore.read import csv_cells
from shore.report import course
from shore.report.course import Interval
from shore.report.slices import Row, Slices, open_slices
from shore.tables.bands import (
    DISTURBED,
    FOLLOWED,
    HOLD,
    IN_TIME,
    NO_REPEAT,
    ORDER,
    TEMPERATURE_JUDGED,
    TEMPERATURE_OUT,
)
from shore.tables.excursions import QUANTITIES, SILENCE, SLOT
from shore.tables.feeds import CUSTOMER_FEED, NEWEST
from shore.tables.readings import PAYLOAD_COLUMNS
from topologies.model import Topology

log = logging.getLogger(__name__)

What: TypeAlias = Literal["readings", "conditions", "alerts", "milestones", "custody"]
WHATS: Final[tuple[What, ...]] = ("readings", "conditions", "alerts", "milestones", "custody")
"""What can be taken away as a file."""

_MEMORY: Final = "256MB"  # of one look; what does not fit is sorted on disk
_LOOK_BACK: Final = dt.timedelta(minutes=31)  # probes that a defrost disturbs are judged again 30 minutes after it


@dataclass(frozen=True, slots=True)
class OwnFeed:
    """A customer's own table, at one version. ``written``: when the last records were added; None: not lately."""

    customer: str
    data: pads.Dataset
    version: int
    written: dt.datetime | None


def open_own_feed(paths: TablePaths, topology: Topology, customer: str) -> OwnFeed | None:
    """Open a customer's own table; None where the topology gives it none, or shore has not written it yet.

    Args:
        customer: The name with which the customer signed in; never a part of a request.

    Raises:
        UnavailableError: the table cannot be read now. The error names nothing but that.
    """
    with _in_customers_words():
        delta = _own_table(paths, topology, customer)
        if delta is None:
            return None
        added = [each["timestamp"] for each in delta.history(_COMMITS) if each.get("operation") in _ADDING]
        written = dt.datetime.fromtimestamp(max(added) / 1000, dt.UTC) if added else None
        return OwnFeed(customer, delta.to_pyarrow_dataset(schema=CUSTOMER_FEED.plain_schema), delta.version(), written)


def version_of_own_feed(paths: TablePaths, topology: Topology, customer: str) -> int | None:
    """Return the newest version of the table that ``open_own_feed`` opens; None where it returns None.

    Raises:
        UnavailableError: as there.
    """
    with _in_customers_words():
        delta = _own_table(paths, topology, customer)
        return None if delta is None else delta.version()


def _own_table(paths: TablePaths, topology: Topology, customer: str) -> DeltaTable | None:
    name = CUSTOMERS + customer
    return open_table(paths, name) if name in customers_tables(topology) else None


_COMMITS: Final = 20  # of the table's newest, among which the last that added records is looked for
_ADDING: Final = ("WRITE", "STREAMING UPDATE")  # and not, for example, a compaction


def trouble_of_feeds(folder: Path) -> str:
    """Return a sentence for customers where shore does not fill their tables now; else an empty text.

    Args:
        folder: The topology's state folder. It has no status where shore runs elsewhere.
    """
    status = read_status(folder)
    if status is None:
        return ""
    stopped = (*IN_TROUBLE, "stopped")
    troubled = [job for name in _FILLING if (job := status.jobs.get(name)) is not None and job.state in stopped]
    if status.error is None and not troubled:
        return ""
    since = min((job.failing_since or job.error_at or status.at for job in troubled), default=status.at)
    return (
        f"Your carrier's system has not added all new records since {since:%Y-%m-%d %H:%M} UTC. "
        "What happened after that may be missing here."
    )


_FILLING: Final = ("readings", "operations", "feeds")  # the jobs by which a record comes into a feed


# --- the records that count


_STANDING: Final = f"""
create temp table standing as
select kind, equipment_reference, device_date_time, log, log_offset, feed_offset, first_offset
from (
    select {NEWEST}, any_value(kind) as kind, min(feed_offset) as first_offset
    from (select *, '' as customer, null::varchar as digest from feed)
    group by customer, log, log_offset
)
where not taken_back
"""  # noqa: S608  # our own names

_JSON_TYPES: Final = {pa.string(): "VARCHAR", pa.int64(): "BIGINT", pa.float64(): "DOUBLE", pa.bool_(): "BOOLEAN"}


def _shape_of_readings() -> dict[str, Any]:
    """The columns of ``readings`` by their places in a reading's JSON."""
    shape: dict[str, Any] = {}
    for column in _COLUMNS:
        place = shape
        *parents, leaf = column.path.split(".")
        for each in parents:
            place = place.setdefault(each, {})
        place[leaf] = _JSON_TYPES[column.type]
    return shape


_COLUMNS: Final = tuple(each for each in PAYLOAD_COLUMNS if each.name != "device_date_time")
_PLACES: Final = ("latitude", "longitude")


def _measured(name: str, path: str, kind: pa.DataType) -> str:
    value = "r." + ".".join(f'"{part}"' for part in path.split("."))
    if name in _PLACES:
        latitude, longitude = 'r."geoLocation"."latitude"', 'r."geoLocation"."longitude"'
        value = (
            f"case when abs({latitude}) <= 90 and abs({longitude}) <= 180 and not ({latitude} = 0 and {longitude} = 0) "
            f"then {value} end"
        )
    elif pa.types.is_floating(kind):
        value = f"case when isfinite({value}) then {value} end"
    elif name in ("is_connected_to_power_source", "is_powered"):
        value = f"coalesce({value}, true)"
    return f"{value} as {name}"


_VALUES: Final = ", ".join(_measured(each.name, each.path, each.type) for each in _COLUMNS)


def _parsed(shape: Mapping[str, Any]) -> str:
    """The SQL of column ``value`` as a struct of this shape. What has another form is null."""
    return f"json_transform(case when json_valid(value) then value end, '{json.dumps(shape)}')"


_READINGS: Final = f"""
select feed_offset, first_offset, log, log_offset, equipment_reference, device_date_time, {_VALUES}
from (select * exclude (value), {_parsed(_shape_of_readings())} as r from valued where kind = 'reading')
"""  # noqa: S608  # names of this module

_DIGEST_SHAPE: Final = {
    "vesselIMONumber": "VARCHAR",
    "setpointTemperature": "DOUBLE",
    "supplyTemperature": "DOUBLE",
    "returnTemperature": "DOUBLE",
    "isConnectedToPowerSource": "BOOLEAN",
    "isPowered": "BOOLEAN",
    "inBand": "BOOLEAN",
    "isDisturbed": "BOOLEAN",
    "doorOpen": "BOOLEAN",
    "immersed": "BOOLEAN",
}
_DIGESTS: Final = f"""
select feed_offset, equipment_reference, device_date_time, r."vesselIMONumber" as vessel_imo_number,
    r."setpointTemperature" as setpoint_temperature, r."supplyTemperature" as supply_temperature,
    r."returnTemperature" as return_temperature,
    coalesce(r."isConnectedToPowerSource", true) as is_connected_to_power_source,
    coalesce(r."isPowered", true) as is_powered, r."inBand" as in_band,
    coalesce(r."isDisturbed", false) as is_disturbed,
    coalesce(r."doorOpen", false) as door_open, coalesce(r."immersed", false) as immersed
from (select * exclude (value), {_parsed(_DIGEST_SHAPE)} as r from valued where kind = 'digest')
"""  # noqa: S608

_SPAN: Final = {"min": "DOUBLE", "mean": "DOUBLE", "max": "DOUBLE"}
_HOUR_SHAPE: Final = {
    "windowEnd": "TIMESTAMPTZ",
    "readings": "BIGINT",
    "supplyTemperature": _SPAN,
    "returnTemperature": _SPAN,
    "minutesOutOfBand": "DOUBLE",
    "minutesWithoutPower": "DOUBLE",
    "minutesObserved": "DOUBLE",
}
_CONDITIONS: Final = f"""
select feed_offset, log, log_offset, equipment_reference, device_date_time as window_start,
    coalesce(r."windowEnd", device_date_time + interval 1 hour) as window_end, r."readings" as readings,
    r."supplyTemperature"."min" as supply_temperature_min, r."supplyTemperature"."mean" as supply_temperature_mean,
    r."supplyTemperature"."max" as supply_temperature_max,
    r."returnTemperature"."min" as return_temperature_min, r."returnTemperature"."mean" as return_temperature_mean,
    r."returnTemperature"."max" as return_temperature_max,
    r."minutesOutOfBand" as minutes_out_of_band, r."minutesWithoutPower" as minutes_without_power,
    r."minutesObserved" as minutes_observed
from (select * exclude (value), {_parsed(_HOUR_SHAPE)} as r from valued where kind = 'conditions')
"""  # noqa: S608

_ALERT_SHAPE: Final = {
    "alertID": "VARCHAR",
    "kind": "VARCHAR",
    "severity": "VARCHAR",
    "state": "VARCHAR",
    "revision": "BIGINT",
    "acknowledgedBy": "VARCHAR",
    "geoLocation": {"latitude": "DOUBLE", "longitude": "DOUBLE"},
    "evidence": [{"name": "VARCHAR", "detail": "VARCHAR"}],
}
_ALERTS: Final = f"""
select feed_offset, log, log_offset, equipment_reference,
    coalesce(r."alertID", log || '@' || log_offset) as alert_id, coalesce(r."kind", '') as alert,
    coalesce(r."severity", '') as severity, coalesce(r."state", '') as state, device_date_time as event_date_time,
    case when log like 'alerts/%' then '{RAISED_BY_SHORE}' else split_part(log, '.', 2) end as raised_at,
    coalesce(r."revision", 0) as revision,
    coalesce(r."acknowledgedBy", '') as acknowledged_by,
    array_to_string(list_transform(
        r."evidence", lambda e: concat_ws(': ', e."name", nullif(e."detail", ''))
    ), '; ') as evidence,
    case when abs(r."geoLocation"."latitude") <= 90 and abs(r."geoLocation"."longitude") <= 180
        then r."geoLocation"."latitude" end as latitude,
    case when abs(r."geoLocation"."latitude") <= 90 and abs(r."geoLocation"."longitude") <= 180
        then r."geoLocation"."longitude" end as longitude
from (select * exclude (value), {_parsed(_ALERT_SHAPE)} as r from valued where kind = 'alert')
"""  # noqa: S608

_ALERTS_NOW: Final = f"""
select * from (
select equipment_reference, alert_id, arg_max(alert, (revision, feed_offset)) as alert,
    arg_max(severity, (revision, feed_offset)) as severity, arg_max(state, (revision, feed_offset)) as state,
    min(event_date_time) as since, arg_max(event_date_time, (revision, feed_offset)) as until,
    arg_max(raised_at, (revision, feed_offset)) as raised_at,
    arg_max(acknowledged_by, (revision, feed_offset)) as acknowledged_by,
    arg_max(evidence, (revision, feed_offset)) as evidence,
    arg_min(latitude, (revision, feed_offset)) as latitude, arg_min(longitude, (revision, feed_offset)) as longitude
from ({_ALERTS})
group by equipment_reference, log, alert_id
)
order by state = 'CLEARED', since desc, alert_id, raised_at
"""  # noqa: S608

_HAPPENED_SHAPE: Final = {
    "equipmentEventTypeCode": "VARCHAR",
    "transportEventTypeCode": "VARCHAR",
    "UNLocationCode": "VARCHAR",
    "vesselIMONumber": "VARCHAR",
    "vessel": "VARCHAR",
    "voyageReference": "VARCHAR",
    "line": "VARCHAR",
    "event": "VARCHAR",
    "fromSite": "VARCHAR",
    "toSite": "VARCHAR",
    "reason": "VARCHAR",
}


def _happened(kinds: str) -> str:
    return f"""
        select feed_offset, log, log_offset, kind, equipment_reference, device_date_time as event_date_time,
            coalesce(r."equipmentEventTypeCode", r."transportEventTypeCode", r."event") as event,
            r."UNLocationCode" as un_location_code, r."vesselIMONumber" as vessel_imo_number, r."vessel" as vessel,
            r."voyageReference" as voyage_reference, r."line" as line,
            r."fromSite" as from_site, r."toSite" as to_site, r."reason" as reason
        from (select * exclude (value), {_parsed(_HAPPENED_SHAPE)} as r from valued where kind in ({kinds}))
        """  # noqa: S608


_EXPORTS: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "readings": (
        ("reading",),
        f"select * exclude (first_offset) from ({_READINGS}) order by equipment_reference, {ORDER}",  # noqa: S608
    ),
    "conditions": (("conditions",), f"{_CONDITIONS} order by equipment_reference, window_start, feed_offset"),
    "alerts": (
        ("alert",),
        f"select * from ({_ALERTS}) order by equipment_reference, event_date_time, feed_offset",  # noqa: S608
    ),
    "milestones": (
        ("milestone", "movement"),
        "select * exclude (from_site, to_site, reason) from ("  # noqa: S608
        + _happened("'milestone', 'movement'")
        + ") order by equipment_reference, event_date_time, feed_offset",
    ),
    "custody": (
        ("custody",),
        "select * exclude (kind, un_location_code, vessel_imo_number, vessel, line) from ("  # noqa: S608
        + _happened("'custody'")
        + ") order by equipment_reference, event_date_time, feed_offset",
    ),
}


@contextlib.contextmanager
def _relations(feed: OwnFeed, condition: pc.Expression | None = None) -> Iterator[Slices]:
    """Open a database with relation ``feed``, the table's rows or some of them, and ``standing``, those that count."""
    with _in_customers_words(), tempfile.TemporaryDirectory(prefix="fairlead-portal-") as empty:
        # In that folder are no tables: what runs here can open none.
        with open_slices(TablePaths(empty), memory=_MEMORY) as found:
            found.put("feed", feed.data if condition is None else feed.data.filter(condition))
            found.run(_STANDING)
            yield found


@contextlib.contextmanager
def _in_customers_words() -> Iterator[None]:
    """Turn errors of reading into one that tells a customer no paths and nothing about others' tables."""
    try:
        yield
    except (UnavailableError, DeltaError, OSError, pa.ArrowException) as error:
        log.warning("a customer's table cannot be read: %s", error)
        raise ForEveryoneError(
            "your records cannot be read now", hint="try again in a minute; if it stays so, tell your carrier"
        ) from None


def _box(number: str) -> pc.Expression:
    return pc.field("equipment_reference") == number


# --- all boxes


@dataclass(frozen=True, slots=True)
class Box:
    """One container (or, in a port authority's feed, ship) of a customer, as its newest records tell.

    Args:
        heard: Device time of the newest reading, digest or hour; None where there is none.
        source: What ``newest`` is: ``reading``, ``digest`` or ``conditions``; empty without any.
        newest: That record's values.
        place: The newest reading, if it tells a place.
        event: The newest milestone, movement or change of custody; None without any.
        alerts: Its open alerts, the newest first.
    """

    number: str
    heard: dt.datetime | None
    source: str
    newest: Row
    place: Row | None
    event: Row | None
    alerts: tuple[Row, ...]


_COUNTED: Final = f"""
create temp table counted as
select * from standing where device_date_time is not null and {IN_TIME} and device_date_time <= $latest
"""  # noqa: S608

_WANTED: Final = """
with newest as (
    select equipment_reference, kind, max(device_date_time) as at from counted group by equipment_reference, kind
)
select s.feed_offset from counted s
join newest n on n.equipment_reference = s.equipment_reference and n.kind = s.kind
where s.device_date_time = n.at or (s.kind = 'reading' and s.device_date_time >= n.at - $back)
union
select feed_offset from standing where kind in ('alert', 'milestone', 'custody')
"""


def _judged(rows: str) -> str:
    """The SQL for the newest reading of each box, with ``in_band``: null where it cannot be judged."""
    return f"""
        with seen as (
            select *, epoch_us(device_date_time) as at_micros,{FOLLOWED}
            from ({rows})
            window box as (partition by equipment_reference order by {ORDER})
        )
        select * exclude (next_micros, next_device, next_boot, next_sequence, disturbed_micros, at_micros),
            case when {TEMPERATURE_JUDGED} then not {TEMPERATURE_OUT} end as in_band, {DISTURBED} as is_disturbed
        from seen
        qualify row_number() over (
            partition by equipment_reference order by device_date_time desc, feed_offset desc
        ) = 1
        """  # noqa: S608  # names of this module and of ``bands``


def boxes(feed: OwnFeed, now: dt.datetime) -> list[Box]:
    """Return all boxes of which a record counts, by number.

    Args:
        now: Records of a device time more than a day later tell nothing: their clock is wrong.
    """
    with _relations(feed) as found:
        found.run(_COUNTED, latest=_latest(now))
        wanted = [row["feed_offset"] for row in found.rows(_WANTED, back=_LOOK_BACK)]
        _add_values(found, feed, pc.field("feed_offset").isin(pa.array(wanted, pa.int64())))
        numbers = [
            row["equipment_reference"]
            for row in found.rows("select distinct equipment_reference from standing order by 1")
        ]
        readings = _by_box(found.rows(_judged(_READINGS)))
        digests = _by_box(found.rows(_DIGESTS))
        hours = _by_box(found.rows(f"select * from ({_CONDITIONS}) order by window_start"))  # noqa: S608
        alerts: dict[str, list[Row]] = {}
        for row in found.rows(f"select * from ({_ALERTS_NOW}) where state <> 'CLEARED' order by since desc"):  # noqa: S608
            alerts.setdefault(row["equipment_reference"], []).append(row)
        events = _by_box(
            found.rows(f"select * from ({_happened(_EVENTS)}) order by event_date_time, feed_offset")  # noqa: S608
        )
    made = []
    for number in numbers:
        reading = readings.get(number)
        source, newest, heard = _newest(reading, digests.get(number), hours.get(number))
        made.append(
            Box(
                number=number,
                heard=heard,
                source=source,
                newest=newest,
                place=reading if reading is not None and reading["latitude"] is not None else None,
                event=events.get(number),
                alerts=tuple(alerts.get(number, ())),
            )
        )
    return made


_EVENTS: Final = "'milestone', 'movement', 'custody'"


def _by_box(rows: list[Row]) -> dict[str, Row]:
    """Return the last row of each box."""
    return {row["equipment_reference"]: row for row in rows}


def _newest(reading: Row | None, digest: Row | None, hour: Row | None) -> tuple[str, Row, dt.datetime | None]:
    found: list[tuple[dt.datetime, str, Row]] = []
    if reading is not None:
        found.append((reading["device_date_time"], "reading", reading))
    if digest is not None:
        found.append((digest["device_date_time"], "digest", digest))
    if hour is not None:
        found.append((hour["window_end"], "conditions", hour))
    if not found:
        return "", {}, None
    heard, source, row = max(found, key=lambda each: each[0])
    return source, row, heard


def _latest(now: dt.datetime) -> dt.datetime:
    return now + dt.timedelta(days=1)


def _add_values(found: Slices, feed: OwnFeed, condition: pc.Expression) -> None:
    """Create table ``valued``: the rows of ``standing`` that the condition selects, with their values."""
    found.put("values_of", feed.data.to_table(columns=["feed_offset", "value"], filter=condition))
    found.run(
        "create temp table valued as "
        "select s.*, v.value from standing s join values_of v on v.feed_offset = s.feed_offset"
    )


# --- one box


@dataclass(frozen=True, slots=True)
class BoxStory:
    """Everything that a customer was given about one box.

    Args:
        coarse: Whether it has hourly conditions in place of readings.
        samples: As ``shore.report.course.samples`` gives them.
        hours: Rows of hourly conditions, in order of time.
        states, excursions, gaps: Intervals in order of time. Gaps of kind ``LATE`` have readings, which came later.
        way: Rows of ``time``, ``latitude``, ``longitude``.
        events: Milestones, movements and changes of custody, the newest first.
        ahead: How many readings are left out of charts, because their clock is wrong.
    """

    number: str
    readings: int
    ahead: int
    newest: Row
    source: str
    heard: dt.datetime | None
    digest: Row | None
    samples: list[Row]
    hours: list[Row]
    states: list[Interval]
    excursions: list[Row]
    gaps: list[Interval]
    way: list[Row]
    alerts: list[Row]
    events: list[Row]

    @property
    def coarse(self) -> bool:
        return bool(self.hours) and not self.readings


_EXCURSIONS: Final = f"""
with seen as (
    select *, epoch_us(device_date_time) as at_micros, row_number() over box as place,{FOLLOWED}
    from readings
    window box as (partition by equipment_reference order by {ORDER})
),
held as (
    select *, least(coalesce(next_micros, at_micros + {HOLD}), at_micros + {HOLD}) - at_micros as held_micros
    from seen
    where {NO_REPEAT}
),
judged as (
    {
    " union all ".join(
        f"select '{name}' as quantity, place, device_date_time as measured, held_micros, {out} as is_out, "
        f"{value} as value, {wanted} as setpoint from held where {judged}"
        for name, judged, out, value, wanted in QUANTITIES
    )
}
),
followed as (
    select *, lead(measured) over next_ones as next_at, lead(is_out) over next_ones as next_out
    from judged
    window next_ones as (partition by quantity order by place)
),
outs as (
    select *, case when not next_out and next_at - measured <= $silence then next_at end as recovered
    from followed where is_out
),
linked as (
    select *, lag(measured) over before as at_before, lag(recovered) over before as recovered_before
    from outs
    window before as (partition by quantity order by place)
),
numbered as (
    select *, sum(case when at_before is null or measured - at_before > $silence or measured - recovered_before >= $slot
        then 1 else 0 end) over (partition by quantity order by place) as session
    from linked
)
select quantity, min(measured) as start_date_time, max(measured + to_microseconds(held_micros)) as end_date_time,
    arg_max_null(recovered, place) as recovered_date_time, sum(held_micros) / 6.0e7 as minutes_out_of_band,
    arg_max(value, abs(value - setpoint)) as worst_value, arg_max(setpoint, abs(value - setpoint)) as setpoint,
    count(*) as readings
from numbered
group by quantity, session
order by start_date_time, quantity
"""  # noqa: S608
"""Sessions as in table ``excursions`` (``shore.tables.excursions``), of this customer's readings alone."""

_LATE: Final = """
with rows_of_it as (
    select *, coalesce(back_filled, false) as was_late,
        coalesce(back_filled, false) is distinct from lag(coalesce(back_filled, false)) over (order by n)
        or segment is distinct from lag(segment) over (order by n) as edge
    from measured
),
runs as (select *, sum(edge::int) over (order by n rows unbounded preceding) as run from rows_of_it)
select min(device_date_time) as start, max(stop) as end, count(*) as readings
from runs where was_late group by run order by start
"""

_BACK_FILLED: Final = """
create temp table readings as
with digests as (
    select feed_offset, max(device_date_time) over (order by feed_offset) as told
    from feed where kind = 'digest' and not retracts
)
select r.* exclude (first_offset), null::timestamptz as received_date_time, null::varchar as payload,
    r.device_date_time <= d.told as back_filled
from decoded r asof left join digests d on d.feed_offset <= r.first_offset
"""
"""A reading is back-filled where the ship's digest of that time, or a later one, stood in the feed before it."""


def has_box(feed: OwnFeed, number: str) -> bool:
    """Return whether a record about this box counts."""
    with _relations(feed, _box(number)) as found:
        return bool(found.rows("select 1 from standing limit 1"))


def box_story(feed: OwnFeed, number: str, now: dt.datetime) -> BoxStory | None:
    """Return what the customer was given about a box; None where no record about it counts.

    Args:
        now: As in ``boxes``.
    """
    with _relations(feed, _box(number)) as found:
        if not found.rows("select 1 from standing limit 1"):
            return None
        _add_values(found, feed, _box(number))
        found.run(f"create temp table all_of_it as {_READINGS}")
        all_readings = found.row("select count(*) as n from all_of_it")["n"]
        found.run(
            f"create temp table decoded as select * from all_of_it where {IN_TIME} and device_date_time <= $latest",  # noqa: S608
            latest=_latest(now),
        )
        found.run(_BACK_FILLED)
        usable = found.row("select count(*) as n from readings")["n"]
        course.prepare(found)
        newest = next(iter(found.rows(_judged("select * from readings"))), None)
        digests = found.rows(f"select * from ({_DIGESTS}) order by device_date_time desc")  # noqa: S608
        hours = found.rows(f"select * from ({_CONDITIONS}) order by window_start")  # noqa: S608
        digest = digests[0] if digests else None
        source, row, heard = _newest(newest, digest, hours[-1] if hours else None)
        late = [Interval(kind="LATE", start=each["start"], end=each["end"]) for each in found.rows(_LATE)]
        gaps = [*course.gaps(found), *late]
        if digest is not None and newest is not None and digest["device_date_time"] > newest["device_date_time"]:
            gaps.append(Interval(kind="AT_SEA", start=newest["device_date_time"], end=digest["device_date_time"]))
        return BoxStory(
            number=number,
            readings=all_readings,
            ahead=all_readings - usable,
            newest=row,
            source=source,
            heard=heard,
            digest=digest,
            samples=course.samples(found),
            hours=hours,
            states=course.intervals(found),
            excursions=found.rows(_EXCURSIONS, silence=SILENCE, slot=SLOT),
            gaps=sorted(gaps, key=lambda each: each.start),
            way=course.own_way(found),
            alerts=found.rows(_ALERTS_NOW),
            events=found.rows(
                f"select * from ({_happened(_EVENTS)}) order by event_date_time desc, feed_offset desc"  # noqa: S608
            ),
        )


# --- files to take away


Form: TypeAlias = Literal["csv", "parquet"]
_BATCH: Final = 20_000  # rows


def export(feed: OwnFeed, what: What, form: Form, number: str | None = None) -> Iterator[bytes]:
    """Yield a file with all records of a kind that count, about one box or all boxes, in order of time.

    Nothing of its first part is yielded before the table was read. No records: a file without rows.

    In CSV, times are RFC 3339 in UTC, and no text is a formula for a spreadsheet (``shore.read.csv_cell``).
    """
    kinds, query = _EXPORTS[what]
    condition = pc.field("kind").isin(pa.array(kinds))
    if number is not None:
        condition &= _box(number)
    with _relations(feed, condition) as found:
        _add_values(found, feed, condition)
        batches = found.batches(query, _BATCH)
        sink = _Sink()
        with _writer(sink, form, batches.schema) as write:
            for batch in batches:
                write(batch)
                if sink.size > 0:
                    yield sink.take()
        yield sink.take()


class _Sink(io.RawIOBase):
    """A file that is taken away while it is written."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._before = 0
        self.size = 0  # of what was not taken

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        part = bytes(data)
        self._parts.append(part)
        self.size += len(part)
        return len(part)

    def tell(self) -> int:
        return self._before + self.size

    def take(self) -> bytes:
        found = b"".join(self._parts)
        self._before, self.size, self._parts = self._before + self.size, 0, []
        return found


@contextlib.contextmanager
def _writer(sink: _Sink, form: Form, schema: pa.Schema) -> Iterator[Callable[[pa.RecordBatch], None]]:
    if form == "parquet":
        with pq.ParquetWriter(sink, schema, compression="zstd") as parquet:
            yield parquet.write_batch
        return
    plain = pa.schema([(each.name, pa.string() if pa.types.is_timestamp(each.type) else each.type) for each in schema])
    with pacsv.CSVWriter(sink, plain) as csv:
        yield lambda batch: csv.write_batch(_as_text(batch, plain))


def _as_text(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = []
    for column in batch.columns:
        if pa.types.is_timestamp(column.type):
            columns.append(pc.strftime(column, format="%Y-%m-%dT%H:%M:%SZ"))
        else:
            columns.append(csv_cells(column) if pa.types.is_string(column.type) else column)
    return pa.record_batch(columns, schema=schema)
