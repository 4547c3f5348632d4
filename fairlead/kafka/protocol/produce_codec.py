"""Encode Produce requests and decode their answers by hand, because every append uses them.

Tests compare with kafka-python's codec. Version 9 is the first flexible one, with topic names. Version 13 (KIP-516,
Kafka 4.1) has topic ids instead: a broker refuses a batch for a topic that was deleted and created again under its
name. Bodies only; the connection writes the request header.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final

from fairlead.kafka.protocol.batch import Buffer
from fairlead.kafka.protocol.coding import decode_unsigned, encode_unsigned, skip_tags
from fairlead.kafka.protocol.types import TP, ProduceResult

API_KEY: Final = 0
VERSION: Final = 9
BY_ID: Final = 13
ACKS_ALL: Final = -1

_HEAD: Final = struct.Struct(">hi")
_I32: Final = struct.Struct(">i")
_ANSWER: Final = struct.Struct(">ihqqq")
_NOTHING_ELSE: Final = b"\1\0\0"  # no errors of single records, no message, no tags
_JOIN_BELOW: Final = 8192  # smaller batches are copied into the running buffer: fewer buffers are cheaper than no copy


def encode_request(
    batches: Mapping[TP, Buffer], timeout_ms: int, topic_ids: Mapping[TP, bytes] | None = None
) -> list[Buffer]:
    """Encode the body as a list of buffers, with one batch per log. Large batches are not copied.

    ``topic_ids`` has the 16 byte topic id of each log, for version ``BY_ID``; without it the body is of ``VERSION``.
    """
    out: list[Buffer] = []
    run = bytearray(b"\0")  # no transactional id
    run += _HEAD.pack(ACKS_ALL, timeout_ms)
    topics = _by_name(batches) if topic_ids is None else _by_id(batches, topic_ids)
    run += encode_unsigned(len(topics) + 1)
    for topic, partitions in topics:
        run += topic
        run += encode_unsigned(len(partitions) + 1)
        for partition, batch in partitions:
            run += _I32.pack(partition)
            run += encode_unsigned(len(batch) + 1)
            if len(batch) < _JOIN_BELOW:
                run += batch
                run += b"\0"
            else:
                out.append(run)
                out.append(batch)
                run = bytearray(b"\0")
        run += b"\0"
    run += b"\0"
    out.append(run)
    return out


_Topics = list[tuple[bytes, Sequence[tuple[int, Buffer]]]]


def _by_name(batches: Mapping[TP, Buffer]) -> _Topics:
    """Group the batches by encoded topic name; nearly always a topic has one."""
    if len({topic for topic, _ in batches}) == len(batches):
        return [(_name(topic), ((partition, batch),)) for (topic, partition), batch in batches.items()]
    found: dict[str, list[tuple[int, Buffer]]] = {}
    for (topic, partition), batch in batches.items():
        found.setdefault(topic, []).append((partition, batch))
    return [(_name(topic), partitions) for topic, partitions in found.items()]


def _by_id(batches: Mapping[TP, Buffer], topic_ids: Mapping[TP, bytes]) -> _Topics:
    """Group the batches by topic id."""
    if len({topic for topic, _ in batches}) == len(batches):
        return [(topic_ids[log], ((log[1], batch),)) for log, batch in batches.items()]
    found: dict[bytes, list[tuple[int, Buffer]]] = {}
    for log, batch in batches.items():
        found.setdefault(topic_ids[log], []).append((log[1], batch))
    return list(found.items())


def _name(topic: str) -> bytes:
    name = topic.encode()
    return encode_unsigned(len(name) + 1) + name


def decode_response(
    frame: bytearray, position: int, names: Mapping[bytes, str] | None = None
) -> tuple[dict[TP, ProduceResult], int]:
    """Return each log's result, and ``throttle_time_ms``; ``position`` is where the body begins.

    ``names`` has the topics' names by id, for version ``BY_ID``; a topic that it lacks is left out.
    """
    results: dict[TP, ProduceResult] = {}
    topics, position = decode_unsigned(frame, position)
    for _ in range(topics - 1):
        if names is None:
            size, position = decode_unsigned(frame, position)
            name: str | None = frame[position : position + size - 1].decode()
            position += size - 1
        else:
            name = names.get(bytes(frame[position : position + 16]))
            position += 16
        partitions, position = decode_unsigned(frame, position)
        for _ in range(partitions - 1):
            partition, code, base, time, start = _ANSWER.unpack_from(frame, position)
            position += _ANSWER.size
            if frame[position : position + 3] == _NOTHING_ELSE:  # nearly always
                position += 3
                if name is not None:
                    results[TP(name, partition)] = ProduceResult(code, base, time, start)
                continue
            errors, position = decode_unsigned(frame, position)
            detail: str | None = None
            for _ in range(errors - 1):
                position += 4
                text, position = _nullable_string(frame, position)
                detail = detail or text
                position = skip_tags(frame, position)
            message, position = _nullable_string(frame, position)
            position = skip_tags(frame, position)
            if name is not None:
                results[TP(name, partition)] = ProduceResult(code, base, time, start, message or detail)
        position = skip_tags(frame, position)
    return results, _I32.unpack_from(frame, position)[0]


def _nullable_string(frame: bytearray, position: int) -> tuple[str | None, int]:
    size, position = decode_unsigned(frame, position)
    if size == 0:
        return None, position
    return frame[position : position + size - 1].decode(), position + size - 1
