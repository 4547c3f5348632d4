"""Saved plans, the limit on removals, lock-out protection and the audit log, by commands against real brokers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from acl.apply import apply_sites
from acl.compile import compile_site
from acl.history import TOPIC, Phase, RulesChange
from acl.kafka import (
    AdminStore,
    Client,
    KafkaRules,
    NoAuditLog,
    NotAuthorised,
    StartAt,
    UserConsumer,
    admin_stores,
    note,
    read_history,
)
from acl.plan import (
    AccessPlan,
    AccessRun,
    Confirm,
    LockedOut,
    SitePlan,
    TooManyRemovals,
    carry_out,
    check_lockout,
    diff,
    digest,
    managed_by,
    plan_topology,
)
from acl.rules import Binding, Operation, Pattern, Resource, Rule, Standing
from acl.saved import PlanFileError, StalePlan, load, save
from fairlead.errors import ExitCode
from fairlead.local.passwords import secret_variable
from fairlead.local.sites import SiteSpec
from tests.integration.acl.conftest import PORT, SHIP, Append, Run, World, outside
from tests.support.access_rules import change
from tests.support.sites import NewSites
from tests.support.waits import PATIENCE
from topologies.endpoints import EndpointResolver
from topologies.model import KafkaAddress
from topologies.users import ADMIN, service_users

pytestmark = [pytest.mark.long, pytest.mark.integration]

WIDE = Binding.of(Rule("ducks", Resource.TOPIC, Pattern.PREFIXED, "containers.", Operation.READ))
OTHER = Binding.of(Rule("other", Resource.TOPIC, Pattern.PREFIXED, "containers.", Operation.READ))


def test_a_saved_plan_is_what_is_applied(world: World, run: Run, tmp_path: Path) -> None:
    """Exactly the saved plan is applied."""
    file = tmp_path / "rules.plan"
    _, damaged_before = read_history(world.kafka(PORT))
    with Client(world.kafka(PORT)) as client:
        rules = KafkaRules(client)
        change(client, [WIDE])
        made = run("acl", "plan", "--out", str(file))
        assert made.exit_code == ExitCode.OK and f"fairlead acl apply {file}" in made.output
        assert not [secret for secret in world.passwords() if secret in file.read_text(encoding="utf-8")]

        change(client, [OTHER])
        stale = run("acl", "apply", "--yes", str(file))
        assert isinstance(stale.exception, StalePlan) and stale.exception.exit_code == ExitCode.REFUSED
        assert "+ other may READ topic containers.*" in str(stale.exception)
        assert {WIDE, OTHER} <= rules.read()

        change(client, (), [OTHER])
        applied = run("acl", "apply", "--yes", str(file))
        assert applied.exit_code == ExitCode.OK and "done" in applied.output
        assert WIDE not in rules.read()
        again = json.loads(run("acl", "apply", "--yes", str(file), "--json").stdout)
        assert [(r["site"], r["state"], r["removed"]) for r in again] == [(PORT, "done", 0), (SHIP, "new", 0)]

    entries, damaged = read_history(world.kafka(PORT))
    assert damaged == damaged_before
    intent, outcome = [entry for entry in entries if isinstance(entry, RulesChange)][-2:]
    assert (intent.plan, intent.remove, intent.phase) == (load(file, "access").plan, (WIDE,), Phase.INTENT)
    assert (outcome.change, outcome.phase, outcome.removed) == (intent.change, Phase.DONE, 1)

    only = tmp_path / "only.plan"
    run("acl", "plan", "--site", SHIP, "--out", str(only))
    assert isinstance(run("acl", "apply", "--yes", str(only), "--site", PORT).exception, PlanFileError)

    edited = json.loads(file.read_text(encoding="utf-8"))
    edited["sites"][0]["remove"] = []
    file.write_text(json.dumps(edited), encoding="utf-8")
    assert isinstance(run("acl", "apply", "--yes", str(file)).exception, PlanFileError)


def test_too_many_removals_are_refused_until_they_are_asked_for(world: World, run: Run) -> None:
    """A plan with too many removals is refused until an option allows it."""
    count = len(compile_site(world.topology, PORT))
    wrong = [Binding.of(Rule("ducks", Resource.TOPIC, Pattern.LITERAL, f"x.{n}", Operation.READ)) for n in range(count)]
    with Client(world.kafka(PORT)) as client:
        rules = KafkaRules(client)
        change(client, wrong)
        told = run("acl", "plan", "--site", PORT)
        assert told.exit_code == ExitCode.OK and "only with --allow-removals" in told.output
        refused = run("acl", "apply", "--yes", "--site", PORT)
        assert isinstance(refused.exception, TooManyRemovals)
        assert run("acl", "apply", "--yes", "--max-removals", "50%").exit_code == ExitCode.OK
        assert rules.read().isdisjoint(wrong)


def test_only_the_administrator_reads_or_writes_the_audit_log(world: World) -> None:
    for site in world.topology.sites:
        entries, _ = read_history(world.kafka(site))
        assert entries
        for user in service_users(world.topology, site):
            endpoint = world.kafka(site, user)
            with pytest.raises(NotAuthorised), UserConsumer(endpoint, group=f"{user}.x") as reader:
                list(reader.read([TOPIC], start=StartAt.BEGINNING, follow=False))
            with pytest.raises(NoAuditLog, match="may not write the audit log"):
                note(endpoint, entries[:1])
        assert read_history(world.kafka(site))[0] == entries


def test_history_tells_who_did_what(world: World, run: Run, append: Append) -> None:
    """``history`` shows who changed what."""
    with Client(world.kafka(PORT)) as client:
        change(client, [WIDE])
    assert run("acl", "apply", "--yes").exit_code == ExitCode.OK
    _, before = read_history(world.kafka(PORT))
    append(PORT, TOPIC, b"no entry")
    append(PORT, TOPIC, b'{"kind": "spaceship"}')
    shown = run("acl", "history", "--site", PORT, "--last", "1", "--rules")
    assert shown.exit_code == ExitCode.OK
    assert "0 to add, 1 to remove" in shown.output and "- ducks may READ topic containers.*" in shown.output
    assert "older ones" in shown.output and "cannot be read" in shown.output
    body = json.loads(run("acl", "history", "--json", "--last", "0").stdout)
    assert len(body["damaged"]) == len(before) + 2 and body["unread"] == []
    assert body["changes"][-1]["intent"][0]["remove"][0]["name"] == "containers."
    assert {one["state"] for one in body["changes"]} <= {"done", "interrupted"} and body["changes"][-1][
        "state"
    ] == "done"
    assert {change["intent"][0]["site"] for change in body["changes"]} == {PORT, SHIP}


def test_what_binds_the_administrator_is_told_by_a_broker(world: World) -> None:
    """The broker shows that ACLs do not bind a super user, and that it refuses others what no ACL allows."""
    with Client(world.kafka(SHIP)) as client:
        store = AdminStore(client, local=False)
        assert store.standing(store.read()) is Standing.SUPER
        assert AdminStore(client, local=True).standing(frozenset()) is Standing.SUPER
        held = store.read()
    with Client(world.kafka(SHIP, "bridge")) as client:
        assert AdminStore(client, local=False).standing(held) is Standing.CLOSED


def test_a_hand_made_plan_cannot_lock_the_administrator_out(world: World, tmp_path: Path) -> None:
    """A plan file edited by hand cannot lock the administrator out.

    There are two protections: a file must match a newly made plan, and a plan that locks out is always refused.
    """
    host, port = world.kafka(SHIP).bootstrap[0]
    topology, resolver = outside(world, KafkaAddress(bootstrap=f"{host}:{port}", security="SASL_PLAINTEXT"))
    denial = Binding("User:*", "CLUSTER", "LITERAL", "kafka-cluster", "ALTER", "DENY")
    with Client(world.kafka(SHIP)) as client:
        store = AdminStore(client, local=False)
        held = store.read()
        honest = diff(SHIP, held, compile_site(topology, SHIP), managed_by(topology, SHIP))
        forged = SitePlan(SHIP, (denial,), (), honest.keep, (), digest(held), honest.wanted)
        file = tmp_path / "forged.plan"
        save(AccessPlan(topology.name, (forged,)), file)
        saved = load(file, topology.name).content
        (result,) = apply_sites(topology, admin_stores(resolver), [SHIP], saved=saved)
        assert isinstance(result.error, StalePlan)
        assert store.read() == held
        with pytest.raises(LockedOut, match="ALTER the cluster at site ship"):
            check_lockout(SHIP, held, forged, Standing.UNKNOWN)


PROGRAM = """
import sys
from fairlead.cli.app import run
sys.exit(run())
"""
KILLED = """
import os, signal
from acl.kafka import KafkaRules
KafkaRules.remove = lambda self, bindings: os.kill(os.getpid(), signal.SIGKILL)
"""


def program(world: World, text: str, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "FAIRLEAD_HOME": str(world.local.folder.parent), "COLUMNS": "200"}
    return subprocess.Popen(  # noqa: S603 our own interpreter and text
        [sys.executable, "-c", text, *arguments, "--topology", str(world.file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def test_an_apply_that_is_killed_is_seen_and_its_plan_goes_on(world: World, run: Run, tmp_path: Path) -> None:
    """An apply that was killed is detected, and its plan can be continued."""
    file = tmp_path / "rules.plan"
    lost = Binding.of(Rule("ducks", Resource.TOPIC, Pattern.LITERAL, "feeds.ducks", Operation.READ))
    with Client(world.kafka(PORT)) as client:
        rules = KafkaRules(client)
        change(client, [WIDE], [lost])
        run("acl", "plan", "--out", str(file))
        killed = program(world, KILLED + PROGRAM, "acl", "apply", "--yes", str(file), "--site", PORT)
        killed.communicate(timeout=PATIENCE)
        assert killed.returncode == -signal.SIGKILL
        carry_out([Confirm(PORT, (WIDE, lost), ())], AccessRun(AdminStore(client, local=True)))
        body = json.loads(run("acl", "history", "--site", PORT, "--last", "1", "--json").stdout)
        assert body["changes"][0]["state"] == "interrupted"
        assert body["changes"][0]["intent"][0]["add"][0]["name"] == "feeds.ducks"
        (again,) = json.loads(run("acl", "apply", "--yes", str(file), "--site", PORT, "--json").stdout)
        assert (again["state"], again["added"], again["removed"], again["error"]) == ("begun", 0, 1, None)
        assert WIDE not in rules.read()
    assert "interrupted" in run("acl", "history", "--site", PORT, "--last", "2").output


def test_an_open_clusters_administrator_keeps_what_it_could_do_without_rules(
    world: World, tmp_path: Path, new_sites: NewSites
) -> None:
    """At a cluster that allows by default, apply is refused while it would take access from the administrator.

    There the broker allows what no ACL is about, and ``admin`` is no super user: it first needs ACLs of its own.
    """
    local = new_sites(tmp_path / "open" / world.topology.name)
    settings = {"super.users": "User:controller", "allow.everyone.if.no.acl.found": "true"}
    first = Binding.of(Rule("ducks", Resource.TOPIC, Pattern.LITERAL, "feeds.ducks", Operation.READ))
    own = [Binding("User:admin", "TOPIC", "PREFIXED", "fairlead.", "ALL")]
    try:
        local.up([SiteSpec(SHIP, properties=settings)])
        host, port = local.kafka(SHIP, ADMIN).bootstrap[0]
        password = local.kafka(SHIP, ADMIN).password
        assert password is not None
        address = KafkaAddress(bootstrap=f"{host}:{port}", security="SASL_PLAINTEXT")
        topology, _ = outside(world, address)
        env = {secret_variable(SHIP, ADMIN): password.get_secret_value()}
        stores = admin_stores(EndpointResolver(topology, local, env=env))
        endpoint = local.kafka(SHIP, ADMIN)
        with Client(endpoint) as client:
            store = AdminStore(client, local=False)
            assert store.standing(store.read()) is Standing.UNKNOWN
            change(client, [first])
            assert store.standing(store.read()) is Standing.OPEN
            (foreseen,) = plan_topology(topology, stores, [SHIP]).lockouts
            assert "TOPIC fairlead.orders" in " ".join(foreseen.lost)
            (refused,) = apply_sites(topology, stores, [SHIP])
            assert isinstance(refused.error, LockedOut)
            assert "admin could no longer" in refused.error.what and "WRITE topic fairlead.orders" in refused.error.what
            assert store.read() == {first}
            change(client, own)
            assert plan_topology(topology, stores, [SHIP]).lockouts == ()
            (done,) = apply_sites(topology, stores, [SHIP])
            assert done.error is None and set(own) <= store.read()
    finally:
        local.down(purge=True)


def test_waiting_for_a_ship_finishes_it_when_it_returns_and_ends_cleanly(world: World) -> None:
    """Waiting for a ship applies the plan when it returns, and ends cleanly.

    The ship's brokers are stopped, not only unreachable, so the test waits for a real return.
    """
    with Client(world.kafka(SHIP)) as client:
        change(client, [WIDE])
    world.local.down([SHIP])

    def start() -> subprocess.Popen[str]:
        return program(world, PROGRAM, "acl", "apply", "--yes", "--wait", "600")

    def until(running: subprocess.Popen[str], text: str) -> None:
        assert running.stderr is not None
        while text not in (line := running.stderr.readline()):
            assert line, "it ended"

    try:
        stopped = start()
        until(stopped, "waiting for ship")
        stopped.send_signal(signal.SIGINT)
        _, problems = stopped.communicate(timeout=PATIENCE)
        assert stopped.returncode == ExitCode.INTERRUPTED and "Traceback" not in problems
        waiting = start()
        until(waiting, "waiting for ship")
    finally:
        world.local.up([SiteSpec(SHIP, tuple(service_users(world.topology, SHIP)))])
    output, problems = waiting.communicate(timeout=PATIENCE)
    assert waiting.returncode == ExitCode.OK, problems
    assert "ship" in output and "done" in output
    with Client(world.kafka(SHIP)) as client:
        assert WIDE not in KafkaRules(client).read()
    assert plan_topology(world.topology, admin_stores(world.resolver)).is_empty
    entries, _ = read_history(world.kafka(SHIP))
    assert entries[-1].phase is Phase.DONE and isinstance(entries[-1], RulesChange) and entries[-1].removed == 1
