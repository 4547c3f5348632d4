"""The names of a site's own logs, which its bridge opens at start, and of other logs that it follows. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.errors import ConfigurationError
from fairlead.names import LogName
from topologies.ledger_trust import Rules
from topologies.model import SiteKind, Topology


@dataclass(frozen=True, slots=True)
class FixedLogs:
    """Topics of the logs that never move and that only this site appends to; None if the site has no such log."""

    events: str
    alerts: str
    custody: str
    strays: str
    deadletters: str
    bookings: str | None
    location: str | None
    environment: str | None
    roll_calls: str | None
    digest: str | None
    all_strays: tuple[str, ...]  # of every site, this one included

    def all(self) -> tuple[str, ...]:
        named = (
            self.custody,
            self.events,
            self.alerts,
            self.strays,
            self.deadletters,
            self.bookings,
            self.location,
            self.environment,
            self.roll_calls,
            self.digest,
        )
        return tuple(topic for topic in named if topic is not None)


def fixed_logs(topology: Topology, site: str) -> FixedLogs:
    """Return the fixed logs of a site. Ships have a ship's logs; every other site has bookings.

    Raises:
        ConfigurationError: the topology lacks a stream that a bridge needs.
    """
    spec = topology.sites[site]
    at_sea = spec.kind is SiteKind.SHIP
    needed = {"events", "alerts", "custody", "strays", "deadletters", "ships" if at_sea else "bookings"}
    if missing := sorted(needed - topology.streams.keys()):
        raise ConfigurationError(
            f"a bridge cannot run at {site}: topology {topology.name!r} has no stream {', '.join(missing)}",
            hint="bridges are for topologies with ships or ports; declare the streams, or write to the logs directly",
            site=site,
            missing=missing,
        )
    return FixedLogs(
        events=f"events.{site}",
        alerts=f"alerts.{site}",
        custody=f"custody.{site}",
        strays=f"strays.{site}",
        deadletters=f"deadletters.{site}",
        bookings=None if at_sea else f"bookings.{site}",
        location=f"ships.{spec.imo}.location" if at_sea and spec.imo else None,
        environment=f"ships.{spec.imo}.environment" if at_sea and spec.imo else None,
        roll_calls=f"ships.{spec.imo}.roll-calls" if at_sea and spec.imo else None,
        digest=f"ships.{spec.imo}.digest" if at_sea and spec.imo else None,
        all_strays=tuple(f"strays.{name}" for name in _with_way_in(topology)),
    )


def custody_logs(topology: Topology) -> tuple[str, ...]:
    """Return the ledgers of all sites; those ashore come first, because ships' entries depend on theirs."""
    return tuple(Rules.of(topology).ashore_first(f"custody.{site}" for site in _with_way_in(topology)))


def booking_logs(topology: Topology, site: str) -> tuple[str, ...]:
    """Return the logs of bookings that links bring to a site."""
    links = topology.links_to(site)
    ashore = (name for name in _with_way_in(topology) if topology.sites[name].kind is not SiteKind.SHIP)
    logs = (LogName("bookings", office) for office in ashore)
    return tuple(str(each) for each in logs if any(topology.takes(link, each) for link in links))


def _with_way_in(topology: Topology) -> list[str]:
    return [name for name, spec in topology.sites.items() if spec.kind is not SiteKind.CUSTOMER]


def container_log(topology: Topology, container_number: str) -> str | None:
    """Return the log of a container, by its owner code; None when no stream of the topology has that owner."""
    stream = topology.container_stream(container_number)
    return str(LogName(stream, container_number)) if stream is not None else None
