"""What a source can give back of a copy that is to be made anew: the log as it is now, and nothing less than was here.

Two sites' copies are one history up to an offset if they have the same record there: an append is taken only behind
what the writer knows, so they have the same records before it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from fairlead.custody import CustodyView
from fairlead.errors import FairleadError
from fairlead.lineage import Stale, batches_at, copies
from fairlead.wire.batch import Buffer, parse_header
from fairlead.wire.cluster import Cluster
from fairlead.wire.convention import is_ours, marker_offset
from fairlead.wire.errors import BrokerError
from fairlead.wire.types import TP
from replication.agreement import conflict
from replication.item import same_marker

log = logging.getLogger(__name__)


async def can_give(
    source: Cluster, target: Cluster, view: CustodyView, logs: Mapping[TP, Stale], starts: Mapping[TP, int]
) -> tuple[set[TP], dict[TP, str]]:
    """Those of these logs that a source can give back, and what is amiss with others.

    Args:
        logs: What is stale of the copies at the target.
        starts: Where those begin. One that begins at its cut has nothing before it that could be lost.
    """
    site = source.endpoint.site
    try:
        begins = await _whole_at(source, view, logs)
        good = {tp for tp in begins if starts.get(tp, 0) >= logs[tp].cut}
        joined = {tp for tp, begin in begins.items() if tp not in good and begin <= starts.get(tp, 0)}
        same = await common_at(source, target, {tp: logs[tp].cut - 1 for tp in joined})
    except FairleadError as error:
        log.info("%s: looking for logs that were seized: %s", site, error.what)
        return set(), {}
    bad = {
        tp: f"no source has its offsets {starts.get(tp, 0)}..{min(begin, logs[tp].cut) - 1} any more"
        for tp, begin in begins.items()
        if tp not in good and tp not in joined
    }
    for tp in joined - same:
        bad[tp] = (
            f"its record at offset {logs[tp].cut - 1} is another one than at {site}: an earlier seizure, whose ledger "
            "is not here yet, may have cut off more than was kept"
        )
    return good | same, bad


async def _whole_at(source: Cluster, view: CustodyView, logs: Collection[TP]) -> dict[TP, int]:
    """Those of these logs that go beyond the newest seizure at a source and are the log, with where they begin there.

    An older seizure's marker may be further on: it was cut off by the newer one, made from a shorter copy.
    """
    there = await copies(source, view, [tp.topic for tp in logs])
    good = [
        tp
        for tp in logs
        if (copy := there.get(tp.topic)) is not None
        and copy.stale is None
        and copy.end > view.seizures(tp.topic)[-1].marker
    ]
    return numbers(await source.start_offsets(good)) if good else {}


async def common_at(source: Cluster, target: Cluster, offsets: Mapping[TP, int]) -> set[TP]:
    """Those of these logs of which both sites have the same record at the given offset.

    Raises:
        BrokerError, ConnectionLost: one of them cannot be asked.
    """
    if not offsets:
        return set()
    there, here = await batches_at(source, offsets), await batches_at(target, offsets)
    return {tp for tp, at in offsets.items() if tp in here and tp in there and same_at(at, there[tp], here[tp])}


def same_at(offset: int, source: Buffer, target: Buffer) -> bool:
    """Whether two stored batches show that both copies are the same at ``offset``.

    The same bytes do. A batch that was written anew on its way has other bytes: then both must stand for the offset, in
    one term with one marker, and nothing in them may be contradictory. No contradiction alone proves nothing: a filler
    agrees with every record.
    """
    there, here = parse_header(source), parse_header(target)
    if (there.base_offset, there.crc) == (here.base_offset, here.crc):
        return True
    return (
        all(each.base_offset <= offset < each.next_offset and is_ours(each) for each in (there, here))
        and there.producer_epoch == here.producer_epoch
        and same_marker(marker_offset(there), marker_offset(here))
        and not conflict(source, target)
    )


def numbers(found: Mapping[TP, int | BrokerError]) -> dict[TP, int]:
    """The offsets in an answer; logs left out that have an error instead."""
    return {tp: each for tp, each in found.items() if isinstance(each, int)}
