"""What the report's page shows beside its figures: ships' tracks, and one box's temperatures from the Delta table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from shore.read import table
from simulators.report.page import PageData, Place, Temperature, TrackPoint
from simulators.run import Sailed
from topologies.model import Topology
from topologies.seachart import ports

_COLUMNS = [
    "device_date_time",
    "supply_temperature",
    "return_temperature",
    "ambient_temperature",
    "setpoint_temperature",
]


def page_data(sailed: Sailed, topology: Topology, folder: Path) -> PageData:
    """Tracks and losses as the ships told them, temperatures as the table ``readings`` has them, if there is one."""
    truth = sailed.truth
    known = ports()
    box = truth.chart_container
    found = _temperatures(folder, box) if topology.shore else []
    return PageData(
        tracks=tuple(
            TrackPoint(ship, point.time, point.longitude, point.latitude)
            for ship, points in truth.tracks.items()
            for point in points
        ),
        ports=tuple(
            Place(site.title or name, known[site.unlocode].longitude, known[site.unlocode].latitude)
            for name, site in topology.sites.items()
            if site.unlocode in known
        ),
        losses=tuple(Place(loss.container, loss.longitude, loss.latitude) for loss in truth.losses),
        container=box,
        temperatures=tuple(Temperature(*(row[name] for name in _COLUMNS)) for row in found),
        milestones=tuple((m.time, f"{m.code} {m.site}") for m in truth.milestones),
    )


def _temperatures(folder: Path, box: str) -> list[dict[str, Any]]:
    of_box = table(folder, "readings").to_table(columns=_COLUMNS, filter=pc.field("equipment_reference") == box)
    found: list[dict[str, Any]] = of_box.sort_by("device_date_time").to_pylist()
    return found
