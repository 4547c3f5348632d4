"""Client quotas: what a topology says of its customers and users, as Kafka's quotas at each site. Pure.

Kafka counts each broker for itself: a site of three brokers gives a user up to three times its quota.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from topologies.model import Quota, Topology
from topologies.users import is_reserved, service_users
from topologies.values import format_rate

KEYS = {"consume": "consumer_byte_rate", "produce": "producer_byte_rate", "requests": "request_percentage"}
"""Kafka's name of each of the topology's."""
_WORDS = {kafka: word for word, kafka in KEYS.items()}

Quotas = Mapping[str, Mapping[str, float]]
"""Limits by user and Kafka's key."""


@dataclass(frozen=True, slots=True, order=True)
class SetQuota:
    """One quota that becomes another; None stands for none."""

    user: str
    key: str
    old: float | None
    new: float | None


def compile_quotas(topology: Topology, site: str) -> dict[str, dict[str, float]]:
    """The quotas of the users that exist at a site."""
    people: dict[str, Quota] = {name: customer.quota for name, customer in topology.customers.items()}
    people |= {name: user.quota for name, user in topology.users.items()}
    found: dict[str, dict[str, float]] = {}
    for user in service_users(topology, site):
        if user in people:
            limits = {kafka: getattr(people[user], word) for word, kafka in KEYS.items()}
            if wanted := {key: float(value) for key, value in limits.items() if value is not None}:
                found[user] = wanted
    return found


def managed_users(topology: Topology, site: str) -> Callable[[str], bool]:
    """Whose quotas are Fairlead's to change: on its own clusters everybody's but its services', elsewhere those of the
    topology's customers and users."""
    if topology.sites[site].is_local:
        return lambda user: not is_reserved(user)
    return lambda user: user in topology.customers or user in topology.users


def diff_quotas(actual: Quotas, desired: Quotas, managed: Callable[[str], bool]) -> tuple[SetQuota, ...]:
    """What makes ``actual`` equal ``desired`` for the users that are ``managed``; others, and keys that the topology
    does not know, are left alone."""
    changes = [
        SetQuota(user, key, have, want)
        for user in {*actual, *desired}
        if managed(user)
        for key in KEYS.values()
        if (have := actual.get(user, {}).get(key)) != (want := desired.get(user, {}).get(key))
    ]
    return tuple(sorted(changes, key=lambda change: (change.user, change.key)))


def together(changes: Collection[SetQuota]) -> dict[str, dict[str, float | None]]:
    """Changes by user and key, as a cluster is told them."""
    found: dict[str, dict[str, float | None]] = {}
    for change in changes:
        found.setdefault(change.user, {})[change.key] = change.new
    return found


def tell(changes: Collection[SetQuota]) -> Iterator[tuple[str, str]]:
    """One line for each change, and its style."""
    for change in changes:
        word = _WORDS.get(change.key, change.key)
        old, new = _shown(change.key, change.old), _shown(change.key, change.new)
        if change.new is None:
            yield f"  - quota of {change.user}: {word} {old}", "remove"
        elif change.old is None:
            yield f"  + quota of {change.user}: {word} {new}", "add"
        else:
            yield f"  + quota of {change.user}: {word} {new} (was {old})", "add"


def _shown(key: str, value: float | None) -> str:
    if value is None:
        return "none"
    return f"{value:g} %" if key == KEYS["requests"] else format_rate(int(value))
