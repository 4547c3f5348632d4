"""Two tables of the same columns, row by row by their key; floating point numbers with a tolerance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.dataset as pads

from shore.verify.model import Difference, What

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
    differs = {field.name: _differs(field, field.name in expected.schema.names, tolerance) for field in values}
    columns = ", ".join(f"case when {sql} then '{name}' end" for name, sql in differs.items()) or "null"
    keys = ", ".join(f"coalesce(r.{_name(k)}, e.{_name(k)}) as {_name(k)}" for k in key)
    on = " and ".join(f"r.{_name(k)} is not distinct from e.{_name(k)}" for k in key)
    grouped = ", ".join(_name(k) for k in key)
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
    found = opened.execute(f"select {grouped}, what, columns from odd order by all limit {SHOWN}")  # noqa: S608
    differences = tuple(_told(table, key, row) for row in found.fetchall())
    count = _one(opened, "select count(*) from odd")
    result = Compared(_one(opened, "select count(*) from rows"), expected.num_rows, count, differences)
    opened.unregister("expected")
    opened.unregister("rows")
    return result


def _told(table: str, key: Sequence[str], row: Sequence[Any]) -> Difference:
    *values, what, columns = row
    kind: What = what
    named = columns if kind == "changed" else ()
    return Difference(table=table, what=kind, key=dict(zip(key, values, strict=True)), columns=tuple(named))


def _differs(field: pa.Field, there: bool, tolerance: float) -> str:
    left, right = f"r.{_name(field.name)}", f"e.{_name(field.name)}" if there else "null"
    if pa.types.is_floating(field.type) and there:
        far = f"abs({left} - {right}) > greatest({tolerance} * greatest(abs({left}), abs({right})), {_NEAR_ZERO})"
        return f"(({left} is null) <> ({right} is null) or coalesce({far}, false))"
    return f"{left} is distinct from {right}"


def _name(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def _one(opened: duckdb.DuckDBPyConnection, query: str) -> int:
    ((count,),) = opened.execute(query).fetchall()
    return int(count)
