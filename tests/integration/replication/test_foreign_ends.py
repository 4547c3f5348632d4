"""The link check finds every wrong setting of a Kafka that Fairlead did not start, and none at Fairlead's own sites."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from acl.kafka import Client
from acl.rules import Binding, Operation, Pattern, Resource, Rule
from fairlead.kafka.admin import create_logs
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.local.sites import LocalSites, SiteSpec
from replication.check.ask import check_link
from replication.check.rules import CheckedEnd, ClusterFinding, Severity
from tests.integration.replication.resolving import Desk
from tests.support.access_rules import change
from tests.support.replication.lab import Lab
from tests.support.sites import NewSites
from topologies.model import Topology

pytestmark = pytest.mark.integration

BAD_BROKER = {
    "producer.id.expiration.ms": "86400000",
    "producer.id.expiration.check.interval.ms": "600000",
    "unclean.leader.election.enable": "true",
    "auto.create.topics.enable": "true",
    "log.message.timestamp.after.max.ms": "3600000",
    "compression.type": "gzip",
    "socket.request.max.bytes": "1048576",
    "delete.topic.enable": "false",
}
BAD_TOPIC = {
    "message.timestamp.type": "LogAppendTime",
    "compression.type": "zstd",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "3600000",
    "max.message.bytes": "100000",
    "segment.bytes": "1048576",  # smaller than the source's max.message.bytes
    "cleanup.policy": "compact,delete",
    "retention.ms": "86400000",
    "unclean.leader.election.enable": "true",
    "min.insync.replicas": "2",
}


@pytest.fixture(scope="module")
def gamma(tmp_path_factory: pytest.TempPathFactory, new_sites: NewSites) -> Iterator[LocalSites]:
    """Run a third cluster with bad settings; its users ``replicator`` and ``stranger`` have no ACLs."""
    local = new_sites(tmp_path_factory.mktemp("foreign"))
    local.up([SiteSpec("gamma", ("replicator", "replicator.alpha", "stranger"), properties=BAD_BROKER)])
    yield local
    local.down(purge=True)


def topology(lab: Lab) -> Topology:
    return Topology.model_validate(
        {
            "name": "lab",
            "sites": {"alpha": {"kind": "datacentre"}, "gamma": {"kind": "datacentre"}},
            "streams": {lab.stream: {}},
            "links": [{"from": "alpha", "to": "gamma", "both": True, "streams": {lab.stream: "all"}}],
        }
    )


def allow(endpoint: KafkaEndpoint, user: str, prefix: str, operation: Operation) -> None:
    with Client(endpoint) as client:
        change(client, [Binding.of(Rule(user, Resource.TOPIC, Pattern.PREFIXED, prefix, operation))])


async def make(endpoint: KafkaEndpoint, topics: dict[str, dict[str, str]]) -> None:
    create_logs(endpoint, topics)
    async with await Cluster.open(endpoint, client_id="test") as cluster:
        await cluster.wait_writable(topics)


def breaking(findings: tuple[ClusterFinding, ...], end: CheckedEnd) -> set[str]:
    return {each.setting for each in findings if each.end is end and each.severity is Severity.BREAKS}


async def test_sites_of_fairlead_have_nothing_that_breaks_equality(desk: Desk) -> None:
    lab, topic = desk.lab, desk.lab.log("alpha.one")
    await lab.make("alpha", topic)
    end = await lab.open_term("alpha", topic, term=1, at=0)
    async with desk.replicating():
        await desk.mirrored(topic, end)
    resolver, link = desk.context.resolver, desk.context.topology.links[0]
    found = await check_link(
        desk.context.topology,
        link,
        resolver.kafka("alpha", "replicator.beta"),
        resolver.kafka("beta", "replicator"),
        source_admin=lab.kafka("alpha"),
        target_admin=lab.kafka("beta"),
    )
    assert found == ()
    unseen = await check_link(
        desk.context.topology, link, resolver.kafka("alpha", "replicator.beta"), resolver.kafka("beta", "replicator")
    )
    assert {each.severity for each in unseen} == {Severity.ADVICE}
    assert {each.subject for each in unseen} == {"settings of brokers"}


async def test_every_bad_setting_of_a_foreign_target_is_found(lab: Lab, gamma: LocalSites) -> None:
    bad, fine = lab.log("alpha.bad"), lab.log("alpha.fine")
    await lab.make("alpha", bad, fine)
    target = gamma.kafka("gamma", "admin")
    await make(target, {bad: BAD_TOPIC, fine: {}})
    allow(target, "stranger", lab.stream[:4], Operation.WRITE)
    allow(target, "replicator", lab.stream, Operation.READ)
    made = topology(lab)
    (link,) = made.links_to("gamma")
    found = await check_link(made, link, lab.kafka("alpha"), gamma.kafka("gamma", "replicator"), target_admin=target)
    expected = {
        "producer.id.expiration.ms",
        "producer.id.expiration.check.interval.ms",
        "unclean.leader.election.enable",
        "socket.request.max.bytes",
        *BAD_TOPIC,
        *(f"{each} of User:replicator" for each in ("WRITE", "CREATE", "DELETE", "ALTER_CONFIGS", "DESCRIBE_CONFIGS")),
        "WRITE of User:stranger",
    }
    assert breaking(found, CheckedEnd.TARGET) == expected
    assert breaking(found, CheckedEnd.SOURCE) == set()
    advice = {each.setting for each in found if each.end is CheckedEnd.TARGET and each.severity is Severity.ADVICE}
    assert advice >= {
        "auto.create.topics.enable",
        "log.message.timestamp.after.max.ms",
        "compression.type",
        "delete.topic.enable",
    }
    assert [each.severity for each in found] == sorted((each.severity for each in found), key=list(Severity).index)
    for each in found:
        assert each.found and each.needed and each.why and each.change and each.site
    (expiration,) = [each for each in found if each.setting == "producer.id.expiration.ms"]
    assert expiration.found == "86400000"
    assert expiration.needed == "2147483647"
    (stranger,) = [each for each in found if each.setting == "WRITE of User:stranger"]
    assert stranger.subject == f"2 topics, first {bad}"


async def test_a_foreign_source_may_be_read_only_and_its_risks_are_told(lab: Lab, gamma: LocalSites) -> None:
    topic = lab.log("gamma.one")
    source = gamma.kafka("gamma", "admin")
    await make(source, {topic: {"cleanup.policy": "compact,delete", "retention.ms": "86400000"}})
    await lab.make("alpha", topic)
    made = topology(lab)
    (link,) = made.links_to("alpha")
    reader = gamma.kafka("gamma", "replicator.alpha")
    allow(source, "replicator.alpha", lab.stream, Operation.READ)
    allow(source, "replicator.alpha", lab.stream, Operation.DESCRIBE_CONFIGS)
    found = await check_link(made, link, reader, lab.kafka("alpha"), source_admin=source)
    assert breaking(found, CheckedEnd.SOURCE) == {"unclean.leader.election.enable"}
    assert {each.setting for each in found if each.severity is Severity.ADVICE} == {
        "auto.create.topics.enable",
        "retention.ms",
        "cleanup.policy",
    }
    assert breaking(found, CheckedEnd.TARGET) == set()
