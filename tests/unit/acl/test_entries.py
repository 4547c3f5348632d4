"""The audit log of access: what an entry says, what a change is made of, and waiting for sites that are away."""

from __future__ import annotations

import getpass
import json
import platform
from collections.abc import Iterable, Sequence

import msgspec
import pytest
from hypothesis import given

from acl.apply import SiteResult, apply_sites, until_done
from acl.compile import compile_site
from acl.history import (
    PART,
    TOPIC,
    Entry,
    Phase,
    QuotaChange,
    RulesChange,
    UserChange,
    changes,
    noting,
    outcome,
    rules_intent,
    stamp,
)
from acl.rules import Binding, Operation, Resource
from fairlead.errors import RefusedError, UnavailableError
from tests.support.acl.stores_in_memory import MemoryStore, opened, rule
from tests.unit.acl.worlds import topologies
from topologies.loader.load import load
from topologies.model import Topology

SITE = "tokyo"


def test_every_change_is_noted_before_and_after() -> None:
    topology = load("minimal")
    store = MemoryStore([Binding.of(rule("ducks", "containers.X"))])
    apply_sites(topology, opened({SITE: store}), [SITE])
    before, after = store.entries
    assert isinstance(before, RulesChange) and isinstance(after, RulesChange)
    assert (before.phase, after.phase) == (Phase.INTENT, Phase.DONE)
    assert (before.by, before.host, before.topology, before.site) == (
        getpass.getuser(),
        platform.node(),
        "minimal",
        SITE,
    )
    assert set(before.add) == {Binding.of(r) for r in compile_site(topology, SITE)}
    assert before.remove == (Binding.of(rule("ducks", "containers.X")),)
    assert (after.added, after.removed) == (len(before.add), 1)
    assert after.change == before.change and after.at >= before.at and len(before.plan) == 16
    apply_sites(topology, opened({SITE: store}), [SITE])
    assert len(store.entries) == 2, "what changes nothing is not noted"


def test_nothing_is_changed_that_cannot_be_noted() -> None:
    class Unwilling(MemoryStore):
        def note(self, entries: Iterable[Entry], patience: float = 0.0) -> None:
            raise RefusedError("may not")

    store = Unwilling()
    (result,) = apply_sites(load("minimal"), opened({SITE: store}), [SITE])
    assert isinstance(result.error, RefusedError)
    assert not store.done and not store.bindings


def test_an_intent_without_outcome_is_an_interruption() -> None:
    (intent,) = rules_intent("t", SITE, "p", (Binding.of(rule("a")),), ())
    (other,) = rules_intent("t", SITE, "p", (), ())
    failed = outcome(other, "gone", added=0)
    found = changes([intent, other, failed])
    assert [change.state for change in found] == ["interrupted", "failed"]
    assert found[1].outcome == failed and found[0].first is intent


def test_many_rules_take_several_entries() -> None:
    add = tuple(Binding.of(rule("a", f"x.{n}")) for n in range(PART + 1))
    remove = tuple(Binding.of(rule("b", f"x.{n}")) for n in range(3))
    parts = rules_intent("t", SITE, "p", add, remove)
    assert [(p.part, p.parts) for p in parts if isinstance(p, RulesChange)] == [(1, 2), (2, 2)]
    assert tuple(b for p in parts if isinstance(p, RulesChange) for b in p.add) == add
    assert tuple(b for p in parts if isinstance(p, RulesChange) for b in p.remove) == remove
    (change,) = changes([*parts, outcome(parts[0], added=len(add), removed=3)])
    assert change.intent == tuple(parts) and change.state == "done"
    longest = [Binding.of(rule("a" * 100, "x" * 249, Operation.DESCRIBE_CONFIGS)) for _ in range(PART)]
    (largest,) = rules_intent("t", SITE, "p", tuple(longest), ())
    assert len(msgspec.json.encode(largest)) < 1_000_000, "a record of the log takes a million bytes"


def test_entries_of_every_kind_are_told_apart() -> None:
    for entry in (
        UserChange(**stamp("t", SITE), user="ducks", action="rotate", detail={"step": "1"}),
        QuotaChange(**stamp("t", SITE), user="ducks", quotas={"consumer_byte_rate": 1e6, "request_percentage": None}),
        *rules_intent("t", SITE, "p", (Binding.of(rule("a")),), ()),
    ):
        data = msgspec.json.encode(entry)
        assert json.loads(data)["kind"] in ("user", "quota", "rules")
        assert msgspec.json.decode(data, type=Entry) == entry


def test_a_change_that_fails_is_noted_as_failed() -> None:
    written: list[Entry] = []
    with noting(written.extend, UserChange(**stamp("t", SITE), user="ducks", action="rotate")):
        assert [entry.phase for entry in written] == [Phase.INTENT]
    with (
        pytest.raises(UnavailableError),
        noting(written.extend, UserChange(**stamp("t", SITE), user="ducks", action="rotate")),
    ):
        raise UnavailableError("the site is gone", hint="wait")
    assert [entry.phase for entry in written] == [Phase.INTENT, Phase.DONE, Phase.INTENT, Phase.FAILED]
    assert written[3].error == "the site is gone"


@given(topologies())
def test_no_rule_is_about_the_log(topology: Topology) -> None:
    for site in topology.sites:
        assert not [r for r in compile_site(topology, site) if r.covers(Resource.TOPIC, TOPIC)]


AWAY, REFUSED = UnavailableError("away"), RefusedError("no")


def test_waiting_goes_on_with_sites_that_are_away_and_with_no_others() -> None:
    rounds: list[list[str]] = []

    def work(sites: Sequence[str]) -> list[SiteResult]:
        rounds.append(list(sites))
        back = len(rounds) == 2
        return [SiteResult(site, 2 if back else 1, 0, 5, 0, None if back else AWAY) for site in sites]

    first = [SiteResult("a", 1, 0, 0, 0), SiteResult("b", 1, 0, 0, 0, AWAY), SiteResult("c", 0, 0, 0, 0, REFUSED)]
    told: list[tuple[str, ...]] = []
    results = until_done(work, first, on_waiting=told.append, pause=0.001)
    assert rounds == [["b"], ["b"]] and told == [("b",), ("b",)]
    assert [(r.site, r.added, r.error) for r in results] == [("a", 1, None), ("b", 4, None), ("c", 0, REFUSED)]


def test_waiting_ends_with_its_time() -> None:
    calls: list[Sequence[str]] = []

    def work(sites: Sequence[str]) -> list[SiteResult]:
        calls.append(sites)
        return [SiteResult(site, 0, 0, 0, 0, AWAY) for site in sites]

    first = [SiteResult("b", 0, 0, 0, 0, AWAY)]
    assert until_done(work, first, seconds=0)[0].error is AWAY and not calls
    assert until_done(work, first, seconds=0.02, pause=0.001)[0].error is AWAY and calls
