"""Table ``geofence_visits``: when each ship was inside the topology's geofences. From ``positions``.

One call of ``shore.geofences.visits`` per ship, on executors, takes its positions and returns its visits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from shore.geofences import Circle, Visit, visits, window
from shore.sailing import ALL
from shore.tables.itineraries import PLACED, POSITION, named, spark_schema, track_of
from shore.tables.model import TIME, Column, Table, time_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TEXT = pa.string()
_SHIP: Final = "vessel_imo_number"

GEOFENCE_VISITS = Table(
    name="geofence_visits",
    title="Ships' visits of geofences",
    columns=(
        Column("vessel_imo_number", _TEXT, "IMO number of the ship"),
        Column("vessel", _TEXT, "Its name in the topology; null for a stranger"),
        Column("geofence", _TEXT, "Name of the geofence in the topology"),
        Column("entered_date_time", TIME, "Its first position inside"),
        Column("left_date_time", TIME, "Its last position inside; null while no position outside has followed"),
        Column("positions", pa.int64(), "Number of positions inside"),
    ),
    key=("vessel_imo_number", "entered_date_time", "geofence"),
    grain="One row per ship and visit of a geofence. A gap in the positions does not end a visit.",
    late="Visits around new positions of a ship are made again from its positions, however late.",
    layout="Not partitioned: some rows a ship and month.",
)

VISIT: Final = "visit"
"""Column of ``visited``: the visit; null in the rows that say which part of a ship's history was computed."""
_FIELDS = [field for field in GEOFENCE_VISITS.plain_schema if field.name != "vessel"]
_SCHEMA: Final = pa.schema(
    [(_SHIP, _TEXT), ("since", pa.int64()), ("until", pa.int64()), pa.field(VISIT, pa.struct(_FIELDS))]
)


def geofence_visits(positions: DataFrame, geofences: DataFrame, sites: DataFrame) -> DataFrame:
    """Compute the table from all rows of its inputs."""
    return named(visited(positions, geofences), VISIT, sites)


def visited(
    positions: DataFrame,
    geofences: DataFrame,
    spans: Mapping[str, tuple[int, int]] | None = None,
    *,
    cut: bool = False,
) -> DataFrame:
    """Compute the visits of ships.

    Args:
        positions: All positions of each ship, or its newest ones (``cut``).
        geofences: All geofences of the topology.
        spans: The first and the last time of each ship's new positions; None: all visits of all ships are computed.
        cut: Earlier positions are missing. The result has no ship whose visits may depend on them.

    Returns:
        One row per ship with the bounds ``since`` and ``until`` of what the new positions may change, and one per visit
        that begins within them, with the table's columns but the ship's name in the struct ``VISIT``.
    """
    known = sorted(Circle(*row) for row in geofences.select("geofence", "latitude", "longitude", "within_km").collect())
    if not known:
        return positions.sparkSession.createDataFrame([], spark_schema(_SCHEMA))

    def of_ship(key: tuple[pa.Scalar, ...], rows: pa.Table) -> pa.Table:
        ship, track = key[0].as_py(), track_of(rows)
        part = ALL if spans is None else window(track, known, *spans[ship], cut=cut)
        if part is None:
            return _SCHEMA.empty_table()
        found: list[dict[str, Any]] = [{_SHIP: ship, "since": part.since, "until": part.until}]
        found += [{VISIT: {_SHIP: ship, **_row(visit)}} for visit in visits(track, known) if part.has(visit.entered)]
        return pa.Table.from_pylist(found, schema=_SCHEMA)

    return positions.where(PLACED).select(*POSITION).groupBy(_SHIP).applyInArrow(of_ship, spark_schema(_SCHEMA))


def _row(visit: Visit) -> dict[str, Any]:
    return {
        "geofence": visit.geofence,
        "entered_date_time": time_of(visit.entered),
        "left_date_time": None if visit.left is None else time_of(visit.left),
        "positions": visit.positions,
    }
