"""The position of a fetcher in one log, and the comparison of the source's log with the target's. No I/O.

The source's last batch before the target's end is compared with the target's last batch. Equal CRCs prove that the logs
are the same, because every append follows the one before. If CRCs or bounds differ, one of the batches may have been
rewritten on its way; then the records decide (``replication.batch.batch_diff``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from fairlead.kafka.protocol.batch import split
from fairlead.kafka.protocol.types import TopicPartition
from replication.batch.header_rewrite import canonical_crc
from replication.target.mirror import LastBatch, MirrorPartition


@dataclass(slots=True)
class PartitionFetchState:
    """A log that a fetcher follows."""

    replica: MirrorPartition
    position: int = -1  # the next offset to fetch; -1 while nothing is fetched
    fill_from: int | None = None  # first filler, for an empty replica whose source starts later
    verify_before: int | None = None  # compare the source's batch before this offset with the target's
    controls_to: int = -1  # one of the sites has only control batches from ``verify_before`` to here
    tail_matches: bool = False  # records compared equal: the target may end inside a batch of the source
    is_short: bool = False  # the source has less than the target: compare when it has caught up
    is_proven: bool = False  # the source was seen to have the target's records since it is followed
    skipped_to: int = -1  # end of an operator's skip from which on nothing was read yet
    epoch: int = -1  # highest leader epoch of the batches fetched so far

    @property
    def tp(self) -> TopicPartition:
        return self.replica.tp

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
        """Return whether fetched batches have a later leader epoch than those before. After an unclean election a
        leader may have lost records that the target has, and have others at their offsets."""
        before, self.epoch = self.epoch, max(self.epoch, epoch)
        return -1 < before < epoch


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
