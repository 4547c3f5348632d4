"""Reading topics as an ordinary client of an ordinary user: what a customer's own program would get, and its errors."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType

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

from acl.kafka import AWAY, QUIET, translate
from fairlead.admin import kafka_error
from fairlead.awake import Awake
from fairlead.endpoint import KafkaEndpoint
from fairlead.errors import UnavailableError
from fairlead.records.headers import FILLER, KIND, MARKER
from fairlead.troubles import Troubles

_EOF = KafkaError._PARTITION_EOF  # noqa: SLF001 a public code of librdkafka
# A topic just made answers so until its leader serves it.
_MADE_WITHIN = 2.0  # seconds for a topic to be known everywhere once it is made
_NOT_YET = (KafkaError.LEADER_NOT_AVAILABLE, KafkaError.UNKNOWN_TOPIC_OR_PART)


class Start(StrEnum):
    """Where reading begins. ``GROUP``: where the consumer group stopped, else at the beginning."""

    BEGINNING = "beginning"
    END = "end"
    GROUP = "group"


_OFFSETS = {Start.BEGINNING: OFFSET_BEGINNING, Start.END: OFFSET_END, Start.GROUP: OFFSET_STORED}


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


class Reader:
    """One consumer of one user. Use as a context manager; not thread safe.

    Args:
        group: Consumer group; Kafka lets a user have groups that begin with its name and a dot only.
        timeout: Seconds to wait for the first answer of the site.
    """

    def __init__(self, endpoint: KafkaEndpoint, *, group: str, timeout: float = 15.0) -> None:
        self.endpoint = endpoint
        self._group = group
        self._timeout = timeout
        self._troubles = Troubles()
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
                "error_cb": self._troubles.note,
            }
        )

    def __enter__(self) -> Reader:
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
        awake = Awake()
        while True:
            error, partitions = self._metadata(topic)[topic]
            if error is None and partitions:
                return partitions
            if error is not None and error.code() not in _NOT_YET:
                raise translate(error, self.endpoint, f"reading {topic}")
            if awake.seconds() > _MADE_WITHIN:
                raise UnavailableError(
                    f"{topic} does not exist at site {self.endpoint.site} yet",
                    hint="it is made with its first record",
                    site=self.endpoint.site,
                    topic=topic,
                )

    def read(self, topics: Collection[str], *, start: Start, follow: bool) -> Iterator[Received | None]:
        """Records in the order of each topic; ``None`` when nothing came for a while (only with ``follow``).

        Without ``follow`` it ends where the topics ended at the beginning of the call.

        Raises:
            NotAuthorised, WrongPassword, UnavailableError: see ``acl.kafka.translate``.
        """
        where = [TopicPartition(t, p, _OFFSETS[start]) for t in topics for p in self.partitions(t)]
        self._consumer.assign(where)
        left = {(tp.topic, tp.partition) for tp in where}
        silent: Awake | None = None
        while left or follow:
            message = self._consumer.poll(0.2)
            if self._troubles.refused is not None:
                raise translate(self._troubles.refused, self.endpoint, "reading")
            if message is None:
                silent = silent or Awake()
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
            elif error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED and start is not Start.GROUP:
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
        awake = Awake()
        while True:
            self._consumer.poll(0)
            try:
                found = self._list(topic)
                return {name: (meta.error, tuple(meta.partitions)) for name, meta in found.topics.items()}
            except KafkaException as problem:
                self._consumer.poll(0)
                error = self._troubles.refused or kafka_error(problem)
                if self._troubles.refused is not None or error.code() not in AWAY or awake.seconds() > self._timeout:
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
