"""Table ``voyages``: each ship's voyages leg by leg, with its stops. ``shore.tables.itineraries`` computes it."""

from __future__ import annotations

import pyarrow as pa

from shore.tables.model import TIME, Column, Table

_TEXT, _DOUBLE, _LONG = pa.string(), pa.float64(), pa.int64()

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
