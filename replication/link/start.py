"""Find where a link starts in logs that the target does not have yet (``Link.start``).

A copy has the source's offsets. So a replica that does not start at offset 0 is positioned by fillers, which are
deleted once the first real batch is stored.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.convention import FOREIGN_EPOCH, FOREIGN_PRODUCER_ID, PRODUCER_ID
from fairlead.kafka.protocol.errors import BrokerError, WireError
from fairlead.kafka.protocol.types import TopicPartition
from replication.batch.prepared import POSITION_KEY, Gap
from replication.catalog import is_always_whole
from replication.target.log_reader import StoredHeader, stored_at
from topologies.values import start_time_ms


class Beginning(NamedTuple):
    """The first offset to fetch. ``fill`` closes everything below at once if nothing there is copied."""

    position: int
    fill: Gap | None = None


async def beginnings(source: Cluster, logs: Collection[TopicPartition], start: str) -> dict[TopicPartition, Beginning]:
    """Return where to start in each of these logs; logs that the source does not let read now are left out.

    With ``end`` the gap is filled at once, so that the replica's end preserves the decision over a restart, once it is
    filled. The other starts find the same offset again, or a later one.

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
    found = await source.offsets_at(dict.fromkeys(known, start_time_ms(start) or 0))
    late = {tp: end for tp, (_, end) in known.items() if found[tp] == -1}
    after = {tp: Beginning(max(offset, known[tp][0])) for tp, offset in _numbers(found).items() if offset >= 0}
    return after | await _at_end(source, late)


async def brought_first(
    source: Cluster, logs: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], start: str
) -> set[TopicPartition]:
    """Return the logs that this link should copy before another link copies them from the given offsets on.

    An empty log goes to the link that starts earlier; any other log to a link whose source has the next offset.

    Args:
        logs: The offsets from which on the other link can bring each log.
        ends: Ends of the logs at the target; logs without records there are left out.
        start: ``Link.start`` of this link.

    Raises:
        WireError: the source cannot be reached.
    """
    firsts, lasts = _numbers(await source.start_offsets(logs)), _numbers(await source.end_offsets(logs))
    empty = [tp for tp in logs if tp not in ends]
    later = (
        {}
        if start == "earliest"
        else await beginnings(source, [e for e in empty if not is_always_whole(e.topic)], start)
    )
    begins = {tp: later[tp].position if tp in later else first for tp, first in firsts.items()}
    return {
        tp
        for tp, at in logs.items()
        if tp in begins
        and tp in lasts
        and (begins[tp] < at and begins[tp] < lasts[tp] if tp in empty else firsts[tp] <= ends[tp] < lasts[tp])
    }


def _numbers(found: Mapping[TopicPartition, int | BrokerError]) -> dict[TopicPartition, int]:
    return {tp: offset for tp, offset in found.items() if isinstance(offset, int)}


async def _at_end(source: Cluster, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, Beginning]:
    last = await stored_at(source, {tp: end - 1 for tp, end in ends.items() if end > 0})
    return {
        tp: Beginning(end, _gap(end, there) if end > 0 else None)
        for tp, end in ends.items()
        if not isinstance(there := last.get(tp), WireError)
    }


def _gap(end: int, last: StoredHeader | None) -> Gap:
    if last is not None and last.producer_id == PRODUCER_ID:
        return Gap(0, end, PRODUCER_ID, last.term, last.marker, 1, POSITION_KEY)
    return Gap(0, end, FOREIGN_PRODUCER_ID, FOREIGN_EPOCH, 0, 1, POSITION_KEY)
