"""Where a site's rules, quotas and audit log are: the ``RuleStore`` of a cluster, and of several sites side by side.

Reading rules without the right to do so gives an empty list and no error (confluent-kafka 2.16.1), so the right is
asked for first. Blocking; not for an event loop.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, Protocol, TypeVar, cast

from confluent_kafka import TopicCollection
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from acl.compile import SetQuota, together
from acl.history import Entry, SuspendedUsers, note, read, suspended_users
from acl.kafka import Client, NotAuthorised
from acl.rules import Binding, Operation, Resource, Standing, authorize, hosts
from fairlead.errors import FairleadError
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.order_topic import TIMEOUT
from fairlead.kafka.protocol.admin_codec import alter_quotas_request, describe_quotas_request
from fairlead.kafka.protocol.coding import Question
from fairlead.kafka.protocol.errors import broker_error
from topologies.endpoints import EndpointResolver
from topologies.users import ADMIN

R = TypeVar("R")
T = TypeVar("T")
_LONGEST: Final = 200  # letters of a name, so that with a suffix it is still a topic's
_CLIENT: Final = "fairlead-access"
_TIMEOUT: Final = 10.0  # seconds for a request
_REFUSED: Final = "CLUSTER_AUTHORIZATION_FAILED"
# The client knows no CLUSTER: what the protocol calls so is BROKER "kafka-cluster" there.
_CLUSTER = {"BROKER": "CLUSTER"}
_BROKER = {"CLUSTER": "BROKER"}


class RuleStore(Protocol):
    """Where a site's rules and quotas are kept."""

    def read(self) -> frozenset[Binding]:
        """All rules of the cluster."""

    def add(self, bindings: Iterable[Binding]) -> None:
        """Create rules; one that exists already is fine."""

    def remove(self, bindings: Iterable[Binding]) -> None:
        """Remove exactly these rules; one that is gone already is fine."""

    def standing(self, held: frozenset[Binding]) -> Standing:
        """What binds the administrator there, as far as the cluster tells. ``held`` are its rules."""

    def note(self, entries: Iterable[Entry], patience: float = TIMEOUT) -> None:
        """Append to the site's audit log, within ``patience`` seconds."""

    def suspended_users(self) -> SuspendedUsers:
        """Who may be given no rules for now, because what it had open may still be open."""

    def read_quotas(self) -> dict[str, dict[str, float]]:
        """The quotas of users, by user and Kafka's key."""

    def set_quotas(self, changes: Collection[SetQuota]) -> None:
        """Make these changes."""


OpenStore = Callable[[str], AbstractContextManager[RuleStore]]
"""Opens the store of a site."""


class KafkaRules:
    """The rules of a real cluster, as a user who may describe and alter the cluster (``admin``)."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def read(self) -> frozenset[Binding]:
        """All rules of the cluster.

        Raises:
            NotAuthorised: the user may not read them (the request itself would say "there are none").
        """
        endpoint = self._client.endpoint
        if "DESCRIBE" not in self._client.cluster_operations():
            raise NotAuthorised(
                f"user {endpoint.user!r} may not read the access rules of site {endpoint.site}",
                hint="use the super user (admin), or allow it DESCRIBE and ALTER on the cluster",
                site=endpoint.site,
                user=endpoint.user,
            )
        nothing = cast("str", None)  # the stubs want text where the client takes None for "any"
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
        local: Fairlead started it, so its administrator is a super user.
    """

    def __init__(self, client: Client, *, local: bool) -> None:
        super().__init__(client)
        self._local = local

    def standing(self, held: frozenset[Binding]) -> Standing:
        """What binds the administrator: known of a local cluster, else found out by asking for topics."""
        if self._local:
            return Standing.SUPER
        return find_standing(held, self._may_describe)

    def note(self, entries: Iterable[Entry], patience: float = TIMEOUT) -> None:
        """Append to the site's audit log, within ``patience`` seconds."""
        note(self._client.endpoint, entries, patience)

    def suspended_users(self) -> SuspendedUsers:
        """Who is suspended, by the site's audit log."""
        entries, _ = read(self._client.endpoint)
        return suspended_users(entries, dt.datetime.now(dt.UTC))

    def read_quotas(self) -> dict[str, dict[str, float]]:
        """The quotas of users."""
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
            if error.fields.get("code") != "UNKNOWN_TOPIC_OR_PART":  # it may know that there is none
                raise
        return True


def rules_of(store: RuleStore, user: str) -> tuple[Binding, ...]:
    """The rules of a site that name a user."""
    return tuple(sorted(rule for rule in store.read() if rule.principal == f"User:{user}"))


def find_standing(held: frozenset[Binding], may_describe: Callable[[str], bool]) -> Standing:
    """What binds the administrator, told by two topics, which need not exist: one that a rule forbids it, one that no
    rule is about. Kafka shows the settings that say so to nobody.

    Args:
        may_describe: Whether the cluster lets the administrator know of a topic.
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
    """Stores of real clusters, as their super user."""

    @contextmanager
    def open_store(site: str) -> Iterator[RuleStore]:
        with Client(resolver.kafka(site, ADMIN)) as client:
            yield AdminStore(client, local=resolver.is_local(site))

    return open_store


def at_once(work: Callable[[str], R], sites: Collection[str]) -> list[R]:
    """The same work for several sites side by side, results in their order: one that is away holds up no other."""
    if not sites:
        return []
    with ThreadPoolExecutor(max_workers=min(16, len(sites)), thread_name_prefix="acl") as pool:
        return list(pool.map(work, sites))


def read_quotas(endpoint: KafkaEndpoint) -> dict[str, dict[str, float]]:
    """The quotas of users.

    Raises:
        NotAuthorised: the user may not read them. WireError: the cluster does not answer.
    """
    code, found = _ask(endpoint, describe_quotas_request())
    _check(endpoint, code, "read client quotas", "DESCRIBE_CONFIGS")
    return found


def set_quotas(endpoint: KafkaEndpoint, changes: Collection[SetQuota]) -> None:
    """Make these changes.

    Raises:
        NotAuthorised: the user may not. WireError: the cluster does not answer. FairleadError: it refused one.
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
