"""Saved plans: what a file holds, which files are refused, and when a plan is no longer true at a site."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acl.apply import NotPlanned, apply_sites, check_complete
from acl.compile import compile_site
from acl.history import Phase, RulesChange
from acl.plan import FEW, AccessPlan, SitePlan, TooManyRemovals, check_removals, diff, parse_share, plan_topology
from acl.rules import Binding, Operation, Pattern, Resource, Rule
from acl.saved import PlanFileError, PlanState, StalePlan, load, remaining, save
from fairlead.errors import ConfigurationError, RefusedError, UnavailableError
from tests.support.acl.stores_in_memory import MemoryStore, opened, rule
from tests.unit.acl.worlds import outside
from topologies.loader.load import load as load_topology
from topologies.model import Topology

SITE = "tokyo"
DESIRED = frozenset(rule(user, name) for user in ("ducks", "bridge") for name in ("feeds.a", "feeds.b", "feeds.c"))
OLD = frozenset(Binding.of(rule("old", name)) for name in ("feeds.a", "feeds.b", "feeds.c"))
ALONE = Binding.of(rule("stranger"))


def managed(binding: Binding) -> bool:
    return binding.user != "stranger"


def plan_of(held: Iterable[Binding]) -> SitePlan:
    return diff(SITE, tuple(held), DESIRED, managed)


@pytest.fixture
def topology() -> Topology:
    return load_topology("minimal")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "rules.plan"


def test_a_plan_comes_back_from_its_file_as_it_was(topology: Topology, file: Path) -> None:
    store = MemoryStore([Binding.of(rule("ducks", "containers.X")), ALONE])
    plan = plan_topology(outside(topology, SITE), opened({SITE: store}))
    assert plan.unread and plan.sites[0].alone == (ALONE,)
    save(plan, file)
    assert load(file, topology.name).content == plan
    save(AccessPlan(topology.name, ()), file)
    assert load(file, topology.name).content == AccessPlan(topology.name, ())


def changed(text: str, **values: object) -> str:
    return json.dumps({**json.loads(text), **values})


def test_files_that_are_no_plan_of_this_topology_are_refused(topology: Topology, file: Path) -> None:
    plan = plan_topology(topology, opened({SITE: MemoryStore([next(iter(OLD))])}))
    save(plan, file)
    good = file.read_text(encoding="utf-8")
    body = json.loads(good)
    body["sites"][0]["add"] = body["sites"][0]["add"][1:]
    moved = json.loads(good)
    moved["sites"][0]["held"] = "0" * 32
    for text, says in (
        (json.dumps(body), "was changed after it was made"),
        (json.dumps(moved), "was changed after it was made"),
        (changed(good, plan="0" * 16), "was changed after it was made"),
        (changed(good, fairlead_plan=2), "is of version 2, this Fairlead reads version 1"),
        (changed(good, fairlead_plan=2, sites={"a": "new form"}), "is of version 2"),
        (changed(good, extra=1), "or it is damaged"),
        (good[: len(good) // 2], "or it is damaged"),
        ("{}", "is no plan"),
        ("[" * 100_000, "is no plan"),
        ("\xff", "is no plan"),
        ("", "is no plan"),
    ):
        file.write_text(text, encoding="latin-1")
        with pytest.raises(PlanFileError, match=says) as caught:
            load(file, topology.name)
        assert caught.value.hint
    file.write_text(good, encoding="utf-8")
    with pytest.raises(PlanFileError, match="for topology 'minimal', not for 'big-blue'"):
        load(file, "big-blue")
    with pytest.raises(PlanFileError, match="cannot be read"):
        load(file.with_name("none"), topology.name)
    with pytest.raises(UnavailableError, match="cannot be written"):
        save(plan, file / "below-a-file")


@given(st.data())
def test_whatever_an_interrupted_apply_leaves_is_gone_on_with(data: st.DataObject) -> None:
    held = data.draw(st.sets(st.sampled_from(sorted(OLD | {Binding.of(r) for r in DESIRED} | {ALONE}))))
    planned = plan_of(held)
    added = data.draw(st.integers(0, len(planned.add)))
    removed = data.draw(st.integers(0, len(planned.remove))) if added == len(planned.add) else 0
    now = (held | set(planned.add[:added])) - set(planned.remove[:removed])
    left = remaining(planned, now, DESIRED, managed)
    assert (now | set(left.plan.add)) - set(left.plan.remove) == {Binding.of(r) for r in DESIRED} | (held & {ALONE})
    assert left.before == len([b for b in held if managed(b)])
    if not planned.is_empty:
        assert (left.state is PlanState.DONE) == left.plan.is_empty
        assert (left.state is PlanState.NEW) == (now == held)


@given(st.data())
def test_any_other_state_is_refused_and_a_plan_never_does_more_than_a_new_one(data: st.DataObject) -> None:
    universe = sorted(OLD | {Binding.of(r) for r in DESIRED} | {ALONE, Binding.of(rule("ducks", "containers.X"))})
    held = data.draw(st.sets(st.sampled_from(universe)))
    now = data.draw(st.sets(st.sampled_from(universe)))
    planned = plan_of(held)
    add, remove = set(planned.add), set(planned.remove)
    on_the_way = (now - add) | remove == held and (add <= now or remove <= now)
    try:
        left = remaining(planned, now, DESIRED, managed)
    except StalePlan as stale:
        assert not on_the_way
        assert stale.fields["differs"], "it says what differs"
    else:
        assert on_the_way
        assert left.plan == plan_of(now)


def test_a_stale_plan_says_what_differs() -> None:
    planned = plan_of(OLD)
    strange = Binding("User:ducks", "TOPIC", "LITERAL", "feeds.a", "READ", "DENY", "10.0.0.1")
    with pytest.raises(StalePlan) as caught:
        remaining(planned, {strange, *sorted(OLD)[1:]}, DESIRED, managed)
    assert "+ ducks may not READ topic feeds.a from 10.0.0.1" in caught.value.what
    assert "- old may READ topic feeds.a" in caught.value.what
    assert "fairlead acl plan --out" in caught.value.hint


def test_a_topology_that_changed_since_makes_a_plan_stale() -> None:
    planned = plan_of(OLD)
    for desired in (DESIRED | {rule("new")}, frozenset(sorted(DESIRED)[1:])):
        with pytest.raises(StalePlan, match="the topology asks for other rules"):
            remaining(planned, OLD, desired, managed)
    with pytest.raises(StalePlan, match="the topology asks for other rules"):
        remaining(planned, OLD, DESIRED, lambda binding: binding.user not in ("old", "stranger"))


def test_a_forged_plan_cannot_do_what_a_new_one_would_not() -> None:
    """Whoever writes a file with a right identity still gets no other rules than those of the topology."""
    honest = plan_of(OLD)
    evil = Binding("User:ducks", "CLUSTER", "LITERAL", "kafka-cluster", "ALTER")
    for add, remove, held in (
        ((*honest.add, evil), honest.remove, honest.held),
        (honest.add, (*honest.remove, ALONE), honest.held),
        (honest.add[1:], honest.remove, honest.held),
        (honest.add, honest.remove[1:], honest.held),
        ((evil,), (), plan_of({Binding.of(r) for r in DESIRED}).held),
    ):
        forged = SitePlan(SITE, add, remove, honest.keep, (), held, honest.wanted)
        for now in (OLD, OLD | {ALONE}, OLD | {evil}, frozenset(map(Binding.of, DESIRED))):
            try:
                left = remaining(forged, now, DESIRED, managed)
            except StalePlan:
                continue
            assert left.plan == plan_of(now)


def test_a_saved_plan_is_applied_per_site(topology: Topology) -> None:
    stores = {site: MemoryStore() for site in topology.sites}
    saved = plan_topology(topology, opened(stores))
    stores["duck-star"].bindings.add(ALONE)
    told: list[str] = []
    results = {r.site: r for r in apply_sites(topology, opened(stores), None, lambda s, t: told.append(t), saved=saved)}
    assert results[SITE].error is None and results[SITE].state is PlanState.NEW
    assert isinstance(results["duck-star"].error, StalePlan)
    assert not stores["duck-star"].done and not stores["duck-star"].entries
    stores["duck-star"].bindings.clear()
    again = {r.site: r for r in apply_sites(topology, opened(stores), None, lambda s, t: told.append(t), saved=saved)}
    assert (again[SITE].state, again[SITE].added) == (PlanState.DONE, 0)
    assert again["duck-star"].error is None
    assert any("the plan is done already" in text for text in told)
    assert plan_topology(topology, opened(stores)).is_empty


def test_a_saved_plan_goes_on_where_it_was_interrupted(topology: Topology) -> None:
    old = Binding.of(rule("ducks", "containers.X"))
    store = MemoryStore([old], fail_after=1)
    saved = plan_topology(topology, opened({SITE: store}), [SITE])
    (first,) = apply_sites(topology, opened({SITE: store}), [SITE], saved=saved)
    assert isinstance(first.error, UnavailableError) and old in store.bindings
    store.fail_after = None
    (second,) = apply_sites(topology, opened({SITE: store}), [SITE], saved=saved)
    assert (second.state, second.added, second.removed, second.error) == (PlanState.BEGUN, 0, 1, None)
    notes = [entry for entry in store.entries if isinstance(entry, RulesChange)]
    assert [note.phase for note in notes] == [Phase.INTENT, Phase.FAILED, Phase.INTENT, Phase.DONE]
    assert {note.plan for note in notes} == {saved.identity}
    assert (notes[1].added, notes[1].removed, notes[1].error) == (first.added, 0, "the site is gone")


def test_a_site_that_was_away_when_the_plan_was_made_needs_a_new_one(topology: Topology) -> None:
    saved = plan_topology(topology, opened({SITE: MemoryStore()}))
    stores = {site: MemoryStore() for site in topology.sites}
    results = {r.site: r for r in apply_sites(topology, opened(stores), saved=saved)}
    error = results["duck-star"].error
    assert isinstance(error, NotPlanned) and not error.retriable and "--site duck-star" in error.hint
    assert not stores["duck-star"].done and stores[SITE].done
    with pytest.raises(NotPlanned):
        check_complete(results.values())


def test_many_removals_are_refused_before_anything_is_done(topology: Topology) -> None:
    wide = [Binding.of(rule("ducks", f"containers.{n}")) for n in range(500)]
    store = MemoryStore(wide)
    (result,) = apply_sites(topology, opened({SITE: store}), [SITE])
    assert isinstance(result.error, TooManyRemovals)
    assert "removes 500 of the 500 rules of site tokyo (100%), more than the 30%" in result.error.what
    assert "--allow-removals" in result.error.hint
    assert not store.done and not store.entries and store.bindings == set(wide)
    (result,) = apply_sites(topology, opened({SITE: store}), [SITE], max_removals=1.0)
    assert result.error is None and result.removed == 500


def test_an_interrupted_plan_is_guarded_by_all_that_it_removes(topology: Topology) -> None:
    desired = {Binding.of(r) for r in compile_site(topology, SITE)}
    wide = {Binding.of(rule("ducks", f"containers.{n}")) for n in range(len(desired))}
    store = MemoryStore(wide | desired)
    saved = plan_topology(topology, opened({SITE: store}), [SITE])
    store.bindings -= set(sorted(wide)[FEW:])
    (result,) = apply_sites(topology, opened({SITE: store}), [SITE], saved=saved)
    assert isinstance(result.error, TooManyRemovals) and "(50%)" in result.error.what


@pytest.mark.parametrize(
    ("removals", "before", "share", "fine"),
    [(10, 10, 0.3, True), (11, 11, 0.3, False), (30, 100, 0.3, True), (31, 100, 0.3, False), (31, 100, 1.0, True)],
)
def test_the_guard_counts_shares_of_what_was_there(removals: int, before: int, share: float, fine: bool) -> None:
    plan = SitePlan(SITE, (), tuple(Binding.of(rule("a", f"x.{n}")) for n in range(removals)), 0)
    if fine:
        check_removals(plan, before, share)
    else:
        with pytest.raises(TooManyRemovals):
            check_removals(plan, before, share)


def test_shares_are_read_as_people_write_them() -> None:
    assert (parse_share("30%"), parse_share("0.3"), parse_share("100%"), parse_share("0")) == (0.3, 0.3, 1.0, 0.0)
    for wrong in ("30", "much", "-1%", "nan", "101%", ""):
        with pytest.raises(ConfigurationError, match="no share"):
            parse_share(wrong)


def test_refusals_at_several_sites_end_as_refused(topology: Topology) -> None:
    wide = [Binding.of(Rule("a", Resource.TOPIC, Pattern.LITERAL, f"x.{n}", Operation.READ)) for n in range(999)]
    stores = {site: MemoryStore(wide) for site in topology.sites}
    results = apply_sites(topology, opened(stores))
    with pytest.raises(RefusedError, match=r"tokyo .*duck-star|duck-star .*tokyo"):
        check_complete(results)
