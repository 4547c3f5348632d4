"""Keep the state of one log at the target: its end, its last batch, and the queue of steps to append. No I/O.

``end`` is the log's end as the broker confirmed it. ``sent`` is the end that the log will have once the broker accepts
everything in flight; the two are equal when nothing is in flight.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

import msgspec

from fairlead.kafka.convention import FOREIGN_EPOCH, FOREIGN_PRODUCER_ID, PRODUCER_ID
from fairlead.kafka.protocol.types import TopicPartition
from replication.batch.header_rewrite import is_foreign
from replication.batch.prepared import Gap, PreparedBatch, same_marker
from replication.batch.rebuild import BEFORE_FIRST_TERM, MAX_FILLER, fillers
from replication.states import LogTrouble
from topologies.model import Priority


class Feed(Protocol):
    """A source of steps, such as a fetcher. The appender reports each step's outcome to it."""

    @property
    def name(self) -> str: ...

    def rewind(self, tp: TopicPartition, end: int) -> None:
        """Fetch this log again from ``end`` on, because the batches after it could not be appended. First verify that
        the source has the batch before ``end``."""

    def on_appended(self, tp: TopicPartition, prepared: PreparedBatch) -> None:
        """Count a batch of this feed that the target's log now has."""

    def on_damaged(self, tp: TopicPartition, cause: str) -> None:
        """Bring nothing more of this log, because its next batch is damaged where this feed has it from."""


class LastBatch(msgspec.Struct, frozen=True, gc=False):
    """Identity of a log's last batch. It decides which batch may follow, and whether a source has the same log."""

    producer_id: int
    term: int
    marker: int
    base: int
    crc: int

    @property
    def is_fence(self) -> bool:
        """Return whether the batch is a fence: the log was promoted or failed over here and not written since."""
        return is_foreign(self.producer_id) and self.term != FOREIGN_EPOCH


_NO_TAIL = LastBatch(PRODUCER_ID, BEFORE_FIRST_TERM, 0, 0, 0)


class Waiting(msgspec.Struct, frozen=True):
    """A queued step of ``feed``, which counts ``size`` bytes of memory (fillers count none)."""

    step: PreparedBatch | Gap
    feed: Feed
    size: int = 0

    @property
    def batch(self) -> PreparedBatch:
        """The step as a batch. Raises TypeError for a gap, which becomes filler batches before it is sent."""
        if not isinstance(self.step, PreparedBatch):
            raise TypeError("only batches are sent")
        return self.step


class MirrorPartition:
    """One log at the target."""

    __slots__ = (
        "agreeing_feeds",
        "checked",
        "end",
        "feeds",
        "fence",
        "filled",
        "foreign_id",
        "generation",
        "in_flight",
        "is_held",
        "is_ready",
        "limit",
        "max_bytes",
        "positioned",
        "priority",
        "queue",
        "sent",
        "state_confirmed",
        "tail",
        "topic_id",
        "tp",
        "tries",
        "trouble",
    )

    def __init__(self, tp: TopicPartition, priority: Priority) -> None:
        self.tp = tp
        self.priority = priority
        self.end = -1  # unknown
        self.sent = -1
        self.tail: LastBatch | None = None
        self.topic_id: bytes | None = None  # of the topic in which end and tail were read
        self.generation = -1  # the appender's generation in which end and tail were read
        self.in_flight = 0
        self.is_ready = False  # in the appender's ready queue
        self.fence: int | None = None  # offset of the last fence found at the log's end
        self.foreign_id = FOREIGN_PRODUCER_ID  # producer id for copies of ordinary clients' batches
        self.checked = -1  # the end as read again after a source offered the batch that belongs there
        self.state_confirmed = False  # an append succeeded since the end was read: the broker knows the producer
        self.tries = 0  # refusals at the log's end without progress in between
        self.limit: int | None = None  # exclusive; from this offset on the target itself writes the log
        self.max_bytes: int | None = None  # the target refuses larger batches, so they are split
        self.positioned = 0  # the log has only positioning fillers below this offset; 0 once it has another batch
        self.filled = 0  # ``positioned`` including fillers in flight
        self.trouble: LogTrouble | None = None
        self.queue: deque[Waiting] | tuple[()] = ()  # a deque takes 600 bytes, so a log at rest has none
        self.is_held = False  # the queue is sent before feeds may add to it
        self.feeds: tuple[Feed, ...] = ()
        self.agreeing_feeds: tuple[Feed, ...] = ()  # their source has the batch before ``sent``

    def reset(self) -> None:
        """Forget everything about the log, as if it were new."""
        self.end = self.sent = self.generation = self.checked = -1
        self.tail = self.trouble = self.topic_id = None
        self.foreign_id = FOREIGN_PRODUCER_ID
        self.positioned = self.filled = 0
        self.agreeing_feeds = ()
        self.state_confirmed, self.tries = False, 0

    @property
    def is_without_records(self) -> bool:
        """Whether the log is empty or, as far as is known, has only positioning fillers."""
        return self.end <= self.positioned

    @property
    def may_be_cut_short(self) -> bool:
        """Whether the last batch, if it positions the log, may not be the last one that was to do so: that is never
        full, and hardly ever of a term before the first."""
        tail = self.tail
        return tail is not None and (
            self.end - tail.base == MAX_FILLER or (tail.producer_id, tail.term) == (PRODUCER_ID, BEFORE_FIRST_TERM)
        )

    @property
    def is_complete(self) -> bool:
        """Whether the log has everything up to its limit, where the target itself starts to write."""
        return self.limit is not None and self.end >= self.limit

    def set_end(self, end: int, tail: LastBatch | None, generation: int) -> None:
        """Set the end and last batch that were just read from the target."""
        if end > self.end:
            self.tries = 0
        self.end = self.sent = end
        self.tail = tail
        self.generation = generation
        self.state_confirmed = False
        self.agreeing_feeds = ()
        self.filled = end if self.positioned == end else 0

    def holds_only_fillers(self, end: int) -> None:
        """Record that the log has only positioning fillers up to ``end``; ignored if the end has moved."""
        if self.end == end:
            self.positioned = end
            if self.sent == end:
                self.filled = end

    def add_agreeing(self, feed: Feed, end: int) -> None:
        """Record that the feed's source has this log up to ``end``; ignored if the end has moved."""
        if self.sent == end and feed not in self.agreeing_feeds:
            self.agreeing_feeds += (feed,)

    def add_feed(self, feed: Feed) -> None:
        """Add a feed that is rewound when a batch cannot be appended."""
        if feed not in self.feeds:
            self.feeds += (feed,)

    def remove_feed(self, feed: Feed) -> None:
        """Remove a feed that stopped following this log."""
        self.feeds = tuple(each for each in self.feeds if each is not feed)
        self.agreeing_feeds = tuple(each for each in self.agreeing_feeds if each is not feed)

    def queue_steps(self, steps: list[PreparedBatch | Gap], feed: Feed) -> int:
        """Queue steps; return their bytes."""
        queue = self.queue
        if not queue:
            queue = self.queue = deque()
        count = 0
        for step in steps:
            size = len(step.data) if isinstance(step, PreparedBatch) else 0
            queue.append(Waiting(step, feed, size))
            count += size
        return count

    def requeue(self, sent: list[Waiting], agreeing: tuple[Feed, ...]) -> int:
        """Queue ``sent`` again before everything else; return its bytes. The target has none of it.

        Args:
            agreeing: The feeds that agreed with the log's end, used when ``sent`` is empty.
        """
        self.agreeing_feeds = (sent[0].feed,) if sent else agreeing
        if sent or self.queue:
            self.queue = deque((*sent, *self.queue))
        self.is_held = True
        return sum(each.size for each in sent)

    def _pop_first(self) -> None:
        if self.queue:
            self.queue.popleft()
        if not self.queue:
            self.queue = ()

    def clear_queue(self) -> int:
        """Drop the queue; return the bytes dropped."""
        count = sum(each.size for each in self.queue)
        self.queue = ()
        return count

    def next_step(self) -> tuple[Waiting | None, int, Waiting | None]:
        """Return the next step to send, as a batch.

        Returns:
            The batch to send now with its feed, or None; the bytes dropped from the queue because the log already has
            them or they are beyond its limit; and a step that does not follow the log's end, or ends there as another
            batch than the log's last one, or None.
        """
        dropped = 0
        while self.queue:
            waiting = self.queue[0]
            step = waiting.step
            if step.stop <= self.sent or (self.limit is not None and step.base >= self.limit):
                if self._is_beside_tail(waiting):
                    return None, dropped, waiting
                self._pop_first()
                dropped += waiting.size
                if isinstance(step, PreparedBatch) and self._is_tail(step):
                    self.add_agreeing(waiting.feed, step.stop)
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
        """Return whether it is not yet proven that this step follows the log's last batch.

        Any batch may follow positioning fillers. Fillers may follow only fillers, because everything before them is
        deleted. In all other cases the feed's source must have the log's last batch.
        """
        if self.filled == self.sent:
            return False
        return waiting.step.positions or waiting.feed not in self.agreeing_feeds

    def mark_sent(self, waiting: Waiting, prepared: PreparedBatch) -> None:
        """Record that the first batch of the queue is sent to the broker."""
        self._pop_first()
        self.in_flight += 1
        self.sent = prepared.stop
        if prepared.positions and self.filled == prepared.base:
            self.filled = prepared.stop
        self.tail = LastBatch(prepared.producer_id, prepared.term, prepared.marker, prepared.base, prepared.crc)
        self.agreeing_feeds = (waiting.feed,)

    def confirm_append(self, prepared: PreparedBatch) -> int | None:
        """Record that the broker has the batch; return the offset below which fillers may now be deleted, if any.

        The log is never emptied: all fillers but the last are deleted when the last is stored, and the last when the
        first record is.
        """
        self.end = max(self.end, prepared.stop)
        self.state_confirmed, self.tries = True, 0
        if prepared.positions:
            if prepared.base != self.positioned:
                return None
            self.positioned = prepared.stop
            others = prepared.records == MAX_FILLER or (self.queue and self.queue[0].step.positions)
            return None if others else prepared.stop - 1
        before, self.positioned = self.positioned, 0
        return before or None

    def drop_feed(self, feed: Feed) -> tuple[int, int]:
        """Drop one feed's queued steps and its agreement; return the number of steps and bytes dropped."""
        kept = deque(each for each in self.queue if each.feed is not feed)
        dropped = len(self.queue) - len(kept), sum(each.size for each in self.queue if each.feed is feed)
        self.queue = kept or ()
        self.agreeing_feeds = tuple(each for each in self.agreeing_feeds if each is not feed)
        return dropped

    def _is_tail(self, prepared: PreparedBatch) -> bool:
        tail = self.tail
        return tail is not None and (prepared.base, prepared.stop, prepared.crc) == (tail.base, self.sent, tail.crc)

    def _is_beside_tail(self, waiting: Waiting) -> bool:
        """Return whether another batch ends where the log's last one does: perhaps no later one shows a difference."""
        step = waiting.step
        return (
            isinstance(step, PreparedBatch)
            and not step.positions
            and self.tail is not None
            and step.stop == self.sent
            and not self._is_tail(step)
            and self.is_unproven(waiting)
        )

    def _fill(self, queue: deque[Waiting], gap: Gap, feed: Feed) -> None:
        """Replace the first step, a gap, with its first filler batch and the rest of the gap; skip what is stored."""
        queue.popleft()
        rest = msgspec.structs.replace(gap, base=max(gap.base, self.sent))
        tail = self.tail or _NO_TAIL
        first = next(fillers(rest, producer_id=tail.producer_id, term=tail.term, marker=tail.marker))
        if first.stop < rest.stop:
            queue.appendleft(Waiting(msgspec.structs.replace(rest, base=first.stop), feed))
        queue.appendleft(Waiting(first, feed))

    def may_be_written_here(self, prepared: PreparedBatch) -> bool:
        """Return whether ordinary clients of this site may have written ``prepared`` themselves.

        The broker detects a conflict between their batches and the replicator's only once it knows the replicator's
        producer id. A batch that the source copied from this site was below this site's end before the source offered
        it. So it is enough to read the end once more after that (``checked``).
        """
        if (
            prepared.producer_id == PRODUCER_ID
            or self.state_confirmed
            or self.in_flight
            or self.checked == prepared.base
        ):
            return False
        return self.tail is None or self.tail.is_fence or not is_foreign(self.tail.producer_id)

    def follow_problem(self, prepared: PreparedBatch) -> str | None:
        """Return why ``prepared`` cannot follow the log's last batch; None if it can."""
        tail = self.tail
        if tail is None or self.sent == 0:
            return None
        ours = tail.producer_id == PRODUCER_ID
        if not ours and prepared.producer_id != PRODUCER_ID:
            return None  # ordinary clients have no terms; the last batch was compared already
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
