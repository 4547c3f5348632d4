"""An access rule as a cluster holds it, whoever made it: also what Fairlead never writes (DENY, hosts, ALL). Pure."""

from __future__ import annotations

from dataclasses import dataclass

from acl.rules import Operation, Pattern, Resource, Rule

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
