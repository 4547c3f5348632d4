"""A topology as a graph, and as plain data for programs. Pure functions.

``connections`` is what both drawings and the table are made from: directed links that only differ in their direction
are one connection with two heads.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import networkx as nx

from topologies.model import Link, Selection, SiteKind, Topology
from topologies.users import service_users
from topologies.values import FOREVER, format_rate

KIND_ORDER = (SiteKind.SHIP, SiteKind.PORT, SiteKind.HQ, SiteKind.DATACENTRE, SiteKind.CUSTOMER)
KIND_TITLE = {
    SiteKind.SHIP: "ship",
    SiteKind.PORT: "port",
    SiteKind.HQ: "headquarters",
    SiteKind.DATACENTRE: "data centre",
    SiteKind.CUSTOMER: "customer",
}


class Way(StrEnum):
    """How a connection is drawn: by when it may be used, and whether its rate is bounded."""

    ALWAYS = "always"
    THIN = "always, bounded rate"
    BERTHED = "at the berth"


@dataclass(frozen=True, slots=True)
class Connection:
    """What goes on between two sites under one policy.

    Args:
        a, b: the sites, in the topology's order.
        forth, back: the link from a to b and the one from b to a; at least one is there.
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
    def way(self) -> Way:
        if self.link.when == "berthed":
            return Way.BERTHED
        return Way.THIN if self.link.rate else Way.ALWAYS

    @property
    def label(self) -> str:
        return format_rate(self.link.rate) if self.link.rate else ""


def site_graph(topology: Topology) -> nx.MultiDiGraph[str]:
    """Sites as nodes (attribute ``site``), directed links as edges (attribute ``link``)."""
    graph: nx.MultiDiGraph[str] = nx.MultiDiGraph(name=topology.name)
    for name, site in topology.sites.items():
        graph.add_node(name, site=site)
    for link in topology.directed_links():
        graph.add_edge(link.from_, link.to, key=link.name, link=link)
    return graph


def ordered_sites(topology: Topology) -> list[str]:
    """Site names by kind, within a kind as written."""
    return sorted(topology.sites, key=lambda name: KIND_ORDER.index(topology.sites[name].kind))


def connections(topology: Topology) -> list[Connection]:
    """Every pair of sites with a link, once for each policy (``when`` and rate)."""
    order = {name: number for number, name in enumerate(ordered_sites(topology))}
    found: dict[tuple[str, str, str, int | None], dict[bool, Link]] = {}
    for link in topology.directed_links():
        forth = order[link.from_] < order[link.to]
        a, b = (link.from_, link.to) if forth else (link.to, link.from_)
        found.setdefault((a, b, link.when, link.rate), {})[forth] = link
    return [Connection(a, b, heads.get(True), heads.get(False)) for (a, b, _, _), heads in found.items()]


def show_streams(streams: dict[str, Selection]) -> str:
    """``alerts, containers (aboard), feeds (ducks)``: a stream without a bracket is taken whole."""
    return ", ".join(name + _bracket(selection) for name, selection in streams.items())


def _bracket(selection: Selection) -> str:
    if selection == "all":
        return ""
    return f" ({selection if isinstance(selection, str) else ', '.join(selection)})"


def as_data(topology: Topology) -> dict[str, Any]:
    """The topology as JSON-ready data: links in one direction each, durations in seconds (null: for ever), rates in
    bytes a second (null: unbounded), the Kafka users of each site."""
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
