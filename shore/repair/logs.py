"""Rows of log tables: found missing, doubled or changed by comparing with the logs, and put right from the logs.

Rows of no record are left alone, and so are logs that end before what was read of them: they were truncated or made
anew, and their rows are all that is left of their records.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake

from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.reader import OffsetRange
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.types import TP
from shore.delta.lease import check_lease
from shore.paths import TablePaths
from shore.source.offsets import Positions, parse_partition_id
from shore.verify.catalogue import FromLogs
from shore.verify.compare import Digest, Limits, OddRow, RowsDigest, connection
from shore.verify.logs import (
    CLIENT_ID,
    LogRange,
    data_records,
    digests_of,
    extents_of,
    odd_rows,
    open_tables,
    own_positions,
    ranges_of,
    rows_of_logs,
)
from topologies.model import Topology

ROWS_PER_COMMIT: Final = 100_000
_RUNS_PER_COMMIT: Final = 200
_QUOTE: Final = "'"


@dataclass(frozen=True, slots=True)
class LogRepair:
    """What is wrong with the tables of one line of the catalogue: by log, the rows to be put right, by offset.

    ``shorter``: logs that end before what was read of them; they were not compared.
    """

    entry: FromLogs
    odd: Mapping[str, Sequence[OddRow]]
    shorter: tuple[str, ...] = ()

    @property
    def missing(self) -> int:
        return sum(each.what == "missing" for rows in self.odd.values() for each in rows)

    @property
    def wrong(self) -> int:
        """Doubled and changed rows."""
        return sum(each.what in ("doubled", "changed") for rows in self.odd.values() for each in rows)

    @property
    def extra(self) -> int:
        """Rows of no record; nothing is done about them."""
        return sum(each.what == "extra" for rows in self.odd.values() for each in rows)


def find_odd_rows(
    entry: FromLogs,
    topology: Topology,
    endpoint: KafkaEndpoint,
    paths: TablePaths,
    positions: Positions,
    *,
    since: dt.datetime | None = None,
    until: dt.datetime | None = None,
) -> LogRepair:
    """Compare the tables of one line of the catalogue with the logs up to ``positions``.

    Args:
        since: Only records of this time (Kafka's, which is the device's) or later.
        until: Only records before this time.

    Raises:
        ConnectionLost, RequestTimeout, BrokerError: the logs cannot be read.
    """
    takes = entry.takes(topology)
    own = own_positions(positions, takes)
    tables = open_tables(entry, paths)
    if tables is None or not own:
        return LogRepair(entry, {})

    async def compare() -> LogRepair:
        with connection() as opened:
            async with await Cluster.open(endpoint, client_id=CLIENT_ID) as cluster:
                found, _ = await extents_of(cluster, lambda topic: False, own)
                shorter = tuple(sorted(log for log, extent in found.items() if extent.end < own[log]))
                found = {log: extent for log, extent in found.items() if log not in shorter}
                limits = await _limits(cluster, own, found, since)
                expected, rows = await digests_of(cluster, opened, entry, tables, limits, found)
                odd = {}
                for log in sorted({*expected, *rows} & set(limits)):
                    if expected.get(log, Digest()) == rows.get(log, RowsDigest()).inside:
                        continue
                    wrong = await odd_rows(cluster, opened, entry, tables, log, limits, found)
                    if until is not None:
                        wrong = await _before(cluster, log, wrong, limits, found, since, until)
                    odd[log] = wrong
        return LogRepair(entry, {log: each for log, each in odd.items() if each}, shorter)

    return asyncio.run(compare())


def repair_logs(plan: LogRepair, endpoint: KafkaEndpoint, paths: TablePaths) -> int:
    """Put the rows of a plan right; gives how many were written.

    Changed and doubled rows are exchanged for the log's, missing ones are appended: broken off in between, the rest is
    found the next time.
    """
    written = 0
    for part in _parts(plan.odd):
        fresh = _fresh(plan.entry, endpoint, part)
        wrong = {log: {e.log_offset for e in rows if e.what != "missing"} for log, rows in part.items()}
        for table, rows in fresh.items():
            exchanged = _exchange(paths.table(table), rows, wrong)
            missing = rows.filter(pc.invert(_among(rows, wrong)))
            if missing.num_rows:
                check_lease(paths.table(table))
                write_deltalake(DeltaTable(paths.table(table)), missing, mode="append")
            written += exchanged + missing.num_rows
    return written


async def _limits(
    cluster: Cluster, positions: Positions, found: Mapping[str, OffsetRange], since: dt.datetime | None
) -> dict[str, Limits]:
    """All before the first record at ``since`` or later is older: it need not be read."""
    limits = {}
    firsts: dict[str, int] = {}
    if since is not None:
        logs = {TP(*parse_partition_id(log)): log for log in found}
        answers = await cluster.offsets_at(list(logs), max(0, _milliseconds(since)))
        for tp, answer in answers.items():
            if isinstance(answer, int):
                firsts[logs[tp]] = answer if answer >= 0 else found[logs[tp]].end
    for log, position in positions.items():
        if log not in found:
            continue
        start = min(max(found[log].start, firsts.get(log, 0)), position)
        limits[log] = Limits(start, position, position)
    return limits


async def _before(
    cluster: Cluster,
    log: str,
    odd: Sequence[OddRow],
    limits: Mapping[str, Limits],
    found: Mapping[str, OffsetRange],
    since: dt.datetime | None,
    until: dt.datetime,
) -> list[OddRow]:
    """Of these rows those whose records are of the time that is asked for; rows of no record have none."""
    wanted = {each.log_offset for each in odd if each.what != "extra"}
    first, after = _milliseconds(since) if since is not None else 0, _milliseconds(until)
    own = set()
    async for _, records in data_records(cluster, ranges_of({log: limits[log]}, found)):
        own |= {each.offset for each in records if each.offset in wanted and first <= each.timestamp_ms < after}
    return [each for each in odd if each.log_offset in own]


def _parts(odd: Mapping[str, Sequence[OddRow]]) -> Iterator[dict[str, list[OddRow]]]:
    """Slices of at most ``ROWS_PER_COMMIT`` rows, without those of no record."""
    part: dict[str, list[OddRow]] = {}
    size = 0
    for log, rows in odd.items():
        for each in rows:
            if each.what == "extra":
                continue
            part.setdefault(log, []).append(each)
            size += 1
            if size == ROWS_PER_COMMIT:
                yield part
                part, size = {}, 0
    if part:
        yield part


def _exchange(location: str, rows: pa.Table, wrong: Mapping[str, Collection[int]]) -> int:
    """Put the rows of these offsets in the place of whatever the table has of them; a commit for some of them."""
    count = 0
    runs = list(_runs(wrong))
    for begin in range(0, len(runs), _RUNS_PER_COMMIT):
        some = runs[begin : begin + _RUNS_PER_COMMIT]
        fresh = rows.filter(_among(rows, {log: _offsets(some, log) for log, _, _ in some}))
        predicate = " or ".join(
            f"(log = '{log.replace(_QUOTE, _QUOTE * 2)}' and log_offset >= {first} and log_offset <= {last})"
            for log, first, last in some
        )
        check_lease(location)
        write_deltalake(DeltaTable(location), fresh, mode="overwrite", predicate=predicate)
        count += fresh.num_rows
    return count


def _runs(wrong: Mapping[str, Collection[int]]) -> Iterator[tuple[str, int, int]]:
    """Offsets as ranges without holes, so that what lies between them is left alone: log, first, last."""
    for log, offsets in wrong.items():
        ordered = sorted(offsets)
        begin = 0
        for place, offset in enumerate(ordered):
            if place + 1 == len(ordered) or ordered[place + 1] != offset + 1:
                yield log, ordered[begin], offset
                begin = place + 1


def _offsets(runs: Iterable[tuple[str, int, int]], log: str) -> set[int]:
    return {offset for name, first, last in runs if name == log for offset in range(first, last + 1)}


def _among(rows: pa.Table, offsets: Mapping[str, Collection[int]]) -> pa.Array:
    wanted = {(name, each) for name, some in offsets.items() for each in some}
    keys = zip(rows["log"].to_pylist(), rows["log_offset"].to_pylist(), strict=True)
    return pa.array([key in wanted for key in keys], pa.bool_())


def _fresh(entry: FromLogs, endpoint: KafkaEndpoint, part: Mapping[str, Sequence[OddRow]]) -> dict[str, pa.Table]:
    """The rows of these offsets as the job makes them, by table."""
    # The source takes one range of a log at a time: from the first of the rows to the last.
    spans = [LogRange(log, rows[0].log_offset, rows[-1].log_offset + 1) for log, rows in part.items()]
    wanted = {log: {each.log_offset for each in rows} for log, rows in part.items()}

    async def read() -> dict[str, pa.Table]:
        found: dict[str, list[pa.Table]] = {name: [] for name in entry.tables}
        async with await Cluster.open(endpoint, client_id=CLIENT_ID) as cluster:
            async for given in rows_of_logs(cluster, entry, spans):
                for name, rows in given.items():
                    found[name].append(rows.filter(_among(rows, wanted)))
        return {name: pa.concat_tables(some) for name, some in found.items() if some}

    return asyncio.run(read())


def _milliseconds(time: dt.datetime) -> int:
    return int(time.timestamp() * 1000)
