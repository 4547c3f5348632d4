"""The whole fleet: sites, ships and links on a map, what is wrong first, logs in trouble with the named way out."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from board.drawing import Json, ShipPlace, newest_places, place_in_row, port_mark, ship_at
from board.pages.alerts import alert_panel
from board.pages.port import place_of
from board.service import BoardService, Page
from board.viewer import Access
from fairlead.errors import FairleadError
from fairlead.fleet_status import LOSS
from shore.report.slices import open_slices
from topologies.model import SiteKind
from topologies.values import format_rate

_SHOWN: Final = 100
"""Logs in trouble on the page; ``fairlead status --json`` has all."""
TONES: Final[Mapping[str, str]] = {
    "mirroring": "good",
    "closed": "quiet",
    "paused": "warn",
    "connecting": "warn",
    "unavailable": "bad",
    "stopped": "bad",
}
"""The tone of each state of a link; of others ``warn``."""
_WORST_FIRST: Final = ("bad", "warn", "good", "quiet")


async def first(board: BoardService, request: Request) -> Response:
    """The first page: the fleet for staff; customers are sent to their own."""
    viewer = board.viewer(request)
    if viewer is None or not viewer.reads:
        return RedirectResponse("/mine", 303)
    values = await _values(board)
    in_tables: Mapping[str, ShipPlace] = {}
    doubts: tuple[str, ...] = ()
    try:
        in_tables = await _ships(board)
    except FairleadError as error:  # sites, links and alerts do not need the tables
        doubts = (f"What the tables have of ships is not known: {error.what}.",)
    values |= alert_panel(board, viewer, None, "/") | {"map": _map(board, values, in_tables)}
    return board.page(request, "fleet.html.j2", **values, live="/live", warnings=doubts)


async def status(board: BoardService, request: Request) -> Response:
    """The part of the page that is read again every few seconds, with the data of its map."""
    values = await _values(board)
    try:
        values["map"] = _map(board, values, await _ships(board))
    except FairleadError:  # the page keeps the map that it has
        values["map"] = None
    return board.page(request, "fleet_status.html.j2", **values)


async def _values(board: BoardService) -> dict[str, Any]:
    found = await board.fleet_status()
    sites = [_site(board, each) for each in found["sites"]]
    links = sorted((_link(board, each) for site in found["sites"] for each in site["links"]), key=_worst_first)
    troubled = [
        {"log": log, "site": site["site"], "tone": "bad" if each["state"] in LOSS else "warn", **each}
        for site in found["sites"]
        for log, each in site["logs_in_trouble"].items()
    ]
    return {
        "sites": sites,
        "links": links,
        "link_states": Counter(link["state"] for link in links),
        "troubled": troubled[:_SHOWN],
        "more_troubled": max(0, len(troubled) - _SHOWN),
        "notes": [note for site in found["sites"] for note in _notes(site)],
        "up": sum(site["tone"] == "good" for site in sites),
    }


def _site(board: BoardService, found: Mapping[str, Any]) -> dict[str, Any]:
    """What the page shows of a site. A site outside this machine is up when its Kafka answers."""
    site = board.topology.sites[found["site"]]
    kafka, bridge, replicator = found["kafka"], found["bridge"], found["replicator"]
    up = kafka.get("up", found["error"] is None) and found["error"] is None
    state, tone = ("up", "good") if up else (found["error"] or "down", "bad")
    if not found.get("asked", True):
        state, tone = "not known here", "quiet"
    return {
        **found,
        "title": site.title or found["site"],
        "unlocode": site.unlocode,
        "imo": site.imo,
        "tone": tone,
        "state": state,
        "bridge_state": _service(bridge),
        "replicator_state": _service(replicator),
        "heard": _moment(bridge["written_at"]) if bridge else None,
    }


def _service(found: Mapping[str, Any] | None) -> tuple[str, str]:
    """Return the words and tone for a service whose status file this machine has, or has not."""
    if found is None:
        return "not known here", "quiet"
    if not found["running"]:
        return "stopped", "bad"
    return ("runs", "good") if found.get("ready", True) else ("starting", "warn")  # only a bridge says so


def _link(board: BoardService, found: Mapping[str, Any]) -> dict[str, Any]:
    source, target = found["from"], found["to"]
    rates = [each.rate for each in board.topology.links_to(target) if each.name == found["name"]]
    return {
        **found,
        "tone": TONES.get(found["state"], "warn"),
        "since": _moment(found.get("since")),
        "budget": format_rate(rates[0]) if rates and rates[0] else "",
        "source_title": _title(board, source),
        "target_title": _title(board, target),
    }


def _title(board: BoardService, name: str) -> str:
    """Return what a site is called. A replicator that has not run since may tell of a site that the topology had."""
    site = board.topology.sites.get(name)
    return (site.title if site is not None else "") or name


def _worst_first(link: Mapping[str, Any]) -> tuple[int, str]:
    return _WORST_FIRST.index(link["tone"]), link["name"]


def _notes(site: Mapping[str, Any]) -> Iterable[dict[str, str]]:
    """Yield what a site's operator has to look at, each with what to do."""
    for log in site["overtaken"]:
        text = f"{log['from']} has deleted {log['records']:,} records of {log['log']} that {site['site']} does not have"
        yield {"tone": "bad", "site": site["site"], "text": text, "what_to_do": "fairlead link list"}
    for each in site["waiting"]:
        text = f"{each['records']:,} old records of {each['logs']:,} logs stay until {each['waits_for']} has them"
        yield {"tone": "warn", "site": site["site"], "text": text, "what_to_do": each["what_to_do"]}
    for each in site["bridge"]["alarms"] if site["bridge"] else ():
        yield {"tone": "bad", "site": site["site"], "text": each["what"], "what_to_do": each["what_to_do"]}


def _ships_in_tables(board: BoardService) -> dict[str, ShipPlace]:
    """Return the newest place of each ship in table ``ships_now``, by IMO number; empty without that table."""
    with open_slices(board.paths) as slices:
        slices.add("ships_now")
        return {row["vessel_imo_number"]: place_in_row(row) for row in slices.rows("select * from ships_now")}


async def _ships(board: BoardService) -> dict[str, ShipPlace]:
    return await board.read_once("ships", partial(_ships_in_tables, board))


def _map(board: BoardService, values: Mapping[str, Any], in_tables: Mapping[str, ShipPlace]) -> Json:
    """Ports and ships at their newest known places, and the worst link between each pair of them."""
    positions = newest_places(in_tables, board.live.positions())
    tones = {each["site"]: each["tone"] for each in values["sites"]}
    places: dict[str, tuple[float, float]] = {}
    marks, ships = [], []
    for name, site in board.topology.sites.items():
        title, tone = site.title or name, tones.get(name, "quiet")
        if site.kind is SiteKind.SHIP and site.imo and (here := positions.get(site.imo)) is not None:
            places[name] = (here.latitude, here.longitude)
            ships.append({"name": title, "tone": tone} | ship_at(site.imo, here))
        elif (port := place_of(site)) is not None:
            places[name] = (port.latitude, port.longitude)
            marks.append(port_mark(port, title, href=f"/ports/{port.unlocode}", tone=tone))
    return {"ports": marks, "ships": ships, "links": list(_lines(values["links"], places))}


def _lines(links: Iterable[Mapping[str, Any]], places: Mapping[str, tuple[float, float]]) -> Iterable[Json]:
    drawn = set()
    for link in links:  # the worst first
        ends = frozenset((link["from"], link["to"]))
        if ends in drawn or not ends <= places.keys() or len(ends) < 2:
            continue
        drawn.add(ends)
        lag = f", {link['lag']:,} records behind" if link["lag"] else ""
        yield {
            "from": places[link["from"]],
            "to": places[link["to"]],
            "tone": link["tone"],
            "title": f"{link['source_title']} to {link['target_title']}: {link['state']}{lag}",
        }


def _moment(text: str | None) -> dt.datetime | None:
    return dt.datetime.fromisoformat(text) if text else None


PAGES: Final = (
    Page("/", first, Access.SIGNED_IN),
    Page("/fleet/status", status, Access.STAFF),
)
