"""The full audit: record by record through confluent-kafka, so that it shares no reading code with the replicator.

Both sites are read over the offsets they have in common; what is compared is what a consumer sees: offset, time, key,
value, headers. Fillers are left out on both sides. Blocking; run it in a thread.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from fairlead.endpoint import KafkaEndpoint
from fairlead.errors import UnavailableError
from fairlead.records import headers as names
from replication.audit import Audit, Common, Difference, OnProgress

AT_ONCE: Final = 200
MESSAGES: Final = 2000
WAIT: Final = 0.1
PATIENCE: Final = 30.0  # seconds without a single message


def compare_records(
    audit: Audit, a: KafkaEndpoint, b: KafkaEndpoint, logs: Sequence[Common], *, on_progress: OnProgress | None = None
) -> Audit:
    """Compare logs by the digests of their records, then find the first differing record of those that differ."""
    for start in range(0, len(logs), AT_ONCE):
        some = [each for each in logs[start : start + AT_ONCE] if each.start < each.stop]
        here, there = _digests(a, some), _digests(b, some)
        audit.compared += len(logs[start : start + AT_ONCE])
        for each in some:
            audit.records += here[each.log][1]
            if here[each.log] != there[each.log]:
                audit.differences.append(_first_difference(a, b, each))
        if on_progress:
            on_progress(min(start + AT_ONCE, len(logs)), len(logs))
    return audit


def _digests(endpoint: KafkaEndpoint, logs: Sequence[Common]) -> dict[str, tuple[str, int]]:
    """SHA-256 over all records of each log, and how many there are."""
    running: dict[str, Any] = {each.log: hashlib.sha256() for each in logs}
    counts = dict.fromkeys(running, 0)
    for topic, offset, record in _records(endpoint, logs):
        running[topic].update(repr((offset, record)).encode())
        counts[topic] += 1
    return {topic: (digest.hexdigest(), counts[topic]) for topic, digest in running.items()}


def _first_difference(a: KafkaEndpoint, b: KafkaEndpoint, log: Common) -> Difference:
    """Read one log side by side until the records differ."""
    here = dict((offset, record) for _, offset, record in _records(a, [log]))
    there = dict((offset, record) for _, offset, record in _records(b, [log]))
    for offset in sorted(here.keys() | there.keys()):
        if here.get(offset) != there.get(offset):
            return Difference(log.log, offset, _shown(here.get(offset)), _shown(there.get(offset)))
    return Difference(log.log, log.start, None, None)  # it differed a moment ago


Seen = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


def _shown(record: Seen | None) -> dict[str, Any] | None:
    if record is None:
        return None
    time, key, value, headers = record
    return {"timestamp": time, "key": key, "value": value, "headers": headers}


def _records(endpoint: KafkaEndpoint, logs: Sequence[Common]) -> Iterator[tuple[str, int, Seen]]:
    """Data records and markers of some logs within their common offsets, per log in order."""
    if not logs:
        return
    consumer = Consumer(
        {
            **endpoint.librdkafka(),
            "group.id": "fairlead-audit",  # never joined: partitions are assigned
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "check.crcs": True,
        }
    )
    try:
        left = {each.log: each for each in logs}
        consumer.assign([TopicPartition(each.log, 0, each.start) for each in logs])
        heard = time.monotonic()
        while left:
            # It waits for the full number until the time is up, so the time is short.
            for message in consumer.consume(MESSAGES, WAIT):
                heard = time.monotonic()
                yield from _one(endpoint, message, left)
            if time.monotonic() - heard > PATIENCE:
                raise UnavailableError(
                    f"{endpoint.site} sent nothing for {PATIENCE:g} s; {len(left)} logs are left: {next(iter(left))}.."
                )
    finally:
        consumer.close()


def _one(endpoint: KafkaEndpoint, message: Message, left: dict[str, Common]) -> Iterator[tuple[str, int, Seen]]:
    topic, error = message.topic() or "", message.error()
    if topic not in left:
        return
    if error is not None:
        if error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name in this library
            raise UnavailableError(f"{endpoint.site}: reading {topic}: {error.name()}", site=endpoint.site)
        del left[topic]
        return
    offset = message.offset()
    if offset is None or offset >= left[topic].stop:
        del left[topic]
        return
    headers = tuple((name, _bytes(value)) for name, value in message.headers() or ())
    if (names.KIND, names.FILLER) not in headers:
        yield topic, offset, (message.timestamp()[1], _bytes(message.key()), _bytes(message.value()), headers)
    if offset + 1 >= left[topic].stop:
        del left[topic]


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
