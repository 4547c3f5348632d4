"""What is known about one log at the target, and what waits to be appended to it. No I/O.

``end`` is the target's log end as confirmed by answers, ``sent`` what it will be when everything in flight has been
taken. The two are equal when nothing is in flight.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple, Protocol

from fairlead.wire.convention import FOREIGN_PRODUCER_ID, PRODUCER_ID
from fairlead.wire.types import TopicPartition
from replication.content import BEFORE_FIRST_TERM, Hole, Item, fillers
from replication.foreign_id import is_foreign
from replication.item import same_marker
from replication.states import Trouble
from topologies.model import Priority


class Feed(Protocol):
    """Where steps come from: one class of one link. The writer tells it what became of them."""

    @property
    def name(self) -> str: ...

    def rewind(self, tp: TopicPartition, end: int) -> None:
        """Fetch this log again from ``end`` on: what came in between could not be appended."""

    def appended(self, tp: TopicPartition, item: Item) -> None:
        """The item is in the target's log, and this feed brought it."""


class Tail(NamedTuple):
    """The last batch of a log: with it the writer knows what may follow, and whether a source has the same."""

    producer_id: int
    term: int
    marker: int
    base: int
    crc: int


_NO_TAIL = Tail(PRODUCER_ID, BEFORE_FIRST_TERM, 0, 0, 0)


class Waiting(NamedTuple):
    """A step in the queue: ``feed`` brought it, ``size`` bytes are accounted for it (fillers are free)."""

    step: Item | Hole
    feed: Feed
    size: int = 0


class Replica:
    """One log at the target."""

    __slots__ = (
        "checked",
        "end",
        "feeds",
        "flying",
        "foreign_id",
        "generation",
        "limit",
        "listed",
        "max_bytes",
        "positioning",
        "primed",
        "priority",
        "queue",
        "sent",
        "tail",
        "tp",
        "tries",
        "trouble",
    )

    def __init__(self, tp: TopicPartition, priority: Priority) -> None:
        self.tp = tp
        self.priority = priority
        self.end = -1  # not known
        self.sent = -1
        self.tail: Tail | None = None
        self.generation = -1  # of the writer's connection on which end and tail were read
        self.flying = 0
        self.listed = False  # among those that the writer looks at next
        self.foreign_id = FOREIGN_PRODUCER_ID  # what is appended for ordinary clients has this producer id
        self.checked = -1  # the end, read again after a source had offered what comes there: it was not written here
        self.primed = False  # an append has been taken since the end was read: the broker knows the producer
        self.tries = 0  # refusals at the very end of the log, without any progress in between
        self.limit: int | None = None  # exclusive; what the target holds itself begins there
        self.max_bytes: int | None = None  # larger batches are split: the target refuses them
        self.positioning: int | None = None  # DeleteRecords before this offset once a real batch is in
        self.trouble: Trouble | None = None
        self.queue: deque[Waiting] | tuple[()] = ()  # a deque takes 600 bytes, so a log at rest has none
        self.feeds: tuple[Feed, ...] = ()

    def forget(self) -> None:
        """Everything known about the log is old: it is to be learned anew, as if seen for the first time."""
        self.end = self.sent = self.generation = -1
        self.tail = self.positioning = self.trouble = None
        self.primed, self.tries = False, 0

    @property
    def is_complete(self) -> bool:
        """Whether everything up to the limit is here: from then on the target itself appends."""
        return self.limit is not None and self.end >= self.limit

    def learned(self, end: int, tail: Tail | None, generation: int) -> None:
        """Take in what the target said about the log just now."""
        if end > self.end:
            self.tries = 0
        self.end = self.sent = end
        self.tail = tail
        self.generation = generation
        self.primed = False

    def fed_by(self, feed: Feed) -> None:
        """Whatever cannot be appended is fetched again by this feed, too."""
        if feed not in self.feeds:
            self.feeds += (feed,)

    def leave(self, feed: Feed) -> None:
        """The feed does not follow this log any more."""
        if feed in self.feeds:
            self.feeds = tuple(each for each in self.feeds if each is not feed)

    def put(self, steps: list[Item | Hole], feed: Feed) -> int:
        """Queue steps; returns the bytes queued."""
        queue = self.queue
        if not queue:
            queue = self.queue = deque()
        count = 0
        for step in steps:
            size = len(step.data) if isinstance(step, Item) else 0
            queue.append(Waiting(step, feed, size))
            count += size
        return count

    def take(self) -> Waiting | None:
        """Take the first step off the queue."""
        queue = self.queue
        if not queue:
            return None
        first = queue.popleft()
        if not queue:
            self.queue = ()
        return first

    def clear(self) -> int:
        """Drop the queue; returns the bytes dropped."""
        count = sum(each.size for each in self.queue)
        self.queue = ()
        return count

    def following(self) -> tuple[Waiting | None, int, Waiting | None]:
        """The next step to send, as an item.

        Returns:
            the item to send now with its feed, or None; the bytes dropped from the queue because they are already
            here or not wanted; and the step that does not fit (it lies beyond the log's end), or None.
        """
        dropped = 0
        while self.queue:
            waiting = self.queue[0]
            step = waiting.step
            if step.stop <= self.sent or (self.limit is not None and step.base >= self.limit):
                self.take()
                dropped += waiting.size
                continue
            if step.base > self.sent:
                return None, dropped, waiting
            if isinstance(step, Item):
                if step.base < self.sent:
                    return None, dropped, waiting
                return waiting, dropped, None
            self._fill(self.queue, step, waiting.feed)
        return None, dropped, None

    def _fill(self, queue: deque[Waiting], hole: Hole, feed: Feed) -> None:
        """Put the hole's first filler batch before the rest of it, leaving out what is already here."""
        queue.popleft()
        rest = hole._replace(base=max(hole.base, self.sent))
        tail = self.tail or _NO_TAIL
        first = next(fillers(rest, producer_id=tail.producer_id, term=tail.term, marker=tail.marker))
        if first.stop < rest.stop:
            queue.appendleft(Waiting(rest._replace(base=first.stop), feed))
        queue.appendleft(Waiting(first, feed))

    def may_be_written_here(self, item: Item) -> bool:
        """Whether ordinary clients may be writing this log here, so that ``item`` could be what they just wrote.

        Their batches and the replicator's are no compare-and-swap for each other until the broker knows the
        replicator's producer id. But whatever a source has of a log that is written here was below this site's end
        before: it is enough to read the end once more after the source has offered it (``checked``).
        """
        if item.producer_id == PRODUCER_ID or self.primed or self.flying or self.checked == item.base:
            return False
        return self.tail is None or not is_foreign(self.tail.producer_id)

    def may_follow(self, item: Item) -> str | None:
        """Why ``item`` cannot be what follows the log's tail; None when it can."""
        tail = self.tail
        if tail is None or self.sent == 0:
            return None
        ours = tail.producer_id == PRODUCER_ID
        if not ours and item.producer_id != PRODUCER_ID:
            return None  # ordinary clients have no terms; whether it is the same history, the tail has shown
        if not ours or item.producer_id != PRODUCER_ID:
            return (
                f"the target's records below {self.sent} were written by producer {tail.producer_id}, "
                f"the source's from {item.base} on by {item.producer_id}"
            )
        if item.term < tail.term:
            return (
                f"the target is in term {tail.term} at offset {self.sent}, the source's batch there is of {item.term}"
            )
        if item.term == tail.term and not same_marker(item.marker, tail.marker):
            return f"term {item.term} began at {tail.marker} here and at {item.marker} at the source"
        if item.term > tail.term and not item.opens_term:
            return (
                f"the source's batch at {item.base} belongs to term {item.term}, which began at {item.marker}; "
                f"the target ends at {self.sent} in term {tail.term} without that term's marker"
            )
        return None
