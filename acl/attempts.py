"""Trying what a user must not be able to do, on a real cluster, without doing harm where it turns out to be possible.

Every attempt either raises ``NotAuthorised`` or ``WrongPassword`` (it was refused) or returns (it was possible). What
could destroy something is asked for in a form that changes nothing: topics are only validated, records are deleted
before offset 0, and nothing is written where the broker itself says that writing is allowed.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from concurrent.futures import Future
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

from acl.kafka import QUIET, Client, translate
from fairlead.admin import kafka_error
from fairlead.endpoint import KafkaEndpoint

Attempt = tuple[str, Callable[[], None]]
"""What is tried, in words, and the trial."""

PROBE = b"fairlead access probe"
_SILENT = logging.getLogger("fairlead.librdkafka")  # a fatal error would be printed whatever the log level is
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


def log_in(endpoint: KafkaEndpoint, user: str, password: SecretStr | None) -> None:
    """Log in at a cluster as somebody (who should not exist there)."""
    with Client(dataclasses.replace(endpoint, user=user, password=password or SecretStr("no-such-user"))) as client:
        client.cluster_operations()


def write(client: Client, topic: str) -> None:
    """Append one record, unless the broker says beforehand that this would succeed."""
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
    """What a user may do with a topic, in the broker's own judgement; nothing when it may not even know of it."""
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


def create(client: Client, topic: str) -> None:
    """Ask whether a topic could be created."""
    futures = client.admin.create_topics(
        [NewTopic(topic, num_partitions=1)], validate_only=True, request_timeout=client.timeout
    )
    client.wait(futures[topic], f"creating {topic}")


def delete_records(client: Client, topic: str) -> None:
    """Delete the records before offset 0: none."""
    futures = client.admin.delete_records([TopicPartition(topic, 0, 0)], request_timeout=client.timeout)
    for future in futures.values():
        client.wait(future, f"deleting records of {topic}")


def read_settings(client: Client, kind: ResourceType, name: str) -> None:
    """Read the settings of a topic or a broker."""
    for future in client.admin.describe_configs([ConfigResource(kind, name)], request_timeout=client.timeout).values():
        client.wait(future, f"reading the settings of {name}")


def describe_group(client: Client, group: str) -> None:
    """Look at somebody's consumer group."""
    futures = client.admin.describe_consumer_groups([group], request_timeout=client.timeout)
    client.wait(cast("Future[Any]", futures[group]), f"describing group {group}")


def read_group_offsets(client: Client, group: str) -> None:
    """See how far somebody's consumer group has read."""
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
    """See whether the broker lets this user do anything at all with the cluster (rules, users, settings)."""
    if not client.cluster_operations():
        raise translate(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED), client.endpoint, "managing the cluster")
