"""Plan, apply and drift against real brokers: Fairlead's own, and a foreign cluster."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import pytest
from pydantic import SecretStr

from acl.apply import AccessIncomplete, apply_sites, apply_topology
from acl.compile import compile_site
from acl.history import Phase, UserChange
from acl.kafka import Client, KafkaRules, NotAuthorised, WrongPassword, admin_stores, read_history
from acl.plan import plan_topology
from acl.rules import Binding, Operation, Pattern, Resource, Rule
from acl.users import create_missing
from fairlead.errors import ConfigurationError, UnavailableError
from fairlead.local.passwords import secret_variable
from tests.integration.acl.conftest import PORT, SHIP, World, outside, password
from tests.support.access_rules import change
from topologies.endpoints import EndpointResolver
from topologies.model import KafkaAddress

pytestmark = pytest.mark.integration

STRANGERS = Binding.of(Rule("payroll", Resource.TOPIC, Pattern.PREFIXED, "payroll.", Operation.READ))
WIDE = Binding.of(Rule("ducks", Resource.TOPIC, Pattern.PREFIXED, "containers.", Operation.READ))
DENIED = Binding("User:ducks", "TOPIC", "LITERAL", "feeds.ducks", "READ", "DENY", "10.0.0.1")


def test_applying_twice_changes_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second time, the brokers are asked for their rules and told nothing."""

    def told(_rules: KafkaRules, bindings: Iterable[Binding]) -> None:
        raise AssertionError(f"a broker is told of {list(bindings)}")

    for verb in ("add", "remove"):
        monkeypatch.setattr(KafkaRules, verb, told)
    results = apply_topology(world.topology, world.resolver)
    assert [(r.site, r.added, r.removed) for r in results] == [(PORT, 0, 0), (SHIP, 0, 0)]
    assert [r.kept for r in results] == [len(compile_site(world.topology, site)) for site in (PORT, SHIP)]


def test_what_the_cluster_holds_is_exactly_what_was_compiled(world: World) -> None:
    """After applying, the cluster has exactly the compiled ACLs."""
    for site in world.topology.sites:
        with Client(world.kafka(site)) as client:
            held = KafkaRules(client).read()
        assert {binding.rule() for binding in held} == compile_site(world.topology, site)


def test_drift_is_found_and_undone(world: World) -> None:
    """Drift is detected and corrected."""
    lost = Binding.of(Rule("ducks", Resource.TOPIC, Pattern.LITERAL, "feeds.ducks", Operation.READ))
    with Client(world.kafka(PORT)) as client:
        change(client, [WIDE, DENIED, STRANGERS], [lost])
    stores = admin_stores(world.resolver)
    plan = plan_topology(world.topology, stores)
    by_site = {site.site: site for site in plan.sites}
    assert by_site[PORT].add == (lost,)
    assert set(by_site[PORT].remove) == {WIDE, DENIED, STRANGERS}  # Fairlead manages the whole cluster
    assert by_site[SHIP].is_empty
    told: list[tuple[str, str]] = []
    results = apply_topology(world.topology, world.resolver, [PORT], lambda site, text: told.append((site, text)))
    assert [(r.site, r.added, r.removed) for r in results] == [(PORT, 1, 3)]
    assert told and told[0][0] == PORT
    assert plan_topology(world.topology, stores).is_empty


@pytest.mark.long
def test_a_site_that_does_not_answer_is_reported_and_the_others_are_done(world: World) -> None:
    gone = KafkaAddress(bootstrap="127.0.0.1:1", security="SASL_PLAINTEXT")
    topology, resolver = outside(world, gone)
    with Client(world.kafka(PORT)) as client:
        change(client, [WIDE])
    results = {r.site: r for r in apply_sites(topology, admin_stores(resolver))}
    assert results[PORT].removed == 1 and results[PORT].error is None
    assert isinstance(results[SHIP].error, UnavailableError)
    with pytest.raises(UnavailableError, match=r"ship .*does not answer"):
        apply_topology(topology, resolver)
    assert issubclass(AccessIncomplete, UnavailableError)


def test_on_somebody_elses_cluster_only_known_users_are_touched(world: World) -> None:
    """On a foreign cluster, only users of the topology are changed."""
    host, port = world.kafka(SHIP).bootstrap[0]
    topology, resolver = outside(world, KafkaAddress(bootstrap=f"{host}:{port}", security="SASL_PLAINTEXT"))
    known = Binding.of(Rule("other", Resource.TOPIC, Pattern.PREFIXED, "containers.", Operation.READ))
    with Client(world.kafka(SHIP)) as client:
        change(client, [STRANGERS, known])
        (result,) = apply_sites(topology, admin_stores(resolver), [SHIP])
        assert (result.added, result.removed, result.left_alone, result.error) == (0, 1, 1, None)
        assert STRANGERS in KafkaRules(client).read()
        change(client, (), [STRANGERS])


def test_users_are_made_with_passwords_from_the_environment_only(world: World) -> None:
    """On a foreign cluster, users are created only with passwords from the environment."""
    host, port = world.kafka(SHIP).bootstrap[0]
    address = KafkaAddress(bootstrap=f"{host}:{port}", security="SASL_PLAINTEXT")
    topology, resolver = outside(world, address)
    assert create_missing(topology, resolver, SHIP) == ()  # all users exist; nobody's password is changed
    with Client(world.kafka(SHIP, "bridge")) as client:
        client.cluster_operations()

    customer = topology.customers["ducks"].model_copy(update={"reads_at": (SHIP,)})
    topology = topology.model_copy(update={"customers": {**topology.customers, "ducks": customer}})
    admin = {secret_variable(SHIP, "admin"): password(world, "admin")}
    with pytest.raises(ConfigurationError) as caught:
        create_missing(topology, EndpointResolver(topology, world.local, env=admin), SHIP)
    assert "FAIRLEAD_SECRET_SHIP_DUCKS" in caught.value.hint
    env = {**admin, secret_variable(SHIP, "ducks"): "quack-quack-quack"}
    with_user = EndpointResolver(topology, world.local, env=env)
    before = len(read_history(world.kafka(SHIP))[0])
    assert create_missing(topology, with_user, SHIP) == ("ducks",)
    noted = [entry for entry in read_history(world.kafka(SHIP))[0][before:] if isinstance(entry, UserChange)]
    assert [(entry.user, entry.action, entry.phase) for entry in noted] == [
        ("ducks", "create", Phase.INTENT),
        ("ducks", "create", Phase.DONE),
    ]
    with Client(with_user.kafka(SHIP, "ducks")) as client:
        assert client.cluster_operations() == frozenset()
    wrong = dataclasses.replace(with_user.kafka(SHIP, "ducks"), password=SecretStr("quack"))
    with pytest.raises(WrongPassword), Client(wrong) as client:
        client.cluster_operations()
    with pytest.raises(ConfigurationError, match="fairlead up creates its users"):
        create_missing(world.topology, world.resolver, PORT)


def test_one_who_may_not_manage_users_is_told_so(world: World) -> None:
    """A user without the right to manage users gets an error that says so."""
    host, port = world.kafka(SHIP).bootstrap[0]
    topology, _ = outside(world, KafkaAddress(bootstrap=f"{host}:{port}", security="SASL_PLAINTEXT"))

    class AsBridge(EndpointResolver):
        def kafka(self, site: str, user: str):  # type: ignore[no-untyped-def]
            return world.kafka(SHIP, "bridge")

    with pytest.raises(NotAuthorised, match="may not manage users"):
        create_missing(topology, AsBridge(topology, world.local), SHIP)
    with pytest.raises(NotAuthorised, match="may not read the access rules"):
        apply_topology(topology, AsBridge(topology, world.local), [SHIP])
