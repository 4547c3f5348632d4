"""Job ``quality``: keeps table ``quality`` equal to ``REPORTS`` over all of ``readings`` and ``readings_rejected``.

Of each batch the days that its records fall into are computed again, day by day, for the containers that have some.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from shore.delta.datasets import is_in, open_dataset, select
from shore.delta.write import ReplaceScope, replace_rows
from shore.jobs.model import JobContext, new_rows
from shore.paths import TablePaths
from shore.tables.model import TIME
from shore.tables.quality import AHEAD_MINUTES, DELAYED_HOURS, QUALITY, REPORTS

if TYPE_CHECKING:  # whoever only compares tables needs no Spark
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_DAY = dt.timedelta(days=1)
_DAYS = """
select distinct date_trunc('day', device_date_time) as day from {readings} where device_date_time is not null
union
select distinct date_trunc('day', coalesce(received_date_time, record_date_time)) from {rejected}
where coalesce(received_date_time, record_date_time) is not null
order by day
"""
_DAY_COLUMN = pa.schema([pa.field("day", TIME)])
_STATEMENT = REPORTS.replace("{ahead}", str(AHEAD_MINUTES)).replace("{delayed}", str(DELAYED_HOURS))


def query(context: JobContext) -> DataStreamWriter:
    from pyspark.sql import functions as F

    def rows(table: str) -> DataFrame:
        return new_rows(context.spark, context.paths, table)

    refused = F.coalesce("received_date_time", "record_date_time")
    read = rows("readings").select("equipment_reference", F.date_trunc("day", "device_date_time").alias("day"))
    touched = read.unionByName(
        rows("readings_rejected").select("equipment_reference", F.date_trunc("day", refused).alias("day"))
    )

    def update_batch(batch: DataFrame, _: int) -> None:
        update(context.paths, days_of(batch.distinct().toArrow()))

    writer: DataStreamWriter = touched.writeStream.foreachBatch(update_batch)
    return writer


def days_of(touched: pa.Table) -> dict[dt.datetime, set[str]]:
    """Containers by day, of rows with the columns equipment_reference and day."""
    found: dict[dt.datetime, set[str]] = {}
    for box, day in zip(touched["equipment_reference"].to_pylist(), touched["day"].to_pylist(), strict=True):
        if box is not None and day is not None:
            found.setdefault(day, set()).add(box)
    return found


def update(paths: TablePaths, days: Mapping[dt.datetime, Collection[str]]) -> None:
    """Make the rows of these containers on these days again; one commit a day."""
    inputs = _inputs(paths)
    for day, boxes in sorted(days.items()):
        fresh = _reports(*_of_day(inputs, day, is_in("equipment_reference", boxes)))
        scope = ReplaceScope("equipment_reference", boxes, "day", day, day + _DAY)
        replace_rows(paths.table(QUALITY.name), fresh, scope, key=QUALITY.key)


def everything(paths: TablePaths) -> pa.Table:
    """The table as it must be; made day by day, so that no more is held at once."""
    readings, rejected = inputs = _inputs(paths)
    days = select(_DAYS, _DAY_COLUMN, readings=readings, rejected=rejected)
    made = [_reports(*_of_day(inputs, day)) for day in days["day"].to_pylist()]
    return pa.concat_tables([QUALITY.plain_schema.empty_table(), *made])


def _inputs(paths: TablePaths) -> tuple[Any, Any]:
    """``readings`` and ``readings_rejected``, opened once for all days."""
    return open_dataset(paths, "readings"), open_dataset(paths, "readings_rejected")


def _of_day(inputs: tuple[Any, Any], day: dt.datetime, own: pc.Expression | None = None) -> tuple[Any, Any]:
    """The rows of both inputs that fall into a day, of all containers or of some."""
    received = pc.coalesce(pc.field("received_date_time"), pc.field("record_date_time"))
    measured = pc.field("device_date_time")
    read = (measured >= day) & (measured < day + _DAY)
    refused = (received >= day) & (received < day + _DAY)
    if own is not None:
        read, refused = own & read, own & refused
    readings, rejected = inputs
    return readings.filter(read), rejected.filter(refused)


def _reports(readings: Any, rejected: Any) -> pa.Table:
    return select(_STATEMENT, QUALITY.plain_schema, readings=readings, rejected=rejected)
