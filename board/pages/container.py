"""Containers for staff: the list with what is wrong first, one container's whole history, and its claims pack.

A container's page reads the files of that container alone (``shore.report.container``). What is drawn is data for
``map.js`` and ``chart.js``: ``map_of`` and ``chart_of`` make it, and are pure. ``container_file`` is the same page as
one file, with what a claim needs beside it.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Final
from urllib.parse import urlencode

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse

from board.drawing import KINDS, SEVERITIES, Json, chart_of_readings, event, place_in_row, port_mark, ship_at, span
from board.export import document
from board.openapi import DAY, Field
from board.pages.alerts import alert_panel
from board.service import BoardService, Page, address_of
from board.viewer import Access
from fairlead.names import is_container_number
from fairlead.records.alert import OVERBOARD
from fairlead.records.reading import power_state
from shore.paths import TablePaths
from shore.report import course
from shore.report.container import (
    ContainerReport,
    container_report,
    normalised,
    open_container,
    out_of_band,
    ports_of,
    position_sources,
)
from shore.report.course import Interval
from shore.report.entitled import ContainerFeeds, feeds_of_container
from shore.report.pack import write_pack
from shore.report.port import BOXES, concerns
from shore.report.slices import Row, Slices, of_container, open_slices, table_warnings
from shore.report.wording import MOVEMENTS, STATES, count, duration, number
from shore.report.wording import time as to_minutes
from shore.tables.model import TIME
from topologies.model import Topology

LISTED: Final = 200
_LONGEST_SEARCH: Final = 60  # characters
_TOLD: Final = 100  # rows of a list within a container's page; its pack has all
_SILENT: Final = dt.timedelta(hours=6)
_DRAWN: Final = 1200  # stretches along a drawing's axis; what is closer together is drawn as one

# --- the list


@dataclass(frozen=True, slots=True)
class Listed:
    """The containers that a search finds.

    Args:
        rows: At most ``LISTED`` of them, those with something wrong first.
        counts: How many it finds by tone.
        as_of: The newest time that the tables know of any container.
        doubts: What the list may lack, in sentences.
    """

    rows: tuple[Json, ...]
    counts: Mapping[str, int]
    as_of: dt.datetime | None
    doubts: tuple[str, ...]

    @property
    def found(self) -> int:
        return sum(self.counts.values())


_JUDGED: Final = f"""
create temp table judged as
with boxes as ({BOXES}),
booked as (
    select equipment_reference, string_agg(distinct booking_reference, ', ' order by booking_reference) as bookings
    from bookings
    where $text <> '' and (
        contains(lower(booking_reference), $text) or contains(lower(coalesce(customer, '')), $text)
        or contains(lower(coalesce(consignee, '')), $text)
        or contains(lower(coalesce(transport_document_reference, '')), $text)
    )
    group by all
),
wanted as (
    select b.*, k.bookings, s.title as holder_title,
        o.state as outlook, o.minutes_left, o.minutes_left_low, o.minutes_left_high,
        coalesce(b.custody_event = 'GTOT' and b.holder is null, false) as gone
    from boxes b
    left join booked k on k.equipment_reference = b.equipment_reference
    left join sites s on s.site = b.holder
    left join outlook o on o.equipment_reference = b.equipment_reference and o.as_of_date_time >= b.reading_date_time
    where $text = '' or k.equipment_reference is not null
        or ($number <> '' and contains(b.equipment_reference, $number))
        or contains(lower(coalesce(b.customer, '')), $text)
        or contains(lower(coalesce(b.booking_reference, '')), $text)
)
select *, case
    when worst_severity in ('CRITICAL', 'ALARM') then 'bad'
    when gone then 'quiet'
    when immersed or not in_band or outlook = 'FAILING' then 'bad'
    when open_alerts > 0 or excursions > 0 or door_open
        or (setpoint_temperature is not null and not coalesce(is_connected_to_power_source and is_powered, true))
        or abs(setpoint_temperature - agreed_temperature) > 0.05 then 'warn'
    when reading_date_time is null then 'quiet'
    else 'good' end as tone
from wanted
"""  # noqa: S608  # our own text
"""``$text``: what to look for, in small letters; ``$number``: the same as part of a container number."""

_SHOWN: Final = """
select * from judged where $tone = '' or tone = $tone
order by list_position(['bad', 'warn', 'good', 'quiet'], tone), minutes_left nulls last,
    list_position(['CRITICAL', 'ALARM', 'WARNING'], worst_severity) nulls last, equipment_reference
limit $most
"""


def read_list(paths: TablePaths, folder: Path, text: str, tone: str = "") -> Listed:
    """Return the containers whose number, booking, transport document, customer or consignee has the text in it.

    Args:
        folder: The topology's state folder.
        text: Empty: all containers. Capitals and small letters are the same; in numbers, blanks do not count.
        tone: One of ``TONES``, or empty: all.

    Raises:
        UnavailableError: shore has not written any table yet.
    """
    with open_slices(paths) as found:
        for name in ("containers_now", "bookings", "sites", "outlook"):
            found.add(name)
        found.add("alerts_now", pc.field("state") != "CLEARED")
        found.check_any()
        first = found.row("select min(held_since) as first from containers_now")["first"]
        found.add("excursions", None if first is None else pc.field("end_date_time") > pa.scalar(first, TIME))
        found.run(_JUDGED, text=text.strip().lower(), number=normalised(text), code="")
        rows = found.rows(_SHOWN, tone=tone, most=LISTED)
        counts = {
            row["tone"]: row["boxes"] for row in found.rows("select tone, count(*) as boxes from judged group by 1")
        }
        as_of = found.row("select max(seen_date_time) as as_of from containers_now")["as_of"]
        return Listed(
            rows=tuple(row | {"concerns": concerns(row), "where": _where(row)} for row in rows),
            counts={name: counts.get(name, 0) for name in TONES},
            as_of=as_of,
            doubts=_doubts(folder, paths, found),
        )


TONES: Final = {
    "bad": "Trouble",
    "warn": "Look at it",
    "good": "Nothing wrong",
    "quiet": "Gone or never heard",
}
"""The tone of a container in the list, and what it is called."""


def _where(row: Row) -> str:
    if row["gone"]:
        return "left by the gate"
    place = row["vessel"] or row["holder_title"] or row["holder"] or ""
    return f"{place}, lost overboard" if OVERBOARD in row["alert_kinds"] else str(place)


# --- one container


@dataclass(frozen=True, slots=True)
class Seen:
    """Everything that a container's page shows.

    Args:
        outlook: Its row of table ``outlook``; None without one.
        milestones: Rows of that table, the newest first.
        ship: The row of ``ships_now`` of the ship that holds it; None ashore.
        samples: What it measured (``course.samples``).
        as_of: The newest time that the tables know of any container.
        doubts: What the page may lack, in sentences.
    """

    report: ContainerReport
    outlook: Row | None
    milestones: tuple[Row, ...]
    ship: Row | None
    samples: tuple[Row, ...]
    feeds: ContainerFeeds
    as_of: dt.datetime | None
    doubts: tuple[str, ...]


def read_container(paths: TablePaths, folder: Path, topology: Topology, box: str) -> Seen:
    """Read what the tables know of one container.

    Raises:
        UnknownContainerError: the number is not valid by ISO 6346, or no table has it.
        UnavailableError: shore has not written any table yet, or one cannot be read.
    """
    with open_container(paths, box, payloads=False) as found:
        found.add("milestones", of_container(box))
        found.add("outlook", of_container(box))
        report = container_report(found, box)
        found.add("ships_now", pc.field("vessel_imo_number") == (report.latest or {}).get("vessel_imo_number"))
        found.add("containers_now", as_="all_now")
        outlook, ship = found.rows("select * from outlook"), found.rows("select * from ships_now")
        return Seen(
            report=report,
            outlook=outlook[0] if outlook else None,
            milestones=tuple(found.rows("select * from milestones order by event_date_time desc, event_id, milestone")),
            ship=ship[0] if ship else None,
            samples=tuple(course.samples(found)),
            feeds=feeds_of_container(topology, folder, box),
            as_of=found.row("select max(seen_date_time) as as_of from all_now")["as_of"],
            doubts=_doubts(folder, paths, found),
        )


def _doubts(folder: Path, paths: TablePaths, found: Slices) -> tuple[str, ...]:
    """What is not known because a job has trouble or a table is not there, in sentences."""
    read = {*found.versions, *found.missing}
    sentences = [f"{each[0].upper()}{each[1:]}." for each in table_warnings(folder, paths, read)]
    if found.missing:
        names = ", ".join(sorted(found.missing))
        sentences.append(f"These tables are not there yet, so nothing is said of what they hold: {names}.")
    return tuple(sentences)


# --- the drawings


def chart_of(samples: Sequence[Row], report: ContainerReport) -> Json:
    """Return the chart of what a container measured, for ``chart.js``. What the ship has measured and has not sent
    ashore is a gap to the end."""
    ahead = _not_ashore(report)
    until = None if ahead is None else ahead.end
    return chart_of_readings(samples, _spans(samples, report, until), until=until)


def _spans(samples: Sequence[Row], report: ContainerReport, until: dt.datetime | None) -> list[Json]:
    if not samples:
        return []
    first, last = samples[0]["time"], until or samples[-1]["time"]
    ahead = _not_ashore(report)
    intervals = course.joined([*report.states, *report.gaps], (last - first) / _DRAWN)
    intervals += [*report.wrong_set_points, *([ahead] if ahead else [])]
    found = [
        span(each.start, each.end, KINDS.get(each.kind, "other"), each.detail or STATES.get(each.kind, each.kind))
        for each in intervals
    ]
    found += [
        span(row["start_date_time"], row["end_date_time"], "excursion", _told_excursion(row))
        for row in report.excursions
        if row["quantity"] != "POWER"  # that is when it is unplugged
    ]
    return found


def _told_excursion(row: Row) -> str:
    unit = "%" if row["quantity"] == "HUMIDITY" else "°C"
    worst = "" if row["worst_value"] is None else f", worst {number(row['worst_value'])} {unit}"
    return f"{row['quantity'].lower()} {(row['direction'] or '').lower()}".strip() + worst


def _not_ashore(report: ContainerReport) -> Interval | None:
    """From the newest reading ashore to what the ship's digest tells: the ship has these readings."""
    latest, last = report.latest, report.figures.last_date_time
    if latest is None or latest["reading_source"] != "DIGEST" or last is None or latest["reading_date_time"] <= last:
        return None
    detail = "not ashore yet: the ship has these readings"
    return Interval(kind="GAP", start=last, end=latest["reading_date_time"], detail=detail)


def map_of(report: ContainerReport, ship: Row | None = None) -> Json:
    """Return the map of a container's way, for ``map.js``: its track, the ports that it touched or is booked for, its
    alerts, and where it is now.

    A track ends where the positions begin to come from another source, and where the box sent nothing; a quiet link
    that says so joins its ends. Tracks may cross the date line: ``map.js`` keeps both sides together.
    """
    tracks: list[Json] = []
    links: list[Json] = []
    last: Row | None = None
    for row in report.way:
        gap = None if last is None else _gap_between(report.gaps, last, row)
        if last is None or gap is not None or row["source"] != last["source"]:
            name = "Own positions" if row["source"] == "OWN" else "Positions of the ship that held it"
            tracks.append({"name": name, "points": []})
            if last is not None:
                title = f"nothing heard for {duration(gap.minutes)}" if gap else "no position between these"
                links.append({"from": _point(last), "to": _point(row), "tone": "quiet", "title": title})
        tracks[-1]["points"].append(_point(row))
        last = row
    ports = [port_mark(port, href=f"/ports/{port.unlocode}") for port in ports_of(report)]
    events = [_event(row) for row in report.alerts if row["latitude"] is not None and row["longitude"] is not None]
    return {"ports": ports, "tracks": tracks, "links": links} | _now_on_map(report, ship, events)


def _gap_between(gaps: Sequence[Interval], before: Row, after: Row) -> Interval | None:
    """The box's silence between two of its own positions."""
    if before["source"] != "OWN" or after["source"] != "OWN":
        return None
    return next((each for each in gaps if before["time"] <= each.start and each.end <= after["time"]), None)


def _point(row: Row) -> list[float]:
    return [row["latitude"], row["longitude"]]


def _event(alert: Row) -> Json:
    ended = alert["state"] == "CLEARED"
    label = f"{alert['kind']}, {to_minutes(alert['opened_date_time'])} UTC, {'cleared' if ended else 'open'}"
    return event(label, alert, "quiet" if ended else SEVERITIES.get(alert["severity"] or "", "warn"))


def _now_on_map(report: ContainerReport, ship: Row | None, events: list[Json]) -> Json:
    """The ship that holds it, which moves as it sails; ashore, or without a ship's position, where it was last."""
    now = report.latest
    if ship is not None and ship["latitude"] is not None and ship["longitude"] is not None:
        imo = ship["vessel_imo_number"]
        about = {"name": (now or {}).get("vessel") or imo, "tone": ""}
        return {"ships": [about | ship_at(imo, place_in_row(ship))], "events": events}
    if now is not None and now["latitude"] is not None and now["longitude"] is not None:
        label = f"{report.equipment_reference}, {to_minutes(now['position_date_time'])} UTC"
        return {"ships": [], "events": [*events, event(label, now, "good")]}
    return {"ships": [], "events": events}


# --- what the page says

_POWER: Final = {
    "POWERED": ("on", "good"),
    "NO_POWER": ("plugged in, off", "bad"),
    "UNPLUGGED": ("not plugged in", "bad"),
    None: ("not known", "quiet"),
}
_CUSTODY: Final = MOVEMENTS | {"HAND": "handed over by order", "SEIZURE": "seized"}
_MILESTONES: Final = MOVEMENTS | {"TRANSHIPMENT": "transhipped", "CHANGE_OF_VESSEL": "changed ship"}
_FEEDS: Final = {
    "detailed": "every reading",
    "coarse": "coarse readings",
    "movements": "movements",
    "alerts": "alerts",
}


def page_values(seen: Seen) -> Json:
    """Return what the templates of a container's page need. It is small: the answer for a container is kept a while."""
    report = seen.report
    sites = {name: row["title"] or name for name, row in report.sites.items()}
    drawn = chart_of(seen.samples, report)
    on_map = map_of(report, seen.ship)
    wrong = concerns_of(report)
    return {
        "number": report.equipment_reference,
        "r": msgspec.structs.replace(report, way=(), alert_readings=(), states=(), mkt=(), quality=(), rejected=()),
        "f": report.figures,
        "now": _now(seen),
        "left": outlook_of(seen.outlook, report.latest),
        "concerns": wrong,
        "lost": any(row["kind"] == OVERBOARD for row in report.alerts if _is_open(row)),
        "urgent": any(SEVERITIES.get(row["severity"] or "") == "bad" for row in report.alerts if _is_open(row)),
        "sites": sites,
        "container_alerts": sorted(report.alerts, key=_open_and_newest)[:_TOLD],
        "alerts_in_all": len(report.alerts),
        "excursions": report.excursions[: -_TOLD - 1 : -1],
        "drawn": bool(drawn["panels"]),
        "chart_json": _json(drawn),
        "chart_words": _chart_in_words(drawn, report),
        "way_words": _way_in_words(report),
        "mapped": any(on_map.values()),
        "map_json": _json(on_map),
        "milestones": seen.milestones[:_TOLD],
        "milestones_in_all": len(seen.milestones),
        "custody": sorted(report.custody, key=_newest_first)[:_TOLD],
        "gaps": gaps_of(report, sites),
        "gap_minutes": sum(each.minutes for each in report.gaps),
        "states": _longest(report),
        "feeds": seen.feeds,
        "as_of": seen.as_of,
        "doubts": seen.doubts,
        "told": _TOLD,
        "custody_words": _CUSTODY,
        "milestone_words": _MILESTONES,
        "feed_words": _FEEDS,
        "severities": SEVERITIES,
    }


def _json(value: Json) -> Markup:
    """JSON for a ``script`` element; no text in it ends the element."""
    return htmlsafe_json_dumps(value, separators=(",", ":"))


def _is_open(alert: Row) -> bool:
    return bool(alert["state"] != "CLEARED")


def _open_and_newest(alert: Row) -> tuple[bool, float]:
    opened = alert["opened_date_time"]
    return not _is_open(alert), 0.0 if opened is None else -opened.timestamp()


def _way_in_words(report: ContainerReport) -> str:
    """The map for those who cannot see it."""
    named = ", ".join(port.name for port in ports_of(report))
    ports = f"; ports: {named}" if named else ""
    if not report.way:
        return f"Map: no position of {report.equipment_reference} is known{ports}."
    first, last = report.way[0], report.way[-1]
    when = f"{to_minutes(first['time'])} to {to_minutes(last['time'])} UTC"
    return f"Map of the way of {report.equipment_reference}, {when}{ports}."


def _chart_in_words(chart: Json, report: ContainerReport) -> str:
    """The chart for those who cannot see it; ``chart.js`` adds the lowest and highest value of each line."""
    counted = [count(len(report.excursions), "excursion"), count(len(report.gaps), "gap")]
    f = report.figures
    counted += [
        f"{what} {number(low)} to {number(high)} degrees Celsius"
        for what, low, high in (("supply air", f.supply_min, f.supply_max), ("return air", f.return_min, f.return_max))
        if low is not None
    ]
    span = f"{to_minutes(f.first_date_time)} to {to_minutes(f.last_date_time)} UTC"
    panels = ", ".join(panel["title"].lower() for panel in chart["panels"])
    return f"Chart of {panels or 'nothing'}, {span}; {', '.join(counted)}"


def _now(seen: Seen) -> Json:
    latest = seen.report.latest
    if latest is None:
        return {"row": None, "power": _POWER[None], "silent": None, "digest": False}
    read = latest["reading_date_time"]
    silence = None if read is None or seen.as_of is None else seen.as_of - read
    return {
        "row": latest,
        "power": _POWER[power_state(latest["is_connected_to_power_source"], latest["is_powered"])],
        "silent": silence / dt.timedelta(minutes=1) if silence is not None and silence > _SILENT else None,
        "digest": latest["reading_source"] == "DIGEST",
    }


def concerns_of(report: ContainerReport) -> tuple[str, ...]:
    """Return what is wrong with a container now, in words; excursions count since its holder got it."""
    latest = report.latest
    if latest is None:
        return ()
    open_alerts = [row for row in report.alerts if _is_open(row)]
    since = latest["held_since"]
    out = [
        row
        for row in report.excursions
        if row["quantity"] == "TEMPERATURE" and since is not None and row["end_date_time"] > since
    ]
    return concerns(
        latest
        | {
            "alert_kinds": sorted({row["kind"] for row in open_alerts}),
            "acknowledged_by": sorted({row["acknowledged_by"] for row in open_alerts if row["acknowledged_by"]}),
            "excursions": len(out),
            "minutes_out_of_band": sum(row["minutes_out_of_band"] for row in out),
            "agreed_temperature": report.booking["setpoint_temperature"] if report.booking else None,
        }
    )


def outlook_of(outlook: Row | None, latest: Row | None) -> Json:
    """Return how long its cargo stays in its band, as ``text``, ``note`` and ``tone``; never minutes without their
    spread, and never those of an older reading."""
    if outlook is None or outlook["state"] is None:
        why = "nobody has estimated it yet" if outlook is None else "its newest reading has no set point"
        return {"text": "not known", "note": why, "tone": "quiet"}
    read = None if latest is None else latest["reading_date_time"]
    if read is not None and outlook["as_of_date_time"] < read:
        note = f"the last estimate is of {to_minutes(outlook['as_of_date_time'])} UTC, before its newest reading"
        return {"text": "not known", "note": note, "tone": "quiet"}
    if outlook["state"] == "RUNNING":
        return {"text": "stays", "note": "it runs, and the air is in its band", "tone": "good"}
    causes = {"UNPLUGGED": "no power", "WRONG_SETPOINT": "wrong set point", "FAILING": "the air is out of its band"}
    cause = f"{causes.get(outlook['state'], outlook['state'])} since {to_minutes(outlook['since_date_time'])} UTC"
    spread = (outlook["minutes_left_low"], outlook["minutes_left_high"])
    if outlook["minutes_left"] is None or None in spread:
        return {"text": "not known", "note": f"{cause}; too few readings for an estimate", "tone": "warn"}
    if outlook["minutes_left"] == 0:
        return {"text": "has left it", "note": cause, "tone": "bad"}
    note = f"{duration(spread[0])} to {duration(spread[1])} in nine of ten boxes; {cause}"
    return {"text": f"about {duration(outlook['minutes_left'])}", "note": note, "tone": "bad"}


def gaps_of(report: ContainerReport, sites: Mapping[str, str]) -> list[Json]:
    """Return when nothing was heard, the newest first: ``start``, ``end``, ``minutes``, ``where``, and ``why`` (empty:
    nobody knows)."""
    ahead = _not_ashore(report)
    intervals = [*report.gaps, *([ahead] if ahead else [])]
    found = []
    for each in sorted(intervals, key=lambda each: each.start, reverse=True)[:_TOLD]:
        holder = _holder_at(report.custody, each.start)
        at_sea = holder is not None and holder in report.sites and report.sites[holder]["kind"] == "ship"
        where = None if holder is None else f"{'aboard' if at_sea else 'at'} {sites.get(holder, holder)}"
        found.append(
            {"start": each.start, "end": each.end, "minutes": each.minutes, "where": where, "why": each.detail}
        )
    return found


def _holder_at(custody: Sequence[Row], moment: dt.datetime) -> str | None:
    for row in custody:
        begins, ends = row["from_date_time"], row["to_date_time"]
        if not row["lost"] and begins is not None and begins <= moment and (ends is None or moment < ends):
            holder: str | None = row["holder"]
            return holder
    return None


def _longest(report: ContainerReport) -> list[Interval]:
    events = [each for each in (*report.states, *report.wrong_set_points) if each.kind != "DEFROST"]
    longest = sorted(events, key=lambda each: -each.minutes)[:_TOLD]
    return sorted(longest, key=lambda each: each.start, reverse=True)


def _newest_first(row: Row) -> tuple[float, int]:
    begins = row["from_date_time"]
    return (0.0 if begins is None else -begins.timestamp(), -row["term"])


# --- the page as one file, and the pack


def container_file(found: Slices, report: ContainerReport, warnings: Sequence[str] = ()) -> str:
    """Return the page of a report as one file: for a claim, so with everything that the tables say of its time, and
    without who else reads the container's records.

    Args:
        found: What ``open_container`` opened for the report.
        warnings: What the report may lack (``table_warnings``), shown at the top.
    """
    found.add("milestones", of_container(report.equipment_reference))
    milestones = found.rows("select * from milestones order by event_date_time desc, event_id, milestone")
    nobody = ContainerFeeds(entitled=(), bookings=())
    doubts = tuple(f"Not certain: {each}." for each in warnings)
    seen = Seen(report, None, tuple(milestones), None, tuple(course.samples(found)), nobody, None, ())
    behind: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in report.alert_readings:
        behind[row["raised_at"], row["alert_id"]].append(row)
    defrosts = [each for each in report.states if each.kind == "DEFROST"]
    values = page_values(seen) | {
        "r": report,
        "live": "",
        "alerts": (),
        "out": out_of_band(report),
        "behind": behind,
        "defrosts": len(defrosts),
        "defrost_minutes": sum(each.minutes for each in defrosts),
        "missing_numbers": sum(row["missing"] or 0 for row in report.quality),
        "sources": position_sources(report),
        "rejected_shown": _REJECTED_SHOWN,
        "warnings": doubts,
    }
    return document("container.html.j2", "", **values)


_REJECTED_SHOWN: Final = 50  # records that could not be read; a file beside the page has all


def packed(
    paths: TablePaths, folder: Path, box: str, since: dt.datetime | None = None, until: dt.datetime | None = None
) -> IO[bytes]:
    """Return the claims pack of a container as an open zip, at its beginning.

    The folder in which it is made is removed before this returns, and the zip itself has no name: nothing stays on the
    disk, whatever becomes of the download.

    Raises:
        UnknownContainerError: the number is not valid by ISO 6346, or no table has it.
        UnavailableError: a table cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="fairlead-pack-") as scratch:
        files = Path(scratch) / box
        with open_container(paths, box, since, until) as found:
            report = container_report(found, box, since, until)
            page = container_file(found, report, table_warnings(folder, paths, report.versions))
            write_pack(found, report, files, page)
        made: IO[bytes] = tempfile.TemporaryFile(prefix="fairlead-pack-")  # given to the caller
        try:
            with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
                for file in sorted(files.iterdir()):
                    kind = zipfile.ZIP_STORED if file.suffix == ".parquet" else zipfile.ZIP_DEFLATED
                    archive.write(file, f"{box}/{file.name}", compress_type=kind)
        except BaseException:
            made.close()
            raise
    made.seek(0)
    return made


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while chunk := file.read(1 << 16):
            yield chunk


# --- the handlers


async def containers(board: BoardService, request: Request) -> Response:
    """Find containers. A whole number leads to its page."""
    text, tone = _asked(request)
    if is_container_number(normalised(text)):
        return RedirectResponse(f"/containers/{normalised(text)}", 303)
    values = await _list_values(board, text, tone)
    return board.page(request, "containers.html.j2", live="/live", **values)


async def container_rows(board: BoardService, request: Request) -> Response:
    """The part of the list that is read again."""
    values = await _list_values(board, *_asked(request))
    return board.page(request, "containers_rows.html.j2", **values)


def _asked(request: Request) -> tuple[str, str]:
    tone = request.query_params.get("show", "")
    return request.query_params.get("q", "")[:_LONGEST_SEARCH].strip(), tone if tone in TONES else ""


async def _list_values(board: BoardService, text: str, tone: str) -> Json:
    read = partial(read_list, board.paths, board.context.folder, text, tone)
    listed = await board.read_once(("containers", text.lower(), tone), read)
    return {
        "listed": listed,
        "shown_of": listed.counts[tone] if tone else listed.found,
        "q": text,
        "tone": tone,
        "tones": TONES,
        "powers": _POWER,
        "power_state": power_state,
        "rows_at": f"/containers/rows?{urlencode({'q': text, 'show': tone})}",
    }


async def container(board: BoardService, request: Request) -> Response:
    """One container's history."""
    box = normalised(request.path_params["number"])[:_LONGEST_SEARCH]
    if box != request.path_params["number"] and is_container_number(box):
        return RedirectResponse(f"/containers/{box}", 307)
    values = await _values(board, box)
    viewer = board.signed_in(request)
    values |= alert_panel(board, viewer, lambda alert: alert.equipment_reference == box, f"/containers/{box}")
    board.audit.note_look(viewer.name, address_of(request), box)
    return board.page(request, "container.html.j2", live=f"/live?container={box}", **values)


async def latest(board: BoardService, request: Request) -> Response:
    """The part of a container's page with its newest state."""
    return await _fragment(board, request, "container_latest.html.j2")


async def history(board: BoardService, request: Request) -> Response:
    """The part of a container's page with its history."""
    return await _fragment(board, request, "container_history.html.j2")


async def _fragment(board: BoardService, request: Request, template: str) -> Response:
    box = request.path_params["number"]
    values = await _values(board, box)
    board.audit.note_look(board.signed_in(request).name, address_of(request), box, again=True)
    return board.page(request, template, **values)


async def _values(board: BoardService, box: str) -> Json:
    def read() -> Json:
        return page_values(read_container(board.paths, board.context.folder, board.topology, box))

    return dict(await board.read_once(("container", box), read))


_packing: Final = asyncio.Semaphore(1)  # packs take seconds; pages are read meanwhile


async def pack(board: BoardService, request: Request) -> Response:
    """The files for a claim, as a ZIP archive. Without days, about all that is known."""
    box = normalised(request.path_params["number"])[:_LONGEST_SEARCH]
    since, until = _day(request, "since"), _day(request, "until")
    if until is not None and until.date() < dt.date.max:
        until += dt.timedelta(days=1)
    if since is not None and until is not None and until <= since:
        raise HTTPException(400, "The last day is before the first.")
    async with _packing:
        made = await board.read(packed, board.paths, board.context.folder, box, since, until)
    try:
        times = {name: f"{at:%Y-%m-%d}" for name, at in (("since", since), ("until", until)) if at is not None}
        board.audit.note("took-claims-pack", board.signed_in(request).name, address_of(request), container=box, **times)
        made.seek(0, 2)
        headers = {"Content-Disposition": f'attachment; filename="{box}.zip"', "Content-Length": str(made.tell())}
        made.seek(0)
    except BaseException:
        made.close()
        raise
    return StreamingResponse(_chunks(made), media_type="application/zip", headers=headers)


def _day(request: Request, name: str) -> dt.datetime | None:
    text = request.query_params.get(name, "").strip()
    if not text:
        return None
    try:
        return dt.datetime.combine(dt.date.fromisoformat(text), dt.time(), dt.UTC)
    except ValueError:
        raise HTTPException(400, "A day is written as 2026-03-01.") from None


_LISTED: Final = (
    Field("q", "What to find in numbers, bookings and places.", {"type": "string", "maxLength": _LONGEST_SEARCH}),
    Field("show", "Only those in this state.", {"type": "string", "enum": ["", *TONES]}),
)
_BOX: Final = (Field("number", "A container's number by ISO 6346.", example="CSQU3054383"),)
_DAYS: Final = (
    Field("since", "The first day, in UTC.", DAY, "2026-03-01"),
    Field("until", "The last day, in UTC.", DAY, "2026-03-07"),
)
_FOUND: Final = {303: "To the container's page, or to /sign-in."}
_SPELT: Final = {307: "To the number as records write it."}

PAGES: Final = (
    Page("/containers", containers, Access.STAFF, fields=_LISTED, answers=_FOUND),
    Page("/containers/rows", container_rows, Access.STAFF, fields=_LISTED),
    Page("/containers/{number}", container, Access.STAFF, fields=_BOX, answers=_SPELT),
    Page("/containers/{number}/latest", latest, Access.STAFF, fields=_BOX),
    Page("/containers/{number}/history", history, Access.STAFF, fields=_BOX),
    Page(
        "/containers/{number}/pack",
        pack,
        Access.STAFF,
        fields=(*_BOX, *_DAYS),
        media=("application/zip",),
        answers={400: "A day is none, or the last is before the first."},
    ),
)
