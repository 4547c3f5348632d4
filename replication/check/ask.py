"""Check both ends of a link for the settings, versions, rights and access rules that equal copies need.

Nothing is changed at either end. ``rules`` judges the values. Some requests exist only in confluent-kafka's admin
client. The functions that use it block, so run them with ``asyncio.to_thread``. When no broker answers, they raise the
errors of ``require_answer``. A request that the user may not make becomes a finding.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Any, Final

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from fairlead.kafka.admin import kafka_error, require_answer
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.errors import OFFSET_OUT_OF_RANGE, BrokerError, UnsupportedBroker, broker_error
from fairlead.kafka.protocol.types import TopicPartition
from replication.catalog import Catalog
from replication.check.rules import (
    CheckedEnd,
    CheckedTopic,
    ClusterFinding,
    Severity,
    broker_findings,
    merge_findings,
    replica_findings,
    source_findings,
)
from topologies.model import Link, Topology
from topologies.users import service_users

TIMEOUT: Final = 15.0  # seconds for a request
RIGHTS: Final = {
    CheckedEnd.SOURCE: (AclOperation.READ, AclOperation.DESCRIBE_CONFIGS),
    CheckedEnd.TARGET: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
}
"""The rights that the replicator's user needs on the logs of a link."""


def broker_settings(end: CheckedEnd, endpoint: KafkaEndpoint) -> list[ClusterFinding]:
    """Return the findings about the brokers' settings."""
    client = require_answer(endpoint)
    described: Any = client.describe_cluster(request_timeout=TIMEOUT)
    nodes = sorted(node.id for node in described.result().nodes)
    resources = [ConfigResource(ResourceType.BROKER, str(node)) for node in nodes]
    findings: list[ClusterFinding] = []
    for resource, future in client.describe_configs(resources, request_timeout=TIMEOUT).items():
        try:
            settings = {name: entry.value for name, entry in future.result().items()}
        except KafkaException as error:
            return [_not_seen(end, endpoint, "settings of brokers", "DESCRIBE_CONFIGS on the cluster", error)]
        findings += broker_findings(end, endpoint.site, int(resource.name), settings)
    return findings


def missing_rights(end: CheckedEnd, endpoint: KafkaEndpoint, topics: Sequence[str]) -> list[ClusterFinding]:
    """Return a finding for each right that the replicator's user lacks on existing logs, as the broker reports them."""
    if not topics:
        return []
    client = require_answer(endpoint)
    asked = client.describe_topics(
        TopicCollection(list(topics)), include_authorized_operations=True, request_timeout=TIMEOUT
    )
    findings: list[ClusterFinding] = []
    for name, future in asked.items():
        try:
            described: Any = future.result()  # the stub has the wrong type
        except KafkaException as error:
            findings.append(_lacking(end, endpoint, name, "DESCRIBE", kafka_error(error).name()))
            continue
        if described.authorized_operations is None:
            continue  # a cluster without an authorizer does not report operations
        findings += [
            _lacking(end, endpoint, name, needed.name, "not allowed")
            for needed in RIGHTS[end]
            if needed not in described.authorized_operations
        ]
    return findings


def _lacking(end: CheckedEnd, endpoint: KafkaEndpoint, topic: str, right: str, found: str) -> ClusterFinding:
    return ClusterFinding(
        end,
        endpoint.site,
        f"topic {topic}",
        f"{right} of {endpoint.principal}",
        found,
        "allowed",
        "the replicator needs it to keep this log equal",
        Severity.BREAKS,
        f"allow {endpoint.principal} {right} on the topics of the stream (fairlead acl apply)",
    )


def foreign_writers(topology: Topology, endpoint: KafkaEndpoint, topics: Sequence[str]) -> list[ClusterFinding]:
    """Return a finding for each principal, besides Fairlead's own services, that may write to replicas."""
    client = require_answer(endpoint)
    try:
        bindings = _rules(client)
    except KafkaException as error:
        if kafka_error(error).name() != "SECURITY_DISABLED":
            return [_not_seen(CheckedEnd.TARGET, endpoint, "access rules", "DESCRIBE on the cluster", error)]
        return [_no_authorizer(endpoint)]
    own = {f"User:{name}" for name in service_users(topology, endpoint.site)} | {endpoint.principal}
    findings: list[ClusterFinding] = []
    for each in bindings:
        if each.principal in own or each.permission_type is not AclPermissionType.ALLOW:
            continue
        if each.operation not in (AclOperation.WRITE, AclOperation.ALL):
            continue
        covered = [topic for topic in topics if _covers(each, topic)]
        if covered:
            findings.append(_strange(endpoint, each, covered))
    return findings


def _no_authorizer(endpoint: KafkaEndpoint) -> ClusterFinding:
    return ClusterFinding(
        CheckedEnd.TARGET,
        endpoint.site,
        "cluster",
        "authorizer.class.name",
        "none",
        "an authorizer",
        "every client can write to replicas, and one foreign record shifts all later offsets",
        Severity.BREAKS,
        "give every broker and controller an authorizer",
    )


def _strange(endpoint: KafkaEndpoint, rule: AclBinding, covered: Sequence[str]) -> ClusterFinding:
    pattern = "" if rule.resource_pattern_type is ResourcePatternType.LITERAL else "prefix "
    return ClusterFinding(
        CheckedEnd.TARGET,
        endpoint.site,
        f"topic {covered[0]}" if len(covered) == 1 else f"{len(covered)} topics, first {covered[0]}",
        f"{rule.operation.name} of {rule.principal}",
        f"allowed on {pattern}{rule.name}",
        "nobody but the replicator",
        "one record of another client shifts all later offsets (misplaced)",
        Severity.BREAKS,
        f"remove the rule: kafka-acls.sh --remove --allow-principal {rule.principal} --operation "
        f"{rule.operation.name} --topic '{rule.name}' --resource-pattern-type "
        f"{rule.resource_pattern_type.name.lower()}",
    )


def _rules(client: AdminClient) -> list[AclBinding]:
    any_name: Any = None  # the stubs do not know that None stands for all
    everything = AclBindingFilter(
        ResourceType.TOPIC,
        any_name,
        ResourcePatternType.ANY,
        any_name,
        any_name,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    asked: Any = client.describe_acls(everything, request_timeout=TIMEOUT)
    found: list[AclBinding] = asked.result()
    return found


def _covers(rule: AclBinding, topic: str) -> bool:
    if rule.resource_pattern_type is ResourcePatternType.PREFIXED:
        return topic.startswith(rule.name)
    return rule.name in ("*", topic)


def _not_seen(
    end: CheckedEnd, endpoint: KafkaEndpoint, what: str, needed: str, error: KafkaException
) -> ClusterFinding:
    return ClusterFinding(
        end,
        endpoint.site,
        what,
        "rights of this check",
        kafka_error(error).name(),
        needed,
        "the check could not read this setting",
        Severity.ADVICE,
        f"give {endpoint.principal} {needed}, or check as an administrator",
    )


CLIENT: Final = "fairlead-describe"
AT_ONCE: Final = 500
LOOKED_AT: Final = (
    "cleanup.policy",
    "compression.type",
    "max.message.bytes",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.type",
    "min.insync.replicas",
    "retention.ms",
    "segment.bytes",
    "unclean.leader.election.enable",
)


async def check_link(
    topology: Topology,
    link: Link,
    source: KafkaEndpoint,
    target: KafkaEndpoint,
    *,
    source_admin: KafkaEndpoint | None = None,
    target_admin: KafkaEndpoint | None = None,
) -> tuple[ClusterFinding, ...]:
    """Return all findings at both ends; those that break equality come first.

    Args:
        source, target: Both ends, as the users of the replicator of ``link.to`` (``replicator.<to>`` at the source,
            ``replicator`` at the target). The check tries the rights of these users.
        source_admin, target_admin: Users that may read brokers' settings and access rules; without them a finding
            reports that these were not checked.

    Raises:
        UnavailableError, WireError: an end cannot be reached.
    """
    findings: list[ClusterFinding] = []
    try:
        end = CheckedEnd.SOURCE
        at_source = await _topics(topology, link, source_admin or source)
        end = CheckedEnd.TARGET
        at_target = await _topics(topology, link, target_admin or target)
    except UnsupportedBroker as error:
        return (_too_old(end, link.from_ if end is CheckedEnd.SOURCE else link.to, error),)
    findings += await _try_reading(CheckedEnd.SOURCE, source, at_source)
    findings += await _try_reading(CheckedEnd.TARGET, target, at_target)
    for topic in at_source.values():
        findings += source_findings(link.from_, topic)
    for topic in at_target.values():
        findings += replica_findings(link.to, topic, at_source.get(topic.name))
    for end, user, admin, topics in (
        (CheckedEnd.SOURCE, source, source_admin, at_source),
        (CheckedEnd.TARGET, target, target_admin, at_target),
    ):
        findings += await asyncio.to_thread(broker_settings, end, admin or user)
        findings += await asyncio.to_thread(missing_rights, end, user, sorted(topics))
    if target_admin is not None:
        findings += await asyncio.to_thread(foreign_writers, topology, target_admin, sorted(at_target))
    return merge_findings(findings)


async def _topics(topology: Topology, link: Link, endpoint: KafkaEndpoint) -> dict[str, CheckedTopic]:
    """Return the logs of a link that a user sees at one end, with their settings."""
    async with await Cluster.open(endpoint, client_id=CLIENT, request_timeout=TIMEOUT) as cluster:
        catalog = Catalog(topology)
        found = {
            name: info
            for name, info in (await cluster.topics(refresh=True)).items()
            if catalog.may_carry(link, name) and topology.fixed_holder(name) != link.to
        }
        names = sorted(found)
        settings: dict[str, dict[str, str]] = {}
        for start in range(0, len(names), AT_ONCE):
            settings |= await cluster.topic_settings(names[start : start + AT_ONCE], LOOKED_AT)
    return {name: CheckedTopic(name, settings.get(name, {}), found[name].replicas) for name in names}


async def _try_reading(end: CheckedEnd, endpoint: KafkaEndpoint, topics: Collection[str]) -> list[ClusterFinding]:
    """Try the replicator's read requests on one log."""
    if not topics:
        return []
    log = TopicPartition(min(topics))
    async with await Cluster.open(endpoint, client_id=CLIENT, request_timeout=TIMEOUT) as cluster:
        tried = {
            "ListOffsets": (await cluster.end_offsets([log]))[log],
            "DescribeProducers": (await cluster.describe_producers([log]))[log],
        }
        part = (await cluster.fetch({log: 0}, max_wait_ms=0))[log]
    if part.error_code not in (0, OFFSET_OUT_OF_RANGE):
        tried["Fetch"] = broker_error(part.error_code, log)
    return [
        ClusterFinding(
            end,
            endpoint.site,
            f"topic {log.topic}",
            what,
            answer.name,
            "an answer",
            "the replicator cannot read the log and its end",
            Severity.BREAKS,
            f"allow {endpoint.principal} READ on the topics of the stream (fairlead acl apply)",
        )
        for what, answer in tried.items()
        if isinstance(answer, BrokerError)
    ]


def _too_old(end: CheckedEnd, site: str, error: UnsupportedBroker) -> ClusterFinding:
    return ClusterFinding(
        end,
        site,
        "broker",
        "version",
        error.what,
        "Apache Kafka 3.3 or later",
        "older brokers lack the requests that carry whole batches",
        Severity.BREAKS,
        "upgrade the cluster",
    )
