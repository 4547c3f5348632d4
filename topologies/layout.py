"""Where each site stands in a picture, and the course of its links, in pixels. Pure functions.

Sites with a UN/LOCODE stand at their coordinates when every site on land has known ones; ships and customers are
placed around the sites that they are linked to. Else networkx arranges the sites.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

import networkx as nx

from topologies.graph import Connection, connections, ordered_sites
from topologies.model import SiteKind, Topology
from topologies.seachart import ports

WIDTH, HEIGHT = 1000, 560
_MARGIN = 110
_TOP = 70  # room for the title
_RING = 95  # distance of what has no coordinates from where it belongs

_BENDS = (0.08, -0.08, 0.2, -0.2)  # to which side, and how far, as a share of the distance


class Point(NamedTuple):
    """Pixels from the left and from the top."""

    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Chart:
    """The equirectangular projection of the chart under the sites: pixels = middle + degrees from it * scale."""

    longitude: float
    latitude: float
    pixels_per_degree: float

    def point(self, longitude: float, latitude: float) -> Point:
        east = (longitude - self.longitude + 540) % 360 - 180
        return Point(
            WIDTH / 2 + east * self.pixels_per_degree,
            (HEIGHT + _TOP) / 2 - (latitude - self.latitude) * self.pixels_per_degree,
        )


@dataclass(frozen=True, slots=True)
class Layout:
    """Places of all sites; ``chart`` is None where they are no places on earth."""

    places: dict[str, Point]
    chart: Chart | None


def lay_out(topology: Topology) -> Layout:
    """Place every site."""
    known = ports()
    coordinates = {
        name: (known[site.unlocode].longitude, known[site.unlocode].latitude)
        for name, site in topology.sites.items()
        if site.unlocode in known
    }
    on_land = [n for n, s in topology.sites.items() if s.kind not in (SiteKind.SHIP, SiteKind.CUSTOMER)]
    if len(coordinates) < 2 or any(name not in coordinates for name in on_land):
        return Layout(_arranged(topology), None)
    chart = _chart(list(coordinates.values()))
    places = {name: chart.point(*place) for name, place in coordinates.items()}
    return Layout(_with_the_others(topology, places), chart)


def _chart(coordinates: list[tuple[float, float]]) -> Chart:
    """The chart that shows all coordinates as large as possible, turned so that the widest empty ocean is its edge."""
    longitudes = sorted(longitude % 360 for longitude, _ in coordinates)
    gaps = [(b - a, b) for a, b in zip(longitudes, [*longitudes[1:], longitudes[0] + 360], strict=True)]
    gap, west = max(gaps)
    width = max(360 - gap, 8.0)
    latitudes = [latitude for _, latitude in coordinates]
    height = max(max(latitudes) - min(latitudes), 5.0)
    scale = min((WIDTH - 2 * _MARGIN) / width, (HEIGHT - _TOP - 2 * _MARGIN) / height)
    return Chart((west + (360 - gap) / 2) % 360, (max(latitudes) + min(latitudes)) / 2, scale)


def _with_the_others(topology: Topology, places: dict[str, Point]) -> dict[str, Point]:
    """Add the sites without coordinates: a customer outward of its neighbour, ships on a ring between theirs."""
    out = dict(places)
    centre = _mean(list(places.values()))
    others = [name for name in ordered_sites(topology) if name not in places]
    lines = [p for _, way in courses(topology, places) for p in way.curve]
    for number, name in enumerate(others):
        linked = {site for c in connections(topology) if name in (c.a, c.b) for site in (c.a, c.b)}
        neighbours = [places[site] for site in places if site in linked]
        middle = _mean(neighbours) if neighbours else centre
        angle = 2 * math.pi * number / len(others) - math.pi / 2
        if len(neighbours) == 1 and middle != centre:
            angle = math.atan2(middle.y - centre.y, middle.x - centre.x)
        wanted = Point(middle.x + _RING * math.cos(angle), middle.y + _RING * math.sin(angle))
        out[name] = _freest(wanted, list(out.values()), lines)
    return out


def _freest(wanted: Point, sites: list[Point], lines: list[Point]) -> Point:
    """The point nearest to the wanted one that keeps clear of sites and lines, as far as there is one."""
    candidates = [wanted] + [
        Point(wanted.x + radius * math.cos(turn * math.pi / 8), wanted.y + radius * math.sin(turn * math.pi / 8))
        for radius in (30, 60, 90, 120, 150)
        for turn in range(16)
    ]
    inside = [p for p in candidates if 60 < p.x < WIDTH - 60 and _TOP + 30 < p.y < HEIGHT - 60] or [wanted]

    def clearance(p: Point) -> float:
        to_site = min((math.dist(p, site) for site in sites), default=100.0)
        to_line = min((math.dist(p, line) for line in lines), default=40.0)
        return min(to_site, 100.0) + min(to_line, 40.0) - math.dist(p, wanted) / 10

    return max(inside, key=clearance)


def _arranged(topology: Topology) -> dict[str, Point]:
    graph: nx.Graph[str] = nx.Graph()
    graph.add_nodes_from(topology.sites)
    graph.add_edges_from((c.a, c.b) for c in connections(topology))
    if len(graph) == 1:
        raw = {name: (0.0, 0.0) for name in graph}
    elif len(graph) == 2:  # side by side, rather than at an angle that means nothing
        raw = {name: (2.0 * number - 1, 0.0) for number, name in enumerate(graph)}
    else:
        found = nx.spring_layout(graph, seed=1, iterations=300)
        raw = {name: (float(x), float(y)) for name, (x, y) in found.items()}
    reach = max(max(abs(x), abs(y)) for x, y in raw.values()) or 1.0
    half_width, half_height = WIDTH / 2 - 1.6 * _MARGIN, (HEIGHT - _TOP) / 2 - 0.8 * _MARGIN
    return {
        name: Point(WIDTH / 2 + x / reach * half_width, (HEIGHT + _TOP) / 2 + y / reach * half_height)
        for name, (x, y) in raw.items()
    }


def _mean(points: list[Point]) -> Point:
    return Point(sum(p.x for p in points) / len(points), sum(p.y for p in points) / len(points))


class Course(NamedTuple):
    """A link as drawn: its curve, and the places and directions (degrees clockwise from up) of its heads."""

    curve: list[Point]
    start: tuple[Point, float]
    end: tuple[Point, float]
    middle: Point


def course(a: Point, b: Point, bend: float, room: float = 15.0) -> Course:
    """A curve from a to b, bent to one side by a share of its length, ending ``room`` pixels before both."""
    across = Point(-(b.y - a.y), b.x - a.x)
    handle = Point((a.x + b.x) / 2 + across.x * bend, (a.y + b.y) / 2 + across.y * bend)
    length = max(math.dist(a, b), 1.0)
    trim = min(0.4, room / length)
    steps = [trim + (1 - 2 * trim) * n / 24 for n in range(25)]
    curve = [_bezier(a, handle, b, t) for t in steps]
    return Course(
        curve, (curve[0], _heading(curve[1], curve[0])), (curve[-1], _heading(curve[-2], curve[-1])), curve[12]
    )


def _bezier(a: Point, handle: Point, b: Point, t: float) -> Point:
    u = 1 - t
    return Point(
        u * u * a.x + 2 * u * t * handle.x + t * t * b.x,
        u * u * a.y + 2 * u * t * handle.y + t * t * b.y,
    )


def _heading(before: Point, after: Point) -> float:
    return math.degrees(math.atan2(after.x - before.x, before.y - after.y)) % 360


def courses(topology: Topology, places: dict[str, Point]) -> list[tuple[Connection, Course]]:
    """Every connection between placed sites, with its course; those of one pair bend to different sides."""
    out: list[tuple[Connection, Course]] = []
    drawn: Counter[tuple[str, str]] = Counter()
    for connection in connections(topology):
        pair = (connection.a, connection.b)
        if pair[0] in places and pair[1] in places:
            bend = _BENDS[drawn[pair] % len(_BENDS)]
            drawn[pair] += 1
            out.append((connection, course(places[pair[0]], places[pair[1]], bend)))
    return out
