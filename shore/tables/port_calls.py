"""Table ``port_calls``: when each ship was at which port. ``shore.tables.itineraries`` computes it."""

from __future__ import annotations

import pyarrow as pa

from shore.tables.model import TIME, Column, Table

_TEXT = pa.string()

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
