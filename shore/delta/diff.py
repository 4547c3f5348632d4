"""Compare two versions of a table's rows by key. The result is a DataFrame of differences.

``shore.delta.commit`` writes the differences and ``shore.verify`` reports them, so both mean the same by "equal".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DoubleType, FloatType

TOLERANCE: Final = 1e-9
"""Relative difference that equal floating point numbers may have: sums depend on the order of their terms."""
NEAR_ZERO: Final = 1e-9
"""Absolute difference that they may have as well: near zero, a relative difference means nothing."""
MISSING, EXTRA, CHANGED = KINDS = "missing", "extra", "changed"


def differences(
    stored: DataFrame, expected: DataFrame, key: Sequence[str], *, tolerance: float = TOLERANCE
) -> DataFrame:
    """Compare stored rows with expected rows.

    Args:
        stored: The rows that the table has.
        expected: The rows that it must have, with the columns of ``stored`` (in any order) and at most one for a key.
        key: Columns that identify a row; never null.
        tolerance: Relative difference that equal floating point numbers may have; 0: they must be identical.

    Returns:
        A row for each key that differs: ``what`` (``missing``, ``extra`` or ``changed``), ``found`` and ``expected``
        (structs of all columns; null where there is no such row), and ``columns``, the names of columns that differ.
    """
    names = stored.columns
    values = [name for name in names if name not in key]
    types = {field.name: field.dataType for field in stored.schema.fields}
    left = stored.select(F.struct(*names).alias("found"))
    right = expected.select(F.struct(*names).alias("expected"))
    same_key = [F.col(f"found.{name}") == F.col(f"expected.{name}") for name in key]
    joined = left.join(right, on=same_key, how="full_outer")
    odd = F.expr(f"array_compact(array({', '.join(_differs(name, types[name], tolerance) for name in values)}))")
    what = (
        F.when(F.col("found").isNull(), MISSING)
        .when(F.col("expected").isNull(), EXTRA)
        .when(F.size("columns") > 0, CHANGED)
    )
    both = F.col("found").isNotNull() & F.col("expected").isNotNull()
    columns = F.when(both, odd) if values else None
    empty = F.array().cast("array<string>")
    marked = joined.withColumn("columns", empty if columns is None else F.coalesce(columns, empty))
    return marked.withColumn("what", what).where("what is not null").select("what", "found", "expected", "columns")


def _differs(name: str, kind: DataType, tolerance: float) -> str:
    """Return the SQL expression of a column's name where it differs, else null. One text takes a tenth of the calls to
    Java that as many column functions take."""
    left, right = f"found.`{name}`", f"expected.`{name}`"
    same = f"{left} <=> {right}"
    if tolerance and isinstance(kind, DoubleType | FloatType):
        allowed = f"greatest({NEAR_ZERO}D, {tolerance}D * greatest(abs({left}), abs({right})))"
        same = f"({same} or coalesce(abs({left} - {right}) <= {allowed}, false))"
    return f"case when not {same} then '{name}' end"
