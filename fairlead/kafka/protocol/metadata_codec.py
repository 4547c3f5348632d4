"""Metadata requests and answers, version 12, bodies only. kafka-python's codec is the oracle in the tests.

The answer of 10,000 topics has 740 kB; a decoder that makes an object of every field takes 0.2 s and 60 MB for it.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

from fairlead.kafka.protocol import coding
from fairlead.kafka.protocol.coding import NO_TAGS, Question, decode_unsigned, skip_tags
from fairlead.kafka.protocol.versions import METADATA

_I16: Final = struct.Struct(">h")
_I32: Final = struct.Struct(">i")
_PARTITION: Final = struct.Struct(">hiii")
_THROTTLE: Final = 4
_AUTHORIZED: Final = 4
_FIRST_ONLY: Final = frozenset({0})
_BY_NAME: Final = bytes(16)  # instead of the topic's id


class TopicMetadata(NamedTuple):
    """One topic of an answer. ``leaders`` maps partition numbers to node ids, -1 while there is none; topics with the
    same ones share it. ``replicas`` is how many brokers keep a copy of the first partition listed."""

    name: str
    error_code: int
    topic_id: bytes
    leaders: Mapping[int, int]
    replicas: int


class MetadataAnswer(NamedTuple):
    """Brokers by node id, and the topics one by one: they are decoded as they are asked for, once."""

    brokers: dict[int, tuple[str, int]]
    topics: Iterator[TopicMetadata]


def metadata_request(names: Collection[str] | None) -> Question[MetadataAnswer]:
    """The request for these topics, or for all visible ones. Asking creates no topic."""
    if names is None:
        topics = b"\0"
    else:
        topics = coding.count(len(names)) + b"".join(_BY_NAME + coding.text(name) + NO_TAGS for name in names)
    create_and_permissions = b"\0\0"  # no and no
    return Question(*METADATA, topics + create_and_permissions + NO_TAGS, decode_response)


def decode_response(body: memoryview) -> MetadataAnswer:
    """Read an answer.

    Raises:
        IndexError, struct.error, UnicodeDecodeError: it is cut short, or none.
    """
    count, at = decode_unsigned(body, _THROTTLE)
    brokers: dict[int, tuple[str, int]] = {}
    for _ in range(count - 1):
        (node,) = _I32.unpack_from(body, at)
        host, at = _text(body, at + 4)
        (port,) = _I32.unpack_from(body, at)
        _, at = _text(body, at + 4)  # rack
        at = skip_tags(body, at)
        brokers[node] = (host, port)
    _, at = _text(body, at)  # cluster id
    return MetadataAnswer(brokers, _topics(body, at + 4))  # controller


def _topics(body: memoryview, at: int) -> Iterator[TopicMetadata]:
    count, at = decode_unsigned(body, at)
    alone: dict[int, dict[int, int]] = {}  # the leaders of topics with one partition: 230 B for each topic otherwise
    for _ in range(count - 1):
        (error_code,) = _I16.unpack_from(body, at)
        name, at = _text(body, at + 2)
        topic_id = bytes(body[at : at + 16])
        partitions, at = decode_unsigned(body, at + 17)  # after whether it is internal
        leaders: dict[int, int] = {}
        replicas = 1
        for number in range(partitions - 1):
            _, partition, leader, _ = _PARTITION.unpack_from(body, at)
            leaders[partition] = leader
            at += 14
            nodes, at = decode_unsigned(body, at)
            if number == 0:
                replicas = nodes - 1
            at += 4 * (nodes - 1)
            for _ in range(2):  # in-sync and offline replicas
                nodes, at = decode_unsigned(body, at)
                at += 4 * (nodes - 1)
            at = skip_tags(body, at)
        at = skip_tags(body, at + _AUTHORIZED)
        if leaders.keys() == _FIRST_ONLY:
            leaders = alone.setdefault(leaders[0], leaders)
        yield TopicMetadata(name, error_code, topic_id, leaders, replicas)


def _text(body: memoryview, at: int) -> tuple[str, int]:
    """A compact string, which may be null (empty here)."""
    size, at = decode_unsigned(body, at)
    if size <= 1:
        return "", at
    end = at + size - 1
    return str(body[at:end], "utf-8"), end
