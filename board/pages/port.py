"""A port's page for its operator: problems first, ships that come, ships at berth, boxes on the dock."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from tzfpy import get_tz

from board.drawing import Json, ShipPlace, newest_places, port_mark, ship_at
from board.export import document
from board.openapi import Field
from board.pages.alerts import Wanted, alert_panel
from board.service import STALE, BoardService, Page
from board.viewer import Access
from fairlead.records.alert import LEFT_PORT, Alert
from fairlead.records.ship import Position
from shore.report.port import READ, PortBox, PortReport, Ship, port_report
from shore.report.slices import Slices, open_slices, stamps, table_warnings
from topologies.drawing.seachart import PortPlace, ports
from topologies.model import Site, SiteKind, Topology

_TABLES: Final = (*READ, "outlook")
_MOST: Final = 100
"""Boxes in one list. The worst come first, and the page says how many more there are."""


async def index(board: BoardService, request: Request) -> Response:
    """The ports of the topology."""
    found = list(sites_with_ports(board.topology).values())
    marks = [
        port_mark(place, site.title, href=f"/ports/{place.unlocode}") for site in found if (place := place_of(site))
    ]
    return board.page(request, "ports.html.j2", sites=found, map={"ports": marks})


async def port(board: BoardService, request: Request) -> Response:
    """One port."""
    asked = request.path_params["code"]
    code = "".join(asked.split()).upper()
    if code != asked:
        return RedirectResponse(f"/ports/{code}", 303)
    return board.page(request, "port.html.j2", **await _values(board, request, code))


async def boxes(board: BoardService, request: Request) -> Response:
    """The part of a port's page that is read again when tables change, with the data of its map."""
    code = request.path_params["code"]
    view = await port_view(board, code)
    on_map = _map(view.report, ports().get(code), board.live.positions())
    return board.page(request, "port_tables.html.j2", boxes=view.boxes, map=on_map)


@dataclass(frozen=True, slots=True)
class PortView:
    """What everybody sees of a port. ``boxes`` is the part of the page that the tables make, as HTML; ``report`` has no
    boxes of ships, which would be most of it. ``made_of``: ids and versions of the tables."""

    made_of: Mapping[str, tuple[str, int]]
    report: PortReport
    doubts: tuple[str, ...]
    boxes: str


async def _values(board: BoardService, request: Request, code: str) -> dict[str, Any]:
    view = await port_view(board, code)
    report, place = view.report, ports().get(code)
    concerning = partial(_concerns, board.topology, report)
    return alert_panel(board, board.signed_in(request), concerning, f"/ports/{code}") | {
        "r": report,
        "boxes": view.boxes,
        "map": _map(report, place, board.live.positions()),
        "warnings": [*view.doubts, *(f"Table {name} is not there yet." for name in report.missing)],
        "live": f"/live?port={code}",
        "zone": get_tz(place.longitude, place.latitude) if place else None,
        "zone_name": report.port,
    }


async def port_view(board: BoardService, code: str) -> PortView:
    """Return what the tables have of a port. ``concerning_port`` goes by it from then on."""
    return await board.read_once(("port", code), partial(_read, board, code), stale=STALE)


def _read(board: BoardService, code: str) -> PortView:
    """Read the tables; where they are as they were, take what was made of them, because that takes half a second."""
    made_of, view = stamps(board.paths, _TABLES), board.last_answer(("port", code))
    if not isinstance(view, PortView) or view.made_of != made_of:
        view = _made(board, code, made_of)
    doubts = table_warnings(board.context.folder, board.paths, view.report.versions)
    return dataclasses.replace(view, doubts=doubts)


def _made(board: BoardService, code: str, made_of: Mapping[str, tuple[str, int]]) -> PortView:
    """Return what the tables, which have these ids and versions, say of a port; ``doubts`` are not known yet."""
    report = port_report(board.paths, code, most=_MOST)
    with open_slices(board.paths) as slices:
        outlook = _outlook(slices)
    html = board.text("port_boxes.html.j2", outlook=outlook, **_boxes(report))
    bare = {name: tuple(_without_boxes(getattr(report, name))) for name in ("arriving", "in_port")}
    return PortView(made_of, msgspec.structs.replace(report, **bare), (), html)


def _without_boxes(ships: Iterable[Ship]) -> Iterator[Ship]:
    return (msgspec.structs.replace(ship, boxes=()) for ship in ships)


def _boxes(report: PortReport) -> dict[str, Any]:
    """Return the boxes that the page lists, and how many more there are."""
    return {
        "r": report,
        "dock": _shown(report.dock),
        "more_on_dock": max(0, len(report.dock) - _MOST),
        "ships": [
            (ship, _shown(ship.boxes), max(0, len(ship.boxes) + ship.others - _MOST)) for ship in _present(report)
        ],
        "wrong": _wrong(report),
    }


def _wrong(report: PortReport) -> int:
    """Return how many boxes, on the dock and aboard, have something wrong."""
    aboard = [box for ship in _present(report) for box in ship.boxes]
    return sum(bool(box.concerns) for box in (*report.dock, *aboard))


_MOST_OF_OTHERS: Final = 500  # boxes of a ship for other ports, with something wrong, in a file


def port_file(report: PortReport, warnings: Sequence[str] = ()) -> str:
    """Return the page of a report as one file: the whole dock, and of each ship the boxes for this port and those with
    something wrong.

    Args:
        warnings: What the report may lack (``table_warnings``), shown at the top.
    """
    ships = []
    for ship in _present(report):
        here = [box for box in ship.boxes if box.discharged_here]
        others = [box for box in ship.boxes if not box.discharged_here and box.concerns][:_MOST_OF_OTHERS]
        ships.append((ship, [*here, *others], len(ship.boxes) - len(here) - len(others)))
    boxes = {"dock": report.dock, "more_on_dock": 0, "ships": ships, "wrong": _wrong(report), "outlook": {}}
    doubts = [f"Not certain: {each}." for each in warnings]
    doubts += [f"Table {name} is not there yet: what follows from it is not in this page." for name in report.missing]
    on_map = _map(report, ports().get(report.un_location_code), {})
    return document("port.html.j2", "", r=report, warnings=doubts, live="", map=on_map, **boxes)


def _outlook(slices: Slices) -> dict[str, Any]:
    """Return the minutes until a box's cargo leaves its band, by container, where table ``outlook`` has enough data."""
    slices.add("outlook")
    return {row["equipment_reference"]: row for row in slices.rows(_OUTLOOK)}


_OUTLOOK: Final = "select * from outlook where minutes_left is not null"


def concerning_port(board: BoardService, code: str) -> Wanted:
    """Return whether an alert belongs on a port's page, by the page's last reading of the tables.

    It does when a site at the port raised it, when it is about a ship that comes or is there, or about a box on the
    dock, or when its evidence names the port. An open page may outlive what the board remembers of its port.
    """
    known = board.last_answer(("port", code))

    def wanted(alert: Alert) -> bool:
        nonlocal known
        known = board.last_answer(("port", code)) or known
        return _concerns(board.topology, known.report if known else None, alert, code)

    return wanted


def _concerns(topology: Topology, report: PortReport | None, alert: Alert, code: str | None = None) -> bool:
    code = code or (report.un_location_code if report else None)
    site = topology.sites.get(alert.raised_at)
    if site is not None and site.unlocode == code:
        return True
    if any(each.name == LEFT_PORT and each.detail == code for each in alert.evidence):
        return True
    if report is None:  # which ships come is not known: better one alert too many
        return site is None or site.kind is SiteKind.SHIP
    imo = alert.vessel_imo_number or (site.imo if site else None)
    ships = {ship.vessel_imo_number for ship in (*report.arriving, *report.in_port)}
    return imo in ships or any(box.equipment_reference == alert.equipment_reference for box in report.dock)


def _present(report: PortReport) -> Iterable[Ship]:
    return (*report.in_port, *report.arriving)


def _shown(found: tuple[PortBox, ...]) -> list[PortBox]:
    """Return the boxes with problems first, then those for this port."""
    return sorted(found, key=lambda box: (-len(box.concerns), not box.discharged_here, box.equipment_reference))[:_MOST]


def _map(report: PortReport, place: PortPlace | None, positions: Mapping[str, Position]) -> Json:
    """The port, and the ships that come or are there, at their newest known places."""
    in_tables = {ship.vessel_imo_number: here for ship in _present(report) if (here := _place_of(ship)) is not None}
    places = newest_places(in_tables, positions)
    ships = [
        {"name": ship.vessel, "tone": "bad" if ship.concerning else "good"} | ship_at(ship.vessel_imo_number, here)
        for ship in _present(report)
        if (here := places.get(ship.vessel_imo_number)) is not None
    ]
    return {"ports": [port_mark(place, report.port)] if place else [], "ships": ships}


def _place_of(ship: Ship) -> ShipPlace | None:
    at = ship.approach
    if at.latitude is None or at.longitude is None:
        return None
    return ShipPlace(at.latitude, at.longitude, at.course, at.speed, at.position_date_time)


def sites_with_ports(topology: Topology) -> dict[str, Site]:
    """Return the sites that are at a port, by UN/LOCODE; of several at one port the first."""
    found: dict[str, Site] = {}
    for site in topology.sites.values():
        if site.unlocode:
            found.setdefault(site.unlocode, site)
    return found


def place_of(site: Site) -> PortPlace | None:
    """Return the place of a site's port; None if the list of the world's ports does not have it."""
    return ports().get(site.unlocode or "")


_CODE: Final = (Field("code", "The port's UN/LOCODE.", example="JPTYO"),)
_SPELT: Final = {303: "To the code in capitals, or to /sign-in."}

PAGES: Final = (
    Page("/ports", index, Access.STAFF),
    Page("/ports/{code}", port, Access.STAFF, fields=_CODE, answers=_SPELT),
    Page("/ports/{code}/boxes", boxes, Access.STAFF, fields=_CODE),
)
