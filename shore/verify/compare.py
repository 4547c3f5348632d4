"""How tables are compared, and what ``shore verify`` reports of it.

**Digests** (``ExpectedDigests``, ``rows_digests``): counts and digests of the rows of log tables, log by log, of the
rows that a log gives and of those that are there. A digest is the sum of a 64-bit hash over all columns of a log's
rows. A sum does not depend on order, so rows are streamed as they come and nothing is sorted or held. Unlike an
exclusive or, it changes when a row is there twice. Two different sets of rows of one log have the same sum with a
chance of 1 in 2^64, and their counts must agree besides: enough against crashes, bugs and hands, which is what it is
for; whoever could forge it could change the logs, too. The hash is DuckDB's; it need not be the same tomorrow, as one
process hashes both sides.

**Rows** (``LogRows``): of a log whose digests differ, the rows that differ, with bounded memory.

**Tables** (``compare``): two tables of the same columns, row by row by their key; floating point numbers with a
tolerance.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.dataset as pads

What = Literal["missing", "extra", "doubled", "changed"]


LONGEST_SHOWN = 100  # characters of a value


def shown(found: Any, expected: Any) -> tuple[Any, Any]:
    """Two values of one column as they are told: JSON-ready, and of long texts the part where they differ."""
    one, other = _plain(found), _plain(expected)
    if not (isinstance(one, str) and isinstance(other, str)):
        return _part(one, 0), _part(other, 0)
    same = next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
    begin = max(0, same - LONGEST_SHOWN // 2) if max(len(one), len(other)) > LONGEST_SHOWN else 0
    return _part(one, begin), _part(other, begin)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).isoformat()
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def _part(value: Any, begin: int) -> Any:
    if not isinstance(value, str):
        return value
    end = begin + LONGEST_SHOWN
    return f"{'…' if begin else ''}{value[begin:end]}{'…' if len(value) > end else ''}"


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One row that is not as it must be.

    Args:
        key: Its key: column to value.
        what: ``missing``: it should be there; ``extra``: it should not; ``doubled``: it is there more than once;
            ``changed``: it holds something else, in ``columns``.
        found: What the table has in these columns.
        expected: What it must have there.
    """

    table: str
    what: What
    key: dict[str, Any]
    columns: tuple[str, ...] = ()
    found: dict[str, Any] = msgspec.field(default_factory=dict)
    expected: dict[str, Any] = msgspec.field(default_factory=dict)


class TableCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One table, or the tables that hold a log's records together, against what it must hold.

    Args:
        kind: ``logs``: compared with the logs; ``derived``: with what its inputs give.
        same: Whether they are equal; None where nothing could be compared (``notes`` say why).
        rows: Rows that were compared.
        expected: Rows that there must be.
        behind: Records of the logs, or rows of its inputs, that the job has not read yet; no difference.
        gone: Rows whose records the logs have no more (retention, a deleted topic); no difference.
        differing: Logs (``logs``) or rows (``derived``) that differ.
        differences: The first few of them, row by row.
        unreadable: Its files, or those of a table that it is made from, are damaged: ``same`` is False, and nothing
            was counted.
    """

    table: str
    kind: Literal["logs", "derived"]
    same: bool | None
    rows: int = 0
    expected: int = 0
    logs: int | None = None
    behind: int | None = None
    gone: int = 0
    differing: int = 0
    differences: tuple[Difference, ...] = ()
    unreadable: bool = False
    notes: tuple[str, ...] = ()


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """All checks. ``ok``: no table that could be compared differs."""

    tables: tuple[TableCheck, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        return all(check.same is not False for check in self.tables)

    @property
    def whole(self) -> bool:
        """Whether every table was compared."""
        return all(check.same is not None for check in self.tables)

    def of(self, table: str) -> TableCheck | None:
        """The check that a table is part of."""
        return next((check for check in self.tables if table in check.table.split(" + ")), None)


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


SHOWN: Final = 10
_NEAR_ZERO: Final = 1e-9  # where a relative tolerance means nothing: a billionth of a degree, a minute or a share


class Compared(NamedTuple):
    """How many rows differ, and the first few that do."""

    rows: int
    expected: int
    differing: int
    differences: tuple[Difference, ...]


def compare(
    opened: duckdb.DuckDBPyConnection,
    table: str,
    rows: pads.Dataset,
    expected: pa.Table,
    key: Sequence[str],
    *,
    tolerance: float,
) -> Compared:
    """Compare a table's rows with the rows it must have; columns that ``expected`` lacks must be null."""
    opened.register("expected", expected)
    opened.register("rows", rows)
    values = [field for field in rows.schema if field.name not in key]
    present = set(expected.schema.names)
    differs = {field.name: _differs(field, field.name in present, tolerance) for field in values}
    columns = ", ".join(f"case when {sql} then '{name}' end" for name, sql in differs.items()) or "null"
    keys = ", ".join(f"coalesce(r.{quoted(k)}, e.{quoted(k)}) as {quoted(k)}" for k in key)
    on = " and ".join(f"r.{quoted(k)} is not distinct from e.{quoted(k)}" for k in key)
    grouped = ", ".join(quoted(k) for k in key)
    opened.execute(
        f"""
        create or replace temp table odd as
        with e as (select *, true as here from expected),
        r as (select *, true as here from rows),
        twice as (select {grouped} from rows group by all having count(*) > 1),
        joined as (
            select {keys},
                case when r.here is null then 'missing' when e.here is null then 'extra' else 'changed' end as what,
                list_filter([{columns}], lambda x: x is not null) as columns
            from r full join e on {on}
        )
        select * from joined where what <> 'changed' or len(columns) > 0
        union all by name select *, 'doubled' as what, []::varchar[] as columns from twice
        """  # noqa: S608  # names of columns that the tables' own definitions have
    )
    found = opened.execute(f"select {grouped}, what, columns from odd order by all limit {SHOWN}").fetchall()  # noqa: S608
    differences = tuple(_told(opened, table, key, row, present) for row in found)
    count = _one(opened, "select count(*) from odd")
    result = Compared(_one(opened, "select count(*) from rows"), expected.num_rows, count, differences)
    opened.unregister("expected")
    opened.unregister("rows")
    return result


def _told(
    opened: duckdb.DuckDBPyConnection, table: str, key: Sequence[str], row: Sequence[Any], present: Collection[str]
) -> Difference:
    *values, what, columns = row
    named = tuple(columns) if what == "changed" else ()
    there, must = (
        _values(opened, "rows", key, values, named),
        _values(opened, "expected", key, values, [name for name in named if name in present]),
    )
    told = {name: shown(there.get(name), must.get(name)) for name in named}
    return Difference(
        table=table,
        what=what,
        key=dict(zip(key, values, strict=True)),
        columns=named,
        found={name: one for name, (one, _) in told.items()},
        expected={name: other for name, (_, other) in told.items()},
    )


def _values(
    opened: duckdb.DuckDBPyConnection, source: str, key: Sequence[str], values: Sequence[Any], columns: Sequence[str]
) -> dict[str, Any]:
    """These columns of the row with this key."""
    if not columns:
        return {}
    where = " and ".join(f"{quoted(k)} is not distinct from ?" for k in key)
    query = f"select {', '.join(map(quoted, columns))} from {source} where {where} limit 1"  # noqa: S608
    found = opened.execute(query, list(values)).fetchall()
    return dict(zip(columns, found[0], strict=True)) if found else {}


def _differs(field: pa.Field, there: bool, tolerance: float) -> str:
    left, right = f"r.{quoted(field.name)}", f"e.{quoted(field.name)}" if there else "null"
    if pa.types.is_floating(field.type) and there:
        far = f"abs({left} - {right}) > greatest({tolerance} * greatest(abs({left}), abs({right})), {_NEAR_ZERO})"
        return f"(({left} is null) <> ({right} is null) or coalesce({far}, false))"
    return f"{left} is distinct from {right}"


def _one(opened: duckdb.DuckDBPyConnection, query: str) -> int:
    ((count,),) = opened.execute(query).fetchall()
    return int(count)


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
    """One offset of a log that is not as it must be, and the table it is about.

    ``found`` and ``expected`` are the values of the columns that differ; empty where nobody asked for them.
    """

    log_offset: int
    what: What
    table: str
    found: Mapping[str, Any] = {}
    expected: Mapping[str, Any] = {}


class LogRows:
    """Compares the rows of one log with those that it gives: ``add`` all of these within the limits, then ``odd``."""

    def __init__(self, opened: duckdb.DuckDBPyConnection, shapes: Mapping[str, Shape]) -> None:
        self._connection = opened
        self._shapes = shapes
        self._kept: dict[str, list[pa.Table]] = {name: [] for name in shapes}
        opened.execute("create or replace temp table in_log (place bigint, digest ubigint, name text)")

    def add(self, table: str, rows: pa.Table) -> None:
        """Take rows that belong into this table."""
        if rows.num_rows:
            self._insert("in_log", table, rows)
            self._kept[table].append(rows)

    def odd(self, tables: Mapping[str, pads.Dataset], log: str, limits: Limits, *, explained: int = 0) -> list[OddRow]:
        """What differs, by offset; for the first few that are changed with the values."""
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
            # Files that delta-rs's own delete writes have strings as views, over which Arrow cannot filter.
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
        if table != rightly:  # what only one of the two tables has is no difference, but for the reason
            names = [name for name in names if (name in found and name in expected) or name == "reason"]
        alike = {name for name in shape.nulls if found.get(name) is None}
        differing = [name for name in names if found.get(name) != expected.get(name) and name not in alike]
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
