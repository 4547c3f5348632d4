"""Derive facts about logs from their name, the topology and custody: class, holder, how far a source may extend them.

A ship may extend the logs that it writes itself, and container logs as far as its custody goes (``SourceReach``).
Settings and numbers of partitions are copied from a log's holder only, and never for logs that Fairlead's own services
write. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from fairlead.custody.view import CustodyView
from fairlead.kafka.convention import LAST_TERM
from fairlead.kafka.protocol.types import TopicPartition
from fairlead.names import parse_log
from topologies.model import NEEDED_WHOLE, InsertPoint, Link, Priority, SiteKind, Topology

CLASSES: Final = tuple(Priority)
"""Priority classes, the most urgent first."""

EVERY_SOURCE = frozenset({Priority.CONTROL, Priority.URGENT})
"""Classes that are copied over all links at once."""


def is_always_whole(topic: str) -> bool:
    """Return whether a log is copied from its start whatever ``Link.start`` is: ledgers and strays are needed whole."""
    return topic.partition(".")[0] in NEEDED_WHOLE


class SourceReach(NamedTuple):
    """How far a source may extend a log: records of terms up to ``term``, at offsets before ``stop`` (None: any)."""

    term: int
    stop: int | None = None

    def capped(self, end: int) -> int:
        """Return the source's log end, capped at ``stop``."""
        return end if self.stop is None else min(end, self.stop)


EVERYTHING: Final = SourceReach(LAST_TERM)
NOTHING: Final = SourceReach(0, 0)


class LogFacts(msgspec.Struct, frozen=True, gc=False):
    """Facts that follow from a log's name and never change."""

    stream: str
    priority: Priority
    fixed_holder: str | None
    moves: bool  # its holder changes by custody
    by_services: bool  # only Fairlead's own services write it


class Catalog:
    """Facts about logs by name, looked up once each."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._ships = {name for name, site in topology.sites.items() if site.kind is SiteKind.SHIP}
        self._links_to = {name: topology.links_to(name) for name in topology.sites}
        self._known: dict[str, LogFacts | None] = {}
        self._same: dict[LogFacts, LogFacts] = {}  # equal facts of many logs are kept once

    def facts(self, topic: str) -> LogFacts | None:
        """Return the facts of a log; None if the topology has no such log (``__consumer_offsets``)."""
        if topic not in self._known:
            found = self._look_up(topic)
            self._known[topic] = None if found is None else self._same.setdefault(found, found)
        return self._known[topic]

    def _look_up(self, topic: str) -> LogFacts | None:
        log = parse_log(topic)
        if log is None or not self._topology.has_log(log):
            return None
        stream = self._topology.streams[log.stream]
        return LogFacts(
            log.stream,
            stream.priority,
            self._topology.fixed_holder(topic),
            stream.insert_point is InsertPoint.MOVES,
            self._topology.written_by_services(log.stream),
        )

    def selects(self, link: Link, topic: str) -> bool:
        """Return whether a link's streams include a log, even if its source may not extend it."""
        log = parse_log(topic)
        return log is not None and self.facts(topic) is not None and link.takes(log)

    def may_carry(self, link: Link, topic: str) -> bool:
        """Return whether a link may carry a log at all."""
        log = parse_log(topic)
        if log is None or self.facts(topic) is None or not link.takes(log):
            return False
        return not self.is_from_ship(link) or self._topology.gives(link.from_, log)

    def is_from_ship(self, link: Link) -> bool:
        """Return whether the source of a link is a ship."""
        return link.from_ in self._ships

    def are_announced(self, link: Link) -> bool:
        """Return whether a link carries only logs that no ordinary client creates: a ledger names a container's new log
        before its first record, and logs of Fairlead's own services are new only when the topology is."""
        return all(
            self._topology.streams[stream].insert_point is InsertPoint.MOVES
            or self._topology.written_by_services(stream)
            for stream in link.streams
        )

    def copies_settings(self, link: Link, topic: str) -> bool:
        """Return whether a log's settings and number of partitions are copied over a link.

        Logs of Fairlead's own services have the same settings everywhere, so theirs are not copied. Others are copied
        from the log's holder, or from any site if the log has no fixed holder or no link from it leads here (a chain).
        """
        facts = self.facts(topic)
        if facts is None or facts.by_services or facts.fixed_holder == link.to or not self.may_carry(link, topic):
            return False
        if facts.fixed_holder in (None, link.from_):
            return True
        return not any(
            each.from_ == facts.fixed_holder and self.may_carry(each, topic) for each in self._links_to[link.to]
        )

    def priority(self, topic: str) -> Priority:
        """Return a log's class at the target, and on links that set no other."""
        facts = self.facts(topic)
        return facts.priority if facts else Priority.NORMAL

    def priority_on(self, link: Link, topic: str) -> Priority:
        """Return a log's class on a link."""
        facts = self.facts(topic)
        return link.priority_of(facts.stream, facts.priority) if facts else Priority.NORMAL

    def holder(self, custody: CustodyView, topic: str) -> str | None:
        """Return the site that appends to a log, by its name or by custody; None if unknown."""
        facts = self.facts(topic)
        return (facts.fixed_holder if facts else None) or custody.holder(topic)

    def limit(self, custody: CustodyView, site: str, topic: str) -> int | None:
        """Return the offset at which the replicator of ``site`` must stop, exclusive; None for no limit.

        The replicator writes nothing to a log that the site holds (limit 0). A site that just took custody still needs
        the old holder's records, up to and including the marker of its own term.
        """
        facts = self.facts(topic)
        if facts is not None and facts.fixed_holder == site:
            return 0
        if custody.holder(topic) == site:
            marker = custody.marker(topic)
            return 0 if marker is None else marker + 1
        return None

    def reach(self, custody: CustodyView, link: Link, topic: str) -> SourceReach:
        """Return how far a link that may carry a log may extend it, by the newest entry of this site's ledgers.

        A ship may extend the log of a container that it holds without limit. The log of a container that it handed over
        it may extend up to and including the marker of that handover. It may extend no other container's log.
        """
        facts = self.facts(topic)
        if facts is None or not facts.moves or not self.is_from_ship(link):
            return EVERYTHING
        grant = custody.grant(topic)
        if grant is None:
            return NOTHING
        if grant.to_site == link.from_:
            return SourceReach(grant.term)
        return SourceReach(grant.term, grant.marker + 1) if grant.from_site == link.from_ else NOTHING

    def carries(self, custody: CustodyView, link: Link, topic: str) -> bool:
        """Return whether a link carries a log now: not if its target holds the log, ``aboard`` only with custody, and
        from a ship only logs that the ship may extend."""
        facts = self.facts(topic)
        if facts is None or self.limit(custody, link.to, topic) == 0 or self.reach(custody, link, topic) == NOTHING:
            return False
        if link.streams.get(facts.stream) != "aboard":
            return True
        return not facts.moves or custody.holder(topic) == link.to

    def in_order(self, logs: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Sort logs by priority class, then by name."""
        return sorted(logs, key=lambda tp: (CLASSES.index(self.priority(tp.topic)), tp))
