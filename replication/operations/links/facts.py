"""Gather the facts of a link operation: the request (operation, link, logs) and the state of both ends of the link.

``gather_facts`` asks the sites. Plans are built from the resulting ``LinkFacts`` alone. Errors about names list the
valid ones.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from fairlead.errors import ConfigurationError, FairleadError, OptionError, UnknownNameError
from fairlead.kafka.protocol.types import TopicPartition
from fairlead.names import parse_log
from replication.catalog import Catalog
from replication.operations.links.access import ClusterAccess, Status
from replication.overrides import Overrides
from topologies.model import Link, Topology, check_sites


class LinkOperation(StrEnum):
    """An operation on a link, or on logs of it."""

    PAUSE = "pause"
    RESUME = "resume"
    PROMOTE = "promote"
    FAILOVER = "failover"
    REVERSE = "reverse"
    RESTORE = "restore"


@dataclass(frozen=True, slots=True)
class LinkScope:
    """The part of a link to operate on: all of it (both None), one stream, or one topic."""

    stream: str | None = None
    log: str | None = None

    @property
    def is_whole(self) -> bool:
        return self.stream is None and self.log is None

    def __str__(self) -> str:
        if self.log is not None:
            return f"log {self.log}"
        return "the whole link" if self.stream is None else f"stream {self.stream}"

    def has(self, topic: str) -> bool:
        """Return whether a topic is in the scope."""
        if self.log is not None:
            return topic == self.log
        return self.stream is None or topic.partition(".")[0] == self.stream


def find_link(topology: Topology, name: str | None, source: str | None = None, target: str | None = None) -> Link:
    """Return the link with this name (``alpha->beta``), or the link between two sites.

    Raises:
        UnknownNameError: no link matches; the error names the nearest. ConfigurationError: several links match.
    """
    links = topology.directed_links()
    if name is not None:
        if source is not None or target is not None:
            raise OptionError("a link by its name and by its sites", hint="give LINK, or --from and --to")
        found = [link for link in links if link.name == name.strip().replace("→", "->")]
        if not found:
            raise UnknownNameError("link", name, [link.name for link in links])
        return found[0]
    if source is None or target is None:
        raise OptionError(
            "which link?",
            hint=f"its name, in quotes for the shell, or --from and --to; links: {_names(links)}",
        )
    check_sites(topology, (source, target))
    between = [link for link in links if (link.from_, link.to) == (source, target)]
    if not between:
        raise UnknownNameError("link", f"{source}->{target}", [link.name for link in links])
    if len(between) > 1:
        raise ConfigurationError(
            f"{len(between)} links lead from {source} to {target}", hint=f"name one: {_names(between)}"
        )
    return between[0]


def check_scope(topology: Topology, link: Link, scope: LinkScope) -> None:
    """Check that a link can carry a scope.

    Raises:
        ConfigurationError: the scope has both a stream and a topic, or names a single partition.
        UnknownNameError: the topology has no such stream or topic, or the link does not carry it.
    """
    if scope.stream is not None and scope.log is not None:
        raise OptionError("a stream and a topic of it", hint="give --stream or --topic")
    if scope.stream is not None and scope.stream not in link.streams:
        kind = "stream" if scope.stream not in topology.streams else f"stream on link {link.name}:"
        raise UnknownNameError(kind, scope.stream, link.streams)
    if scope.log is None:
        return
    if "/" in scope.log:
        whole = scope.log.partition("/")[0]
        raise ConfigurationError(f"{scope.log} is one partition", hint=f"give the whole topic: --topic {whole}")
    log = parse_log(scope.log)
    if log is None or log.stream not in topology.streams:
        raise UnknownNameError("stream", log.stream if log else scope.log, topology.streams)


def may_have(link: Link, scope: LinkScope) -> bool:
    """Return whether a link carries any log of a scope."""
    log = parse_log(scope.log) if scope.log is not None else None
    if scope.log is not None:
        return log is not None and link.takes(log)
    return scope.stream is None or scope.stream in link.streams


def carried_topics(catalog: Catalog, link: Link, topics: Collection[str], scope: LinkScope) -> list[str]:
    """Return the topics of a scope that a link may carry, sorted by name."""
    return sorted(topic for topic in topics if scope.has(topic) and catalog.may_carry(link, topic))


def _names(links: Collection[Link]) -> str:
    return ", ".join(sorted(link.name for link in links)) or "(none)"


ABOUT_LOGS: Final = frozenset(
    {LinkOperation.PROMOTE, LinkOperation.FAILOVER, LinkOperation.REVERSE, LinkOperation.RESTORE}
)
LEVEL: Final = frozenset({LinkOperation.PROMOTE, LinkOperation.REVERSE})  # both ends must be equal
PATIENCE: Final = 5.0
PAUSE: Final = 0.1


@dataclass(frozen=True, slots=True)
class LinkEnd:
    """One end of a link: the ends of the scope's logs at that site, or the error why the site could not be asked."""

    site: str
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    error: str | None = None

    def partitions(self, topic: str) -> dict[TopicPartition, int]:
        """Return the ends of a topic's partitions, in order; empty if the site does not have the topic."""
        return {tp: end for tp, end in sorted(self.ends.items()) if tp.topic == topic}


@dataclass(frozen=True, slots=True)
class LinkFacts:
    """The facts from which the plan for one link is built.

    Args:
        topics: The scope's topics, by name. Empty for an operation on the whole link.
        orders: The orders in force at the link's target.
        source_orders: The orders in force at its source; None if not needed or not readable.
        status: The status of the target's replicator; None if none has ever run on this machine.
        source_status: The status of the source's replicator.
        by: The user who gives the order. at: The time of the order.
        every: A resume ends every pause on the link.
    """

    topology: Topology
    catalog: Catalog
    link: Link
    scope: LinkScope
    topics: tuple[str, ...]
    source: LinkEnd
    target: LinkEnd
    orders: Overrides
    by: str
    at: dt.datetime
    reason: str = ""
    every: bool = False
    source_orders: Overrides | None = None
    status: Status | None = None
    source_status: Status | None = None

    def way_back(self, topic: str) -> Link | None:
        """Return a link in the other direction that carries a topic, preferably one that is always open."""
        back = [
            link
            for link in self.topology.links_to(self.link.from_)
            if link.from_ == self.link.to and self.catalog.may_carry(link, topic)
        ]
        return min(back, key=lambda link: link.when != "always", default=None)


async def gather_facts(
    verb: LinkOperation,
    topology: Topology,
    link: Link,
    scope: LinkScope,
    access: ClusterAccess,
    *,
    by: str,
    reason: str = "",
    every: bool = False,
    patience: float = PATIENCE,
) -> LinkFacts:
    """Gather the state of both ends of a link, and their replicators' status, as far as the operation needs it.

    Args:
        by: The user who gives the order. every: A resume ends every pause of the link, not only that of ``scope``.
        patience: Seconds to wait for records that are still being copied.

    Raises:
        ConfigurationError: the link cannot carry the scope.
        FairleadError: the site that gets the order cannot be asked.
    """
    check_scope(topology, link, scope)
    catalog = Catalog(topology)
    orders = await access.orders(link.to)
    facts = LinkFacts(
        topology,
        catalog,
        link,
        scope,
        (),
        LinkEnd(link.from_),
        LinkEnd(link.to),
        orders,
        by,
        dt.datetime.now(dt.UTC),
        reason,
        every,
    )
    if verb not in ABOUT_LOGS:
        return _with(facts, access)

    def wanted(topic: str) -> bool:
        return scope.has(topic) and catalog.may_carry(link, topic)

    deadline = time.monotonic() + patience
    while True:
        target = LinkEnd(link.to, await access.ends(link.to, wanted))
        source = await _source(link.from_, wanted, access)
        uneven = verb in LEVEL and source.error is None and source.ends != target.ends
        if not uneven or time.monotonic() > deadline:
            break
        await asyncio.sleep(PAUSE)
    return _with(await _whole(facts, source, target, verb, access), access)


async def _whole(
    facts: LinkFacts, source: LinkEnd, target: LinkEnd, verb: LinkOperation, access: ClusterAccess
) -> LinkFacts:
    topics = carried_topics(facts.catalog, facts.link, {tp.topic for tp in (*source.ends, *target.ends)}, facts.scope)
    source_orders = None
    if verb is LinkOperation.REVERSE and source.error is None:
        try:
            source_orders = await access.orders(facts.link.from_)
        except FairleadError as error:
            source = LinkEnd(source.site, {}, error.what)
    return replace(facts, topics=tuple(topics), source=source, target=target, source_orders=source_orders)


async def _source(site: str, wanted: Callable[[str], bool], access: ClusterAccess) -> LinkEnd:
    try:
        return LinkEnd(site, await access.ends(site, wanted))
    except FairleadError as error:
        return LinkEnd(site, {}, error.what)


def _with(facts: LinkFacts, access: ClusterAccess) -> LinkFacts:
    return replace(facts, status=access.status(facts.link.to), source_status=access.status(facts.link.from_))
