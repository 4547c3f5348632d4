"""Real brokers enforce exactly the compiled ACLs for each user, topic and operation; each service can do its work."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from acl import probe
from acl.compile import compile_site
from acl.kafka import Client, NotAuthorised, StartAt, UserConsumer
from acl.rules import Operation, Resource, allowing
from fairlead.errors import RefusedError
from fairlead.kafka.admin import create_logs
from tests.integration.acl.conftest import BOX, IMO, LOGS, PORT, RED_BOX, SHIP, Append, World
from tests.support.waits import PATIENCE
from topologies.users import service_users

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("site", [PORT, SHIP])
def test_the_brokers_own_judgement_equals_the_rules(world: World, site: str) -> None:
    """The brokers' own list of allowed operations equals the ACLs."""
    rules = compile_site(world.topology, site)
    asked = [o for o in Operation if o is not Operation.ALTER]
    for user in service_users(world.topology, site):
        with Client(world.kafka(site, user)) as client:
            for topic in LOGS:
                by_rules = {o.value for o in asked if allowing(rules, user, o, Resource.TOPIC, topic)}
                if "DESCRIBE" not in by_rules:  # the broker does not mention a topic that the user may not describe
                    assert probe.topic_operations(client, topic) == frozenset(), (site, user, topic)
                else:
                    assert probe.topic_operations(client, topic) == by_rules, (site, user, topic)
            assert client.cluster_operations() == frozenset(), user


def write(world: World, site: str, user: str, topic: str) -> None:
    """Append one record as an ordinary program does."""
    failed: list[KafkaException] = []
    producer = Producer({**world.kafka(site, user).librdkafka(), "log_level": 0, "message.timeout.ms": PATIENCE * 1000})
    producer.produce(topic, b"x", on_delivery=lambda e, _: failed.append(KafkaException(e)) if e else None)
    assert producer.flush(PATIENCE) == 0
    if failed:
        raise failed[0]


def read(world: World, site: str, user: str, topics: Iterable[str], group: str | None = None) -> int:
    with UserConsumer(world.kafka(site, user), group=group or f"{user}.test", timeout=PATIENCE) as reader:
        return sum(1 for record in reader.read(tuple(topics), start=StartAt.BEGINNING, follow=False) if record)


def set_retention(world: World, site: str, user: str, topic: str) -> None:
    entry = ConfigEntry("retention.ms", "-1", incremental_operation=AlterConfigOpType.SET)
    with Client(world.kafka(site, user)) as client:
        changes = client.admin.incremental_alter_configs(
            [ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])]
        )
        for future in changes.values():
            client.wait(future, "changing settings")


def test_the_bridge_works_and_no_more(world: World) -> None:
    """The bridge has the access it needs and no more."""
    for site in (PORT, SHIP):
        for topic in (f"events.{site}", f"custody.{site}", f"strays.{site}", BOX, RED_BOX):
            write(world, site, "bridge", topic)
            assert read(world, site, "bridge", [topic]) > 0
        with pytest.raises(KafkaException, match="uthorization"):
            write(world, site, "bridge", f"events.{PORT if site == SHIP else SHIP}")
        with pytest.raises(RefusedError):
            create_logs(world.kafka(site, "bridge"), {f"metrics.{site}.new": {}})
        with Client(world.kafka(site, "bridge")) as client, pytest.raises(NotAuthorised):
            probe.delete_records(client, BOX)
    write(world, SHIP, "bridge", f"ships.{IMO}.location")
    assert create_logs(world.kafka(PORT, "bridge"), {"containers.BIGU7654321": {}}) == {"containers.BIGU7654321"}
    with pytest.raises(RefusedError):
        create_logs(world.kafka(SHIP, "bridge"), {"containers.BIGU7654321": {}})


def test_the_replicator_makes_writes_and_repairs_replicas_and_never_touches_the_sites_own_logs(world: World) -> None:
    """The replicator can create, write and repair replicas, and cannot change the site's own logs."""
    create_logs(world.kafka(PORT, "replicator"), {"containers.BIGU0000001": {}})
    for topic in (f"events.{SHIP}", BOX, f"metrics.{SHIP}.cpu", f"ships.{IMO}.location"):
        write(world, PORT, "replicator", topic)
        set_retention(world, PORT, "replicator", topic)
        with Client(world.kafka(PORT, "replicator")) as client:
            probe.delete_records(client, topic)
            probe.read_settings(client, ResourceType.TOPIC, topic)
    for topic in (f"events.{PORT}", f"custody.{PORT}", f"metrics.{PORT}.cpu"):
        with pytest.raises(KafkaException, match="uthorization"):
            write(world, PORT, "replicator", topic)
        with pytest.raises(NotAuthorised):
            set_retention(world, PORT, "replicator", topic)
    assert read(world, PORT, "replicator", [f"custody.{PORT}", f"events.{PORT}"]) >= 0
    with pytest.raises(NotAuthorised):
        read(world, PORT, "replicator", ["feeds.ducks"])


def test_upstream_only_reads_what_the_links_take(world: World, append: Append) -> None:
    """A replicator of another site can read only the logs that its links carry."""
    append(SHIP, f"events.{SHIP}", b"x")
    append(SHIP, BOX, b"x")
    user = f"replicator.{PORT}"
    assert read(world, SHIP, user, [f"events.{SHIP}", BOX]) >= 2
    with Client(world.kafka(SHIP, user)) as client:
        probe.read_settings(client, ResourceType.TOPIC, BOX)
    for topic in (f"deadletters.{SHIP}", "feeds.ducks", f"bookings.{PORT}"):
        with pytest.raises(NotAuthorised):
            read(world, SHIP, user, [topic])
    with pytest.raises(KafkaException, match="uthorization"):
        write(world, SHIP, user, BOX)


def test_shore_reads_streams_writes_feeds_and_has_groups_of_its_own(world: World, append: Append) -> None:
    """Shore can read streams, write feeds and use its own consumer groups."""
    append(PORT, BOX, b"x")
    assert read(world, PORT, "shore", [BOX, f"alerts.{PORT}", f"bookings.{PORT}"]) > 0
    write(world, PORT, "shore", "feeds.ducks")
    create_logs(world.kafka(PORT, "shore"), {"feeds.new-customer": {}})
    for topic in (BOX, f"alerts.{PORT}"):
        with pytest.raises(KafkaException, match="uthorization"):
            write(world, PORT, "shore", topic)
    with pytest.raises(NotAuthorised):
        read(world, PORT, "shore", [f"deadletters.{PORT}"])
    with Client(world.kafka(PORT, "shore")) as client:
        probe.describe_group(client, "shore.readings")
        with pytest.raises(NotAuthorised):
            probe.describe_group(client, "ducks.cli")


def test_a_program_writes_only_the_logs_its_site_holds(world: World) -> None:
    """A program can write only the logs that its site holds."""
    write(world, PORT, "producer", f"metrics.{PORT}.cpu")
    write(world, SHIP, "producer", f"metrics.{SHIP}.cpu")
    for site, topic in ((PORT, f"metrics.{SHIP}.cpu"), (SHIP, f"metrics.{PORT}.cpu"), (PORT, f"metrics.{PORT}x")):
        with pytest.raises(KafkaException, match="uthorization"):
            write(world, site, "producer", topic)
    with Client(world.kafka(PORT, "producer")) as client:
        probe.create_topic(client, f"metrics.{PORT}.disk")
        probe.begin_transaction(client, "producer.1")
        for forbidden in (f"metrics.{SHIP}.disk", "metrics.x", f"metrics.{PORT}x"):
            if forbidden not in LOGS:
                with pytest.raises(NotAuthorised):
                    probe.create_topic(client, forbidden)
        with pytest.raises(NotAuthorised):
            probe.begin_transaction(client, "shore.1")
    assert read(world, PORT, "analyst", [f"metrics.{PORT}.cpu", f"metrics.{SHIP}.cpu"]) > 0


def test_a_group_belongs_to_its_user(world: World, append: Append) -> None:
    """Only its own user can use a consumer group."""
    append(PORT, "feeds.ducks", b"x")
    conf = {**world.kafka(PORT, "ducks").librdkafka(), "log_level": 0, "auto.offset.reset": "earliest"}
    own = Consumer({**conf, "group.id": "ducks.program", "enable.auto.commit": False})
    own.subscribe(["feeds.ducks"])
    record = own.poll(PATIENCE)
    assert record is not None and record.error() is None
    own.commit(message=record, asynchronous=False)
    own.close()
    stranger = Consumer({**conf, "group.id": "other.program"})
    stranger.subscribe(["feeds.ducks"])
    answer = stranger.poll(PATIENCE)
    stranger.close()
    assert answer is not None
    error = answer.error()
    assert error is not None and error.name() == "GROUP_AUTHORIZATION_FAILED"
