"""Planning for very many customers: from the topology to what each of six sites would change.

What the clusters hold is in memory here: one rule in ten is missing and some are too many. How long a broker takes to
tell its rules is a figure of part ``apply``.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from acl.compile import SetQuota, compile_site
from acl.history import Entry, SuspendedUsers
from acl.kafka import RuleStore
from acl.plan import plan_topology
from acl.rules import Binding, Operation, Pattern, Resource, Rule, Standing
from benchmarks._suite import Say
from benchmarks.access.world import world

HEADLINES = ("plan_seconds",)


class Held:
    """Rules that a cluster holds, in memory."""

    def __init__(self, bindings: frozenset[Binding]) -> None:
        self._bindings = bindings

    def read(self) -> frozenset[Binding]:
        return self._bindings

    def add(self, bindings: Iterable[Binding]) -> None:
        raise NotImplementedError

    def remove(self, bindings: Iterable[Binding]) -> None:
        raise NotImplementedError

    def standing(self, held: frozenset[Binding]) -> Standing:
        return Standing.SUPER

    def note(self, entries: Iterable[Entry], patience: float = 0.0) -> None:
        raise NotImplementedError

    def suspended_users(self) -> SuspendedUsers:
        raise NotImplementedError

    def read_quotas(self) -> dict[str, dict[str, float]]:
        return {}

    def set_quotas(self, changes: Collection[SetQuota]) -> None:
        raise NotImplementedError


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--customers", type=int, default=200)
    parser.add_argument("--owners", type=int, default=20, help="of the customers, those with boxes and a stream")
    parser.add_argument("--containers", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=5)


def measure(options: argparse.Namespace, say: Say) -> dict[str, Any]:
    topology = world(options.customers, options.owners)
    extra = {
        Binding.of(Rule("customer-0000", Resource.TOPIC, Pattern.LITERAL, f"feeds.wrong-{n}", Operation.READ))
        for n in range(20)
    }
    held = {}
    for site in topology.sites:
        wanted = sorted(Binding.of(rule) for rule in compile_site(topology, site))
        held[site] = Held(frozenset(binding for n, binding in enumerate(wanted) if n % 10) | extra)

    @contextmanager
    def store(site: str) -> Iterator[RuleStore]:
        yield held[site]

    rounds = []
    for _ in range(options.rounds):
        began, cpu = time.perf_counter(), time.process_time()
        made = plan_topology(topology, store)
        found = made.identity
        rounds.append({"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - cpu})
    rules = {site.site: site.keep + len(site.add) for site in made.sites}
    figures: dict[str, Any] = {
        "customers": options.customers,
        "owners": options.owners,
        "containers": options.containers,
        "sites": len(topology.sites),
        "rules": sum(rules.values()),
        "rules_by_site": rules,
        "to_add": sum(len(site.add) for site in made.sites),
        "to_remove": sum(len(site.remove) for site in made.sites),
        "plan_seconds": statistics.median(one["seconds"] for one in rounds),
        "plan_cpu_seconds": statistics.median(one["cpu_seconds"] for one in rounds),
        "rounds": rounds,
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "target": {"plan_seconds": 3.0},
    }
    say(f"plan {found}: {figures['rules']:,} rules at {len(rules)} sites in {figures['plan_seconds']:.2f} s")
    return figures
