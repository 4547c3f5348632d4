"""Whether both ends of a link are as equality needs them: what a Kafka that Fairlead did not start may lack.

Reads settings, versions, rights and rules; changes nothing. Which values are right is in ``foreign_rules``, what only
confluent-kafka's admin client can ask in ``foreign_admin``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

from fairlead.endpoint import KafkaEndpoint
from fairlead.wire.cluster import Cluster
from fairlead.wire.errors import OFFSET_OUT_OF_RANGE, BrokerError, UnsupportedBroker, broker_error
from fairlead.wire.types import TopicPartition
from replication.foreign_admin import broker_settings, rights_lacking, strange_writers
from replication.foreign_rules import (
    End,
    Finding,
    Severity,
    Topic,
    gathered,
    replica_findings,
    source_findings,
)
from replication.plan import Catalog
from topologies.model import Link, Topology

__all__ = ["End", "Finding", "Severity", "check_link"]

CLIENT: Final = "fairlead-describe"
TIMEOUT: Final = 15.0
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
) -> tuple[Finding, ...]:
    """Everything at both ends that should be otherwise; what breaks equality first.

    Args:
        source, target: As the users of the replicator of ``link.to`` (``replicator.<to>`` and ``replicator``): their
            rights are what is tried.
        source_admin, target_admin: Users that may read brokers' settings and the access rules; without them it is said
            that these were not seen.

    Raises:
        UnavailableError, WireError: an end cannot be reached.
    """
    findings: list[Finding] = []
    try:
        end = End.SOURCE
        at_source = await _topics(topology, link, source_admin or source)
        end = End.TARGET
        at_target = await _topics(topology, link, target_admin or target)
    except UnsupportedBroker as error:
        return (_too_old(end, link.from_ if end is End.SOURCE else link.to, error),)
    findings += await _try_reading(End.SOURCE, source, at_source)
    findings += await _try_reading(End.TARGET, target, at_target)
    for topic in at_source.values():
        findings += source_findings(link.from_, topic)
    for topic in at_target.values():
        findings += replica_findings(link.to, topic, at_source.get(topic.name))
    for end, user, admin, topics in (
        (End.SOURCE, source, source_admin, at_source),
        (End.TARGET, target, target_admin, at_target),
    ):
        findings += await asyncio.to_thread(broker_settings, end, admin or user)
        findings += await asyncio.to_thread(rights_lacking, end, user, sorted(topics))
    if target_admin is not None:
        findings += await asyncio.to_thread(strange_writers, topology, target_admin, sorted(at_target))
    return gathered(findings)


async def _topics(topology: Topology, link: Link, endpoint: KafkaEndpoint) -> dict[str, Topic]:
    """The logs of a link at one end, as far as a user sees them, with their settings."""
    async with await Cluster.open(endpoint, client_id=CLIENT, request_timeout=TIMEOUT) as cluster:
        catalog = Catalog(topology)
        found = {
            name: info
            for name, info in (await cluster.topics(refresh=True)).items()
            if catalog.takes(link, name) and topology.fixed_holder(name) != link.to
        }
        names = sorted(found)
        settings: dict[str, dict[str, str]] = {}
        for start in range(0, len(names), AT_ONCE):
            settings |= await cluster.topic_settings(names[start : start + AT_ONCE], LOOKED_AT)
    return {name: Topic(name, settings.get(name, {}), found[name].replicas) for name in names}


async def _try_reading(end: End, endpoint: KafkaEndpoint, topics: Collection[str]) -> list[Finding]:
    """Do with one log what the replicator does with all, as far as it changes nothing."""
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
        Finding(
            end,
            endpoint.site,
            f"topic {log.topic}",
            what,
            answer.name,
            "an answer",
            "the replicator cannot see what the log has and where it stands",
            Severity.BREAKS,
            f"allow User:{endpoint.user} READ on the topics of the stream (fairlead acl apply)",
        )
        for what, answer in tried.items()
        if isinstance(answer, BrokerError)
    ]


def _too_old(end: End, site: str, error: UnsupportedBroker) -> Finding:
    return Finding(
        end,
        site,
        "broker",
        "version",
        error.what,
        "Apache Kafka 3.3 or later",
        "the requests that carry whole batches do not exist there",
        Severity.BREAKS,
        "upgrade the cluster",
    )
