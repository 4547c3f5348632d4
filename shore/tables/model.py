"""Describe a table: its documented columns, and the schemas and properties that follow from them."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

if TYPE_CHECKING:  # code that only reads tables needs no Spark
    from pyspark.sql.types import StructType

_STATISTICS = "delta.dataSkippingStatsColumns"
CHANGE_FEED = "delta.enableChangeDataFeed"
CHECKPOINT_INTERVAL = "100"  # commits; a checkpoint costs Spark 3 to 6 CPU-s, reading 100 commits some milliseconds
KEPT = "Rows are kept; 'fairlead shore vacuum' deletes only files that no version of the last seven days needs."
TIME = pa.timestamp("us", tz="UTC")  # all times are UTC instants with microseconds
EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MICROSECOND: Final = dt.timedelta(microseconds=1)
FIRST: Final = dt.datetime.min.replace(tzinfo=dt.UTC)
LAST: Final = dt.datetime.max.replace(tzinfo=dt.UTC)
"""The first and the last time that Python can show."""


def time_of(micros: int) -> dt.datetime:
    """Return the time that Arrow and Spark store as this number of microseconds; beyond Python's calendar, its end."""
    try:
        return EPOCH + micros * MICROSECOND
    except OverflowError:
        return FIRST if micros < 0 else LAST


def micros_of(time: dt.datetime) -> int:
    """Return the number of microseconds as which Arrow and Spark store a time."""
    return (time - EPOCH) // MICROSECOND


def within_calendar(time: str) -> str:
    """Return the SQL condition that Python can show a time, as well as the day before and after. Rows of earlier
    releases and of foreign writers may have any time."""
    return f"""{time} >= timestamp '0001-01-02 00:00:00+00:00'
    and {time} < timestamp '9999-12-31 00:00:00+00:00'"""


@dataclass(frozen=True, slots=True)
class Column:
    """One column. ``path`` is its place in a record's JSON (``device.deviceDateTime``); empty if it has none."""

    name: str
    type: pa.DataType
    comment: str
    unit: str = ""
    path: str = ""

    @property
    def description(self) -> str:
        return f"{self.comment} [{self.unit}]" if self.unit else self.comment


@dataclass(frozen=True, slots=True)
class Table:
    """One Delta table and its promises.

    Args:
        key: Columns that identify a row permanently.
        grain: What one row stands for.
        late: What happens when a record comes late or out of order, and on a re-run.
        layout: Partitioning or clustering, and why.
        retention: How long rows are kept, and who deletes them.
        cluster_by: Columns by which OPTIMIZE clusters rows (liquid clustering), at most four; none for small tables.
        change_feed: Whether other tables follow its changes (Delta's change data feed).
        partition_by: Partition columns; none for most tables.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    grain: str
    late: str
    layout: str
    retention: str = KEPT
    cluster_by: tuple[str, ...] = ()
    change_feed: bool = False
    partition_by: tuple[str, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema. Each field's metadata carries its description as ``comment``, which Delta keeps."""
        return pa.schema([pa.field(c.name, c.type, metadata={"comment": c.description}) for c in self.columns])

    @property
    def plain_schema(self) -> pa.Schema:
        """The Arrow schema without metadata, for making record batches."""
        return pa.schema([pa.field(c.name, c.type) for c in self.columns])

    @property
    def pruned_by(self) -> tuple[str, ...]:
        """The columns whose statistics let readers skip files: keys, clustering columns, box and ship, and all times.
        Delta's default, statistics on the first 32 columns, costs a writer as much as the rows do."""
        named = {*self.key, *self.cluster_by, "equipment_reference", "vessel_imo_number"} - {*self.partition_by}
        return tuple(c.name for c in self.columns if c.name in named or c.type == TIME)

    @property
    def spark_schema(self) -> StructType:
        """The Spark schema. Each field's metadata carries its description as ``comment``."""
        from pyspark.sql.pandas.types import from_arrow_schema
        from pyspark.sql.types import StructField, StructType

        fields = zip(from_arrow_schema(self.plain_schema).fields, self.columns, strict=True)
        return StructType([StructField(f.name, f.dataType, True, {"comment": c.description}) for f, c in fields])

    @property
    def properties(self) -> dict[str, str]:
        """The table's properties by their Delta names."""
        found = {"delta.checkpointInterval": CHECKPOINT_INTERVAL, _STATISTICS: ",".join(self.pruned_by)}
        if self.change_feed:
            found[CHANGE_FEED] = "true"
        return found

    def sorted(self, rows: pa.Table) -> pa.Table:
        """Return the rows in the order of the key."""
        return rows.sort_by([(name, "ascending") for name in self.key])
