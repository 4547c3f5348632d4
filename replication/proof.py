"""Is the source's log the one that the target has? Its last batch before the target's end tells. Pure functions.

Equal CRCs are proof (the sequence of appends is a chain: what ends alike began alike). Where they differ, or the
batches have other bounds, one of them may have been written anew on its way, and their records decide
(``replication.agreement``).
"""

from __future__ import annotations

from typing import NamedTuple

from fairlead.wire.batch import split
from replication.replica import Tail
from replication.stamp import canonical_crc


class Doubt(NamedTuple):
    """The source's batch is not simply the target's: what differs, and the batch itself."""

    what: str
    end: int  # the target's, when it was asked
    batch: bytes


def doubt(tail: Tail | None, end: int, records: memoryview) -> Doubt | None:
    """Compare the first of the fetched batches with the target's last one, which ends at ``end``; None when they are
    the same, or when there is nothing to compare."""
    first = next(split(records), None)
    if tail is None or first is None or first.header.base_offset >= end:
        return None
    header = first.header
    batch = bytes(records[first.start : first.stop])
    if (header.base_offset, header.next_offset) != (tail.base, end):
        bounds = f"the batch before {end} has offsets {header.base_offset}..{header.next_offset - 1} at the source, "
        return Doubt(bounds + f"{tail.base}..{end - 1} here", end, batch)
    crc = canonical_crc(memoryview(bytearray(batch)), header)
    if crc == tail.crc:
        return None
    source = f"offsets {tail.base}..{end - 1} have CRC {crc:08x} (term {header.producer_epoch}) at the source, "
    return Doubt(source + f"{tail.crc:08x} (term {tail.term}) here", end, batch)
