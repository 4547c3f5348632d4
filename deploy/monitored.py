"""What Prometheus looks at in a fleet. Pure."""

from __future__ import annotations

from typing import Any

from deploy.fleet import METRICS_PORT, Fleet


def prometheus(fleet: Fleet) -> dict[str, Any]:
    """``prometheus.yaml`` as data: every replicator and bridge, every 15 s, and the alert rules."""
    replicators = [
        f"{site.name}-replicator:{METRICS_PORT}" for site in fleet.sites if fleet.topology.links_to(site.name)
    ]
    bridges = [f"{site.name}-bridge:{METRICS_PORT}" for site in fleet.sites if site.has_way_in]
    return {
        "global": {"scrape_interval": "15s", "evaluation_interval": "15s"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [
            {"job_name": "prometheus", "static_configs": [{"targets": ["localhost:9090"]}]},
            {"job_name": "replicator", "static_configs": [{"targets": replicators}]},
            {"job_name": "bridge", "static_configs": [{"targets": bridges}]},
        ],
    }
