"""Requests about offsets and producers: ListOffsets, DescribeProducers, DeleteRecords. Pure.

Each answer has (error code, value) by log.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeVar

from fairlead.kafka.protocol.coding import NO_TAGS, FieldReader, Question, count, text
from fairlead.kafka.protocol.types import TP, Coded, ProducerState
from fairlead.kafka.protocol.versions import DELETE_RECORDS, DESCRIBE_PRODUCERS, LIST_OFFSETS

LATEST: Final = -1
EARLIEST: Final = -2
NEWEST: Final = -3  # the record with the latest time (KIP-734)

T = TypeVar("T")

_I32: Final = struct.Struct(">i")
_REPLICA: Final = struct.Struct(">ib")  # -1 for a client, isolation level
_ASKED: Final = struct.Struct(">iiq")  # partition, leader epoch, time
_LISTED: Final = struct.Struct(">ihqqi")  # partition, error, time, offset, leader epoch
_DELETE: Final = struct.Struct(">iq")  # partition, offset
_DELETED: Final = struct.Struct(">iqh")  # partition, new start, error
_PARTITION: Final = struct.Struct(">ih")  # partition, error
_PRODUCER: Final = struct.Struct(">qiiqiq")  # id, epoch, sequence, time, coordinator epoch, start of transaction


def list_request(times: Mapping[TP, int]) -> Question[dict[TP, Coded[int]]]:
    """Ask for an offset of each log by time, or for ``LATEST`` or ``EARLIEST``."""
    logs = _by_topic(times, lambda log: _ASKED.pack(log.partition, -1, times[log]) + NO_TAGS)
    return Question(*LIST_OFFSETS, _REPLICA.pack(-1, 0) + logs + NO_TAGS, _listed)


def newest_request(logs: Collection[TP]) -> Question[dict[TP, Coded[int]]]:
    """Ask for the latest time of a record in each log, in ms since 1970; -1 for a log without records."""
    body = _by_topic(logs, lambda log: _ASKED.pack(log.partition, -1, NEWEST) + NO_TAGS)
    return Question(*LIST_OFFSETS, _REPLICA.pack(-1, 0) + body + NO_TAGS, _times)


def producers_request(logs: Collection[TP]) -> Question[dict[TP, Coded[tuple[ProducerState, ...]]]]:
    """Ask what the brokers remember of the producers of these logs."""
    body = _by_topic(logs, lambda log: _I32.pack(log.partition))
    return Question(*DESCRIBE_PRODUCERS, body + NO_TAGS, _producers)


def delete_request(before: Mapping[TP, int], timeout_ms: int) -> Question[dict[TP, Coded[int]]]:
    """Delete the records below an offset, by log; the answer has their new start offsets."""
    logs = _by_topic(before, lambda log: _DELETE.pack(log.partition, before[log]) + NO_TAGS)
    return Question(*DELETE_RECORDS, logs + _I32.pack(timeout_ms) + NO_TAGS, _deleted)


def _by_topic(logs: Collection[TP], encode: Callable[[TP], bytes]) -> bytes:
    """Encode a compact array of topics, each with its name and a compact array of partitions."""
    topics: dict[str, list[bytes]] = {}
    for log in logs:
        topics.setdefault(log.topic, []).append(encode(log))
    out = bytearray(count(len(topics)))
    for topic, partitions in topics.items():
        out += text(topic)
        out += count(len(partitions))
        out += b"".join(partitions)
        out += NO_TAGS
    return bytes(out)


def _read(body: memoryview, decode: Callable[[FieldReader], tuple[int, Coded[T]]]) -> dict[TP, Coded[T]]:
    """Decode an answer: a throttle time, then topics with their partitions.

    ``decode`` reads one partition and returns its number with (error code, value).
    """
    reader = FieldReader(body)
    reader.unpack(_I32)
    found: dict[TP, Coded[T]] = {}
    for _ in range(reader.count()):
        topic = reader.text() or ""
        for _ in range(reader.count()):
            partition, value = decode(reader)
            reader.tags()
            found[TP(topic, partition)] = value
        reader.tags()
    return found


def _listed(body: memoryview) -> dict[TP, Coded[int]]:
    def one(reader: FieldReader) -> tuple[int, Coded[int]]:
        partition, code, _, offset, _ = reader.unpack(_LISTED)
        return partition, (code, offset)

    return _read(body, one)


def _times(body: memoryview) -> dict[TP, Coded[int]]:
    def one(reader: FieldReader) -> tuple[int, Coded[int]]:
        partition, code, moment, _, _ = reader.unpack(_LISTED)
        return partition, (code, moment)

    return _read(body, one)


def _deleted(body: memoryview) -> dict[TP, Coded[int]]:
    def one(reader: FieldReader) -> tuple[int, Coded[int]]:
        partition, start, code = reader.unpack(_DELETED)
        return partition, (code, start)

    return _read(body, one)


def _producers(body: memoryview) -> dict[TP, Coded[tuple[ProducerState, ...]]]:
    def state(fields: tuple[Any, ...], reader: FieldReader) -> ProducerState:
        reader.tags()
        return ProducerState(*fields[:4])

    def one(reader: FieldReader) -> tuple[int, Coded[tuple[ProducerState, ...]]]:
        partition, code = reader.unpack(_PARTITION)
        reader.blob()  # message
        states = tuple(state(reader.unpack(_PRODUCER), reader) for _ in range(reader.count()))
        return partition, (code, states)

    return _read(body, one)
