"""Requests about topic settings, sizes on disk, deletion of a topic by its id, and client quotas. Pure.

DescribeConfigs asks for a few named settings of many topics: six settings of a topic are about 250 bytes, all of them 3
KB. confluent-kafka 2.16.1 has no DescribeLogDirs, DescribeClientQuotas and AlterClientQuotas. The requests about quotas
read and set only those of users, never those of client ids.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

from fairlead.kafka.protocol.coding import NO_TAGS, FieldReader, Question, count, text
from fairlead.kafka.protocol.types import TP
from fairlead.kafka.protocol.versions import (
    ALTER_CLIENT_QUOTAS,
    DELETE_TOPICS,
    DESCRIBE_CLIENT_QUOTAS,
    DESCRIBE_CONFIGS,
    DESCRIBE_LOG_DIRS,
)

TOPIC: Final = b"\2"  # Kafka's number for this resource type
OWN: Final = 1  # source of a value set on the topic itself (DYNAMIC_TOPIC_CONFIG)

_I8: Final = struct.Struct(">b")
_I16: Final = struct.Struct(">h")
_I32: Final = struct.Struct(">i")
_ID: Final = struct.Struct("16s")
NO_NAME: Final = b"\0"  # a compact string that is null
_FLAGS: Final = struct.Struct(">bbb")  # read only, source, sensitive


def describe_settings_request(topics: Collection[str], names: Collection[str]) -> Question[dict[str, dict[str, str]]]:
    """Ask for these settings of these topics.

    The answer has settings by topic, without topics that have an error (unknown, not permitted).
    """
    return Question(*DESCRIBE_CONFIGS, _body(topics, names, synonyms=False), _in_effect)


def describe_defaults_request(topic: str, names: Collection[str]) -> Question[dict[str, str]]:
    """Ask for the values that these settings of a topic would have if the topic set none itself.

    A broker looks a value up in several places, in order; the answer has the first one outside the topic. It is empty
    for a topic with an error.
    """
    return Question(*DESCRIBE_CONFIGS, _body([topic], names, synonyms=True), _defaults)


def delete_topic_request(topic_id: bytes, timeout_ms: int) -> Question[int]:
    """Delete the topic with this id, whatever its name is by now. The answer is an error code."""
    topic = count(1) + NO_NAME + topic_id + NO_TAGS
    return Question(*DELETE_TOPICS, topic + _I32.pack(timeout_ms) + NO_TAGS, _deleted)


def _deleted(body: memoryview) -> int:
    reader = FieldReader(body)
    reader.unpack(_I32)  # throttle time
    if reader.count() != 1:
        raise ValueError("an answer about another number of topics than were asked about")
    reader.blob()  # name
    reader.unpack(_ID)
    (code,) = reader.unpack(_I16)
    return int(code)


def _body(topics: Collection[str], names: Collection[str], *, synonyms: bool) -> bytes:
    keys = count(len(names)) + b"".join(map(text, names)) + NO_TAGS
    asked = b"".join(TOPIC + text(topic) + keys for topic in topics)
    return count(len(topics)) + asked + (b"\1" if synonyms else b"\0") + b"\0" + NO_TAGS  # no documentation


def _in_effect(body: memoryview) -> dict[str, dict[str, str]]:
    return {
        topic: {each.name: each.value for each in settings if each.value is not None}
        for topic, settings in _answered(body).items()
    }


def _defaults(body: memoryview) -> dict[str, str]:
    found: dict[str, str] = {}
    for settings in _answered(body).values():
        for each in settings:
            value = next((value for value, source in each.places if source != OWN), None)
            if value is not None:
                found[each.name] = value
    return found


class _Setting(NamedTuple):
    name: str
    value: str | None  # None: secret, or not set
    places: tuple[tuple[str | None, int], ...]  # values with their sources, the one in effect first


def _answered(body: memoryview) -> dict[str, list[_Setting]]:
    found: dict[str, list[_Setting]] = {}
    reader = FieldReader(body)
    reader.unpack(_I32)  # throttle time
    for _ in range(reader.count()):
        (code,) = reader.unpack(_I16)
        reader.blob()  # message
        reader.unpack(_I8)  # resource type
        topic = reader.text() or ""
        settings = list(_settings(reader))
        reader.tags()
        if code == 0:
            found[topic] = settings
    return found


def _settings(reader: FieldReader) -> Iterator[_Setting]:
    for _ in range(reader.count()):
        name, value = reader.text() or "", reader.text()
        reader.unpack(_FLAGS)
        places = tuple(_place(reader) for _ in range(reader.count()))
        reader.unpack(_I8)  # type
        reader.blob()  # documentation
        reader.tags()
        yield _Setting(name, value, places)


def _place(reader: FieldReader) -> tuple[str | None, int]:
    reader.blob()  # the setting's name in that place
    value = reader.text()
    (source,) = reader.unpack(_I8)
    reader.tags()
    return value, source


class LogDirs(NamedTuple):
    """The bytes of each log on one broker's disks; an error code other than 0 says why there are none."""

    error_code: int
    sizes: dict[TP, int]


_SIZE: Final = struct.Struct(">iqq?")  # partition, bytes, lag of a copy that moves between disks, whether it is one
_ROOM: Final = struct.Struct(">qq")  # of the disk: all, free


def log_dirs_request(logs: Collection[TP]) -> Question[LogDirs]:
    """Ask a broker for the sizes of these logs. The answer leaves out logs that the broker has no copy of."""
    partitions: dict[str, list[int]] = {}
    for log in logs:
        partitions.setdefault(log.topic, []).append(log.partition)
    body = bytearray(count(len(partitions)))
    for topic, numbers in partitions.items():
        body += text(topic) + count(len(numbers)) + b"".join(map(_I32.pack, numbers)) + NO_TAGS
    return Question(*DESCRIBE_LOG_DIRS, bytes(body) + NO_TAGS, _log_dirs)


def _log_dirs(body: memoryview) -> LogDirs:
    reader = FieldReader(body)
    reader.unpack(_I32)  # throttle time
    (code,) = reader.unpack(_I16)
    sizes: dict[TP, int] = {}
    for _ in range(reader.count()):
        reader.unpack(_I16)  # of one disk: an offline disk lists no logs
        reader.blob()  # path
        for _ in range(reader.count()):
            topic = reader.text() or ""
            for _ in range(reader.count()):
                partition, size, _, future = reader.unpack(_SIZE)
                reader.tags()
                if not future:
                    sizes[TP(topic, partition)] = size
            reader.tags()
        reader.unpack(_ROOM)
        reader.tags()
    return LogDirs(code, sizes)


Changes = Mapping[str, Mapping[str, float | None]]

_USER: Final = "user"
_F64: Final = struct.Struct(">d")
_ANY: Final = 2  # every user that has quotas, and the default of users
_NULL: Final = b"\0"


class DescribedQuotas(NamedTuple):
    """The quotas of users by name and Kafka's key; an error code other than 0 says why there are none."""

    error_code: int
    quotas: dict[str, dict[str, float]]


def describe_quotas_request() -> Question[DescribedQuotas]:
    """Ask for all quotas that apply to a user with any client id."""
    component = text(_USER) + _I8.pack(_ANY) + _NULL + NO_TAGS
    strict = b"\1"  # without those that also name a client id
    return Question(*DESCRIBE_CLIENT_QUOTAS, count(1) + component + strict + NO_TAGS, _described)


def alter_quotas_request(changes: Changes) -> Question[dict[str, int]]:
    """Set quotas, by user and key; None removes one. The answer has an error code by user."""
    body = bytearray(count(len(changes)))
    for user, values in changes.items():
        body += count(1) + text(_USER) + text(user) + NO_TAGS + count(len(values))
        for key, value in values.items():
            body += text(key) + _F64.pack(value or 0.0) + (b"\1" if value is None else b"\0") + NO_TAGS
        body += NO_TAGS
    validate_only = b"\0"
    return Question(*ALTER_CLIENT_QUOTAS, bytes(body) + validate_only + NO_TAGS, _altered)


def _described(body: memoryview) -> DescribedQuotas:
    reader = FieldReader(body)
    reader.unpack(_I32)
    (code,) = reader.unpack(_I16)
    reader.text()
    found: dict[str, dict[str, float]] = {}
    for _ in range(reader.count()):
        entity = _entity(reader)
        values: dict[str, float] = {}
        for _ in range(reader.count()):
            key = reader.text() or ""
            (values[key],) = reader.unpack(_F64)
            reader.tags()
        reader.tags()
        if entity is not None:
            found[entity] = values
    return DescribedQuotas(code, found)


def _altered(body: memoryview) -> dict[str, int]:
    reader = FieldReader(body)
    reader.unpack(_I32)
    found: dict[str, int] = {}
    for _ in range(reader.count()):
        (code,) = reader.unpack(_I16)
        reader.text()
        entity = _entity(reader)
        reader.tags()
        if entity is not None:
            found[entity] = code
    return found


def _entity(reader: FieldReader) -> str | None:
    """Read an entity and return its user; None for another kind of entity, and for the default of all users."""
    names: dict[str, str | None] = {}
    for _ in range(reader.count()):
        kind = reader.text() or ""
        names[kind] = reader.text()
        reader.tags()
    return names[_USER] if set(names) == {_USER} else None
