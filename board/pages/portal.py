"""The portal of a customer: its own boxes, as its feed has them (``board.own_feed``).

Whose table is opened follows from who has signed in; no part of a request is a customer's name. What a customer was not
given and what does not exist get the same answer.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from board.drawing import (
    KINDS,
    SEVERITIES,
    Json,
    chart_of_hours,
    chart_of_readings,
    event,
    port_marks,
    span,
    to_the_minute,
    track,
)
from board.openapi import Field
from board.own_feed import (
    WHATS,
    Box,
    BoxStory,
    OwnFeed,
    box_story,
    boxes,
    export,
    has_box,
    open_own_feed,
    trouble_of_feeds,
)
from board.service import BoardService, Page, address_of
from board.viewer import Access
from fairlead.records.reading import describe_power_loss
from shore.alerts.rules import FROZEN_SETPOINT
from shore.report.container import normalised
from shore.report.course import joined
from shore.report.slices import Row
from shore.report.wording import MOVEMENTS, STATES, duration, number
from topologies.drawing.seachart import ports

_LONGEST: Final = 60  # characters of a number
_TOLD: Final = 200  # rows of a list; the files have all
_DRAWN: Final = 1200  # intervals that are closer together than this part of the axis are drawn as one
_QUIET: Final = dt.timedelta(hours=24)  # without news, a box's state is not shown as its state now
_TONES: Final = ("bad", "warn", "good", "quiet")
_FORMS: Final = {"csv": "text/csv; charset=utf-8", "parquet": "application/vnd.apache.parquet"}
_OF_ALL: Final = ("alerts", "milestones")  # files about all boxes at once

GAPS: Final = {
    "GAP": "nothing heard",
    "LATE": "no signal at sea, back-filled later",
    "AT_SEA": "no signal at sea: the readings follow, until then the ship's digest stands for them",
}
"""What a gap is called."""

EXCURSIONS: Final = {"TEMPERATURE": "temperature", "HUMIDITY": "humidity", "POWER": "no power"}


# --- what the pages say. Pure.


def state_of(box: Box, now: dt.datetime) -> list[tuple[str, str]]:
    """Return the state of a box as words, each with its tone, the worst first."""
    found = [(alert_words(row), _tone_of(row)) for row in box.alerts]
    if box.heard is None:
        found.append(("no measurements", "quiet"))
    elif now - box.heard > _QUIET:
        found.append((f"nothing heard for {duration((now - box.heard) / dt.timedelta(minutes=1))}", "quiet"))
    else:
        found += _conditions_of_newest(box)
    return sorted(dict.fromkeys(found), key=lambda each: _TONES.index(each[1]))


def _conditions_of_newest(box: Box) -> list[tuple[str, str]]:
    row = box.newest
    if box.source == "conditions":
        found = []
        if (row["minutes_out_of_band"] or 0) > 0:
            found.append((f"out of band for {duration(row['minutes_out_of_band'])} of the hour", "bad"))
        if (row["minutes_without_power"] or 0) > 0:
            found.append((f"without power for {duration(row['minutes_without_power'])} of the hour", "warn"))
        return found or [("in band", "good")]
    found = []
    if row["in_band"] is False:
        found.append(("out of band", "bad"))
    if row["immersed"]:
        found.append(("in water", "bad"))
    plugged, powered = row["is_connected_to_power_source"], row["is_powered"]
    if row["setpoint_temperature"] is not None and not (plugged and powered):
        found.append((describe_power_loss(plugged), "warn"))
    if row["door_open"]:
        found.append(("door open", "warn"))
    if row["is_disturbed"]:
        found.append(("defrosting or being inspected", "quiet"))
    if row["in_band"] and not found:
        found.append(("in band", "good"))
    return found or [("heard", "good")]


def alert_words(row: Row) -> str:
    """Return the kind of an alert in words."""
    return str(row["alert"]).replace("_", " ").lower()


def _tone_of(alert: Row) -> str:
    if alert["state"] == "CLEARED":
        return "quiet"
    return SEVERITIES.get(alert["severity"], "warn")


def value_of(source: str, row: Row) -> Json:
    """Return the newest value of a box: ``celsius`` of the air that is controlled, ``what`` that is, ``wanted``."""
    if source == "conditions":
        return {"celsius": row["supply_temperature_mean"], "what": "supply air, mean of the hour", "wanted": None}
    if source not in ("reading", "digest"):
        return {"celsius": None, "what": "", "wanted": None}
    wanted = row["setpoint_temperature"]
    frozen = wanted is not None and wanted <= FROZEN_SETPOINT
    what = "return air" if frozen else "supply air"
    celsius = row["return_temperature"] if frozen else row["supply_temperature"]
    if celsius is None and wanted is None and "ambient_temperature" in row:
        celsius, what = row["ambient_temperature"], "outside the box"
    return {
        "celsius": celsius,
        "what": f"{what}, by the ship's digest" if source == "digest" else what,
        "wanted": wanted,
    }


def event_words(row: Row) -> str:
    """Return a milestone, movement or change of custody in words."""
    words = MOVEMENTS.get(
        row["event"], {"HAND": "handed over", "SEIZURE": "taken over"}.get(row["event"], row["event"])
    )
    if row["kind"] == "custody":
        given = [part for part in (row["from_site"], row["to_site"]) if part]
        return f"{words}: {' to '.join(given)}" if given else str(words or "custody")
    where = place_name(row["un_location_code"])
    ship = row["vessel"] or (f"ship {row['vessel_imo_number']}" if row["vessel_imo_number"] else "")
    parts = [str(words or "event"), where, ship, f"voyage {row['voyage_reference']}" if row["voyage_reference"] else ""]
    return ", ".join(part for part in parts if part)


def place_name(code: str | None) -> str:
    """Return a port's name for its UN/LOCODE; the code itself where no name is known."""
    if not code:
        return ""
    known = ports().get(code)
    return f"{known.name} ({code})" if known is not None and known.name else code


def listed(found: Sequence[Box], now: dt.datetime) -> list[Json]:
    """Return what the list shows of each box, those with problems first."""
    rows = []
    for box in found:
        states = state_of(box, now)
        rows.append(
            {
                "box": box,
                "states": states,
                "tone": states[0][1],
                "value": value_of(box.source, box.newest),
                "event": "" if box.event is None else event_words(box.event),
                "event_at": None if box.event is None else box.event["event_date_time"],
                "old": box.heard is None or now - box.heard > _QUIET,
            }
        )
    return sorted(rows, key=lambda row: (_TONES.index(row["tone"]), -len(row["box"].alerts), row["box"].number))


def list_map(rows: Sequence[Json]) -> Json:
    """Return the map of all boxes: each at its newest known place."""
    events = []
    for row in rows:
        place = row["box"].place
        if place is not None:
            seen = to_the_minute(place["device_date_time"])
            events.append(event(f"{row['box'].number}: {row['states'][0][0]}; seen here {seen}", place, row["tone"]))
    codes = [row["box"].event["un_location_code"] for row in rows if row["box"].event is not None]
    return {"ports": port_marks(codes), "events": events}


def chart_of(story: BoxStory) -> Json:
    """Return the chart of a box: its readings, or for a coarse feed its hourly conditions."""
    if story.coarse:
        return chart_of_hours(story.hours, _hourly_spans(story.hours))
    digest = story.digest if story.source == "digest" else None
    return chart_of_readings(story.samples, _spans(story), digest=digest)


def _spans(story: BoxStory) -> list[Json]:
    known = [each["time"] for each in story.samples]
    if story.source == "digest" and story.digest is not None:
        known.append(story.digest["device_date_time"])
    if not known:
        return []
    shortest = (known[-1] - known[0]) / _DRAWN
    found = [
        span(
            each.start, each.end, KINDS.get(each.kind, "other"), GAPS.get(each.kind) or STATES.get(each.kind, each.kind)
        )
        for each in joined([*story.states, *story.gaps], shortest)
    ]
    return found + [
        span(row["start_date_time"], row["end_date_time"], "excursion", excursion_words(row))
        for row in story.excursions
        if row["quantity"] != "POWER"  # that is when it is unplugged
    ]


def _hourly_spans(hours: Sequence[Row]) -> list[Json]:
    found: list[Json] = []
    ended: dt.datetime | None = None
    for hour in hours:
        start, end = hour["window_start"], hour["window_end"]
        if ended is not None and start > ended:
            found.append(span(ended, start, "gap", GAPS["GAP"]))
        for name, kind, label in (
            ("minutes_out_of_band", "excursion", "out of band within the hour"),
            ("minutes_without_power", "unplugged", "without power within the hour"),
        ):
            if (hour[name] or 0) > 0:
                found.append(span(start, end, kind, label))
        ended = end if ended is None else max(ended, end)
    return found


def excursion_words(row: Row) -> str:
    """Return an excursion in words, with its worst value."""
    words: str = EXCURSIONS.get(row["quantity"], row["quantity"].lower())
    if row["worst_value"] is None:
        return words
    unit = "%" if row["quantity"] == "HUMIDITY" else "°C"
    return f"{words}, worst {number(row['worst_value'])} {unit} (set to {number(row['setpoint'])} {unit})"


def map_of(story: BoxStory) -> Json:
    """Return the map of a box's way: its track, its alerts, its last place, the ports of its milestones."""
    events = [
        event(alert_words(row), row, _tone_of(row))
        for row in story.alerts
        if row["latitude"] is not None and row["longitude"] is not None
    ]
    if story.way:
        last = story.way[-1]
        events.append(event(f"last known place, {to_the_minute(last['time'])}", last, ""))
    return {
        "ports": port_marks(row["un_location_code"] for row in story.events),
        "tracks": [track(story.number, story.way)] if len(story.way) > 1 else [],
        "events": events,
    }


def gaps_of(story: BoxStory) -> list[Json]:
    """Return the gaps of a box in words, the newest first."""
    if story.coarse:
        found = [each for each in _hourly_spans(story.hours) if each["kind"] == "gap"]
        gaps = [
            (dt.datetime.fromtimestamp(each["from"], dt.UTC), dt.datetime.fromtimestamp(each["to"], dt.UTC), "GAP")
            for each in found
        ]
    else:
        gaps = [(each.start, each.end, each.kind) for each in story.gaps]
    return [
        {
            "start": start,
            "end": end,
            "minutes": (end - start) / dt.timedelta(minutes=1),
            "words": GAPS[kind],
            "kind": kind,
        }
        for start, end, kind in reversed(gaps)
    ]


# --- the pages


async def mine(service: BoardService, request: Request) -> Response:
    """The customer's own containers, as its feed has them. The page is live."""
    feed = await _own(service, request)
    if feed is None:
        return service.page(request, "portal_without_table.html.j2")
    return service.page(request, "portal.html.j2", live=_live(feed), **await _listed_now(service, feed))


async def mine_now(service: BoardService, request: Request) -> Response:
    """What the list shows of now, for a page that is open."""
    feed = await _own(service, request)
    if feed is None:
        raise HTTPException(404)
    return service.page(request, "portal_boxes.html.j2", **await _listed_now(service, feed))


async def box(service: BoardService, request: Request) -> Response:
    """One of the customer's own containers. The page is live."""
    feed, story, now = await _story(service, request)
    shown = _shown_now(service, feed, story, now) | _shown_lists(story)
    return service.page(request, "portal_box.html.j2", live=_live(feed), **shown)


async def box_now(service: BoardService, request: Request) -> Response:
    """What the page of a container shows of now, for a page that is open."""
    return service.page(request, "portal_box_now.html.j2", **_shown_now(service, *await _story(service, request)))


async def box_lists(service: BoardService, request: Request) -> Response:
    """The lists of the page of a container, for a page that is open."""
    _, story, _ = await _story(service, request)
    return service.page(request, "portal_box_lists.html.j2", **_shown_lists(story))


def _live(feed: OwnFeed) -> str:
    """The address of the events of a page that shows this version of a feed (``board.pages.live``)."""
    return f"/mine/live?version={feed.version}"


async def _listed_now(service: BoardService, feed: OwnFeed) -> Json:
    now = dt.datetime.now(dt.UTC)
    found = await service.read_once(("mine", feed.customer, feed.version), lambda: boxes(feed, now))
    rows = listed(found, now)
    return {
        "rows": rows,
        "counts": {tone: sum(row["tone"] == tone for row in rows) for tone in _TONES},
        "feed": feed,
        "map_data": _drawn(list_map(rows), "events", "ports"),
        "trouble": _trouble(service),
    }


def _drawn(data: Json, *parts: str) -> Json | None:
    """Return the data of a drawing; None while none of these parts has anything to draw."""
    return data if any(data[part] for part in parts) else None


async def _story(service: BoardService, request: Request) -> tuple[OwnFeed, BoxStory, dt.datetime]:
    """Return the customer's feed, what it tells of the container that was asked for, and the time of looking.

    Raises:
        HTTPException: 404, where the customer has no table or no such container.
    """
    feed, asked = await _own(service, request), _number(request)
    if feed is None or not asked:
        raise HTTPException(404)
    now = dt.datetime.now(dt.UTC)
    story = await service.read_once(("mine", feed.customer, feed.version, asked), lambda: box_story(feed, asked, now))
    if story is None:
        raise HTTPException(404)
    return feed, story, now


def _shown_now(service: BoardService, feed: OwnFeed, story: BoxStory, now: dt.datetime) -> Json:
    shown = Box(
        number=story.number,
        heard=story.heard,
        source=story.source,
        newest=story.newest,
        place=None,
        event=story.events[0] if story.events else None,
        alerts=tuple(row for row in story.alerts if row["state"] != "CLEARED"),
    )
    return {
        "story": story,
        "states": state_of(shown, now),
        "value": value_of(story.source, story.newest),
        "ago": None if story.heard is None else (now - story.heard) / dt.timedelta(minutes=1),
        "feed": feed,
        "alerts": story.alerts[:_TOLD],
        "chart_data": _drawn(chart_of(story), "panels"),
        "map_data": _drawn(map_of(story), "tracks", "events", "ports"),
        "trouble": _trouble(service),
    }


def _shown_lists(story: BoxStory) -> Json:
    return {
        "story": story,
        "gaps": gaps_of(story)[:_TOLD],
        "excursions": [{**row, "words": excursion_words(row)} for row in reversed(story.excursions)][:_TOLD],
        "events": [{**row, "words": event_words(row)} for row in story.events][:_TOLD],
        "alerts": [{**row, "words": alert_words(row), "tone": _tone_of(row)} for row in story.alerts][:_TOLD],
        "told": _TOLD,
    }


async def box_file(service: BoardService, request: Request) -> Response:
    """The records of one container, as a file."""
    feed, asked = await _own(service, request), _number(request)
    what, form = request.path_params["what"], request.path_params["form"]
    if feed is None or not asked or what not in WHATS or form not in _FORMS:
        raise HTTPException(404)
    if not await service.read(has_box, feed, asked):
        raise HTTPException(404)
    service.audit.note("took-records", feed.customer, address_of(request), container=asked, what=f"{what}.{form}")
    return await _file(service, export(feed, what, form, asked), f"{asked}-{what}", form)


async def all_file(service: BoardService, request: Request) -> Response:
    """The records of all containers, as a file."""
    feed = await _own(service, request)
    what, form = request.path_params["what"], request.path_params["form"]
    if feed is None or what not in _OF_ALL or form not in _FORMS:
        raise HTTPException(404)
    service.audit.note("took-records", feed.customer, address_of(request), what=f"{what}.{form}")
    return await _file(service, export(feed, what, form), what, form)


async def _own(service: BoardService, request: Request) -> OwnFeed | None:
    """Open the table of the customer who has signed in. Its name comes from the session alone."""
    customer = service.signed_in(request).name
    return await service.read(open_own_feed, service.paths, service.topology, customer)


def _number(request: Request) -> str:
    """The number that was asked for, as records write it; empty where it cannot be one."""
    text = request.path_params["number"]
    return normalised(text) if len(text) <= _LONGEST else ""


def _trouble(service: BoardService) -> list[str]:
    trouble = trouble_of_feeds(service.context.folder)
    return [trouble] if trouble else []


async def _file(service: BoardService, parts: Iterator[bytes], name: str, form: str) -> Response:
    """Stream a file. Its first part is read before the answer begins, so that an error is still told as one."""
    first = await service.read(next, parts, None)

    async def content() -> AsyncIterator[bytes]:
        part = first
        while part is not None:
            yield part
            part = await service.read(next, parts, None)

    safe = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    return StreamingResponse(
        content(),
        media_type=_FORMS[form],
        headers={"Content-Disposition": f'attachment; filename="{safe}.{form}"'},
    )


_BOX: Final = Field("number", "The number of one of the customer's containers.", example="CSQU3054383")
_FORM: Final = Field("form", "The form of the file.", {"type": "string", "enum": [*_FORMS]})
_MEDIA: Final = tuple(each.partition(";")[0] for each in _FORMS.values())
_ALL_FILE: Final = (Field("what", "Which records.", {"type": "string", "enum": [*_OF_ALL]}), _FORM)
_BOX_FILE: Final = (_BOX, Field("what", "Which records.", {"type": "string", "enum": [*WHATS]}), _FORM)

PAGES: Final = (
    Page("/mine", mine, Access.CUSTOMER),
    Page("/mine/now", mine_now, Access.CUSTOMER),
    Page("/mine/{what}.{form}", all_file, Access.CUSTOMER, fields=_ALL_FILE, media=_MEDIA),
    Page("/mine/{number}", box, Access.CUSTOMER, fields=(_BOX,)),
    Page("/mine/{number}/now", box_now, Access.CUSTOMER, fields=(_BOX,)),
    Page("/mine/{number}/lists", box_lists, Access.CUSTOMER, fields=(_BOX,)),
    Page("/mine/{number}/{what}.{form}", box_file, Access.CUSTOMER, fields=_BOX_FILE, media=_MEDIA),
)
