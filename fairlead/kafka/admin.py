"""Create and delete topics, and log in, through confluent-kafka's admin client. Blocking: use ``asyncio.to_thread``.

Every request outside the data path goes through this client (docs/design.md). ``create_logs`` returns when the
controller has committed, which is before the broker takes writes; ``Cluster.wait_writable`` waits for that.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from itertools import islice
from typing import Any, Final, cast

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

from fairlead.certs.trust import client_context, examine
from fairlead.errors import FairleadError, LoginRefusedError, RefusedError, UnavailableError, UntrustedError
from fairlead.kafka.endpoint import KafkaEndpoint, try_credentials, with_each_password
from fairlead.kafka.tokens import obtain

LOG_DEFAULTS: dict[str, str] = {
    "cleanup.policy": "delete",
    "compression.type": "producer",  # stored as sent: bytes must be the same at every site
    "max.message.bytes": "1048588",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": str(2**63 - 1),  # any event time is allowed; the bridge checks it
    "message.timestamp.after.max.ms": str(2**63 - 1),
    "retention.bytes": "-1",
    "retention.ms": "-1",
}
"""Topic settings of every log, independent of the cluster's defaults. Each site sets its own retention."""

BATCH = 250  # topics per request; from 100 on, the broker opening logs is the limit, not the number of requests
_TIMEOUT = 60.0  # seconds for a request
FOLLOW_CONTROLLER = {"topic.metadata.refresh.interval.ms": 1000}
"""With these settings an admin client finds another broker when the one that it takes for the controller dies.

With KRaft, a broker names any broker that it believes alive. librdkafka otherwise asks again after five minutes, and
each request until then times out (measured with librdkafka 2.16)."""
_REFUSED = ("TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED", "POLICY_VIOLATION")


def admin_client(endpoint: KafkaEndpoint, settings: Mapping[str, Any] | None = None) -> AdminClient:
    """Return an admin client that connects at its first use. Keep a reference while its futures are open.

    Raises:
        FairleadError: no token, or a certificate or key cannot be read.
    """
    endpoint = with_active_password(endpoint)
    quiet = {"client.id": "fairlead-admin", "log_level": 0}  # librdkafka would write to standard error
    if endpoint.tls:
        client_context(endpoint.tls_ca, site=endpoint.site)  # its error names the reason; librdkafka's does not
    if (source := endpoint.login.tokens) is not None:
        obtain(source, endpoint.login_name, endpoint.password, site=endpoint.site)  # the same
    try:
        return AdminClient({**endpoint.librdkafka(), **FOLLOW_CONTROLLER, **quiet, **(settings or {})})
    except KafkaException as error:  # a certificate's file is missing, or is being replaced
        raise explain(error, endpoint, "connect") from None


def ask_coordinator(client: AdminClient, group: str, timeout: float) -> Future[Any]:
    """Describe a consumer group. Wait for it before ``list_consumer_group_offsets``, which ends the process if the
    group's coordinator is not ready (librdkafka issue 5040); a request to describe is answered with an error then.
    """
    return cast("Future[Any]", client.describe_consumer_groups([group], request_timeout=timeout)[group])


def create_logs(
    endpoint: KafkaEndpoint,
    topics: Mapping[str, Mapping[str, str]],
    *,
    partitions: Mapping[str, int] | None = None,
    client: AdminClient | None = None,
    implied: Mapping[str, str] | None = None,
    failures: dict[str, FairleadError] | None = None,
) -> set[str]:
    """Create topics; leave existing ones as they are.

    Args:
        topics: Name to settings, which override ``LOG_DEFAULTS``.
        partitions: How many partitions a topic gets; 1 for a topic that is not named.
        client: An existing client to use instead of a new one for ``endpoint``.
        implied: The values that a topic has on this cluster without settings of its own (``Cluster.topic_defaults``);
            settings that equal them are not set. A broker goes through all its logs for each new topic with settings,
            which makes 5,000 topics take a third longer (measured on 4.3.1).
        failures: When given, receives the error of each topic that is not created, instead of raising it. A refused
            login is raised in any case.

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
                replication_factor=-1,  # the cluster's default
                config=explicit({**LOG_DEFAULTS, **topics[name]}, implied or {}),
            )
            for name in batch
        ]
        futures: dict[str, Future[None]] = client.create_topics(
            new, operation_timeout=_TIMEOUT, request_timeout=_TIMEOUT
        )
        for name, future in futures.items():
            try:
                if _created(endpoint, name, future):
                    created.add(name)
            except FairleadError as error:
                if failures is None or isinstance(error, LoginRefusedError):
                    raise
                failures[name] = error
    return created


def raise_unavailable(failures: Mapping[str, FairleadError]) -> None:
    """Raise the first of these errors that says that the cluster does not answer or cannot do it now: it concerns all
    topics."""
    for error in failures.values():
        if isinstance(error, UnavailableError):
            raise error


def explicit(wanted: Mapping[str, str], implied: Mapping[str, str]) -> dict[str, str]:
    """Return those settings of a topic that differ from the values it would have without them."""
    return {name: value for name, value in wanted.items() if implied.get(name) != value}


def grow_topics(
    endpoint: KafkaEndpoint, partitions: Mapping[str, int], *, failures: dict[str, FairleadError] | None = None
) -> None:
    """Increase topics to these numbers of partitions; skip topics that have them already. ``failures`` and what is
    raised: as ``create_logs``."""
    client = require_answer(endpoint)
    new = [NewPartitions(name, count) for name, count in partitions.items()]
    for name, future in client.create_partitions(new, request_timeout=_TIMEOUT).items() if new else ():
        try:
            future.result()
        except KafkaException as error:
            if kafka_error(error).name() == "INVALID_PARTITIONS":
                continue
            failure = explain(error, endpoint, f"give {name} more partitions")
            if failures is None or isinstance(failure, LoginRefusedError):
                raise failure from error
            failures[name] = failure


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
    """Delete topics, ignoring missing ones; return the names of the deleted ones. Raises as ``create_logs``."""
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
    """Return a client that has logged in. Call it first: librdkafka retries a wrong password or address for ever.

    While a password is being changed, tries each candidate.

    Raises:
        RefusedError: wrong user or password, or a certificate that is not trusted (``UntrustedError``).
        TrustError: the endpoint's file of authorities cannot be used.
        UnavailableError: no answer within ``timeout`` seconds.
    """
    return try_credentials(endpoint, LoginRefusedError, lambda way: _answer(way, timeout))


def with_active_password(endpoint: KafkaEndpoint) -> KafkaEndpoint:
    """Return the endpoint with the one password that the cluster accepts now, because librdkafka takes only one.

    Asks the cluster only while a password is being changed and there are several candidates. If no broker answers,
    returns the first candidate.
    """
    *others, last = with_each_password(endpoint)
    for other in others:
        try:
            _answer(other, 5.0)
        except LoginRefusedError:
            continue
        except FairleadError:
            pass
        return other
    return last


def _answer(endpoint: KafkaEndpoint, timeout: float) -> AdminClient:
    client_errors = ClientErrors()
    client = admin_client(endpoint, {"error_cb": client_errors.on_error})
    stopwatch = SuspendAwareStopwatch()
    while True:
        try:
            asked: Any = client.describe_cluster(request_timeout=1)  # one future; the stubs declare a dictionary
            asked.result()
            return client
        except KafkaException as error:
            client.poll(0)  # delivers the client's errors
            if client_errors.refused is not None:
                raise explain(KafkaException(client_errors.refused), endpoint, "log in") from error
            if client_errors.untrusted is not None:
                require_trust(endpoint)
            if stopwatch.seconds() > timeout:
                raise explain(error, endpoint, "log in") from error


def require_trust(endpoint: KafkaEndpoint) -> None:
    """Check that clients trust the brokers' certificates; return also when no broker answers.

    Raises:
        UntrustedError: they do not trust one; with the reason, which librdkafka does not give.
        TrustError: the endpoint's file of authorities cannot be used.
    """
    for host, port in endpoint.bootstrap if endpoint.tls and endpoint.tls_verify_hostname else ():
        found = examine(host, port, endpoint.tls_ca, site=endpoint.site)
        if found is not None:
            raise UntrustedError(
                f"no TLS with {endpoint.site}'s Kafka at {host}:{port}: {found.why}",
                hint=found.hint,
                site=endpoint.site,
                address=f"{host}:{port}",
            )


def kafka_error(error: KafkaException) -> KafkaError:
    """Return the error inside confluent-kafka's exception."""
    cause: Any = error.args[0]
    return cause if isinstance(cause, KafkaError) else KafkaError(KafkaError._FAIL, str(cause))  # noqa: SLF001 - its name


def explain(error: KafkaException, endpoint: KafkaEndpoint, doing: str) -> FairleadError:
    """Convert confluent-kafka's error to Fairlead's; keep only the code's name: the text may carry the request."""
    cause = kafka_error(error)
    name = cause.name()
    what = f"{endpoint.site}'s Kafka did not let {endpoint.user} {doing}: {name}"
    away = f"{endpoint.site}'s Kafka did not answer when {endpoint.user} wanted to {doing}: {name}"
    fields = {"site": endpoint.site, "user": endpoint.user, "code": name}
    if name in _REFUSED:
        return RefusedError(what, hint="its rights come from the topology: fairlead acl explain", **fields)
    if login_refused(cause):
        return LoginRefusedError(what, hint=_login_hint(endpoint, cause), **fields)
    if cause.retriable() or name.startswith("_") or name in ("REQUEST_TIMED_OUT", "INVALID_REPLICATION_FACTOR"):
        hint = f"is it running at {endpoint.bootstrap_servers}? fairlead status"
        return UnavailableError(away, hint=hint, **fields)
    return FairleadError(what, hint=cause.str()[:300], **fields)


def _login_hint(endpoint: KafkaEndpoint, error: KafkaError) -> str:
    if "Unsupported SASL mechanism" in error.str():  # the text ends with those that the broker offers
        return f"{error.str()[:200]}; set sasl_mechanism of {endpoint.site} to one of them"
    if endpoint.login.mechanism is not None and endpoint.login.mechanism.is_scram:
        return "the password is wrong, or there is no such user: fairlead up"
    return f"is there such a user, with this secret, for {endpoint.login.shown}? the client says: {error.str()[:300]}"


def _created(endpoint: KafkaEndpoint, name: str, future: Future[None]) -> bool:
    try:
        future.result()
    except KafkaException as error:
        if kafka_error(error).name() == "TOPIC_ALREADY_EXISTS":
            return False
        raise explain(error, endpoint, f"create {name}") from error
    return True


LONGEST: Final = 2.0
"""Longest poll gap in seconds that counts as waiting; a longer one means that the host was suspended."""


class SuspendAwareStopwatch:
    """Counts seconds since its creation, without the time in which the host was suspended.

    Call ``seconds`` more often than every ``longest`` seconds; of a longer gap only ``longest`` seconds count.
    """

    def __init__(self, longest: float = LONGEST) -> None:
        self._longest = longest
        self._last = time.monotonic()
        self._seconds = 0.0

    def seconds(self) -> float:
        """Return the seconds that the host was awake since this was created."""
        now = time.monotonic()
        self._seconds += min(now - self._last, self._longest)
        self._last = now
        return self._seconds


_LOGIN: Final = ("_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED")
_LOGIN_REFUSED: Final = ("SASL authentication error", "Unsupported SASL mechanism")  # in the texts of these errors
_CERTIFICATE_REFUSED: Final = ("alert certificate", "alert bad certificate", "alert unknown ca")  # in those of others


def login_refused(error: KafkaError) -> bool:
    """Whether an error that the client reports means that a broker refused the login.

    librdkafka (2.16) uses the same code for a connection that ended, or timed out, while client and broker were
    agreeing on a mechanism. No password has been sent at that point, and the next attempt may succeed.
    """
    if error.name() in ("_TRANSPORT", "_SSL"):
        return any(reason in error.str() for reason in _CERTIFICATE_REFUSED)
    return error.name() in _LOGIN and any(reason in error.str() for reason in _LOGIN_REFUSED)


class ClientErrors:
    """The last error of each kind that a confluent-kafka client reported. Errors arrive when the client is polled.

    This is a separate object because a client in a reference cycle with its own callback would keep its threads and
    sockets until the garbage collector runs.
    """

    def __init__(self) -> None:
        self.refused: KafkaError | None = None
        self.untrusted: KafkaError | None = None
        self.down: KafkaError | None = None

    def on_error(self, error: KafkaError) -> None:
        """Store an error; pass this as the client's ``error_cb``."""
        if login_refused(error):
            self.refused = error
        elif error.name() == "_SSL":
            self.untrusted = error
        elif error.name() == "_ALL_BROKERS_DOWN":
            self.down = error
