"""Compare two versions of a table's rows by key. The result is a DataFrame of differences.

``shore.delta.commit`` writes the differences and ``shore.verify`` reports them, so both mean the same by "equal".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DoubleType, FloatType

TOLERANCE: Final = 1e-9
"""Relative difference that equal floating point numbers may have: sums depend on the order of their terms."""
NEAR_ZERO: Final = 1e-9
"""Absolute difference that they may have as well: near zero, a relative difference means nothing."""
MISSING, EXTRA, CHANGED = "missing", "extra", "changed"


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
    odd = F.array_compact(F.array(*(F.when(_differs(name, types[name], tolerance), F.lit(name)) for name in values)))
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


def _differs(name: str, kind: DataType, tolerance: float) -> Column:
    left, right = F.col(f"found.{name}"), F.col(f"expected.{name}")
    same = left.eqNullSafe(right)
    if tolerance and isinstance(kind, DoubleType | FloatType):
        allowed = F.greatest(F.lit(NEAR_ZERO), tolerance * F.greatest(F.abs(left), F.abs(right)))
        same = same | F.coalesce(F.abs(left - right) <= allowed, F.lit(False))
    return ~same
