"""What has to be known about a log in trouble before anything may be done about it. Pure data."""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from fairlead.names import MAX_TOPIC_LENGTH
from fairlead.wire.types import TopicPartition
from replication.orders import Order

KEPT_PREFIX: Final = "fairlead.kept."
_TIME: Final = "%Y%m%dT%H%M%SZ"
_TIME_LENGTH: Final = len("20260301T000000Z")
_KEPT: Final = re.compile(re.escape(KEPT_PREFIX) + r"(?P<topic>.+)\.(?P<time>\d{8}T\d{6}Z)")
_LONGEST: Final = MAX_TOPIC_LENGTH - len(KEPT_PREFIX) - _TIME_LENGTH - 1


class Extent(NamedTuple):
    """Offsets ``start`` to ``stop - 1`` of one partition."""

    start: int
    stop: int

    @property
    def is_empty(self) -> bool:
        return self.start >= self.stop


@dataclass(frozen=True, slots=True)
class Source:
    """One link that carries the log. ``has`` is None when the source cannot be asked or has no such topic, and ``why``
    says which."""

    link: str
    site: str
    has: Mapping[int, Extent] | None = None
    why: str = ""


class Committed(NamedTuple):
    """How far a consumer group of this site has read one partition; ``metadata`` is what its consumer wrote beside."""

    group: str
    partition: int
    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """One log in trouble.

    Args:
        log: As the state names it: ``topic`` or ``topic/partition``.
        cause: What the replicator says about it.
        link: The link that is concerned, when only one is.
        here: What this site has, by partition; empty when the topic is not there.
        sources: Every link that may carry the log.
        held_here: Why this site itself writes the log now; empty when it does not.
        paused: The order by which the log is not fetched, if there is one.
        joined: Partitions in which the source's oldest batch is also here: what is older here belongs before it.
        running: Whether a replicator of this site is at work and writes its status file.
        unfinished: A kept copy of this log that an interrupted run may have left.
        offending: Quarantined only: the batch that the target refuses, as the source of ``offending_link`` has it; or,
            if that ends where the target ends, or before, a batch that is damaged there and whole here.
        groups: What consumer groups of this site have committed in the topic; Kafka forgets it with the topic.
        now: For the kept copy's name.
    """

    site: str
    log: str
    cause: str = ""
    link: str | None = None
    here: Mapping[int, Extent] = field(default_factory=dict)
    sources: tuple[Source, ...] = ()
    held_here: str = ""
    paused: Order | None = None
    joined: frozenset[int] = frozenset()
    running: bool = False
    unfinished: str | None = None
    offending: Extent | None = None
    offending_link: str = ""
    groups: tuple[Committed, ...] = ()
    by: str = ""
    now: dt.datetime = field(default_factory=lambda: dt.datetime.now(dt.UTC))

    @property
    def topic(self) -> str:
        return parse_tp(self.log).topic

    @property
    def partition(self) -> int:
        return parse_tp(self.log).partition


def parse_tp(log: str) -> TopicPartition:
    """``topic`` or ``topic/3`` as a topic partition."""
    topic, slash, number = log.partition("/")
    return TopicPartition(topic, int(number) if slash else 0)


def kept_name(topic: str, now: dt.datetime) -> str:
    """The topic that keeps the version that ``topic`` has now; a very long name is cut and gets a hash."""
    if len(topic) > _LONGEST:
        mark = hashlib.sha256(topic.encode()).hexdigest()[:12]
        topic = f"{topic[: _LONGEST - len(mark) - 1]}-{mark}"
    return f"{KEPT_PREFIX}{topic}.{now.astimezone(dt.UTC).strftime(_TIME)}"


def kept_copies(topic: str, topics: Iterable[str]) -> list[str]:
    """The kept copies of a topic among ``topics``, newest first."""
    wanted = _KEPT.fullmatch(kept_name(topic, dt.datetime.min.replace(year=1000, tzinfo=dt.UTC)))
    found = []
    for each in topics:
        match = _KEPT.fullmatch(each)
        if match and wanted and match["topic"] == wanted["topic"]:
            found.append((match["time"], each))
    return [name for _, name in sorted(found, reverse=True)]
