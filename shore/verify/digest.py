"""Counts and digests of the rows of log tables, log by log: of the rows that a log gives, and of those that are there.

A digest is the sum of a 64-bit hash over all columns of a log's rows. A sum does not depend on order, so rows are
streamed as they come and nothing is sorted or held. Unlike an exclusive or, it changes when a row is there twice. Two
different sets of rows of one log have the same sum with a chance of 1 in 2^64, and their counts must agree besides:
enough against crashes, bugs and hands, which is what it is for; whoever could forge it could change the logs, too. The
hash is DuckDB's; it need not be the same tomorrow, as one process hashes both sides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.dataset as pads


@dataclass(frozen=True, slots=True)
class Shape:
    """What of a table is compared with logs.

    Args:
        table: Its name. It is hashed, too: a row counts only in the table that it belongs to.
        columns: All columns that must be as the log gives them; those that the table on disk lacks count as null.
        log: SQL for the log that a row is of.
        offset: SQL for its offset there.
        nulls: What a null in a column stands for, as SQL.
    """

    table: str
    columns: Sequence[str]
    log: str = "log"
    offset: str = "log_offset"
    nulls: Mapping[str, str] = field(default_factory=dict)

    def hash_of(self, present: Sequence[str]) -> str:
        """SQL for the hash of a row of a table that has these columns."""
        values = [
            f"coalesce({name}, {self.nulls[column]})" if column in self.nulls else name
            for column in self.columns
            for name in [quoted(column) if column in present else "null"]
        ]
        return f"hash('{self.table}', {', '.join(values)})"


def quoted(column: str) -> str:
    """The name of a column in SQL."""
    return '"' + column.replace('"', '""') + '"'


class Digest(NamedTuple):
    """Of the records of one log within some offsets."""

    records: int = 0
    sum: int = 0

    def __add__(self, other: object) -> Digest:
        if not isinstance(other, Digest):
            return NotImplemented
        return Digest(self.records + other.records, self.sum + other.sum)


class Limits(NamedTuple):
    """Of one log: the offsets to be compared are from ``start`` to before ``stop``; before them the log has nothing
    any more; at ``ahead`` and beyond no row may be; between ``stop`` and ``ahead`` a batch may be under way."""

    start: int
    stop: int
    ahead: int


class RowsDigest(NamedTuple):
    """The rows of one log: those within the limits, and how many are before and beyond."""

    inside: Digest = Digest()
    before: int = 0
    beyond: int = 0

    def __add__(self, other: object) -> RowsDigest:
        if not isinstance(other, RowsDigest):
            return NotImplemented
        return RowsDigest(self.inside + other.inside, self.before + other.before, self.beyond + other.beyond)


@contextmanager
def connection(memory: str = "1GB") -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB with bounded memory; what does not fit goes to a temporary folder."""
    with duckdb.connect(":memory:") as opened:
        opened.execute("set timezone = 'UTC'")
        opened.execute(f"set memory_limit = '{memory}'")
        opened.execute("set preserve_insertion_order = false")
        yield opened


class ExpectedDigests:
    """Takes rows that logs give, in any order and number; ``found`` has each log's digest."""

    def __init__(self, opened: duckdb.DuckDBPyConnection) -> None:
        self._connection = opened
        self.found: dict[str, Digest] = {}

    def add(self, shape: Shape, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        self._connection.register("expected", rows)
        query = f"""
            select {shape.log} as of_log, count(*), sum({shape.hash_of(rows.schema.names)}::hugeint)
            from expected group by of_log
        """  # noqa: S608  # names of our own columns
        for log, count, total in self._connection.execute(query).fetchall():
            self.found[log] = self.found.get(log, Digest()) + Digest(count, int(total))
        self._connection.unregister("expected")


def reader(rows: pads.Dataset, shape: Shape, log: str | None = None) -> pa.RecordBatchReader:
    """The columns of a table's rows that are compared; with ``log`` Arrow leaves out what cannot be of this log."""
    # Small batches, little read ahead: payloads are some hundred bytes each, and all of the table passes through here.
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
    """The digests of a table's rows, log by log.

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
            log: RowsDigest(Digest(count, int(total)), before, beyond)
            for log, count, total, before, beyond in opened.execute(query).fetchall()
        }
    finally:
        opened.unregister("rows")
        opened.unregister("limits")
