"""Count and hash the rows of feeds and of customers' tables, feed by feed, with DuckDB on the driver.

A digest is the sum of a 64-bit hash over all columns of a log's rows. A sum does not depend on order, so rows are
streamed as they come and nothing is sorted or held. Only ``shore.verify.feeds`` uses this.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.dataset as pads

from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.reader import OffsetRange, sweep
from fairlead.kafka.convention import is_data
from fairlead.kafka.protocol.record import Record
from fairlead.kafka.protocol.types import TP
from shore.source.offsets import parse_partition_id, partition_id
from shore.verify.compare import What, shown
from shore.verify.logs import Limits


class LogRange(NamedTuple):
    """Offsets of one log, by the name that ``shore.source.offsets`` gives it: from ``start`` to before ``stop``."""

    log: str
    start: int
    stop: int


async def data_records(cluster: Cluster, ranges: Iterable[LogRange]) -> AsyncIterator[tuple[str, list[Record]]]:
    """Yield the data records of these ranges, each log's in order. Raises the errors of
    ``fairlead.kafka.client.reader``."""
    wanted: Mapping[TP, OffsetRange] = {
        TP(*parse_partition_id(log)): OffsetRange(start, stop) for log, start, stop in ranges if start < stop
    }
    async for tp, records in sweep(cluster, wanted):
        data = [record for record in records if is_data(record)]
        if data:
            yield partition_id(*tp), data


@dataclass(frozen=True, slots=True)
class Shape:
    """The part of a table that is compared with logs.

    Args:
        table: Its name. The name is hashed too: a row counts only in the table that it belongs to.
        columns: All columns that must be as the log gives them; those that the stored table lacks count as null.
        log: SQL for the log of a row.
        offset: SQL for its offset there.
    """

    table: str
    columns: Sequence[str]
    log: str = "log"
    offset: str = "log_offset"

    def hash_of(self, present: Sequence[str]) -> str:
        """Return SQL for the hash of a row of a table that has these columns."""
        values = [quoted(column) if column in present else "null" for column in self.columns]
        return f"hash('{self.table}', {', '.join(values)})"


def quoted(column: str) -> str:
    """Quote the name of a column for SQL."""
    return '"' + column.replace('"', '""') + '"'


class RecordsDigest(NamedTuple):
    """The digest of the records of one log within some offsets."""

    records: int = 0
    sum: int = 0

    def __add__(self, other: object) -> RecordsDigest:
        if not isinstance(other, RecordsDigest):
            return NotImplemented
        return RecordsDigest(self.records + other.records, self.sum + other.sum)


class RowsDigest(NamedTuple):
    """The rows of one log: the digest of those within the limits, and the counts before and beyond."""

    inside: RecordsDigest = RecordsDigest()
    before: int = 0
    beyond: int = 0

    def __add__(self, other: object) -> RowsDigest:
        if not isinstance(other, RowsDigest):
            return NotImplemented
        return RowsDigest(self.inside + other.inside, self.before + other.before, self.beyond + other.beyond)


@contextmanager
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    """Open DuckDB with bounded memory; the rest goes to a temporary folder."""
    with duckdb.connect(":memory:") as opened:
        opened.execute("set timezone = 'UTC'")
        opened.execute("set memory_limit = '1GB'")
        opened.execute("set preserve_insertion_order = false")
        yield opened


class ExpectedDigests:
    """Takes rows that logs give, in any order and number; ``found`` has each log's digest."""

    def __init__(self, opened: duckdb.DuckDBPyConnection) -> None:
        self._connection = opened
        self.found: dict[str, RecordsDigest] = {}

    def add(self, shape: Shape, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        self._connection.register("expected", rows)
        query = f"""
            select {shape.log} as of_log, count(*), sum({shape.hash_of(rows.schema.names)}::hugeint)
            from expected group by of_log
        """  # noqa: S608  # names of our own columns
        for log, count, total in self._connection.execute(query).fetchall():
            self.found[log] = self.found.get(log, RecordsDigest()) + RecordsDigest(count, int(total))
        self._connection.unregister("expected")


def reader(rows: pads.Dataset, shape: Shape, log: str | None = None) -> pa.RecordBatchReader:
    """Read the columns of a table that are compared. With ``log``, Arrow skips what cannot be of this log."""
    # Small batches, little readahead: payloads are some hundred bytes each, and the whole table passes through here.
    scanner = rows.scanner(
        columns=[name for name in shape.columns if name in rows.schema.names],
        filter=None if log is None else pads.field(shape.log) == log,
        batch_size=32_768,
        batch_readahead=4,
        fragment_readahead=1,
    )
    return scanner.to_reader()


def rows_digests(
    opened: duckdb.DuckDBPyConnection, rows: pa.RecordBatchReader, shape: Shape, limits: Mapping[str, Limits]
) -> dict[str, RowsDigest]:
    """Return the digests of a table's rows, log by log.

    A log without limits may have no rows: they are all ``beyond``.
    """
    names = list(limits)
    columns = [[limits[name][index] for name in names] for index in range(3)]
    types = [pa.string(), pa.int64(), pa.int64(), pa.int64()]
    arrays = [pa.array(values, kind) for values, kind in zip([names, *columns], types, strict=True)]
    opened.register("limits", pa.table(arrays, names=["of_log", "start", "stop", "ahead"]))
    opened.register("rows", rows)
    query = f"""
        with hashed as (
            select {shape.log} as of_log, {shape.offset} as place, {shape.hash_of(rows.schema.names)}::hugeint as digest
            from rows
        ),
        marked as (
            select hashed.*, start, stop, coalesce(ahead, 0) as ahead from hashed left join limits using (of_log)
        )
        select
            of_log,
            count(*) filter (where place >= start and place < stop),
            coalesce(sum(digest) filter (where place >= start and place < stop), 0),
            count(*) filter (where place < start),
            count(*) filter (where place >= ahead)
        from marked
        group by of_log
    """  # noqa: S608  # names of our own columns
    try:
        return {
            log: RowsDigest(RecordsDigest(count, int(total)), before, beyond)
            for log, count, total, before, beyond in opened.execute(query).fetchall()
        }
    finally:
        opened.unregister("rows")
        opened.unregister("limits")


_COMPARE: Final = """
with rows as (
    select place, count(*) as times, min(digest) as digest, min(name) as name from in_tables
    where place >= $start and (place < $stop or place >= $ahead)
    group by place
)
select
    coalesce(r.place, t.place) as place,
    case when t.times is null then 'missing' when r.place is null then 'extra' when t.times > 1 then 'doubled'
        else 'changed' end as what,
    coalesce(t.name, r.name) as name,
    r.name as rightly
from in_log r full join rows t on r.place = t.place
where t.times is null or r.place is null or t.times > 1 or r.digest <> t.digest
order by 1
"""


class OddRow(NamedTuple):
    """One wrong offset of a log, and the table it is about.

    ``found`` and ``expected`` are the values of the columns that differ; empty where they were not requested.
    """

    log_offset: int
    what: What
    table: str
    found: Mapping[str, Any] = {}
    expected: Mapping[str, Any] = {}


class LogRows:
    """Compares the stored rows of one log with those that it gives: ``add`` the latter within the limits, then call
    ``odd``."""

    def __init__(self, opened: duckdb.DuckDBPyConnection, shapes: Mapping[str, Shape]) -> None:
        self._connection = opened
        self._shapes = shapes
        self._kept: dict[str, list[pa.Table]] = {name: [] for name in shapes}
        opened.execute("create or replace temp table in_log (place bigint, digest ubigint, name text)")

    def add(self, table: str, rows: pa.Table) -> None:
        """Add expected rows of this table."""
        if rows.num_rows:
            self._insert("in_log", table, rows)
            self._kept[table].append(rows)

    def odd(self, tables: Mapping[str, pads.Dataset], log: str, limits: Limits, *, explained: int = 0) -> list[OddRow]:
        """Return what differs, by offset. The first ``explained`` changed rows have the values that differ."""
        self._connection.execute("create or replace temp table in_tables (place bigint, digest ubigint, name text)")
        for name, rows in tables.items():
            self._insert("in_tables", name, self._of_log(rows, name, log), log)
        found = self._connection.execute(_COMPARE, limits._asdict()).fetchall()
        odd = []
        for place, what, name, rightly in found:
            values: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
            if what == "changed" and explained > 0:
                explained -= 1
                values = self._values(self._of_log(tables[name], name, log), name, rightly, log, place)
            odd.append(OddRow(place, what, name, *values))
        return odd

    def _insert(self, into: str, table: str, rows: pa.Table | pa.RecordBatchReader, log: str | None = None) -> None:
        shape = self._shapes[table]
        where = "" if log is None else f"where {shape.log} = ?"
        insert = f"insert into {into} select {shape.offset}, {shape.hash_of(rows.schema.names)}, ? from rows {where}"  # noqa: S608
        self._connection.register("rows", rows)
        try:
            self._connection.execute(insert, [table] if log is None else [table, log])
        finally:
            self._connection.unregister("rows")

    def _of_log(self, rows: pads.Dataset, name: str, log: str) -> pa.RecordBatchReader:
        shape = self._shapes[name]
        if shape.log not in rows.schema.names:
            return reader(rows, shape)
        try:
            # Files written by delta-rs's own delete have string views, which Arrow cannot filter.
            return pa.RecordBatchReader.from_batches(
                (filtered := reader(rows, shape, log)).schema, iter(list(filtered))
            )
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
            return reader(rows, shape)

    def _values(
        self, rows: pa.RecordBatchReader, table: str, rightly: str, log: str, place: int
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The values of the columns in which one row differs: those of the table, and those that the log gives."""
        shape, right = self._shapes[table], self._shapes[rightly]
        found = self._one(rows, shape, log, place)
        given = [one for kept in self._kept[rightly] if (one := self._one(kept, right, log, place))]
        expected = given[0] if given else {}
        names = [name for name in dict.fromkeys((*shape.columns, *right.columns)) if name in (*found, *expected)]
        if table != rightly:  # a column that only one table has is no difference, except ``reason``
            names = [name for name in names if (name in found and name in expected) or name == "reason"]
        differing = [name for name in names if found.get(name) != expected.get(name)]
        told = {name: shown(found.get(name), expected.get(name)) for name in differing}
        return {name: one for name, (one, _) in told.items()}, {name: other for name, (_, other) in told.items()}

    def _one(self, rows: pa.Table | pa.RecordBatchReader, shape: Shape, log: str, place: int) -> dict[str, Any]:
        self._connection.register("rows", rows)
        try:
            query = f"select * from rows where {shape.log} = ? and {shape.offset} = ?"  # noqa: S608
            found = self._connection.execute(query, [log, place]).fetchall()
            names = [column[0] for column in self._connection.description or ()]
            return dict(zip(names, found[0], strict=True)) if found else {}
        finally:
            self._connection.unregister("rows")
