"""Where one log stands at one source, and whether the source has the log that the target has. No I/O.

The source's last batch before the target's end tells. Equal CRCs are proof: every append follows the one before, so
logs that end alike began alike. Where CRCs or bounds differ, one of the two batches may have been rewritten on its way;
then their records decide (``replication.batch.batch_diff``).
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
    position: int = -1  # the next offset wanted; -1 while nothing is
    fill_from: int | None = None  # an empty replica whose source starts later: where the fillers begin
    unproven: int | None = None  # the source's batch before this offset must be the target's
    agreed: bool = False  # its records are the target's: the target may end inside a batch of the source
    short: bool = False  # the source has less than the target: proven when it has caught up
    shared: bool = False  # somewhere, since it is followed, the source was seen to have the target's records
    epoch: int = -1  # highest leader epoch of the batches fetched so far

    @property
    def tp(self) -> TopicPartition:
        return self.replica.tp

    def move(self, offset: int) -> None:
        """Go on at ``offset``; whatever was to be found out about another place is void."""
        self.position = offset
        self.fill_from = self.unproven = None
        self.agreed = self.short = False

    def prove(self, end: int) -> int:
        """Look at the last batch before ``end`` once more, the target's end or less; returns where to fetch it."""
        self.move(max(end - 1, 0))
        self.unproven = end if end > 0 else None
        return self.position

    def is_led_anew(self, epoch: int) -> bool:
        """Take in the leader epoch of fetched batches; True when another leader than before wrote them. It may have
        lost what the target has already (an unclean election) and have something else there."""
        before, self.epoch = self.epoch, max(self.epoch, epoch)
        return -1 < before < epoch


class TailMismatch(NamedTuple):
    """The source's batch is not simply the target's: what differs, and the batch itself."""

    what: str
    end: int  # the target's, when it was asked
    batch: bytes


def tail_mismatch(tail: LastBatch | None, end: int, records: memoryview) -> TailMismatch | None:
    """Compare the first of the fetched batches with the target's last one, which ends at ``end``; None when they are
    the same, or when there is nothing to compare."""
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
