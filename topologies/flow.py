"""Where records of a stream can come to be: from the sites where they enter, along the links that take them.

Works on data as read, like ``topologies.check``. Pure functions.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping
from typing import Any

from topologies.loose import items, part, text
from topologies.mistakes import Path
from topologies.model import InsertPoint, SiteKind

_Arc = tuple[Path, str, str, dict[str, Any]]  # path of the link, from, to, streams


def unfed(data: Mapping[str, Any]) -> Iterator[tuple[Path, str, str, str]]:
    """``(path, site, stream, key)`` of every link that can never carry what it takes, and every feed without a way.

    The key is empty but for feeds, which go by customer. A link or site with another mistake is passed over.
    """
    sites, streams = part(data, "sites"), part(data, "streams")
    arcs = list(_arcs(data, sites))
    for stream, declared in streams.items():
        if not isinstance(declared, dict) or declared.get("insert_point", "site") not in list(InsertPoint):
            continue
        origins = _origins(data, sites, declared)
        if not origins:
            continue  # no ship yet, or no shore: nothing to carry is no mistake, and shore is reported by itself
        if declared.get("insert_point") == InsertPoint.SHORE:
            for customer, facts in part(data, "customers").items():
                yield from _unfed_feed(arcs, origins, stream, customer, facts, sites)
            continue
        taking = [arc for arc in arcs if stream in arc[3]]
        yield from _starved(taking, _reached(origins, taking), stream, "")


def _unfed_feed(
    arcs: list[_Arc],
    origins: set[str],
    stream: str,
    customer: str,
    facts: Any,
    sites: dict[str, Any],
) -> Iterator[tuple[Path, str, str, str]]:
    taking = [arc for arc in arcs if _matches(arc[3].get(stream), customer)]
    reached = _reached(origins, taking)
    yield from _starved([arc for arc in taking if customer in items(arc[3], stream)], reached, stream, customer)
    feed_at = text(facts, "feed_at")
    if feed_at in sites and feed_at not in reached:
        yield ("customers", customer, "feed_at"), feed_at, stream, customer


def _starved(taking: list[_Arc], reached: set[str], stream: str, key: str) -> Iterator[tuple[Path, str, str, str]]:
    told: set[Path] = set()
    for path, source, _, _ in taking:
        if source not in reached and path not in told:
            told.add(path)
            yield (*path, "streams", stream), source, stream, key


def _reached(origins: set[str], arcs: list[_Arc]) -> set[str]:
    onward: dict[str, set[str]] = {}
    for _, source, target, _ in arcs:
        onward.setdefault(source, set()).add(target)
    reached, new = set(origins), set(origins)
    while new:
        new = set().union(*(onward.get(site, ()) for site in new)) - reached
        reached |= new
    return reached


def _origins(data: Mapping[str, Any], sites: dict[str, Any], stream: dict[str, Any]) -> set[str]:
    """The sites where records of a stream may enter. A site whose kind is a mistake may be anything."""
    at = text(part(data, "shore"), "at")
    match stream.get("insert_point", "site"):
        case InsertPoint.SHORE:
            return {at} if at in sites else set()
        case InsertPoint.SHIP:
            return {name for name, site in sites.items() if _kind(site) in (SiteKind.SHIP, None)}
        case _:
            return {name for name, site in sites.items() if _kind(site) != SiteKind.CUSTOMER}


def _kind(site: Any) -> str | None:
    kind = text(site, "kind")
    return kind if kind in list(SiteKind) else None


def _arcs(data: Mapping[str, Any], sites: dict[str, Any]) -> Iterator[_Arc]:
    for index, link in enumerate(items(data, "links")):
        source, target, streams = text(link, "from"), text(link, "to"), part(link, "streams")
        if source in sites and target in sites and source != target:
            yield ("links", index), source, target, streams
            if link.get("both") is True:
                yield ("links", index), target, source, streams


def _matches(selection: Any, customer: str) -> bool:
    if isinstance(selection, list):
        return any(isinstance(pattern, str) and fnmatch.fnmatchcase(customer, pattern) for pattern in selection)
    return bool(selection == "all")
