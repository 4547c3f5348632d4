"""The cost of access rules: planning, applying, and what their number grows with.

    python -m benchmarks.access [--only plan,sites,apply,growth] [--customers N] [--containers N] ...

``plan``: planning for 200 customers at six sites with 50,000 containers; rules in memory, of which one in ten is
missing and some are too many. ``sites``: the same at six real brokers. ``apply``: 2,000 changed rules at one real
broker, half of them missing and half too many. ``growth``: the number of rules in worlds of several sizes.

Use a machine that does nothing else. The options make the benchmark smaller, for trying out.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from acl.apply import apply_sites, check_complete
from acl.compile import SetQuota, compile_site
from acl.history import Entry, SuspendedUsers
from acl.kafka import OpenStore, RuleStore, admin_stores
from acl.plan import plan_topology
from acl.rules import Binding, Operation, Pattern, Resource, Rule, Standing
from benchmarks.harness import Figures, Say, main
from fairlead.local.sites import LocalSites, SiteSpec
from topologies.endpoints import EndpointResolver
from topologies.model import Customer, InsertPoint, Link, Permissions, Shore, Site, SiteKind, Stream, Topology, User

PORTS: Final = ("tokyo", "singapore", "sydney")
SHIPS: Final = {"duck-star": "9074729", "blue-marlin": "9321483"}
HQ: Final = "los-angeles"
CONTAINERS: Final = "containers"
_SHARED: Final = ("custody", "alerts", "events", "ships", "bookings", "strays")


def world(customers: int, owners: int) -> Topology:
    """So many customers, each with a feed at one of the ports or at headquarters; the first of them own boxes, which
    are in streams of their own that they may read everywhere ashore."""
    ashore = (HQ, *PORTS)
    sites = {HQ: Site(kind=SiteKind.HQ)}
    sites |= {port: Site(kind=SiteKind.PORT) for port in PORTS}
    sites |= {ship: Site(kind=SiteKind.SHIP, imo=imo) for ship, imo in SHIPS.items()}
    names = [f"customer-{number:04}" for number in range(customers)]
    people = {
        name: Customer(
            feed_at=ashore[number % len(ashore)],
            reads_at=ashore if number < owners else (),
            groups=("owners",) if number < owners else (),
        )
        for number, name in enumerate(names)
    }
    moving: dict[str, Stream] = {CONTAINERS: _stream("g:analysts")}
    moving |= {stream_of(number): _stream(f"u:{names[number]} | g:analysts") for number in range(owners)}
    shared = {
        name: Stream(
            insert_point=InsertPoint.SHIP if name == "ships" else InsertPoint.SITE,
            permissions=Permissions(consume="g:analysts"),
        )
        for name in _SHARED
    }
    feeds = {"feeds": Stream(insert_point=InsertPoint.SHORE)}
    both = {name: "all" for name in (*shared, *moving)}
    aboard = {name: "aboard" for name in moving}
    links = [
        *(_link(HQ, port, {**both, "feeds": "all"}) for port in PORTS),
        *(_link(one, two, both) for one, two in (PORTS[:2], PORTS[1:], (PORTS[0], PORTS[2]))),
        *(_link(ship, HQ, dict.fromkeys(_SHARED[:4], "all")) for ship in SHIPS),
        *(_link(ship, port, both, when="berthed", one_way=True) for ship in SHIPS for port in PORTS),
        *(_link(port, ship, aboard, when="berthed", one_way=True) for ship in SHIPS for port in PORTS),
    ]
    return Topology(
        name="access-benchmark",
        sites=sites,
        streams={**moving, **shared, **feeds},
        links=tuple(links),
        customers=people,
        users={f"analyst-{number}": User(at=ashore, groups=("analysts",)) for number in range(5)},
        shore=Shore(at=HQ),
    )


def stream_of(owner: int) -> str:
    """The stream of an owner's boxes."""
    return f"owner-{owner:03}"


def _stream(consume: str) -> Stream:
    return Stream(insert_point=InsertPoint.MOVES, permissions=Permissions(consume=consume))


def _link(source: str, target: str, streams: Mapping[str, Any], *, when: str = "always", one_way: bool = False) -> Link:
    return Link.model_validate(
        {"from": source, "to": target, "streams": dict(streams), "when": when, "both": not one_way}
    )


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


def measure_plan(options: argparse.Namespace, say: Say) -> Figures:
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


def measure_sites(options: argparse.Namespace, say: Say) -> Figures:
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


def measure_apply(options: argparse.Namespace, say: Say) -> Figures:
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


def measure_growth(options: argparse.Namespace, say: Say) -> Figures:
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


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--customers", type=int, default=200)
    parser.add_argument("--owners", type=int, default=20, help="of the customers, those with boxes and a stream")
    parser.add_argument("--containers", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--site-rounds", type=int, default=5)
    parser.add_argument("--changes", type=int, default=2_000)
    parser.add_argument("--apply-owners", type=int, default=60, help="owners of boxes, for enough rules to be missing")
    parser.add_argument("--apply-rounds", type=int, default=5)
    parser.add_argument("--share", type=float, default=0.5, help="of the containers, those of customers")


PARTS: Final = {"plan": measure_plan, "sites": measure_sites, "apply": measure_apply, "growth": measure_growth}

if __name__ == "__main__":
    main("access", PARTS, __doc__, add_options)
