"""The positions of a fetcher in its logs, and the comparison of the source's log with the target's. No I/O.

The source's last batch before the target's end is compared with the target's last batch. Equal CRCs prove that the logs
are the same, because every append follows the one before. If CRCs or bounds differ, one of the batches may have been
rewritten on its way; then the records decide (``replication.batch.batch_diff``).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from fairlead.kafka.client.fetch_session import FetchSession
from fairlead.kafka.protocol.batch import split
from fairlead.kafka.protocol.types import TopicPartition
from replication.batch.header_rewrite import canonical_crc
from replication.target.mirror import LastBatch, MirrorPartition


@dataclass(slots=True)
class PartitionFetchState:
    """A log that a fetcher follows."""

    replica: MirrorPartition
    tp: TopicPartition = field(init=False)
    position: int = -1  # the next offset to fetch; -1 while nothing is fetched
    fill_from: int | None = None  # first filler, for an empty replica whose source starts later
    verify_before: int | None = None  # compare the source's batch before this offset with the target's
    controls_to: int = -1  # one of the sites has only control batches from ``verify_before`` to here
    tail_matches: bool = False  # records compared equal: the target may end inside a batch of the source
    is_short: bool = False  # the source has less than the target: compare when it has caught up
    is_proven: bool = False  # the source was seen to have the target's records since it is followed
    skipped_to: int = -1  # end of an operator's skip from which on nothing was read yet
    epoch: int = -1  # highest leader epoch of the batches fetched so far

    def __post_init__(self) -> None:
        self.tp = self.replica.tp

    def seek(self, offset: int) -> None:
        """Continue at ``offset``; drop pending comparisons at other offsets."""
        self.position = offset
        self.fill_from = self.verify_before = None
        self.controls_to = -1
        self.tail_matches = self.is_short = False
        self.skipped_to = -1

    def seek_tail(self, end: int) -> int:
        """Compare the batch before ``end``, the target's end or less; return the offset to fetch for that."""
        self.seek(max(end - 1, 0))
        self.verify_before = end if end > 0 else None
        return self.position

    def ends_before_tail(self, end: int) -> bool:
        """Return whether a source that ends at ``end`` lacks the batch to compare with. Kafka refuses a fetch beyond a
        log's end, but answers one at its end with nothing."""
        return self.verify_before is not None and end < self.verify_before

    def is_led_anew(self, epoch: int) -> bool:
        """Note the leader epoch of fetched batches; return whether it is later than that of the batches before. After
        an unclean election a leader may have lost records that the target has, and have others at their offsets."""
        before, self.epoch = self.epoch, max(self.epoch, epoch)
        return -1 < before < epoch


PAUSE_SECONDS: Final = 1.0  # seconds until a paused log is started again


class _Pause(NamedTuple):
    """A log is not fetched until the monotonic time ``at``. If another link brings it first, up to offset ``until``,
    ``end`` is where the log ended here at the last check."""

    at: float
    end: int = -1
    until: int = -1


class FollowedLogs:
    """The logs that one fetcher follows, and where its fetch session reads each of them."""

    def __init__(self, session: FetchSession) -> None:
        self._session = session
        self._states: dict[TopicPartition, PartitionFetchState] = {}
        self._paused: dict[TopicPartition, _Pause] = {}

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[PartitionFetchState]:
        return iter(self._states.values())

    def get(self, tp: TopicPartition) -> PartitionFetchState | None:
        """Return the state of a log; None if it is not followed."""
        return self._states.get(tp)

    def is_followed(self, state: PartitionFetchState) -> bool:
        """Return whether the log is followed, and has been since it got this state."""
        return self._states.get(state.tp) is state

    def add(self, replica: MirrorPartition) -> PartitionFetchState:
        """Follow a log. Nothing is fetched before ``seek`` or ``verify_tail``."""
        state = self._states[replica.tp] = PartitionFetchState(replica)
        return state

    def remove(self, tp: TopicPartition) -> PartitionFetchState | None:
        """Follow a log no longer; return its state."""
        state = self._states.pop(tp, None)
        if state is not None:
            self._paused.pop(tp, None)
            self._session.forget(tp)
        return state

    def clear(self) -> None:
        """Follow no log any longer. The session, which ends, is told nothing."""
        self._states.clear()

    def seek(self, state: PartitionFetchState, offset: int) -> None:
        """Fetch from another offset on; ignored for a log that is no longer followed."""
        if self.is_followed(state):
            state.seek(offset)
            self._session.set(state.tp, offset)

    def verify_tail(self, state: PartitionFetchState, end: int | None = None) -> None:
        """Fetch the batch before ``end``, by default the target's end, again and compare it."""
        self._session.set(state.tp, state.seek_tail(state.replica.end if end is None else end))

    def suspend(self, state: PartitionFetchState) -> None:
        """Fetch nothing of a log until it is started again or rewound."""
        self._session.forget(state.tp)
        state.seek(-1)

    def pause(self, state: PartitionFetchState) -> None:
        """Fetch nothing of a log for a second."""
        self.suspend(state)
        self.check_later(state)

    def defer(self, state: PartitionFetchState, until: int) -> None:
        """Pause a log that another link brings first, up to the offset ``until``."""
        self.suspend(state)
        self._paused[state.tp] = _Pause(time.monotonic() + PAUSE_SECONDS, state.replica.end, until)

    def check_later(self, state: PartitionFetchState) -> None:
        """Have ``due`` return a log in a second, unless its batches are proven by then. It is fetched meanwhile."""
        self._paused[state.tp] = _Pause(time.monotonic() + PAUSE_SECONDS)

    def unpause(self, tp: TopicPartition) -> None:
        """Forget a log's pause."""
        self._paused.pop(tp, None)

    def due(self, now: float) -> list[PartitionFetchState]:
        """End the pauses whose time has come; return the logs to start again."""
        found = []
        for tp, pause in [(tp, pause) for tp, pause in self._paused.items() if pause.at <= now]:
            state = self._states[tp]
            end = state.replica.end
            is_coming = pause.end < end < pause.until  # the other link makes progress
            if is_coming or (end < state.position and not state.is_proven):  # or queued batches are not stored yet
                self._paused[tp] = pause._replace(at=now + PAUSE_SECONDS, end=end)
                continue
            del self._paused[tp]
            if state.position < 0 or not state.is_proven:
                found.append(state)
        return found

    def next_due(self) -> float | None:
        """Return the monotonic time at which the first pause ends; None without one."""
        return min(self._paused.values()).at if self._paused else None


class TailMismatch(NamedTuple):
    """A difference between the source's batch and the target's, with the source's batch."""

    what: str
    end: int  # the target's end at the time of the comparison
    batch: bytes


def tail_mismatch(tail: LastBatch | None, end: int, records: memoryview) -> TailMismatch | None:
    """Compare the first fetched batch with the target's last one, which ends at ``end``; None if they are the same or
    there is nothing to compare."""
    first = next(split(records), None)
    if tail is None or first is None or first.header.base_offset >= end:
        return None
    header = first.header
    batch = bytes(records[first.start : first.stop])
    if (header.base_offset, header.next_offset) != (tail.base, end):
        bounds = f"the batch before {end} has offsets {header.base_offset}..{header.next_offset - 1} at the source, "
        return TailMismatch(bounds + f"{tail.base}..{end - 1} here", end, batch)
    crc = canonical_crc(batch, header)
    if crc == tail.crc:
        return None
    source = f"offsets {tail.base}..{end - 1} have CRC {crc:08x} (term {header.producer_epoch}) at the source, "
    return TailMismatch(source + f"{tail.crc:08x} (term {tail.term}) here", end, batch)
