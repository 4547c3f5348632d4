"""Planning at six real sites at once: the same world as part ``plan``, each site with a broker that holds its rules."""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from acl.apply import apply_sites, check_complete
from acl.kafka import admin_stores
from acl.plan import plan_topology
from benchmarks._suite import Say
from benchmarks.access.world import world
from fairlead.local.sites import LocalSites, SiteSpec
from topologies.endpoints import EndpointResolver

HEADLINES: tuple[str, ...] = ()


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--site-rounds", type=int, default=5)


def measure(options: argparse.Namespace, say: Say) -> dict[str, Any]:
    topology = world(options.customers, options.owners)
    names = list(topology.sites)
    with tempfile.TemporaryDirectory(prefix="fairlead-bench-access-") as folder:
        local = LocalSites(Path(folder) / topology.name)
        try:
            local.up([SiteSpec(name) for name in names])
            stores = admin_stores(EndpointResolver(topology, local))
            applied = apply_sites(topology, stores, names)
            check_complete(applied)
            say(f"{len(names)} sites have {sum(one.added for one in applied):,} rules")
            rounds = []
            for _ in range(options.site_rounds):
                began = time.perf_counter()
                planned = plan_topology(topology, stores, names)
                identity = planned.identity
                rounds.append(time.perf_counter() - began)
                if any(site.add or site.remove for site in planned.sites):
                    raise SystemExit(f"plan {identity} has something to do after all was done")
        finally:
            local.down(purge=True)
    say(f"planned in {statistics.median(rounds):.2f} s")
    return {
        "customers": options.customers,
        "containers": options.containers,
        "sites": len(names),
        "rules": sum(one.added for one in applied),
        "plan_seconds": statistics.median(rounds),
        "rounds": rounds,
        "target": {"plan_seconds": 3.0},
    }
