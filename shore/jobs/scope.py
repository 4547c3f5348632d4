"""Which containers a batch touches, as a filter of DataFrames.

What tables other than readings have of few containers is little: in one partition, joins and windows over it need no
shuffle. A batch then costs Spark one stage to plan instead of twenty, which is most of what it costs.
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
"""Names in one condition. Delta skips files by literals; more names are joined, which reads all files."""
BOX: Final = "equipment_reference"


@dataclass(frozen=True, slots=True)
class Boxes:
    """Some containers, or all (``names`` is None)."""

    names: frozenset[str] | None

    @classmethod
    def of(cls, names: Iterable[str | None]) -> Boxes:
        """These containers; None is none."""
        return cls(frozenset(name for name in names if name is not None))

    def __bool__(self) -> bool:
        return self.names is None or bool(self.names)

    @property
    def few(self) -> bool:
        """Whether they can be named in a condition."""
        return self.names is not None and len(self.names) <= MOST_LITERALS

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """For ``replace_rows``: what holds for rows about these containers."""
        return (OneOf(BOX, self.names or ()),) if self.few else ()

    def rows_of(self, rows: DataFrame) -> DataFrame:
        """The rows about these containers."""
        if self.names is None:
            return rows
        if self.few:
            return rows.where(rows[BOX].isin(sorted(self.names)))
        return rows.join(self._listed(rows), BOX, "left_semi")

    def gather(self, rows: DataFrame) -> DataFrame:
        """The rows about these containers, in one partition where these are few."""
        return self.union(self.rows_of(rows))

    def others_of(self, rows: DataFrame) -> DataFrame:
        """The rows about other containers."""
        if self.names is None:
            return rows.limit(0)
        if self.few:
            return rows.where(~rows[BOX].isin(sorted(self.names)))
        return rows.join(self._listed(rows), BOX, "left_anti")

    def union(self, *parts: DataFrame) -> DataFrame:
        """Rows about these containers from several DataFrames as one, in one partition where these are few."""
        found = reduce(lambda one, other: one.unionByName(other), parts)
        return found.coalesce(1) if self.few else found

    def _listed(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        names = pa.table({BOX: pa.array(sorted(self.names or ()), pa.string())})
        return F.broadcast(rows.sparkSession.createDataFrame(names))
