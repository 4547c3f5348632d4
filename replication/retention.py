"""How a replica's topic is set up at its target: Fairlead's log settings and the target site's own retention. Pure."""

from __future__ import annotations

import datetime as dt

from fairlead.names import parse_log
from topologies.model import Topology

_MAX_RETENTION_MS = 2**63 - 1


def retention_ms(topology: Topology, site: str, topic: str) -> int:
    """Kafka's ``retention.ms`` for a log at a site; -1 is for ever."""
    log = parse_log(topic)
    kept = topology.sites[site].retention_of(log.stream if log else "default")
    if kept == dt.timedelta.max:
        return -1
    return min(kept // dt.timedelta(milliseconds=1), _MAX_RETENTION_MS)


def replica_settings(topology: Topology, site: str, topic: str) -> dict[str, str]:
    """What differs from ``fairlead.admin.LOG_DEFAULTS`` for a replica at this site."""
    return {"retention.ms": str(retention_ms(topology, site, topic))}
