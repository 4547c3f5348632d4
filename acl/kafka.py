"""Clients of a site's Kafka as one user, through confluent-kafka: ``Client`` administers, ``UserConsumer`` reads.

Errors are translated into Fairlead's words. The client library (2.16.1) retries a wrong password without end; here the
first refusal ends the wait.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Any, TypeVar, cast

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_STORED,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import ClusterMetadata

from fairlead.errors import FairleadError, RefusedError, UnavailableError
from fairlead.kafka.admin import ClientErrors, SuspendAwareStopwatch, admin_client, kafka_error, login_refused
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.records.headers import FILLER, KIND, MARKER

T = TypeVar("T")
QUIET = {"log_level": 0, "reconnect.backoff.max.ms": 500}  # librdkafka would write to standard error by itself
REQUEST_TIMEOUT = 60.0  # seconds; brokers on a machine that is held up for half a minute are not given up
DOWN_TIMEOUT = 3.0  # seconds after which a cluster none of whose brokers accepts a connection is given up
CONNECTIONS = 3  # that may end before the first request over one is given up
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
        self._client_errors = ClientErrors()
        self.admin = admin_client(endpoint, {**QUIET, "error_cb": self._client_errors.on_error})

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.admin.poll(0)

    def wait(self, future: Future[T], doing: str) -> T:
        """The result of a request, or the error translated; a refused login ends the wait at once."""
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
        """What this user may do with the cluster as a whole, in the broker's own judgement."""
        for left in reversed(range(CONNECTIONS)):
            future = self.admin.describe_cluster(include_authorized_operations=True, request_timeout=self.timeout)
            try:
                described = self.wait(cast("Future[Any]", future), "asking for the cluster")
            except UnavailableError as error:
                # The first request of most work, and it changes nothing: librdkafka does not make it again when the
                # connection ends that it was to go by.
                if not left or self._client_errors.down is not None or error.fields["code"] == "_TIMED_OUT":
                    raise
            else:
                break
        return frozenset(operation.name for operation in described.authorized_operations or ())


_EOF = KafkaError._PARTITION_EOF  # noqa: SLF001 a public code of librdkafka
# A topic just made answers so until its leader serves it.
_MADE_WITHIN = 2.0  # seconds for a topic to be known everywhere once it is made
_NOT_YET = (KafkaError.LEADER_NOT_AVAILABLE, KafkaError.UNKNOWN_TOPIC_OR_PART)


class StartAt(StrEnum):
    """Where reading begins. ``GROUP``: where the consumer group stopped, else at the beginning."""

    BEGINNING = "beginning"
    END = "end"
    GROUP = "group"


_OFFSETS = {StartAt.BEGINNING: OFFSET_BEGINNING, StartAt.END: OFFSET_END, StartAt.GROUP: OFFSET_STORED}


@dataclass(frozen=True, slots=True)
class Received:
    """One record as a client gets it; ``timestamp_ms`` is the device's time, since 1970, UTC."""

    topic: str
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    @property
    def is_data(self) -> bool:
        """Whether it is a record for readers: no marker of a term, no filler."""
        return not any(name == KIND and value in (MARKER, FILLER) for name, value in self.headers)


class UserConsumer:
    """One consumer of one user. Use as a context manager; not thread safe.

    Args:
        group: Consumer group; Kafka lets a user have groups that begin with its name and a dot only.
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
        """The topics that this user is shown, Kafka's own left out."""
        return tuple(sorted(name for name in self._metadata(None) if not name.startswith("__")))

    def partitions(self, topic: str) -> tuple[int, ...]:
        """The partitions of a topic.

        Raises:
            NotAuthorised: the user may not know of it, or it does not exist and the user could not know of it.
            UnavailableError: it may be read, and does not exist (yet).
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
                    hint="it is made with its first record",
                    site=self.endpoint.site,
                    topic=topic,
                )

    def read(self, topics: Collection[str], *, start: StartAt, follow: bool) -> Iterator[Received | None]:
        """Records in the order of each topic; ``None`` when nothing came for a while (only with ``follow``).

        Without ``follow`` it ends where the topics ended at the beginning of the call.

        Raises:
            NotAuthorised, WrongPassword, UnavailableError: see ``acl.kafka.translate``.
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
                continue  # the client looks for its group's coordinator even when it is not needed
            elif not error.retriable() and error.code() not in AWAY:
                raise translate(error, self.endpoint, f"reading {message.topic()}")

    def commit(self, done: Mapping[str, int]) -> None:
        """Remember in the group, by topic, the offset up to which everything is done (exclusive). A log is one
        partition."""
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
