"""Plans: what changes, in which order, what is left alone, and that telling and doing walk the same steps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import acl.plan as planning
from acl.apply import AccessIncomplete, apply_sites, check_complete
from acl.compile import SetQuota, compile_site
from acl.plan import (
    BATCH,
    AccessPlan,
    AccessRun,
    AddRules,
    Confirm,
    LeaveAlone,
    RemoveRules,
    SetQuotas,
    SitePlan,
    carry_out,
    diff,
    in_words,
    managed_by,
    plan_topology,
)
from acl.rules import Binding
from fairlead.errors import UnavailableError, UnknownNameError
from tests.support.acl.stores_in_memory import MemoryStore, opened, rule
from tests.unit.acl.worlds import outside
from topologies.loader.load import load
from topologies.model import Topology


@pytest.fixture
def topology() -> Topology:
    return load("minimal")


bindings = st.builds(
    Binding,
    st.sampled_from(("User:ducks", "User:admin", "User:*", "User:stranger", "Group:x")),
    st.sampled_from(("TOPIC", "GROUP", "CLUSTER")),
    st.sampled_from(("LITERAL", "PREFIXED")),
    st.sampled_from(("feeds.ducks", "other", "*")),
    st.sampled_from(("READ", "ALL")),
    st.sampled_from(("ALLOW", "DENY")),
    st.sampled_from(("*", "10.0.0.1")),
)


@given(st.frozensets(bindings), st.booleans())
def test_after_a_plan_exactly_the_managed_rules_are_right(actual: frozenset[Binding], ours: bool) -> None:
    topology = load("minimal") if ours else outside(load("minimal"), "tokyo")
    desired = {rule("ducks"), rule("bridge")}
    managed = managed_by(topology, "tokyo")
    plan = diff("tokyo", actual, desired, managed)
    after = (actual | set(plan.add)) - set(plan.remove)
    assert {b for b in after if managed(b)} >= {Binding.of(r) for r in desired}
    assert after - set(plan.alone) == {Binding.of(r) for r in desired}
    assert {b for b in actual if not managed(b)} == {b for b in after if not managed(b)}
    assert diff("tokyo", after, desired, managed).is_empty
    assert not any(b.principal == "User:admin" for b in plan.remove)


def test_on_anothers_cluster_only_known_users_are_touched(topology: Topology) -> None:
    managed = managed_by(outside(topology, "tokyo"), "tokyo")
    for user in ("ducks", "bridge", "replicator", "replicator.gone-site", "shore"):
        assert managed(Binding.of(rule(user)))
    for user in ("payroll", "admin", "ducks2"):
        assert not managed(Binding.of(rule(user)))
    assert managed(Binding.of(rule("*", "containers.X")))
    assert not managed(Binding.of(rule("*", "payroll.X")))
    assert managed_by(topology, "tokyo")(Binding.of(rule("payroll")))


def test_adds_come_before_removals_in_requests_of_bounded_size() -> None:
    add = tuple(Binding.of(rule("a", f"feeds.{n}")) for n in range(BATCH + 1))
    remove = tuple(Binding.of(rule("b", f"feeds.{n}")) for n in range(2 * BATCH))
    alone = (Binding.of(rule("c")),)
    made = SitePlan("tokyo", add, remove, 0, alone).steps
    assert [type(step) for step in made] == [AddRules, AddRules, RemoveRules, RemoveRules, Confirm, LeaveAlone]
    assert [len(step.bindings) for step in made if isinstance(step, AddRules | RemoveRules)] == [BATCH, 1, BATCH, BATCH]
    assert tuple(b for step in made if isinstance(step, AddRules) for b in step.bindings) == add


def test_applying_twice_changes_nothing_the_second_time(topology: Topology) -> None:
    stores = {site: MemoryStore() for site in topology.sites}
    first = apply_sites(topology, opened(stores))
    assert {r.site: r.added for r in first} == {s: len(compile_site(topology, s)) for s in topology.sites}
    second = apply_sites(topology, opened(stores))
    assert all((r.added, r.removed, r.error) == (0, 0, None) for r in second)
    assert [r.kept for r in second] == [r.added for r in first]
    assert all(store.done == ["add"] for store in stores.values())
    assert plan_topology(topology, opened(stores)).is_empty


def test_planning_changes_nothing(topology: Topology) -> None:
    stores = {site: MemoryStore([Binding.of(rule("ducks", "containers.X"))]) for site in topology.sites}
    plan = plan_topology(topology, opened(stores))
    assert not plan.is_empty
    assert all(not store.done and len(store.bindings) == 1 for store in stores.values())


def test_what_others_did_is_undone(topology: Topology) -> None:
    stores = {site: MemoryStore() for site in topology.sites}
    apply_sites(topology, opened(stores))
    store = stores["tokyo"]
    lost = next(iter(store.bindings))
    store.bindings.discard(lost)
    odd = Binding("User:ducks", "TOPIC", "LITERAL", "feeds.ducks", "READ", "DENY", "10.0.0.1")
    wide = Binding.of(rule("ducks", "containers.X"))
    store.bindings |= {odd, wide}
    plan = plan_topology(topology, opened(stores), ["tokyo"])
    assert plan.sites[0].add == (lost,)
    assert set(plan.sites[0].remove) == {odd, wide}
    told = [text for text, _ in plan.drift_lines()]
    assert any("missing" in text for text in told)
    assert any("ducks may not READ topic feeds.ducks from 10.0.0.1" in text for text in told)
    apply_sites(topology, opened(stores))
    assert store.done[-2:] == ["add", "remove"]
    assert plan_topology(topology, opened(stores)).is_empty


@pytest.mark.parametrize(
    ("binding", "drifts"),
    [
        (Binding("User:*", "TOPIC", "LITERAL", "*", "READ"), True),
        (Binding("User:*", "TOPIC", "PREFIXED", "c", "ALL"), True),  # all of containers
        (Binding("User:*", "TOPIC", "LITERAL", "*", "READ", host="10.0.0.1"), True),
        (Binding("User:*", "TOPIC", "LITERAL", "*", "READ", "DENY"), False),
        (Binding("User:*", "TOPIC", "PREFIXED", "payroll", "READ"), False),
        (Binding("User:*", "GROUP", "LITERAL", "*", "READ"), False),
        (Binding("User:payroll", "TOPIC", "LITERAL", "*", "READ"), False),
    ],
)
def test_what_lets_everybody_use_the_topologys_topics_is_drift_and_stays(
    topology: Topology, binding: Binding, drifts: bool
) -> None:
    foreign = outside(topology, "tokyo")
    stores = {"tokyo": MemoryStore()}
    apply_sites(foreign, opened(stores), ["tokyo"])
    stores["tokyo"].bindings.add(binding)
    plan = plan_topology(foreign, opened(stores), ["tokyo"])
    assert plan.is_empty and plan.sites[0].alone == (binding,)
    assert plan.drifts is drifts
    told = [text for text, _ in plan.drift_lines()]
    assert any("as the topology says" in text for text in told) is not drifts
    assert any("left alone: everybody may" in text for text in told) is drifts
    assert sum(text.endswith(next(in_words([binding]))) for text in told) == 1


def test_a_site_that_is_away_holds_up_no_other_and_is_finished_later(topology: Topology) -> None:
    stores = {"tokyo": MemoryStore()}
    told: list[tuple[str, str]] = []
    results = {r.site: r for r in apply_sites(topology, opened(stores), None, lambda s, t: told.append((s, t)))}
    assert results["tokyo"].error is None
    assert isinstance(results["duck-star"].error, UnavailableError)
    assert ("duck-star", "access rules: duck-star does not answer") in told
    with pytest.raises(UnavailableError, match="does not answer"):
        check_complete(results.values())
    plan = plan_topology(topology, opened(stores))
    assert [unread.site for unread in plan.unread] == ["duck-star"]
    assert any("skipped, duck-star does not answer (is it up?)" in text for text, _ in plan.lines())
    assert "1 site could not be read" in plan.totals()
    stores["duck-star"] = MemoryStore()
    check_complete(apply_sites(topology, opened(stores)))
    with pytest.raises(AccessIncomplete, match=r"tokyo .*duck-star"):
        check_complete(apply_sites(topology, opened({})))


def test_an_error_half_way_is_reported_and_the_next_time_does_the_rest(topology: Topology) -> None:
    store = MemoryStore([Binding.of(rule("ducks", "containers.X"))], fail_after=1)
    (result,) = apply_sites(topology, opened({"tokyo": store}), ["tokyo"])
    assert isinstance(result.error, UnavailableError)
    assert (result.added, result.removed) == (len(compile_site(topology, "tokyo")), 0)
    store.fail_after = None
    (again,) = apply_sites(topology, opened({"tokyo": store}), ["tokyo"])
    assert (again.added, again.removed, again.error) == (0, 1, None)


def test_unknown_sites_are_refused_before_anything_is_done(topology: Topology) -> None:
    stores = {site: MemoryStore() for site in topology.sites}
    with pytest.raises(UnknownNameError) as caught:
        apply_sites(topology, opened(stores), ["tokio"])
    assert "did you mean 'tokyo'" in caught.value.hint
    assert not any(store.done for store in stores.values())


def test_a_plan_is_told_as_it_is_done(topology: Topology) -> None:
    plan = plan_topology(topology, opened({site: MemoryStore() for site in topology.sites}))
    told = [text for text, style in plan.lines() if style == "add"]
    assert told == [
        f"  + {line}" for step in plan.steps if isinstance(step, AddRules) for line in in_words(step.bindings)
    ]
    assert "  + ducks may READ topic feeds.ducks" in told
    assert "  + ducks may READ group ducks.*" in told


def test_the_identity_of_a_plan_changes_with_anything_in_it(topology: Topology) -> None:
    one = SitePlan("tokyo", (Binding.of(rule("a")),), (), 0)
    plans = [
        AccessPlan("t", (one,)),
        AccessPlan("u", (one,)),
        AccessPlan("t", ()),
        AccessPlan("t", (SitePlan("tokyo", (), one.add, 0),)),
        AccessPlan("t", (SitePlan("tokyo", one.add, (), 1),)),
    ]
    assert len({plan.identity for plan in plans}) == len(plans)
    assert AccessPlan("t", (one,)).identity == plans[0].identity
    assert plans[0].to_builtins()["plan"] == plans[0].identity


def test_applying_ends_when_the_cluster_shows_the_new_rules(topology: Topology) -> None:
    store = MemoryStore()
    store.stale_reads = 3
    (result,) = apply_sites(topology, opened({"tokyo": store}), ["tokyo"])
    assert result.error is None
    assert store.stale_reads == 0


def test_a_cluster_that_never_shows_them_is_reported(topology: Topology, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "CONFIRM_TIMEOUT", 0.05)
    store = MemoryStore()
    store.stale_reads = 1_000_000
    (result,) = apply_sites(topology, opened({"tokyo": store}), ["tokyo"])
    assert isinstance(result.error, UnavailableError)
    assert "does not show them" in result.error.what


def test_setting_quotas_ends_when_the_cluster_shows_them() -> None:
    store = MemoryStore()
    store.quotas = {"gone": {"producer_byte_rate": 8.0}}
    store.stale_reads = 3
    changes = (
        SetQuota("ducks", "consumer_byte_rate", None, 2e6),
        SetQuota("gone", "producer_byte_rate", 8.0, None),
    )
    carry_out([SetQuotas("tokyo", changes)], AccessRun(store))
    assert store.stale_reads == 0
    assert store.read_quotas() == {"ducks": {"consumer_byte_rate": 2e6}, "gone": {}}


def test_quotas_that_a_cluster_never_shows_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "CONFIRM_TIMEOUT", 0.05)
    store = MemoryStore()
    store.stale_reads = 1_000_000
    with pytest.raises(UnavailableError, match="client quotas and does not show them"):
        carry_out([SetQuotas("tokyo", (SetQuota("ducks", "consumer_byte_rate", None, 2e6),))], AccessRun(store))
