"""A topology on a terminal of 100 columns: a graph drawing and three tables, as rich renderables. Pure functions.

The drawing is an arc diagram: a line of text per site, a vertical line per connection, with a head where records
arrive. It stays readable where boxes and crossing lines would not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from topologies.graph import KIND_TITLE, Connection, Way, connections, ordered_sites, show_streams
from topologies.model import Site, SiteKind, Topology
from topologies.values import format_duration, format_rate

WIDTH = 100
_STEP = 3  # columns from one lane to the next
_STYLE = {Way.ALWAYS: "green", Way.THIN: "cyan", Way.BERTHED: "yellow"}
_LINE = {Way.ALWAYS: "│", Way.THIN: "╎", Way.BERTHED: "┊"}
_MARK = {
    SiteKind.SHIP: "▲",
    SiteKind.PORT: "●",
    SiteKind.HQ: "■",
    SiteKind.DATACENTRE: "■",
    SiteKind.CUSTOMER: "◆",
}


def draw(topology: Topology) -> RenderableType:
    """Everything ``fairlead topology show`` prints."""
    parts: list[RenderableType] = [Text.assemble((topology.title or topology.name, "bold"), f"  ({topology.name})")]
    if topology.description:
        parts.append(Padding(Text(topology.description), (0, 2)))
    parts += [Text(), *diagram(topology), Text(), sites_table(topology)]
    if topology.links:
        parts += [Text(), links_table(topology)]
    return Group(*parts, Text(), streams_table(topology))


class _Lane(NamedTuple):
    """A connection as a vertical line: rows of its ends, from 0, and its column, from 0."""

    top: int
    bottom: int
    column: int
    connection: Connection
    into_top: bool
    into_bottom: bool


def diagram(topology: Topology) -> list[Text]:
    """Lines of the arc diagram; one line that says so when there are too many links for the width."""
    sites = ordered_sites(topology)
    lanes = _lanes(topology, sites)
    labels = [f"{_MARK[topology.sites[name].kind]} {name}" for name in sites]
    left = max(map(len, labels)) + 2
    columns = max((lane.column for lane in lanes), default=-1) + 1
    if left + columns * _STEP > WIDTH:
        return [Text(f"{len(lanes)} connections are too many to draw in {WIDTH} columns; --svg FILE draws them all.")]
    lines: list[Text] = []
    for row, label in enumerate(labels):
        if row:
            lines.append(_between(lanes, row, left, columns))
        lines.append(_site_line(lanes, row, label, left, columns))
    return [*lines, Text(), _legend({lane.connection.way for lane in lanes})]


def _lanes(topology: Topology, sites: list[str]) -> list[_Lane]:
    """Short lines first, each in the first column that is free between its ends."""
    rows = {name: number for number, name in enumerate(sites)}
    spans = []
    for connection in connections(topology):
        top, bottom = sorted((rows[connection.a], rows[connection.b]))
        spans.append((list(Way).index(connection.way), bottom - top, top, bottom, connection))
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
    """The character where a site's line meets a column, and its style."""
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


def _legend(ways: set[Way]) -> Text:
    line = Text("▲ ▼ records arrive here", "dim")
    for way in Way:
        if way in ways:
            line.append("   ")
            line.append(_LINE[way], _STYLE[way])
            line.append(f" {way}", "dim")
    return line


def sites_table(topology: Topology) -> Table:
    """Sites by kind, with where they are and how long they keep what."""
    table = _table("Site", "Kind", "Where", "Keeps")
    for name in ordered_sites(topology):
        site = topology.sites[name]
        shore = ", shore" if topology.shore and topology.shore.at == name else ""
        table.add_row(_named(name, site.title), KIND_TITLE[site.kind] + shore, _where(site), _keeps(site))
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
    """Links; those from one site that differ only in where they go share a row."""
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
        way = Way.BERTHED if when == "berthed" else Way.THIN if rate else Way.ALWAYS
        yield Text(source, "bold"), Text(arrow, _STYLE[way]), "\n".join(targets), Text(when, _STYLE[way]), rate, streams


def streams_table(topology: Topology) -> Table:
    """Streams, where their records enter and in which order links carry them."""
    table = _table("Stream", "Records enter", "Priority", "About")
    for name, stream in topology.streams.items():
        owners = f" ({', '.join(stream.owners)})" if stream.owners else ""
        enter = {
            "moves": f"with the box{owners}",
            "ship": "at the ship in the key",
            "site": "at the site in the key",
            "shore": "at shore",
        }[stream.insert_point]
        table.add_row(Text(name, "bold"), enter, stream.priority.value, stream.title)
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        table.add_column(column)
    return table
