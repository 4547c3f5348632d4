"""Test one customer's access with its own password at every site: read everything, and attempt forbidden operations.

The result is judged by a separate interpretation of the topology (``entitlement``), not by the compiler whose ACLs are
under test. An attempt raises ``NotAuthorised`` or ``WrongPassword`` if it is refused, and returns if it is possible. No
attempt does harm: topics are only validated, records are deleted before offset 0, and no record is written if the
broker reports that writing is allowed.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import ConfigResource, NewTopic, ResourceType
from pydantic import SecretStr

from acl.kafka import QUIET, Client, NotAuthorised, Received, StartAt, UserConsumer, WrongPassword, translate
from fairlead.errors import UnknownNameError
from fairlead.kafka.admin import ask_coordinator, kafka_error
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.names import parse_log
from topologies.endpoints import EndpointResolver
from topologies.expression import Subject, evaluate, parse
from topologies.model import Customer, Permissions, Topology
from topologies.users import ADMIN

Attempt = tuple[str, Callable[[], None]]
"""A description of a forbidden operation, and the call that attempts it."""

PROBE = b"fairlead access probe"
_SILENT = logging.getLogger("fairlead.librdkafka")  # without a logger librdkafka prints fatal errors at any log level
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


def log_in(endpoint: KafkaEndpoint, user: str, password: SecretStr | None) -> None:
    """Log in at a cluster as a user who should not exist there."""
    with Client(dataclasses.replace(endpoint, user=user, password=password or SecretStr("no-such-user"))) as client:
        client.cluster_operations()


def append_record(client: Client, topic: str) -> None:
    """Append one record, unless the broker reports beforehand that this is allowed."""
    if "WRITE" in topic_operations(client, topic):
        return
    outcome: list[KafkaError | None] = []
    producer = Producer({**client.endpoint.librdkafka(), **QUIET, "message.timeout.ms": int(client.timeout * 1000)})
    producer.produce(topic, PROBE, on_delivery=lambda error, _: outcome.append(error))
    producer.flush(client.timeout + 2)
    if not outcome or outcome[0] is not None:
        error = (outcome or [None])[0] or KafkaError(KafkaError.REQUEST_TIMED_OUT)
        raise translate(error, client.endpoint, f"writing {topic}")


def topic_operations(client: Client, topic: str) -> frozenset[str]:
    """Return the operations on a topic that the broker allows a user; empty if it may not describe the topic."""
    futures = client.admin.describe_topics(
        TopicCollection([topic]), include_authorized_operations=True, request_timeout=client.timeout
    )
    try:
        described: Any = cast("Future[Any]", futures[topic]).result(client.timeout + 2)
    except KafkaException as problem:
        error = kafka_error(problem)
        if error.code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.UNKNOWN_TOPIC_OR_PART):
            return frozenset()
        raise translate(error, client.endpoint, f"describing {topic}") from None
    return frozenset(operation.name for operation in described.authorized_operations or ())


def create_topic(client: Client, topic: str) -> None:
    """Check whether a topic could be created; creates none."""
    futures = client.admin.create_topics(
        [NewTopic(topic, num_partitions=1)], validate_only=True, request_timeout=client.timeout
    )
    client.wait(futures[topic], f"creating {topic}")


def delete_records(client: Client, topic: str) -> None:
    """Request to delete the records before offset 0; this deletes none."""
    futures = client.admin.delete_records([TopicPartition(topic, 0, 0)], request_timeout=client.timeout)
    for future in futures.values():
        client.wait(future, f"deleting records of {topic}")


def read_settings(client: Client, kind: ResourceType, name: str) -> None:
    """Read the settings of a topic or a broker."""
    for future in client.admin.describe_configs([ConfigResource(kind, name)], request_timeout=client.timeout).values():
        client.wait(future, f"reading the settings of {name}")


def describe_group(client: Client, group: str) -> None:
    """Describe somebody's consumer group."""
    client.wait(ask_coordinator(client.admin, group, client.timeout), f"describing group {group}")


def read_group_offsets(client: Client, group: str) -> None:
    """Read the offsets of somebody's group, unless the broker refuses to describe it: one right allows both."""
    describe_group(client, group)
    request = [ConsumerGroupTopicPartitions(group)]
    futures = client.admin.list_consumer_group_offsets(request, request_timeout=client.timeout)
    client.wait(cast("Future[Any]", futures[group]), f"reading offsets of group {group}")


def begin_transaction(client: Client, transactional_id: str) -> None:
    """Take a transactional id."""
    conf = {**client.endpoint.librdkafka(), **QUIET, "transactional.id": transactional_id}
    try:
        Producer(conf, logger=_SILENT).init_transactions(client.timeout)
    except KafkaException as problem:
        raise translate(kafka_error(problem), client.endpoint, f"taking transactional id {transactional_id}") from None


def manage_cluster(client: Client) -> None:
    """Check whether the broker allows this user any operation on the cluster (rules, users, settings)."""
    if not client.cluster_operations():
        raise translate(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED), client.endpoint, "managing the cluster")


OnRecord = Callable[[str, Received], None]
FOREIGN_PER_STREAM = 2


@dataclass(frozen=True, slots=True)
class CustomerAccess:
    """The results of testing a customer's access.

    Args:
        read: Number of data records (no markers, no fillers) by topic; the smallest number if several sites have it.
        sites: The same by site and topic.
        refused: Forbidden operations that were refused.
        wrongly_allowed: Forbidden operations that were possible; empty if access is right.
    """

    customer: str
    read: dict[str, int]
    refused: tuple[str, ...]
    wrongly_allowed: tuple[str, ...]
    sites: dict[str, dict[str, int]] = field(default_factory=dict)


def entitlement(topology: Topology, customer: str) -> tuple[str, ...]:
    """Return what a customer may read: topic names, and prefixes that end with a dot (whole streams) or ``*``."""
    spec = _customer(topology, customer)
    subject = Subject(customer, frozenset(spec.groups), frozenset(spec.roles))

    def given(permissions: Permissions) -> bool:
        return any(evaluate(parse(text), subject) for text in (permissions.consume, permissions.copy_))

    feed = (f"feeds.{customer}",) if spec.feed_at else ()
    streams = (f"{name}." for name, stream in topology.streams.items() if given(stream.permissions))
    keys = (
        f"{name}.{pattern}"
        for name, stream in topology.streams.items()
        for pattern, permissions in stream.keys.items()
        if given(permissions)
    )
    return (*feed, *streams, *keys)


def entitles(entitled: Collection[str], topic: str) -> bool:
    """Return whether a topic matches the names and prefixes that ``entitlement`` returns."""
    return any(
        topic.startswith(one.removesuffix("*")) if one.endswith((".", "*")) else topic == one for one in entitled
    )


def sites_of(topology: Topology, customer: str) -> tuple[str, ...]:
    """Return the sites where a customer's user exists, the site of its feed first."""
    spec = _customer(topology, customer)
    return tuple(dict.fromkeys(site for site in (spec.feed_at, *spec.reads_at) if site is not None))


def probe_customer(
    topology: Topology,
    resolver: EndpointResolver,
    customer: str,
    *,
    on_record: OnRecord | None = None,
) -> CustomerAccess:
    """Read everything that a customer can read, and attempt forbidden operations, at every site of the topology.

    Args:
        on_record: Called for each data record read, with its site, from several threads.

    Raises:
        UnknownNameError: the topology has no such customer.
        UnavailableError: a site does not answer, so the result would be incomplete.
    """
    may_read = entitlement(topology, customer)
    home = sites_of(topology, customer)

    def probe(site: str) -> _Findings:
        findings = _Findings()
        if site in home:
            _probe_at(topology, resolver, customer, site, may_read, on_record, findings)
        else:
            password = resolver.kafka(home[0], customer).password if home else None
            endpoint = resolver.kafka(site, ADMIN)
            findings.attempt(site, (f"logging in as {customer}", partial(log_in, endpoint, customer, password)))
        return findings

    with ThreadPoolExecutor(max_workers=8, thread_name_prefix="probe") as pool:
        found = dict(zip(topology.sites, pool.map(probe, topology.sites), strict=True))
    counts = {site: found[site].read for site in home}
    read: dict[str, int] = {}
    for of_site in counts.values():
        for topic, count in of_site.items():
            read[topic] = min(count, read.get(topic, count))
    return CustomerAccess(
        customer,
        read,
        refused=tuple(text for site in found for text in found[site].refused),
        wrongly_allowed=tuple(text for site in found for text in found[site].allowed),
        sites=counts,
    )


@dataclass(slots=True)
class _Findings:
    read: dict[str, int] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    allowed: list[str] = field(default_factory=list)

    def attempt(self, site: str, attempt: Attempt) -> None:
        text, run = attempt
        try:
            run()
        except (NotAuthorised, WrongPassword):
            self.refused.append(f"{site}: {text}")
        else:
            self.allowed.append(f"{site}: {text}")


def _probe_at(
    topology: Topology,
    resolver: EndpointResolver,
    customer: str,
    site: str,
    may_read: tuple[str, ...],
    on_record: OnRecord | None,
    findings: _Findings,
) -> None:
    with UserConsumer(resolver.kafka(site, ADMIN), group=f"{ADMIN}.probe") as admin:
        existing = admin.visible()
    endpoint = resolver.kafka(site, customer)
    with UserConsumer(endpoint, group=f"{customer}.probe") as reader:
        visible = reader.visible()
    foreign = [topic for topic in existing if not entitles(may_read, topic)]
    hidden = [topic for topic in foreign if topic not in visible]
    readable = [topic for topic in visible if topic not in foreign]
    findings.read = dict.fromkeys(readable, 0)

    def read(*topics: str) -> None:
        with UserConsumer(endpoint, group=f"{customer}.probe") as reader:
            for record in reader.read(topics, start=StartAt.BEGINNING, follow=False):
                if record is not None and record.is_data:
                    findings.read[record.topic] = findings.read.get(record.topic, 0) + 1
                    if on_record:
                        on_record(site, record)

    if readable:
        with suppress(NotAuthorised):  # topics that are shown but not readable are missing in the counts
            read(*readable)
    if hidden:
        findings.refused.append(f"{site}: listing {len(hidden)} topics of others")
    findings.allowed += [f"{site}: listing {topic}" for topic in foreign if topic in visible]
    for topic in (topic for topic in foreign if topic in visible):
        findings.attempt(site, (f"reading {topic}", partial(read, topic)))
    with UserConsumer(endpoint, group=f"{customer}.probe") as reader:
        for topic in _some_of_each_stream(hidden):
            findings.attempt(site, (f"reading {topic}", partial(_read_first, reader, topic)))
    own = [topic for topic in existing if entitles(may_read, topic)]
    with Client(endpoint) as client:
        for attempt in _forbidden(topology, client, customer, own, _some_of_each_stream(foreign)):
            findings.attempt(site, attempt)


def _forbidden(
    topology: Topology, client: Client, customer: str, own: list[str], foreign: list[str]
) -> Iterator[Attempt]:
    feeds = [topic for topic in own if topic.startswith("feeds.")][:1] or own[:1]
    for topic in [*feeds, *foreign]:
        yield f"writing {topic}", partial(append_record, client, topic)
    for topic in feeds:  # the client cannot send requests for topics that it cannot see
        yield f"deleting records of {topic}", partial(delete_records, client, topic)
    for topic in (f"feeds.{customer}-probe", *(f"{stream}.probe" for stream in topology.streams)):
        yield f"creating {topic}", partial(create_topic, client, topic)
    strangers = [name for name in topology.customers if name != customer][:2]
    for group in ("shore.probe", *(f"{name}.cli" for name in strangers)):
        yield f"describing group {group}", partial(describe_group, client, group)
        yield f"reading offsets of group {group}", partial(read_group_offsets, client, group)
    for topic in feeds:
        yield f"reading settings of {topic}", partial(read_settings, client, ResourceType.TOPIC, topic)
    yield "reading settings of the broker", partial(read_settings, client, ResourceType.BROKER, "1")
    yield "taking a transactional id", partial(begin_transaction, client, "shore.probe")
    yield "managing the cluster", partial(manage_cluster, client)


def _read_first(reader: UserConsumer, topic: str) -> None:
    next(reader.read((topic,), start=StartAt.BEGINNING, follow=True))


def _some_of_each_stream(topics: list[str]) -> list[str]:
    """Return a few topics of each stream, whose logs have the same rule, and every feed, because each has its own."""
    taken: dict[str, list[str]] = {}
    for topic in topics:
        log = parse_log(topic)
        stream = log.stream if log else topic
        of_stream = taken.setdefault(stream, [])
        if stream == "feeds" or len(of_stream) < FOREIGN_PER_STREAM:
            of_stream.append(topic)
    return [topic for of_stream in taken.values() for topic in of_stream]


def _customer(topology: Topology, name: str) -> Customer:
    try:
        return topology.customers[name]
    except KeyError:
        raise UnknownNameError("customer", name, topology.customers) from None
