"""Which logs a target follows over which of its links. Pure functions; called again whenever something changed.

Small urgent classes are followed over every open link that carries them: the first copy wins and the others are
dropped unread. (Not over a thin link, when there is another and its source neither writes the log nor has more: the
ledger would come back over the satellite that it was sent out on.) Everything else is followed over one link at a
time: the holder's own when it is open, else one whose source has more than the target. That keeps a full mesh from
carrying every byte once per neighbour.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from fairlead.names import parse_log
from fairlead.wire.types import TopicPartition
from replication.rate import CLASSES
from topologies.model import InsertPoint, Link, Priority, Topology

EVERY_SOURCE = frozenset({Priority.CONTROL, Priority.URGENT})
"""Classes that are followed over all links at once."""


class Custody(Protocol):
    """What the plan asks of ``fairlead.custody.CustodyView``."""

    def holder(self, log: str) -> str | None: ...
    def marker(self, log: str) -> int | None: ...


@dataclass(frozen=True, slots=True)
class Source:
    """One open link that carries a log. ``end`` is the source's log end as last heard, None when not yet known."""

    link: str
    site: str
    end: int | None = None
    slow: bool = False  # the link has a rate


class Facts(NamedTuple):
    """What a log's name says about it, for ever."""

    stream: str
    priority: Priority
    fixed_holder: str | None
    moves: bool  # its holder changes by custody


class Catalog:
    """Facts about logs by name, looked up once each."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._known: dict[str, Facts | None] = {}
        self._same: dict[Facts, Facts] = {}  # of very many logs the same is true: kept once

    def facts(self, topic: str) -> Facts | None:
        """None for a topic that is no log of any stream of the topology (``__consumer_offsets``)."""
        if topic not in self._known:
            found = self._look_up(topic)
            self._known[topic] = None if found is None else self._same.setdefault(found, found)
        return self._known[topic]

    def _look_up(self, topic: str) -> Facts | None:
        log = parse_log(topic)
        stream = self._topology.streams.get(log.stream) if log else None
        if log is None or stream is None:
            return None
        moves = stream.insert_point is InsertPoint.MOVES
        return Facts(log.stream, stream.priority, self._topology.fixed_holder(topic), moves)

    def takes(self, link: Link, topic: str) -> bool:
        """Whether a link may carry a log at all."""
        log = parse_log(topic)
        return log is not None and self.facts(topic) is not None and link.takes(log)

    def priority(self, topic: str) -> Priority:
        """The class in which a log is appended here, and travels where its link says nothing else."""
        facts = self.facts(topic)
        return facts.priority if facts else Priority.NORMAL

    def priority_on(self, link: Link, topic: str) -> Priority:
        """The class in which a log travels over a link."""
        facts = self.facts(topic)
        return link.priority_of(facts.stream, facts.priority) if facts else Priority.NORMAL

    def holder(self, custody: Custody, topic: str) -> str | None:
        """The site that appends to a log: fixed by its name, or by custody; None when nobody knows."""
        facts = self.facts(topic)
        return (facts.fixed_holder if facts else None) or custody.holder(topic)

    def limit(self, custody: Custody, site: str, topic: str) -> int | None:
        """Offset at which the replicator of ``site`` must stop, exclusive; None for no limit.

        A site that holds a log never has it overwritten (limit 0). A site that custody was just given to still needs
        what the old holder wrote, up to and including the marker of its term.
        """
        facts = self.facts(topic)
        if facts is not None and facts.fixed_holder == site:
            return 0
        if custody.holder(topic) == site:
            marker = custody.marker(topic)
            return 0 if marker is None else marker + 1
        return None

    def carries(self, custody: Custody, link: Link, topic: str) -> bool:
        """Whether a link that takes a log shall carry it now: never its target's own, ``aboard`` only with custody."""
        facts = self.facts(topic)
        if facts is None or self.limit(custody, link.to, topic) == 0:
            return False
        if link.streams.get(facts.stream) != "aboard":
            return True
        return not facts.moves or custody.holder(topic) == link.to

    def in_order(self, logs: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Logs by priority class, then by name: the order in which new ones are made and read."""
        return sorted(logs, key=lambda tp: (CLASSES.index(self.priority(tp.topic)), tp))


def choose(
    sources: Sequence[Source],
    *,
    every: bool,
    current: Collection[str],
    holder: str | None,
    end: int,
) -> frozenset[str]:
    """The links over which to follow one log.

    Args:
        sources: Open links that carry it, without those that are in trouble over it.
        every: Whether it is followed over all of them.
        current: Links over which it is followed now.
        holder: The site that appends to it, when known.
        end: The target's log end.
    """
    if len(sources) < 2:
        return frozenset(source.link for source in sources)
    if every:
        worth = [each for each in sources if not each.slow or each.site == holder or (each.end or 0) > end]
        return frozenset(source.link for source in worth or sources)

    def behind(source: Source) -> bool:
        return source.end is not None and source.end < end

    def more(source: Source) -> int:
        return source.end if source.end is not None else -1

    direct = [source for source in sources if source.site == holder and not behind(source)]
    if direct:
        return frozenset({min(direct, key=lambda source: (source.slow, source.link)).link})
    ahead = [source for source in sources if more(source) > end]
    kept = [source for source in sources if source.link in current]
    if kept and (kept[0].end is None or more(kept[0]) > end or not ahead):
        return frozenset({kept[0].link})
    best = min(ahead or list(sources), key=lambda source: (-more(source), source.slow, source.link))
    return frozenset({best.link})


def to_survey(
    followed: Mapping[TopicPartition, Collection[str]],
    carried: Mapping[str, Mapping[TopicPartition, str]],
    holder: Callable[[TopicPartition], str | None],
) -> dict[str, list[TopicPartition]]:
    """Per link, the logs whose end at that source has to be asked for, because they are followed elsewhere.

    A log that is followed at its holder needs no survey: nobody has more.

    Args:
        followed: Links over which each log is followed now.
        carried: Per link, the logs it carries and the source's site.
    """
    asked: dict[str, list[TopicPartition]] = {}
    for link, logs in carried.items():
        for tp in logs:
            over = followed.get(tp, ())
            if link in over:
                continue
            at = holder(tp)
            if at is not None and any(carried.get(other, {}).get(tp) == at for other in over):
                continue
            asked.setdefault(link, []).append(tp)
    return asked
