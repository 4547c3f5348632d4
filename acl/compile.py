"""From a topology to the smallest set of Kafka rules of each site, with the reasons for each rule. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from acl.clauses import all_clauses
from acl.needs import Grant, LeftOut, all_left_out_of, grants, public_grants
from acl.rules import EVERYBODY, Operation, Pattern, Resource, Rule, implies, implying
from topologies.model import Topology
from topologies.users import service_users


def compile_site(topology: Topology, site: str) -> frozenset[Rule]:
    """The rules that should be at a site, and no others: ALLOW only, none of them implied by another."""
    return frozenset(reasons(topology, site))


def reasons(topology: Topology, site: str) -> dict[Rule, tuple[str, ...]]:
    """The same rules, each with why it is there (a rule that covers others has their reasons as well)."""
    users = service_users(topology, site).values()
    stated = all_clauses(topology)
    everyone = [grant for user in users for grant in grants(topology, user, stated)]
    return smallest([*everyone, *public_grants(topology, site)])


def all_left_out(topology: Topology, site: str) -> tuple[LeftOut, ...]:
    """What the topology permits at a site and the rules do not give, see ``acl.needs.LeftOut``."""
    stated, users = all_clauses(topology), service_users(topology, site).values()
    return tuple(item for user in users for item in all_left_out_of(topology, user, stated))


def smallest(given: Iterable[Grant]) -> dict[Rule, tuple[str, ...]]:
    """Merge grants into rules of which none implies another, sorted; reasons in order, without repeats."""
    because: dict[Rule, dict[str, None]] = {}
    for grant in given:
        because.setdefault(grant.rule, {})[grant.because] = None
    index = _Index(because)
    kept: dict[Rule, dict[str, None]] = {}
    for rule, why in because.items():
        wide = _widest(rule, index.wider(rule))
        kept[wide] = {**kept.get(wide, because[wide]), **why}
    return {rule: tuple(kept[rule]) for rule in sorted(kept)}


class _Index:
    """Rules by what implies them: asked by name and by each beginning of it, so that many rules take no longer each."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._named: dict[tuple[str, Resource, Operation], dict[Pattern, dict[str, Rule]]] = {}
        for rule in rules:
            about = self._named.setdefault(_about(rule), {Pattern.LITERAL: {}, Pattern.PREFIXED: {}})
            about[rule.pattern][rule.name] = rule

    def wider(self, rule: Rule) -> list[Rule]:
        """Every other rule that implies this one (``acl.rules.implies``)."""
        names = [rule.name[:length] for length in range(len(rule.name) + 1)]
        found = []
        for user in {rule.user, EVERYBODY}:
            for operation in implying(rule.operation):
                about = self._named.get((user, rule.resource, operation))
                if about is None:
                    continue
                prefixes = about[Pattern.PREFIXED]
                found += [prefixes[name] for name in names if name in prefixes]
                if rule.pattern is Pattern.LITERAL and rule.name in about[Pattern.LITERAL]:
                    found.append(about[Pattern.LITERAL][rule.name])
        return [other for other in found if other != rule]


def _about(rule: Rule) -> tuple[str, Resource, Operation]:
    return rule.user, rule.resource, rule.operation


def _widest(rule: Rule, wider: list[Rule]) -> Rule:
    """The rule that implies this one and is implied by no other (itself when there is none)."""
    if not wider:
        return rule
    return min(other for other in wider if not any(o != other and implies(o, other) for o in wider))
