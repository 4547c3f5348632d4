"""The whole Compose project of a fleet, as data and as text. Pure."""

from __future__ import annotations

from typing import Any

import yaml

from deploy import services
from deploy.fleet import Fleet, all_secrets

_HEADER = """# Rendered from the topology {name} by `fairlead compose render`; change the topology and render again.
# docs/compose.md says what is in it and how to use it.
"""


def project(fleet: Fleet) -> dict[str, Any]:
    """``compose.yaml`` as data."""
    found: dict[str, Any] = {}
    volumes = [services.STATE, "prometheus", "grafana"]
    for site in fleet.sites:
        for node, host in enumerate(site.brokers, 1):
            found[host] = services.broker(fleet, site, node)
            volumes.append(host)
        if site.has_way_in:
            found[site.mqtt] = services.mqtt(fleet, site)
            volumes.append(site.mqtt)
            found[f"{site.name}-bridge"] = services.bridge(fleet, site)
        if fleet.topology.links_to(site.name):
            found[f"{site.name}-replicator"] = services.replicator(fleet, site)
    found["setup"] = services.setup(fleet)
    found["cli"] = services.command_line(fleet)
    found |= services.links(fleet) | services.spark(fleet) | services.monitoring(fleet)
    return {
        "name": f"fairlead-{fleet.topology.name}",
        "services": found,
        "networks": dict.fromkeys([services.WAN, *(site.name for site in fleet.sites)]),
        "volumes": dict.fromkeys(volumes),
        "secrets": {name: {"file": f"./secrets/{name}"} for name in [*all_secrets(fleet), "grafana.admin"]},
    }


def text(fleet: Fleet) -> str:
    """``compose.yaml``."""
    body = yaml.safe_dump(project(fleet), sort_keys=False, width=120, allow_unicode=True)
    return _HEADER.format(name=fleet.topology.name) + body
