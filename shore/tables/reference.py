"""Tables ``sites``, ``owners`` and ``geofences``: the topology's places, ships and owner codes, for joins.

They are made equal to the topology whenever shore starts (``shore.jobs.reference``). The jobs whose tables depend on
them follow their changes and recompute those tables as a whole.
"""

from __future__ import annotations

import pyarrow as pa

from shore.tables.model import Column, Table
from topologies.drawing.seachart import PortPlace
from topologies.model import InsertPoint, Site, SiteKind, Topology

_TEXT, _DOUBLE = pa.string(), pa.float64()
_LATE = "Replaced as a whole when shore starts with a topology that differs."
_RETENTION = "Rows are those of the topology."

SITES = Table(
    name="sites",
    title="Sites of the topology",
    columns=(
        Column("site", _TEXT, "Name of the site; holders of custody and publishers of events are such names"),
        Column("kind", _TEXT, "ship, port, hq, customer, datacentre"),
        Column("title", _TEXT, "What people call it"),
        Column("un_location_code", _TEXT, "UN/LOCODE; null for ships and where the topology has none"),
        Column("vessel_imo_number", _TEXT, "IMO number of a ship; null ashore"),
        Column("latitude", _DOUBLE, "WGS 84, of the port; null where it is not known", "deg"),
        Column("longitude", _DOUBLE, "WGS 84, of the port; null where it is not known", "deg"),
    ),
    key=("site",),
    grain="One row per site.",
    late=_LATE,
    layout="Not partitioned: a few rows.",
    retention=_RETENTION,
    change_feed=True,
)

OWNERS = Table(
    name="owners",
    title="Whose boxes they are, by ISO 6346 owner code",
    columns=(
        Column("owner_code", _TEXT, "ISO 6346 owner code with category: the first four letters of a container number"),
        Column("stream", _TEXT, "Stream of these boxes' logs"),
        Column("line", _TEXT, "Line: title of the customer named like the stream, else the stream's title or name"),
    ),
    key=("owner_code",),
    grain="One row per owner code that the topology has a stream for.",
    late=_LATE,
    layout="Not partitioned: a few rows.",
    retention=_RETENTION,
    change_feed=True,
)

GEOFENCES = Table(
    name="geofences",
    title="Geofences of the topology",
    columns=(
        Column("geofence", _TEXT, "Name of the geofence"),
        Column("latitude", _DOUBLE, "WGS 84, of its middle", "deg"),
        Column("longitude", _DOUBLE, "WGS 84, of its middle", "deg"),
        Column("within_km", _DOUBLE, "Its radius", "km"),
    ),
    key=("geofence",),
    grain="One row per geofence.",
    late=_LATE,
    layout="Not partitioned: a few rows.",
    retention=_RETENTION,
    change_feed=True,
)


def site_rows(topology: Topology, ports: dict[str, PortPlace]) -> pa.Table:
    """Return the rows of table ``sites``. ``ports``: the known ports of the world by UN/LOCODE."""
    rows = [_site(name, site, ports) for name, site in sorted(topology.sites.items())]
    return pa.Table.from_pylist(rows, schema=SITES.plain_schema)


def owner_rows(topology: Topology) -> pa.Table:
    """Return the rows of table ``owners``."""
    rows = []
    for name, stream in topology.streams.items():
        if stream.insert_point is not InsertPoint.MOVES:
            continue
        customer = topology.customers.get(name)
        line = (customer.title if customer is not None else "") or stream.title or name
        rows += [{"owner_code": code, "stream": name, "line": line} for code in stream.owners]
    return pa.Table.from_pylist(sorted(rows, key=lambda row: row["owner_code"]), schema=OWNERS.plain_schema)


def geofence_rows(topology: Topology) -> pa.Table:
    """Return the rows of table ``geofences``."""
    rows = [
        {"geofence": name, **geofence.at.model_dump(), "within_km": geofence.within_km}
        for name, geofence in sorted(topology.geofences.items())
    ]
    return pa.Table.from_pylist(rows, schema=GEOFENCES.plain_schema)


def _site(name: str, site: Site, ports: dict[str, PortPlace]) -> dict[str, object]:
    place = None if site.kind is SiteKind.SHIP else ports.get(site.unlocode or "")
    return {
        "site": name,
        "kind": site.kind.value,
        "title": site.title or name,
        "un_location_code": site.unlocode,
        "vessel_imo_number": site.imo,
        "latitude": place.latitude if place is not None else None,
        "longitude": place.longitude if place is not None else None,
    }
