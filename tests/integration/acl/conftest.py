"""Two dedicated sites for the tests of access control: ACLs of other tests on shared brokers would interfere."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer
from confluent_kafka import Producer
from typer.testing import CliRunner, Result

from acl.apply import apply_topology
from acl.kafka import read_quotas
from fairlead.cli.commands import feed as feed_command
from fairlead.cli.commands.acl import app as acl_command
from fairlead.kafka.admin import create_logs
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.local.passwords import secret_variable
from fairlead.local.sites import LocalSites, SiteSpec
from tests.support.sites import NewSites
from tests.support.waits import PATIENCE, until
from topologies.endpoints import EndpointResolver
from topologies.loader.load import load
from topologies.model import KafkaAddress, Topology
from topologies.users import service_users

PORT, SHIP, IMO = "port", "ship", "9074729"
TOPOLOGY = f"""
name: access
sites:
  {PORT}: {{kind: port, unlocode: JPTYO}}
  {SHIP}: {{kind: ship, imo: "{IMO}"}}
streams:
  containers: {{insert_point: moves, owners: [BIGU]}}
  red:
    {{insert_point: moves, owners: [REDU], permissions: {{consume: "u:red & !g:suspended"}},
     keys: {{"REDU99*": {{consume: "u:lessor"}}, REDU9812345: {{consume: "u:lessor"}}}}}}
  reds: {{insert_point: moves, owners: [REEU]}}
  metrics:
    permissions: {{produce: "u:producer", topic: "u:producer", consume: "g:analysts", admin: "g:analysts"}}
links:
  - {{from: {SHIP}, to: {PORT}, both: true, streams: {{custody: all, alerts: all, events: all, ships: all}}}}
  - {{from: {SHIP}, to: {PORT}, when: berthed, streams: {{containers: all, red: all, strays: all, metrics: all}}}}
  - {{from: {PORT}, to: {SHIP}, when: berthed, streams: {{containers: aboard, red: aboard}}}}
customers:
  ducks: {{feed_at: {PORT}}}
  other: {{feed_at: {PORT}}}
  red: {{reads_at: [{PORT}]}}
  toyshop: {{}}
  lessor: {{reads_at: [{PORT}]}}
users:
  producer: {{at: [{PORT}, {SHIP}]}}
  analyst: {{groups: [analysts], at: [{PORT}]}}
shore: {{at: {PORT}}}
"""
BOX, RED_BOX, REDS_BOX = "containers.BIGU1234567", "red.REDU1234567", "reds.REEU1234567"
FIXED = tuple(f"{s}.{site}" for s in ("events", "alerts", "custody", "strays", "deadletters") for site in (PORT, SHIP))
LOGS = (
    *FIXED,
    f"bookings.{PORT}",
    f"ships.{IMO}.location",
    "ships.9321483.location",
    BOX,
    RED_BOX,
    REDS_BOX,
    "feeds.ducks",
    "feeds.other",
    "feeds.ducks2",
    f"metrics.{PORT}.cpu",
    f"metrics.{SHIP}.cpu",
    f"metrics.{PORT}x",
)
"""Logs that exist at both sites, including names that nearly match a rule."""
LIFE = 2.0  # seconds until a session expires
PROPERTIES = {"listener.name.client.connections.max.reauth.ms": str(int(LIFE * 1000))}
"""Settings of brokers that ask for the password again when a session expires."""

app = typer.Typer()
app.add_typer(acl_command.app, name="acl")
app.command()(feed_command.feed)


@dataclass(frozen=True, slots=True)
class World:
    """The two sites, with the topology's ACLs applied and logs created."""

    topology: Topology
    file: Path
    local: LocalSites
    resolver: EndpointResolver

    def kafka(self, site: str, user: str = "admin") -> KafkaEndpoint:
        return self.resolver.kafka(site, user)

    def passwords(self) -> list[str]:
        """Return every password of every user of both sites."""
        return _strings(json.loads((self.local.folder / "secrets.json").read_text(encoding="utf-8")))


def _strings(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for inner in value.values() for text in _strings(inner)]
    return [value] if isinstance(value, str) else []


@pytest.fixture(scope="session")
def started(tmp_path_factory: pytest.TempPathFactory, new_sites: NewSites) -> Iterator[World]:
    home = tmp_path_factory.mktemp("access")
    file = home / "access.yaml"
    file.write_text(TOPOLOGY, encoding="utf-8")
    topology = load(file)
    local = new_sites(home / topology.name)
    local.up([SiteSpec(site, tuple(service_users(topology, site))) for site in topology.sites])
    world = World(topology, file, local, EndpointResolver(topology, local))
    for site in topology.sites:
        create_logs(world.kafka(site), {topic: {} for topic in LOGS})
    yield world
    local.down(purge=True)


@pytest.fixture
def world(started: World) -> World:
    """Run both sites with exactly the topology's ACLs."""
    apply_topology(started.topology, started.resolver)
    return started


def shows_quotas(endpoint: KafkaEndpoint, wanted: Callable[[Mapping[str, Mapping[str, float]]], bool]) -> None:
    """Wait until the broker shows quotas that are ``wanted``; it does so some milliseconds after a change."""
    until(lambda: wanted(read_quotas(endpoint)), f"the quotas of {endpoint.site}")


Append = Callable[..., None]


@pytest.fixture
def append(world: World) -> Append:
    """Return a function that appends as the super user: ``append("port", "feeds.ducks", b"…", fairlead=b"marker")``."""

    def one(site: str, topic: str, value: bytes, **headers: bytes) -> None:
        failed: list[object] = []
        producer = Producer({**world.kafka(site).librdkafka(), "log_level": 0})
        producer.produce(
            topic, value, headers=list(headers.items()), on_delivery=lambda e, _: failed.append(e) if e else None
        )
        assert producer.flush(PATIENCE) == 0
        assert not failed

    return one


def outside(world: World, address: KafkaAddress) -> tuple[Topology, EndpointResolver]:
    """Provide the same sites, but with the ship as a foreign cluster whose passwords come from the environment."""
    ship = world.topology.sites[SHIP].model_copy(update={"kafka": address})
    topology = world.topology.model_copy(update={"sites": {**world.topology.sites, SHIP: ship}})
    env = {secret_variable(SHIP, "admin"): password(world, "admin"), secret_variable(SHIP, "bridge"): "new-secret-1"}
    return topology, EndpointResolver(topology, world.local, env=env)


def password(world: World, user: str) -> str:
    """Return a user's password at the ship."""
    found = world.kafka(SHIP, user).password
    assert found is not None
    return found.get_secret_value()


Run = Callable[..., Result]


@pytest.fixture
def run(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Return a function that runs a command; after the test, search every output for passwords."""
    monkeypatch.setenv("FAIRLEAD_HOME", str(world.local.folder.parent))
    outputs: list[str] = []

    def invoke(*arguments: str) -> Result:
        result = CliRunner().invoke(app, [*arguments, "--topology", str(world.file)])
        outputs.append(
            f"{result.output}{result.exception!r}{result.exception}{getattr(result.exception, 'fields', '')}"
        )
        return result

    yield invoke
    secrets = world.passwords()
    assert len(secrets) > 10
    for text in outputs:
        assert not [secret for secret in secrets if secret in text]
