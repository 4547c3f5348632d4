"""Reading some logs of one site as a consumer sees them: confluent-kafka, read committed, CRCs checked. Blocking.

One ``Reader`` reads one set of logs and is thrown away: librdkafka needs half a second and more to change what a
consumer is assigned, and a few milliseconds for a new consumer (measured, 2.16).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from threading import Event
from types import TracebackType
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, Message
from confluent_kafka import TopicPartition as Assigned

from fairlead.endpoint import KafkaEndpoint
from fairlead.errors import FairleadError, UnavailableError
from fairlead.records import headers as names
from fairlead.wire.types import TopicPartition
from replication.audit.pace import Pace
from replication.audit.ranges import Common
from replication.audit.result import Seen
from replication.audit.void import Offsets, voids

MESSAGES: Final = 1_000  # at a time
PATIENCE: Final = 30.0  # seconds without anything
QUIET: Final = 2.0  # seconds without anything, after which it is asked whether there is anything
OVERHEAD: Final = 24  # bytes of a record beside key, value and headers
FETCH_BYTES: Final = 8 << 20
QUEUE_BYTES: Final = 16 << 20
_GONE: Final = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "UNKNOWN_TOPIC_ID")


class Stopped(Exception):
    """The audit was told to stop."""


class Read(NamedTuple):
    """A record, or with ``offset`` -1: the log has no more in its range."""

    tp: TopicPartition
    offset: int
    record: Seen | None


class Moved(Exception):
    """A log was shortened at its start while it was read: retention, or somebody deleted records."""


class Reader:
    """Records of some logs of one site within their offsets, per log in order; fillers are left out.

    Attributes:
        left: Logs that are not read to the end of their range.
        moved: Logs that do not reach back to where reading was; they are not in ``left`` any more.
    """

    def __init__(
        self, endpoint: KafkaEndpoint, logs: Sequence[Common], pace: Pace, known: dict[TopicPartition, Offsets]
    ) -> None:
        """``known``: offsets of this site's logs that hold nothing, to which is added what is found out. They stay
        true, since nothing is ever written below a log's end."""
        self._endpoint = endpoint
        self._pace = pace
        self.left = {each.tp: each for each in logs}
        self.moved: set[TopicPartition] = set()
        self._resting: set[TopicPartition] = set()
        self._known = known
        self._at = {each.tp: each.start for each in logs}  # below it everything has come
        self._void = [each.tp for each in logs if self._is_void(each.tp)]
        self._settings = {**endpoint.librdkafka(), **_settings(pace.rate)}
        self._consumer = Consumer(self._settings)
        self._consumer.assign([Assigned(each.tp.topic, each.tp.partition, each.start) for each in logs])
        self._heard = self._asked = time.monotonic()

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()

    def poll(self, wait: float) -> Iterator[Read]:
        """What has come; waits up to ``wait`` seconds for the first. Nothing while the rate forbids it.

        Raises:
            UnavailableError: nothing has come for ``PATIENCE`` seconds.
            FairleadError: a log cannot be read, ends earlier than it did, or is damaged.
        """
        if not self.wants:
            return
        if self._pace.wait() > 0:
            self._heard = time.monotonic()
            return
        done: list[TopicPartition] = []
        first = self._consumer.poll(0 if self._void else wait)
        if first is None:
            self._ask_for_voids()
            void, self._void = self._void, []
            for tp in void:
                yield from self._end(tp, done)
            self._pause(done)
            self._lose_patience()
            return
        self._heard = time.monotonic()
        for message in (first, *self._consumer.consume(MESSAGES, 0)):
            yield from self._one(message, done)
        self._pause(done)

    @property
    def wants(self) -> bool:
        """There is something to be read now, as far as the rate allows it."""
        return len(self._resting) < len(self.left)

    def rest(self, tp: TopicPartition) -> None:
        """Do not read this log for now."""
        if tp in self.left and tp not in self._resting:
            self._resting.add(tp)
            self._pause([tp])

    def resume(self, tp: TopicPartition) -> None:
        """Read it again."""
        if tp in self._resting:
            self._resting.discard(tp)
            self._heard = time.monotonic()
            self._consumer.resume([Assigned(tp.topic, tp.partition)])

    def drop(self, tp: TopicPartition) -> None:
        """Nothing more is wanted of this log."""
        if self.left.pop(tp, None) is not None:
            self._resting.discard(tp)
            self._pause([tp])

    def pause_seconds(self) -> float:
        """How long the rate forbids reading."""
        return self._pace.wait()

    def _one(self, message: Message, done: list[TopicPartition]) -> Iterator[Read]:
        tp = TopicPartition(message.topic() or "", message.partition() or 0)
        log = self.left.get(tp)
        if log is None:
            return
        offset, error = message.offset(), message.error()
        if error is not None:
            if error.code() == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001 - its public name in this library
                self.moved.add(tp)
                self.drop(tp)
                return
            self._require_end(log, error, offset)
        elif offset is not None and offset < log.stop:
            record, size = _seen(message)
            self._pace.charge(size)
            if offset >= log.start and record is not None:
                yield Read(tp, offset, record)
            self._at[tp] = max(self._at[tp], offset + 1)
            if offset + 1 < log.stop and not self._is_void(tp):
                return
        yield from self._end(tp, done)

    def _end(self, tp: TopicPartition, done: list[TopicPartition]) -> Iterator[Read]:
        """There is nothing more in a log, unless it was dropped already by whoever took its last record."""
        self._resting.discard(tp)
        if self.left.pop(tp, None) is not None:
            done.append(tp)
            yield Read(tp, -1, None)

    def _is_void(self, tp: TopicPartition) -> bool:
        """It is known that a log has nothing in what is left of its range."""
        start, stop = self._known.get(tp, (0, 0))
        return tp in self.left and start <= self._at[tp] and self.left[tp].stop <= stop

    def _ask_for_voids(self) -> None:
        """Where nothing has come for a while, find out whether there is anything: a broker's empty answers are not
        told to a consumer."""
        if time.monotonic() - max(self._heard, self._asked) < QUIET:
            return
        found = voids(
            self._settings, {tp: (self._at[tp], log.stop) for tp, log in self.left.items() if tp not in self._resting}
        )
        for tp in found:
            self._known[tp] = self._at[tp], self.left[tp].stop
        self._void += found
        self._asked = time.monotonic()
        if found:
            self._heard = self._asked

    def _require_end(self, log: Common, error: KafkaError, offset: int | None) -> None:
        """Accept the news that a log ends, where it may end."""
        site, name = self._endpoint.site, error.name()
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name in this library
            if offset is not None and offset < log.stop:
                raise FairleadError(
                    f"{log.tp} at {site} ends at {offset}; it ended at {log.stop} or later when the audit began",
                    hint="its leader has lost records; see fairlead status",
                    site=site,
                    log=str(log.tp),
                )
        elif name in _GONE:
            raise FairleadError(f"{log.tp} was deleted at {site} while it was compared", hint="run the audit again")
        else:
            what = f"{site}: reading {log.tp}: {name}"
            raise UnavailableError(what, hint="go on with --resume", site=site, log=str(log.tp))

    def _pause(self, logs: Collection[TopicPartition]) -> None:
        if logs:
            self._consumer.pause([Assigned(tp.topic, tp.partition) for tp in logs])

    def _lose_patience(self) -> None:
        if time.monotonic() - self._heard > PATIENCE:
            raise UnavailableError(
                f"{self._endpoint.site} sent nothing for {PATIENCE:g} s; {len(self.left)} logs are left: "
                f"{next(iter(self.left))}..",
                hint="see whether it runs, then go on with --resume",
                site=self._endpoint.site,
            )


def everything(reader: Reader, stop: Event) -> Iterator[tuple[TopicPartition, int, Seen]]:
    """All records of a reader, as they come; logs that were ``moved`` are not complete.

    Raises:
        Stopped: ``stop`` was set.
    """
    while reader.left:
        if stop.wait(reader.pause_seconds()):
            raise Stopped
        for tp, offset, record in reader.poll(0.1):
            if record is not None:
                yield tp, offset, record


def _settings(rate: int | None) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "group.id": "fairlead-audit",  # never joined: partitions are assigned
        "client.id": "fairlead-audit",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "auto.offset.reset": "error",
        "check.crcs": True,
        "log_level": 0,  # librdkafka would write to standard error
        "fetch.max.bytes": FETCH_BYTES,
        "queued.max.messages.kbytes": QUEUE_BYTES >> 10,
        "fetch.queue.backoff.ms": 20,  # a full queue is soon empty; its default is a second
    }
    if rate is not None:  # what is read ahead goes over the line, too
        some = max(1_000, min(FETCH_BYTES, rate // 2))
        settings |= {
            "message.max.bytes": 1_000,  # may not be above fetch.max.bytes; larger records are read all the same
            "fetch.max.bytes": some,
            "max.partition.fetch.bytes": some,
            "queued.min.messages": 1,
            "queued.max.messages.kbytes": max(1, some >> 10),
        }
    return settings


def _seen(message: Message) -> tuple[Seen | None, int]:
    """A record, None for a filler; and its bytes."""
    key, value = _bytes(message.key()), _bytes(message.value())
    size = OVERHEAD + len(key or b"") + len(value or b"")
    headers = tuple((name, _bytes(content)) for name, content in message.headers() or ())
    for name, content in headers:
        size += len(name) + len(content or b"")
    kind = next((content for name, content in headers if name == names.KIND), None)
    if kind == names.FILLER:
        return None, size
    return Seen(message.timestamp()[1], key, value, headers), size


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
