"""Job ``quality``: keeps table ``quality`` equal to ``REPORTS`` over all of ``readings`` and ``readings_rejected``.

Of each batch the days that its records fall into are computed again, day by day, for the containers that have some.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from shore.duck import among, opened, select
from shore.places import Places
from shore.replace import Scope, replace_rows
from shore.tables.quality import AHEAD_MINUTES, DELAYED_HOURS, QUALITY, REPORTS

if TYPE_CHECKING:  # whoever only compares tables needs no Spark
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from shore.jobs.model import JobContext

_DAY = dt.timedelta(days=1)
_STATEMENT = REPORTS.replace("{ahead}", str(AHEAD_MINUTES)).replace("{delayed}", str(DELAYED_HOURS))


def query(context: JobContext) -> DataStreamWriter:
    from pyspark.sql import functions as F

    def rows(table: str) -> DataFrame:
        reader = context.spark.readStream.format("delta").option("skipChangeCommits", "true")
        return reader.load(context.places.table(table))

    refused = F.coalesce("received_date_time", "record_date_time")
    read = rows("readings").select("equipment_reference", F.date_trunc("day", "device_date_time").alias("day"))
    touched = read.unionByName(
        rows("readings_rejected").select("equipment_reference", F.date_trunc("day", refused).alias("day"))
    )

    def update_batch(batch: DataFrame, _: int) -> None:
        update(context.places, days_of(batch.distinct().toArrow()))

    writer: DataStreamWriter = touched.writeStream.foreachBatch(update_batch)
    return writer


def days_of(touched: pa.Table) -> dict[dt.datetime, set[str]]:
    """Containers by day, of rows with the columns equipment_reference and day."""
    found: dict[dt.datetime, set[str]] = {}
    for box, day in zip(touched["equipment_reference"].to_pylist(), touched["day"].to_pylist(), strict=True):
        if box is not None and day is not None:
            found.setdefault(day, set()).add(box)
    return found


def update(places: Places, days: Mapping[dt.datetime, Collection[str]]) -> None:
    """Make the rows of these containers on these days again; one commit a day."""
    for day, boxes in sorted(days.items()):
        own = among("equipment_reference", boxes)
        that_day = (pc.field("device_date_time") >= day) & (pc.field("device_date_time") < day + _DAY)
        refused = pc.coalesce(pc.field("received_date_time"), pc.field("record_date_time"))
        fresh = _reports(
            opened(places, "readings").filter(own & that_day),
            opened(places, "readings_rejected").filter(own & (refused >= day) & (refused < day + _DAY)),
        )
        scope = Scope("equipment_reference", boxes, "day", day, day + _DAY)
        replace_rows(places.table(QUALITY.name), fresh, scope, key=QUALITY.key)


def everything(places: Places) -> pa.Table:
    """The table as it must be."""
    return _reports(opened(places, "readings"), opened(places, "readings_rejected"))


def _reports(readings: Any, rejected: Any) -> pa.Table:
    return select(_STATEMENT, QUALITY.plain_schema, readings=readings, rejected=rejected)
