"""Kafka's way to decide, rule by rule. ``tests/integration/acl/test_audit.py`` asks a broker the same."""

from __future__ import annotations

import pytest

from acl.rules import Binding, Operation, Resource, decide, reach

LOG = "containers.BIGU1000016"


def rule(
    user: str = "duck",
    name: str = LOG,
    *,
    operation: str = "READ",
    pattern: str = "LITERAL",
    permission: str = "ALLOW",
    host: str = "*",
    resource: str = "TOPIC",
) -> Binding:
    return Binding(f"User:{user}", resource, pattern, name, operation, permission, host)


def reads(*rules: Binding, user: str = "duck", host: str = "10.0.0.1") -> bool:
    return decide(rules, f"User:{user}", host, Operation.READ, Resource.TOPIC, LOG)


@pytest.mark.parametrize(
    "one",
    [
        rule(),
        rule(user="*"),
        rule(name="*"),
        rule(operation="ALL"),
        rule(name="containers.", pattern="PREFIXED"),
        rule(name="c", pattern="PREFIXED"),
        rule(host="10.0.0.1"),
        rule(user="*", name="*", operation="ALL"),
    ],
)
def test_one_rule_is_enough_and_a_denial_of_the_same_wins_over_it(one: Binding) -> None:
    assert reads(one)
    denial = Binding(
        one.principal, one.resource, one.pattern, one.name, one.operation, permission="DENY", host=one.host
    )
    assert not reads(one, denial)
    assert not reads(rule(), rule(user="*"), rule(name="*"), denial)


@pytest.mark.parametrize(
    "one",
    [
        rule(user="ducks"),
        rule(name="containers.BIGU1000017"),
        rule(name="containers.", pattern="LITERAL"),
        rule(name="*", pattern="PREFIXED"),
        rule(name="containers.BIGU10000160", pattern="PREFIXED"),
        rule(operation="DESCRIBE"),
        rule(operation="WRITE"),
        rule(resource="GROUP"),
        rule(host="10.0.0.2"),
        Binding("Group:duck", "TOPIC", "LITERAL", LOG, "READ"),
    ],
)
def test_what_does_not_let_it_read(one: Binding) -> None:
    assert not reads(one)
    denial = Binding(
        one.principal, one.resource, one.pattern, one.name, one.operation, permission="DENY", host=one.host
    )
    assert reads(rule(), denial), "nor does its denial forbid anything else"


@pytest.mark.parametrize("wider", ["READ", "WRITE", "DELETE", "ALTER"])
def test_an_allowance_means_description_too_and_a_denial_only_what_it_says(wider: str) -> None:
    def described(*rules: Binding) -> bool:
        return decide(rules, "User:duck", "h", Operation.DESCRIBE, Resource.TOPIC, LOG)

    assert described(rule(operation=wider))
    assert described(rule(operation=wider), rule(user="*", operation="READ"), rule(operation="READ", permission="DENY"))
    assert not described(rule(operation=wider), rule(operation="DESCRIBE", permission="DENY"))
    assert not described(rule(operation="DESCRIBE_CONFIGS"))


def test_nobody_reads_without_a_rule() -> None:
    assert not reads()


def test_reach_tells_hosts_apart() -> None:
    def of(*rules: Binding) -> tuple[bool, tuple[str, ...]]:
        got = reach(rules, "User:duck", Operation.READ, Resource.TOPIC, LOG)
        return got.anywhere, got.hosts

    assert of(rule()) == (True, ())
    assert of(rule(host="10.0.0.2"), rule(host="10.0.0.1")) == (False, ("10.0.0.1", "10.0.0.2"))
    assert of(rule(), rule(host="10.0.0.1", permission="DENY")) == (True, ("10.0.0.1",))
    assert of(rule(host="10.0.0.1"), rule(host="10.0.0.1", permission="DENY")) == (False, ())
    assert of(rule(host="10.0.0.1"), rule(permission="DENY")) == (False, ())
    assert of() == (False, ())


def test_reach_says_by_which_rules() -> None:
    allow, deny, other = rule(), rule(permission="DENY", host="10.0.0.1"), rule(user="ducks")
    got = reach([allow, deny, other], "User:duck", Operation.READ, Resource.TOPIC, LOG)
    assert (got.allowed_by, got.denied_by) == ((allow,), (deny,))
    everywhere = rule(permission="DENY")
    got = reach([allow, everywhere], "User:duck", Operation.READ, Resource.TOPIC, LOG)
    assert (got.possible, got.allowed_by, got.denied_by) == (False, (), (everywhere,))
