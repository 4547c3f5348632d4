"""Counts and digests of (offset, payload), log by log, for records and for rows alike.

A digest is the sum of a 64-bit hash of (offset, payload) over a log's records. A sum does not depend on order, so
records and rows are streamed as they come and nothing is sorted or held. Unlike an exclusive or, it changes when a
record is there twice. Two different sets of records of one log have the same sum with a chance of 1 in 2^64, and their
counts must agree besides: enough against crashes, bugs and hands, which is what it is for; whoever could forge it could
change the logs, too. The hash is DuckDB's; it need not be the same tomorrow, as one process hashes both sides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.dataset as pads

from fairlead.wire.record import Record

HASH: Final = "hash(log_offset, payload)"
BATCH_RECORDS: Final = 20_000
BATCH_BYTES: Final = 16 << 20
_SCHEMA: Final = pa.schema([("log", pa.int32()), ("log_offset", pa.int64()), ("payload", pa.binary())])

_OF_RECORDS: Final = f"select log, count(*), sum({HASH}::hugeint) from records group by log"  # noqa: S608  # constants
_OF_ROWS: Final = f"""
with marked as (
    select rows.*, start, stop, coalesce(ahead, 0) as ahead, {HASH}::hugeint as digest
    from rows left join limits using (log)
)
select
    log,
    count(*) filter (where log_offset >= start and log_offset < stop),
    coalesce(sum(digest) filter (where log_offset >= start and log_offset < stop), 0),
    count(*) filter (where log_offset < start),
    count(*) filter (where log_offset >= ahead)
from marked
group by log
"""  # noqa: S608  # constants


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


class RecordDigests:
    """Takes data records in any order and number; ``found`` then has each log's digest."""

    def __init__(self, opened: duckdb.DuckDBPyConnection) -> None:
        self._connection = opened
        self._names: dict[str, int] = {}
        self._logs: list[int] = []
        self._offsets: list[int] = []
        self._payloads: list[bytes | None] = []
        self._bytes = 0
        self._found: dict[int, Digest] = {}

    def add(self, log: str, records: Sequence[Record]) -> None:
        number = self._names.setdefault(log, len(self._names))
        self._logs.extend([number] * len(records))
        self._offsets.extend(record.offset for record in records)
        self._payloads.extend(record.value for record in records)
        self._bytes += sum(len(record.value or b"") for record in records)
        if len(self._logs) >= BATCH_RECORDS or self._bytes >= BATCH_BYTES:
            self._fold()

    def found(self) -> dict[str, Digest]:
        self._fold()
        return {name: self._found[number] for name, number in self._names.items() if number in self._found}

    def _fold(self) -> None:
        if not self._logs:
            return
        batch = pa.table([self._logs, self._offsets, self._payloads], schema=_SCHEMA)
        self._logs, self._offsets, self._payloads, self._bytes = [], [], [], 0
        self._connection.register("records", batch)
        for number, count, total in self._connection.execute(_OF_RECORDS).fetchall():
            self._found[number] = self._found.get(number, Digest()) + Digest(count, int(total))
        self._connection.unregister("records")


def reader(rows: pads.Dataset) -> pa.RecordBatchReader:
    """A table's rows for ``rows_digests``."""
    # Small batches, little read ahead: payloads are some hundred bytes each, and all of the table passes through here.
    scanner = rows.scanner(
        columns=["log", "log_offset", "payload"], batch_size=32_768, batch_readahead=4, fragment_readahead=1
    )
    return scanner.to_reader()


def rows_digests(
    opened: duckdb.DuckDBPyConnection, rows: pa.RecordBatchReader, limits: Mapping[str, Limits]
) -> dict[str, RowsDigest]:
    """The digests of rows (columns log, log_offset, payload), log by log.

    A log without limits may have no rows: they are all ``beyond``.
    """
    names = list(limits)
    columns = [[limits[name][index] for name in names] for index in range(3)]
    types = [pa.string(), pa.int64(), pa.int64(), pa.int64()]
    arrays = [pa.array(values, kind) for values, kind in zip([names, *columns], types, strict=True)]
    opened.register("limits", pa.table(arrays, names=["log", "start", "stop", "ahead"]))
    opened.register("rows", rows)
    try:
        return {
            log: RowsDigest(Digest(count, int(total)), before, beyond)
            for log, count, total, before, beyond in opened.execute(_OF_ROWS).fetchall()
        }
    finally:
        opened.unregister("rows")
        opened.unregister("limits")
