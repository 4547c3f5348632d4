"""A cluster's access rules through confluent-kafka: read, add, remove; and its errors in Fairlead's words.

Two traps of that client are closed here (found on 2.16.1). Reading rules without the right to do so gives an empty
list and no error, so the right is asked for first. A wrong password is retried without end, so the first refusal
ends the wait.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Protocol, TypeVar, cast

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from acl.binding import Binding
from acl.entries import Entry
from acl.heldout import HeldOut
from acl.lockout import Standing
from acl.quotas import SetQuota
from fairlead.admin import admin_client, kafka_error
from fairlead.awake import Awake
from fairlead.endpoint import KafkaEndpoint
from fairlead.errors import FairleadError, RefusedError, UnavailableError
from fairlead.order_topic import TIMEOUT
from fairlead.troubles import Troubles, login_refused

T = TypeVar("T")
QUIET = {"log_level": 0, "reconnect.backoff.max.ms": 500}  # librdkafka would write to standard error by itself
REQUEST_TIMEOUT = 60.0  # seconds; brokers on a machine that is held up for half a minute are not given up
DOWN_TIMEOUT = 3.0  # seconds after which a cluster none of whose brokers accepts a connection is given up
CONNECTIONS = 3  # that may end before the first request over one is given up
# The client knows no CLUSTER: what the protocol calls so is BROKER "kafka-cluster" there.
_CLUSTER = {"BROKER": "CLUSTER"}
_BROKER = {"CLUSTER": "BROKER"}
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
    """The site's Kafka refused the login. It does not tell whether the user or the password is unknown."""

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
    """The site's Kafka refused a request of a user that is logged in."""


def translate(error: KafkaError, endpoint: KafkaEndpoint, doing: str) -> FairleadError:
    """An error of the client in Fairlead's words; the server's own long text is left out, its name is kept."""
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
    """One user's AdminClient, kept alive as long as its requests run. Use as a context manager; not thread safe."""

    def __init__(self, endpoint: KafkaEndpoint, *, timeout: float = REQUEST_TIMEOUT) -> None:
        self.endpoint = endpoint
        self.timeout = timeout
        self._troubles = Troubles()
        self.admin = admin_client(endpoint, {**QUIET, "error_cb": self._troubles.note})

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.admin.poll(0)

    def wait(self, future: Future[T], doing: str) -> T:
        """The result of a request, or the error translated; a refused login ends the wait at once."""
        awake = Awake()
        while True:
            waited = awake.seconds()
            try:
                return future.result(timeout=0.05)
            except KafkaException as problem:
                self.admin.poll(0)
                raise translate(self._troubles.refused or kafka_error(problem), self.endpoint, doing) from None
            except TimeoutError:
                self.admin.poll(0)
                if self._troubles.refused is not None:
                    raise translate(self._troubles.refused, self.endpoint, doing) from None
                if waited > self.timeout + 2.0 or (self._troubles.down is not None and waited > DOWN_TIMEOUT):
                    raise translate(KafkaError(_TIMED_OUT), self.endpoint, doing) from None

    def cluster_operations(self) -> frozenset[str]:
        """What this user may do with the cluster as a whole, in the broker's own judgement."""
        for left in reversed(range(CONNECTIONS)):
            future = self.admin.describe_cluster(include_authorized_operations=True, request_timeout=self.timeout)
            try:
                described = self.wait(cast("Future[Any]", future), "asking for the cluster")
            except UnavailableError as error:
                # The first request of most work, and it changes nothing: librdkafka does not make it again when the
                # connection ends that it was to go by.
                if not left or self._troubles.down is not None or error.fields["code"] == "_TIMED_OUT":
                    raise
            else:
                break
        return frozenset(operation.name for operation in described.authorized_operations or ())


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

    def held_out(self) -> HeldOut:
        """Who may be given no rules for now, because what it had open may still be open."""

    def read_quotas(self) -> dict[str, dict[str, float]]:
        """The quotas of users, by user and Kafka's key."""

    def set_quotas(self, changes: Collection[SetQuota]) -> None:
        """Make these changes."""


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
