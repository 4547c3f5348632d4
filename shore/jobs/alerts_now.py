"""Job ``alerts_now``: computes table ``alerts_now`` from the tables of alerts, custody, bookings and sites.

A batch names the containers that have changed. The job computes all alerts of these containers again and replaces their
rows in one commit. A change of ``sites`` recomputes all alerts. The tables are the only state. The row of an alert
whose states retention has deleted stays as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow.compute as pc

from fairlead.records.alert import RAISED_BY_SHORE
from shore.delta.commit import replace_rows, stored_rows
from shore.delta.datasets import open_dataset
from shore.delta.lake import Lake, computed
from shore.delta.lease import check_lease
from shore.delta.table_errors import as_table_errors
from shore.jobs.model import JobContext, follow
from shore.jobs.scope import BOX, Boxes
from shore.maintenance import kept_since
from shore.tables.alerts_now import ALERTS_NOW, alerts_now

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

INPUTS: Final = ("alerts", "alerts_ashore", "custody", "bookings", "sites")


def query(context: JobContext) -> DataStreamWriter:
    lake = context.lake
    name_shore(lake)
    return follow(lake, news(lake), lambda tables, batch: update(tables, touched_by(batch)))


def name_shore(lake: Lake) -> None:
    """Fill ``raised_at`` where it is null, as release 0.1.0 left it in shore's alerts: it belongs to the key now.

    Raises:
        UnavailableError: the table cannot be read.
    """
    from delta.tables import DeltaTable

    with as_table_errors(lake.paths, (ALERTS_NOW.name,)):
        nameless = open_dataset(lake.paths, ALERTS_NOW.name).count_rows(filter=pc.field("raised_at").is_null())
    if not nameless:
        return
    location = lake.paths.table(ALERTS_NOW.name)
    check_lease(location)
    DeltaTable.forPath(lake.spark, location).update("raised_at is null", {"raised_at": f"'{RAISED_BY_SHORE}'"})


def news(lake: Lake) -> DataFrame:
    """Return the changes of all inputs as one stream: a container in ``equipment_reference``, or a row ``is_site``."""
    from pyspark.sql import functions as F

    def about(rows: DataFrame, box: str = BOX, *, is_site: bool = False) -> DataFrame:
        return rows.select(F.col(box).alias(BOX), F.lit(is_site).alias("is_site"))

    return (
        about(lake.new_rows("alerts"))
        .unionByName(about(lake.new_rows("alerts_ashore")))
        .unionByName(about(lake.changed_rows("custody")))
        .unionByName(about(lake.changed_rows("bookings")))
        .unionByName(about(lake.changed_rows("sites"), "site", is_site=True))
    )


def touched_by(batch: DataFrame) -> Boxes:
    """Return the containers that a batch is about. The empty name stands for alerts about a whole site."""
    found = batch.distinct().toArrow().to_pylist()
    if any(row["is_site"] for row in found):
        return Boxes(None)
    return Boxes.of(row[BOX] for row in found)


def update(lake: Lake, boxes: Boxes) -> int:
    """Recompute all alerts of these containers. Return how many rows were written or deleted."""
    from pyspark.sql import functions as F

    if not boxes:
        return 0
    lake = lake.fixed(("alerts_ashore",))
    rows = {name: boxes.gather(lake.read(name)) for name in ("alerts", "alerts_ashore", "custody", "bookings")}
    fresh = alerts_now(**rows, sites=lake.read("sites"))
    stored = stored_rows(lake, ALERTS_NOW, boxes.gather, boxes.bounds)
    limit = kept_since(lake.paths, "alerts_ashore")
    if limit is not None:
        fresh, stored = computed(fresh), computed(stored)
        old = stored.where((F.col("source") == "shore") & (F.col("opened_date_time") < F.lit(limit)))
        fresh = fresh.unionByName(old.join(fresh, list(ALERTS_NOW.key), "left_anti"))
    return replace_rows(lake, ALERTS_NOW, fresh, stored=stored, bounds=boxes.bounds)
