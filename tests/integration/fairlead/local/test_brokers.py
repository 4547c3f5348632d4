"""A site of three brokers keeps working while any one of them is down."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient
from pydantic import SecretStr

from fairlead.certs.authority import issue, new_authority
from fairlead.certs.trust import served
from fairlead.errors import ConfigurationError, UnavailableError
from fairlead.kafka.admin import admin_client, create_logs
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.local import kafka, ports
from fairlead.local.sites import LocalSites, SiteSpec
from fairlead.local.state import read_state
from tests.support.waits import PATIENCE, until

pytestmark = [pytest.mark.long, pytest.mark.integration]


def test_three_brokers_survive_the_loss_of_one(fresh: LocalSites) -> None:
    trio = SiteSpec("trio", ("bridge",), brokers=3)
    fresh.up([trio])
    status = fresh.status()["trio"]
    assert status.kafka_up and status.brokers == {1: True, 2: True, 3: True}
    assert set(status.pids) == {"kafka", "kafka-2", "kafka-3", "mqtt"}
    admin = fresh.kafka("trio", "admin")
    assert len(admin.bootstrap) == 3

    client = admin_client(admin)
    create_logs(admin, {"test.kept": {}}, client=client)
    leader, replicas, _ = partition(client, "test.kept")
    assert replicas == {1, 2, 3}
    until(lambda: partition(client, "test.kept")[2] == {1, 2, 3}, "three replicas in sync")

    fresh.kill("trio", broker=leader)
    status = fresh.status()["trio"]
    assert not status.kafka_up
    assert {number for number, up in status.brokers.items() if not up} == {leader}
    append(admin, "test.kept", 10)  # acknowledged by the next leader: acks=all, two in sync
    until(lambda: partition(client, "test.kept")[0] in {1, 2, 3} - {leader}, "word of the next leader")

    before = fresh.status()["trio"].pids
    fresh.restart("trio", broker=leader)
    after = fresh.status()["trio"]
    assert after.kafka_up
    assert set(after.pids.items()) > set(before.items())  # the others were left alone
    until(lambda: partition(client, "test.kept")[2] == {1, 2, 3}, "the broker that came back to catch up")
    fresh.up([trio])
    assert fresh.status()["trio"] == after
    with pytest.raises(ConfigurationError, match="has data on 3 brokers"):
        fresh.up([SiteSpec("trio")])
    fresh.down(["trio"])
    assert fresh.status()["trio"].pids == {}


def test_an_admin_client_leaves_a_controller_that_died(fresh: LocalSites) -> None:
    """Right after a broker's death, the others still name it as the controller to some clients."""
    fresh.up([SiteSpec("trio", ("bridge",), brokers=3)])
    admin = replace(fresh.kafka("trio", "admin"), bootstrap=fresh.kafka("trio", "admin").bootstrap[:1])
    fresh.kill("trio", broker=2)
    clients = [admin_client(admin) for _ in range(12)]
    for client in clients:
        kafka.ensure_users(client, {"bridge": SecretStr("another-password")}, timeout=60)
    fresh.down(["trio"], purge=True)


def test_controllers_speak_tls_where_clients_do_not(fresh: LocalSites) -> None:
    """Controllers use TLS even where clients do not, as with ``fairlead compose render --plaintext``."""
    authority = new_authority("Fairlead test")
    for broker in ("kafka", "kafka-2", "kafka-3"):
        pair = issue(authority, broker, ["127.0.0.1"])
        kafka.write_stores(fresh.folder / "sites" / "trio" / broker, pair, authority.certificate)
    fresh.up([SiteSpec("trio", ("bridge",), brokers=3, properties=kafka.tls_properties("controller"))])
    admin, state = fresh.kafka("trio", "admin"), read_state(fresh.folder / "state.json").sites["trio"]
    create_logs(admin, {"test.kept": {}})
    append(admin, "test.kept", 10)
    for each in state.brokers:
        assert served(ports.HOST, each.controller_port)
        with pytest.raises(UnavailableError, match="shows no certificate"):
            served(ports.HOST, each.port)
    fresh.down(["trio"], purge=True)


def partition(client: AdminClient, topic: str) -> tuple[int, set[int], set[int]]:
    """Return leader, replicas and in-sync replicas of a topic's only partition."""
    deadline = time.monotonic() + PATIENCE
    while (found := client.list_topics(topic, timeout=PATIENCE).topics[topic].partitions.get(0)) is None:
        assert time.monotonic() < deadline, "the broker that is asked does not hear of it"
    return found.leader, set(found.replicas), set(found.isrs)


def append(endpoint: KafkaEndpoint, topic: str, count: int) -> None:
    failed: list[str] = []

    def delivered(error: object, _message: Message) -> None:
        if error is not None:
            failed.append(str(error))

    producer = Producer({**endpoint.librdkafka(), "enable.idempotence": True, "log_level": 0})
    for number in range(count):
        producer.produce(topic, str(number).encode(), on_delivery=delivered)
    assert producer.flush(PATIENCE) == 0
    assert failed == []
