"""No change may lock the administrator out: judged against a small evaluator written from StandardAuthorizer's text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from acl.apply import apply_sites
from acl.kafka import find_standing
from acl.plan import CLUSTER_RIGHTS, TOPIC_RIGHTS, LockedOut, losses, plan_topology
from acl.rules import Binding, Operation, Resource, Right, Standing, authorize, hosts
from fairlead.cli.commands.acl import app as acl_command
from fairlead.cli.commands.acl import app as aclplan
from tests.support.acl.stores_in_memory import MemoryStore, opened
from tests.unit.acl.worlds import outside
from topologies.loader.load import load

ADMIN = "User:admin"


def cluster(operation: str, principal: str = ADMIN, permission: str = "ALLOW", host: str = "*") -> Binding:
    return Binding(principal, "CLUSTER", "LITERAL", "kafka-cluster", operation, permission, host)


bindings = st.builds(
    Binding,
    st.sampled_from((ADMIN, "User:*", "User:bridge", "Group:admin")),
    st.sampled_from(("CLUSTER", "CLUSTER", "TOPIC", "GROUP")),
    st.sampled_from(("LITERAL", "PREFIXED")),
    st.sampled_from(("kafka-cluster", "kafka", "*", "fairlead.orders", "fairlead.", "billing", "")),
    st.sampled_from(("ALL", "ALTER", "DESCRIBE", "READ", "WRITE", "CREATE", "ALTER_CONFIGS", "DESCRIBE_CONFIGS")),
    st.sampled_from(("ALLOW", "DENY")),
    st.sampled_from(("*", "10.0.0.1", "10.0.0.2")),
)
rule_sets = st.frozensets(bindings, max_size=6)


def reference(rules: frozenset[Binding], right: Right, host: str, *, open_by_default: bool) -> bool:
    """As StandardAuthorizerData does it: every rule about the resource gives ALLOWED, DENIED or nothing."""
    operation, resource, name = right[0].value, right[1].value, right[2]
    results: list[str | None] = []
    for b in rules:
        literal = b.pattern == "LITERAL" and (b.name == name or b.name == "*")
        if b.resource != resource or not (literal or (b.pattern == "PREFIXED" and name[: len(b.name)] == b.name)):
            continue
        result: str | None = b.permission
        if b.principal != ADMIN and b.principal != "User:*":
            result = None
        if b.host != "*" and b.host != host:
            result = None
        if b.operation != "ALL":
            accepted = {operation}
            if b.permission == "ALLOW" and operation == "DESCRIBE":
                accepted = {"DESCRIBE", "READ", "WRITE", "DELETE", "ALTER"}
            if b.permission == "ALLOW" and operation == "DESCRIBE_CONFIGS":
                accepted = {"DESCRIBE_CONFIGS", "ALTER_CONFIGS"}
            if b.operation not in accepted:
                result = None
        results.append(result)
    if "DENY" in results:
        return False
    return "ALLOW" in results or (open_by_default and not results)


RIGHTS = (*CLUSTER_RIGHTS, *TOPIC_RIGHTS, (Operation.DESCRIBE, Resource.GROUP, "billing"))


@given(rule_sets, st.sampled_from(RIGHTS), st.sampled_from(("", "10.0.0.1", "10.0.0.3")), st.booleans())
def test_the_decision_is_kafkas(rules: frozenset[Binding], right: Right, host: str, default: bool) -> None:
    assert authorize(rules, "admin", right, host, open_by_default=default) == reference(
        rules, right, host, open_by_default=default
    )


@given(rule_sets, rule_sets, st.data())
def test_a_change_passes_only_if_nothing_that_the_administrator_needs_is_lost(
    held: frozenset[Binding], add: frozenset[Binding], data: st.DataObject
) -> None:
    remove = data.draw(st.frozensets(st.sampled_from(sorted(held)))) if held else frozenset()
    add -= held
    after = (held | add) - remove
    for standing, default in ((Standing.CLOSED, False), (Standing.OPEN, True)):
        lost = losses(held, add, remove, standing)
        expected = {
            right
            for right in (*CLUSTER_RIGHTS, *TOPIC_RIGHTS)
            for host in hosts(held | add)
            if reference(held, right, host, open_by_default=default)
            and not (
                reference(after, right, host, open_by_default=default)
                and reference(held | add, right, host, open_by_default=default)
            )
        }
        assert set(lost) == expected
        assert losses(held, (), (), standing) == ()
    unknown = set(losses(held, add, remove, Standing.UNKNOWN))
    for standing in (Standing.CLOSED, Standing.OPEN):
        assert set(losses(held, add, remove, standing)) & set(CLUSTER_RIGHTS) <= unknown <= set(CLUSTER_RIGHTS)
    assert losses(held, add, remove, Standing.SUPER) == ()


OWN = frozenset({cluster("ALTER"), cluster("DESCRIBE")})
OPENED = Binding("User:bridge", "TOPIC", "LITERAL", "fairlead.orders", "READ")


@pytest.mark.parametrize(
    ("held", "add", "remove", "standing", "lost"),
    [
        (OWN, (), (cluster("ALTER"),), Standing.CLOSED, {"ALTER"}),
        (OWN, (), (cluster("DESCRIBE"),), Standing.CLOSED, set()),  # ALTER means DESCRIBE
        (OWN, (cluster("ALL", permission="DENY"),), (), Standing.CLOSED, {"ALTER", "DESCRIBE"}),
        (OWN, (cluster("ALTER", "User:*", "DENY", "10.0.0.1"),), (), Standing.CLOSED, {"ALTER"}),
        (OWN, (cluster("ALTER", "User:bridge", "DENY"),), (), Standing.CLOSED, set()),
        (frozenset(), (cluster("ALTER", "User:bridge"),), (), Standing.OPEN, {"ALTER", "DESCRIBE"}),
        (frozenset(), (cluster("ALTER", "User:bridge"),), (), Standing.UNKNOWN, {"ALTER", "DESCRIBE"}),
        (frozenset(), (cluster("ALTER", "User:bridge"),), (), Standing.SUPER, set()),
        (frozenset(), (OPENED,), (), Standing.OPEN, {"CREATE", "WRITE", "READ"}),
        (frozenset(), (OPENED,), (), Standing.UNKNOWN, set()),  # can be given back by whoever may ALTER the cluster
        (OWN, (OPENED,), (), Standing.CLOSED, set()),
    ],
)
def test_cases(
    held: frozenset[Binding],
    add: tuple[Binding, ...],
    remove: tuple[Binding, ...],
    standing: Standing,
    lost: set[str],
) -> None:
    assert {right[0].value for right in losses(held, add, remove, standing)} == lost


def test_such_a_plan_is_refused_and_nothing_is_changed() -> None:
    topology = outside(load("minimal"), "tokyo")
    store = MemoryStore(OWN)
    store.binds_admin = Standing.OPEN
    planned = plan_topology(topology, opened({"tokyo": store}), ["tokyo"])
    (foreseen,) = planned.lockouts
    assert foreseen.site == "tokyo" and "admin could no longer CREATE topic fairlead.orders" in foreseen.why
    (result,) = apply_sites(topology, opened({"tokyo": store}), ["tokyo"])
    assert isinstance(result.error, LockedOut)
    assert "admin could no longer CREATE topic fairlead.orders" in result.error.what
    assert list(foreseen.lost) == result.error.fields["lost"] and foreseen.hint == result.error.hint
    (saved,) = apply_sites(topology, opened({"tokyo": store}), ["tokyo"], saved=planned)
    assert isinstance(saved.error, LockedOut)
    assert not store.done and not store.entries
    store.binds_admin = Standing.CLOSED
    allowed = plan_topology(topology, opened({"tokyo": store}), ["tokyo"])
    assert not allowed.lockouts and allowed == planned and allowed.identity == planned.identity
    (result,) = apply_sites(topology, opened({"tokyo": store}), ["tokyo"])
    assert result.error is None


def test_the_command_warns_of_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "theirs.yaml"
    file.write_text(
        "name: theirs\nsites: {tokyo: {kind: port, unlocode: JPTYO, kafka: {bootstrap: 'kafka.example:9093'}}}\n"
    )
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    store = MemoryStore(OWN)
    store.binds_admin = Standing.OPEN
    monkeypatch.setattr(aclplan, "admin_stores", lambda _: opened({"tokyo": store}))

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(acl_command.app, ["plan", "--topology", str(file), *arguments])
        assert result.exit_code == 0, result.exception
        return result.stdout

    assert "tokyo: refused: after this plan admin could no longer CREATE topic fairlead.custody" in run()
    (told,) = json.loads(run("--json"))["lockouts"]
    assert (told["site"], "WRITE TOPIC fairlead.custody" in told["lost"]) == ("tokyo", True)
    store.binds_admin = Standing.CLOSED
    assert "refused" not in run() and json.loads(run("--json"))["lockouts"] == []


@pytest.mark.parametrize(
    ("super_user", "default", "rules", "standing"),
    [
        (True, False, True, Standing.SUPER),
        (True, True, True, Standing.SUPER),
        (False, True, True, Standing.OPEN),
        (False, False, True, Standing.CLOSED),
        (False, False, False, Standing.CLOSED),
        (True, False, False, Standing.UNKNOWN),
        (False, True, False, Standing.UNKNOWN),
    ],
)
def test_what_binds_the_administrator_is_found_out_by_asking(
    super_user: bool, default: bool, rules: bool, standing: Standing
) -> None:
    topic = Binding("User:ducks", "TOPIC", "PREFIXED", "ducks.", "READ")
    held = OWN | ({topic} if rules else frozenset())

    def may(name: str) -> bool:
        right = (Operation.DESCRIBE, Resource.TOPIC, name)
        return super_user or authorize(held, "admin", right, "10.0.0.9", open_by_default=default)

    assert find_standing(held, may) is standing
