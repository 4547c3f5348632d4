"""Decide which berthed links are open: from port calls (ARRI, DEPA), the ship's positions, and the clock. Pure.

A link with ``when: berthed`` is open while the ship is in the port at the link's other end, for one of two reasons:

- **ARRI**: the newest arrival names this port, no departure from it came after, and no later position shows that the
  ship is away.
- **position**: the ship's newest position is fresh, and by its positions the ship lies in this port. Ports' arrivals
  are sometimes forgotten, and the ship must upload all the same. A later event overrules positions.

**In port by position**: within ``PORT_NMI`` of the port and lying still. It stays so until the ship is
``LEAVE_NMI`` away, makes way, or anchors. **Away**: more than ``LEAVE_NMI`` from the port and not lying still there,
or in port elsewhere. A terminal may be far from the coordinates of its port, so a ship that lies still is not away.

Events and positions come from two logs. Which of the two is read first makes no difference: times in the records
decide between an event and a position. Events among each other, and positions among each other, count in log order.

Whether the other site's broker answers, or how quickly, opens nothing: a low-orbit satellite answers within 20 to
50 ms, as quickly as a port's radio, and one address may be reached over either.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

from fairlead.records.event import Event
from fairlead.records.reading import GeoLocation, distance_m, known, milliseconds
from fairlead.records.ship import AT_ANCHOR, MOORED, PORT_NMI, SPEED_NOT_AVAILABLE, STILL_KN, UNDER_WAY_KN, Position
from topologies.drawing.seachart import ports
from topologies.model import Link, SiteKind, Topology

NMI: Final = 1852.0  # metres
LEAVE_NMI: Final = PORT_NMI + 2.0
"""A ship in port swings and shifts its berth by less than the difference, and AIS errs by much less."""
FRESH_MS: Final = 15 * 60_000
"""An older position tells nothing about where the ship is now. AIS reports every 3 minutes at the berth, and the ship's
log arrives by satellite; at 15 knots a ship leaves ``LEAVE_NMI`` behind in 48 minutes."""
FASTEST_KN: Final = 60.0
JUMP_NMI: Final = 10.0
"""A position that the ship cannot have reached from the last one at ``FASTEST_KN``, give or take ``JUMP_NMI``, is not
believed: a spoofed or mixed-up receiver, or another ship under this IMO number."""


class BerthVerdict(NamedTuple):
    """Whether a link is open now, and why or why not, in words."""

    is_open: bool
    why: str


class ShipFix(NamedTuple):
    """A ship's position. ``at_ms`` is the time of its device, ``received_ms`` that of the bridge's receipt."""

    place: GeoLocation
    at_ms: int
    received_ms: int
    speed: float | None
    status: int

    @property
    def lies_still(self) -> bool:
        """Return whether the ship is moored, or stopped without being at anchor. A status that the crew forgot to
        change does not count against the speed."""
        if self.status == AT_ANCHOR:
            return False
        if self.status == MOORED:
            return self.speed is None or self.speed < UNDER_WAY_KN
        return self.speed is not None and self.speed < STILL_KN

    @property
    def is_leaving(self) -> bool:
        """Return whether the ship makes way or lies at anchor, so that it is at no berth."""
        return self.status == AT_ANCHOR or (self.speed is not None and self.speed >= UNDER_WAY_KN)


def fix_of(position: Position, received_ms: int) -> ShipFix | None:
    """Return a position record as a fix; None if it has no place."""
    place, speed = known(position.geo_location), position.speed_over_ground
    if place is None:
        return None
    return ShipFix(
        place,
        milliseconds(position.device.device_date_time),
        received_ms,
        speed if speed is not None and speed < SPEED_NOT_AVAILABLE else None,
        position.navigation_status,
    )


@dataclass(slots=True)
class _ShipCalls:
    """What is known about one ship. ``away``: per port, the newest time at which a position showed the ship away."""

    arrival: tuple[str, int] | None = None  # port's site and time, until a DEPA of that port
    arrival_offset: int = 0  # of its event
    departed: dict[str, int] = field(default_factory=dict)
    away: dict[str, int] = field(default_factory=dict)
    fix: ShipFix | None = None  # the newest one that is believed
    doubted: ShipFix | None = None  # the newest one, if it is not believed
    stay: tuple[str, int] | None = None  # the port in which it lies by position, and since when


class Berths:
    """The state of every ship with berthed links. Apply the records of each log in its order."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._links = tuple(link for link in topology.directed_links() if link.when == "berthed")
        self._ships: dict[str, _ShipCalls] = {}
        self._told: frozenset[str] = frozenset()

    @cached_property
    def _places(self) -> Mapping[str, GeoLocation]:
        return port_places(self._topology)

    @property
    def needed_from(self) -> int | None:
        """The offset of the oldest arrival that still counts: retention keeps it. None while no ship has one."""
        return min((calls.arrival_offset for calls in self._ships.values() if calls.arrival), default=None)

    def apply(self, event: Event, offset: int = 0) -> None:
        """Apply one event, at this offset of its log. Events that are no port call of a known ship and port, or are
        only planned or estimated, change nothing."""
        what = event.payload.transport_event_type_code
        imo, code = event.payload.vessel_imo_number, event.payload.un_location_code
        if not event.happened or what is None or imo is None or code is None:
            return
        ship, port = self._topology.ship_with(imo), self._topology.port_at(code)
        if ship is None or port is None:
            return
        calls, at_ms = self._calls(ship), milliseconds(event.payload.event_date_time)
        if what == "ARRI":
            calls.arrival, calls.arrival_offset = (port, at_ms), offset
            calls.departed.pop(port, None)
            return
        calls.departed[port] = max(at_ms, calls.departed.get(port, at_ms))
        if calls.arrival is not None and calls.arrival[0] == port:  # a late DEPA of an earlier port ends no arrival
            calls.arrival = None

    def locate(self, imo: str, fix: ShipFix) -> None:
        """Apply one position of a ship. One that the ship cannot have reached is not believed."""
        ship = self._topology.ship_with(imo)
        if ship is None:
            return
        calls = self._calls(ship)
        before = calls.fix
        if before is not None and not _can_reach(before, fix):
            calls.doubted = fix
            return
        calls.fix, calls.doubted = fix, None
        nearest, metres = self._nearest(fix.place)
        if nearest is None:
            return
        if calls.stay is not None and (self._metres(calls.stay[0], fix) > LEAVE_NMI * NMI or fix.is_leaving):
            calls.stay = None
        if calls.stay is None and fix.lies_still and metres <= PORT_NMI * NMI:
            calls.stay = nearest, fix.at_ms
        for port in self._places:
            if self._metres(port, fix) > LEAVE_NMI * NMI and (calls.stay is not None or not fix.lies_still):
                calls.away[port] = max(fix.at_ms, calls.away.get(port, fix.at_ms))

    def verdict(self, link: Link, now_ms: int) -> BerthVerdict:
        """Return whether the link's policy allows it to be used at ``now_ms``, wall time in milliseconds."""
        if link.when == "always":
            return BerthVerdict(True, "")
        ends = (link.from_, link.to)
        ship = next((each for each in ends if self._topology.sites[each].kind is SiteKind.SHIP), None)
        if ship is None:
            return BerthVerdict(False, "no ship at either end")
        return self._verdict(ship, ends[0] if ends[1] == ship else ends[1], now_ms)

    def is_open(self, link: Link, now_ms: int) -> bool:
        """Return whether the link's policy allows it to be used now."""
        return self.verdict(link, now_ms).is_open

    def has_changed(self, now_ms: int) -> bool:
        """Return whether other links are open than at the last call. Time alone may close a link."""
        found = frozenset(link.name for link in self._links if self.is_open(link, now_ms))
        changed, self._told = found != self._told, found
        return changed

    def _verdict(self, ship: str, port: str, now_ms: int) -> BerthVerdict:
        calls = self._ships.get(ship, _ShipCalls())
        arrival = calls.arrival
        overruled = arrival is not None and calls.away.get(arrival[0], arrival[1]) > arrival[1]
        if arrival is not None and arrival[0] == port and not overruled:
            return BerthVerdict(True, f"ARRI {_clock(arrival[1])}")
        fix = calls.fix
        if fix is not None and abs(now_ms - fix.received_ms) <= FRESH_MS:
            where = f"position {self._distance(port, fix)}"
            stay = calls.stay
            if stay is not None and stay[0] == port:
                if calls.departed.get(port, stay[1] - 1) >= stay[1]:
                    return BerthVerdict(False, f"DEPA {_clock(calls.departed[port])}")
                if arrival is None or overruled:
                    return BerthVerdict(True, where)
        else:
            where = f"no position in the last {FRESH_MS // 60_000} min"
        if calls.doubted is not None:
            where = f"the newest position is not believed: {self._distance(port, calls.doubted)}, too far from the last"
        if arrival is not None:
            there = "" if arrival[0] == port else f" in {self._title(arrival[0])}"
            return BerthVerdict(False, f"ARRI {_clock(arrival[1])}{there}, {where}")
        return BerthVerdict(False, f"no ARRI, {where}")

    def _calls(self, ship: str) -> _ShipCalls:
        return self._ships.setdefault(ship, _ShipCalls())

    def _nearest(self, place: GeoLocation) -> tuple[str | None, float]:
        found = min(((distance_m(place, at), port) for port, at in self._places.items()), default=(0.0, None))
        return found[1], found[0]

    def _metres(self, port: str, fix: ShipFix) -> float:
        return distance_m(self._places[port], fix.place)

    def _distance(self, port: str, fix: ShipFix) -> str:
        if port not in self._places:
            return f"known, but not that of {self._title(port)}: set sites.{port}.position"
        kilometres = self._metres(port, fix) / 1000
        return f"{kilometres:.1f} km from {self._title(port)}"

    def _title(self, site: str) -> str:
        return self._topology.sites[site].title or site


def port_places(topology: Topology) -> dict[str, GeoLocation]:
    """Return where each port lies that has berthed links: its ``position``, else that of its UN/LOCODE, if known."""
    sites = {end for link in topology.directed_links() if link.when == "berthed" for end in (link.from_, link.to)}
    out: dict[str, GeoLocation] = {}
    for name in sorted(sites):
        site = topology.sites[name]
        if site.kind is SiteKind.SHIP:
            continue
        if site.position is not None:
            out[name] = GeoLocation(latitude=site.position.latitude, longitude=site.position.longitude)
        elif (found := ports().get(site.unlocode or "")) is not None:
            out[name] = GeoLocation(latitude=found.latitude, longitude=found.longitude)
    return out


def _ships_of(topology: Topology, links: Iterable[Link]) -> list[str]:
    ends = {end for link in links if link.when == "berthed" for end in (link.from_, link.to)}
    return sorted(end for end in ends if topology.sites[end].kind is SiteKind.SHIP)


def needs_berths(topology: Topology, site: str) -> bool:
    """Return whether any link to this site depends on a berth."""
    return bool(_ships_of(topology, topology.links_to(site)))


def position_logs(topology: Topology, site: str) -> dict[str, str]:
    """Return the logs of positions that decide about links to this site, each with its ship's IMO number."""
    imos = (topology.sites[ship].imo for ship in _ships_of(topology, topology.links_to(site)))
    return {f"ships.{imo}.location": imo for imo in imos if imo is not None}


def _can_reach(before: ShipFix, after: ShipFix) -> bool:
    hours = abs(after.at_ms - before.at_ms) / 3_600_000
    return distance_m(before.place, after.place) <= (FASTEST_KN * hours + JUMP_NMI) * NMI


def _clock(at_ms: int) -> str:
    at = dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC)
    return f"{at:%d %b %H:%M}"
