"""The logs as ``shore verify`` reads them: where they begin and end, their data records, and the rows these give.

Markers are no records.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import NamedTuple

import pyarrow as pa

from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.reader import OffsetRange, sweep
from fairlead.kafka.convention import is_data
from fairlead.kafka.protocol.errors import BrokerError
from fairlead.kafka.protocol.record import Record
from fairlead.kafka.protocol.types import TP
from shore.jobs.operations import rows_of
from shore.source.columns import RawCollector
from shore.source.offsets import Range, parse_partition_id, partition_id
from shore.source.readings import ReadingsCollector, by_table
from shore.source.task import record_batches
from shore.verify.catalogue import FromLogs

CLIENT_ID = "fairlead-verify"


class LogRange(NamedTuple):
    """Offsets of one log, by the name that ``shore.source.offsets`` gives it: ``start`` to before ``stop``."""

    log: str
    start: int
    stop: int


async def extents_of(
    cluster: Cluster, takes: Callable[[str], bool], known: Iterable[str]
) -> tuple[dict[str, OffsetRange], dict[str, str]]:
    """What the logs have now: all that ``takes`` names or that are ``known``, as far as they are there.

    Returns:
        The extents, and the logs that could not be asked, with the reason.
    """
    topics = await cluster.topics(None, refresh=True)
    wanted = {topic for topic in topics if takes(topic)} | {parse_partition_id(log)[0] for log in known}
    logs = [TP(topic, part) for topic in sorted(wanted & set(topics)) for part in topics[topic].partitions]
    starts = await cluster.start_offsets(logs) if logs else {}
    ends = await cluster.end_offsets(logs) if logs else {}
    found: dict[str, OffsetRange] = {}
    unreadable: dict[str, str] = {}
    for log in logs:
        start, end = starts[log], ends[log]
        if isinstance(start, BrokerError) or isinstance(end, BrokerError):
            unreadable[partition_id(*log)] = next(e.name for e in (start, end) if isinstance(e, BrokerError))
        else:
            found[partition_id(*log)] = OffsetRange(min(start, end), end)
    return found, unreadable


async def data_records(cluster: Cluster, ranges: Iterable[LogRange]) -> AsyncIterator[tuple[str, list[Record]]]:
    """The data records of these ranges, each log's in order; raises as ``fairlead.kafka.client.reader``."""
    wanted: Mapping[TP, OffsetRange] = {
        TP(*parse_partition_id(log)): OffsetRange(start, stop) for log, start, stop in ranges if start < stop
    }
    async for tp, records in sweep(cluster, wanted):
        data = [record for record in records if is_data(record)]
        if data:
            yield partition_id(*tp), data


async def rows_of_logs(
    cluster: Cluster, entry: FromLogs, ranges: Iterable[LogRange]
) -> AsyncIterator[dict[str, pa.Table]]:
    """The rows that these ranges give, by table: read and parsed as the job does it.

    Raises:
        DataLossError: records of a range are gone.
        ConnectionLost, RequestTimeout, BrokerError, CorruptBatch: the logs cannot be read.
    """
    work = [Range(*parse_partition_id(log), start, stop) for log, start, stop in ranges if start < stop]
    collector = ReadingsCollector() if entry.operation is None else RawCollector("")
    async for batch in record_batches(cluster, work, collector, fail_on_data_loss=True):
        rows = pa.Table.from_batches([batch])
        if entry.operation is not None:
            yield {entry.operation.table.name: rows_of(entry.operation, rows)}
        else:
            yield dict(zip(entry.tables, by_table(rows), strict=True))
