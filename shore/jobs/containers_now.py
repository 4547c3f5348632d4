"""Job ``containers_now``: computes ``containers_now``, one row for each container, and ``cold_treatments``.

A batch touches the containers with new readings or in new digests, those with changes of custody, alerts or bookings,
and those aboard a ship that has moved. The job recomputes their rows and replaces them in one commit. The newest
reading is the newer of the stored row's and the batch's, so table ``readings`` is never read back. Custody and alerts
are read again only for containers where these changed. A change of ``sites`` or ``owners`` touches all containers. No
state but the tables.

For touched containers whose booking asks for a cold treatment, and only for these, the job reads all their readings and
computes their rows of ``cold_treatments`` anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from shore.delta.commit import replace_rows
from shore.delta.lake import Lake, computed
from shore.jobs.model import JobContext, follow
from shore.jobs.scope import BOX, Boxes
from shore.maintenance import kept_since
from shore.tables.cold_treatments import COLD_TREATMENTS, USED_BY_COLD_TREATMENTS, cold_treatments
from shore.tables.containers_now import (
    CONTAINERS_NOW,
    READING_NAMES,
    digested,
    holders,
    newest_readings,
    observed,
    open_alerts,
    with_places_and_bookings,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

READING, CHANGE, SHIP, TOPOLOGY = "reading", "change", "ship", "topology"
"""The values of column ``kind`` in a batch: what a row is about."""
INPUTS: Final = (
    "readings",
    "custody",
    "alerts",
    "alerts_ashore",
    "bookings",
    "ships_now",
    "sites",
    "owners",
    "digests",
)
_MOST_READINGS: Final = "128m"  # bytes of files of readings in one batch


def query(context: JobContext) -> DataStreamWriter:
    lake = context.lake
    return follow(lake, news(lake), lambda tables, batch: update(tables, computed(batch)))


def news(lake: Lake) -> DataFrame:
    """Return the changes of all inputs as one stream: ``kind``, ``key`` (a container or a ship's IMO number) and, for
    readings and what digests say, the columns that the table uses."""
    from pyspark.sql import functions as F

    def about(rows: DataFrame, kind: str, key: str) -> DataFrame:
        return rows.select(F.lit(kind).alias("kind"), F.col(key).alias("key"))

    readings = observed(lake.new_rows("readings", maxBytesPerTrigger=_MOST_READINGS))
    found = readings.withColumns({"kind": F.lit(READING), "key": F.col(BOX)})
    for other in (
        about(lake.changed_rows("custody"), CHANGE, BOX),
        about(lake.new_rows("alerts"), CHANGE, BOX),
        about(lake.new_rows("alerts_ashore"), CHANGE, BOX),
        about(lake.changed_rows("bookings"), CHANGE, BOX),
        about(lake.changed_rows("ships_now"), SHIP, "vessel_imo_number"),
        about(lake.changed_rows("sites"), TOPOLOGY, "site"),
        about(lake.changed_rows("owners"), TOPOLOGY, "owner_code"),
    ):
        found = found.unionByName(other, allowMissingColumns=True)
    said = digested(lake.new_rows("digests", maxBytesPerTrigger=_MOST_READINGS))
    return found.unionByName(said.withColumns({"kind": F.lit(READING), "key": F.col(BOX)}), allowMissingColumns=True)


@dataclass(frozen=True, slots=True)
class TouchedContainers:
    """The containers that a batch touches.

    Args:
        boxes: All of them.
        changed: Those with changes of custody, alerts or bookings.
    """

    boxes: Boxes
    changed: Boxes


def update(lake: Lake, batch: DataFrame) -> int:
    """Recompute the rows of all containers that a batch touches.

    Args:
        batch: Rows of ``news``.

    Returns:
        How many rows were written or deleted.
    """
    touched = touched_by(lake, batch)
    if not touched.boxes:
        return 0
    stored = computed(touched.boxes.gather(lake.read(CONTAINERS_NOW.name)))
    bookings = computed(touched.boxes.gather(lake.read("bookings")))
    treated = _update_treatments(lake, bookings)
    fresh = with_places_and_bookings(
        _newest(touched, stored, batch),
        _held(lake, touched, stored),
        _alerted(lake, touched, stored),
        bookings=bookings,
        **lake.inputs(("ships_now", "sites", "owners")),
    )
    return treated + replace_rows(lake, CONTAINERS_NOW, fresh, stored=stored, bounds=touched.boxes.bounds)


def _update_treatments(lake: Lake, bookings: DataFrame) -> int:
    """Recompute the cold treatments of the containers of these bookings. Return how many rows were written or deleted.

    A booking that asked for one once and does so no longer still counts here: its row goes. A row about days that began
    before retention's limit for ``readings`` stays as it is, because some of its readings are gone.
    """
    from pyspark.sql import functions as F

    asked = bookings.where("cold_treatment_temperature is not null").select(BOX).toArrow()
    boxes = Boxes.of(asked[BOX].to_pylist())
    if not boxes:
        return 0
    lake = lake.fixed(("readings",))
    readings = boxes.rows_of(lake.read("readings").select(*USED_BY_COLD_TREATMENTS))
    fresh = cold_treatments(readings, boxes.rows_of(bookings))
    limit = kept_since(lake.paths, "readings")
    if limit is None:
        return replace_rows(lake, COLD_TREATMENTS, fresh, within=boxes.rows_of, bounds=boxes.bounds)
    known = computed(boxes.rows_of(lake.read(COLD_TREATMENTS.name)))
    past = known.where(F.coalesce("since_date_time", "as_of_date_time") < limit).select(*COLD_TREATMENTS.key)
    fresh, stored = (rows.join(past, list(COLD_TREATMENTS.key), "left_anti") for rows in (fresh, known))
    return replace_rows(lake, COLD_TREATMENTS, fresh, stored=stored, bounds=boxes.bounds)


def touched_by(lake: Lake, batch: DataFrame) -> TouchedContainers:
    """Return the containers that a batch touches."""
    from pyspark.sql import functions as F

    keys: dict[str, set[str]] = {kind: set() for kind in (READING, CHANGE, SHIP, TOPOLOGY)}
    for row in batch.select("kind", "key").where("key is not null").distinct().toArrow().to_pylist():
        keys[row["kind"]].add(row["key"])
    if keys[TOPOLOGY]:
        return TouchedContainers(Boxes(None), Boxes(None))
    boxes = keys[READING] | keys[CHANGE]
    if keys[SHIP]:
        aboard = F.col("vessel_imo_number").isin(sorted(keys[SHIP])) & F.col("own_latitude").isNull()
        moved = lake.read(CONTAINERS_NOW.name).where(aboard).select(BOX).toArrow()
        boxes |= set(moved[BOX].to_pylist())
    return TouchedContainers(Boxes.of(boxes), Boxes.of(keys[CHANGE]))


def _newest(touched: TouchedContainers, stored: DataFrame, batch: DataFrame) -> DataFrame:
    names = (BOX, *READING_NAMES)
    known = stored.where("log is not null").select(*names)
    return newest_readings(touched.boxes.union(known, batch.where(f"kind = '{READING}'").select(*names)))


def _held(lake: Lake, touched: TouchedContainers, stored: DataFrame) -> DataFrame:
    known = touched.changed.others_of(stored).select(BOX, "holder", "held_since", "custody_event")
    if not touched.changed:
        return known
    return touched.boxes.union(known, holders(touched.changed.gather(lake.read("custody"))))


def _alerted(lake: Lake, touched: TouchedContainers, stored: DataFrame) -> DataFrame:
    worst = "cast(array_position(array('WARNING', 'ALARM', 'CRITICAL'), worst_severity) as int) as worst"
    known = touched.changed.others_of(stored).selectExpr(BOX, "open_alerts", worst)
    if not touched.changed:
        return known
    alerts, ashore = (touched.changed.gather(lake.read(name)) for name in ("alerts", "alerts_ashore"))
    return touched.boxes.union(known, open_alerts(alerts, ashore))
