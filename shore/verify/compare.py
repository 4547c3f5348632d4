"""Compare tables row by row, and define what ``shore verify`` reports.

``compare`` compares two DataFrames by their key in one action of Spark. ``odd_rows`` are the rows that differ, as
``shore.delta.diff`` defines it, and the keys that occur more than once, which is wrong for every table. ``Difference``,
``TableCheck`` and ``Verification`` are the report.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from shore.delta.diff import TOLERANCE, differences
from shore.delta.lake import computed_and_counted, observed

What = Literal["missing", "extra", "doubled", "changed"]
DOUBLED: Final = "doubled"
SHOWN: Final = 10
"""How many differences of one table are reported."""
LONGEST_SHOWN: Final = 100
"""How many characters of a value are reported."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One row that is wrong.

    Args:
        key: Its key: column to value.
        what: ``missing``: it should be there; ``extra``: it should not; ``doubled``: it is there more than once;
            ``changed``: it differs in ``columns``.
        found: The values in the table, by column.
        expected: The correct values, by column.
    """

    table: str
    what: What
    key: dict[str, Any]
    columns: tuple[str, ...] = ()
    found: dict[str, Any] = msgspec.field(default_factory=dict)
    expected: dict[str, Any] = msgspec.field(default_factory=dict)


class TableCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The check of one table, or of the tables that hold a log's records together.

    Args:
        kind: ``logs``: compared with the logs; ``derived``: with what its inputs give.
        same: Whether they are equal; None where nothing could be compared (``notes`` say why).
        rows: Rows that were compared.
        expected: Rows that there must be.
        behind: Records of the logs, or rows of the inputs, that the job has not read yet; no difference.
        gone: Rows whose records are no longer in the logs (retention, a deleted topic); no difference.
        differing: Logs (``logs``) or rows (``derived``) that differ; for table ``feeds`` the sum of feeds and rows.
        differences: The first few of them, row by row.
        unreadable: Whether its files, or those of a table that it is made from, are damaged: then ``same`` is False,
            and nothing was counted.
        forgotten: Whether it can no longer be compared: retention has deleted rows from which it follows.
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
    forgotten: bool = False
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
        """Return the check that covers a table; None where there is none."""
        return next((check for check in self.tables if table in check.table.split(" + ")), None)


class Compared(NamedTuple):
    """How many rows differ, and the first few of them (``odd_rows`` as dictionaries, in the order of the key)."""

    rows: int
    expected: int
    differing: int
    odd: tuple[Mapping[str, Any], ...]

    def differences(self, table: str) -> tuple[Difference, ...]:
        """Return the first few rows as they are reported."""
        return tuple(as_difference(table, row) for row in self.odd)


def odd_rows(
    stored: DataFrame,
    expected: DataFrame,
    key: Sequence[str],
    *,
    tolerance: float = TOLERANCE,
    twice: DataFrame | None = None,
) -> DataFrame:
    """Return the rows that differ, and the keys that occur more than once.

    Args:
        twice: The DataFrame whose keys must be unique, if it is not ``stored``.

    Returns:
        The columns of ``shore.delta.diff.differences`` and ``key``, a struct of the key's columns. A key that occurs
        more than once has a row ``doubled``, without ``found`` and ``expected``.
    """
    named = F.struct(*(F.coalesce(f"expected.{name}", f"found.{name}").alias(name) for name in key))
    odd = differences(stored, expected, key, tolerance=tolerance)
    odd = odd.select("what", named.alias("key"), "found", "expected", "columns")
    doubled = (stored if twice is None else twice).groupBy(*key).count().where("count > 1")
    doubled = doubled.select(F.lit(DOUBLED).alias("what"), F.struct(*key).alias("key"))
    return odd.unionByName(doubled, allowMissingColumns=True)


def compare(stored: DataFrame, expected: DataFrame, key: Sequence[str], *, tolerance: float = TOLERANCE) -> Compared:
    """Compare stored with expected rows as ``shore.delta.diff.differences`` does."""
    rows, wanted = Observation(), Observation()
    count = F.count(F.lit(1)).alias("rows")
    odd = odd_rows(stored.observe(rows, count), expected.observe(wanted, count), key, tolerance=tolerance, twice=stored)
    odd, counts = computed_and_counted(odd, rows=count)  # a sort may run tasks twice, which would count twice
    found = counts["rows"]
    return Compared(observed(rows, "rows"), observed(wanted, "rows"), found, tuple(first_rows(odd)) if found else ())


def first_rows(odd: DataFrame) -> list[dict[str, Any]]:
    """Return the first few of ``odd_rows`` as dictionaries, in the order of the key; times are UTC."""
    found = [row.asDict(recursive=True) for row in odd.orderBy("key", "what").limit(SHOWN).collect()]
    for row in found:
        for values in filter(None, (row["key"], row["found"], row["expected"])):
            values |= {name: each.astimezone(dt.UTC) for name, each in values.items() if isinstance(each, dt.datetime)}
    return found


def as_difference(table: str, row: Mapping[str, Any], columns: Sequence[str] | None = None) -> Difference:
    """Return a row of ``odd_rows`` as it is reported, with all columns that differ or only these."""
    named = tuple(columns if columns is not None else row["columns"] or ())
    values = {name: shown(row["found"][name], row["expected"][name]) for name in named}
    return Difference(
        table=table,
        what=row["what"],
        key=dict(row["key"]),
        columns=named,
        found={name: found for name, (found, _) in values.items()},
        expected={name: expected for name, (_, expected) in values.items()},
    )


def shown(found: Any, expected: Any) -> tuple[Any, Any]:
    """Return two values of one column as they are reported: JSON-ready, and of long texts the part that differs."""
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
