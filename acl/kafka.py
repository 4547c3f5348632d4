"""Send all requests about access to a site's Kafka: rules, quotas, the audit log, and reading as a user.

``AdminStore`` manages a cluster as its administrator, behind the protocol ``RuleStore``; ``admin_stores`` opens the
stores of a topology. ``UserConsumer`` reads as any user. Blocking; do not call it in an event loop.

Client errors are translated into Fairlead's errors. confluent-kafka 2.16.1 retries a wrong password forever; here the
first refusal ends the wait. It also returns an empty list of rules, and no error, to a user who may not read them, so
that right is checked first.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Any, Final, Protocol, TypeVar, cast

import msgspec
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_STORED,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ClusterMetadata,
    ResourcePatternType,
    ResourceType,
)

from acl.compile import SetQuota, together
from acl.history import TOPIC as HISTORY
from acl.history import DamagedEntry, Entry, SuspendedUsers, decode_entry, encode_entry, suspended_users
from acl.rules import Binding, Operation, Resource, Standing, authorize, hosts
from fairlead.errors import FairleadError, LoginRefusedError, RefusedError, UnavailableError
from fairlead.kafka.admin import ClientErrors, SuspendAwareStopwatch, admin_client, kafka_error, login_refused
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.order_topic import TIMEOUT, append_records
from fairlead.kafka.protocol.admin_codec import alter_quotas_request, describe_quotas_request
from fairlead.kafka.protocol.coding import Question
from fairlead.kafka.protocol.errors import broker_error
from fairlead.records.headers import FILLER, KIND, MARKER
from topologies.endpoints import EndpointResolver
from topologies.users import ADMIN

T = TypeVar("T")
QUIET = {"log_level": 0, "reconnect.backoff.max.ms": 500}  # otherwise librdkafka writes to standard error
REQUEST_TIMEOUT = 60.0  # seconds; long enough for a machine that is suspended for half a minute
DOWN_TIMEOUT = 3.0  # seconds until a cluster counts as down when none of its brokers accepts a connection
CONNECTIONS = 3  # tries of the first request, each over a new connection
# librdkafka's own error codes have a leading underscore, though they are public.
_TIMED_OUT = KafkaError._TIMED_OUT  # noqa: SLF001
AWAY = (
    _TIMED_OUT,
    KafkaError._AUTHENTICATION,  # noqa: SLF001 - unless login_refused
    KafkaError._TRANSPORT,  # noqa: SLF001
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
    KafkaError._RESOLVE,  # noqa: SLF001
    KafkaError.REQUEST_TIMED_OUT,
)


class WrongPassword(RefusedError):
    """The site's Kafka refused the login. It does not say whether the user or the password is unknown."""

    def __init__(self, endpoint: KafkaEndpoint) -> None:
        super().__init__(
            f"the Kafka of site {endpoint.site} refused the login of user {endpoint.user!r}: "
            "wrong password, or no such user",
            hint="the password comes from FAIRLEAD_SECRET_<SITE>_<USER>, else from the secrets of fairlead up; "
            "a user exists after fairlead up or fairlead acl apply",
            site=endpoint.site,
            user=endpoint.user,
        )


class NotAuthorised(RefusedError):
    """The site's Kafka refused a request of a logged-in user."""


def translate(error: KafkaError, endpoint: KafkaEndpoint, doing: str) -> FairleadError:
    """Translate an error of the client. Keep the error's name, leave out the server's long text."""
    fields = {"site": endpoint.site, "user": endpoint.user, "code": error.name()}
    where = f"site {endpoint.site} ({endpoint.bootstrap_servers})"
    code = error.code()
    if login_refused(error):
        return WrongPassword(endpoint)
    if error.name().endswith("AUTHORIZATION_FAILED"):
        return NotAuthorised(
            f"user {endpoint.user!r} may not do this at {where}: {doing} ({error.name()})",
            hint="fairlead acl explain USER TOPIC says what is missing; fairlead acl drift, what was changed",
            **fields,
        )
    if code in AWAY:
        return UnavailableError(
            f"{where} does not answer: {doing} ({error.name()})",
            hint="is it up? see fairlead status, fairlead up",
            **fields,
        )
    return FairleadError(f"{doing} failed at {where}: {error.name()}", hint="see the broker's log", **fields)


class Client:
    """One user's AdminClient, kept alive while its requests run. A context manager; not thread-safe."""

    def __init__(self, endpoint: KafkaEndpoint, *, timeout: float = REQUEST_TIMEOUT) -> None:
        self.endpoint = endpoint
        self.timeout = timeout
        self._client_errors = ClientErrors()
        self.admin = admin_client(endpoint, {**QUIET, "error_cb": self._client_errors.on_error})

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.admin.poll(0)

    def wait(self, future: Future[T], doing: str) -> T:
        """Return the result of a request, or raise its error translated. A refused login ends the wait at once."""
        stopwatch = SuspendAwareStopwatch()
        while True:
            waited = stopwatch.seconds()
            try:
                return future.result(timeout=0.05)
            except KafkaException as problem:
                self.admin.poll(0)
                raise translate(self._client_errors.refused or kafka_error(problem), self.endpoint, doing) from None
            except TimeoutError:
                self.admin.poll(0)
                if self._client_errors.refused is not None:
                    raise translate(self._client_errors.refused, self.endpoint, doing) from None
                if waited > self.timeout + 2.0 or (self._client_errors.down is not None and waited > DOWN_TIMEOUT):
                    raise translate(KafkaError(_TIMED_OUT), self.endpoint, doing) from None

    def cluster_operations(self) -> frozenset[str]:
        """Return the operations on the cluster that the broker allows this user."""
        for left in reversed(range(CONNECTIONS)):
            future = self.admin.describe_cluster(include_authorized_operations=True, request_timeout=self.timeout)
            try:
                described = self.wait(cast("Future[Any]", future), "asking for the cluster")
            except UnavailableError as error:
                # librdkafka does not retry a request whose connection ends. This one changes nothing, so retry it.
                if not left or self._client_errors.down is not None or error.fields["code"] == "_TIMED_OUT":
                    raise
            else:
                break
        return frozenset(operation.name for operation in described.authorized_operations or ())


_EOF = KafkaError._PARTITION_EOF  # noqa: SLF001 a public code of librdkafka
_MADE_WITHIN = 2.0  # seconds until all brokers know a new topic
_NOT_YET = (KafkaError.LEADER_NOT_AVAILABLE, KafkaError.UNKNOWN_TOPIC_OR_PART)  # answers about a new topic


class StartAt(StrEnum):
    """The position where reading begins. ``GROUP``: the group's committed offset, else the beginning."""

    BEGINNING = "beginning"
    END = "end"
    GROUP = "group"


_OFFSETS = {StartAt.BEGINNING: OFFSET_BEGINNING, StartAt.END: OFFSET_END, StartAt.GROUP: OFFSET_STORED}


@dataclass(frozen=True, slots=True)
class Received:
    """One record as a client receives it. ``timestamp_ms`` is the device's time, in ms since 1970, UTC."""

    topic: str
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    @property
    def is_data(self) -> bool:
        """Whether this is a data record, and not a marker of a term or a filler."""
        return not any(name == KIND and value in (MARKER, FILLER) for name, value in self.headers)


class UserConsumer:
    """One consumer of one user. A context manager; not thread-safe.

    Args:
        group: The consumer group. Rules allow a user only groups that begin with its name and a dot.
        timeout: Seconds to wait for the first answer of the site.
    """

    def __init__(self, endpoint: KafkaEndpoint, *, group: str, timeout: float = 15.0) -> None:
        self.endpoint = endpoint
        self._group = group
        self._timeout = timeout
        self._client_errors = ClientErrors()
        self._consumer = Consumer(
            {
                **endpoint.librdkafka(),
                **QUIET,
                "group.id": group,
                "client.id": "fairlead-feed",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "allow.auto.create.topics": False,
                "fetch.wait.max.ms": 100,
                "error_cb": self._client_errors.on_error,
            }
        )

    def __enter__(self) -> UserConsumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()

    def visible(self) -> tuple[str, ...]:
        """Return the topics that the cluster shows this user, without Kafka's own."""
        return tuple(sorted(name for name in self._metadata(None) if not name.startswith("__")))

    def partitions(self, topic: str) -> tuple[int, ...]:
        """Return the partitions of a topic.

        Raises:
            NotAuthorised: the user may not describe the topic, whether or not it exists.
            UnavailableError: the user may read the topic, but it does not exist yet.
        """
        stopwatch = SuspendAwareStopwatch()
        while True:
            error, partitions = self._metadata(topic)[topic]
            if error is None and partitions:
                return partitions
            if error is not None and error.code() not in _NOT_YET:
                raise translate(error, self.endpoint, f"reading {topic}")
            if stopwatch.seconds() > _MADE_WITHIN:
                raise UnavailableError(
                    f"{topic} does not exist at site {self.endpoint.site} yet",
                    hint=(
                        "fairlead shore run makes it, and fills it from the bookings"
                        if topic.startswith("feeds.")
                        else "a bridge makes it with its first record: fairlead status"
                    ),
                    site=self.endpoint.site,
                    topic=topic,
                )

    def read(self, topics: Collection[str], *, start: StartAt, follow: bool) -> Iterator[Received | None]:
        """Yield records, in order per topic, up to the topics' ends at the time of the call.

        Args:
            follow: Never end; yield None when no record has arrived for a while.

        Raises:
            NotAuthorised, WrongPassword, UnavailableError: see ``translate``.
        """
        where = [TopicPartition(t, p, _OFFSETS[start]) for t in topics for p in self.partitions(t)]
        self._consumer.assign(where)
        left = {(tp.topic, tp.partition) for tp in where}
        silent: SuspendAwareStopwatch | None = None
        while left or follow:
            message = self._consumer.poll(0.2)
            if self._client_errors.refused is not None:
                raise translate(self._client_errors.refused, self.endpoint, "reading")
            if message is None:
                silent = silent or SuspendAwareStopwatch()
                if not follow and silent.seconds() > self._timeout:
                    raise translate(KafkaError(AWAY[0]), self.endpoint, "reading")
                if follow:
                    yield None
                continue
            silent = None
            if (error := message.error()) is None:
                yield _received(message)
            elif error.code() == _EOF:
                left.discard((str(message.topic()), message.partition() or 0))
            elif error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED and start is not StartAt.GROUP:
                continue  # the client looks up its group's coordinator even if it needs none
            elif not error.retriable() and error.code() not in AWAY:
                raise translate(error, self.endpoint, f"reading {message.topic()}")

    def commit(self, done: Mapping[str, int]) -> None:
        """Commit each topic's next offset to read in the consumer group. Topics have one partition."""
        if not done:
            return
        offsets = [TopicPartition(topic, 0, offset) for topic, offset in done.items()]
        try:
            self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as problem:
            raise translate(kafka_error(problem), self.endpoint, f"committing in group {self._group}") from None

    def _metadata(self, topic: str | None) -> dict[str, tuple[KafkaError | None, tuple[int, ...]]]:
        stopwatch = SuspendAwareStopwatch()
        while True:
            self._consumer.poll(0)
            try:
                found = self._list(topic)
                return {name: (meta.error, tuple(meta.partitions)) for name, meta in found.topics.items()}
            except KafkaException as problem:
                self._consumer.poll(0)
                error = self._client_errors.refused or kafka_error(problem)
                late = stopwatch.seconds() > self._timeout
                if self._client_errors.refused is not None or error.code() not in AWAY or late:
                    raise translate(error, self.endpoint, "asking for topics") from None

    def _list(self, topic: str | None) -> ClusterMetadata:
        if topic is None:
            return self._consumer.list_topics(timeout=1.0)
        return self._consumer.list_topics(topic, timeout=1.0)


def _received(message: Message) -> Received:
    return Received(
        topic=str(message.topic()),
        offset=message.offset() or 0,
        timestamp_ms=message.timestamp()[1],
        key=_bytes(message.key()),
        value=_bytes(message.value()),
        headers=tuple((name, _bytes(value)) for name, value in message.headers() or ()),
    )


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


class NoAuditLog(RefusedError):
    """The user may not write a site's audit log."""


def note(endpoint: KafkaEndpoint, entries: Iterable[Entry], patience: float = TIMEOUT) -> None:
    """Append entries to the audit log of a site, as its administrator. The first entry creates the topic.

    Raises:
        NoAuditLog: the user may not write the log. LoginRefusedError: wrong password. UnavailableError: the site does
            not answer, or has not confirmed all entries.
    """
    records: list[tuple[bytes | None, bytes]] = [(None, encode_entry(entry)) for entry in entries]
    try:
        landed = append_records(endpoint, HISTORY, records, client_id=_CLIENT, timeout=patience)
    except LoginRefusedError:
        raise
    except RefusedError as error:
        raise NoAuditLog(
            f"{endpoint.user} may not write the audit log {HISTORY} at site {endpoint.site}, "
            "so nothing is changed there",
            hint=f"allow {endpoint.user} CREATE, READ and WRITE on topic {HISTORY} there",
            site=endpoint.site,
            user=endpoint.user,
        ) from error
    if len(landed) < len(records):
        raise UnavailableError(
            f"{endpoint.site}'s Kafka confirmed {len(landed)} of {len(records)} entries of {HISTORY}",
            hint="is it running? fairlead status",
            site=endpoint.site,
        )


def read_history(endpoint: KafkaEndpoint) -> tuple[tuple[Entry, ...], tuple[DamagedEntry, ...]]:
    """Return the whole audit log of a site, oldest first, and its unreadable records.

    Raises:
        NotAuthorised, WrongPassword, UnavailableError: see ``translate``.
    """
    entries: list[Entry] = []
    damaged: list[DamagedEntry] = []
    with UserConsumer(endpoint, group=f"{endpoint.user}.access") as reader:
        if HISTORY not in reader.visible():
            return (), ()
        for record in reader.read([HISTORY], start=StartAt.BEGINNING, follow=False):
            if record is None:
                continue
            try:
                entries.append(decode_entry(record.value or b""))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                damaged.append(DamagedEntry(record.offset, str(error)))
    return tuple(entries), tuple(damaged)


R = TypeVar("R")
_LONGEST: Final = 200  # characters; the name is still a valid topic name with a suffix
_CLIENT: Final = "fairlead-access"
_TIMEOUT: Final = 10.0  # seconds for a request
_REFUSED: Final = "CLUSTER_AUTHORIZATION_FAILED"
# confluent-kafka has BROKER "kafka-cluster" for the protocol's CLUSTER.
_CLUSTER = {"BROKER": "CLUSTER"}
_BROKER = {"CLUSTER": "BROKER"}


class RuleStore(Protocol):
    """A site's rules, quotas and audit log."""

    def read(self) -> frozenset[Binding]:
        """Return all rules of the cluster."""

    def add(self, bindings: Iterable[Binding]) -> None:
        """Create rules; ignore rules that exist already."""

    def remove(self, bindings: Iterable[Binding]) -> None:
        """Remove exactly these rules; ignore rules that do not exist."""

    def standing(self, held: frozenset[Binding]) -> Standing:
        """Return how rules bind the administrator of a cluster that holds the rules ``held``."""

    def note(self, entries: Iterable[Entry], patience: float = TIMEOUT) -> None:
        """Append to the site's audit log, within ``patience`` seconds."""

    def suspended_users(self) -> SuspendedUsers:
        """Return the users that may get no rules for now, because their old sessions may still be open."""

    def read_quotas(self) -> dict[str, dict[str, float]]:
        """Return the quotas of users, by user and Kafka's quota key."""

    def set_quotas(self, changes: Collection[SetQuota]) -> None:
        """Make these changes."""


OpenStore = Callable[[str], AbstractContextManager[RuleStore]]
"""Opens the store of a site."""


class KafkaRules:
    """The rules of a real cluster, as a user who may describe and alter the cluster (``admin``)."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def read(self) -> frozenset[Binding]:
        """Return all rules of the cluster.

        Raises:
            NotAuthorised: the user may not read them. (The request itself would return an empty list.)
        """
        endpoint = self._client.endpoint
        if "DESCRIBE" not in self._client.cluster_operations():
            raise NotAuthorised(
                f"user {endpoint.user!r} may not read the access rules of site {endpoint.site}",
                hint="use the super user (admin), or allow it DESCRIBE and ALTER on the cluster",
                site=endpoint.site,
                user=endpoint.user,
            )
        nothing = cast("str", None)  # the stubs demand a str, but the client takes None for "any"
        everything = AclBindingFilter(
            ResourceType.ANY,
            nothing,
            ResourcePatternType.ANY,
            nothing,
            nothing,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        found = self._client.wait(
            self._client.admin.describe_acls(everything, request_timeout=self._client.timeout), "reading access rules"
        )
        return frozenset(map(_from_kafka, found))

    def add(self, bindings: Iterable[Binding]) -> None:
        """Create rules in one request."""
        wanted = [AclBinding(*_to_kafka(binding)) for binding in bindings]
        if wanted:
            futures = self._client.admin.create_acls(wanted, request_timeout=self._client.timeout)
            self._all(futures.values(), "adding access rules")

    def remove(self, bindings: Iterable[Binding]) -> None:
        """Remove exactly these rules in one request."""
        filters = [AclBindingFilter(*_to_kafka(binding)) for binding in bindings]
        if filters:
            futures = self._client.admin.delete_acls(filters, request_timeout=self._client.timeout)
            self._all(futures.values(), "removing access rules")

    def _all(self, futures: Iterable[Future[Any]], doing: str) -> None:
        for future in list(futures):
            self._client.wait(future, doing)


def _from_kafka(acl: AclBinding) -> Binding:
    return Binding(
        principal=acl.principal,
        resource=_CLUSTER.get(acl.restype.name, acl.restype.name),
        pattern=acl.resource_pattern_type.name,
        name=acl.name,
        operation=acl.operation.name,
        permission=acl.permission_type.name,
        host=acl.host,
    )


def _to_kafka(
    binding: Binding,
) -> tuple[ResourceType, str, ResourcePatternType, str, str, AclOperation, AclPermissionType]:
    return (
        ResourceType[_BROKER.get(binding.resource, binding.resource)],
        binding.name,
        ResourcePatternType[binding.pattern],
        binding.principal,
        binding.host,
        AclOperation[binding.operation],
        AclPermissionType[binding.permission],
    )


class AdminStore(KafkaRules):
    """The rules and audit log of a real cluster.

    Args:
        local: Whether Fairlead started the cluster; then its administrator is a super user.
    """

    def __init__(self, client: Client, *, local: bool) -> None:
        super().__init__(client)
        self._local = local

    def standing(self, held: frozenset[Binding]) -> Standing:
        """Return how rules bind the administrator: on a local cluster it is a super user, elsewhere ask the cluster
        (``find_standing``)."""
        if self._local:
            return Standing.SUPER
        return find_standing(held, self._may_describe)

    def note(self, entries: Iterable[Entry], patience: float = TIMEOUT) -> None:
        """Append to the site's audit log, within ``patience`` seconds."""
        note(self._client.endpoint, entries, patience)

    def suspended_users(self) -> SuspendedUsers:
        """Return the suspended users, read from the site's audit log."""
        entries, _ = read_history(self._client.endpoint)
        return suspended_users(entries, dt.datetime.now(dt.UTC))

    def read_quotas(self) -> dict[str, dict[str, float]]:
        """Return the quotas of users."""
        return read_quotas(self._client.endpoint)

    def set_quotas(self, changes: Collection[SetQuota]) -> None:
        """Make these changes."""
        set_quotas(self._client.endpoint, changes)

    def _may_describe(self, topic: str) -> bool:
        futures = self._client.admin.describe_topics(TopicCollection([topic]), request_timeout=self._client.timeout)
        try:
            self._client.wait(cast("Future[Any]", futures[topic]), f"describing topic {topic}")
        except NotAuthorised:
            return False
        except FairleadError as error:
            if error.fields.get("code") != "UNKNOWN_TOPIC_OR_PART":  # only sent to those who may describe it
                raise
        return True


def rules_of(store: RuleStore, user: str) -> tuple[Binding, ...]:
    """Return the rules of a site that name a user."""
    return tuple(sorted(rule for rule in store.read() if rule.principal == f"User:{user}"))


def find_standing(held: frozenset[Binding], may_describe: Callable[[str], bool]) -> Standing:
    """Find out how rules bind the administrator, by describing two topics that need not exist.

    A rule forbids the first topic; no rule is about the second. Kafka does not show the settings that decide this.

    Args:
        may_describe: Returns whether the cluster lets the administrator describe a topic.
    """
    nobody = f"fairlead-nobody-{uuid.uuid4().hex}"
    named = sorted({b.name for b in held if b.resource == "TOPIC" and b.name != "*" and len(b.name) < _LONGEST})
    topics = [nobody, *(f"{name}{nobody}" for name in named), *named]
    where = hosts(held)

    def verdicts(topic: str, *, default: bool) -> set[bool]:
        right = (Operation.DESCRIBE, Resource.TOPIC, topic)
        return {authorize(held, ADMIN, right, host, open_by_default=default) for host in where}

    forbidden = next((topic for topic in topics if verdicts(topic, default=True) == {False}), None)
    unruled = next(
        (t for t in topics if verdicts(t, default=True) == {True} and verdicts(t, default=False) == {False}), None
    )
    if forbidden is not None and may_describe(forbidden):
        return Standing.SUPER
    if unruled is None:
        return Standing.UNKNOWN
    if not may_describe(unruled):
        return Standing.CLOSED
    return Standing.UNKNOWN if forbidden is None else Standing.OPEN


def admin_stores(resolver: EndpointResolver) -> OpenStore:
    """Return a function that opens the store of a real cluster, as its super user."""

    @contextmanager
    def open_store(site: str) -> Iterator[RuleStore]:
        with Client(resolver.kafka(site, ADMIN)) as client:
            yield AdminStore(client, local=resolver.is_local(site))

    return open_store


def at_once(work: Callable[[str], R], sites: Collection[str]) -> list[R]:
    """Do the same work for several sites in threads; return the results in the order of ``sites``."""
    if not sites:
        return []
    with ThreadPoolExecutor(max_workers=min(16, len(sites)), thread_name_prefix="acl") as pool:
        return list(pool.map(work, sites))


def read_quotas(endpoint: KafkaEndpoint) -> dict[str, dict[str, float]]:
    """Return the quotas of users, by user and Kafka's quota key.

    Raises:
        NotAuthorised: the user may not read them. WireError: the cluster does not answer.
    """
    code, found = _ask(endpoint, describe_quotas_request())
    _check(endpoint, code, "read client quotas", "DESCRIBE_CONFIGS")
    return found


def set_quotas(endpoint: KafkaEndpoint, changes: Collection[SetQuota]) -> None:
    """Make these changes of quotas.

    Raises:
        NotAuthorised: the user may not change quotas. WireError: the cluster does not answer. FairleadError: the
            cluster refused a change.
    """
    for code in _ask(endpoint, alter_quotas_request(together(changes))).values():
        _check(endpoint, code, "set client quotas", "ALTER_CONFIGS")


def _check(endpoint: KafkaEndpoint, code: int, doing: str, right: str) -> None:
    if not code:
        return
    name, fields = broker_error(code).name, {"site": endpoint.site, "user": endpoint.user}
    if name == _REFUSED:
        raise NotAuthorised(
            f"user {endpoint.user!r} may not {doing} at site {endpoint.site}",
            hint=f"it needs {right} on the cluster",
            **fields,
        )
    raise FairleadError(f"site {endpoint.site} did not {doing}: {name}", hint="see the broker's log", **fields)


def _ask(endpoint: KafkaEndpoint, question: Question[T]) -> T:
    async def ask() -> T:
        async with await Cluster.open(endpoint, client_id=_CLIENT, request_timeout=_TIMEOUT) as cluster:
            connection = await cluster.pool.any("control")
            return await connection.call(question)

    return asyncio.run(ask())
