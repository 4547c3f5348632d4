"""What the check of a link asks through confluent-kafka's admin client: brokers' settings, rights, access rules.

Blocking: run it with ``asyncio.to_thread``. Every question raises what ``require_answer`` raises where nobody answers;
what its user may not ask becomes a finding.
"""

from __future__ import annotations

from collections.abc import Sequence
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

from fairlead.admin import kafka_error, require_answer
from fairlead.endpoint import KafkaEndpoint
from replication.foreign_rules import End, Finding, Severity, broker_findings
from topologies.model import Topology
from topologies.users import service_users

TIMEOUT: Final = 15.0  # seconds for a request
RIGHTS: Final = {
    End.SOURCE: (AclOperation.READ, AclOperation.DESCRIBE_CONFIGS),
    End.TARGET: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
}
"""What the replicator's user needs on the logs of a link."""


def broker_settings(end: End, endpoint: KafkaEndpoint) -> list[Finding]:
    """Settings of the brokers that should be otherwise."""
    client = require_answer(endpoint)
    described: Any = client.describe_cluster(request_timeout=TIMEOUT)
    nodes = sorted(node.id for node in described.result().nodes)
    resources = [ConfigResource(ResourceType.BROKER, str(node)) for node in nodes]
    findings: list[Finding] = []
    for resource, future in client.describe_configs(resources, request_timeout=TIMEOUT).items():
        try:
            settings = {name: entry.value for name, entry in future.result().items()}
        except KafkaException as error:
            return [_not_seen(end, endpoint, "settings of brokers", "DESCRIBE_CONFIGS on the cluster", error)]
        findings += broker_findings(end, endpoint.site, int(resource.name), settings)
    return findings


def rights_lacking(end: End, endpoint: KafkaEndpoint, topics: Sequence[str]) -> list[Finding]:
    """Rights that the replicator's user lacks on logs that are there; the broker itself says which it has."""
    if not topics:
        return []
    client = require_answer(endpoint)
    asked = client.describe_topics(
        TopicCollection(list(topics)), include_authorized_operations=True, request_timeout=TIMEOUT
    )
    findings: list[Finding] = []
    for name, future in asked.items():
        try:
            described: Any = future.result()  # its stub is wrong
        except KafkaException as error:
            findings.append(_lacking(end, endpoint, name, "DESCRIBE", kafka_error(error).name()))
            continue
        if described.authorized_operations is None:
            continue  # a cluster without an authorizer does not say
        findings += [
            _lacking(end, endpoint, name, needed.name, "not allowed")
            for needed in RIGHTS[end]
            if needed not in described.authorized_operations
        ]
    return findings


def _lacking(end: End, endpoint: KafkaEndpoint, topic: str, right: str, found: str) -> Finding:
    return Finding(
        end,
        endpoint.site,
        f"topic {topic}",
        f"{right} of User:{endpoint.user}",
        found,
        "allowed",
        "the replicator needs it to keep this log equal",
        Severity.BREAKS,
        f"allow User:{endpoint.user} {right} on the topics of the stream (fairlead acl apply)",
    )


def strange_writers(topology: Topology, endpoint: KafkaEndpoint, topics: Sequence[str]) -> list[Finding]:
    """Principals besides Fairlead's own services that may write to replicas."""
    client = require_answer(endpoint)
    try:
        bindings = _rules(client)
    except KafkaException as error:
        if kafka_error(error).name() != "SECURITY_DISABLED":
            return [_not_seen(End.TARGET, endpoint, "access rules", "DESCRIBE on the cluster", error)]
        return [_no_authorizer(endpoint)]
    own = {f"User:{name}" for name in service_users(topology, endpoint.site)} | {f"User:{endpoint.user}"}
    findings: list[Finding] = []
    for each in bindings:
        if each.principal in own or each.permission_type is not AclPermissionType.ALLOW:
            continue
        if each.operation not in (AclOperation.WRITE, AclOperation.ALL):
            continue
        covered = [topic for topic in topics if _covers(each, topic)]
        if covered:
            findings.append(_strange(endpoint, each, covered))
    return findings


def _no_authorizer(endpoint: KafkaEndpoint) -> Finding:
    return Finding(
        End.TARGET,
        endpoint.site,
        "cluster",
        "authorizer.class.name",
        "none",
        "an authorizer",
        "anybody may write to replicas, and one strange record shifts all later offsets",
        Severity.BREAKS,
        "give every broker and controller an authorizer",
    )


def _strange(endpoint: KafkaEndpoint, rule: AclBinding, covered: Sequence[str]) -> Finding:
    pattern = "" if rule.resource_pattern_type is ResourcePatternType.LITERAL else "prefix "
    return Finding(
        End.TARGET,
        endpoint.site,
        f"topic {covered[0]}" if len(covered) == 1 else f"{len(covered)} topics, first {covered[0]}",
        f"{rule.operation.name} of {rule.principal}",
        f"allowed on {pattern}{rule.name}",
        "nobody but the replicator",
        "one record of another writer shifts all later offsets (misplaced)",
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


def _not_seen(end: End, endpoint: KafkaEndpoint, what: str, needed: str, error: KafkaException) -> Finding:
    return Finding(
        end,
        endpoint.site,
        what,
        "rights of this check",
        kafka_error(error).name(),
        needed,
        "it could not be seen whether this is as it must be",
        Severity.ADVICE,
        f"give User:{endpoint.user} {needed}, or look with an administrator's user",
    )
