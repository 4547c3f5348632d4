"""Apply operators' orders at a site: find those in force, and their effect on the site's logs. No I/O.

Orders are records of the site's topic ``fairlead.orders``. An administrator appends them; the replicator reads the
topic from its start. So orders survive restarts, reach replicators that run elsewhere, and the topic is their history.
The offset decides which order is newer, never a clock.

A scope is a link, a stream, a log, or a stream or log on one link; without any of them it is the whole site. A topic's
name stands for all its partitions, ``topic/3`` for one of them. (For the offsets of a skip ``topic`` is partition 0, as
everywhere else.)
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any, Final

import msgspec

from fairlead.kafka.protocol.types import TopicPartition, partitions_of
from replication.catalog import Catalog
from replication.states import LogState, LogTrouble

ORDERS_TOPIC: Final = "fairlead.orders"


class OverrideKind(StrEnum):
    """The action that an order demands of the site's replicator."""

    PAUSE = "pause"  # do not fetch
    RESUME = "resume"  # fetch again
    PROMOTE = "promote"  # stop following the log: from now on it is written here, and no record is missing
    FAILOVER = "failover"  # the same at once, with or without the source; ``stop`` is the end at that moment
    RESTORE = "restore"  # follow the log again
    RETRY = "retry"  # forget the log's trouble and read it again
    SKIP = "skip"  # the offsets from ``start`` to before ``stop`` may be filled and marked


DAMAGED_HINT: Final = (
    f"make a broker that has {ORDERS_TOPIC} whole its leader; if none has, stop the replicator of {{site}}, delete the "
    "topic there, give the orders that still hold again (for promoted logs `fairlead link failover`), and start it"
)
"""What to do where a site's topic of orders is damaged."""

RELEASING: Final = frozenset({OverrideKind.PROMOTE, OverrideKind.FAILOVER})


class Override(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One order, as stored in the topic (JSON).

    Args:
        at: The time of the order, with a time zone.
        by: The user of the operating system who gave it.
        log: ``topic`` or ``topic/partition``.
        start: First offset of a skip.
        stop: End (exclusive) of a skip; for a promotion or failover the log's end offset at that moment.
        topic_id: Of a skip: the id (hex) of this site's topic. The order ends with that topic: a later copy may get the
            records from another source. Orders of earlier releases have none, and never end.
    """

    kind: OverrideKind
    at: Annotated[dt.datetime, msgspec.Meta(tz=True)]
    by: str
    reason: str = ""
    link: str | None = None
    stream: str | None = None
    log: str | None = None
    start: int | None = None
    stop: int | None = None
    topic_id: str | None = None

    def __post_init__(self) -> None:
        if self.stream is not None and self.log is not None:
            raise ValueError("an order is for a stream or for a log, not both")
        if self.kind in RELEASING | {OverrideKind.RESTORE} and self.stream is None and self.log is None:
            raise ValueError(f"{self.kind} needs a log or a stream")
        if self.kind is OverrideKind.SKIP:
            if self.log is None or self.start is None or self.stop is None:
                raise ValueError("skip needs a log, a start and a stop")
            if not 0 <= self.start < self.stop:
                raise ValueError("skip needs 0 <= start < stop")


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Override)

_Scope = tuple[str | None, str | None, str | None]  # link, stream, log
_Placed = tuple[int, Override]  # with its position among all applied orders


def encode(order: Override) -> bytes:
    """Return the JSON of an order."""
    return _encoder.encode(order)


def decode(data: bytes) -> Override:
    """Decode an order.

    Raises:
        msgspec.ValidationError, msgspec.DecodeError: the data are not an order.
    """
    return _decoder.decode(data)


class Skips(tuple[tuple[int, int], ...]):
    """Ranges of a log's offsets, each from its first one to before its end, that an operator skips: they may be filled
    and marked. In order; ranges that touch are one."""

    __slots__ = ()

    def cover(self, start: int, stop: int) -> bool:
        """Return whether all offsets from ``start`` to before ``stop`` are skipped."""
        return any(first <= start and stop <= last for first, last in self)

    def stop_at(self, at: int) -> int | None:
        """Return the end of the range that has the offset ``at`` or ends there; None if there is none."""
        return next((last for first, last in self if first <= at <= last), None)


NO_SKIPS: Final = Skips()


class Overrides:
    """The orders in force at one site: the newest of every scope. Apply orders in the topic's sequence.

    Set ``topic_id_of`` to what returns the id of a topic that the site has now.
    """

    def __init__(self) -> None:
        self.topic_id_of: Callable[[str], bytes | None] = lambda _topic: None
        self.unread: LogTrouble | None = None  # why orders from before the start may not be applied yet
        self._count = 0
        self._last: Override | None = None
        self._pauses: dict[_Scope, Override] = {}
        self._releases: dict[_Scope, _Placed] = {}  # promotes, failovers and restores
        self._retries: dict[_Scope, _Placed] = {}
        self._skips: dict[str, list[Override]] = {}  # by log

    def apply(self, order: Override) -> bool:
        """Apply the next order; False if it changes nothing."""
        if order == self._last:
            return False
        self._count, self._last = self._count + 1, order
        scope, anywhere = (order.link, order.stream, order.log), (None, order.stream, order.log)
        match order.kind:
            case OverrideKind.PAUSE:
                changed = self._pauses.get(scope) != order
                self._pauses[scope] = order
                return changed
            case OverrideKind.RESUME:
                if order.log is not None:
                    self._retries[anywhere] = (self._count, order)
                return self._pauses.pop(scope, None) is not None or order.log is not None
            case OverrideKind.PROMOTE | OverrideKind.FAILOVER:
                self._releases[anywhere] = (self._count, order)
            case OverrideKind.RESTORE:
                self._releases[anywhere] = self._retries[anywhere] = (self._count, order)
            case OverrideKind.RETRY:
                self._retries[anywhere] = (self._count, order)
            case OverrideKind.SKIP:
                if order.log is not None:  # ``Override`` requires it
                    self._skips.setdefault(order.log, []).append(order)
                self._retries[anywhere] = (self._count, order)
        return True

    def paused(self, link: str, stream: str, topic: str) -> Override | None:
        """Return the widest order that pauses this log on this link, if any."""
        if not self._pauses:
            return None
        found = self.link_paused(link)
        if found is not None:
            return found
        logs = _covering(topic)
        scopes: list[_Scope] = [(None, stream, None), (link, stream, None)]
        scopes += [(where, None, each) for each in logs for where in (None, link)]
        return next((self._pauses[each] for each in scopes if each in self._pauses), None)

    def link_paused(self, link: str) -> Override | None:
        """Return the order that pauses a whole link, if any."""
        return self._pauses.get((None, None, None)) or self._pauses.get((link, None, None))

    def released(self, topic: str) -> Override | None:
        """Return the promotion or failover that released this log, if any; a later RESTORE ends it."""
        newest = self._newest(self._releases, topic)
        return newest if newest is not None and newest.kind in RELEASING else None

    def retries(self, log: str) -> dt.datetime | None:
        """Return the time of the newest order to retry this log: RETRY, RESTORE, SKIP, or RESUME of the log itself.
        The replicator forgets older troubles of the log."""
        newest = self._newest(self._retries, log)
        return newest.at if newest is not None else None

    @property
    def has_retries(self) -> bool:
        """Whether there is any order to retry."""
        return bool(self._retries)

    def skips(self, log: str) -> Skips:
        """Return the offsets of a log that an operator skips."""
        orders = self._skips.get(log)
        if orders is None:
            return NO_SKIPS
        topic_id = self.topic_id_of(log.partition("/")[0])
        known = (None, topic_id.hex() if topic_id is not None else None)
        return Skips(_union([(each.start or 0, each.stop or 0) for each in orders if each.topic_id in known]))

    def pauses(self) -> Iterator[Override]:
        """Yield every pause in force, oldest scope first."""
        yield from self._pauses.values()

    def releases(self) -> Iterator[Override]:
        """The newest order of every released scope. A single log of a released stream may have been restored since
        (``released``)."""
        yield from (order for _, order in self._releases.values() if order.kind in RELEASING)

    def _newest(self, among: dict[_Scope, _Placed], log: str) -> Override | None:
        if not among:
            return None
        stream, dot, _ = log.partition(".")
        scopes: list[_Scope] = [(None, None, None), *((None, None, each) for each in _covering(log))]
        if dot:
            scopes.append((None, stream, None))
        found = [among[each] for each in scopes if each in among]
        return max(found, key=lambda placed: placed[0])[1] if found else None


def _covering(log: str) -> tuple[str, ...]:
    """Return the names that cover a log: its topic, and the log itself if it is a partition."""
    topic, slash, _ = log.partition("/")
    return (topic, log) if slash else (topic,)


def _union(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join ranges that overlap or touch; in order."""
    out: list[tuple[int, int]] = []
    for start, stop in sorted(ranges):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(stop, out[-1][1]))
        else:
            out.append((start, stop))
    return out


class SiteOverrides:
    """Apply a site's orders to logs while a plan is made."""

    def __init__(self, orders: Overrides, catalog: Catalog) -> None:
        self._orders = orders
        self._catalog = catalog
        self._tried: dict[TopicPartition, dt.datetime] = {}  # the newest retry order that was carried out
        self._paused: dict[TopicPartition, tuple[str, Override]] = {}
        self._released: dict[TopicPartition, Override] = {}
        self._undecided: set[TopicPartition] = set()  # an unread order may have released them

    def start_plan(self, here: Mapping[str, int], topics: Collection[str] | None = None) -> None:
        """Start a plan of ``topics`` (None: all) for a site with the topics ``here`` and their numbers of partitions:
        find released logs; ``allows`` finds paused ones."""
        if topics is None:
            self._paused, self._released, self._undecided = {}, {}, set()
        else:
            self._undecided = {tp for tp in self._undecided if tp.topic not in topics}
            self._paused = {tp: each for tp, each in self._paused.items() if tp.topic not in topics}
            self._released = {tp: each for tp, each in self._released.items() if tp.topic not in topics}
        if any(True for _ in self._orders.releases()):
            for topic in here if topics is None else topics:
                count = here.get(topic, 0)
                if self._catalog.facts(topic) is not None:
                    for tp in partitions_of(topic, count):
                        release = self._orders.released(str(tp))
                        if release is not None:
                            self._released[tp] = release

    def link_pause(self, link: str) -> str:
        """Return the reason why a whole link is paused; empty if it is not."""
        order = self._orders.link_paused(link)
        return describe_order(order) if order is not None else ""

    def allows(self, link: str, tp: TopicPartition) -> bool:
        """Return whether a log may be followed over a link."""
        if self._is_released(tp):
            return False
        if self._is_undecided(tp):
            self._undecided.add(tp)
            return False
        pause = self._pause(link, tp)
        if pause is not None:
            self._paused[tp] = link, pause
        return pause is None

    def would_allow(self, link: str, tp: TopicPartition) -> bool:
        """Return the result of ``allows`` without showing the log as paused."""
        return not self._is_released(tp) and not self._is_undecided(tp) and self._pause(link, tp) is None

    def _is_released(self, tp: TopicPartition) -> bool:
        """Return whether a log was promoted or failed over, also if it is not here yet."""
        return self._orders.released(str(tp)) is not None

    def _is_undecided(self, tp: TopicPartition) -> bool:
        """Return whether an operator decides who writes a log, and an order about that may be unread."""
        if self._orders.unread is None:
            return False
        facts = self._catalog.facts(tp.topic)
        return facts is not None and facts.fixed_holder is None and not facts.moves

    def _pause(self, link: str, tp: TopicPartition) -> Override | None:
        facts = self._catalog.facts(tp.topic)
        return self._orders.paused(link, facts.stream if facts else "", str(tp))

    def clear_carried(self, logs: Container[TopicPartition]) -> None:
        """Do not show these logs as paused: they have a link that may carry them."""
        self._paused = {tp: pause for tp, pause in self._paused.items() if tp not in logs}

    def logs_to_retry(self, stopped: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Return the stopped logs for which an order to retry has arrived since the last call."""
        again: set[TopicPartition] = set()
        for tp in stopped if self._orders.has_retries else ():
            order = self._orders.retries(str(tp))
            if order is not None and self._tried.get(tp) != order:
                self._tried[tp] = order
                again.add(tp)
        return again

    # ---- status

    def pauses(self) -> Iterator[tuple[TopicPartition, LogTrouble]]:
        """Yield the logs that are not mirrored only because of an order."""
        for tp, (link, order) in self._paused.items():
            yield tp, LogTrouble(LogState.PAUSED, describe_order(order), order.at, link)
        unread = self._orders.unread
        if unread is not None:
            cause = f"not followed, because an order that cannot be read may have promoted it: {unread.cause}"
            for tp in self._undecided:
                yield tp, dataclasses.replace(unread, cause=cause)

    def releases(self, is_busy: Callable[[TopicPartition], bool]) -> dict[str, dict[str, Any]]:
        """Return the logs that were promoted or failed over and have nothing in flight any more; JSON-ready."""
        return {
            str(tp): {"verb": str(order.kind), "since": order.at.isoformat(), "by": order.by, "end": order.stop}
            for tp, order in self._released.items()
            if not is_busy(tp)
        }


def describe_order(order: Override) -> str:
    """Describe an order as the cause of a state."""
    return f"{order.kind} ordered by {order.by}" + (f": {order.reason}" if order.reason else "")
