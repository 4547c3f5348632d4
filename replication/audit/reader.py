"""Read some logs of one site as a consumer sees them: confluent-kafka, read committed, CRCs checked. Blocking.

One ``AuditReader`` reads one set of logs and is then discarded: librdkafka needs half a second or more to change a
consumer's assignment, but only a few milliseconds for a new consumer (measured, 2.16).

``voids`` finds ranges without records. Compaction can remove every record up to an active segment that is still empty.
There a broker answers a Fetch at any offset below the end with no records and no error. librdkafka does not report such
an answer: it delivers no message, and no end of the partition, because its position is not the end. Its statistics show
it. ``voids`` watches a new consumer from its first answer on. librdkafka learns a partition's end only from a
successful answer. So if a partition's end is known and no partition's position has moved, the answer was empty. (If a
position has moved, the answer may have been full without room for the other partitions.)
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from threading import Event
from types import TracebackType
from typing import Any, Final, NamedTuple

import msgspec
from confluent_kafka import Consumer, KafkaError, Message
from confluent_kafka import TopicPartition as Assigned

from fairlead.errors import FairleadError, UnavailableError
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.types import TopicPartition
from fairlead.records import headers as names
from replication.audit.ranges import Common
from replication.audit.result import SeenRecord
from replication.link.byte_budget import ReadPace

EVERY_MS: Final = 100  # between two reports of statistics
SECONDS: Final = 5.0  # timeout of one ``_VoidLook``
LOOKS: Final = 4
ANSWERS: Final = 2  # requests after the end became known: by then the answer with the end has been parsed

Offsets = tuple[int, int]  # start (inclusive), stop (exclusive)
_decode: Final = msgspec.json.Decoder().decode


class _ConsumerAt(NamedTuple):
    """librdkafka's position in one partition. ``end`` is the end of committed records, -1 before the first answer."""

    offset: int
    end: int
    requests: int  # Fetch requests sent to the partition's leader


def voids(settings: Mapping[str, Any], logs: Mapping[TopicPartition, Offsets]) -> set[TopicPartition]:
    """Return the logs that certainly have no records between these offsets.

    Args:
        settings: The settings of a consumer of the site; they must not request statistics.
    """
    left = dict(logs)
    for _ in range(LOOKS):
        if not left:
            break
        look = _VoidLook(settings, left)
        found = look.watch()
        if not look.heard and all(found[tp] == start for tp, (start, _) in left.items()):
            return set(left)
        # librdkafka skips control records and the rest of a batch without a message; look again from the new position.
        left = {tp: (at, left[tp][1]) for tp, at in found.items() if tp not in look.heard}
    return set()


class _VoidLook:
    """Watch one consumer until it knows every log's end.

    Attributes:
        heard: Logs that delivered a message, and logs that stayed undecided until the timeout.
    """

    def __init__(self, settings: Mapping[str, Any], logs: Mapping[TopicPartition, Offsets]) -> None:
        self.heard: set[TopicPartition] = set()
        self._logs = logs
        self._first: dict[TopicPartition, _ConsumerAt] = {}  # when the end became known or the position last changed
        self._now: dict[TopicPartition, _ConsumerAt] = {}
        own = {"statistics.interval.ms": EVERY_MS, "stats_cb": self._on_stats, "fetch.wait.max.ms": EVERY_MS}
        self._consumer = Consumer({**settings, **own})

    def watch(self) -> dict[TopicPartition, int]:
        """Return the consumer's final position in each log."""
        deadline = time.monotonic() + SECONDS
        try:
            self._consumer.assign([Assigned(tp.topic, tp.partition, start) for tp, (start, _) in self._logs.items()])
            while time.monotonic() < deadline and not all(map(self._rests, self._logs)):
                message = self._consumer.poll(EVERY_MS / 1000)
                if message is not None:
                    self.heard.add(TopicPartition(message.topic() or "", message.partition() or 0))
        finally:
            self._consumer.close()
        self.heard |= {tp for tp in self._logs if not self._rests(tp)}
        return {tp: self._now[tp].offset if tp in self._now else start for tp, (start, _) in self._logs.items()}

    def _rests(self, tp: TopicPartition) -> bool:
        first, now = self._first.get(tp), self._now.get(tp)
        return tp in self.heard or (
            first is not None and now is not None and now.requests >= first.requests + ANSWERS and self._is_told(tp)
        )

    def _is_told(self, tp: TopicPartition) -> bool:
        return self._now[tp].end >= self._logs[tp][1]

    def _on_stats(self, statistics: str) -> None:
        found = _decode(statistics)
        requests = {each["nodeid"]: each["req"].get("Fetch", 0) for each in found["brokers"].values()}
        for tp in self._logs:
            part = found["topics"].get(tp.topic, {"partitions": {}})["partitions"].get(str(tp.partition))
            if part is None or part["fetch_state"] != "active" or part["next_offset"] < 0:
                continue
            now = _ConsumerAt(
                part["next_offset"], min(part["hi_offset"], part["ls_offset"]), requests.get(part["leader"], 0)
            )
            self._now[tp] = now
            if self._is_told(tp) and (tp not in self._first or self._first[tp].offset != now.offset):
                self._first[tp] = now


MESSAGES: Final = 1_000  # at a time
PATIENCE: Final = 30.0  # seconds without anything
QUIET: Final = 2.0  # seconds without a message before ``voids`` is asked
OVERHEAD: Final = 24  # bytes of a record besides key, value and headers
FETCH_BYTES: Final = 8 << 20
QUEUE_BYTES: Final = 16 << 20
_GONE: Final = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "UNKNOWN_TOPIC_ID")


class Stopped(Exception):
    """The caller has stopped the audit."""


class Read(NamedTuple):
    """A record of a log. ``offset`` -1 means that the log has no more records in its range."""

    tp: TopicPartition
    offset: int
    record: SeenRecord | None


class LogStartMoved(Exception):
    """A log lost records at its start while it was read, by retention or because somebody deleted them."""


class AuditReader:
    """Read the records of some logs of one site within their offsets, in order per log; fillers are left out.

    Attributes:
        left: Logs that are not yet read to the end of their range.
        moved: Logs that lost the offset at which reading was; they are not in ``left`` any more.
    """

    def __init__(
        self, endpoint: KafkaEndpoint, logs: Sequence[Common], pace: ReadPace, known: dict[TopicPartition, Offsets]
    ) -> None:
        """Open a consumer for these logs.

        Args:
            known: Ranges without records in this site's logs; the reader adds those that it finds. They stay valid,
                because nothing is ever written below a log's end.
        """
        self._endpoint = endpoint
        self._pace = pace
        self.left = {each.tp: each for each in logs}
        self.moved: set[TopicPartition] = set()
        self._resting: set[TopicPartition] = set()
        self._known = known
        self._at = {each.tp: each.start for each in logs}  # everything below this offset is read
        self._void = [each.tp for each in logs if self._is_void(each.tp)]
        self._settings = {**endpoint.librdkafka(), **_settings(pace.rate)}
        self._consumer = Consumer(self._settings)
        self._consumer.assign([Assigned(each.tp.topic, each.tp.partition, each.start) for each in logs])
        self._heard = self._asked = time.monotonic()

    def __enter__(self) -> AuditReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()

    def poll(self, wait: float) -> Iterator[Read]:
        """Yield the records that have arrived; wait up to ``wait`` seconds for the first. Yield nothing while the rate
        limit forbids reading.

        Raises:
            UnavailableError: the site has sent nothing for ``PATIENCE`` seconds.
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
            yield from self._read_message(message, done)
        self._pause(done)

    @property
    def wants(self) -> bool:
        """Return whether any log is neither complete nor paused."""
        return len(self._resting) < len(self.left)

    def rest(self, tp: TopicPartition) -> None:
        """Pause reading a log."""
        if tp in self.left and tp not in self._resting:
            self._resting.add(tp)
            self._pause([tp])

    def resume(self, tp: TopicPartition) -> None:
        """Resume reading a log."""
        if tp in self._resting:
            self._resting.discard(tp)
            self._heard = time.monotonic()
            self._consumer.resume([Assigned(tp.topic, tp.partition)])

    def drop(self, tp: TopicPartition) -> None:
        """Stop reading a log."""
        if self.left.pop(tp, None) is not None:
            self._resting.discard(tp)
            self._pause([tp])

    def pause_seconds(self) -> float:
        """Return for how many seconds the rate limit forbids reading."""
        return self._pace.wait()

    def _read_message(self, message: Message, done: list[TopicPartition]) -> Iterator[Read]:
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
        """Yield the end of a log, unless the caller dropped the log with its last record."""
        self._resting.discard(tp)
        if self.left.pop(tp, None) is not None:
            done.append(tp)
            yield Read(tp, -1, None)

    def _is_void(self, tp: TopicPartition) -> bool:
        """Return whether a log is known to have no records in the rest of its range."""
        start, stop = self._known.get(tp, (0, 0))
        return tp in self.left and start <= self._at[tp] and self.left[tp].stop <= stop

    def _ask_for_voids(self) -> None:
        """Find out whether silent logs have any records left, because librdkafka does not report empty answers."""
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
        """Raise unless the error is the end of a log, at or after the end of its range."""
        site, name = self._endpoint.site, error.name()
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name in this library
            if offset is not None and offset < log.stop:
                raise FairleadError(
                    f"{log.tp} at {site} ends at {offset}; it ended at {log.stop} or later when the audit began",
                    hint="its leader has lost records: fairlead status",
                    site=site,
                    log=str(log.tp),
                )
        elif name in _GONE:
            raise UnavailableError(f"{log.tp} was deleted at {site} while it was compared", hint="run the audit again")
        else:
            what = f"{site}: reading {log.tp}: {name}"
            raise UnavailableError(what, hint="continue with --resume", site=site, log=str(log.tp))

    def _pause(self, logs: Collection[TopicPartition]) -> None:
        if logs:
            self._consumer.pause([Assigned(tp.topic, tp.partition) for tp in logs])

    def _lose_patience(self) -> None:
        if time.monotonic() - self._heard > PATIENCE:
            raise UnavailableError(
                f"{self._endpoint.site} sent nothing for {PATIENCE:g} s; {len(self.left)} logs are left: "
                f"{next(iter(self.left))}..",
                hint="check that the site runs (fairlead status), then continue with --resume",
                site=self._endpoint.site,
            )


def read_all(reader: AuditReader, stop: Event) -> Iterator[tuple[TopicPartition, int, SeenRecord]]:
    """Yield all records of a reader as they arrive; logs in ``moved`` are not complete.

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
        "log_level": 0,  # otherwise librdkafka writes to standard error
        "fetch.max.bytes": FETCH_BYTES,
        "queued.max.messages.kbytes": QUEUE_BYTES >> 10,
        "fetch.queue.backoff.ms": 20,  # the queue empties fast; the default is one second
    }
    if rate is not None:  # prefetched records use the link, too
        some = max(1_000, min(FETCH_BYTES, rate // 2))
        settings |= {
            "message.max.bytes": 1_000,  # must not exceed fetch.max.bytes; larger records are read anyway
            "fetch.max.bytes": some,
            "max.partition.fetch.bytes": some,
            "queued.min.messages": 1,
            "queued.max.messages.kbytes": max(1, some >> 10),
        }
    return settings


def _seen(message: Message) -> tuple[SeenRecord | None, int]:
    """Return the record of a message (None for a filler) and its size in bytes."""
    key, value = _bytes(message.key()), _bytes(message.value())
    size = OVERHEAD + len(key or b"") + len(value or b"")
    headers = tuple((name, _bytes(content)) for name, content in message.headers() or ())
    for name, content in headers:
        size += len(name) + len(content or b"")
    kind = next((content for name, content in headers if name == names.KIND), None)
    if kind == names.FILLER:
        return None, size
    return SeenRecord(message.timestamp()[1], key, value, headers), size


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
