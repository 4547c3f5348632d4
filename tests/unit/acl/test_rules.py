"""Rules decide as Kafka's StandardAuthorizer does, and one rule implies another only if it really allows as much."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from acl.rules import Binding, Operation, Pattern, Resource, Rule, allowing, implies

names = st.sampled_from(("red.", "red", "reds.", "red.A", "red.AB", "r"))
users = st.sampled_from(("ann", "bob", "*"))
rules = st.builds(Rule, users, st.sampled_from(Resource), st.sampled_from(Pattern), names, st.sampled_from(Operation))
TOPICS = ("red", "red.", "red.A", "red.AB", "red.ABC", "reds.A", "r", "rx")


@given(rules, rules)
def test_an_implied_rule_allows_nothing_more(wide: Rule, narrow: Rule) -> None:
    asked = [(u, o, res, t) for u in ("ann", "bob", "eve") for o in Operation for res in Resource for t in TOPICS]
    more = [request for request in asked if narrow.allows(*_request(request)) and not wide.allows(*_request(request))]
    if implies(wide, narrow):
        assert more == []


def _request(asked: tuple[str, Operation, Resource, str]) -> tuple[str, Operation, Resource, str]:
    return asked


@given(rules)
def test_every_rule_implies_itself(rule: Rule) -> None:
    assert implies(rule, rule)


@given(rules)
def test_a_rule_survives_the_cluster(rule: Rule) -> None:
    assert Binding.of(rule).rule() == rule


def test_reading_includes_describing_and_not_the_other_way_round() -> None:
    read = Rule("ann", Resource.TOPIC, Pattern.PREFIXED, "red.", Operation.READ)
    describe = Rule("ann", Resource.TOPIC, Pattern.PREFIXED, "red.", Operation.DESCRIBE)
    assert allowing([read], "ann", Operation.DESCRIBE, Resource.TOPIC, "red.A") == (read,)
    assert not allowing([describe], "ann", Operation.READ, Resource.TOPIC, "red.A")
    create = Rule("ann", Resource.TOPIC, Pattern.PREFIXED, "red.", Operation.CREATE)
    assert not allowing([create], "ann", Operation.DESCRIBE, Resource.TOPIC, "red.A")


def test_what_no_rule_can_say_is_no_rule() -> None:
    plain = Binding.of(Rule("ann", Resource.TOPIC, Pattern.LITERAL, "red.A", Operation.READ))
    for odd in (
        {"permission": "DENY"},
        {"host": "10.0.0.1"},
        {"operation": "ALL"},
        {"resource": "DELEGATION_TOKEN"},
        {"principal": "Group:x"},
    ):
        fields = {name: getattr(plain, name) for name in Binding.__slots__} | odd
        assert Binding(**fields).rule() is None
