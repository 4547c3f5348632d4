"""Access rules: what Fairlead writes (``Rule``), what a cluster may hold (``Binding``), and how Kafka decides. Pure.

Fairlead writes only ALLOW, from any host, on one topic, group, transactional id or the cluster, by its name or by a
prefix. What is not allowed is denied. A cluster may hold what others made as well: DENY, hosts, ALL; ``decide`` does
over all of it what Kafka's StandardAuthorizer does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum, StrEnum

EVERYBODY = "*"  # the user of a rule that holds for whoever can log in (Kafka's User:*)


class Resource(StrEnum):
    """What a rule is about."""

    TOPIC = "TOPIC"
    GROUP = "GROUP"
    CLUSTER = "CLUSTER"
    TRANSACTIONAL_ID = "TRANSACTIONAL_ID"


class Pattern(StrEnum):
    """How a rule's name is compared."""

    LITERAL = "LITERAL"
    PREFIXED = "PREFIXED"


class Operation(StrEnum):
    """Kafka's operations, as far as anything here needs or asks for them."""

    READ = "READ"
    WRITE = "WRITE"
    CREATE = "CREATE"
    DELETE = "DELETE"
    ALTER = "ALTER"
    DESCRIBE = "DESCRIBE"
    DESCRIBE_CONFIGS = "DESCRIBE_CONFIGS"
    ALTER_CONFIGS = "ALTER_CONFIGS"


# StandardAuthorizer: being allowed one of these means being allowed the other as well.
_IMPLIED_BY = {
    Operation.DESCRIBE: frozenset({Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}


def implying(operation: Operation) -> frozenset[Operation]:
    """The operations of which being allowed one means being allowed this one: itself, and those that imply it."""
    return _IMPLIED_BY.get(operation, frozenset()) | {operation}


@dataclass(frozen=True, slots=True, order=True)
class Rule:
    """``user`` may do ``operation`` on the resources that ``name`` stands for."""

    user: str
    resource: Resource
    pattern: Pattern
    name: str
    operation: Operation

    def covers(self, resource: Resource, name: str) -> bool:
        """Whether the rule is about this resource."""
        if self.resource is not resource:
            return False
        return name.startswith(self.name) if self.pattern is Pattern.PREFIXED else name == self.name

    def allows(self, user: str, operation: Operation, resource: Resource, name: str) -> bool:
        """Whether Kafka would let ``user`` do this because of this rule alone."""
        return (
            self.user in (user, EVERYBODY)
            and (self.operation is operation or self.operation in _IMPLIED_BY.get(operation, ()))
            and self.covers(resource, name)
        )

    def __str__(self) -> str:
        star = "*" if self.pattern is Pattern.PREFIXED else ""
        return f"{self.user} may {self.operation} {self.resource.lower().replace('_', ' ')} {self.name}{star}"


def allowing(rules: Iterable[Rule], user: str, operation: Operation, resource: Resource, name: str) -> tuple[Rule, ...]:
    """The rules that allow this, in order; none means that Kafka refuses it."""
    return tuple(sorted(rule for rule in rules if rule.allows(user, operation, resource, name)))


def implies(wide: Rule, narrow: Rule) -> bool:
    """Whether everything that ``narrow`` allows is allowed by ``wide`` as well."""
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
    """One ACL of a cluster, in Kafka's own words (``CLUSTER`` is the resource that some clients call broker)."""

    principal: str
    resource: str
    pattern: str
    name: str
    operation: str
    permission: str = "ALLOW"
    host: str = "*"

    @property
    def user(self) -> str:
        """The user's name; the whole principal when it is no user."""
        return self.principal.removeprefix(_USER)

    @classmethod
    def of(cls, rule: Rule) -> Binding:
        """The binding that enforces a rule."""
        return cls(_USER + rule.user, rule.resource.value, rule.pattern.value, rule.name, rule.operation.value)

    def rule(self) -> Rule | None:
        """The rule that this is; None for what no rule of Fairlead can say."""
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
"""What to be able to do, with which resource."""


class Standing(Enum):
    """What binds the administrator of a cluster."""

    SUPER = "a super user: nothing"
    CLOSED = "rules; what none is about is forbidden"
    OPEN = "rules; what none is about everybody may do"
    UNKNOWN = "cannot be told: there are no rules yet by which it would show"


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
