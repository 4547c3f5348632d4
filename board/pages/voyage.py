"""Voyages as they sail: ships on the map, port calls planned and actual, links that open and close, what stays zero.

``/voyages`` shows all ships, and the voyage that ``fairlead voyage run`` sails or has sailed; ``/voyages/IMO`` one
ship. Calls and tracks come from the site's Kafka (``board.itinerary``), links and losses from the status files, the
results from the voyage's report. ``voyage_file`` writes the same page into one file.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime as dt
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from board.drawing import SEVERITIES, Json, event, place_in_record, port_mark, seconds, ship_at, to_the_minute
from board.export import document
from board.itinerary import Itinerary, ShipCall
from board.openapi import NUMBER, Field
from board.pages.alerts import alert_panel
from board.pages.container import chart_of
from board.service import BoardService, Page
from board.viewer import Access, Viewer
from edge.status import ALARMS
from fairlead.errors import FairleadError
from fairlead.fleet_status import LOSS
from fairlead.records.alert import Alert
from fairlead.records.ship import Position
from shore.paths import TablePaths
from shore.report.container import container_report, open_container
from shore.report.course import samples as samples_of
from shore.report.slices import Row, open_slices
from simulators.fleet.routes import route
from simulators.network.controller import CutPeriod
from simulators.report.model import Report
from simulators.voyage.control import Underway, read_underway, report_file
from topologies.drawing.seachart import PortPlace, ports
from topologies.model import SiteKind, Topology

log = logging.getLogger(__name__)

_ROWS: Final = 40  # links in the drawing
_CHANGES: Final = 60  # openings and closings in the list
_MARKS: Final = 200  # alerts on the map
_TICKS: Final = 7
_LINES: Final = 4  # colours of tracks
_SAME: Final = dt.timedelta(hours=1)  # between a departure and that of the same leg in the table
_LOST: Final = frozenset(
    {"mqtt-dropped", "mqtt-session-lost", "flood-dropped", "qos0-dropped", "dead-letters", "strays-gone"}
)

Ways: TypeAlias = Mapping[tuple[str, str], Sequence[tuple[float, float]]]
"""The points (latitude, longitude) of the way over the sea between two ports by UN/LOCODE."""

# --- links


@dataclass(frozen=True, slots=True)
class LinkSpan:
    """A time in which a link was open (``good``) or cut (``bad``). ``left``, ``width``: per cent of the drawing."""

    start: dt.datetime
    end: dt.datetime
    tone: str
    label: str
    left: float
    width: float


@dataclass(frozen=True, slots=True)
class LinkTimeline:
    """Two sites with a link between them: ``title``, the policy in words, and the times when it was open or cut."""

    title: str
    policy: str
    spans: tuple[LinkSpan, ...]
    is_open: bool

    @property
    def words(self) -> str:
        """The drawing for those who cannot see it."""
        told = [f"{each.label} {to_the_minute(each.start)} to {to_the_minute(each.end)}" for each in self.spans]
        return f"{self.title}, {self.policy}: {'; '.join(told) or 'never open'}"


@dataclass(frozen=True, slots=True)
class LinkOpening:
    """One opening or closing of a link, in words."""

    time: dt.datetime
    title: str
    what: str
    tone: str
    why: str


@dataclass(frozen=True, slots=True)
class LinkHistory:
    """The links' timelines over the same time, with ``ticks`` (per cent, text), and the newest changes first.

    Left out are ``never`` links at a berth that were never open, and ``ashore`` links without a ship and without a cut.
    """

    timelines: tuple[LinkTimeline, ...]
    ticks: tuple[tuple[float, str], ...]
    changes: tuple[LinkOpening, ...]
    never: int
    ashore: int = 0
    start: dt.datetime | None = None
    end: dt.datetime | None = None


def link_history(
    topology: Topology,
    itineraries: Iterable[Itinerary],
    cuts: Iterable[CutPeriod],
    until: dt.datetime | None,
    imo: str | None = None,
) -> LinkHistory:
    """Return when links were open, by the ships' calls, and when they were cut.

    A link at a berth is open from the ship's arrival until its departure; all others are open always.

    Args:
        until: The newest time that is known.
        imo: Only the links of this ship.
    """
    only = topology.ship_with(imo) if imo is not None else None
    stays: dict[frozenset[str], list[tuple[dt.datetime, dt.datetime | None]]] = {}
    starts = []
    for itinerary in itineraries:
        ship = topology.ship_with(itinerary.imo)
        for call in itinerary.calls:
            port = topology.port_at(call.port)
            # A ship that was there from the beginning has not arrived.
            arrived = call.arrival.actual or (itinerary.oldest if call.state == "left" else None)
            if ship is not None and port is not None and arrived is not None:
                stays.setdefault(frozenset((ship, port)), []).append((arrived, call.departure.actual))
        starts += [itinerary.oldest] if itinerary.oldest is not None else []
    if until is None or not starts or min(starts) >= until:
        return LinkHistory((), (), (), 0)
    start = min(starts)
    gone: dict[frozenset[str], list[CutPeriod]] = {}
    for cut in cuts:
        gone.setdefault(frozenset(cut.between), []).append(cut)
    scale = partial(_span, start=start, until=until)
    found: list[tuple[bool, LinkTimeline]] = []
    never = ashore = 0
    for pair, policy in _pairs(topology):
        if only is not None and only not in pair:
            continue
        spans = [scale(each.starts, each.ends, "bad", "cut") for each in gone.get(pair, ())]
        if not spans and not any(topology.sites[site].kind is SiteKind.SHIP for site in pair):
            ashore += 1
            continue
        if policy == "always":
            spans.insert(0, scale(start, until, "good", "open"))
            is_open = not any(each.tone == "bad" and each.end >= until for each in spans)
        else:
            calls = stays.get(pair, [])
            never += not calls
            if not calls:
                continue
            spans[:0] = [scale(arrived, left or until, "good", "open") for arrived, left in calls]
            is_open = any(left is None for _, left in calls)
        title = " and ".join(_title(topology, site) for site in _in_order(topology, pair))
        words = "at berth" if policy == "berthed" else "always"
        found.append((policy == "always", LinkTimeline(title, words, tuple(spans), is_open)))
    found.sort(key=lambda each: (each[0], each[1].title))
    timelines = tuple(each for _, each in found[:_ROWS])
    ticks, changes = tuple(_ticks(start, until)), tuple(_changes(timelines, until))
    return LinkHistory(timelines, ticks, changes, never, ashore, start, until)


def _span(
    begins: dt.datetime, ends: dt.datetime, tone: str, label: str, *, start: dt.datetime, until: dt.datetime
) -> LinkSpan:
    whole = until - start
    left = max(0.0, (begins - start) / whole * 100)
    width = max(0.4, (min(ends, until) - begins) / whole * 100)
    return LinkSpan(begins, ends, tone, label, round(left, 3), round(min(width, 100 - left), 3))


def _pairs(topology: Topology) -> Iterator[tuple[frozenset[str], str]]:
    """Yield each pair of linked sites with each policy of its links, once."""
    found = {(frozenset((link.from_, link.to)), link.when) for link in topology.directed_links()}
    yield from sorted(found, key=lambda each: (sorted(each[0]), each[1]))


def _in_order(topology: Topology, pair: Collection[str]) -> list[str]:
    return sorted(pair, key=lambda site: (topology.sites[site].kind is not SiteKind.SHIP, site))


def _title(topology: Topology, site: str) -> str:
    return topology.sites[site].title or site


def _ticks(start: dt.datetime, until: dt.datetime) -> Iterator[tuple[float, str]]:
    """Yield whole days, at most ``_TICKS`` of them; whole hours where there is less than two days."""
    whole = until - start
    unit = dt.timedelta(days=1) if whole >= dt.timedelta(days=2) else dt.timedelta(hours=1)
    step = unit * max(1, -(-whole // (unit * _TICKS)))
    at = start.replace(minute=0, second=0, microsecond=0)
    if unit.days:
        at = at.replace(hour=0)
    while at < until:
        if at >= start:
            text = f"{at:%-d %b}" if unit.days else f"{at:%H:%M}"
            yield round((at - start) / whole * 100, 3), text
        at += step


def _changes(timelines: Iterable[LinkTimeline], until: dt.datetime) -> list[LinkOpening]:
    found = []
    for each in timelines:
        for span in each.spans:
            if span.tone == "bad":
                found.append(LinkOpening(span.start, each.title, "cut", "bad", "the scenario cuts it"))
                if span.end < until:
                    found.append(LinkOpening(span.end, each.title, "back", "good", "the cut is over"))
            elif each.policy == "at berth":
                found.append(LinkOpening(span.start, each.title, "open", "good", "the ship has arrived"))
                if span.end < until:
                    found.append(LinkOpening(span.end, each.title, "closed", "quiet", "the ship has left"))
    return sorted(found, key=lambda change: change.time, reverse=True)[:_CHANGES]


# --- what must stay zero


@dataclass(frozen=True, slots=True)
class ZeroCounter:
    """A number that must stay zero. ``value``: None while nobody has counted it."""

    name: str
    value: int | None
    note: str

    @property
    def tone(self) -> str:
        return "quiet" if self.value is None else "bad" if self.value else "good"


def zero_counters(
    fleet: Mapping[str, Any] | None, report: Report | None, *, underway: bool = False
) -> list[ZeroCounter]:
    """Return what must stay zero: what the sites say now, and what the voyage's report has counted at its end.

    Args:
        fleet: As ``fairlead.fleet_status`` gives it; None if it cannot be read.
        report: The report of the last voyage; None while it sails, or without one.
        underway: Whether a voyage sails, which will have a report.
    """
    sites = fleet["sites"] if fleet is not None else ()
    bridges = [site["bridge"] for site in sites if site["bridge"]]
    dropped = sum(each.count(bridge) for bridge in bridges for each in ALARMS if each.name in _LOST)
    broken = sum(each.count(bridge) for bridge in bridges for each in ALARMS if each.name == "logs-broken")
    wrong = sum(sum(1 for log in site["logs_in_trouble"].values() if log["state"] in LOSS) for site in sites)
    early = sum(log["records"] for site in sites for log in site["overtaken"])
    known = fleet is not None
    now = [
        ZeroCounter(
            "Lost before their log", dropped if bridges else None, "messages that bridges could not keep or use"
        ),
        ZeroCounter("Deleted too early", early if known else None, "records that another site does not have yet"),
        ZeroCounter("Logs in conflict", wrong if known else None, "copies that lack records, or differ"),
        ZeroCounter("Logs with two writers", broken if bridges else None, "another program appended to them"),
    ]
    if report is None and not underway:
        return now
    r = report
    at_end = "counted at the voyage's end"
    later = [
        ZeroCounter("Readings lost", None if r is None else r.readings_lost, at_end),
        ZeroCounter("Readings stored twice", None if r is None else r.readings_repeated, at_end),
        ZeroCounter("Logs that differ", None if r is None else r.logs_differing, "offset by offset, between sites"),
        ZeroCounter(
            "Rows missing in tables",
            None if r is None or not r.shore else abs(r.delta_rows_expected - r.delta_rows) + len(r.tables_different),
            "or wrong, against the logs",
        ),
        ZeroCounter(
            "Seen by the wrong eyes", None if r is None else _leaked(r), "records that a customer must not read"
        ),
        ZeroCounter(
            "False alerts",
            None if r is None else r.false_alerts + len(r.yard.false_alerts),
            "about boxes with nothing wrong",
        ),
    ]
    return [*now, *later]


def _leaked(report: Report) -> int:
    customers = report.customers.values()
    return sum(
        each.foreign_read + len(each.wrongly_allowed) + (each.alerts.foreign if each.alerts else 0)
        for each in customers
    )


# --- ships


@dataclass(frozen=True, slots=True)
class ShipLeg:
    """The way from one call to the next. ``row``: of table ``voyages``, where it has the leg."""

    start: ShipCall
    end: ShipCall
    row: Row | None

    @property
    def state(self) -> str:
        if self.end.arrival.actual is not None:
            return "sailed"
        return "under way" if self.start.departure.actual is not None else "planned"


def legs_of(itinerary: Itinerary, rows: Iterable[Row] = ()) -> list[ShipLeg]:
    """Return the legs of a ship, each with its row of table ``voyages``."""
    own = [row for row in rows if row["vessel_imo_number"] == itinerary.imo and row["departure_date_time"]]
    found = []
    for start, end in zip(itinerary.calls, itinerary.calls[1:], strict=False):
        left = start.departure.actual
        fitting = [row for row in own if left is not None and abs(row["departure_date_time"] - left) <= _SAME]
        found.append(ShipLeg(start, end, fitting[0] if fitting else None))
    return found


@dataclass(frozen=True, slots=True)
class SailingShip:
    """What a page says of one ship. ``line``: the number of its colour; ``now``: what it does, in words and a tone."""

    imo: str
    title: str
    itinerary: Itinerary
    legs: tuple[ShipLeg, ...]
    line: int
    now: tuple[str, str]


def _now(itinerary: Itinerary, names: Mapping[str, str]) -> tuple[str, str]:
    for call in reversed(itinerary.calls):
        if call.state == "in port":
            return f"in {names.get(call.port, call.port)}", "good"
        if call.state == "left":
            following = itinerary.calls[itinerary.calls.index(call) + 1 :]
            return f"bound for {names.get(following[0].port, following[0].port)}" if following else "at sea", "good"
    return ("at sea" if itinerary.track else "not heard yet"), "quiet"


def lanes(pairs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], list[tuple[float, float]]]:
    """Return the way over the sea between ports by UN/LOCODE; the straight line where no way is known. Ports without a
    known place are left out."""
    known, found = ports(), {}
    for pair in pairs:
        if pair[0] not in known or pair[1] not in known:
            continue
        try:
            found[pair] = [(point.latitude, point.longitude) for point in route(*pair).points]
        except FairleadError:
            found[pair] = [(known[code].latitude, known[code].longitude) for code in pair]
    return found


def ahead(itinerary: Itinerary) -> list[tuple[str, str]]:
    """Return the legs that a ship has not ended yet, as pairs of UN/LOCODEs."""
    return [
        (leg.start.port, leg.end.port)
        for leg in legs_of(itinerary)
        if leg.state != "sailed" and leg.start.port != leg.end.port
    ]


def map_of(
    topology: Topology,
    ships: Sequence[SailingShip],
    positions: Mapping[str, Position],
    alerts: Iterable[Alert],
    ways: Ways,
) -> Json:
    """Return the map: tracks so far, the way ahead, ports of call, ships where they are, alerts where they arose."""
    tracks: list[Json] = []
    marks: dict[str, PortPlace] = {}
    known = ports()
    for ship in ships:
        for pair in ahead(ship.itinerary):
            if pair in ways:
                name = f"{ship.title}, planned: {pair[0]} to {pair[1]}"
                tracks.append({"name": name, "points": [*ways[pair]], "line": ship.line, "planned": True})
        if len(ship.itinerary.track) > 1:
            tracks.append({"name": ship.title, "points": [*ship.itinerary.track], "line": ship.line})
        marks |= {call.port: known[call.port] for call in ship.itinerary.calls if call.port in known}
    here = [
        {"name": ship.title, "tone": "", "line": ship.line, "href": f"/voyages/{ship.imo}"} | ship_at(ship.imo, place)
        for ship in ships
        if (record := positions.get(ship.imo)) is not None and (place := place_in_record(record)) is not None
    ]
    return {
        "ports": [
            port_mark(place, _port_name(topology, code), href=f"/ports/{code}") for code, place in sorted(marks.items())
        ],
        "ships": here,
        "tracks": tracks,
        "events": [_mark(each) for each in alerts if each.geo_location is not None][:_MARKS],
    }


def _mark(alert: Alert) -> Json:
    place = alert.geo_location
    assert place is not None  # noqa: S101 - as the caller has checked
    box = f" {alert.equipment_reference}" if alert.equipment_reference else ""
    label = f"{alert.kind.lower().replace('_', ' ')}{box}, {to_the_minute(alert.event_date_time)}"
    tone = "quiet" if alert.state == "CLEARED" else SEVERITIES[alert.severity]
    return event(label, {"latitude": place.latitude, "longitude": place.longitude}, tone)


def _port_name(topology: Topology, code: str) -> str:
    site = topology.port_at(code)
    found = ports().get(code)
    return (topology.sites[site].title if site else "") or (found.name if found else "") or code


# --- the report


def read_report(file: Path) -> Report | None:
    """Return the report of a voyage; None if there is none, or another version has written it."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=Report)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        log.warning("the report of the last voyage cannot be read: %s", error)
        return None


def chart_of_box(paths: TablePaths, topology: Topology, box: str) -> Json | None:
    """Return the chart of one box of a voyage, with its moves as marks; None if the tables do not have it."""
    if not box or topology.shore is None:
        return None
    try:
        with open_container(paths, box, payloads=False) as found:
            report, samples = container_report(found, box), tuple(samples_of(found))
    except FairleadError as error:
        log.warning("no chart of %s: %s", box, error)
        return None
    moves = [
        {
            "time": seconds(row["event_date_time"]),
            "label": f"{row['movement']} {row['un_location_code'] or ''}".strip(),
        }
        for row in report.movements
        if row["event_date_time"] is not None
    ]
    drawn = chart_of(samples, report)
    return drawn | {"marks": moves} if drawn["panels"] else None


# --- the page


@dataclass(frozen=True, slots=True)
class VoyageSources:
    """Everything that a voyage's page is made of.

    Args:
        fleet: As ``fairlead.fleet_status`` gives it; None if it is not known.
        legs: Rows of table ``voyages``.
        positions: The newest position of each ship, by IMO number.
        chart: The drawing of one box; None without one.
        ways: As ``lanes`` gives them.
        doubts: What could not be read, in sentences.
    """

    topology: Topology
    itineraries: tuple[Itinerary, ...] = ()
    underway: Underway | None = None
    report: Report | None = None
    fleet: Mapping[str, Any] | None = None
    legs: tuple[Row, ...] = ()
    positions: Mapping[str, Position] = field(default_factory=dict)
    alerts: tuple[Alert, ...] = ()
    chart: Json | None = None
    ways: Ways = field(default_factory=dict)
    doubts: tuple[str, ...] = ()


def voyage_values(given: VoyageSources, imo: str | None = None) -> Json:
    """Return what the templates of a voyage's page show: all ships, or the one with an IMO number."""
    topology = given.topology
    codes = {call.port for each in given.itineraries for call in each.calls}
    names = {code: _port_name(topology, code) for code in codes}
    ships = [
        SailingShip(
            each.imo,
            _ship_title(topology, each.imo),
            each,
            tuple(legs_of(each, given.legs)),
            1 + at % _LINES,
            _now(each, names),
        )
        for at, each in enumerate(given.itineraries)
        if imo in (None, each.imo)
    ]
    shown = [ship.itinerary for ship in ships]
    times = [each.newest for each in shown if each.newest is not None]
    if given.underway is not None and given.underway.sim_time is not None:
        times.append(given.underway.sim_time)
    cuts = given.report.cuts if given.report is not None else given.underway.cuts if given.underway is not None else ()
    base = "/voyages" if imo is None else f"/voyages/{imo}"
    return {
        "base": base,
        "title": "Voyages" if imo is None else _ship_title(topology, imo),
        "imo": imo,
        "ships": ships,
        "ports": names,
        "underway": given.underway,
        "report": given.report,
        "newest": max(times, default=None),
        "counters": zero_counters(given.fleet, given.report, underway=given.underway is not None),
        "links": link_history(topology, shown, cuts, max(times, default=None), imo),
        "map": map_of(topology, ships, given.positions, given.alerts, given.ways),
        "map_words": _in_words(ships),
        "raised": len(given.alerts),
        "open_alerts": sum(alert.state != "CLEARED" for alert in given.alerts),
        "chart": given.chart,
        "warnings": given.doubts,
    }


def _ship_title(topology: Topology, imo: str) -> str:
    site = topology.ship_with(imo)
    return topology.sites[site].title or site if site is not None else imo


def _in_words(ships: Iterable[SailingShip]) -> str:
    """The map for those who cannot see it."""
    told = "; ".join(f"{ship.title}, {ship.now[0]}" for ship in ships)
    return f"Map of the voyage: {told or 'no ship is known yet'}. The tables below have the same."


async def _sources(board: BoardService, imo: str | None = None) -> VoyageSources:
    """Read everything. What cannot be read is left out, and the page says so."""
    topology = board.topology
    itineraries = board.live.itineraries()
    if imo is not None:
        itineraries = [each for each in itineraries if each.imo == imo]
    pairs = frozenset(pair for each in itineraries for pair in ahead(each))
    run = await board.read_once("voyage", partial(_read_run, board)) if imo is None else (None, None)
    legs: tuple[Row, ...] = ()
    doubts: tuple[str, ...] = ()
    try:
        legs = await board.read_once("legs", partial(_read_legs, board.paths))
    except FairleadError as error:
        doubts = (f"Distances and speeds of legs are not known: {error.what}.",)
    return VoyageSources(
        topology,
        tuple(itineraries),
        underway=run[0],
        report=run[1],
        fleet=await board.fleet_status(),
        legs=legs,
        positions=board.live.positions(),
        alerts=tuple(alert for alert in board.live.alerts() if imo is None or of_ship(topology, imo, alert)),
        ways=await board.read_once(("lanes", pairs), partial(lanes, pairs)),
        doubts=doubts,
    )


def _read_run(board: BoardService) -> tuple[Underway | None, Report | None]:
    folder = board.context.folder
    return read_underway(folder), read_report(report_file(folder))


async def _with_chart(board: BoardService, given: VoyageSources) -> VoyageSources:
    """Add the chart, for the parts of the page that show it: it is read from the tables."""
    if given.report is None:
        return given
    box = given.report.chart_container
    read = partial(chart_of_box, board.paths, board.topology, box)
    return dataclasses.replace(given, chart=await board.read_once(("voyage-chart", box), read))


def _read_legs(paths: TablePaths) -> tuple[Row, ...]:
    with open_slices(paths) as slices:
        slices.add("voyages")
        return tuple(slices.rows("select * from voyages order by vessel_imo_number, leg_date_time"))


def of_ship(topology: Topology, imo: str, alert: Alert) -> bool:
    """Return whether a ship has raised an alert, or the alert is about it."""
    site = topology.sites.get(alert.raised_at)
    return imo in (alert.vessel_imo_number, site.imo if site is not None else None)


async def voyages(board: BoardService, request: Request) -> Response:
    """All ships, and the voyage that the simulator sails or has sailed."""
    values = voyage_values(await _with_chart(board, await _sources(board)))
    values |= alert_panel(board, board.signed_in(request), None, "/voyages")
    return board.page(request, "voyage.html.j2", live="/live?voyage=all", **values)


async def ship(board: BoardService, request: Request) -> Response:
    """One ship."""
    imo = _known_ship(board, request)
    values = voyage_values(await _sources(board, imo), imo)
    wanted = partial(of_ship, board.topology, imo)
    values |= alert_panel(board, board.signed_in(request), wanted, f"/voyages/{imo}")
    return board.page(request, "voyage.html.j2", live=f"/live?voyage={imo}", **values)


async def now(board: BoardService, request: Request) -> Response:
    """The part of a voyage's page above the map, and the map's data."""
    imo = _asked_ship(board, request)
    return board.page(request, "voyage_now.html.j2", **voyage_values(await _sources(board, imo), imo))


async def course(board: BoardService, request: Request) -> Response:
    """The part of a voyage's page below the alerts."""
    imo = _asked_ship(board, request)
    given = await _with_chart(board, await _sources(board, imo))
    return board.page(request, "voyage_course.html.j2", **voyage_values(given, imo))


def _asked_ship(board: BoardService, request: Request) -> str | None:
    return _known_ship(board, request) if "imo" in request.path_params else None


def _known_ship(board: BoardService, request: Request) -> str:
    imo = str(request.path_params["imo"])
    if board.topology.ship_with(imo) is None:
        raise HTTPException(404)
    return imo


# --- in one file


_READ_WITHIN: Final = 60.0  # seconds for reading the logs


async def voyage_file(board: BoardService, report: Report) -> str:
    """Return the page of a voyage that has ended, with its report, as one file that needs no server."""
    async with board.live.running():
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_READ_WITHIN):
                await board.live.read()
        found = dataclasses.replace(await _sources(board), underway=None, report=report)
        given = await _with_chart(board, found)
        warnings = board.warnings()
        panel = alert_panel(board, _READER, None, "")
    return voyage_document(given, panel, warnings)


_READER: Final = Viewer("", reads=True)  # of a file: may do nothing


def voyage_document(given: VoyageSources, panel: Json, warnings: Sequence[str] = ()) -> str:
    """Return a voyage's page as one file.

    Args:
        panel: As ``alert_panel`` gives it.
        warnings: What the page does not know, in sentences.
    """
    values = voyage_values(given) | panel | {"warnings": [*warnings, *given.doubts]}
    if given.report is not None:
        values["title"] = given.report.scenario
    topology = given.topology.title or given.topology.name
    return document("voyage.html.j2", topology, live="", **values)


_SHIP: Final = (Field("imo", "The ship's IMO number.", NUMBER, "9074729"),)

PAGES: Final = (
    Page("/voyages", voyages, Access.STAFF),
    Page("/voyages/now", now, Access.STAFF),
    Page("/voyages/course", course, Access.STAFF),
    Page("/voyages/{imo:int}", ship, Access.STAFF, fields=_SHIP),
    Page("/voyages/{imo:int}/now", now, Access.STAFF, fields=_SHIP),
    Page("/voyages/{imo:int}/course", course, Access.STAFF, fields=_SHIP),
)
