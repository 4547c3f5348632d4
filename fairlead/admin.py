"""Topics through confluent-kafka's admin client. Blocking calls: run them with ``asyncio.to_thread``.

Everything that is not the data path goes this way (design, section 4). Creating returns when the controller has
committed, which is before the broker takes writes; ``fairlead.wire``'s ``Cluster.wait_writable`` waits for that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from itertools import islice
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from fairlead.awake import Awake
from fairlead.certs.served import require_trust
from fairlead.certs.trust import client_context
from fairlead.endpoint import KafkaEndpoint, let_in, with_each_password
from fairlead.errors import FairleadError, LoginRefusedError, RefusedError, UnavailableError
from fairlead.troubles import Troubles, login_refused

LOG_DEFAULTS: dict[str, str] = {
    "cleanup.policy": "delete",
    "compression.type": "producer",  # stored as sent: bytes must be the same at every site
    "max.message.bytes": "1048588",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": str(2**63 - 1),  # event time may be anything; the bridge judges it
    "message.timestamp.after.max.ms": str(2**63 - 1),
    "retention.bytes": "-1",
    "retention.ms": "-1",
}
"""Settings of every log, whatever a cluster's defaults are. Retention is each site's own."""

BATCH = 250  # topics in a request: from 100 on the broker's opening of logs is the limit, not the number of requests
_TIMEOUT = 60.0  # seconds for a request
_REFUSED = ("TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED", "POLICY_VIOLATION")


def admin_client(endpoint: KafkaEndpoint, settings: Mapping[str, Any] | None = None) -> AdminClient:
    """An admin client for one cluster and user; connects when it is used. Keep it while its futures are open."""
    endpoint = counting(endpoint)
    quiet = {"client.id": "fairlead-admin", "log_level": 0}  # librdkafka would write to standard error
    if endpoint.tls:
        client_context(endpoint.tls_ca, site=endpoint.site)  # librdkafka would only say that there is an error
    return AdminClient({**endpoint.librdkafka(), **quiet, **(settings or {})})


def create_logs(
    endpoint: KafkaEndpoint,
    topics: Mapping[str, Mapping[str, str]],
    *,
    partitions: Mapping[str, int] | None = None,
    replication_factor: int = -1,
    client: AdminClient | None = None,
    implied: Mapping[str, str] | None = None,
) -> set[str]:
    """Create topics; those that exist already are left as they are.

    Args:
        topics: Name to settings, which win over ``LOG_DEFAULTS``.
        partitions: How many partitions a topic gets; 1 for those that are not named.
        replication_factor: -1 for the cluster's default.
        client: A client to use again, instead of a new one for ``endpoint``.
        implied: What the cluster gives a topic without settings of its own (``Cluster.topic_defaults``): a setting that
            would be the same is not set. A broker goes through all its logs for each new topic with settings, which
            makes 5,000 topics take a third longer (measured on 4.3.1).

    Returns:
        The names that this call created.

    Raises:
        RefusedError: the user may not. UnavailableError: the cluster does not answer or cannot do it now.
        FairleadError: a name or setting is invalid. Topics of earlier requests stay created.
    """
    client = client or require_answer(endpoint)
    created: set[str] = set()
    names = iter(topics)
    while batch := list(islice(names, BATCH)):
        new = [
            NewTopic(
                name,
                num_partitions=(partitions or {}).get(name, 1),
                replication_factor=replication_factor,
                config=explicit({**LOG_DEFAULTS, **topics[name]}, implied or {}),
            )
            for name in batch
        ]
        futures: dict[str, Future[None]] = client.create_topics(
            new, operation_timeout=_TIMEOUT, request_timeout=_TIMEOUT
        )
        created |= {name for name, future in futures.items() if _created(endpoint, name, future)}
    return created


def explicit(wanted: Mapping[str, str], implied: Mapping[str, str]) -> dict[str, str]:
    """Of the settings that a topic shall have, those that it would not have by itself."""
    return {name: value for name, value in wanted.items() if implied.get(name) != value}


def grow_topics(endpoint: KafkaEndpoint, partitions: Mapping[str, int]) -> None:
    """Give topics that many partitions; those that have them already are no error. Raises as ``create_logs``."""
    client = require_answer(endpoint)
    new = [NewPartitions(name, count) for name, count in partitions.items()]
    for name, future in client.create_partitions(new, request_timeout=_TIMEOUT).items() if new else ():
        try:
            future.result()
        except KafkaException as error:
            if kafka_error(error).name() != "INVALID_PARTITIONS":
                raise explain(error, endpoint, f"give {name} more partitions") from error


def alter_topics(endpoint: KafkaEndpoint, settings: Mapping[str, Mapping[str, str]]) -> None:
    """Set these settings of these topics and leave all others as they are. Raises as ``create_logs``."""
    client = require_answer(endpoint)
    names = iter(settings)
    while batch := list(islice(names, BATCH)):
        resources = [
            ConfigResource(
                ResourceType.TOPIC,
                name,
                incremental_configs=[
                    ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
                    for key, value in settings[name].items()
                ],
            )
            for name in batch
        ]
        for resource, future in client.incremental_alter_configs(resources, request_timeout=_TIMEOUT).items():
            try:
                future.result()
            except KafkaException as error:
                raise explain(error, endpoint, f"change settings of {resource.name}") from error


def delete_logs(endpoint: KafkaEndpoint, topics: Sequence[str]) -> set[str]:
    """Delete topics; those that do not exist are no error. Returns the deleted ones; raises as ``create_logs``."""
    client = require_answer(endpoint)
    deleted: set[str] = set()
    for name, future in client.delete_topics(list(topics)).items() if topics else ():
        try:
            future.result()
            deleted.add(name)
        except KafkaException as error:
            if kafka_error(error).name() != "UNKNOWN_TOPIC_OR_PART":
                raise explain(error, endpoint, f"delete {name}") from error
    return deleted


def require_answer(endpoint: KafkaEndpoint, timeout: float = 15.0) -> AdminClient:
    """A client that has logged in. Ask first, because librdkafka retries a wrong password or address without end.

    While a password is being changed, each one that may count is tried.

    Raises:
        RefusedError: wrong user or password, or a certificate that is not trusted (``UntrustedError``).
        TrustError: the endpoint's file of authorities cannot be used.
        UnavailableError: no answer within ``timeout`` seconds.
    """
    return let_in(endpoint, LoginRefusedError, lambda way: _answer(way, timeout))


def counting(endpoint: KafkaEndpoint, timeout: float = 5.0) -> KafkaEndpoint:
    """The endpoint with the password that counts, while one is being changed: librdkafka takes only one. Asks for it
    only where there are several; where nobody answers, the first may be as good as any."""
    *others, last = with_each_password(endpoint)
    for other in others:
        try:
            _answer(other, timeout)
        except LoginRefusedError:
            continue
        except FairleadError:
            pass
        return other
    return last


def _answer(endpoint: KafkaEndpoint, timeout: float) -> AdminClient:
    troubles = Troubles()
    client = admin_client(endpoint, {"error_cb": troubles.note})
    awake = Awake()
    while True:
        try:
            asked: Any = client.describe_cluster(request_timeout=1)  # one future; the stubs say a dictionary
            asked.result()
            return client
        except KafkaException as error:
            client.poll(0)  # delivers troubles
            if troubles.refused is not None:
                raise explain(KafkaException(troubles.refused), endpoint, "log in") from error
            if troubles.untrusted is not None:
                require_trust(endpoint)
            if awake.seconds() > timeout:
                raise explain(error, endpoint, "log in") from error


def kafka_error(error: KafkaException) -> KafkaError:
    """The error inside confluent-kafka's exception."""
    cause: Any = error.args[0]
    return cause if isinstance(cause, KafkaError) else KafkaError(KafkaError._FAIL, str(cause))  # noqa: SLF001 - its name


def explain(error: KafkaException, endpoint: KafkaEndpoint, doing: str) -> FairleadError:
    """confluent-kafka's error as Fairlead's; the code's name only, since the text may carry the whole request."""
    cause = kafka_error(error)
    name = cause.name()
    what = f"{endpoint.site}'s Kafka did not let {endpoint.user} {doing}: {name}"
    away = f"{endpoint.site}'s Kafka did not answer when {endpoint.user} wanted to {doing}: {name}"
    fields = {"site": endpoint.site, "user": endpoint.user, "code": name}
    if name in _REFUSED:
        return RefusedError(what, hint="its rights come from the topology: fairlead acl explain", **fields)
    if login_refused(cause):
        return LoginRefusedError(what, hint="the password is wrong, or there is no such user: fairlead up", **fields)
    if cause.retriable() or name.startswith("_") or name in ("REQUEST_TIMED_OUT", "INVALID_REPLICATION_FACTOR"):
        hint = f"is it running at {endpoint.bootstrap_servers}? fairlead status"
        return UnavailableError(away, hint=hint, **fields)
    return FairleadError(what, hint=cause.str()[:300], **fields)


def _created(endpoint: KafkaEndpoint, name: str, future: Future[None]) -> bool:
    try:
        future.result()
    except KafkaException as error:
        if kafka_error(error).name() == "TOPIC_ALREADY_EXISTS":
            return False
        raise explain(error, endpoint, f"create {name}") from error
    return True
