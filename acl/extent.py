"""Which topics of a stream something is about, in the only two ways a Kafka rule can say it: a name, or a prefix. Pure.

A stream's prefix always ends with its dot (``red.``), so that a stream ``reds`` is never meant by it. What neither a
name nor a prefix can say is rounded up to the next prefix within the stream; ``docs/access.md`` lists those cases.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from dataclasses import dataclass

from acl.rules import Pattern
from topologies.model import InsertPoint, Selection, SiteKind, Stream, Topology

ONE_LOG_PER_SITE = frozenset({"events", "alerts", "custody", "strays", "deadletters", "bookings"})
"""The bridge's own streams: exactly one log ``<stream>.<site>`` for each site that has a bridge."""

WRITTEN_BY_SERVICES = ONE_LOG_PER_SITE | {"ships", "feeds"}
"""Default streams whose records come from Fairlead's own services only; so do all streams that move by custody."""

_WILDCARD = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True, order=True)
class Extent:
    """All topics with this name (``LITERAL``: one), or whose name begins with it (``PREFIXED``)."""

    name: str
    pattern: Pattern = Pattern.PREFIXED

    def covers(self, other: Extent) -> bool:
        """Whether every topic of ``other`` is one of this extent."""
        if self.pattern is Pattern.LITERAL:
            return self == other
        return other.name.startswith(self.name)

    def meet(self, other: Extent) -> Extent | None:
        """The topics of both; None when there can be none."""
        if self.covers(other):
            return other
        return self if other.covers(self) else None


def whole(stream: str) -> Extent:
    """Every log of a stream."""
    return Extent(f"{stream}.")


def log(stream: str, key: str) -> Extent:
    """One log."""
    return Extent(f"{stream}.{key}", Pattern.LITERAL)


def keyed(stream: str, pattern: str) -> Extent:
    """The logs of a stream with this key, or whose keys begin with what stands before the pattern's final ``*``."""
    return Extent(f"{stream}.{pattern[:-1]}") if pattern.endswith("*") else log(stream, pattern)


def smallest(extents: Iterable[Extent]) -> tuple[Extent, ...]:
    """The same topics with no extent that another one covers, sorted."""
    unique = sorted(set(extents))
    return tuple(e for e in unique if not any(other.covers(e) for other in unique if other != e))


def meet(some: Iterable[Extent], others: Iterable[Extent]) -> tuple[Extent, ...]:
    """The topics that are in both."""
    others = tuple(others)
    return smallest(both for a in some for b in others if (both := a.meet(b)))


def selected(stream: str, selection: Selection) -> tuple[Extent, ...]:
    """What a link may take of a stream. ``aboard`` is the whole stream, because custody decides it at run time; a key
    pattern is rounded up to what stands before its first wildcard."""
    if isinstance(selection, str):
        return (whole(stream),)
    return smallest(_matching(stream, pattern) for pattern in selection)


def _matching(stream: str, pattern: str) -> Extent:
    wildcard = _WILDCARD.search(pattern)
    if wildcard is None:
        return log(stream, pattern)
    return Extent(f"{stream}.{pattern[: wildcard.start()]}")


def exactly(pattern: str) -> Extent | None:
    """The names that a shell-style pattern stands for; None where neither a name nor a prefix says the same. ``*``
    alone has none: Kafka takes no empty prefix."""
    if _WILDCARD.search(pattern) is None:
        return Extent(pattern, Pattern.LITERAL) if pattern else None
    head = pattern[:-1]
    return Extent(head) if head and pattern.endswith("*") and _WILDCARD.search(head) is None else None


def takes(selection: Selection, key: str) -> bool:
    """Whether a link's selection takes one log, ``aboard`` counted as yes."""
    return isinstance(selection, str) or any(fnmatch.fnmatchcase(key, pattern) for pattern in selection)


def held_at(topology: Topology, stream: str, site: str) -> tuple[Extent, ...]:
    """The logs that ``site`` may append to: its own, or those whose custody it can be given.

    A stream that moves is one extent, whatever is held now: a rule cannot follow custody. There the append
    convention fences (design, section 5).
    """
    here = topology.sites[site]
    match topology.streams[stream].insert_point:
        case InsertPoint.MOVES:
            return (whole(stream),) if can_hold_containers(topology, stream, site) else ()
        case InsertPoint.SHIP:
            return (Extent(f"{stream}.{here.imo}."),) if here.kind is SiteKind.SHIP and here.imo else ()
        case InsertPoint.SHORE:
            return (whole(stream),) if topology.shore and topology.shore.at == site else ()
        case InsertPoint.SITE:
            # Nothing enters at a customer's site, and bookings are taken at an office ashore.
            none = here.kind is SiteKind.CUSTOMER or (stream == "bookings" and here.kind is SiteKind.SHIP)
            return () if none else _logs_of(stream, site)


def held_elsewhere(topology: Topology, stream: str, site: str) -> tuple[Extent, ...]:
    """The logs of a stream that ``site`` can have as replicas: without its own, but for streams that move."""
    others = [other for other in topology.sites if other != site]
    own = held_at(topology, stream, site)
    insert_point = topology.streams[stream].insert_point
    if insert_point is InsertPoint.MOVES or (not own and insert_point is not InsertPoint.SITE):
        return (whole(stream),)
    return smallest(extent for other in others for extent in held_at(topology, stream, other))


def can_hold_containers(topology: Topology, stream: str, site: str) -> bool:
    """Whether boxes of a stream can be in this site's custody: at ports and headquarters always, on a ship when a
    link brings the stream there, at a customer's never."""
    kind = topology.sites[site].kind
    if kind is SiteKind.SHIP:
        return any(stream in link.streams for link in topology.links_to(site))
    return kind is not SiteKind.CUSTOMER


def exists_at(topology: Topology, stream: str, site: str) -> bool:
    """Whether logs of a stream can be at a site at all: held there, or brought there by a link."""
    return bool(held_at(topology, stream, site)) or any(stream in link.streams for link in topology.links_to(site))


def log_exists_at(topology: Topology, stream: str, key: str, site: str) -> bool:
    """Whether one log can be at a site: held there, or taken there by a link."""
    one = log(stream, key)
    return any(extent.covers(one) for extent in held_at(topology, stream, site)) or any(
        stream in link.streams and takes(link.streams[stream], key) for link in topology.links_to(site)
    )


def written_by_services(name: str, stream: Stream) -> bool:
    """Whether records of a stream come from Fairlead's services only, so that no user may be given WRITE."""
    return name in WRITTEN_BY_SERVICES or stream.insert_point is InsertPoint.MOVES


def _logs_of(stream: str, site: str) -> tuple[Extent, ...]:
    own = log(stream, site)
    return (own,) if stream in ONE_LOG_PER_SITE else (own, Extent(f"{stream}.{site}."))
