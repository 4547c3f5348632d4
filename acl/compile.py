"""From a topology to the smallest set of Kafka rules of each site, with the reasons for each rule. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from acl.needs import Grant, LeftOut, all_left_out_of, grants, public_grants
from acl.rules import EVERYBODY, Rule, implies
from topologies.model import Topology
from topologies.users import service_users


def compile_site(topology: Topology, site: str) -> frozenset[Rule]:
    """The rules that should be at a site, and no others: ALLOW only, none of them implied by another."""
    return frozenset(reasons(topology, site))


def reasons(topology: Topology, site: str) -> dict[Rule, tuple[str, ...]]:
    """The same rules, each with why it is there (a rule that covers others has their reasons as well)."""
    users = service_users(topology, site).values()
    everyone = [grant for user in users for grant in grants(topology, user)]
    return smallest([*everyone, *public_grants(topology, site)])


def all_left_out(topology: Topology, site: str) -> tuple[LeftOut, ...]:
    """What the topology permits at a site and the rules do not give, see ``acl.needs.LeftOut``."""
    return tuple(item for user in service_users(topology, site).values() for item in all_left_out_of(topology, user))


def smallest(given: Iterable[Grant]) -> dict[Rule, tuple[str, ...]]:
    """Merge grants into rules of which none implies another, sorted; reasons in order, without repeats."""
    because: dict[Rule, dict[str, None]] = {}
    for grant in given:
        because.setdefault(grant.rule, {})[grant.because] = None
    by_user: dict[str, list[Rule]] = {EVERYBODY: []}
    for rule in because:
        by_user.setdefault(rule.user, []).append(rule)
    kept: dict[Rule, dict[str, None]] = {}
    for rule, why in because.items():
        others = by_user[rule.user] if rule.user == EVERYBODY else by_user[rule.user] + by_user[EVERYBODY]
        wide = _widest(rule, others)
        kept[wide] = {**kept.get(wide, because[wide]), **why}
    return {rule: tuple(kept[rule]) for rule in sorted(kept)}


def _widest(rule: Rule, others: list[Rule]) -> Rule:
    """The rule that implies this one and is implied by no other (itself when there is none)."""
    wider = [other for other in others if other != rule and implies(other, rule)]
    return min(other for other in [rule, *wider] if not any(o != other and implies(o, other) for o in wider))
