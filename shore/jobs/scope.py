"""The containers that a batch touches, as a filter of DataFrames.

Except for readings, tables have few rows for few containers. These rows go into one partition, where joins and windows
need no shuffle. Spark then plans one stage for a batch instead of twenty, and planning is most of a batch's cost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from shore.delta.commit import Bound, OneOf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MOST_LITERALS: Final = 1000
"""The most names in one condition. Delta skips files by literals; more names need a join, which reads all files."""
BOX: Final = "equipment_reference"


@dataclass(frozen=True, slots=True)
class Boxes:
    """Some containers, or all of them (``names`` is None)."""

    names: frozenset[str] | None

    @classmethod
    def of(cls, names: Iterable[str | None]) -> Boxes:
        """Return a scope of these containers. None among the names is left out."""
        return cls(frozenset(name for name in names if name is not None))

    def __bool__(self) -> bool:
        return self.names is None or bool(self.names)

    @property
    def few(self) -> bool:
        """Whether there are few enough to name them in a condition."""
        return self.names is not None and len(self.names) <= MOST_LITERALS

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """The bounds of these containers' rows, for ``replace_rows``; empty where there are too many to name."""
        return (OneOf(BOX, self.names or ()),) if self.few else ()

    def rows_of(self, rows: DataFrame) -> DataFrame:
        """Return the rows of these containers."""
        if self.names is None:
            return rows
        if self.few:
            return rows.where(rows[BOX].isin(sorted(self.names)))
        return rows.join(self._listed(rows), BOX, "left_semi")

    def gather(self, rows: DataFrame) -> DataFrame:
        """Return the rows of these containers, in one partition where the containers are few."""
        return self.union(self.rows_of(rows))

    def others_of(self, rows: DataFrame) -> DataFrame:
        """Return the rows of all other containers."""
        if self.names is None:
            return rows.limit(0)
        if self.few:
            return rows.where(~rows[BOX].isin(sorted(self.names)))
        return rows.join(self._listed(rows), BOX, "left_anti")

    def union(self, *parts: DataFrame) -> DataFrame:
        """Return the union of rows of these containers, in one partition where the containers are few."""
        found = reduce(lambda one, other: one.unionByName(other), parts)
        return found.coalesce(1) if self.few else found

    def _listed(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        names = pa.table({BOX: pa.array(sorted(self.names or ()), pa.string())})
        return F.broadcast(rows.sparkSession.createDataFrame(names))
