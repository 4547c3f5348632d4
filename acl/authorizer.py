"""How Kafka's StandardAuthorizer decides over all rules of a cluster: DENY, hosts and ALL included. Pure.

``acl.rules`` decides over what Fairlead writes; this decides over what a cluster may hold, whoever made it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from acl.binding import Binding
from acl.rules import Operation, Resource, implying

_EVERYBODY = "User:*"
_ANY = "*"


@dataclass(frozen=True, slots=True)
class Reach:
    """From where somebody may do something.

    Args:
        anywhere: The answer for every host that no rule names.
        hosts: Those for which the answer is the other one.
        allowed_by: The rules that allow it, where it is possible at all.
        denied_by: The rules that deny it.
    """

    anywhere: bool
    hosts: tuple[str, ...]
    allowed_by: tuple[Binding, ...]
    denied_by: tuple[Binding, ...]

    @property
    def possible(self) -> bool:
        """Whether there is a host from which it is allowed."""
        return self.anywhere or bool(self.hosts)


def covers(binding: Binding, resource: Resource, name: str) -> bool:
    """Whether a rule is about a resource, for whomever and whatever it is."""
    if binding.resource != resource.value:
        return False
    if binding.pattern == "PREFIXED":
        return name.startswith(binding.name)
    return binding.name in (name, _ANY)


def decide(
    rules: Iterable[Binding], principal: str, host: str, operation: Operation, resource: Resource, name: str
) -> bool:
    """Whether Kafka lets somebody who is no super user do this from a host: one ALLOW that fits, and no DENY."""
    allowed = False
    for rule in rules:
        if rule.host in (_ANY, host) and _fits(rule, principal, operation, resource, name):
            if rule.permission == "DENY":
                return False
            allowed = True
    return allowed


def reach(rules: Collection[Binding], principal: str, operation: Operation, resource: Resource, name: str) -> Reach:
    """From which hosts Kafka lets somebody do this, and by which rules."""
    fitting = tuple(rule for rule in rules if _fits(rule, principal, operation, resource, name))
    anywhere = decide(fitting, principal, "", operation, resource, name)
    named = sorted({rule.host for rule in fitting} - {_ANY})
    hosts = tuple(h for h in named if decide(fitting, principal, h, operation, resource, name) is not anywhere)
    allow = tuple(rule for rule in fitting if rule.permission != "DENY")
    deny = tuple(rule for rule in fitting if rule.permission == "DENY")
    return Reach(anywhere, hosts, allow if anywhere or hosts else (), deny)


def _fits(rule: Binding, principal: str, operation: Operation, resource: Resource, name: str) -> bool:
    if rule.principal not in (principal, _EVERYBODY) or not covers(rule, resource, name):
        return False
    if rule.operation in ("ALL", operation.value):
        return True
    # Being denied what implies it means nothing for it.
    return rule.permission != "DENY" and rule.operation in implying(operation)
