"""One permission as Kafka enforces it, and Kafka's own way to decide from a set of them. Pure.

Only what Fairlead writes can be said: ALLOW, from any host, on one topic, group, transactional id or the cluster,
by its name or by a prefix. There is no DENY: what is not allowed is denied.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

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
