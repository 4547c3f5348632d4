"""Requests about client quotas: DescribeClientQuotas, AlterClientQuotas. Pure.

confluent-kafka 2.16.1 has neither. Only quotas of users are asked for and set; those of client ids are left alone.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final, NamedTuple

from fairlead.wire.coding import NO_TAGS, Question, Reader, count, text
from fairlead.wire.versions import ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS

Limits = Mapping[str, float]
Changes = Mapping[str, Mapping[str, float | None]]

_USER: Final = "user"
_I8: Final = struct.Struct(">b")
_I16: Final = struct.Struct(">h")
_I32: Final = struct.Struct(">i")
_F64: Final = struct.Struct(">d")
_ANY: Final = 2  # every user that has one, and the default of users
_NULL: Final = b"\0"


class Described(NamedTuple):
    """The quotas of users by name and Kafka's key; an error code other than 0 says why there are none."""

    error_code: int
    quotas: dict[str, dict[str, float]]


def describe_request() -> Question[Described]:
    """All quotas that are one user's, whatever client id it uses."""
    component = text(_USER) + _I8.pack(_ANY) + _NULL + NO_TAGS
    strict = b"\1"  # none that is of a client id as well
    return Question(*DESCRIBE_CLIENT_QUOTAS, count(1) + component + strict + NO_TAGS, _described)


def alter_request(changes: Changes) -> Question[dict[str, int]]:
    """Set quotas, by user and key; None takes one away. The answer has an error code by user."""
    body = bytearray(count(len(changes)))
    for user, values in changes.items():
        body += count(1) + text(_USER) + text(user) + NO_TAGS + count(len(values))
        for key, value in values.items():
            body += text(key) + _F64.pack(value or 0.0) + (b"\1" if value is None else b"\0") + NO_TAGS
        body += NO_TAGS
    validate_only = b"\0"
    return Question(*ALTER_CLIENT_QUOTAS, bytes(body) + validate_only + NO_TAGS, _altered)


def _described(body: memoryview) -> Described:
    reader = Reader(body)
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
    return Described(code, found)


def _altered(body: memoryview) -> dict[str, int]:
    reader = Reader(body)
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


def _entity(reader: Reader) -> str | None:
    """The user that an entity is; None for another one, and for the default of all users."""
    names: dict[str, str | None] = {}
    for _ in range(reader.count()):
        kind = reader.text() or ""
        names[kind] = reader.text()
        reader.tags()
    return names[_USER] if set(names) == {_USER} else None
