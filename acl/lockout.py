"""Whether a change of rules would lock the administrator out of a cluster. Pure.

Who may no longer ALTER the cluster cannot take a rule back, so such a change is refused whatever plan asks for it. Of
the clusters that Fairlead starts the administrator is a super user, whom no rule binds.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from acl.authorizer import covers, decide
from acl.binding import Binding
from acl.entries import TOPIC as HISTORY
from acl.plan import Lockout, SitePlan
from acl.rules import Operation, Resource
from fairlead.errors import RefusedError
from fairlead.records.alert import ALERT_ORDERS
from fairlead.records.custody import CUSTODY_ORDERS
from topologies.users import ADMIN

Right = tuple[Operation, Resource, str]
"""What to be able to do, with which resource."""

CLUSTER_RIGHTS: tuple[Right, ...] = tuple(
    (operation, Resource.CLUSTER, "kafka-cluster") for operation in (Operation.DESCRIBE, Operation.ALTER)
)
"""Without these nobody can read or change rules."""

TOPIC_RIGHTS: tuple[Right, ...] = tuple(
    (operation, Resource.TOPIC, topic)
    for topic in (HISTORY, "fairlead.orders", CUSTODY_ORDERS, ALERT_ORDERS)
    for operation in (Operation.CREATE, Operation.WRITE, Operation.READ)
)
"""What the administrator does at a site besides."""


class Standing(Enum):
    """What binds the administrator of a cluster."""

    SUPER = "a super user: nothing"
    CLOSED = "rules; what none is about is forbidden"
    OPEN = "rules; what none is about everybody may do"
    UNKNOWN = "cannot be told: there are no rules yet by which it would show"


class LockedOut(RefusedError):
    """After this change the administrator could no longer administer; nothing was changed at that site."""


def foresee_lockout(site: str, held: frozenset[Binding], plan: SitePlan, standing: Standing) -> Lockout | None:
    """Whether ``check_lockout`` would refuse this change if it were made now, and what it would say."""
    lost = losses(held, plan.add, plan.remove, standing)
    if not lost:
        return None
    rights = ", ".join(dict.fromkeys(_told(right) for right in lost))
    hint = (
        f"give {ADMIN} these rights by rules of its own first, or make it a super user of that cluster; and see that "
        "no DENY speaks of it"
    )
    return Lockout(site, tuple(" ".join(right) for right in lost), f"{ADMIN} could no longer {rights}", hint)


def check_lockout(site: str, held: frozenset[Binding], plan: SitePlan, standing: Standing) -> None:
    """Refuse a change by which the administrator loses what it needs.

    Raises:
        LockedOut: with the rights that would be lost.
    """
    found = foresee_lockout(site, held, plan, standing)
    if found is not None:
        raise LockedOut(
            f"after this plan {found.why} at site {site}; nothing was changed there",
            hint=found.hint,
            site=site,
            lost=list(found.lost),
        )


def losses(
    held: frozenset[Binding], add: Iterable[Binding], remove: Iterable[Binding], standing: Standing
) -> tuple[Right, ...]:
    """The rights that the administrator has now and would not have during or after the change, from any host.

    Where its standing cannot be told, rights on topics are not judged: they can be given back by whoever keeps those on
    the cluster, which are judged for either default.
    """
    if standing is Standing.SUPER:
        return ()
    between = held | frozenset(add)
    after = between - frozenset(remove)
    defaults = {Standing.CLOSED: (False,), Standing.OPEN: (True,), Standing.UNKNOWN: (False, True)}[standing]
    rights = CLUSTER_RIGHTS if standing is Standing.UNKNOWN else CLUSTER_RIGHTS + TOPIC_RIGHTS

    def lost(right: Right, host: str, default: bool) -> bool:
        before, *later = (
            authorize(rules, ADMIN, right, host, open_by_default=default) for rules in (held, between, after)
        )
        return before and not all(later)

    return tuple(
        right for right in rights if any(lost(right, host, default) for host in hosts(between) for default in defaults)
    )


def authorize(rules: Iterable[Binding], user: str, right: Right, host: str, *, open_by_default: bool) -> bool:
    """Whether Kafka lets a user who is no super user do something from a host.

    What no rule at all is about follows the cluster's default (``allow.everyone.if.no.acl.found``); as soon as one rule
    is, whomever it names, everybody needs an ALLOW.
    """
    operation, resource, name = right
    about = [rule for rule in rules if covers(rule, resource, name)]
    return (open_by_default and not about) or decide(about, f"User:{user}", host, operation, resource, name)


def hosts(rules: Iterable[Binding]) -> tuple[str, ...]:
    """Every host that a rule names, and one that none names (the empty text)."""
    return tuple(sorted({rule.host for rule in rules} - {"*"} | {""}))


def _told(right: Right) -> str:
    operation, resource, name = right
    return f"{operation} the cluster" if resource is Resource.CLUSTER else f"{operation} topic {name}"
