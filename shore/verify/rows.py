"""One log row by row: which offsets are missing, doubled, of no record, or changed, and in which columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.dataset as pads

from shore.verify.digest import Limits, Shape, reader
from shore.verify.model import What, shown

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
