"""Where a link begins in logs that the target does not have yet (``Link.start``).

Offsets stay what they are, so a replica that does not begin at offset 0 is positioned by fillers, which are deleted
once the first real batch is in.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from fairlead.wire.cluster import Cluster
from fairlead.wire.convention import FOREIGN_EPOCH, FOREIGN_PRODUCER_ID, PRODUCER_ID
from fairlead.wire.errors import BrokerError
from fairlead.wire.types import TopicPartition
from replication.content import POSITION_KEY, Hole
from replication.guard import Stored, stored_at
from topologies.values import start_time_ms

ALWAYS_WHOLE: Final = ("custody", "strays")


def is_always_whole(topic: str) -> bool:
    """Whether a log is followed from its beginning whatever its link says: who holds what, and what waits to be
    drained, cannot be known from the newest records."""
    return topic.partition(".")[0] in ALWAYS_WHOLE


class Beginning(NamedTuple):
    """The first offset to fetch. ``fill`` closes everything below at once, where nothing there is copied at all."""

    position: int
    fill: Hole | None = None


async def beginnings(source: Cluster, logs: Collection[TopicPartition], start: str) -> dict[TopicPartition, Beginning]:
    """Where to begin in each of these logs; logs that the source cannot tell about are left out.

    ``end`` is decided now and must be kept: its hole is filled at once, so that after a restart the replica's end says
    what was decided. The others find the same offset, or a later one, again.

    Raises:
        WireError: the source cannot be reached.
    """
    starts, ends = await source.start_offsets(logs), await source.end_offsets(logs)
    known = {tp: (a, b) for tp in logs if isinstance(a := starts[tp], int) and isinstance(b := ends[tp], int)}
    match start:
        case "earliest":
            return {tp: Beginning(first) for tp, (first, _) in known.items()}
        case "latest":
            return {tp: Beginning(max(first, end - 1)) for tp, (first, end) in known.items()}
        case "end":
            return await _at_end(source, {tp: end for tp, (_, end) in known.items()})
    found = await source.offsets_at(list(known), start_time_ms(start) or 0)
    late = {tp: end for tp, (_, end) in known.items() if found[tp] == -1}
    after = {tp: Beginning(max(offset, known[tp][0])) for tp, offset in _numbers(found).items() if offset >= 0}
    return after | await _at_end(source, late)


def _numbers(found: Mapping[TopicPartition, int | BrokerError]) -> dict[TopicPartition, int]:
    return {tp: offset for tp, offset in found.items() if isinstance(offset, int)}


async def _at_end(source: Cluster, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, Beginning]:
    last = await stored_at(source, {tp: end - 1 for tp, end in ends.items() if end > 0})
    return {tp: Beginning(end, _hole(end, last.get(tp)) if end > 0 else None) for tp, end in ends.items()}


def _hole(end: int, last: Stored | None) -> Hole:
    if last is not None and last.producer_id == PRODUCER_ID:
        return Hole(0, end, PRODUCER_ID, last.term, last.marker, 1, POSITION_KEY)
    return Hole(0, end, FOREIGN_PRODUCER_ID, FOREIGN_EPOCH, 0, 1, POSITION_KEY)
