"""Readings of several sessions, each in order for itself, back into the order of each device. Pure.

The MQTT broker hands out what is published in turn, so two readings of one device come through two sessions, and either
may be first. What has its device's last reading directly before it goes on at once; anything else is held, because
what is missing may still be on its way through another session, or was never published.

Which it is, **marks** tell: numbered messages that the core publishes, to which every session subscribes for itself.
The broker puts a mark into all sessions' queues at one moment. A reading that came through a session before mark *n*
was published before it, and so was all that it waits for: when every other session has brought mark *n*, what is
still missing does not come. The same holds for what the core has from its own session (events, positions), which must
not overtake readings that were published before.

Two exceptions bound the waiting. A session that can take no more, because what it waits for to be acknowledged is held
here, cannot bring its mark either: when nothing else can move, the older half of what is held goes on. A session that
has been away for longer than ``patience`` is not waited for. Then readings may pass in another order than they were
published in; none is lost, and none passes that did not come.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from edge.acks import Ticket

PATIENCE = 30.0
MOST_DEVICES = 200_000

T = TypeVar("T")
Key = Hashable


@dataclass(slots=True, eq=False)
class Source:
    """One session that messages come through.

    Args:
        stuck: Whether nothing can come until something that is held goes on.
        passed: Number of the newest mark that it has brought.
        away_since: When it was lost; None while it is there.
    """

    name: str
    stuck: Callable[[], bool]
    passed: int = 0
    away_since: float | None = None


@dataclass(slots=True, order=True)
class _Held(Generic[T]):
    boot: int
    sequence: int
    arrival: int
    key: Key | None = field(compare=False)  # None: not a reading, but what must stay behind the readings before it
    source: Source = field(compare=False)
    need: int = field(compare=False)
    item: T = field(compare=False)
    ticket: Ticket | None = field(compare=False)
    gone_on: bool = field(default=False, compare=False)


class Order(Generic[T]):
    """Holds and orders.

    Args:
        emit: Given every item exactly once, in order.
    """

    def __init__(self, emit: Callable[[T], None], *, patience: float = PATIENCE) -> None:
        self._emit = emit
        self._patience = patience
        self._sources: list[Source] = []
        self._runs: dict[Key, tuple[int, int, int]] = {}  # boot, first and last of the run that went on last
        self._held: dict[Key, list[_Held[T]]] = {}
        self._queue: deque[_Held[T]] = deque()  # in order of arrival; those that have gone on are left out later
        self._tickets: set[Ticket] = set()
        self._arrivals = 0
        self._count = 0
        self._top_need = 0
        self._changed = False
        self.issued = 0  # number of the newest mark that was published
        self.forced = 0  # items that went on because nothing else could

    def __len__(self) -> int:
        """How many items are held."""
        return self._count

    # -- sources

    def add(self, name: str, stuck: Callable[[], bool] = lambda: False) -> Source:
        """Another session. It has brought no mark yet, so what is held waits for it too."""
        source = Source(name, stuck)
        self._sources.append(source)
        self._changed = True
        return source

    def remove(self, source: Source) -> None:
        """A session that brings nothing any more."""
        if source in self._sources:
            self._sources.remove(source)
            self._changed = True

    def holds(self, ticket: Ticket | None) -> bool:
        """Whether the message with this ticket is held."""
        return ticket in self._tickets

    @property
    def wants_mark(self) -> bool:
        """Whether something is held that no mark has been published for yet."""
        return self._count > 0 and self._top_need > self.issued

    # -- what comes

    def reading(self, source: Source, key: Key, boot: int, sequence: int, item: T, ticket: Ticket | None) -> None:
        """A reading; ``key`` is its log and device."""
        if (len(self._sources) == 1 and not self._count) or self._follows(key, boot, sequence):
            self._pass(key, boot, sequence)
            self._emit(item)
            if key in self._held:
                self._follow_up(key)
            return
        held = self._hold(source, key, boot, sequence, item, ticket)
        insort(self._held.setdefault(key, []), held)
        if all(other.passed >= held.need for other in self._sources if other is not source):
            self._release_through(held)

    def behind(self, source: Source, item: T, ticket: Ticket | None) -> None:
        """Something that may not overtake readings that were published before it, nor others of its kind."""
        if len(self._sources) == 1 and not self._count:
            self._emit(item)
            return
        self._hold(source, None, 0, 0, item, ticket)

    def mark(self, source: Source, number: int) -> None:
        """A mark has come through a session."""
        if number > source.passed:
            source.passed = number
            self._changed = True

    def settle(self, now: float) -> None:
        """Let go on what need not wait any longer. ``now``: the same clock as in ``Source.away_since``."""
        while self._count:
            there = [s for s in self._sources if s.away_since is None or now - s.away_since < self._patience]
            if self._changed or len(there) < len(self._sources):
                self._changed = False
                self._let_pass(there)
            stuck = [source for source in there if source.stuck()]
            if not stuck or not all(self._is_blocked(held, stuck) for held in self._queue if not held.gone_on):
                return
            before = self._count
            self._release_oldest((before + 1) // 2)
            self.forced += before - self._count

    # -- inside

    def _hold(self, source: Source, key: Key | None, boot: int, seq: int, item: T, ticket: Ticket | None) -> _Held[T]:
        self._arrivals += 1
        held = _Held(boot, seq, self._arrivals, key, source, source.passed + 1, item, ticket)
        self._queue.append(held)
        self._count += 1
        self._top_need = max(self._top_need, held.need)
        if ticket is not None:
            self._tickets.add(ticket)
        return held

    def _follows(self, key: Key, boot: int, sequence: int) -> bool:
        """Whether nothing can be missing before this reading: its device's last one has passed, or it did itself."""
        run = self._runs.get(key)
        return run is not None and run[0] == boot and run[1] <= sequence <= run[2] + 1

    def _pass(self, key: Key, boot: int, sequence: int) -> None:
        run = self._runs.get(key)
        if run is None or run[0] != boot or not run[1] <= sequence <= run[2] + 1:
            self._runs[key] = (boot, sequence, sequence)
            if len(self._runs) > MOST_DEVICES:
                del self._runs[next(iter(self._runs))]
        elif sequence > run[2]:
            self._runs[key] = (boot, run[1], sequence)

    def _let_pass(self, there: list[Source]) -> None:
        """Everything that all (other) sessions have brought the mark for: readings first, then what is behind them."""
        lowest = min((source.passed for source in there), default=self._top_need)
        others = {
            id(source): min((other.passed for other in there if other is not source), default=self._top_need)
            for source in self._sources
        }
        for held in tuple(self._queue):
            if held.key is not None and not held.gone_on and others.get(id(held.source), lowest) >= held.need:
                self._release_through(held)
        for held in tuple(self._queue):
            if held.key is None and not held.gone_on:
                if lowest < held.need:
                    break
                self._go_on(held)
        self._tidy()

    def _is_blocked(self, held: _Held[T], stuck: list[Source]) -> bool:
        """Whether one of these sessions would have to bring its mark first."""
        return any(s.passed < held.need and (s is not held.source or held.key is None) for s in stuck)

    def _release_oldest(self, count: int) -> None:
        """The ``count`` items that came first, and what their devices have before them."""
        left = self._count - count
        for held in tuple(self._queue):
            if self._count <= left:
                break
            if not held.gone_on:
                if held.key is None:
                    self._go_on(held)
                else:
                    self._release_through(held)
        self._tidy()

    def _release_through(self, last: _Held[T]) -> None:
        """A reading that need not wait, and those of its device that it comes after."""
        key = last.key
        waiting = self._held[key]
        place = waiting.index(last) + 1
        ready, waiting[:place] = waiting[:place], []
        for held in ready:
            self._pass(key, held.boot, held.sequence)
            self._go_on(held)
        self._follow_up(key)

    def _follow_up(self, key: Key) -> None:
        """What is held of a device and comes directly after what went on."""
        waiting = self._held[key]
        while waiting and self._follows(key, waiting[0].boot, waiting[0].sequence):
            held = waiting.pop(0)
            self._pass(key, held.boot, held.sequence)
            self._go_on(held)
        if not waiting:
            del self._held[key]

    def _go_on(self, held: _Held[T]) -> None:
        held.gone_on = True
        self._count -= 1
        if held.ticket is not None:
            self._tickets.discard(held.ticket)
        self._emit(held.item)

    def _tidy(self) -> None:
        while self._queue and self._queue[0].gone_on:
            self._queue.popleft()
        if len(self._queue) > 2 * self._count + 64:
            self._queue = deque(held for held in self._queue if not held.gone_on)
