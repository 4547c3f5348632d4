"""Applying many changed rules at one real site: planning, checking, both entries of the audit log, adding, removing,
and waiting until the broker shows it. Half of the changes are rules that are missing, half are rules too many.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from acl.apply import apply_sites, check_complete
from acl.compile import compile_site
from acl.kafka import OpenStore, admin_stores
from acl.plan import plan_topology
from acl.rules import Binding, Operation, Pattern, Resource, Rule
from benchmarks._suite import Say
from benchmarks.access.world import HQ, world
from fairlead.local.sites import LocalSites, SiteSpec
from topologies.endpoints import EndpointResolver
from topologies.model import Topology

HEADLINES = ("apply_seconds",)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--changes", type=int, default=2_000)
    parser.add_argument("--apply-owners", type=int, default=60, help="owners of boxes, for enough rules to be missing")
    parser.add_argument("--apply-rounds", type=int, default=5)


def measure(options: argparse.Namespace, say: Say) -> dict[str, Any]:
    topology = world(options.customers, options.apply_owners)
    wanted = sorted(Binding.of(rule) for rule in compile_site(topology, HQ))
    missing = wanted[: options.changes // 2]
    extra = [
        Binding.of(Rule(f"customer-{n % 200:04}", Resource.TOPIC, Pattern.LITERAL, f"feeds.x{n}", Operation.READ))
        for n in range(options.changes - len(missing))
    ]
    with tempfile.TemporaryDirectory(prefix="fairlead-bench-access-") as folder:
        local = LocalSites(Path(folder) / topology.name)
        try:
            local.up([SiteSpec(HQ)])
            stores = admin_stores(EndpointResolver(topology, local))
            began = time.perf_counter()
            check_complete(apply_sites(topology, stores, [HQ]))
            first = time.perf_counter() - began
            say(f"the site's first {len(wanted):,} rules took {first:.2f} s")
            rounds = []
            for _ in range(options.apply_rounds):
                with stores(HQ) as store:
                    store.remove(missing)
                    store.add(extra)
                rounds.append(_round(topology, stores, (len(missing), len(extra)), say))
        finally:
            local.down(purge=True)
    return {
        "customers": options.customers,
        "rules": len(wanted),
        "changes": len(missing) + len(extra),
        "first_apply_seconds": first,
        "apply_seconds": statistics.median(one["apply_seconds"] for one in rounds),
        "plan_seconds_of_the_site": statistics.median(one["plan_seconds"] for one in rounds),
        "nothing_to_do_seconds": statistics.median(one["again_seconds"] for one in rounds),
        "rounds": rounds,
        "target": {"apply_seconds": 10.0},
    }


def _round(topology: Topology, stores: OpenStore, expected: tuple[int, int], say: Say) -> dict[str, float]:
    times = [time.perf_counter()]
    planned = plan_topology(topology, stores, [HQ]).sites[0]
    times.append(time.perf_counter())
    (result,) = apply_sites(topology, stores, [HQ], max_removals=1.0)
    times.append(time.perf_counter())
    (again,) = apply_sites(topology, stores, [HQ])
    times.append(time.perf_counter())
    check_complete([result, again])
    if not expected == (len(planned.add), len(planned.remove)) == (result.added, result.removed):
        raise SystemExit(f"expected {expected} changes, planned {planned}, made {result}")
    if again.added or again.removed:
        raise SystemExit(f"the second time changed something: {again}")
    seconds = [later - earlier for earlier, later in pairwise(times)]
    say(f"{sum(expected):,} changes took {seconds[1]:.2f} s")
    return dict(zip(("plan_seconds", "apply_seconds", "again_seconds"), seconds, strict=True))
