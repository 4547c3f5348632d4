"""What an operator lets go (``fairlead link resolve --skip``): offsets that are filled and marked instead of copied."""

from __future__ import annotations

from collections.abc import Callable

from fairlead.wire.batch import split
from fairlead.wire.convention import FOREIGN_EPOCH, FOREIGN_PRODUCER_ID, PRODUCER_ID, marker_offset
from replication.content import Hole, Item, Unfit

MaySkip = Callable[[str, int, int], bool]
"""Whether operators let offsets of a log (by name) go: from, to (exclusive)."""


def never(_log: str, _start: int, _stop: int) -> bool:
    """Nobody has let anything go."""
    return False


def hole_of_item(item: Item) -> Hole:
    """The offsets of a batch as a hole."""
    return Hole(item.base, item.stop, item.producer_id, item.term, item.marker, item.timestamp_ms)


def hole_of_unfit(unfit: Unfit, records: memoryview) -> Hole | None:
    """The offsets of an unfit batch as a hole; None when it is not among ``records``."""
    for _, _, header in split(records):
        if header.base_offset <= unfit.base < header.next_offset:
            ours = header.producer_id == PRODUCER_ID
            pid, term = (PRODUCER_ID, header.producer_epoch) if ours else (FOREIGN_PRODUCER_ID, FOREIGN_EPOCH)
            marker = marker_offset(header) if ours else 0
            return Hole(unfit.base, header.next_offset, pid, term, marker, header.max_timestamp)
    return None
