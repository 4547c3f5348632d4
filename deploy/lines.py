"""Where replicators reach their sources when a project has lines under its links (``--links``). Pure.

The container ``links`` listens at a port for each replicator and each broker that it pulls from; TLS still checks the
broker's own name.
"""

from __future__ import annotations

from itertools import count
from typing import Final

from deploy.fleet import KAFKA_PORT, Fleet
from fairlead.endpoint import Address
from topologies.detours import Detours

HOST: Final = "links"
_FIRST_PORT: Final = 20_001


def detours(fleet: Fleet) -> Detours:
    """For ``fairlead replicate --detours`` and ``simulators.links.server``; the same fleet has the same ports."""
    ports = count(_FIRST_PORT)
    brokers = {site.name: site.brokers for site in fleet.sites}
    found: dict[str, dict[str, tuple[tuple[Address, Address], ...]]] = {}
    for site in fleet.sites:
        for source in dict.fromkeys(link.from_ for link in fleet.topology.links_to(site.name)):
            pairs = tuple(((host, KAFKA_PORT), (HOST, next(ports))) for host in brokers[source])
            found.setdefault(site.name, {})[source] = pairs
    return found
