"""Define the steps from a fetcher to the appender: batches, gaps, and batches that cannot be copied."""

from __future__ import annotations

from typing import Final

import msgspec

SEQUENCES: Final = 2**31  # a producer's sequence starts again at 0 after this many records
GAP_KEY: Final = b"fairlead.hole"  # one key for all, so that compaction removes fillers
POSITION_KEY: Final = b"fairlead.position"


class PreparedBatch(msgspec.Struct, frozen=True, gc=False):
    """One batch for offsets ``base`` to ``stop - 1`` of a log, ready to be sent."""

    base: int
    stop: int
    data: memoryview
    crc: int
    producer_id: int
    term: int
    marker: int  # offset of its term's first record, which has sequence 0; exact only modulo 2^31
    timestamp_ms: int
    positions: bool = False  # only fillers that position a log; deleted once the first record is stored

    @property
    def opens_term(self) -> bool:
        """Whether the batch has sequence 0. The broker accepts that at any end, so the appender must check it."""
        return self.base == self.marker

    @property
    def records(self) -> int:
        return self.stop - self.base


class Gap(msgspec.Struct, frozen=True, gc=False):
    """Offsets ``base`` to ``stop - 1`` that have no batch to append. ``term`` and ``marker`` are those of the following
    batch, or the foreign ones in a foreign log."""

    base: int
    stop: int
    producer_id: int
    term: int
    marker: int
    timestamp_ms: int
    key: bytes = GAP_KEY

    @property
    def positions(self) -> bool:
        """Whether its fillers position a log, as ``PreparedBatch.positions``."""
        return self.key == POSITION_KEY


class RejectedBatch(msgspec.Struct, frozen=True, gc=False):
    """A batch at ``base`` that cannot be copied, and why; the log stops there."""

    base: int
    cause: str
    diverged: bool = False  # source and target have different histories
    gap: Gap | None = None  # the gap to fill if an operator skips the batch
    damaged: bool = False  # at this source; another source may have it undamaged


Prepared = PreparedBatch | Gap | RejectedBatch


def same_marker(one: int, other: int) -> bool:
    """Return whether two markers of one term are the same. A batch has its term's marker only modulo 2^31
    (``convention.marker_offset``), so a plain comparison fails from a term's 2^31st record on."""
    return (one - other) % SEQUENCES == 0
