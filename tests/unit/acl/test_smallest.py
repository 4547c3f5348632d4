"""Merging grants: the quick way finds what comparing every rule with every other finds."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from acl.compile import RuleGrant, smallest
from acl.rules import Operation, Pattern, Resource, Rule, implies
from tests.support.examples import examples

rules = st.builds(
    Rule,
    st.sampled_from(("a", "b", "*")),
    st.sampled_from((Resource.TOPIC, Resource.GROUP)),
    st.sampled_from(Pattern),
    st.sampled_from(("", "x", "x.", "x.y", "x.yz", "y")),
    st.sampled_from(Operation),
)


@settings(max_examples=examples(300))
@given(st.lists(st.builds(RuleGrant, rules, st.sampled_from("pqr")), max_size=25))
def test_exactly_the_rules_that_no_other_implies_are_kept_with_all_reasons(given_: list[RuleGrant]) -> None:
    kept = smallest(given_)
    everything = {grant.rule for grant in given_}
    assert set(kept) == {r for r in everything if not any(implies(other, r) for other in everything - {r})}
    assert list(kept) == sorted(kept)
    for grant in given_:
        assert any(grant.because in why for rule, why in kept.items() if implies(rule, grant.rule))
    for rule, why in kept.items():
        assert len(set(why)) == len(why)
        assert {g.because for g in given_ if g.rule == rule} <= set(why)
        assert set(why) <= {g.because for g in given_ if implies(rule, g.rule)}
