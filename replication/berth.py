"""Which ship is where, as one site knows it from its own log ``events.<site>``; pure state, no I/O.

Transport events are published at both the port and the ship (``fairlead.records.event``), so each end of a berth link
decides from its own log whether the link may be used, and no word has to come over the link first.
"""

from __future__ import annotations

from fairlead.records.event import Event
from topologies.model import Link, SiteKind, Topology


class Berths:
    """Pairs (ship, port) that are together now. Events are applied in log order; a repeat changes nothing."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._at: dict[str, str] = {}  # ship's site -> port's site

    def apply(self, event: Event) -> bool:
        """Take one event into account; True when a ship came or went."""
        what = event.payload.transport_event_type_code
        imo, code = event.payload.vessel_imo_number, event.payload.un_location_code
        if what is None or imo is None or code is None:
            return False
        ship, port = self._topology.ship_with(imo), self._topology.port_at(code)
        if ship is None or port is None:
            return False
        before = self._at.get(ship)
        if what == "ARRI":
            self._at[ship] = port
        elif before == port:  # a late DEPA of an earlier port says nothing about this one
            del self._at[ship]
        return self._at.get(ship) != before

    def together(self, one: str, other: str) -> bool:
        """Whether one of the two sites is a ship that is berthed at the other."""
        return self._at.get(one) == other or self._at.get(other) == one

    def is_open(self, link: Link) -> bool:
        """Whether the link's policy allows it to be used now."""
        return link.when == "always" or self.together(link.from_, link.to)


def needs_berths(topology: Topology, site: str) -> bool:
    """Whether any link to this site depends on a berth."""
    kinds = {SiteKind.SHIP}
    return any(
        link.when == "berthed" and {topology.sites[link.from_].kind, topology.sites[link.to].kind} & kinds
        for link in topology.links_to(site)
    )
