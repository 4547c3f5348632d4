"""Show a topology on a terminal of 100 columns (a graph drawing and three tables), or as Mermaid text. Pure functions.

The drawing is an arc diagram: a line of text per site, a vertical line per connection, with an arrow head where records
arrive. It stays readable with many links, unlike boxes with crossing lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from topologies.model import Link, Selection, Site, SiteKind, Topology
from topologies.users import service_users
from topologies.values import FOREVER, format_duration, format_rate

KIND_ORDER = (SiteKind.SHIP, SiteKind.PORT, SiteKind.HQ, SiteKind.DATACENTRE, SiteKind.CUSTOMER)
KIND_TITLE = {
    SiteKind.SHIP: "ship",
    SiteKind.PORT: "port",
    SiteKind.HQ: "headquarters",
    SiteKind.DATACENTRE: "data centre",
    SiteKind.CUSTOMER: "customer",
}


class DrawnWay(StrEnum):
    """A style of a connection. It shows when the connection may be used, and whether its rate is limited."""

    ALWAYS = "always"
    THIN = "always, bounded rate"
    BERTHED = "at the berth"


@dataclass(frozen=True, slots=True)
class DrawnConnection:
    """The links between two sites that have the same policy.

    Args:
        a, b: The sites, in the topology's order.
        forth, back: The link from a to b and the link from b to a; at least one is set.
    """

    a: str
    b: str
    forth: Link | None
    back: Link | None

    @property
    def link(self) -> Link:
        link = self.forth or self.back
        if link is None:
            raise ValueError("a connection without a link")
        return link

    @property
    def way(self) -> DrawnWay:
        if self.link.when == "berthed":
            return DrawnWay.BERTHED
        return DrawnWay.THIN if self.link.rate else DrawnWay.ALWAYS

    @property
    def label(self) -> str:
        return format_rate(self.link.rate) if self.link.rate else ""


def ordered_sites(topology: Topology) -> list[str]:
    """Return the site names by kind, and within a kind in the topology's order."""
    return sorted(topology.sites, key=lambda name: KIND_ORDER.index(topology.sites[name].kind))


def connections(topology: Topology) -> list[DrawnConnection]:
    """Return every pair of sites with a link, once for each policy (``when`` and rate)."""
    order = {name: number for number, name in enumerate(ordered_sites(topology))}
    found: dict[tuple[str, str, str, int | None], dict[bool, Link]] = {}
    for link in topology.directed_links():
        forth = order[link.from_] < order[link.to]
        a, b = (link.from_, link.to) if forth else (link.to, link.from_)
        found.setdefault((a, b, link.when, link.rate), {})[forth] = link
    return [DrawnConnection(a, b, heads.get(True), heads.get(False)) for (a, b, _, _), heads in found.items()]


def show_streams(streams: dict[str, Selection]) -> str:
    """Return streams as ``alerts, containers (aboard), feeds (ducks)``; a stream without brackets is copied whole."""
    return ", ".join(name + _bracket(selection) for name, selection in streams.items())


def _bracket(selection: Selection) -> str:
    if selection == "all":
        return ""
    return f" ({selection if isinstance(selection, str) else ', '.join(selection)})"


def as_data(topology: Topology) -> dict[str, Any]:
    """Return the topology as JSON-ready data, with the Kafka users of each site.

    Each link has one direction. Durations are in seconds (null: forever), rates in bytes per second (null: unlimited).
    """
    return {
        "name": topology.name,
        "title": topology.title,
        "description": topology.description,
        "sites": {
            name: {
                **site.model_dump(mode="json", exclude={"retention"}),
                "retention": {
                    stream: None if kept == FOREVER else int(kept.total_seconds())
                    for stream, kept in site.retention.items()
                },
                "users": sorted(service_users(topology, name)),
            }
            for name, site in topology.sites.items()
        },
        "streams": {name: s.model_dump(mode="json", by_alias=True) for name, s in topology.streams.items()},
        "links": [
            {"name": link.name, **link.model_dump(mode="json", by_alias=True, exclude={"both"})}
            for link in topology.directed_links()
        ],
        "customers": _dump(topology.customers.items()),
        "users": _dump(topology.users.items()),
        "shore": topology.shore.model_dump(mode="json") if topology.shore else None,
    }


def _dump(models: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    return {name: model.model_dump(mode="json") for name, model in models}


WIDTH = 100
_STEP = 3  # columns from one lane to the next
_STYLE = {DrawnWay.ALWAYS: "green", DrawnWay.THIN: "cyan", DrawnWay.BERTHED: "yellow"}
_LINE = {DrawnWay.ALWAYS: "│", DrawnWay.THIN: "╎", DrawnWay.BERTHED: "┊"}
_MARK = {
    SiteKind.SHIP: "▲",
    SiteKind.PORT: "●",
    SiteKind.HQ: "■",
    SiteKind.DATACENTRE: "■",
    SiteKind.CUSTOMER: "◆",
}


_SHAPE = {  # of Mermaid's nodes
    SiteKind.SHIP: ("[\\", "/]"),
    SiteKind.PORT: ("([", "])"),
    SiteKind.HQ: ("[", "]"),
    SiteKind.DATACENTRE: ("[", "]"),
    SiteKind.CUSTOMER: ("{{", "}}"),
}


def mermaid(topology: Topology) -> str:
    """Return the graph as Mermaid text: a node per site, an arrow per connection, with its rate as label.

    A dotted arrow is open at the berth only.
    """
    sites = ordered_sites(topology)
    lines = ["flowchart LR"]
    for number, name in enumerate(sites):
        left, right = _SHAPE[topology.sites[name].kind]
        lines.append(f'    s{number}{left}"{name}"{right}')
    for found in connections(topology):
        a, b = (found.a, found.b) if found.forth else (found.b, found.a)
        head = "<" if found.forth and found.back else ""
        arrow = "-.->" if found.way is DrawnWay.BERTHED else "-->"
        label = f'|"{found.label}"|' if found.label else ""
        lines.append(f"    s{sites.index(a)} {head}{arrow}{label} s{sites.index(b)}")
    return "\n".join(lines) + "\n"


def draw(topology: Topology) -> RenderableType:
    """Return the whole output of ``fairlead topology show``."""
    parts: list[RenderableType] = [Text.assemble((topology.title or topology.name, "bold"), f"  ({topology.name})")]
    if topology.description:
        parts.append(Padding(Text(topology.description), (0, 2)))
    parts += [Text(), *diagram(topology), Text(), sites_table(topology)]
    if topology.links:
        parts += [Text(), links_table(topology)]
    return Group(*parts, Text(), streams_table(topology))


class _Lane(NamedTuple):
    """A connection as a vertical line, with the rows of its ends and its column. Both count from 0."""

    top: int
    bottom: int
    column: int
    connection: DrawnConnection
    into_top: bool
    into_bottom: bool


def diagram(topology: Topology) -> list[Text]:
    """Return the lines of the arc diagram; a single line with a note if the width is too small for all links."""
    sites = ordered_sites(topology)
    lanes = _lanes(topology, sites)
    labels = [f"{_MARK[topology.sites[name].kind]} {name}" for name in sites]
    left = max(map(len, labels)) + 2
    columns = max((lane.column for lane in lanes), default=-1) + 1
    if left + columns * _STEP > WIDTH:
        return [Text(f"{len(lanes)} connections are too many to draw in {WIDTH} columns; --mermaid draws them all.")]
    lines: list[Text] = []
    for row, label in enumerate(labels):
        if row:
            lines.append(_between(lanes, row, left, columns))
        lines.append(_site_line(lanes, row, label, left, columns))
    return [*lines, Text(), _legend({lane.connection.way for lane in lanes})]


def _lanes(topology: Topology, sites: list[str]) -> list[_Lane]:
    """Place the short lines first, each in the first column that is free between its ends."""
    rows = {name: number for number, name in enumerate(sites)}
    spans = []
    for connection in connections(topology):
        top, bottom = sorted((rows[connection.a], rows[connection.b]))
        spans.append((list(DrawnWay).index(connection.way), bottom - top, top, bottom, connection))
    spans.sort(key=lambda span: span[:4])
    taken: list[list[tuple[int, int]]] = []
    lanes = []
    for _, _, top, bottom, connection in spans:
        column = next(
            (n for n, used in enumerate(taken) if all(bottom < first or last < top for first, last in used)), len(taken)
        )
        if column == len(taken):
            taken.append([])
        taken[column].append((top, bottom))
        # A connection's sites are in the order of the rows, so its first site is the upper one.
        lanes.append(_Lane(top, bottom, column, connection, connection.back is not None, connection.forth is not None))
    return lanes


def _site_line(lanes: list[_Lane], row: int, label: str, left: int, columns: int) -> Text:
    mine = [lane for lane in lanes if row in (lane.top, lane.bottom)]
    last = max((lane.column for lane in mine), default=-1)
    line = Text()
    line.append(label, "bold")
    line.append(" " + ("─" * (left - len(label) - 1) if mine else ""), "dim")
    for column in range(columns):
        line.append(*_crossing(lanes, row, column, last))
        line.append(("─" if column < last else " ") * (_STEP - 1), "dim")
    line.rstrip()
    return line


def _crossing(lanes: list[_Lane], row: int, column: int, last: int) -> tuple[str, str]:
    """Return the character where a site's line meets a column, and its style."""
    for lane in lanes:
        if lane.column != column or not lane.top <= row <= lane.bottom:
            continue
        style = _STYLE[lane.connection.way]
        if row == lane.top:
            return ("▲" if lane.into_top else "┬"), style
        if row == lane.bottom:
            return ("▼" if lane.into_bottom else "┴"), style
        return (_LINE[lane.connection.way], style)
    return ("─" if column < last else " "), "dim"


def _between(lanes: list[_Lane], row: int, left: int, columns: int) -> Text:
    line = Text(" " * left)
    for column in range(columns):
        way = next((w.connection.way for w in lanes if w.column == column and w.top < row <= w.bottom), None)
        line.append(_LINE[way] if way else " ", _STYLE[way] if way else "")
        line.append(" " * (_STEP - 1))
    line.rstrip()
    return line


def _legend(ways: set[DrawnWay]) -> Text:
    line = Text("▲ ▼ records arrive here", "dim")
    for way in DrawnWay:
        if way in ways:
            line.append("   ")
            line.append(_LINE[way], _STYLE[way])
            line.append(f" {way}", "dim")
    return line


def sites_table(topology: Topology) -> Table:
    """Return the table of sites by kind, with their places and retention."""
    table = _table("Site", "Kind", "Where", "Keeps")
    for name in ordered_sites(topology):
        site = topology.sites[name]
        shore = ""
        if topology.shore and name in topology.shore.sites:
            shore = ", shore" if name == topology.shore.at else ", shore on standby"
        table.add_row(_named(name, site.title), KIND_TITLE[site.kind] + shore, Text(_where(site)), _keeps(site))
    return table


def _named(name: str, title: str) -> Text:
    says_more = title.lower().replace(" ", "-") not in ("", name)
    return Text.assemble((name, "bold"), (f"\n{title}" if says_more else "", "dim"))


def _where(site: Site) -> str:
    known = [f"IMO {site.imo}" if site.imo else "", site.unlocode or "", site.kafka.bootstrap if site.kafka else ""]
    return "\n".join(filter(None, known))


def _keeps(site: Site) -> str:
    rest = [f"{stream} {format_duration(kept)}" for stream, kept in site.retention.items() if stream != "default"]
    return ", ".join([format_duration(site.retention_of("default")), *rest])


def links_table(topology: Topology) -> Table:
    """Return the table of links. Links from one site that differ only in their target share a row."""
    table = _table("From", "", "To", "When", "Rate", "Streams (all of each, but for what brackets say)")
    for connection_row in _link_rows(topology):
        table.add_row(*connection_row)
    return table


def _link_rows(topology: Topology) -> Iterator[tuple[RenderableType, ...]]:
    rows: dict[tuple[str, str, str, str, str], list[str]] = {}
    for link in topology.links:
        rate = format_rate(link.rate) if link.rate else ""
        key = (link.from_, "⇄" if link.both else "→", link.when, rate, show_streams(link.streams))
        rows.setdefault(key, []).append(link.to)
    for (source, arrow, when, rate, streams), targets in rows.items():
        way = DrawnWay.BERTHED if when == "berthed" else DrawnWay.THIN if rate else DrawnWay.ALWAYS
        ways = Text(arrow, _STYLE[way]), "\n".join(targets), Text(when, _STYLE[way])
        yield Text(source, "bold"), *ways, rate, Text(streams)


def streams_table(topology: Topology) -> Table:
    """Return the table of streams, with the place where their records enter and their priority on links."""
    table = _table("Stream", "Records enter", "Priority", "About")
    for name, stream in topology.streams.items():
        owners = f" ({', '.join(stream.owners)})" if stream.owners else ""
        enter = {
            "moves": f"with the box{owners}",
            "ship": "at the ship in the key",
            "site": "at the site in the key",
            "shore": "at shore",
        }[stream.insert_point]
        table.add_row(Text(name, "bold"), enter, stream.priority.value, Text(stream.title))
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        table.add_column(column)
    return table
