"""The logs as ``shore verify`` reads them: where they begin and end, and their data records. Markers are no records."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import NamedTuple

from fairlead.wire.cluster import Cluster
from fairlead.wire.convention import is_data
from fairlead.wire.errors import BrokerError
from fairlead.wire.record import Record
from fairlead.wire.sweep import Extent, sweep
from fairlead.wire.types import TP
from shore.source.offsets import parse_partition_id, partition_id

CLIENT_ID = "fairlead-verify"


class LogRange(NamedTuple):
    """Offsets of one log, by the name that ``shore.source.offsets`` gives it: ``start`` to before ``stop``."""

    log: str
    start: int
    stop: int


async def extents_of(
    cluster: Cluster, takes: Callable[[str], bool], known: Iterable[str]
) -> tuple[dict[str, Extent], dict[str, str]]:
    """What the logs have now: all that ``takes`` names or that are ``known``, as far as they are there.

    Returns:
        The extents, and the logs that could not be asked, with the reason.
    """
    topics = await cluster.topics(None, refresh=True)
    wanted = {topic for topic in topics if takes(topic)} | {parse_partition_id(log)[0] for log in known}
    logs = [TP(topic, part) for topic in sorted(wanted & set(topics)) for part in topics[topic].partitions]
    starts = await cluster.start_offsets(logs) if logs else {}
    ends = await cluster.end_offsets(logs) if logs else {}
    found: dict[str, Extent] = {}
    unreadable: dict[str, str] = {}
    for log in logs:
        start, end = starts[log], ends[log]
        if isinstance(start, BrokerError) or isinstance(end, BrokerError):
            unreadable[partition_id(*log)] = next(e.name for e in (start, end) if isinstance(e, BrokerError))
        else:
            found[partition_id(*log)] = Extent(min(start, end), end)
    return found, unreadable


async def data_records(cluster: Cluster, ranges: Iterable[LogRange]) -> AsyncIterator[tuple[str, list[Record]]]:
    """The data records of these ranges, each log's in order; raises as ``fairlead.wire.sweep``."""
    wanted: Mapping[TP, Extent] = {
        TP(*parse_partition_id(log)): Extent(start, stop) for log, start, stop in ranges if start < stop
    }
    async for tp, records in sweep(cluster, wanted):
        data = [record for record in records if is_data(record)]
        if data:
            yield partition_id(*tp), data
