"""What is known about one log at the target, and what waits to be appended to it. No I/O.

``end`` is the target's log end as confirmed by answers, ``sent`` what it will be when everything in flight has been
taken. The two are equal when nothing is in flight.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple, Protocol

from fairlead.kafka.convention import FOREIGN_EPOCH, FOREIGN_PRODUCER_ID, PRODUCER_ID
from fairlead.kafka.protocol.types import TopicPartition
from replication.batch.header_rewrite import is_foreign
from replication.batch.prepared import POSITION_KEY, Gap, PreparedBatch, same_marker
from replication.batch.rebuild import BEFORE_FIRST_TERM, fillers
from replication.states import LogTrouble
from topologies.model import Priority


class Feed(Protocol):
    """Where steps come from: one class of one link. The appender tells it what became of them."""

    @property
    def name(self) -> str: ...

    def rewind(self, tp: TopicPartition, end: int) -> None:
        """Fetch this log again from ``end`` on, after proof that the source has the batch before it: what came in
        between could not be appended."""

    def appended(self, tp: TopicPartition, prepared: PreparedBatch) -> None:
        """The batch is in the target's log, and this feed brought it."""


class LastBatch(NamedTuple):
    """The last batch of a log: with it the appender knows what may follow, and whether a source has the same."""

    producer_id: int
    term: int
    marker: int
    base: int
    crc: int

    @property
    def is_fence(self) -> bool:
        """Whether the log was promoted or failed over here, and nobody has written since."""
        return is_foreign(self.producer_id) and self.term != FOREIGN_EPOCH


_NO_TAIL = LastBatch(PRODUCER_ID, BEFORE_FIRST_TERM, 0, 0, 0)


class Waiting(NamedTuple):
    """A step in the queue: ``feed`` brought it, ``size`` bytes are accounted for it (fillers are free)."""

    step: PreparedBatch | Gap
    feed: Feed
    size: int = 0


def sent_batch(waiting: Waiting) -> PreparedBatch:
    """The batch that is sent; gaps are made batches before."""
    if not isinstance(waiting.step, PreparedBatch):
        raise TypeError("only batches are sent")
    return waiting.step


class MirrorPartition:
    """One log at the target."""

    __slots__ = (
        "agreeing",
        "checked",
        "end",
        "feeds",
        "fence",
        "filled",
        "foreign_id",
        "generation",
        "in_flight",
        "is_held",
        "limit",
        "listed",
        "max_bytes",
        "positioned",
        "priority",
        "queue",
        "sent",
        "state_confirmed",
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
        self.tail: LastBatch | None = None
        self.generation = -1  # of the appender's connection on which end and tail were read
        self.in_flight = 0
        self.listed = False  # among those that the appender looks at next
        self.fence: int | None = None  # offset of the last fence that was seen at its end
        self.foreign_id = FOREIGN_PRODUCER_ID  # what is appended for ordinary clients has this producer id
        self.checked = -1  # the end, read again after a source had offered what comes there: it was not written here
        self.state_confirmed = False  # an append has been taken since the end was read: the broker knows the producer
        self.tries = 0  # refusals at the very end of the log, without any progress in between
        self.limit: int | None = None  # exclusive; what the target holds itself begins there
        self.max_bytes: int | None = None  # larger batches are split: the target refuses them
        self.positioned = 0  # all below is known to be fillers that position the log; 0 once anything else is in
        self.filled = 0  # ``positioned``, with the fillers that are in flight
        self.trouble: LogTrouble | None = None
        self.queue: deque[Waiting] | tuple[()] = ()  # a deque takes 600 bytes, so a log at rest has none
        self.is_held = False  # what waits is sent first; the feeds are told where to go on when it is in
        self.feeds: tuple[Feed, ...] = ()
        self.agreeing: tuple[Feed, ...] = ()  # feeds whose source is known to have the log's tail, at ``sent``

    def forget(self) -> None:
        """Everything known about the log is old: it is to be learned anew, as if seen for the first time."""
        self.end = self.sent = self.generation = -1
        self.tail = self.trouble = None
        self.positioned = self.filled = 0
        self.agreeing = ()
        self.state_confirmed, self.tries = False, 0

    @property
    def is_without_records(self) -> bool:
        """Whether the log is empty, or has nothing but fillers that position it, as far as is known."""
        return self.end <= self.positioned

    @property
    def is_complete(self) -> bool:
        """Whether everything up to the limit is here: from then on the target itself appends."""
        return self.limit is not None and self.end >= self.limit

    def learned(self, end: int, tail: LastBatch | None, generation: int) -> None:
        """Take in what the target said about the log just now."""
        if end > self.end:
            self.tries = 0
        self.end = self.sent = end
        self.tail = tail
        self.generation = generation
        self.state_confirmed = False
        self.agreeing = ()
        self.filled = end if self.positioned == end else 0

    def holds_only_fillers(self, end: int) -> None:
        """The log was read: up to ``end`` it has nothing but fillers that position it."""
        if self.end == end:
            self.positioned = end
            if self.sent == end:
                self.filled = end

    def agree(self, feed: Feed, end: int) -> None:
        """The feed's source has the log that is here up to ``end``. Counts only while nothing follows."""
        if self.sent == end and feed not in self.agreeing:
            self.agreeing += (feed,)

    def fed_by(self, feed: Feed) -> None:
        """Whatever cannot be appended is fetched again by this feed, too."""
        if feed not in self.feeds:
            self.feeds += (feed,)

    def leave(self, feed: Feed) -> None:
        """The feed does not follow this log any more."""
        self.feeds = tuple(each for each in self.feeds if each is not feed)
        self.agreeing = tuple(each for each in self.agreeing if each is not feed)

    def put(self, steps: list[PreparedBatch | Gap], feed: Feed) -> int:
        """Queue steps; returns the bytes queued."""
        queue = self.queue
        if not queue:
            queue = self.queue = deque()
        count = 0
        for step in steps:
            size = len(step.data) if isinstance(step, PreparedBatch) else 0
            queue.append(Waiting(step, feed, size))
            count += size
        return count

    def hold(self, sent: list[Waiting], agreeing: tuple[Feed, ...]) -> int:
        """The target has none of what was ``sent``, and nobody else's either: it is sent again before all that waits.

        Args:
            agreeing: Feeds that were known to have the log's tail, where nothing was sent.

        Returns:
            the bytes queued.
        """
        self.agreeing = (sent[0].feed,) if sent else agreeing
        if sent or self.queue:
            self.queue = deque((*sent, *self.queue))
        self.is_held = True
        return sum(each.size for each in sent)

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
        """The next step to send, as an batch.

        Returns:
            the batch to send now with its feed, or None; the bytes dropped from the queue because they are already
            here or not wanted; and the step that does not fit (it lies beyond the log's end), or None.
        """
        dropped = 0
        while self.queue:
            waiting = self.queue[0]
            step = waiting.step
            if step.stop <= self.sent or (self.limit is not None and step.base >= self.limit):
                self.take()
                dropped += waiting.size
                if isinstance(step, PreparedBatch) and self._is_tail(step):
                    self.agree(waiting.feed, step.stop)
                continue
            if step.base > self.sent or self.is_unproven(waiting):
                return None, dropped, waiting
            if isinstance(step, PreparedBatch):
                if step.base < self.sent:
                    return None, dropped, waiting
                return waiting, dropped, None
            self._fill(self.queue, step, waiting.feed)
        return None, dropped, None

    def is_unproven(self, waiting: Waiting) -> bool:
        """Whether nothing shows yet that this step follows what the log has.

        Fillers that position a log may follow nothing but each other: what is before them is deleted. Anything may
        follow them. Else the feed's source must be known to have the log's last batch.
        """
        if self.filled == self.sent:
            return False
        return _is_positioning(waiting.step) or waiting.feed not in self.agreeing

    def launch(self, waiting: Waiting, prepared: PreparedBatch) -> None:
        """The batch, first of the queue until now, is on its way to the broker."""
        self.in_flight += 1
        self.sent = prepared.stop
        if prepared.positions and self.filled == prepared.base:
            self.filled = prepared.stop
        self.tail = LastBatch(prepared.producer_id, prepared.term, prepared.marker, prepared.base, prepared.crc)
        self.agreeing = (waiting.feed,)

    def landed(self, prepared: PreparedBatch) -> int | None:
        """The broker has the batch; the offset before which fillers may be deleted now, if any.

        All but the last of them when they are all in, that one when the first record is: never everything.
        """
        self.end = max(self.end, prepared.stop)
        self.state_confirmed, self.tries = True, 0
        if prepared.positions:
            if prepared.base != self.positioned:
                return None
            self.positioned = prepared.stop
            return None if self.queue and _is_positioning(self.queue[0].step) else prepared.stop - 1
        before, self.positioned = self.positioned, 0
        return before or None

    def drop_of(self, feed: Feed) -> tuple[int, int]:
        """Drop what one feed has queued; returns the steps and bytes dropped."""
        kept = deque(each for each in self.queue if each.feed is not feed)
        dropped = len(self.queue) - len(kept), sum(each.size for each in self.queue if each.feed is feed)
        self.queue = kept or ()
        return dropped

    def _is_tail(self, prepared: PreparedBatch) -> bool:
        tail = self.tail
        return tail is not None and (prepared.base, prepared.stop, prepared.crc) == (tail.base, self.sent, tail.crc)

    def _fill(self, queue: deque[Waiting], gap: Gap, feed: Feed) -> None:
        """Put the gap's first filler batch before the rest of it, leaving out what is already here."""
        queue.popleft()
        rest = gap._replace(base=max(gap.base, self.sent))
        tail = self.tail or _NO_TAIL
        first = next(fillers(rest, producer_id=tail.producer_id, term=tail.term, marker=tail.marker))
        if first.stop < rest.stop:
            queue.appendleft(Waiting(rest._replace(base=first.stop), feed))
        queue.appendleft(Waiting(first, feed))

    def may_be_written_here(self, prepared: PreparedBatch) -> bool:
        """Whether ordinary clients may be writing this log here, so that ``batch`` could be what they just wrote.

        Their batches and the replicator's are no compare-and-swap for each other until the broker knows the
        replicator's producer id. But whatever a source has of a log that is written here was below this site's end
        before: it is enough to read the end once more after the source has offered it (``checked``).
        """
        if (
            prepared.producer_id == PRODUCER_ID
            or self.state_confirmed
            or self.in_flight
            or self.checked == prepared.base
        ):
            return False
        return self.tail is None or self.tail.is_fence or not is_foreign(self.tail.producer_id)

    def may_follow(self, prepared: PreparedBatch) -> str | None:
        """Why ``batch`` cannot be what follows the log's tail; None when it can."""
        tail = self.tail
        if tail is None or self.sent == 0:
            return None
        ours = tail.producer_id == PRODUCER_ID
        if not ours and prepared.producer_id != PRODUCER_ID:
            return None  # ordinary clients have no terms; whether it is the same history, the tail has shown
        if not ours or prepared.producer_id != PRODUCER_ID:
            return (
                f"the target's records below {self.sent} were written by producer {tail.producer_id}, "
                f"the source's from {prepared.base} on by {prepared.producer_id}"
            )
        if prepared.term < tail.term:
            return (
                f"the target is in term {tail.term} at offset {self.sent}, the source's batch there is of term "
                f"{prepared.term}"
            )
        if prepared.term == tail.term and not same_marker(prepared.marker, tail.marker):
            return f"term {prepared.term} began at {tail.marker} here and at {prepared.marker} at the source"
        if prepared.term > tail.term and not prepared.opens_term:
            return (
                f"the source's batch at {prepared.base} belongs to term {prepared.term}, which began at "
                f"{prepared.marker}; the target ends at {self.sent} in term {tail.term} without that term's marker"
            )
        return None


def _is_positioning(step: PreparedBatch | Gap) -> bool:
    return step.positions if isinstance(step, PreparedBatch) else step.key == POSITION_KEY
