"""Reading many logs once, each up to where it ended at the beginning: few requests, whatever their number."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping
from typing import Final, NamedTuple

from fairlead.wire.batch import Header, split
from fairlead.wire.cluster import Cluster
from fairlead.wire.errors import BrokerError, broker_error
from fairlead.wire.reader import decode_fetched
from fairlead.wire.record import Record
from fairlead.wire.types import TP

_PARTITION_BYTES: Final = 1 << 20


class Extent(NamedTuple):
    """The offsets that a log has: from ``start`` to before ``end``."""

    start: int
    end: int


async def extents(cluster: Cluster, logs: Collection[TP]) -> dict[TP, Extent]:
    """What each log has now.

    Raises:
        BrokerError: the first log that does not exist or may not be read.
        ConnectionLost, RequestTimeout: no broker answers.
    """
    if not logs:
        return {}
    ends = await cluster.end_offsets(logs)
    starts = await cluster.start_offsets(logs)
    found: dict[TP, Extent] = {}
    for log in logs:
        start, end = starts[log], ends[log]
        if isinstance(start, BrokerError):
            raise start
        if isinstance(end, BrokerError):
            raise end
        found[log] = Extent(min(start, end), end)
    return found


async def sweep(
    cluster: Cluster, logs: Mapping[TP, Extent], *, wanted: Callable[[TP, Header], bool] | None = None
) -> AsyncIterator[tuple[TP, list[Record]]]:
    """The records of these extents, each log's in offset order, the logs' mixed. Markers and fillers are included.

    Args:
        wanted: Tells by a batch's header whether its records are; all are where it is None.

    Raises:
        BrokerError: a log cannot be read; code 1: it does not reach back to its extent's start any more.
        ConnectionLost, RequestTimeout: no broker answers.
    """
    positions = {log: extent.start for log, extent in logs.items() if extent.start < extent.end}
    while positions:
        answers = await cluster.fetch(positions, max_wait_ms=0, partition_max_bytes=_PARTITION_BYTES)
        for log, content in answers.items():
            if content.error_code:
                raise broker_error(content.error_code, log)
            records, after = decode_fetched(content, positions[log])
            end = logs[log].end
            if wanted is not None:
                headers = [view.header for view in split(content.records) if not wanted(log, view.header)]
                out = [range(header.base_offset, header.next_offset) for header in headers]
                records = [record for record in records if not any(record.offset in each for each in out)]
            if after >= end:
                del positions[log]
                records = [record for record in records if record.offset < end]
            else:
                positions[log] = after
            if records:
                yield log, records
