"""Names and settings of a site's own logs: those that it opens itself when its bridge starts. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass

from fairlead.names import LogName
from topologies.model import SiteKind, Topology

_MILLISECOND = dt.timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class FixedLogs:
    """Topics of the logs that only this site appends to and that never move; None where the site has no such log."""

    events: str
    alerts: str
    custody: str
    strays: str
    deadletters: str
    bookings: str | None
    location: str | None
    environment: str | None

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
        )
        return tuple(topic for topic in named if topic is not None)


def fixed_logs(topology: Topology, site: str) -> FixedLogs:
    """The fixed logs of a site. Ships have a ship's log; every other site may take bookings."""
    spec = topology.sites[site]
    at_sea = spec.kind is SiteKind.SHIP
    return FixedLogs(
        events=f"events.{site}",
        alerts=f"alerts.{site}",
        custody=f"custody.{site}",
        strays=f"strays.{site}",
        deadletters=f"deadletters.{site}",
        bookings=None if at_sea else f"bookings.{site}",
        location=f"ships.{spec.imo}.location" if at_sea and spec.imo else None,
        environment=f"ships.{spec.imo}.environment" if at_sea and spec.imo else None,
    )


def custody_logs(topology: Topology) -> tuple[str, ...]:
    """The ledgers of all sites of a topology."""
    return tuple(f"custody.{site}" for site, spec in topology.sites.items() if spec.kind is not SiteKind.CUSTOMER)


def retention_ms(retention: dt.timedelta) -> int:
    """Kafka's ``retention.ms``: -1 means forever."""
    return -1 if retention == dt.timedelta.max else retention // _MILLISECOND


def topic_configs(topology: Topology, site: str, topic: str, defaults: Mapping[str, str]) -> dict[str, str]:
    """Settings of a topic at this site: the given defaults with the site's own retention of the topic's stream."""
    stream, _, _ = topic.partition(".")
    return {**defaults, "retention.ms": str(retention_ms(topology.sites[site].retention_of(stream)))}


def container_log(topology: Topology, container_number: str) -> str | None:
    """The log of a box by its owner code; None when nobody in the topology owns it."""
    stream = topology.container_stream(container_number)
    return str(LogName(stream, container_number)) if stream is not None else None
