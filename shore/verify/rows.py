"""One log row by row: which offsets are missing, doubled, changed, or of no record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from fairlead.wire.record import Record
from shore.verify.digest import HASH, Limits
from shore.verify.model import What

_RECORDS: Final = pa.schema([("log_offset", pa.int64()), ("payload", pa.binary())])
_COMPARE: Final = """
with rows as (
    select log_offset, count(*) as times, min(digest) as digest, min(name) as name from in_tables
    where log_offset >= $start and (log_offset < $stop or log_offset >= $ahead)
    group by log_offset
)
select
    coalesce(r.log_offset, t.log_offset) as log_offset,
    case when t.times is null then 'missing' when r.log_offset is null then 'extra' when t.times > 1 then 'doubled'
        else 'changed' end as what,
    coalesce(t.name, $first) as name
from in_log r full join rows t on r.log_offset = t.log_offset
where t.times is null or r.log_offset is null or t.times > 1 or r.digest <> t.digest
order by 1
"""


class OddRow(NamedTuple):
    """One offset of a log that is not as it must be, and the table it is about."""

    log_offset: int
    what: What
    table: str


class LogRows:
    """Compares the rows of one log with its records: ``add`` all records within the limits, then ``odd``."""

    def __init__(self, opened: duckdb.DuckDBPyConnection) -> None:
        self._connection = opened
        opened.execute("create or replace temp table in_log (log_offset bigint, digest ubigint)")

    def add(self, records: Sequence[Record]) -> None:
        batch = pa.table([[r.offset for r in records], [r.value for r in records]], schema=_RECORDS)
        self._connection.register("batch", batch)
        self._connection.execute(f"insert into in_log select log_offset, {HASH} from batch")  # noqa: S608  # constant
        self._connection.unregister("batch")

    def odd(self, tables: Mapping[str, pads.Dataset], log: str, limits: Limits) -> list[OddRow]:
        """What differs, by offset."""
        self._connection.execute(
            "create or replace temp table in_tables (log_offset bigint, digest ubigint, name text)"
        )
        for name, rows in tables.items():
            try:
                self._take(rows, name, log, pushed=True)
            except duckdb.Error:
                # Files that delta-rs's own delete writes have strings as views, over which Arrow cannot filter.
                self._take(rows, name, log, pushed=False)
        values = {**limits._asdict(), "first": next(iter(tables))}
        return [OddRow(*row) for row in self._connection.execute(_COMPARE, values).fetchall()]

    def _take(self, rows: pads.Dataset, name: str, log: str, *, pushed: bool) -> None:
        """The rows of one log; ``pushed``: Arrow leaves out files and parts of them that cannot have any."""
        self._connection.execute("delete from in_tables where name = ?", [name])
        wanted = pc.field("log") == log if pushed else None
        columns = ["log", "log_offset", "payload"]
        scanner = rows.scanner(
            columns=columns, filter=wanted, batch_size=32_768, batch_readahead=4, fragment_readahead=1
        )
        self._connection.register("rows", scanner.to_reader())
        try:
            insert = f"insert into in_tables select log_offset, {HASH}, ? from rows where log = ?"  # noqa: S608
            self._connection.execute(insert, [name, log])
        finally:
            self._connection.unregister("rows")
