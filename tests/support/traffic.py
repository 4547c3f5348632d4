"""Writers that keep going whatever happens to their cluster, and record what was acknowledged.

There are three kinds of log: Fairlead's own (under the append convention), an idempotent producer's, and a
transactional producer's with some aborted transactions. Every value is written once, so a check can name each value
that is lost or stored twice.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from fairlead.kafka.client.appender import Appender
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.convention import marker_record
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.codecs import Codec
from fairlead.kafka.protocol.record import NewRecord
from fairlead.kafka.protocol.types import TopicPartition as Log
from fairlead.records import headers as names
from tests.support.waits import PATIENCE


@dataclass
class Written:
    """The expected content of one writer's log: values that must be there, and values that may be."""

    sure: list[bytes] = field(default_factory=list)
    maybe: set[bytes] = field(default_factory=set)


class Seen(NamedTuple):
    """A record as a consumer receives it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def one_at_a_time(times: Iterator[int]) -> Callable[[], int]:
    """Share an iterator between threads: a generator must not be asked again before it has answered."""
    turn = threading.Lock()

    def following() -> int:
        with turn:
            return next(times)

    return following


def _wall_clock() -> int:
    return int(time.time() * 1000)


class Traffic:
    """Write to existing, empty logs while the context is open.

    Args:
        pause: Seconds between two appends to a log.
        sizes: Sizes of the values in bytes; each append picks one. ``codec`` compresses Fairlead's own logs.
        times: Gives the records' timestamps; the wall clock by default.
    """

    def __init__(
        self,
        endpoint: KafkaEndpoint,
        *,
        own: Collection[str] = (),
        idempotent: Collection[str] = (),
        transactional: Collection[str] = (),
        seed: int = 1,
        pause: float = 0.02,
        sizes: Sequence[int] = (10, 100, 2000),
        codec: Codec = Codec.LZ4,
        times: Iterator[int] | None = None,
    ) -> None:
        self.logs = (*own, *idempotent, *transactional)
        self.written = {topic: Written() for topic in self.logs}
        self._endpoint = endpoint
        self._own, self._idempotent, self._transactional = tuple(own), tuple(idempotent), tuple(transactional)
        self._chance = random.Random(seed)  # noqa: S311 - sizes and moments, not secrets
        self._pause = pause
        self._sizes = sizes
        self._codec = codec
        self._now = _wall_clock if times is None else one_at_a_time(times)
        self._stop = threading.Event()
        self._stopped = asyncio.Event()
        self._work: list[asyncio.Future[None]] = []
        self._cluster: Cluster | None = None

    async def __aenter__(self) -> Self:
        self._cluster = await Cluster.open(self._endpoint, client_id="traffic", request_timeout=10.0)
        appender = Appender(self._cluster, codec=self._codec)
        self._work = [asyncio.ensure_future(self._append(appender, topic)) for topic in self._own]
        threads = [(self._produce, topic) for topic in self._idempotent]
        threads += [(self._transact, topic) for topic in self._transactional]
        self._work += [asyncio.ensure_future(asyncio.to_thread(run, topic)) for run, topic in threads]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Stop writing when every append under way has been answered. The cluster must be up, or come up."""
        self._stop.set()
        self._stopped.set()
        work, self._work = self._work, []
        try:
            async with asyncio.timeout(PATIENCE + 10):
                await asyncio.gather(*work)
        finally:
            if self._cluster is not None:
                await self._cluster.close()

    @property
    def count(self) -> int:
        """Return the number of values acknowledged so far."""
        return sum(len(each.sure) for each in self.written.values())

    # --- writers

    def _values(self, topic: str, first: int) -> list[bytes]:
        count = self._chance.choice((1, 1, 2, 5, 20))
        size = self._chance.choice(self._sizes)
        return [f"{topic} {n} ".encode().ljust(size, b".") for n in range(first, first + count)]

    async def _append(self, appender: Appender, topic: str) -> None:
        log, written, number = Log(topic), self.written[topic], 0
        await appender.open_term(log, 1, marker_record(secrets.token_bytes(16), timestamp_ms=self._now()))
        while not self._stopped.is_set():
            values = self._values(topic, number)
            number += len(values)
            await appender.append(log, [NewRecord(each, timestamp_ms=self._now()) for each in values])
            written.sure += values
            await asyncio.sleep(self._pause)

    def _producer(self, **settings: Any) -> Producer:
        quick = {"linger.ms": 2, "compression.type": "lz4", "reconnect.backoff.max.ms": 500, "log_level": 0}
        return Producer({**self._endpoint.librdkafka(), **quick, "enable.idempotence": True, **settings})

    def _produce(self, topic: str) -> None:
        producer, written, number = self._producer(), self.written[topic], 0
        broken = threading.Event()

        def delivered(error: KafkaError | None, message: Message) -> None:
            value = message.value()
            if error is None and value is not None:
                written.sure.append(_bytes(value))
            elif error is not None and error.fatal():
                broken.set()

        while not self._stop.is_set():
            values = self._values(topic, number)
            number += len(values)
            written.maybe.update(values)
            for value in values:
                producer.produce(topic, value, key=value[-1:], timestamp=self._now(), on_delivery=delivered)
            producer.poll(0)
            if broken.is_set():
                producer = self._producer()
                broken.clear()
            self._stop.wait(self._pause)
        assert producer.flush(PATIENCE) == 0

    def _transact(self, topic: str) -> None:
        """Write transactions of random size and abort a quarter of them."""
        written, number, producer = self.written[topic], 0, self._transactor(topic)
        while not self._stop.is_set():
            values = self._values(topic, number)
            number += len(values)
            try:
                producer.begin_transaction()
                for value in values:
                    producer.produce(topic, value, timestamp=self._now())
                producer.flush(PATIENCE)  # so that the records of an aborted transaction are in the log, too
                self._stop.wait(self._pause)
                if self._chance.random() < 0.25 or not _insist(lambda at: at.commit_transaction(10), producer):
                    _insist(lambda at: at.abort_transaction(10), producer)
                else:
                    written.sure += values
            except KafkaException as error:
                cause: Any = error.args[0]
                if not cause.fatal():
                    raise
                written.maybe.update(values)  # the next producer with this transactional id commits or aborts it
                producer = self._transactor(topic)

    def _transactor(self, topic: str) -> Producer:
        producer = self._producer(**{"transactional.id": topic, "transaction.timeout.ms": 60_000})
        _insist(lambda at: at.init_transactions(10), producer)
        return producer


def _insist(step: Callable[[Producer], None], producer: Producer) -> bool:
    """Repeat one step of a transaction while the client calls its error retriable; return False when the transaction
    must be aborted instead.
    """
    end = time.monotonic() + PATIENCE
    while True:
        try:
            step(producer)
            return True
        except KafkaException as error:
            cause: Any = error.args[0]
            if cause.txn_requires_abort():
                return False
            if not cause.retriable() or time.monotonic() > end:
                raise


# --- checks afterwards


def read(endpoint: KafkaEndpoint, logs: Collection[str]) -> dict[str, list[Seen]]:
    """Return everything an ordinary consumer gets of these logs (partition 0, read_committed) up to their present
    ends."""
    found: dict[str, list[Seen]] = {log: [] for log in logs}
    consumer = Consumer(
        {
            **endpoint.librdkafka(),
            "group.id": "traffic",  # the consumer never joins a group: partitions are assigned
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "check.crcs": True,
            "log_level": 0,
        }
    )
    try:
        consumer.assign([TopicPartition(log, 0, 0) for log in logs])
        left, heard = set(logs), time.monotonic()
        while left:
            for message in consumer.consume(5000, 0.1):
                heard, topic, error = time.monotonic(), message.topic(), message.error()
                assert topic is not None
                if error is None:
                    found[topic].append(_seen(message))
                elif error.name() == "_PARTITION_EOF":
                    left.discard(topic)
                else:
                    raise KafkaException(error)
            assert time.monotonic() - heard < PATIENCE, f"{endpoint.site} sends nothing of {sorted(left)}"
    finally:
        consumer.close()
    return {
        log: [each for each in seen if (names.KIND, names.FILLER) not in each.headers] for log, seen in found.items()
    }


def verdict(written: Mapping[str, Written], source: KafkaEndpoint, target: KafkaEndpoint) -> list[str]:
    """Describe what was lost, stored twice, or differs between two sites; return nothing when all is well."""
    logs = sorted(written)
    here, there = read(source, logs), read(target, logs)
    wrong: list[str] = []
    for log in logs:
        wanted = written[log]
        for site, seen in ((source.site, here[log]), (target.site, there[log])):
            values = Counter(each.value for each in seen if (names.KIND, names.MARKER) not in each.headers)
            lost = [value for value in wanted.sure if value not in values]
            twice = [value for value, times in values.items() if times > 1]
            strange = values.keys() - wanted.maybe - set(wanted.sure)
            for what, some in (("lost", lost), ("twice", twice), ("never acknowledged", list(strange))):
                if some:
                    wrong.append(f"{log} at {site}: {len(some)} values {what}, first {some[0]!r:.60}")
        if here[log] != there[log]:
            first = next((pair for pair in zip(here[log], there[log], strict=False) if pair[0] != pair[1]), None)
            wrong.append(
                f"{log}: {len(here[log])} records at {source.site}, {len(there[log])} at {target.site}: {first}"
            )
    return wrong


def _seen(message: Message) -> Seen:
    offset, headers = message.offset(), message.headers() or []
    assert offset is not None
    return Seen(
        offset,
        message.timestamp()[1],
        None if message.key() is None else _bytes(message.key()),
        None if message.value() is None else _bytes(message.value()),
        tuple((name, None if value is None else _bytes(value)) for name, value in headers),
    )


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)
