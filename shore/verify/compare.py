"""Two tables of the same columns, row by row by their key; floating point numbers with a tolerance."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.dataset as pads

from shore.verify.digest import quoted
from shore.verify.model import Difference, shown

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
