"""Who is suspended since its password leaked, and that applying gives it nothing until its old sessions are over."""

from __future__ import annotations

import datetime as dt

import pytest

from acl.apply import UserSuspended, apply_sites, nothing_to_readmit
from acl.compile import compile_site
from acl.history import LEAKED, UNTIL, Entry, Phase, UserChange, suspended_users
from acl.plan import plan_topology
from acl.rules import Binding, Rule
from tests.support.acl.stores_in_memory import MemoryStore, opened
from topologies.loader.load import load

NOW = dt.datetime.now(dt.UTC)
LATER = NOW + dt.timedelta(hours=1)
SITE = "tokyo"


def change(action: str, phase: Phase, *, user: str = "ducks", **detail: str) -> UserChange:
    return UserChange(
        at=NOW,
        by="jo",
        host="desk",
        topology="minimal",
        site=SITE,
        change="1",
        phase=phase,
        user=user,
        action=action,
        detail=detail,
    )


BEGUN = change("rotate", Phase.INTENT, **LEAKED)
DONE = change("rotate", Phase.DONE, **LEAKED, **{UNTIL: LATER.isoformat()})
FAILED = change("rotate", Phase.FAILED, **LEAKED)


@pytest.mark.parametrize(
    ("entries", "held"),
    [
        ([], {}),
        ([change("rotate", Phase.INTENT), change("rotate", Phase.DONE)], {}),  # no leak
        ([BEGUN], {"ducks": None}),  # cut off: its rules are away, and the password may be the old one
        ([BEGUN, FAILED], {"ducks": None}),
        ([BEGUN, DONE], {"ducks": LATER}),
        ([BEGUN, change("rotate", Phase.DONE, **LEAKED)], {"ducks": None}),  # sessions never end
        ([BEGUN, change("rotate", Phase.DONE, **LEAKED, **{UNTIL: NOW.isoformat()})], {}),  # that time is over
        ([BEGUN, DONE, change("rotate", Phase.DONE)], {"ducks": LATER}),  # another password ends no session
        ([BEGUN, DONE, change("readmit", Phase.INTENT)], {}),
        ([BEGUN, DONE, change("readmit", Phase.DONE), BEGUN], {"ducks": None}),
        ([BEGUN, DONE, change("readmit", Phase.DONE, user="red")], {"ducks": LATER}),
        ([BEGUN, DONE, change("delete", Phase.DONE)], {}),
    ],
)
def test_who_is_suspended(entries: list[Entry], held: dict[str, dt.datetime | None]) -> None:
    assert suspended_users(entries, NOW) == held


def rules_of(user: str) -> set[Binding]:
    return {Binding.of(rule) for rule in compile_site(load("minimal"), SITE) if rule.user == user}


def store(*entries: Entry) -> MemoryStore:
    """A site without any rules of the customer, and without one of a service."""
    rules: list[Rule] = sorted(compile_site(load("minimal"), SITE))
    missing = next(rule for rule in rules if rule.user == "bridge")
    made = MemoryStore(Binding.of(rule) for rule in rules if rule.user != "ducks" and rule != missing)
    made.entries += entries
    return made


def test_applying_gives_who_is_suspended_nothing_and_says_so() -> None:
    assert rules_of("ducks")
    topology, site = load("minimal"), store(BEGUN, DONE)
    said: list[str] = []
    (result,) = apply_sites(topology, opened({SITE: site}), [SITE], lambda _, text: said.append(text))
    assert (result.error, result.added, result.suspended) == (None, 1, ("ducks",))
    assert rules_of("bridge") <= site.bindings and not rules_of("ducks") & site.bindings
    assert f"ducks is suspended until {LATER:%H:%M:%S} UTC" in said[0] and "--readmit ducks" in said[0]
    (again,) = apply_sites(topology, opened({SITE: site}), [SITE])
    assert (again.added, again.suspended, again.error) == (0, ("ducks",), None)


def test_a_saved_plan_is_done_as_it_is_or_not_at_all() -> None:
    topology, site = load("minimal"), store(BEGUN, DONE)
    saved = plan_topology(topology, opened({SITE: site}), [SITE])
    (result,) = apply_sites(topology, opened({SITE: site}), [SITE], saved=saved)
    assert isinstance(result.error, UserSuspended) and "--readmit ducks" in result.error.hint
    assert not site.done
    (result,) = apply_sites(topology, opened({SITE: site}), [SITE], saved=saved, readmit=["ducks"])
    assert result.error is None and rules_of("ducks") | rules_of("bridge") <= site.bindings


def test_who_is_readmitted_gets_its_rules_and_that_is_noted() -> None:
    topology, site = load("minimal"), store(BEGUN)
    (result,) = apply_sites(topology, opened({SITE: site}), [SITE], readmit=["ducks", "nobody"])
    assert (result.error, result.suspended) == (None, ())
    assert rules_of("ducks") <= site.bindings
    noted = [entry for entry in site.entries if isinstance(entry, UserChange) and entry.action == "readmit"]
    assert [(entry.user, entry.phase) for entry in noted] == [("ducks", Phase.INTENT), ("ducks", Phase.DONE)]
    assert suspended_users(site.entries, NOW) == {}


def test_who_has_its_rules_back_already_is_noted_as_readmitted() -> None:
    topology, site = load("minimal"), MemoryStore(Binding.of(rule) for rule in compile_site(load("minimal"), SITE))
    site.entries.append(BEGUN)
    apply_sites(topology, opened({SITE: site}), [SITE], readmit=["ducks"])
    assert suspended_users(site.entries, NOW) == {}


def test_names_that_are_not_suspended_are_told_with_those_that_are() -> None:
    held = opened({SITE: store(BEGUN), "duck-star": store()})
    sites = [SITE, "duck-star"]
    assert nothing_to_readmit(held, sites, ["ducks"]) == ""
    assert nothing_to_readmit(held, sites, ["ducks", "red"]) == "nothing to readmit for red; suspended: ducks"
    assert nothing_to_readmit(held, sites, ["duck"]) == (
        "nothing to readmit for duck; did you mean 'ducks'? suspended: ducks"
    )
    assert nothing_to_readmit(held, ["duck-star"], ["ducks"]) == "nothing to readmit for ducks; suspended: nobody"
    away = opened({"duck-star": store()})
    assert (
        nothing_to_readmit(away, sites, ["ducks"])
        == "nothing to readmit for ducks at the sites that answer; suspended: nobody"
    )
    assert nothing_to_readmit(opened({}), sites, ["ducks"]) == ""  # nobody knows, and applying says so
