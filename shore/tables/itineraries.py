"""Tables ``port_calls`` (when each ship was at which port) and ``voyages`` (each ship's voyages leg by leg), computed
from ``dock_movements`` and ``positions``.

One call of ``shore.sailing.sail`` per ship, on executors, takes its events and positions and returns rows of both
tables. A caller that needs both tables persists ``itineraries`` and selects each from it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shore.sailing import ALL, Call, Leg, Port, ShipEvent, TimeBounds, Track, sail
from shore.tables.model import TIME, Column, Table, time_of, within_calendar

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_TEXT, _DOUBLE, _LONG = pa.string(), pa.float64(), pa.int64()

PORT_CALLS = Table(
    name="port_calls",
    title="Ships' calls at ports",
    columns=(
        Column("vessel_imo_number", _TEXT, "IMO number of the ship"),
        Column("vessel", _TEXT, "Its name in the topology; null for a stranger"),
        Column("un_location_code", _TEXT, "UN/LOCODE of the port"),
        Column("call_date_time", TIME, "Arrival; departure where no arrival is known"),
        Column("arrival_date_time", TIME, "When it arrived; null where nothing says so"),
        Column("departure_date_time", TIME, "When it left; null while it is there, and where nothing says so"),
        Column("arrival_source", _TEXT, "EVENT (ARRI) or POSITION (first moored near the port)"),
        Column("departure_source", _TEXT, "EVENT (DEPA) or POSITION (last near the port)"),
        Column("in_port", pa.bool_(), "Whether nothing says that it has left"),
        Column("inbound_voyage_reference", _TEXT, "Voyage of the ARRI event"),
        Column("outbound_voyage_reference", _TEXT, "Voyage of the DEPA event"),
    ),
    key=("vessel_imo_number", "call_date_time", "un_location_code"),
    grain="One row per ship and stay at a port.",
    late="Calls around new events and positions of a ship are made again from events and positions, however late.",
    layout="Not partitioned: some rows a ship and month.",
)

VOYAGES = Table(
    name="voyages",
    title="Ships' legs between port calls",
    columns=(
        Column("vessel_imo_number", _TEXT, "IMO number of the ship"),
        Column("vessel", _TEXT, "Its name in the topology; null for a stranger"),
        Column("leg_date_time", TIME, "Departure; where that is not known, the first position, else the arrival"),
        Column("voyage_reference", _TEXT, "Voyage of the DEPA event, else of the ARRI event"),
        Column("from_un_location_code", _TEXT, "UN/LOCODE of the port it left; null where nothing says it"),
        Column("to_un_location_code", _TEXT, "UN/LOCODE of the port it came to; null while it sails"),
        Column("departure_date_time", TIME, "When it left; null where nothing says so"),
        Column("arrival_date_time", TIME, "When it arrived; null while it sails"),
        Column("last_position_date_time", TIME, "Its last position on the leg"),
        Column("positions", _LONG, "Positions on the leg, one a moment"),
        Column("distance", _DOUBLE, "Great circle from position to position: a gap counts as straight", "nmi"),
        Column("mean_speed", _DOUBLE, "That distance by the time from the first position to the last", "kn"),
        Column("gaps", _LONG, "Times without a position for more than an hour, from departure to arrival"),
        Column("gap_minutes", _DOUBLE, "How long these were together", "min"),
        Column("longest_gap_minutes", _DOUBLE, "The longest", "min"),
    ),
    key=("vessel_imo_number", "leg_date_time"),
    grain="One row per ship and leg from one port call to the next.",
    late="Legs around new events and positions of a ship are made again from events and positions, however late.",
    layout="Not partitioned: some rows a ship and month.",
)

_SHIP: Final = "vessel_imo_number"
_EVENT: Final = (_SHIP, "event_date_time", "movement", "un_location_code", "event_id", "voyage_reference")
_ORDER: Final = ("device_date_time", "log", "log_offset")
POSITION: Final = (_SHIP, *_ORDER, "latitude", "longitude", "speed_over_ground", "navigation_status")
"""The columns of ``positions`` that ``track_of`` takes, and the ship."""
PLACED: Final = f"latitude is not null and {_SHIP} is not null and {within_calendar('device_date_time')}"
"""The positions that say where a ship was, and when."""

CALL, LEG = "call", "leg"
"""Columns of ``itineraries``: exactly one of them is set in each row."""
_SCHEMA: Final = pa.schema(
    [
        pa.field(name, pa.struct([field for field in table.plain_schema if field.name != "vessel"]))
        for name, table in ((CALL, PORT_CALLS), (LEG, VOYAGES))
    ]
)


def port_calls(dock_movements: DataFrame, positions: DataFrame, sites: DataFrame) -> DataFrame:
    """Compute table ``port_calls`` from all rows of its inputs."""
    return named(itineraries(dock_movements, positions, sites), CALL, sites)


def voyages(dock_movements: DataFrame, positions: DataFrame, sites: DataFrame) -> DataFrame:
    """Compute table ``voyages`` from all rows of its inputs."""
    return named(itineraries(dock_movements, positions, sites), LEG, sites)


def itineraries(
    dock_movements: DataFrame,
    positions: DataFrame,
    sites: DataFrame,
    bounds: Mapping[str, TimeBounds] | None = None,
) -> DataFrame:
    """Compute the calls and legs of ships.

    Args:
        dock_movements: All movements of each ship (``ship_events``), at least those that decide about ``bounds``.
        positions: All positions of each ship, at least those that ``bounds`` needs (``shore.sailing.TimeBounds``).
        sites: All sites of the topology: the places of ports.
        bounds: The part of each ship's history to compute, by IMO number; None: all of all ships.

    Returns:
        One row per call and per leg, with the struct columns ``CALL`` and ``LEG``, one of which is null. The structs
        have the columns of ``port_calls`` and ``voyages`` without the ship's name.
    """
    known = sites.where("latitude is not null").select("un_location_code", "latitude", "longitude").distinct()
    ports = sorted(Port(*row) for row in known.collect())

    def of_ship(key: tuple[pa.Scalar, ...], events: pa.Table, track: pa.Table) -> pa.Table:
        ship = key[0].as_py()
        part = ALL if bounds is None else bounds[ship]
        calls, legs = sail(events_of(events), track_of(track), ports, part)
        rows: list[dict[str, Any]] = [{CALL: {_SHIP: ship, **_call(call)}} for call in calls]
        rows += [{LEG: {_SHIP: ship, **_leg(leg)}} for leg in legs]
        return pa.Table.from_pylist(rows, schema=_SCHEMA)

    placed = positions.where(PLACED)
    events = ship_events(dock_movements).groupBy(_SHIP)
    return events.cogroup(placed.select(*POSITION).groupBy(_SHIP)).applyInArrow(of_ship, spark_schema(_SCHEMA))


def named(found: DataFrame, what: str, sites: DataFrame) -> DataFrame:
    """Return the structs in one column, such as the calls or the legs of ``itineraries``, with their ships' names."""
    ships = sites.where("kind = 'ship'").selectExpr(_SHIP, "title as vessel")
    return found.where(f"`{what}` is not null").select(f"{what}.*").join(ships, _SHIP, "left")


def ship_events(dock_movements: DataFrame) -> DataFrame:
    """Return the movements that place a ship at a port."""
    said = f"movement in ('ARRI', 'DEPA') and {_SHIP} is not null and un_location_code is not null"
    return dock_movements.where(said).select(*_EVENT)


def events_of(rows: pa.Table) -> list[ShipEvent]:
    """Convert rows of ``ship_events`` to events for ``shore.sailing``."""
    columns = [rows["event_date_time"].cast(pa.int64()), *(rows[name] for name in _EVENT[2:])]
    return [ShipEvent(*each) for each in zip(*(column.to_pylist() for column in columns), strict=True)]


def track_of(positions: pa.Table) -> Track:
    """Return the positions of one ship in order of time. Of several at one moment, the one written first counts."""
    ordered = positions.sort_by([(name, "ascending") for name in _ORDER])
    time = ordered["device_date_time"].cast(pa.int64()).to_numpy()
    first = np.ones(len(time), bool)
    first[1:] = np.diff(time) > 0

    def floats(name: str) -> Any:
        return ordered[name].cast(pa.float64()).to_numpy()[first]

    status = pc.fill_null(ordered["navigation_status"], 15).cast(pa.int64()).to_numpy()[first]
    return Track(time[first], floats("latitude"), floats("longitude"), floats("speed_over_ground"), status)


def _call(call: Call) -> dict[str, Any]:
    return {
        "un_location_code": call.port,
        "call_date_time": time_of(call.time),
        "arrival_date_time": _maybe(call.arrival),
        "departure_date_time": _maybe(call.departure),
        "arrival_source": call.arrival_source,
        "departure_source": call.departure_source,
        "in_port": not call.left,
        "inbound_voyage_reference": call.inbound,
        "outbound_voyage_reference": call.outbound,
    }


def _leg(leg: Leg) -> dict[str, Any]:
    return {
        "leg_date_time": time_of(leg.time),
        "voyage_reference": leg.voyage,
        "from_un_location_code": leg.from_port,
        "to_un_location_code": leg.to_port,
        "departure_date_time": _maybe(leg.departure),
        "arrival_date_time": _maybe(leg.arrival),
        "last_position_date_time": _maybe(leg.last_position),
        "positions": leg.positions,
        "distance": leg.distance,
        "mean_speed": leg.speed,
        "gaps": leg.gaps,
        "gap_minutes": leg.gap_micros / 6e7,
        "longest_gap_minutes": leg.longest_gap_micros / 6e7,
    }


def _maybe(since_1970: int | None) -> dt.datetime | None:
    return None if since_1970 is None else time_of(since_1970)


def spark_schema(schema: pa.Schema) -> StructType:
    """Return an Arrow schema as Spark's."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)
