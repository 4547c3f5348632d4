"""Define the rules that Fairlead writes (``Rule``) and a cluster's ACLs (``Binding``), and decide as Kafka does. Pure.

Fairlead writes only ALLOW, from any host, on one topic, group, transactional id or the cluster, by its name or by a
prefix. Operations without a rule are denied. A cluster may also hold rules of others, with DENY, hosts, or ALL;
``decide`` evaluates all of them like Kafka's StandardAuthorizer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum, StrEnum

EVERYBODY = "*"  # the user of a rule for everyone who can log in (Kafka's User:*)


class Resource(StrEnum):
    """The type of resource that a rule is about."""

    TOPIC = "TOPIC"
    GROUP = "GROUP"
    CLUSTER = "CLUSTER"
    TRANSACTIONAL_ID = "TRANSACTIONAL_ID"


class Pattern(StrEnum):
    """The way in which a rule's name is matched."""

    LITERAL = "LITERAL"
    PREFIXED = "PREFIXED"


class Operation(StrEnum):
    """The operations of Kafka that Fairlead uses."""

    READ = "READ"
    WRITE = "WRITE"
    CREATE = "CREATE"
    DELETE = "DELETE"
    ALTER = "ALTER"
    DESCRIBE = "DESCRIBE"
    DESCRIBE_CONFIGS = "DESCRIBE_CONFIGS"
    ALTER_CONFIGS = "ALTER_CONFIGS"


# StandardAuthorizer: each operation on the right implies the one on the left.
_IMPLIED_BY = {
    Operation.DESCRIBE: frozenset({Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}


def implying(operation: Operation) -> frozenset[Operation]:
    """Return the operations that allow this one: itself, and those that imply it."""
    return _IMPLIED_BY.get(operation, frozenset()) | {operation}


@dataclass(frozen=True, slots=True, order=True)
class Rule:
    """``user`` may do ``operation`` on the resources that ``name`` matches."""

    user: str
    resource: Resource
    pattern: Pattern
    name: str
    operation: Operation

    def covers(self, resource: Resource, name: str) -> bool:
        """Return whether the rule is about this resource."""
        if self.resource is not resource:
            return False
        return name.startswith(self.name) if self.pattern is Pattern.PREFIXED else name == self.name

    def allows(self, user: str, operation: Operation, resource: Resource, name: str) -> bool:
        """Return whether this rule alone allows ``user`` to do this."""
        return (
            self.user in (user, EVERYBODY)
            and (self.operation is operation or self.operation in _IMPLIED_BY.get(operation, ()))
            and self.covers(resource, name)
        )

    def __str__(self) -> str:
        star = "*" if self.pattern is Pattern.PREFIXED else ""
        return f"{self.user} may {self.operation} {self.resource.lower().replace('_', ' ')} {self.name}{star}"


def allowing(rules: Iterable[Rule], user: str, operation: Operation, resource: Resource, name: str) -> tuple[Rule, ...]:
    """Return the rules that allow this operation, sorted. Kafka refuses it if there is none."""
    return tuple(sorted(rule for rule in rules if rule.allows(user, operation, resource, name)))


def implies(wide: Rule, narrow: Rule) -> bool:
    """Return whether ``wide`` allows everything that ``narrow`` allows."""
    if wide.user not in (narrow.user, EVERYBODY) or wide.resource is not narrow.resource:
        return False
    if narrow.operation is not wide.operation and wide.operation not in _IMPLIED_BY.get(narrow.operation, ()):
        return False
    if wide.pattern is Pattern.LITERAL:
        return narrow.pattern is Pattern.LITERAL and wide.name == narrow.name
    return narrow.name.startswith(wide.name)


_USER = "User:"


@dataclass(frozen=True, slots=True, order=True)
class Binding:
    """One ACL of a cluster in Kafka's terms (some clients call the resource ``CLUSTER`` broker)."""

    principal: str
    resource: str
    pattern: str
    name: str
    operation: str
    permission: str = "ALLOW"
    host: str = "*"

    @property
    def user(self) -> str:
        """The user's name; the whole principal where it is not a user."""
        return self.principal.removeprefix(_USER)

    @classmethod
    def of(cls, rule: Rule) -> Binding:
        """Return the binding of a rule."""
        return cls(_USER + rule.user, rule.resource.value, rule.pattern.value, rule.name, rule.operation.value)

    def rule(self) -> Rule | None:
        """Return the same as a rule; None where a rule cannot express it."""
        if self.permission != "ALLOW" or self.host != "*" or not self.principal.startswith(_USER):
            return None
        try:
            return Rule(self.user, Resource(self.resource), Pattern(self.pattern), self.name, Operation(self.operation))
        except ValueError:
            return None

    def __str__(self) -> str:
        if (rule := self.rule()) is not None:
            return str(rule)
        star = "*" if self.pattern == "PREFIXED" else ""
        verb = "may" if self.permission == "ALLOW" else "may not"
        where = "" if self.host == "*" else f" from {self.host}"
        return f"{self.user} {verb} {self.operation} {self.resource.lower()} {self.name}{star}{where}"


Right = tuple[Operation, Resource, str]
"""An operation on a resource."""


class Standing(Enum):
    """How rules bind the administrator of a cluster."""

    SUPER = "a super user: not bound by rules"
    CLOSED = "bound by rules; what no rule is about is refused"
    OPEN = "bound by rules; what no rule is about is allowed"
    UNKNOWN = "unknown: no rule shows it yet"


_EVERYBODY = "User:*"
_ANY = "*"


@dataclass(frozen=True, slots=True)
class Reach:
    """The hosts from which a user may do an operation.

    Args:
        anywhere: Whether it is allowed from the hosts that no rule names.
        hosts: The hosts with the opposite answer.
        allowed_by: The rules that allow it, if it is allowed from any host.
        denied_by: The rules that deny it.
    """

    anywhere: bool
    hosts: tuple[str, ...]
    allowed_by: tuple[Binding, ...]
    denied_by: tuple[Binding, ...]

    @property
    def possible(self) -> bool:
        """Whether it is allowed from any host."""
        return self.anywhere or bool(self.hosts)


def covers(binding: Binding, resource: Resource, name: str) -> bool:
    """Return whether a rule is about a resource, whatever its user and operation."""
    if binding.resource != resource.value:
        return False
    if binding.pattern == "PREFIXED":
        return name.startswith(binding.name)
    return binding.name in (name, _ANY)


def decide(
    rules: Iterable[Binding], principal: str, host: str, operation: Operation, resource: Resource, name: str
) -> bool:
    """Return whether Kafka allows this from a host to a user who is not a super user: an ALLOW matches, and no DENY."""
    allowed = False
    for rule in rules:
        if rule.host in (_ANY, host) and _fits(rule, principal, operation, resource, name):
            if rule.permission == "DENY":
                return False
            allowed = True
    return allowed


def reach(rules: Collection[Binding], principal: str, operation: Operation, resource: Resource, name: str) -> Reach:
    """Return the hosts from which Kafka allows this, and the rules that decide it."""
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
    # A DENY of an operation does not deny the operations that it implies.
    return rule.permission != "DENY" and rule.operation in implying(operation)


def authorize(rules: Iterable[Binding], user: str, right: Right, host: str, *, open_by_default: bool) -> bool:
    """Return whether Kafka allows a right, from a host, to a user who is not a super user.

    The cluster's default (``allow.everyone.if.no.acl.found``) decides about resources without any rule. If a resource
    has a rule, whomever it names, everybody needs an ALLOW.
    """
    operation, resource, name = right
    about = [rule for rule in rules if covers(rule, resource, name)]
    return (open_by_default and not about) or decide(about, f"User:{user}", host, operation, resource, name)


def hosts(rules: Iterable[Binding]) -> tuple[str, ...]:
    """Return every host that a rule names, and the empty text, which stands for a host that no rule names."""
    return tuple(sorted({rule.host for rule in rules} - {"*"} | {""}))
