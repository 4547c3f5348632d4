"""What reading hands to the appender: batches ready to be sent, gaps to be closed, and what cannot be copied."""

from __future__ import annotations

from typing import Final, NamedTuple

SEQUENCES: Final = 2**31  # sequence numbers of a producer: they begin again at 0 after this many records
GAP_KEY: Final = b"fairlead.hole"  # one constant key, so that fillers compact away
POSITION_KEY: Final = b"fairlead.position"


class PreparedBatch(NamedTuple):
    """One batch, ready to be sent: it takes offsets ``base`` to ``stop - 1`` of a log."""

    base: int
    stop: int
    data: memoryview
    crc: int
    producer_id: int
    term: int
    marker: int  # offset of the first record of its term, which sequence 0 stands for; exact modulo 2^31 only
    timestamp_ms: int
    positions: bool = False  # nothing but fillers that position a log; deleted once the first record is in

    @property
    def opens_term(self) -> bool:
        """Sequence 0: the broker does not check that it follows, so the appender has to."""
        return self.base == self.marker

    @property
    def records(self) -> int:
        return self.stop - self.base


class Gap(NamedTuple):
    """Offsets ``base`` to ``stop - 1`` hold nothing that can be appended. ``term`` and ``marker`` are those of what
    follows (or, for a foreign log, the foreign ones)."""

    base: int
    stop: int
    producer_id: int
    term: int
    marker: int
    timestamp_ms: int
    key: bytes = GAP_KEY


class RejectedBatch(NamedTuple):
    """The batch at ``base`` cannot be copied; the log stops here with this cause."""

    base: int
    cause: str
    diverged: bool = False  # because source and target have different histories
    gap: Gap | None = None  # what to fill where an operator lets the batch go
    damaged: bool = False  # at this source; another one may have it whole


Prepared = PreparedBatch | Gap | RejectedBatch


def same_marker(one: int, other: int) -> bool:
    """Whether two markers of one term are the same. A batch tells its term's marker only modulo 2^31
    (``convention.marker_offset``): from a term's 2^31st record on, plain comparison would see two terms."""
    return (one - other) % SEQUENCES == 0
