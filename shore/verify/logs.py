"""Log tables against the logs: every column of every row, by digests of each log; and the rows that differ."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.reader import OffsetRange
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.errors import OFFSET_OUT_OF_RANGE, BrokerError
from shore.checkpoint import Checkpoint, read_checkpoint
from shore.errors import DataLossError
from shore.places import Places
from shore.source.offsets import Positions, parse_partition_id
from shore.verify.catalogue import FromLogs
from shore.verify.digest import Digest, ExpectedDigests, Limits, RowsDigest, connection, reader, rows_digests
from shore.verify.model import Difference, TableCheck
from shore.verify.records import CLIENT_ID, LogRange, extents_of, rows_of_logs
from shore.verify.rows import LogRows, OddRow
from topologies.model import Topology

LOGS_SHOWN: Final = 5  # logs whose rows are looked at one by one, of those that differ
ROWS_SHOWN: Final = 10  # differences that are told
_ATTEMPTS: Final = 3  # retention may overtake the reading
_TWICE: Final = """
select log, log_offset from rows join limits using (log) where log_offset < start
group by log, log_offset having count(*) > 1 order by log, log_offset limit 10
"""


@dataclass(frozen=True, slots=True)
class Scope:
    """What is to be compared: limits by log, and what cannot or need not be, in words."""

    limits: Mapping[str, Limits]
    behind: int
    notes: tuple[str, ...]


def scope_of(
    positions: Positions, ahead: Positions, takes: Mapping[str, OffsetRange], unreadable: Mapping[str, str]
) -> Scope:
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
    return Scope(limits, behind, tuple(notes))


def check_logs(entry: FromLogs, topology: Topology, endpoint: KafkaEndpoint, places: Places) -> TableCheck:
    """Compare the tables of one line of the catalogue with the logs.

    Raises:
        CheckpointDamagedError: it is not known how far the job has read.
        ConnectionLost, RequestTimeout, BrokerError: the logs cannot be read.
    """
    checkpoint = read_checkpoint(places, entry.job)  # before the tables are opened: they hold at least so much then
    tables = open_tables(entry, places)
    if tables is None:
        note = f"job {entry.job} has not run yet"
        return TableCheck(table=entry.name, kind="logs", same=None, notes=(note,))
    if checkpoint is None and (count := sum(rows.count_rows() for rows in tables.values())):
        note = f"job {entry.job} has lost its checkpoint"
        return TableCheck(table=entry.name, kind="logs", same=None, rows=count, notes=(note,))
    checkpoint = checkpoint or Checkpoint(entry.job, "", None, None, (), ())  # nothing was read, nothing is there
    if (later := read_checkpoint(places, entry.job)) is not None:  # after them: they hold at most so much
        checkpoint = replace(checkpoint, begun=later.begun, ahead=later.ahead)
    for attempt in range(_ATTEMPTS):
        try:
            return asyncio.run(_check(entry, topology, endpoint, checkpoint, tables))
        except (BrokerError, DataLossError) as error:
            passing = isinstance(error, DataLossError) or error.code == OFFSET_OUT_OF_RANGE
            if not passing or attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("the loop above returns or raises")


def open_tables(entry: FromLogs, places: Places) -> dict[str, pads.Dataset] | None:
    """The tables as they are now; None when one of them is not there."""
    try:
        return {name: DeltaTable(places.table(name)).to_pyarrow_dataset() for name in entry.tables}
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
