"""What the number of rules grows with: customers, streams and sites, never containers.

A rule is about a stream or about one feed, so a new box gets none. Beside it stands how many rules it would be if each
container's log were named in rules of its own.
"""

from __future__ import annotations

import argparse
from collections import Counter
from typing import Any

from acl.compile import compile_site
from acl.rules import Pattern, Resource, Rule
from benchmarks._suite import Say
from benchmarks.access.world import CONTAINERS, stream_of, world

HEADLINES: tuple[str, ...] = ()
_WORLDS = (
    # customers, owners, containers
    (50, 10, 5_000),
    (50, 10, 50_000),
    (200, 10, 50_000),
    (200, 20, 5_000),
    (200, 20, 50_000),
    (200, 20, 500_000),
    (400, 20, 50_000),
    (200, 40, 50_000),
)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--share", type=float, default=0.5, help="of the containers, those of customers")


def measure(options: argparse.Namespace, say: Say) -> dict[str, Any]:
    rows = []
    for customers, owners, containers in _WORLDS:
        topology = world(customers, owners)
        boxes = Counter({CONTAINERS: containers - int(containers * options.share)})
        for number in range(int(containers * options.share)):
            boxes[stream_of(number % owners)] += 1
        by_site = {site: compile_site(topology, site) for site in topology.sites}
        rows.append(
            {
                "customers": customers,
                "streams": len(topology.streams),
                "containers": containers,
                "rules": sum(map(len, by_site.values())),
                "most_at_a_site": max(map(len, by_site.values())),
                "of_customers": sum(rule.user.startswith("customer-") for rules in by_site.values() for rule in rules),
                "if_by_container": sum(_by_container(rule, boxes) for rules in by_site.values() for rule in rules),
            }
        )
        say(f"{customers} customers, {owners} owners, {containers:,} containers: {rows[-1]['rules']:,} rules")
    return {"rows": rows, "sites": 6}


def _by_container(rule: Rule, boxes: Counter[str]) -> int:
    stream = rule.name.removesuffix(".")
    if rule.resource is Resource.TOPIC and rule.pattern is Pattern.PREFIXED and stream in boxes:
        return boxes[stream]
    return 1
