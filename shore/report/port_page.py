"""The report of a port as a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from shore.report import drawing
from shore.report.boxes import Box
from shore.report.drawing import Mark
from shore.report.page import render
from shore.report.port import PortReport, Ship
from topologies.drawing.seachart import ports

_MOST: Final = 500  # boxes of a ship for other ports, with something wrong


class Shown(NamedTuple):
    """Boxes of a ship that the page lists, and how many it leaves out."""

    rows: tuple[Box, ...]
    rest: int


def port_page(report: PortReport, doubts: Sequence[str] = ()) -> str:
    """The page of a report.

    Args:
        doubts: What it may lack (``shore.report.doubts``); stands at its top.
    """
    return render(
        "port.html.j2",
        {},
        r=report,
        doubts=doubts,
        cargo=report.audience == "operator",
        way=_map(report),
        told_way=_told(report),
        shown=_shown,
    )


def _shown(ship: Ship) -> Shown:
    """All boxes for this port; of the others those that something is wrong with."""
    here = [box for box in ship.boxes if box.discharged_here]
    others = [box for box in ship.boxes if not box.discharged_here and box.concerns][:_MOST]
    return Shown((*here, *others), len(ship.boxes) - len(here) - len(others))


def _told(report: PortReport) -> str:
    """The map in words, for who cannot see it."""
    return f"Map of {report.port} and the ships that come: {', '.join(ship.vessel for ship in report.arriving)}."


def _map(report: PortReport) -> str:
    """The port, and the ships that come; empty where none has a place."""
    ships = [
        Mark(ship.vessel, ship.approach.longitude, ship.approach.latitude, "ship")
        for ship in report.arriving
        if ship.approach.longitude is not None and ship.approach.latitude is not None
    ]
    world = ports().get(report.un_location_code)
    here = [Mark(report.port, world.longitude, world.latitude)] if world else []
    return drawing.way([], [*here, *ships]) if ships else ""
