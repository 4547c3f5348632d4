"""Kafka 3.9 beside the Kafka that Fairlead ships: links in both directions, custody between them, and access rules.

``pytest --sites=kafka-3.9 tests/integration/...`` runs any other integration test with all brokers at 3.9.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from acl.apply import apply_topology
from acl.compile import compile_site
from acl.kafka import Client, KafkaRules
from fairlead.jars import jar_set
from fairlead.kafka.endpoint import KafkaEndpoint, MqttEndpoint
from fairlead.local.sites import LocalSites, SiteSpec
from tests.support.edge.fleet import EVENTS, Copier, Fleet, handled, make_fleet, until
from tests.support.proof import grown, proven
from tests.support.releases import ReleaseSites
from tests.support.replication.lab import Lab, link, states
from tests.support.sites import USERS
from tests.support.traffic import Traffic
from topologies.endpoints import EndpointResolver
from topologies.model import Topology

pytestmark = [
    pytest.mark.long,
    pytest.mark.integration,
    pytest.mark.processes("the jars of another release are on this machine"),
]

OLDER = "older"
RELEASE = "3.9"
Endpoint = Callable[..., KafkaEndpoint]


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSites]:
    """Run a site with Kafka 3.9."""
    local = ReleaseSites(tmp_path_factory.mktemp("older"), RELEASE)
    local.up([SiteSpec(OLDER, USERS)])
    yield local
    local.down(purge=True)


@pytest.fixture
def endpoint(kafka: Endpoint, older: LocalSites) -> Endpoint:
    """Return a site's endpoint, as fixture ``kafka``, also of ``older``."""
    return lambda site, user="admin": older.kafka(OLDER, user) if site == OLDER else kafka(site, user)


@pytest.fixture
async def pair(endpoint: Endpoint) -> AsyncIterator[Lab]:
    made = Lab(endpoint)
    yield made
    await made.close()


def test_the_sites_run_two_releases(older: LocalSites, sites: LocalSites) -> None:
    assert older.status()[OLDER].kafka_version.startswith(f"{RELEASE}.")
    assert sites.status()["alpha"].kafka_version == jar_set("kafka").revision_of("kafka-clients")


@pytest.mark.parametrize(("source", "target"), [(OLDER, "alpha"), ("alpha", OLDER)])
async def test_a_link_copies_while_both_brokers_are_killed_and_come_back(
    pair: Lab, older: LocalSites, sites: LocalSites, source: str, target: str
) -> None:
    """Fairlead's own logs, and those of idempotent and transactional clients, have the same records at the same
    offsets.
    """
    own, other = [pair.log(f"{source}.own-{n}") for n in range(3)], [pair.log(f"{source}.{n}") for n in ("idem", "txn")]
    await pair.make(source, *own, *other)
    topology = link(pair, source, target)
    replicator = pair.replicator(topology, target)
    writers = Traffic(pair.kafka(source), own=own, idempotent=other[:1], transactional=other[1:], pause=0.05)
    async with pair.running(replicator), writers:
        await grown(pair.kafka(target), writers.written)
        for site in (target, source):
            local = older if site == OLDER else sites
            await asyncio.to_thread(local.kill, site)
            await asyncio.to_thread(local.restart, site)
            await grown(pair.kafka(target), writers.written)
        await writers.stop()
        await proven(topology, writers.written, pair.kafka(source), pair.kafka(target))
        assert states(replicator.snapshot()) == {}


@pytest.fixture
def fleet(
    endpoint: Endpoint, mqtt: Callable[..., MqttEndpoint], older: LocalSites, request: pytest.FixtureRequest
) -> Iterator[Fleet]:
    """Return a fleet whose ship or port, as the test's parameter says, has Kafka 3.9."""
    places = {"alpha": OLDER, "beta": "alpha"} if request.param == "port" else {"alpha": "alpha", "beta": OLDER}

    def at_mqtt(place: str, user: str) -> MqttEndpoint:
        return older.mqtt(OLDER, user) if places[place] == OLDER else mqtt(places[place], user)

    made = make_fleet(lambda place, user: endpoint(places[place], user), at_mqtt)
    yield made
    made.forget_sessions()


@pytest.mark.parametrize("fleet", ["port", "ship"], indirect=True)
async def test_custody_moves_to_the_ship_and_back(fleet: Fleet) -> None:
    box = fleet.new_box()
    log, port, ship = fleet.log(box), fleet.port, fleet.ship
    to_ship, to_port = Copier(fleet, port, ship), Copier(fleet, ship, port)
    async with fleet.running(port) as ashore, fleet.running(ship) as afloat:
        with fleet.publisher(port) as quay, fleet.publisher(ship) as deck:
            await quay.publish(EVENTS, fleet.event("GTIN", box))
            await quay.readings(box, range(5))
            await quay.publish(EVENTS, fleet.event("LOAD", box))
            await handled(ashore, 7)
            await to_ship.copy(log, f"custody.{port}")
            await until(lambda: afloat.snapshot()["custody"]["held"] == 1, what="custody on board")
            await deck.readings(box, range(5, 10))
            await deck.publish(EVENTS, fleet.event("DISC", box))
            await handled(afloat, 6)
            await to_port.copy(log, f"custody.{ship}")
            await until(lambda: ashore.snapshot()["custody"]["held"] == 1, what="custody ashore")
            await quay.readings(box, range(10, 15))
            await handled(ashore, 12)
    await to_ship.copy(log)
    assert fleet.sequences(port, box) == list(range(15))
    assert fleet.read(port, log) == fleet.read(ship, log)


def test_access_rules_are_applied(older: LocalSites) -> None:
    """The broker has exactly the compiled rules; applied once more, nothing changes."""
    topology = Topology.model_validate(
        {
            "name": "lab",
            "sites": {OLDER: {"kind": "datacentre"}, "other": {"kind": "datacentre"}},
            "streams": {"metrics": {"permissions": {"consume": "u:customer1", "produce": "u:customer1"}}},
            "links": [{"from": OLDER, "to": "other", "both": True, "streams": {"metrics": "all"}}],
            "users": {"customer1": {"at": [OLDER]}},
        }
    )
    resolver = EndpointResolver(topology, older)
    wanted = compile_site(topology, OLDER)
    [first] = apply_topology(topology, resolver, [OLDER])
    assert first.added == len(wanted) > 10
    with Client(older.kafka(OLDER, "admin")) as client:
        assert {binding.rule() for binding in KafkaRules(client).read()} == wanted
    [again] = apply_topology(topology, resolver, [OLDER])
    assert (again.added, again.removed, again.kept) == (0, 0, len(wanted))
