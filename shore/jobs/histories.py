"""Job ``histories``: keeps ``bookings`` and ``custody``, the histories that others join with, and what follows from
bookings and events: ``milestones``, ``shipments`` and ``schedules``.

Changes of bookings recompute the states of those bookings, and ledger entries the custody intervals of their logs, each
from all rows of the input table. Then the milestones and shipments of the containers that events and changes of
bookings are about are computed again, from all events and bookings of these containers, and the schedules of the ships
that events are about from all of their events. A query begins by renewing milestones and schedules whose marks are of
other limits than the topology's. A change of the topology recomputes all of ``custody``, because sites
and owner codes decide which entries count, and what names ships and ports: milestones, shipments and schedules. The
tables are the only state.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from shore.delta.commit import OneOf, replace_rows
from shore.delta.lake import Lake, computed
from shore.jobs.model import JobContext, follow
from shore.jobs.scope import BOX, Boxes
from shore.tables.bookings import BOOKINGS, bookings
from shore.tables.custody import CUSTODY, custody
from shore.tables.graph import Settings
from shore.tables.milestones import MILESTONES, long_dwell, milestones
from shore.tables.model import Table
from shore.tables.schedules import SCHEDULES, eta_changed, schedules
from shore.tables.shipments import SHIPMENTS, shipments
from topologies.model import Exceptions

INPUTS: Final = ("booking_changes", "custody_entries", "sites", "owners", "events")
BOOKING, LOG, TOPOLOGY, MOVE, CALL = "booking", "log", "topology", "move", "call"
"""The values of column ``kind`` in a batch: what a row is about. A move is a container's event, a call a ship's."""
LIMITS: Final = Exceptions()
"""The limits of a topology that names none."""
_SHIP: Final = "vessel_imo_number"
_MOST: Final = "64m"  # bytes of a table in one batch
_NAMED: Final = 100  # keys: up to so many are literals in a condition, by which Delta skips files


def query(context: JobContext) -> DataStreamWriter:
    """Build the query, which follows the changes of bookings, the ledgers, and the topology."""
    lake, limits = context.lake, Settings.of(context.topology).exceptions
    renew_marks(lake, limits)
    rows = changes(
        lake.new_rows("booking_changes", maxBytesPerTrigger=_MOST),
        lake.new_rows("custody_entries", maxBytesPerTrigger=_MOST),
        lake.changed_rows("sites"),
        lake.changed_rows("owners"),
        lake.new_rows("events", maxBytesPerTrigger=_MOST),
    )
    return follow(lake, rows, lambda tables, batch: update(tables, batch, limits))


def changes(
    booking_changes: DataFrame, custody_entries: DataFrame, sites: DataFrame, owners: DataFrame, events: DataFrame
) -> DataFrame:
    """Return what new rows of the inputs are about: ``kind``; ``key``, a booking, a log or a ship; and for bookings and
    moves the container, ``equipment_reference``."""

    def about(rows: DataFrame, kind: str, key: str | None = None, box: str | None = None) -> DataFrame:
        nothing = F.lit(None).cast("string")
        return rows.select(
            F.lit(kind).alias("kind"),
            (F.col(key) if key else nothing).alias("key"),
            (F.col(box) if box else nothing).alias(BOX),
        )

    booked = booking_changes.where("booking_reference is not null")
    sailed = F.col("transport_event_type_code").isNotNull()
    told = events.select(
        F.when(sailed, CALL).otherwise(MOVE).alias("kind"),
        F.when(sailed, F.col(_SHIP)).alias("key"),
        F.when(~sailed, F.col(BOX)).alias(BOX),
    )
    return (
        about(booked, BOOKING, "booking_reference", BOX)
        .union(about(custody_entries.where("entry_log is not null"), LOG, "entry_log"))
        .union(about(sites, TOPOLOGY))
        .union(about(owners, TOPOLOGY))
        .union(told.where(f"key is not null or {BOX} is not null"))
    )


def update(lake: Lake, batch: DataFrame, limits: Exceptions = LIMITS) -> None:
    """Recompute what the rows of a batch of ``changes`` are about."""
    keys = computed(batch.distinct())
    counts = {row["kind"]: row["count"] for row in keys.groupBy("kind").count().collect()}
    if BOOKING in counts:
        _update_bookings(lake, keys, counts[BOOKING])
    if TOPOLOGY in counts:
        replace_rows(lake, CUSTODY, _custody(lake, lake.read("custody_entries")))
        _update_milestones(lake, Boxes(None), limits)
        _update_all_schedules(lake, limits)
        return
    if LOG in counts:
        _update_custody(lake, keys, counts[LOG])
    if CALL in counts:
        _update_schedules(lake, keys, counts[CALL], limits)
    if BOOKING in counts or MOVE in counts:
        boxes = keys.where(F.col("kind").isin(BOOKING, MOVE)).select(BOX).distinct().toArrow()
        _update_milestones(lake, Boxes.of(boxes[BOX].to_pylist()), limits)


def renew_marks(lake: Lake, limits: Exceptions) -> None:
    """Recompute milestones and schedules as a whole where any stored mark is of another limit, or is missing."""
    if _has(lake, MILESTONES, f"long_dwell is distinct from {long_dwell(limits.dwell_hours)}"):
        _update_milestones(lake, Boxes(None), limits)
    if _has(lake, SCHEDULES, f"eta_changed is distinct from {eta_changed(limits.eta_hours)}"):
        _update_all_schedules(lake, limits)


def _has(lake: Lake, table: Table, rows: str) -> bool:
    return not lake.is_empty(table.name) and not lake.read(table.name).where(rows).isEmpty()


def _update_milestones(lake: Lake, boxes: Boxes, limits: Exceptions) -> None:
    """Recompute the milestones and shipments of these containers. The bookings must be up to date."""
    if not boxes:
        return
    booked = computed(boxes.gather(lake.read("bookings")))
    events = boxes.gather(lake.read("events"))
    made = computed(milestones(events, booked, lake.read("sites"), limits.dwell_hours))
    replace_rows(lake, MILESTONES, made, within=boxes.rows_of, bounds=boxes.bounds)
    replace_rows(lake, SHIPMENTS, shipments(made, booked), within=boxes.rows_of, bounds=boxes.bounds)


def _update_all_schedules(lake: Lake, limits: Exceptions) -> None:
    replace_rows(lake, SCHEDULES, schedules(lake.read("events"), lake.read("sites"), limits.eta_hours))


def _update_schedules(lake: Lake, keys: DataFrame, count: int, limits: Exceptions) -> None:
    touched, bounds = _touched(keys, CALL, _SHIP, count)
    told = lake.read("events").join(touched, _SHIP, "left_semi")
    replace_rows(
        lake,
        SCHEDULES,
        schedules(told, lake.read("sites"), limits.eta_hours),
        within=lambda rows: rows.join(touched, _SHIP, "left_semi"),
        bounds=bounds,
    )


def _update_bookings(lake: Lake, keys: DataFrame, count: int) -> None:
    touched, bounds = _touched(keys, BOOKING, "booking_reference", count)
    changed = lake.read("booking_changes").join(touched, "booking_reference", "left_semi")
    replace_rows(
        lake,
        BOOKINGS,
        bookings(changed),
        within=lambda rows: rows.join(touched, "booking_reference", "left_semi"),
        bounds=bounds,
    )


def _update_custody(lake: Lake, keys: DataFrame, count: int) -> None:
    touched, bounds = _touched(keys, LOG, "log", count)
    entries = lake.read("custody_entries").join(touched.withColumnRenamed("log", "entry_log"), "entry_log", "left_semi")
    replace_rows(
        lake,
        CUSTODY,
        _custody(lake, entries),
        within=lambda rows: rows.join(touched, "log", "left_semi"),
        bounds=bounds,
    )


def _custody(lake: Lake, entries: DataFrame) -> DataFrame:
    return custody(entries, lake.read("sites"), lake.read("owners"))


def _touched(keys: DataFrame, kind: str, column: str, count: int) -> tuple[DataFrame, list[OneOf]]:
    """Return the keys of one kind as a column of this name, and also as literals where they are few."""
    found = keys.where(F.col("kind") == kind).select(F.col("key").alias(column))
    if count > _NAMED:
        return found, []
    return F.broadcast(found), [OneOf(column, {row[column] for row in found.collect()})]
