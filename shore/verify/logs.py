"""Log tables against the logs: every column of every row, by digests of each log; and the rows that differ."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.reader import OffsetRange, sweep
from fairlead.kafka.convention import is_data
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.errors import OFFSET_OUT_OF_RANGE, BrokerError
from fairlead.kafka.protocol.record import Record
from fairlead.kafka.protocol.types import TP
from shore.errors import DataLossError
from shore.jobs.checkpoint import Checkpoint, read_checkpoint
from shore.paths import TablePaths
from shore.source.columns import RawCollector
from shore.source.offsets import Positions, Range, parse_partition_id, partition_id
from shore.source.operations import rows_of
from shore.source.readings import ReadingsCollector, by_table
from shore.source.task import record_batches
from shore.verify.catalogue import FromLogs
from shore.verify.compare import (
    Difference,
    Digest,
    ExpectedDigests,
    Limits,
    LogRows,
    OddRow,
    RowsDigest,
    TableCheck,
    connection,
    reader,
    rows_digests,
)
from topologies.model import Topology

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


LOGS_SHOWN: Final = 5  # logs whose rows are looked at one by one, of those that differ
ROWS_SHOWN: Final = 10  # differences that are told
_ATTEMPTS: Final = 3  # retention may overtake the reading
_TWICE: Final = """
select log, log_offset from rows join limits using (log) where log_offset < start
group by log, log_offset having count(*) > 1 order by log, log_offset limit 10
"""


@dataclass(frozen=True, slots=True)
class LogScope:
    """What is to be compared: limits by log, and what cannot or need not be, in words."""

    limits: Mapping[str, Limits]
    behind: int
    notes: tuple[str, ...]


def scope_of(
    positions: Positions, ahead: Positions, takes: Mapping[str, OffsetRange], unreadable: Mapping[str, str]
) -> LogScope:
    """From where the job stands and what the logs have now. Pure.

    Args:
        positions: How far the logs are read, by the last batch that is done.
        ahead: The same by the last one that was begun.
        takes: The logs that the job reads, as far as they are there.
        unreadable: Those that could not be asked.
    """
    limits: dict[str, Limits] = {}
    vanished, shorter = [], []
    for log, position in positions.items():
        extent = takes.get(log)
        start = min(extent.start, position) if extent is not None else position
        if extent is None:
            vanished.append(log)
        elif extent.end < position:
            shorter.append(f"{log} ends at {extent.end:,} and was read up to {position:,}")
        limits[log] = Limits(start, position, max(ahead.get(log, 0), position))
    for log in ahead.keys() - limits.keys():  # a batch under way that is the first to read them
        limits[log] = Limits(0, 0, ahead[log])
    notes = []
    if vanished := [log for log in vanished if log not in unreadable]:
        notes.append(f"logs that are no more there: {_some(vanished)}")
    if unreadable:
        notes.append(f"logs that cannot be read: {_some([f'{log} ({why})' for log, why in unreadable.items()])}")
    if shorter:
        notes.append(f"logs that were truncated or made anew: {_some(shorter)}")
    behind = sum(max(0, extent.end - positions.get(log, extent.start)) for log, extent in takes.items())
    return LogScope(limits, behind, tuple(notes))


def check_logs(entry: FromLogs, topology: Topology, endpoint: KafkaEndpoint, paths: TablePaths) -> TableCheck:
    """Compare the tables of one line of the catalogue with the logs.

    Raises:
        CheckpointDamagedError: it is not known how far the job has read.
        ConnectionLost, RequestTimeout, BrokerError: the logs cannot be read.
    """
    checkpoint = read_checkpoint(paths, entry.job)  # before the tables are opened: they hold at least so much then
    tables = open_tables(entry, paths)
    if tables is None:
        note = f"job {entry.job} has not run yet"
        return TableCheck(table=entry.name, kind="logs", same=None, notes=(note,))
    if checkpoint is None and (count := sum(rows.count_rows() for rows in tables.values())):
        note = f"job {entry.job} has lost its checkpoint"
        return TableCheck(table=entry.name, kind="logs", same=None, rows=count, notes=(note,))
    checkpoint = checkpoint or Checkpoint(entry.job, "", None, None, (), ())  # nothing was read, nothing is there
    if (later := read_checkpoint(paths, entry.job)) is not None:  # after them: they hold at most so much
        checkpoint = replace(checkpoint, begun=later.begun, ahead=later.ahead)
    for attempt in range(_ATTEMPTS):
        try:
            return asyncio.run(_check(entry, topology, endpoint, checkpoint, tables))
        except (BrokerError, DataLossError) as error:
            passing = isinstance(error, DataLossError) or error.code == OFFSET_OUT_OF_RANGE
            if not passing or attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("the loop above returns or raises")


def open_tables(entry: FromLogs, paths: TablePaths) -> dict[str, pads.Dataset] | None:
    """The tables as they are now; None when one of them is not there."""
    try:
        return {name: DeltaTable(paths.table(name)).to_pyarrow_dataset() for name in entry.tables}
    except TableNotFoundError:
        return None


async def _check(
    entry: FromLogs,
    topology: Topology,
    endpoint: KafkaEndpoint,
    checkpoint: Checkpoint,
    tables: Mapping[str, pads.Dataset],
) -> TableCheck:
    takes = entry.takes(topology)
    with connection() as opened:
        async with await Cluster.open(endpoint, client_id=CLIENT_ID) as cluster:
            found, unreadable = await extents_of(cluster, takes, ())
            positions = own_positions(checkpoint.positions, takes)
            ahead = own_positions(checkpoint.positions_ahead, takes)
            scope = scope_of(positions, ahead, found, unreadable)
            expected, rows = await digests_of(cluster, opened, entry, tables, scope.limits, found)
            differing = [log for log in sorted({*expected, *rows}) if _differs(expected.get(log), rows.get(log))]
            differences: list[Difference] = []
            for log in differing[:LOGS_SHOWN]:
                explained = max(0, ROWS_SHOWN - len(differences))
                odd = await odd_rows(cluster, opened, entry, tables, log, scope.limits, found, explained=explained)
                differences += [_told(log, each) for each in odd[:ROWS_SHOWN]]
        gone = sum(digest.before for digest in rows.values())
        twice = _twice(opened, tables, scope.limits) if gone else []
    return TableCheck(
        table=entry.name,
        kind="logs",
        same=not differing and not twice,
        rows=sum(digest.inside.records for digest in rows.values()),
        expected=sum(digest.records for digest in expected.values()),
        logs=len(scope.limits),
        behind=scope.behind,
        gone=gone,
        differing=len(differing) + len({each.key["log"] for each in twice} - set(differing)),
        differences=tuple([*differences, *twice][:ROWS_SHOWN]),
        notes=scope.notes,
    )


async def digests_of(
    cluster: Cluster,
    opened: duckdb.DuckDBPyConnection,
    entry: FromLogs,
    tables: Mapping[str, pads.Dataset],
    limits: Mapping[str, Limits],
    found: Mapping[str, OffsetRange],
) -> tuple[dict[str, Digest], dict[str, RowsDigest]]:
    """The digests of the rows that the logs give and of the rows of all tables together, by log and within limits."""
    digests, shapes = ExpectedDigests(opened), entry.shapes
    async for given in rows_of_logs(cluster, entry, ranges_of(limits, found)):
        for name, some in given.items():
            digests.add(shapes[name], some)
    rows: dict[str, RowsDigest] = {}
    for name, dataset in tables.items():
        for log, digest in rows_digests(opened, reader(dataset, shapes[name]), shapes[name], limits).items():
            rows[log] = rows.get(log, RowsDigest()) + digest
    return digests.found, rows


def own_positions(positions: Positions, takes: Callable[[str], bool]) -> Positions:
    """Those of the logs of one line of the catalogue: a job may read the logs of several."""
    return {log: position for log, position in positions.items() if takes(parse_partition_id(log)[0])}


def ranges_of(limits: Mapping[str, Limits], found: Mapping[str, OffsetRange]) -> list[LogRange]:
    """What of the logs is to be read: within the limits and still there."""
    return [LogRange(log, each.start, min(each.stop, found[log].end)) for log, each in limits.items() if log in found]


async def odd_rows(
    cluster: Cluster,
    opened: duckdb.DuckDBPyConnection,
    entry: FromLogs,
    tables: Mapping[str, pads.Dataset],
    log: str,
    limits: Mapping[str, Limits],
    found: Mapping[str, OffsetRange],
    *,
    explained: int = 0,
) -> list[OddRow]:
    """The rows of one log that differ from what it gives; the first few changed ones (``explained``) with values."""
    own = limits.get(log, Limits(0, 0, 0))
    compared = LogRows(opened, entry.shapes)
    async for given in rows_of_logs(cluster, entry, ranges_of({log: own}, found)):
        for name, rows in given.items():
            compared.add(name, rows)
    return compared.odd(tables, log, own, explained=explained)


def _differs(expected: Digest | None, rows: RowsDigest | None) -> bool:
    found = rows or RowsDigest()
    return found.inside != (expected or Digest()) or found.beyond > 0


def _told(log: str, odd: OddRow) -> Difference:
    return Difference(
        table=odd.table,
        what=odd.what,
        key={"log": log, "log_offset": odd.log_offset},
        columns=tuple(odd.found),
        found=dict(odd.found),
        expected=dict(odd.expected),
    )


def _twice(
    opened: duckdb.DuckDBPyConnection, tables: Mapping[str, pads.Dataset], limits: Mapping[str, Limits]
) -> list[Difference]:
    """Rows whose records are gone cannot be compared, but must not be there twice."""
    starts = {log: each.start for log, each in limits.items() if each.start}
    opened.register("limits", pa.table({"log": list(starts), "start": pa.array(list(starts.values()), pa.int64())}))
    found: list[Difference] = []
    for name, rows in tables.items():
        scanner = rows.scanner(columns=["log", "log_offset"], filter=pc.field("log_offset") < max(starts.values()))
        opened.register("rows", scanner.to_reader())
        for log, offset in opened.execute(_TWICE).fetchall():
            found.append(Difference(table=name, what="doubled", key={"log": log, "log_offset": offset}))
        opened.unregister("rows")
    opened.unregister("limits")
    return found


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
