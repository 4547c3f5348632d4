"""Rules for consumer groups that follow over a link: at both ends what copying offsets needs, and for nobody else."""

from __future__ import annotations

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acl.compile import ResourcePattern, compile_site, pattern_of_glob, reasons
from acl.rules import Operation, Pattern, Resource, Rule, allowing
from fairlead.errors import ConfigurationError
from topologies.model import Topology
from topologies.users import REPLICATOR_GROUPS


def topology(*groups: str, both: bool = False) -> Topology:
    link = {"from": "one", "to": "two", "streams": {"metrics": ["one*"]}, "groups": groups, "both": both}
    return Topology.model_validate(
        {
            "name": "groups",
            "sites": {"one": {"kind": "datacentre"}, "two": {"kind": "datacentre"}},
            "streams": {"metrics": {}, "others": {}},
            "links": [link],
        }
    )


SHARING = Rule("replicator", Resource.GROUP, Pattern.PREFIXED, REPLICATOR_GROUPS, Operation.READ)


def about_groups(topology: Topology, site: str) -> set[Rule]:
    """Return the rules about groups, without the one with which replicators share a site's logs."""
    return {rule for rule in compile_site(topology, site) if rule.resource is Resource.GROUP} - {SHARING}


def test_replicators_of_a_site_may_form_a_group() -> None:
    (why,) = reasons(topology(), "two")[SHARING]
    assert "replicate --group" in why
    assert SHARING not in compile_site(topology(), "one")  # no link leads there: it has no replicator


def test_the_source_lets_offsets_be_read_and_the_target_lets_them_be_committed() -> None:
    world = topology("billing", "audit.*")
    assert about_groups(world, "one") == {
        Rule("replicator.two", Resource.GROUP, Pattern.LITERAL, "billing", Operation.DESCRIBE),
        Rule("replicator.two", Resource.GROUP, Pattern.PREFIXED, "audit.", Operation.DESCRIBE),
    }
    assert about_groups(world, "two") == {
        Rule("replicator", Resource.GROUP, Pattern.LITERAL, "billing", Operation.READ),
        Rule("replicator", Resource.GROUP, Pattern.PREFIXED, "audit.", Operation.READ),
    }
    why = reasons(world, "two")[Rule("replicator", Resource.GROUP, Pattern.LITERAL, "billing", Operation.READ)]
    assert why == ("link one->two: brings offsets of groups billing here",)


def test_a_link_without_groups_gives_no_rule_about_any() -> None:
    assert about_groups(topology(), "one") == about_groups(topology(), "two") == set()


def test_a_group_that_comes_home_may_be_committed_on_the_sites_own_logs_which_stay_unwritten() -> None:
    own = "metrics.one.cpu"
    with_groups, without = compile_site(topology("g", both=True), "one"), compile_site(topology(both=True), "one")
    assert allowing(with_groups, "replicator", Operation.READ, Resource.TOPIC, own)
    assert not allowing(without, "replicator", Operation.READ, Resource.TOPIC, own)
    for operation in (Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER_CONFIGS):
        assert not allowing(with_groups, "replicator", operation, Resource.TOPIC, own)
    assert not allowing(with_groups, "replicator", Operation.READ, Resource.TOPIC, "others.one.cpu")


@pytest.mark.parametrize("pattern", ["*", "", "a*b", "*-billing", "bill?ng", "[ab]*", "a**"])
def test_a_pattern_that_no_rule_can_say_is_refused(pattern: str) -> None:
    assert pattern_of_glob(pattern) is None
    for site in ("one", "two"):
        with pytest.raises(ConfigurationError, match="ACLs cannot express"):
            compile_site(topology(pattern), site)


@given(st.text("ab*?[]", max_size=5), st.text("ab", max_size=6))
def test_a_name_or_prefix_says_exactly_what_the_pattern_says(pattern: str, name: str) -> None:
    extent = pattern_of_glob(pattern)
    if extent is None:
        return
    meant = extent.covers(ResourcePattern(name, Pattern.LITERAL))
    assert meant == fnmatch.fnmatchcase(name, pattern)
