"""Under which producer id the records of ordinary clients are appended to a replica. Pure functions.

Normally ``FOREIGN_PRODUCER_ID``, with the offset as its sequence. But a log may have been written here by ordinary
clients in between: a link was reversed and reversed back. Then the broker remembers that id at an older sequence and
would refuse to go on. A fresh id of the same range is as good: equality goes by what a batch's checksum would be under
the usual one (``replication.stamp.canonical_crc``). Every replicator of the target chooses the same, because the
choice follows from what the broker says.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Final

from fairlead.wire.convention import FOREIGN_PRODUCER_ID, PRODUCER_ID
from fairlead.wire.types import ProducerState
from replication.item import SEQUENCES

RANGE: Final = 2**16


def is_foreign(producer_id: int) -> bool:
    """Whether a replicator wrote this for an ordinary client."""
    return FOREIGN_PRODUCER_ID <= producer_id < FOREIGN_PRODUCER_ID + RANGE


def is_ordinary(producer_id: int) -> bool:
    """Whether an ordinary client wrote this itself."""
    return producer_id != PRODUCER_ID and not is_foreign(producer_id)


def id_after(end: int, states: Iterable[ProducerState]) -> int:
    """The first id whose next sequence, as the broker remembers it, is that of offset ``end``, or that is new to it."""
    last = {state.producer_id: state.last_sequence for state in states}
    for found in itertools.count(FOREIGN_PRODUCER_ID):
        if found not in last or last[found] == (end - 1) % SEQUENCES:
            return found
    raise AssertionError("counting never ends")
