"""What must hold between the parts of a topology: names that stand for something, one holder a log, ways for streams.

Works on data as read (dicts and lists), passing over whatever has the wrong form, so that these mistakes can be
reported together with those of form. Pure functions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from fairlead.errors import nearest
from fairlead.names import SITE_NAME
from topologies.flow import unfed
from topologies.loose import items, part, text
from topologies.mistakes import Finding, Path, quote
from topologies.model import InsertPoint, SiteKind
from topologies.permissions import check_permissions
from topologies.users import RESERVED_NAMES, is_reserved

_FEEDS = "feeds"  # the stream of customers' feeds
_GROUPS = re.compile(r"[^*?[]+\*?")  # what Kafka's rules can say: a name, or a prefix
_STAYING = [point for point in InsertPoint if point is not InsertPoint.MOVES]
_AT_PLACES = (SiteKind.PORT, SiteKind.HQ)


def check(data: Mapping[str, Any]) -> Iterator[Finding]:
    """Everything wrong between the parts. ``data`` has the default streams already."""
    sites = part(data, "sites")
    streams = part(data, "streams")
    yield from _sites(data, sites, streams)
    yield from _streams(streams)
    yield from check_permissions(data, streams)
    yield from _links(data, sites, streams)
    yield from _people(data, sites, streams)
    yield from unfed_links(data)


def _known(path: Path, name: Any, kind: str, valid: Mapping[str, Any], *, at_key: bool = False) -> Iterator[Finding]:
    if isinstance(name, str) and name not in valid:
        expected = ", ".join(valid) or f"a {kind}, but the topology has none"
        yield Finding(path, f"there is no {kind} {quote(name)}", expected, nearest(name, valid), at_key)


def _sites(data: Mapping[str, Any], sites: dict[str, Any], streams: dict[str, Any]) -> Iterator[Finding]:
    if isinstance(data.get("sites"), dict) and not sites:
        yield Finding(("sites",), "a topology without sites", "at least one site", at_key=True)
    seen: dict[tuple[str, str, str], str] = {}
    for name, site in sites.items():
        kind = text(site, "kind")
        path: Path = ("sites", name)
        if kind == SiteKind.SHIP and "imo" not in site:
            yield Finding(path, "a ship without its IMO number", 'imo: "9074729"', at_key=True)
        if kind == SiteKind.PORT and "unlocode" not in site:
            yield Finding(path, "a port without its UN/LOCODE", "unlocode: JPTYO", at_key=True)
        if kind != SiteKind.SHIP and kind in list(SiteKind) and text(site, "imo"):
            yield Finding((*path, "imo"), f"an IMO number on a {kind}", "only ships have one", at_key=True)
        for key in ("imo", "unlocode"):
            value = text(site, key)
            if value is None or kind is None or (key == "unlocode" and kind not in _AT_PLACES):
                continue
            other = seen.setdefault((kind, key, value), name)
            if other != name:
                yield Finding((*path, key), f"{other} has the same {key} {quote(value)}", f"one {kind} each")
        for stream in part(site, "retention"):
            yield from _known((*path, "retention", stream), stream, "stream", {"default": None, **streams}, at_key=True)


def _streams(streams: dict[str, Any]) -> Iterator[Finding]:
    seen: dict[str, str] = {}
    for name, stream in streams.items():
        path: Path = ("streams", name)
        if name == "default":
            yield Finding(path, "'default' means every stream in a site's retention", "another name", at_key=True)
        if name == "fairlead":
            yield Finding(path, "topics that begin with fairlead. are Fairlead's own", "another name", at_key=True)
        moves = text(stream, "insert_point") == InsertPoint.MOVES
        owners = items(stream, "owners")
        if moves and not owners:
            yield Finding(path, "a stream that moves with its boxes, without owners", "owners: [BIGU]", at_key=True)
        if owners and not moves and text(stream, "insert_point") in (None, *InsertPoint):
            expected = "insert_point: moves, or no owners"
            yield Finding((*path, "owners"), "owners of a stream that does not move with boxes", expected, at_key=True)
        for index, owner in enumerate(owners):
            if not isinstance(owner, str):
                continue
            other = seen.setdefault(owner, name)
            if other != name:
                where = (*path, "owners", index)
                yield Finding(where, f"{owner} is an owner in stream {other} already", "each owner in one stream")


def _links(data: Mapping[str, Any], sites: dict[str, Any], streams: dict[str, Any]) -> Iterator[Finding]:
    seen: dict[tuple[str, str, str], int] = {}
    for index, link in enumerate(items(data, "links")):
        path: Path = ("links", index)
        source, target = text(link, "from"), text(link, "to")
        yield from _known((*path, "from"), source, "site", sites)
        yield from _known((*path, "to"), target, "site", sites)
        if isinstance(link, dict) and isinstance(link.get("streams"), dict) and not link["streams"]:
            yield Finding((*path, "streams"), "a link that takes nothing", "at least one stream", at_key=True)
        for stream, selection in part(link, "streams").items():
            yield from _selection(data, streams, (*path, "streams", stream), stream, selection)
        for number, pattern in enumerate(items(link, "groups")):
            if isinstance(pattern, str) and not _GROUPS.fullmatch(pattern):
                problem = f"no Kafka rule can say which groups {quote(pattern)} means"
                expected = "a group's name, or the beginning of names and one * at the end (billing-*)"
                yield Finding((*path, "groups", number), problem, expected)
        for stream in part(link, "priority"):
            taken = dict.fromkeys(part(link, "streams"))
            yield from _known((*path, "priority", stream), stream, "stream on this link", taken, at_key=True)
        if source is None or target is None:
            continue
        if source == target:
            yield Finding((*path, "to"), f"a link from {source} to itself", "two sites")
            continue
        when = text(link, "when") or "always"
        ends = [(source, target)] + ([(target, source)] if link.get("both") is True else [])
        for one, other in ends:
            first = seen.setdefault((one, other, when), index)
            if first != index:
                problem = f"links[{first}] goes from {one} to {other} already, when {when}"
                yield Finding(path, problem, "one link, with all its streams")
                break
        if when == "berthed" and source in sites and target in sites:
            yield from _berth((*path, "when"), sites[source], sites[target])


def _berth(path: Path, one: Any, other: Any) -> Iterator[Finding]:
    kinds = {text(one, "kind"), text(other, "kind")}
    if kinds <= set(SiteKind) and not (SiteKind.SHIP in kinds and kinds & set(_AT_PLACES)):
        yield Finding(path, "a berth between sites that are no ship and port", "a ship at one end, a port at the other")


def _selection(
    data: Mapping[str, Any], streams: dict[str, Any], path: Path, name: str, selection: Any
) -> Iterator[Finding]:
    yield from _known(path, name, "stream", streams, at_key=True)
    stream = streams.get(name)
    stays = isinstance(stream, dict) and stream.get("insert_point", InsertPoint.SITE) in _STAYING
    if selection == "aboard" and stays:
        moving = [n for n, s in streams.items() if text(s, "insert_point") == InsertPoint.MOVES]
        expected = f"all or patterns; aboard is for {', '.join(moving) or 'streams with insert_point: moves'}"
        yield Finding(path, f"stream {name} does not move with boxes, so nothing of it is aboard", expected)
    if selection == []:
        yield Finding(path, "a list without patterns takes nothing", "all, aboard or patterns")
    if isinstance(selection, list) and text(stream, "insert_point") == InsertPoint.SHORE:
        for index, pattern in enumerate(selection):
            if isinstance(pattern, str) and not set(pattern) & set("*?["):
                yield from _known((*path, index), pattern, "customer", part(data, "customers"))


def _people(data: Mapping[str, Any], sites: dict[str, Any], streams: dict[str, Any]) -> Iterator[Finding]:
    customers, users = part(data, "customers"), part(data, "users")
    shore = part(data, "shore")
    yield from _known(("shore", "at"), text(shore, "at"), "site", sites)
    for name, customer in customers.items():
        path: Path = ("customers", name)
        yield from _name(path, name)
        feed_at = text(customer, "feed_at")
        yield from _known((*path, "feed_at"), feed_at, "site", sites)
        if feed_at and not data.get("shore"):
            yield Finding((*path, "feed_at"), "a feed without shore, which writes it", "shore: {at: <site>}")
        if feed_at and _FEEDS not in streams:
            problem = f"a feed without stream {_FEEDS}, whose logs are the feeds"
            yield Finding((*path, "feed_at"), problem, f"streams: {{{_FEEDS}: {{insert_point: {InsertPoint.SHORE}}}}}")
        yield from _grain(path, customer)
        for index, site in enumerate(items(customer, "reads_at")):
            yield from _known((*path, "reads_at", index), site, "site", sites)
    for name, user in users.items():
        path = ("users", name)
        yield from _name(path, name)
        if name in customers:
            yield Finding(path, f"{name} is a customer already", "another name: each is a Kafka user", at_key=True)
        for index, site in enumerate(items(user, "at")):
            yield from _known((*path, "at", index), site, "site", sites)


def _grain(path: Path, customer: Mapping[str, Any]) -> Iterator[Finding]:
    """``feed`` says what is in a feed that there is, and movements are those at a port."""
    grain, port = text(customer, "feed"), text(customer, "port")
    if grain and not text(customer, "feed_at"):
        yield Finding((*path, "feed"), "a kind of feed without the feed", "feed_at: <site>", at_key=True)
    if isinstance(customer, dict) and customer.get("table") and not text(customer, "feed_at"):
        yield Finding((*path, "table"), "a table of a feed without the feed", "feed_at: <site>", at_key=True)
    if grain == "movements" and not port:
        yield Finding((*path, "feed"), "movements at no port", "port: <UN/LOCODE>", at_key=True)
    if port and grain != "movements":
        yield Finding((*path, "port"), "only a feed of movements is about a port", "feed: movements", at_key=True)


def _name(path: Path, name: str) -> Iterator[Finding]:
    if is_reserved(name):
        expected = f"another name than {', '.join(sorted(RESERVED_NAMES))} and replicator..."
        yield Finding(path, f"{name} is a user of Fairlead's own", expected, at_key=True)
    elif not SITE_NAME.fullmatch(name):  # a dot would put one user's groups below another's: ducks.evil, ducks.
        expected = "lower-case letters, digits and hyphens, beginning with a letter"
        yield Finding(path, f"{quote(name)} cannot be a user's name", expected, at_key=True)


def unfed_links(data: Mapping[str, Any]) -> Iterator[Finding]:
    """Links that take a stream from a site which cannot have any of it, and feeds that never reach their reader."""
    for path, site, stream, key in unfed(data):
        what = f"{stream}.{key}" if key else f"stream {stream}"
        if path[0] == "customers":
            yield Finding(path, f"{what} never reaches {site}", f"a way of links that take {what} from shore to {site}")
        else:
            yield Finding(path, f"{site} never has {what}", f"a link that brings it to {site}", at_key=True)
