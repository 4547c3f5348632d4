"""The whole fleet: sites, ships and links on a map, what is wrong first, logs in trouble with the named way out."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from board.pages.alerts import alert_rows
from board.pages.port import place_of
from board.service import Board, Page
from board.viewer import Access
from fairlead.fleet_status import LOSS, fleet_status
from shore.report.slices import open_slices
from topologies.model import Site, SiteKind
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


class Place(NamedTuple):
    """Where a ship was when it was last seen."""

    latitude: float
    longitude: float
    course: float | None
    speed: float | None
    seen: dt.datetime


async def first(board: Board, request: Request) -> Response:
    """The first page: the fleet for staff; customers are sent to their own."""
    viewer = board.viewer(request)
    if viewer is None or not viewer.reads:
        return RedirectResponse("/mine", 303)
    values = await _values(board)
    known = await board.read_once("ships", partial(_ships_in_tables, board))
    values |= {"alerts": alert_rows(board, viewer), "alerts_known": board.live.read_at is not None}
    return board.page(request, "fleet.html.j2", **values, live="/live", next="/", map=_map(board, values, known))


async def status(board: Board, request: Request) -> Response:
    """The part of the page that is read again every few seconds."""
    return board.page(request, "fleet_status.html.j2", **await _values(board))


async def _values(board: Board) -> dict[str, Any]:
    context = board.context
    found = await board.read_once(
        "fleet", partial(fleet_status, context.topology, context.folder, context.local, context.resolver)
    )
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


def _site(board: Board, found: Mapping[str, Any]) -> dict[str, Any]:
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
    return ("runs", "good") if found["running"] else ("stopped", "bad")


def _link(board: Board, found: Mapping[str, Any]) -> dict[str, Any]:
    source, target = found["from"], found["to"]
    rates = [each.rate for each in board.topology.links_to(target) if each.name == found["name"]]
    return {
        **found,
        "tone": TONES.get(found["state"], "warn"),
        "since": _moment(found.get("since")),
        "budget": format_rate(rates[0]) if rates and rates[0] else "",
        "source_title": board.topology.sites[source].title or source,
        "target_title": board.topology.sites[target].title or target,
    }


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


def _ships_in_tables(board: Board) -> dict[str, Place]:
    """Return the newest place of each ship in table ``ships_now``, by IMO number; empty without that table."""
    with open_slices(board.paths) as slices:
        slices.add("ships_now")
        rows = slices.rows("select * from ships_now")
    return {
        row["vessel_imo_number"]: Place(
            row["latitude"],
            row["longitude"],
            row["course_over_ground"],
            row["speed_over_ground"],
            row["device_date_time"],
        )
        for row in rows
    }


def _places(board: Board, in_tables: Mapping[str, Place]) -> dict[str, Place]:
    """Return the newest known place of each ship, from the logs or the tables."""
    found = dict(in_tables)
    for imo, position in board.live.positions().items():
        moment = position.device.device_date_time
        if position.geo_location is not None and (imo not in found or found[imo].seen < moment):
            here = position.geo_location
            course, speed = position.course_over_ground, position.speed_over_ground
            found[imo] = Place(here.latitude, here.longitude, course, speed, moment)
    return found


def _map(board: Board, values: Mapping[str, Any], in_tables: Mapping[str, Place]) -> dict[str, Any]:
    """Ports and ships at their newest known places, and the worst link between each pair of them."""
    sites, positions = board.topology.sites, _places(board, in_tables)
    tones = {each["site"]: each["tone"] for each in values["sites"]}
    places: dict[str, tuple[float, float]] = {}
    marks, ships = [], []
    for name, site in sites.items():
        position = positions.get(site.imo or "")
        if site.kind is SiteKind.SHIP and position is not None:
            places[name] = (position.latitude, position.longitude)
            ships.append(
                {
                    "id": site.imo,
                    "name": site.title or name,
                    "latitude": position.latitude,
                    "longitude": position.longitude,
                    "course": position.course,
                    "speed": position.speed,
                    "seen": f"{position.seen:%Y-%m-%d %H:%M} UTC",
                    "tone": tones.get(name, "quiet"),
                }
            )
        elif (place := place_of(site)) is not None:
            places[name] = (place.latitude, place.longitude)
            marks.append(_port(name, site, places[name], tones.get(name, "quiet")))
    return {"ports": marks, "ships": ships, "links": list(_lines(values["links"], places))}


def _port(name: str, site: Site, place: tuple[float, float], tone: str) -> dict[str, Any]:
    latitude, longitude = place
    code = site.unlocode or ""
    return {
        "name": site.title or name,
        "code": code,
        "latitude": latitude,
        "longitude": longitude,
        "href": f"/ports/{code}",
        "tone": tone,
    }


def _lines(links: Iterable[Mapping[str, Any]], places: Mapping[str, tuple[float, float]]) -> Iterable[dict[str, Any]]:
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
